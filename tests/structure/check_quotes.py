#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What the README quotes of the examples stands there, and every example is quoted: check_quotes.py ROOT.

A quote is a block of C++ whose first line names its file. The other lines follow each other in that file, at one
indentation. The first block of the README is a program of its own (examples/CMakeLists.txt builds it).
"""

import pathlib
import re
import sys
import textwrap


def findings(readme, files):
    """What is wrong with the quotes; `files` maps the names of the examples to their texts."""
    wrong = []
    quoted = set()
    for block in re.findall(r"^```cpp\n(.*?)^```$", readme, re.M | re.S)[1:]:
        named = re.match(r"// (examples/\S+)\n", block)
        if named is None or named.group(1) not in files:
            wrong.append(f"names no example in its first line: {block.splitlines()[0]}")
            continue
        quoted.add(named.group(1))
        lines = block.splitlines()[1:]
        text = files[named.group(1)].splitlines()
        windows = (text[i:i + len(lines)] for i in range(len(text) - len(lines) + 1))
        if not any(textwrap.dedent("\n".join(w)) == "\n".join(lines) for w in windows):
            wrong.append(f"not in {named.group(1)}: {lines[0]}")
    wrong += [f"not quoted: {name}" for name in files if name.count("/") == 1 and name not in quoted]
    return wrong


def check_itself():
    files = {"examples/a.cpp": "void f() {\n  one();\n  two();\n}\n", "examples/common/b.hpp": "int b;\n"}
    program = "```cpp\nint main() {}\n```\n"

    def quote(name, lines):
        return f"```cpp\n// {name}\n{lines}\n```\n"

    good = program + quote("examples/a.cpp", "one();\ntwo();")
    assert findings(good, files) == []
    assert findings(program, files) == ["not quoted: examples/a.cpp"]
    assert findings(good + quote("examples/a.cpp", "two();\none();"), files) == ["not in examples/a.cpp: two();"]
    assert findings(good + quote("examples/b.cpp", "int b;"), files) != []
    assert findings(good + "```cpp\none();\n```\n", files) == ["names no example in its first line: one();"]


def main():
    check_itself()
    root = pathlib.Path(sys.argv[1])
    names = sorted(p for p in (root / "examples").rglob("*") if p.suffix in (".cpp", ".hpp"))
    files = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in names}
    wrong = findings((root / "README.md").read_text(encoding="utf-8"), files)
    for line in wrong:
        print("README.md:", line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
