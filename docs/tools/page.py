# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""A page of docs/ that a tool makes from the sources: written, or compared with what would be written now."""

import pathlib


def write_or_check(arguments, page, made, tool):
    """The status to leave with. `page`: its path below the root, which is the last argument; `made(root)`: its text."""
    root = pathlib.Path(arguments[-1])
    path, text = root / page, made(root)
    if "--check" not in arguments:
        path.write_text(text, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        print(f"{page} is not what the sources give now: python3 docs/tools/{tool} .")
        return 1
    return 0
