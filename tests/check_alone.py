#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles every test file and every program of the guide alone, syntax only: check_alone.py BUILD [JOBS].

The other builds compile a dozen test files in one translation unit (tests/batches.cmake), where each sees the includes
of the others. BUILD is a folder that is configured with MILLRACE_TEST_BATCH=1, from which the commands are taken, and
with MILLRACE_TEST_COMPILED=ON: headers then declare only, and include the least. Catch2's headers are precompiled in
it; that a file includes them itself is seen in its text.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CATCH = ROOT / "tests/support/catch.hpp"
INCLUDED = re.compile(r'^#include [<"]([^>"]+)[>"]', re.M)


def wanted(file):
    if file.suffix == ".cu":  # nvcc looks for the object that is not made
        return False
    return file.name.endswith("_test.cpp") and ROOT / "tests" in file.parents or file.parent == ROOT / "docs/guide/code"


def includes_catch(file):
    """Itself, or by a header of the tests that it includes."""
    text = file.read_text()
    for name in INCLUDED.findall(text):
        path = ROOT / name
        if path == CATCH or name.startswith("catch2/") or (name.startswith("tests/") and includes_catch(path)):
            return True
    return False


def compile_alone(entry):
    """The path, and what is wrong with it or nothing."""
    file = pathlib.Path(entry["file"])
    arguments = shlex.split(entry["command"])
    del arguments[arguments.index("-o"):arguments.index("-o") + 2]
    arguments.remove("-c")
    if pathlib.Path(arguments[0]).name == "ccache":
        del arguments[0]
    done = subprocess.run([*arguments, "-fsyntax-only"], cwd=entry["directory"], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wrong = done.stdout if done.returncode != 0 else ""
    if "TEST_CASE(" in file.read_text() and not includes_catch(file):
        wrong += f"{file}: it does not include tests/support/catch.hpp\n"
    return file.relative_to(ROOT), wrong


def main(build, jobs):
    # A file in several binaries is compiled as in the first.
    entries = {}
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        if wanted(pathlib.Path(entry["file"])):
            entries.setdefault(entry["file"], entry)
    if not entries:
        sys.exit(f"{build} compiles no test file alone: configure it with -DMILLRACE_TEST_BATCH=1")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for file, wrong in pool.map(compile_alone, entries.values()):
            if wrong:
                failed += 1
                print(f"{file} does not compile alone:\n{wrong}", flush=True)
    print(f"{len(entries)} files compiled alone, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()))
