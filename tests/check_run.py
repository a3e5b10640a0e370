#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""tests/run.sh with build folders of several kinds: check_run.py CMAKE.

It runs in a project of its own that has one test and nothing to build, with the presets of this one, and a program that
writes down how it is called in the place of ninja and make.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(one_test LANGUAGES NONE)
enable_testing()
add_test(NAME one COMMAND ${CMAKE_COMMAND} -E true)
"""
BUILDER = """#!/bin/sh
if [ "$1" = --version ]; then echo 1.11.1; fi
echo "$@" >> "$0.calls"
"""


class checked:
    def __init__(self, cmake, root):
        self.cmake = cmake
        self.root = root
        self.builder = root / "builder"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("MILLRACE_", "CMAKE_", "CTEST_"))}
        self.environment["PATH"] = f"{pathlib.Path(cmake).parent}:{self.environment['PATH']}"
        for folder in ("tests", "cmake"):
            (root / folder).mkdir()
        for name in ("run.sh", "summarize.py", "secrecy.py"):
            shutil.copy(TESTS / name, root / "tests")
        shutil.copy(TESTS.parent / "CMakePresets.json", root)
        (root / "cmake/packages.sh").write_text("")  # nothing is installed
        (root / "CMakeLists.txt").write_text(PROJECT)
        self.builder.write_text(BUILDER)
        self.builder.chmod(0o755)

    def call(self, *command, **variables):
        done = subprocess.run(command, cwd=self.root, env={**self.environment, **variables}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} left with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def make_folder(self, name, *options):
        """Configures without tests/run.sh."""
        self.call(self.cmake, "-S", ".", "-B", name, f"-DCMAKE_MAKE_PROGRAM={self.builder}", *options)

    def run(self, name, *options):
        """What the folder has afterwards: a dictionary of its cache. And how it was built: the last call."""
        said = self.call("bash", "tests/run.sh", *options, MILLRACE_BUILD=name)
        require(said.endswith("\n1 passed, 0 failed, 0 skipped\n"), "the last line", said)
        cache = (self.root / name / "CMakeCache.txt").read_text()
        calls = pathlib.Path(f"{self.builder}.calls").read_text()
        return dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.M)), calls.splitlines()[-1]


def require(condition, what, found):
    if not condition:
        sys.exit(f"unexpected: {what}: {found}")


def require_folder(found, generator, build_type, sanitize=None):
    got = [found.get(k) for k in ("CMAKE_GENERATOR", "CMAKE_BUILD_TYPE", "MILLRACE_SANITIZE")]
    require(got == [generator, build_type, sanitize], "generator, build type and sanitizers", got)


def main(cmake):
    with tempfile.TemporaryDirectory() as folder:
        c = checked(cmake, pathlib.Path(folder))
        builder = f"-DCMAKE_MAKE_PROGRAM={c.builder}"

        found, built = c.run("new", builder)
        require_folder(found, "Ninja", "Debug")
        require("-k 0" in built, "a build that goes on after an error", built)
        found, _ = c.run("new", "-DCMAKE_BUILD_TYPE=Release")
        require_folder(found, "Ninja", "Release")
        found, _ = c.run("new")
        require_folder(found, "Ninja", "Release")
        found, _ = c.run("preset", "--preset", "asan", builder)
        require_folder(found, "Ninja", "Debug", "address,undefined")

        # A folder that is there goes on as what it is: cmake refuses another generator.
        c.make_folder("makefiles", "-G", "Unix Makefiles", "-DCMAKE_BUILD_TYPE=MinSizeRel")
        found, built = c.run("makefiles")
        require_folder(found, "Unix Makefiles", "MinSizeRel")
        require("-k" not in built.split(), "an option of ninja for make", built)


if __name__ == "__main__":
    main(sys.argv[1])
