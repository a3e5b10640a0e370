#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the tests that a change affects: minutes of the processor where everything takes an hour.

    python3 tests/affected.py [--list] [--all] [REVISION [CMAKE_OPTION...]]

The change is what differs from REVISION (HEAD unless told otherwise), untracked files too. A test file is affected
that changed, or that includes a changed file of include/ or tests/ by whatever way, bodies too. Where more than some
two dozen are, as after a change of a low header: those of the rooms that changed, and of each other area one, its
shortest; --all takes them all. --list names them and builds nothing. The build is build/affected (MILLRACE_BUILD), by
the preset default with the bodies compiled once, and is kept: what did not change is not compiled again. Cases tagged
[slow] are left out, and so are the tests that are no test_<area>: structure, docs, package and the others. Tests of
cuda and parquet count only where their own room changed. Leaves with the status of the tests.
"""

import argparse
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]((?:millrace|tests|examples)/[^">]+)[>"]', re.M)
MANY = 24
# These need more than the packages of the build.
APART = {"cuda", "parquet"}


def changed_files(revision):
    git = lambda *command: subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True,
                                          text=True).stdout.split("\n")[:-1]
    return set(git("diff", "--name-only", revision)) | set(git("ls-files", "--others", "--exclude-standard"))


def include_graph():
    """File: the files that it includes; names from the root."""
    graph = {}
    for folder in ("include", "tests", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".hpp", ".ipp", ".cpp"):
                included = INCLUDE.findall(path.read_text(encoding="utf-8"))
                graph[path.relative_to(ROOT).as_posix()] = [
                    "include/" + name if name.startswith("millrace/") else name for name in included]
    return graph


def reached(graph, start):
    seen, rest = {start}, [start]
    while rest:
        new = [name for name in graph.get(rest.pop(), []) if name not in seen]
        seen.update(new)
        rest += new
    return seen


def choose(changed, everything=False):
    """(test files, how many are affected)"""
    graph = include_graph()
    tests = [name for name in graph if re.fullmatch(r"tests/\w+/\w+_test\.cpp", name)]
    area = lambda name: name.split("/")[1]
    rooms = {name.split("/")[2] for name in changed if name.startswith("include/millrace/")}
    affected = sorted(name for name in tests if not changed.isdisjoint(reached(graph, name))
                      and (area(name) not in APART or area(name) in rooms or name in changed))
    if everything or len(affected) <= MANY:
        return affected, len(affected)
    chosen = {name for name in affected if area(name) in rooms or name in changed}
    for other in {area(name) for name in affected} - {area(name) for name in chosen}:
        chosen.add(min((name for name in affected if area(name) == other), key=lambda n: (ROOT / n).stat().st_size))
    return sorted(chosen), len(affected)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    chosen, affected = choose(changed_files(options.revision), options.all)
    print(f"{affected} test files are affected by what differs from {options.revision}; {len(chosen)} of them are chosen")
    if options.list or not chosen:
        print("".join(f"{name}\n" for name in chosen), end="")
        return 0
    build = os.environ.get("MILLRACE_BUILD", f"{ROOT}/build/affected")
    environment = {"CCACHE_SLOPPINESS": "pch_defines,time_macros", **os.environ}
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    files = ";".join(name.removeprefix("tests/") for name in chosen)
    jobs = os.environ.get("MILLRACE_JOBS", str(os.cpu_count()))
    status = 0
    for command in (["cmake", "-S", str(ROOT), "-B", build, "--preset", "default", "-DMILLRACE_TOOLS=OFF",
                     "-DMILLRACE_EXAMPLES=OFF", "-DMILLRACE_BENCH=OFF", f"-DMILLRACE_TEST_FILES={files}", *launcher,
                     *options.options],
                    ["cmake", "--build", build, "-j", jobs],
                    ["ctest", "--test-dir", build, "-j", jobs, "--output-on-failure", "--no-tests=error",
                     "--exclude-regex", "[.]slow$"]):
        status = status or subprocess.run(command, cwd=ROOT, env=environment).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(chosen)} test files: {'failed' if status else 'ok'}, {used.ru_utime + used.ru_stime:.0f} s of the processor")
    return status


if __name__ == "__main__":
    sys.exit(main())
