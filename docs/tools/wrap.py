#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Wraps what is too long in pages: paragraphs and items of lists that have a line of more than 120 columns.

    wrap.py FILE.md...

Code, tables, headings and quoted lines stay as they are, and so does every paragraph without such a line. The same page
gives the same bytes; a page that is wrapped stays as it is.
"""

import pathlib
import re
import sys
import textwrap

WIDTH = 120
# Lines that are no prose: blank ones, tables, headings, fences, quotations, markup.
APART = re.compile(r"\s*($|\||#|```|>|<(?:/|!--|p|img|br|a )\b)")
ITEM = re.compile(r"(\s*)((?:[-*]|\d+\.)\s+|)")


def wrapped(page):
    lines, out, code, i = page.split("\n"), [], False, 0
    while i < len(lines):
        if code or APART.match(lines[i]):
            code ^= lines[i].strip().startswith("```")
            out.append(lines[i])
            i += 1
            continue
        end = i + 1
        while end < len(lines) and not APART.match(lines[end]) and not ITEM.match(lines[end]).group(2):
            end += 1
        block, i = lines[i:end], end
        if max(map(len, block)) > WIDTH and not any(line.endswith("  ") for line in block):
            indent, mark = ITEM.match(block[0]).groups()
            text = " ".join([block[0][len(indent + mark):]] + [line.strip() for line in block[1:]])
            text = re.sub(r"`[^`]*`", lambda span: span.group().replace(" ", "\0"), text)  # code stays together
            block = textwrap.wrap(text, WIDTH, initial_indent=indent + mark, subsequent_indent=indent + " " * len(mark),
                                  break_long_words=False, break_on_hyphens=False)
        out += [line.replace("\0", " ") for line in block]
    return "\n".join(out)


def main(names):
    if not names or names[0].startswith("-"):
        print(__doc__)
        return 2
    for name in names:
        page = pathlib.Path(name)
        before = page.read_text(encoding="utf-8")
        after = wrapped(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{name}: wrapped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
