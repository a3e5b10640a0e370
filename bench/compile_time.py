#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What the programs that users write cost a compiler: seconds of the processor, peak memory, and whether the goals hold.

    python3 bench/compile_time.py [--compiler g++] [--repeat 3] [--mode apart] [--json FILE] [WHAT...]
    python3 bench/compile_time.py --instructions [--include OTHER/include] [WHAT...]

WHAT is `readme` (the program at the top of README.md), `training` (epochs of a dataset, with train.hpp), `rooms` (the
bodies of the library, a unit for each room at -O2, as millrace::compiled has them), a header such as
millrace/millrace.hpp (a file that includes it and nothing else) or a source file; all of the first three unless told
otherwise. Programs are compiled whole, without linking, in the ways of docs/guide/compiling.md, at -O0 and at -O2:
header-only, with the bodies apart (millrace::compiled), and both of them with the program's headers precompiled; or in
those whose names contain what --mode says.

Seconds tell as much of the machine's hour as of the program. So a program that parses with a header that many know,
nlohmann/json.hpp, is compiled at -O2 in the same rounds, and the goals are multiples of it; "-" where it is not
installed. Seconds are medians of the rounds, megabytes the most of any; rooms are measured once, since what counts
there is memory. --json appends one line per row to FILE. A goal that is missed ends the script with status 1.

--instructions counts those of the compiler instead, by valgrind's cachegrind: the same number each time, whatever else
the machine does, so that two trees can be compared. A precompiled header is beyond valgrind.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEPARATE = "-DMILLRACE_SEPARATE_COMPILATION"
# What `pkg-config --cflags millrace` defines, and what a build with every component does.
USUAL = [f"-DMILLRACE_WITH_{component}" for component in ("HTTP", "S3", "TAR", "JPEG")]
EVERY = USUAL + [f"-DMILLRACE_WITH_{component}" for component in ("PNG", "WEBP", "AUDIO", "DLPACK", "S3_SERVER")]
# name: (options, precompiled)
MODES = {f"{way}{', precompiled' * precompiled} {level}": ([level, *options], precompiled)
         for way, options in (("header-only", []), ("apart", [SEPARATE])) for precompiled in (False, True)
         for level in ("-O0", "-O2")}
# (program, mode): times the program that parses with json.hpp, MB
GOALS = {("readme", "apart -O2"): (0.75, 300), ("readme", "header-only -O2"): (4.5, 800)}
ROOM_MB = 1000

REFERENCE = """#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

int main(int, char** arguments) {
  std::ifstream file(arguments[1]);
  const nlohmann::json settings = nlohmann::json::parse(file);
  std::puts(settings.at("name").get<std::string>().c_str());
}
"""

TRAINING = """#include <millrace/train.hpp>
#include <cstdio>
namespace mill = millrace;

void train_step(const std::vector<mill::sample>&) {}

int main() {
  auto s3 = mill::s3::client::from_environment();
  mill::runtime rt;
  const mill::rank mine = mill::rank_from_environment();
  const mill::dataset corpus(s3, "s3://corpus/train/", {.index = "train.index"});
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .epochs = 3, .batch = 32, .rank = mine}) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) train_step(batch);
  std::puts(run.state().c_str());
}
"""


def readme():
    """The program at the top of the README, as examples/CMakeLists.txt builds it."""
    program = re.search(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S).group(1)
    stub = "\nvoid train_step(mill::device_batch&) {}\nint main()"
    return "#include <cstdio>\n" + program.replace("\nint main()", stub)


def text_of(what):
    if what == "readme":
        return readme()
    if what == "training":
        return TRAINING
    if what.endswith(".cpp"):
        return pathlib.Path(what).read_text(encoding="utf-8")
    return f"#include <{what}>\nint main() {{}}\n"


def rooms():
    """The unit of each room, as cmake/millrace-compiled.cmake makes it of the one list."""
    lines = (ROOT / "src/millrace.cpp").read_text(encoding="utf-8").splitlines(keepends=True)
    names = sorted({m.group(1) for line in lines if (m := re.match(r"#include <millrace/(\w+)/.*\.ipp>", line))})
    return {name: "".join(line for line in lines
                          if not line.endswith(".ipp>\n") or line.startswith(f"#include <millrace/{name}/"))
            for name in names}


def measure(command):
    """(seconds of the processor, MB) of one run of a command and its children."""
    # wait4 reports the largest process below the compiler's driver.
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        raise SystemExit(f"compile_time.py: failed: {shlex.join(command)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


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


class bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.base = [options.compiler, "-std=c++20", f"-I{options.include}", f"-I{ROOT}"]
        self.failed = False

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def compile(self, source, *options):
        return [*self.base, *options, "-c", str(source), "-o", f"{self.folder}/unit.o"]

    def precompiled(self, text, number, flags):
        """The options with which the headers of a program are taken from a file that is made here (.gch or .pch)."""
        header = self.write(f"headers{number}.hpp", "".join(re.findall(r"^#include .*\n", text, re.M)))
        made = f"{header}{'.pch' if 'clang' in self.options.compiler else '.gch'}"
        measure([*self.base, *flags, "-x", "c++-header", str(header), "-o", made])
        return [*flags, "-include", str(header)]

    def row(self, what, mode, seconds, mb, ratio, goal=None):
        verdict = ""
        if goal:
            most, most_mb = goal
            good = mb <= most_mb and (most is None or ratio is None or ratio <= most)
            self.failed = self.failed or not good
            verdict = f"  {'PASS' if good else 'FAIL'}: at most {'' if most is None else f'{most} and '}{most_mb} MB"
        shown = "-" if ratio is None else f"{ratio:.2f}"
        print(f"{what:26} {mode:30} {seconds:8.2f} {mb:6.0f} {shown:>7}{verdict}", flush=True)
        if self.options.json:
            with open(self.options.json, "a", encoding="utf-8") as out:
                out.write(json.dumps({"what": what, "mode": mode, "seconds": round(seconds, 3), "mb": round(mb),
                                      "ratio": ratio and round(ratio, 3)}) + "\n")

    def program(self, what, reference):
        text = text_of(what)
        source = self.write("unit.cpp", text)
        commands = {}
        for number, (mode, (flags, precompiled)) in enumerate(MODES.items()):
            if self.options.mode not in mode:
                continue
            flags = [*USUAL, *flags]
            # The text again, after its precompiled headers: their guards are set.
            commands[mode] = self.compile(source, *(self.precompiled(text, number, flags) if precompiled else flags))
        if reference:
            commands["json"] = reference
        # All in turns: whatever slows the machine down meanwhile meets each of them.
        rounds = [{mode: measure(command) for mode, command in commands.items()} for _ in range(self.options.repeat)]
        for mode in commands:
            seconds = statistics.median(runs[mode][0] for runs in rounds)
            mb = max(runs[mode][1] for runs in rounds)
            ratio = statistics.median(runs[mode][0] / runs["json"][0] for runs in rounds) if reference else None
            name, shown = ("nlohmann/json.hpp, parsing", "-O2") if mode == "json" else (what, mode)
            self.row(name, shown, seconds, mb, ratio, GOALS.get((what, mode)))

    def rooms(self, reference):
        json_seconds = measure(reference)[0] if reference else None
        for name, text in rooms().items():
            command = self.compile(self.write(f"{name}.cpp", text), "-O2", "-fPIC", *EVERY)
            if "clang" not in self.options.compiler:
                command.append("-fno-semantic-interposition")
            seconds, mb = measure(command)
            self.row(f"bodies of {name}/", "-O2", seconds, mb, json_seconds and seconds / json_seconds, (None, ROOM_MB))

    def instructions(self, what):
        source = self.write("unit.cpp", text_of(what))
        for mode, (flags, precompiled) in MODES.items():
            if not precompiled:
                counted = count_instructions(self.compile(source, *USUAL, *flags), self.folder)
                print(f"{what:26} {mode:30} {counted:10.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--mode", default="")
    parser.add_argument("--json")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--include", default=f"{ROOT}/include")
    parser.add_argument("what", nargs="*")
    options = parser.parse_args()

    version = subprocess.run([options.compiler, "--version"], capture_output=True, text=True, check=True)
    version = version.stdout.splitlines()[0]
    what = options.what or (["readme", "training"] if options.instructions else ["readme", "training", "rooms"])
    with tempfile.TemporaryDirectory() as folder:
        measured = bench(options, folder)
        if options.instructions:
            print(f"{version}, -std=c++20, millions of instructions")
            for name in what:
                measured.instructions(name)
            return 0
        print(f"{version}, -std=c++20, median of {options.repeat}")
        print(f"{'what':26} {'mode':30} {'s':>8} {'MB':>6} {'/ json':>7}")
        reference = measured.compile(measured.write("reference.cpp", REFERENCE), "-O2")
        if subprocess.run(reference, capture_output=True, check=False).returncode != 0:  # this one fills the page cache
            reference = None
        for name in what:
            if name == "rooms":
                measured.rooms(reference)
            else:
                measured.program(name, reference)
    return 1 if measured.failed else 0


if __name__ == "__main__":
    sys.exit(main())
