# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

"""Fails when including millrace.hpp takes the compiler too much memory: check_memory.py MB COMPILER [OPTION...]

Memory stands for time, of which it is nearly proportional here, since it is the same on every machine and in every run:
what a new header costs shows before it adds up to seconds (docs/design/compiling.md). Above some 256 MB of its own
g++ begins to collect garbage, which takes 0.2 s; for the measurement that is turned off.
"""

import os
import pathlib
import sys
import tempfile


def peak_mb(compiler, options):
    """The peak memory, in MB, of compiling a file that includes millrace.hpp and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "unit.cpp")
        source.write_text("#include <millrace/millrace.hpp>\nint main() {}\n")
        command = [compiler, "-std=c++20", "-O0", "--param", "ggc-min-expand=1000", *options, "-c", str(source), "-o",
                   f"{folder}/unit.o"]
        child = os.posix_spawnp(command[0], command, os.environ)
        _, status, usage = os.wait4(child, 0)  # of the largest process below the compiler's driver
        if status != 0:
            sys.exit("check_memory.py: the compiler failed")
        return usage.ru_maxrss / 1000


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    limit = float(sys.argv[1])
    used = peak_mb(sys.argv[2], sys.argv[3:])
    print(f"millrace.hpp takes the compiler {used:.2f} MB; {limit:.0f} are allowed")
    if used > limit:
        sys.exit("bench/compile_time.py tells what a header takes; std::optional, std::vector, std::map, std::span and "
                 "std::function of a new type are 1 to 4 MB each")


if __name__ == "__main__":
    main()
