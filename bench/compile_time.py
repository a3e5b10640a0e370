#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What including millrace costs: seconds and peak memory of the compiler for one translation unit, medians.

    python3 bench/compile_time.py [--compiler g++] [--repeat 5] [--json FILE] [HEADER...]
    python3 bench/compile_time.py --instructions [--include OTHER/include] [HEADER...]

Without headers: an empty unit, the core (base, coro, sync), every header that needs liburing at most, millrace.hpp, and
millrace.hpp with decode_images.hpp, as a program that reads images includes them.
Each is measured without optimisation in the ways that the README offers: header-only, with the bodies compiled once in
another unit (millrace::compiled), and with its headers precompiled, header-only and with the bodies compiled once ("both"),
which is what target_precompile_headers() does for all units of a program but the first; and parsed only (-fsyntax-only).

Seconds are of the processor, and tell as much of the machine's hour as of the headers. So a header that many know,
nlohmann/json.hpp, is measured beside each unit, all in turns; the columns "/ json" are the median ratios to its
compilation, header-only. "-" where it is not installed. --json appends one line per unit to FILE.

--instructions counts those of the compiler instead, by valgrind's cachegrind: the same number each time, whatever else
the machine does, so that two trees can be compared. Header-only and compiled; a precompiled header is beyond valgrind.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE_FOLDERS = ("base", "coro", "sync")
FLAGS = ["-std=c++20", "-O0"]
REFERENCE = "nlohmann/json.hpp"
WAYS = ("header-only", "compiled", "precompiled", "both")
SEPARATE = "-DMILLRACE_SEPARATE_COMPILATION"
LIBURING_FOLDERS = CORE_FOLDERS + ("loop", "flow", "io", "device")


def measure(command):
    """(seconds of the processor, MB) of one run of a command and its children."""
    # wait4 reports the largest process below the compiler's driver.
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        raise SystemExit(f"compile_time.py: failed: {shlex.join(command)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


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
    result.append(("millrace.hpp, images", ["millrace/decode/decode_images.hpp", "millrace/millrace.hpp"]))
    return result


def count_instructions(command, folder):
    """Millions of instructions of the largest process of a command: the compiler below its driver."""
    for old in pathlib.Path(folder).glob("counted.*"):
        old.unlink()
    subprocess.run(["valgrind", "--quiet", "--trace-children=yes", "--tool=cachegrind", "--cache-sim=no",
                    f"--cachegrind-out-file={folder}/counted.%p", *command], check=True, stderr=subprocess.DEVNULL)
    counts = []
    for path in pathlib.Path(folder).glob("counted.*"):
        counts += [int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("summary:")]
    return max(counts) / 1e6


def precompile(compiler, folder, includes, name, flags):
    """The file to -include: the compiler takes the precompiled one beside it (g++: .gch, clang: .pch)."""
    header = pathlib.Path(folder, f"{name}.hpp")
    header.write_text("".join(f"#include <{include}>\n" for include in includes))
    result = f"{header}{'.pch' if 'clang' in compiler[0] else '.gch'}"
    measure([*compiler, *flags, "-x", "c++-header", str(header), "-o", result])
    return str(header)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--include", default=f"{ROOT}/include")
    parser.add_argument("headers", nargs="*")
    options = parser.parse_args()

    compiler = subprocess.run([options.compiler, "--version"], capture_output=True, text=True, check=True)
    compiler = compiler.stdout.splitlines()[0]
    base = [options.compiler, *FLAGS, f"-I{options.include}"]
    if options.instructions:
        print(f"{compiler}, {' '.join(FLAGS)}, millions of instructions")
        print(f"{'unit':24} {'header-only':>12} {'compiled':>12}")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder, "unit.cpp")
            for name, includes in units(options.headers):
                unit.write_text("".join(f"#include <{include}>\n" for include in includes) + "int main() {}\n")
                command = [*base, "-c", str(unit), "-o", f"{folder}/unit.o"]
                counts = [count_instructions([*command, *way], folder) for way in ([], [SEPARATE])]
                print(f"{name:24} {counts[0]:12.0f} {counts[1]:12.0f}", flush=True)
        return 0
    print(f"{compiler}, -std=c++20 -O0, median of {options.repeat}")
    print(f"{'unit':24} {'headers':>7} {'parsed s':>8} {'MB':>5}" +
          "".join(f" {name + ' s':>14} {'MB':>5} {'/ json':>6}" for name in WAYS))
    with tempfile.TemporaryDirectory() as folder:
        def source(name, includes):
            path = pathlib.Path(folder, name)
            path.write_text("".join(f"#include <{include}>\n" for include in includes) + "int main() {}\n")
            return str(path)

        compiled = ["-c", "-o", f"{folder}/unit.o"]
        reference = [*base, *compiled, source("reference.cpp", [REFERENCE])]
        if subprocess.run(reference, capture_output=True, check=False).returncode != 0:
            reference = None
        for name, includes in [(REFERENCE, [REFERENCE])] * bool(reference) + units(options.headers):
            unit = source("unit.cpp", includes)
            whole = precompile(base, folder, includes, "whole", [])
            declared = precompile(base, folder, includes, "declared", [SEPARATE])
            modes = {"parsed": ["-fsyntax-only"], "header-only": compiled, "compiled": [SEPARATE, *compiled],
                     "precompiled": ["-include", whole, *compiled], "both": [SEPARATE, "-include", declared, *compiled]}
            commands = {mode: [*base, *flags, unit] for mode, flags in modes.items()}
            if reference:
                commands["reference"] = reference
            for command in commands.values():
                measure(command)  # fills the page cache
            # All in turns: whatever slows the machine down meanwhile meets each of them.
            rounds = [{mode: measure(command) for mode, command in commands.items()} for _ in range(options.repeat)]
            row = {"unit": name, "headers": len(includes), "compiler": compiler, "repeat": options.repeat}
            line = f"{name:24} {len(includes):7}"
            for mode in modes:
                row[f"{mode}_s"] = round(statistics.median(runs[mode][0] for runs in rounds), 3)
                row[f"{mode}_mb"] = round(max(runs[mode][1] for runs in rounds))
                line += f" {row[f'{mode}_s']:{8 if mode == 'parsed' else 14}.2f} {row[f'{mode}_mb']:5}"
                if reference and mode in WAYS:
                    row[f"{mode}_ratio"] = round(statistics.median(runs[mode][0] / runs["reference"][0] for runs in rounds), 3)
                    line += f" {row[f'{mode}_ratio']:6.2f}"
                elif mode in WAYS:
                    line += f" {'-':>6}"
            print(line, flush=True)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
