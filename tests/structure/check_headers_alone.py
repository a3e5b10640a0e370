#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles every public header alone, syntax only: check_headers_alone.py BUILD [JOBS].

BUILD is a folder that is configured with MILLRACE_HEADER_CHECKS=ON: the commands are those of its targets
millrace_headers_*, which are not built (cmake/header_checks.cmake). No code is made of the bodies, which takes half the
time; that including everything makes none is another test (check_emitted.py).
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def compile_alone(entry):
    """What the compiler says of the unit, where it does not accept it; else nothing."""
    arguments = shlex.split(entry["command"])
    del arguments[arguments.index("-o"):arguments.index("-o") + 2]
    arguments.remove("-c")
    if pathlib.Path(arguments[0]).name == "ccache":  # it does not keep what is compiled to nothing
        del arguments[0]
    done = subprocess.run([*arguments, "-fsyntax-only"], cwd=entry["directory"], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout or "the compiler failed" if done.returncode != 0 else ""


def main(build, jobs):
    units = pathlib.Path(build, "tests/header_checks").resolve()
    entries = {}
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if units in file.parents and file.name != "everything.cpp":
            entries[str(file.relative_to(units).with_suffix(""))] = entry
    if not entries:
        sys.exit(f"{build} compiles no header alone: configure it with -DMILLRACE_HEADER_CHECKS=ON")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for header, wrong in zip(entries, pool.map(compile_alone, entries.values())):
            if wrong:
                failed += 1
                print(f"{header} does not compile alone:\n{wrong}", flush=True)
    print(f"{len(entries)} headers compiled alone, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()))
