#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of one program that were compiled in other ways.

    check_linking.py INCLUDE COMPILER [OPTION...]

Parts with other components see the same of the library, in either order of linking: no layout and no body depends on a
component. Parts of another mode (header-only and MILLRACE_SEPARATE_COMPILATION) or version do not link where one calls
the other with a type of the library.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
LIBRARIES = ["liburing", "libcurl", "openssl", "expat", "libarchive", "zlib", "libzstd"]


def main():
    include, compiler = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        libraries = subprocess.run(["pkg-config", "--libs", *LIBRARIES], check=True, capture_output=True, text=True)

        def unit(name, source, *options, headers=include):
            made = folder / (name + ".o")
            subprocess.run([*compiler, *options, "-I", headers, "-c", HERE / source, "-o", made], check=True)
            return made

        def link(*units):
            program = folder / "program"
            return subprocess.run([*compiler, *units, "-o", program, *libraries.stdout.split()], capture_output=True,
                                  text=True), program

        def says(expected, *units):
            linked, program = link(*units)
            said = subprocess.run([program], capture_output=True, text=True).stdout if linked.returncode == 0 else ""
            if said != expected:
                sys.exit(f"{[u.name for u in units]}: {said!r} and not {expected!r}\n{linked.stderr}")

        components = ["-DMILLRACE_WITH_HTTP", "-DMILLRACE_WITH_S3", "-DMILLRACE_WITH_TAR"]
        says("0\n", unit("alone", "components.cpp", "-DPART=plain", "-DALONE"))
        plain = unit("plain", "components.cpp", "-DPART=plain", "-DOTHER=full")
        full = unit("full", "components.cpp", "-DPART=full", *components)
        says("3 3\n", plain, full)
        says("3 3\n", full, plain)

        caller = unit("caller", "modes.cpp", "-DCALLER")
        says("", caller, unit("same", "modes.cpp"))  # links, and prints nothing
        if link(caller, unit("same", "modes.cpp"))[0].returncode != 0:
            sys.exit("units of one mode do not link")
        newer = folder / "include"
        shutil.copytree(include, newer)
        version = newer / "millrace" / "version.hpp"
        version.write_text(re.sub(r"(VERSION_PATCH) \d+", r"\1 999", version.read_text(), count=1))
        for what, other in [("another mode", unit("compiled", "modes.cpp", "-DMILLRACE_SEPARATE_COMPILATION")),
                            ("another version", unit("newer", "modes.cpp", headers=newer))]:
            linked, _ = link(caller, other)
            if linked.returncode == 0 or not re.search(r"undefined (reference|symbol).*of\(millrace::v", linked.stderr):
                sys.exit(f"a unit of {what} links:\n{linked.stderr}")


main()
