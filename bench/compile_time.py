#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What including millrace costs: seconds and peak memory of the compiler for one translation unit, medians.

    python3 bench/compile_time.py [--compiler g++] [--repeat 5] [--json FILE] [HEADER...]

Without headers: an empty unit, the core (base, coro, sync), every header that needs liburing at most, and millrace.hpp.
Each is measured without optimisation three times: parsed only (-fsyntax-only), compiled (-c), and compiled with its
headers precompiled, which is what target_precompile_headers() does for all units of a program but the first.

Seconds tell as much of the machine's hour as of the headers. So a header that many know, nlohmann/json.hpp, is measured
beside each unit, the two in turns; the last column is the median ratio of the two compilations. "-" where it is not
installed. --json appends one line per unit to FILE.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE_FOLDERS = ("base", "coro", "sync")
FLAGS = ["-std=c++20", "-O0", f"-I{ROOT}/include"]
REFERENCE = "nlohmann/json.hpp"
LIBURING_FOLDERS = CORE_FOLDERS + ("loop", "flow", "io", "device")


def measure(command):
    """(seconds, MB) of one run of a command and its children."""
    began = time.monotonic()
    # wait4 reports the largest process below the compiler's driver.
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    seconds = time.monotonic() - began
    if status != 0:
        raise SystemExit(f"compile_time.py: failed: {shlex.join(command)}")
    return seconds, usage.ru_maxrss / 1000


def units(headers):
    """(name, includes) of each translation unit to measure."""
    if headers:
        return [(header, [header]) for header in headers]
    include = ROOT / "include"

    def headers_of(folders):
        return [p.relative_to(include).as_posix() for folder in folders
                for p in sorted((include / "millrace" / folder).rglob("*.hpp")) if "detail" not in p.parts]

    result = [("(empty)", []), ("core", headers_of(CORE_FOLDERS)), ("liburing at most", headers_of(LIBURING_FOLDERS))]
    for umbrella in ("millrace/core.hpp", "millrace/millrace.hpp"):
        if (include / umbrella).exists():
            result.append((umbrella, [umbrella]))
    return result


def precompile(compiler, folder, includes):
    """The file to -include: the compiler takes the precompiled one beside it (g++: .gch, clang: .pch)."""
    header = pathlib.Path(folder, "precompiled.hpp")
    header.write_text("".join(f"#include <{include}>\n" for include in includes))
    result = f"{header}{'.pch' if 'clang' in compiler else '.gch'}"
    measure([compiler, *FLAGS, "-x", "c++-header", str(header), "-o", result])
    return str(header)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("headers", nargs="*")
    options = parser.parse_args()

    compiler = subprocess.run([options.compiler, "--version"], capture_output=True, text=True, check=True)
    compiler = compiler.stdout.splitlines()[0]
    print(f"{compiler}, -std=c++20 -O0, median of {options.repeat}")
    print(f"{'unit':28} {'headers':>7} {'parse s':>8} {'MB':>5} {'compile s':>10} {'MB':>5} {'precompiled s':>14} {'MB':>5} "
          f"{'/ json.hpp':>11}")
    with tempfile.TemporaryDirectory() as folder:
        def source(name, includes):
            path = pathlib.Path(folder, name)
            path.write_text("".join(f"#include <{include}>\n" for include in includes) + "int main() {}\n")
            return str(path)

        compiled = ["-c", "-o", f"{folder}/unit.o"]
        reference = [options.compiler, *FLAGS, *compiled, source("reference.cpp", [REFERENCE])]
        if subprocess.run(reference, capture_output=True, check=False).returncode != 0:
            reference = None
        for name, includes in [(REFERENCE, [REFERENCE])] * bool(reference) + units(options.headers):
            unit = source("unit.cpp", includes)
            header = precompile(options.compiler, folder, includes)
            modes = {"parse": ["-fsyntax-only"], "compile": compiled, "precompiled": ["-include", header, *compiled]}
            commands = {mode: [options.compiler, *FLAGS, *flags, unit] for mode, flags in modes.items()}
            if reference:
                commands["reference"] = reference
            for command in commands.values():
                measure(command)  # fills the page cache
            # All in turns: whatever slows the machine down meanwhile meets each of them.
            rounds = [{mode: measure(command) for mode, command in commands.items()} for _ in range(options.repeat)]
            row = {"unit": name, "headers": len(includes), "compiler": compiler, "repeat": options.repeat}
            for mode in modes:
                row[f"{mode}_s"] = round(statistics.median(runs[mode][0] for runs in rounds), 3)
                row[f"{mode}_mb"] = round(max(runs[mode][1] for runs in rounds))
            ratio = "-"
            if reference:
                row["ratio"] = round(statistics.median(runs["compile"][0] / runs["reference"][0] for runs in rounds), 3)
                ratio = f"{row['ratio']:.2f}"
            print(f"{name:28} {row['headers']:7} {row['parse_s']:8.2f} {row['parse_mb']:5} {row['compile_s']:10.2f} "
                  f"{row['compile_mb']:5} {row['precompiled_s']:14.2f} {row['precompiled_mb']:5} {ratio:>11}", flush=True)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
