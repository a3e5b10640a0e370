# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

"""Fails when object files, made from an include and nothing else, define anything of millrace's: check_emitted.py OBJECT...

g++ emits in every translation unit that includes it: a coroutine that is no template, used or not; every virtual function
of a class, and its tables, whose first virtual function is not declared inline in the class (see MILLRACE_COROUTINE and
MILLRACE_INLINE in base/compiler.hpp, and docs/design/compiling.md); a function that is not declared inline by mistake; a
variable that is made at run time. A program of many files pays for each of them in all its files. Nothing is excepted: g++ 12 and
newer must emit nothing of ours.
"""

import re
import subprocess
import sys

def emitted(objects):
    """(object, kind, name) of each definition that has to do with millrace."""
    listing = subprocess.run(["nm", "--print-file-name", "--demangle", "--defined-only", *objects], check=True,
                             capture_output=True, text=True)
    found = []
    for line in listing.stdout.splitlines():
        match = re.match(r"(.+?):[0-9a-f]+ (\S) (.*millrace.*)", line)
        if match:
            found.append(match.groups())
    return found


def advice(name):
    """What to do about it."""
    if ".Frame" in name and ".actor" in name:
        return "put MILLRACE_COROUTINE before the coroutine and what names it"
    if name.startswith(("vtable for", "typeinfo")):
        return "put MILLRACE_INLINE before the virtual functions of the class whose bodies stand in an .ipp"
    return "declare it inline (MILLRACE_INLINE in an .ipp), and what uses it"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = emitted(sys.argv[1:])
    for one, kind, name in found[:40]:
        print(f"{one} has ({kind}) {name}: {advice(name)}")
    print(f"{len(found)} definitions in {len(sys.argv) - 1} objects that are of includes alone")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
