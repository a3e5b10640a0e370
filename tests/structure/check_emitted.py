# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

"""Fails when object files, made from an include and nothing else, hold coroutines: check_emitted.py OBJECT...

g++ emits a coroutine that is no template in every translation unit that includes it (see docs/decisions/).
"""

import re
import subprocess
import sys


def emitted(objects):
    """The names of the coroutines whose bodies are in the objects."""
    listing = subprocess.run(["nm", "--demangle", *objects], check=True, capture_output=True, text=True).stdout
    names = set()
    for line in listing.splitlines():
        # "0000 t name(name(arguments)::_Z...Frame*) [clone .actor]"
        found = re.match(r"[0-9a-f]+ [tTwW] (.*?)\(.*\.Frame.*\.actor", line)
        if found:
            names.add(found.group(1))
    return sorted(names)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    names = emitted(sys.argv[1:])
    for name in names:
        print(f"emitted without being used: {name}: put MILLRACE_COROUTINE before it and what names it")
    print(f"{len(names)} coroutines in {len(sys.argv) - 1} objects")
    sys.exit(1 if names else 0)


if __name__ == "__main__":
    main()
