#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What the pages show and name is there.

    check_quotes.py ROOT           leaves with 1 when something is not
    check_quotes.py --write ROOT   first puts the programs' present text into the pages of docs/

The one block of C++ in README.md is a program of its own (examples/CMakeLists.txt builds it). docs/guide/examples.md
quotes the examples: a quote is a block of C++ whose first line names its file. The other lines follow each other in that
file, at one indentation, and every example is quoted.

The other pages of docs/ quote regions of programs that the tests build and run (docs/guide/code, and the modules of
examples/python by their path from the page): before a block of C++ stands

    <!-- code/stages.cpp: warn -->

and the block is what stands in that file between the lines `// begin warn` and `// end warn`. Every region is quoted.
Links lead to files that are there, and so do the names of headers; other names in code style are words of the tree.
"""

import os
import pathlib
import re
import sys
import textwrap

QUOTE = re.compile(r"^(?:<!-- (\S+\.\w+): (\S+) -->\n)?```cpp\n(.*?)^```$", re.M | re.S)


def findings(page, files):
    """What is wrong with the quotes of the page of examples; `files` maps their names to their texts."""
    wrong = []
    quoted = set()
    for block in re.findall(r"^```cpp\n(.*?)^```$", page, re.M | re.S):
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


def regions_of(text):
    """{name: lines between `// begin name` and `// end name`}; other such lines inside are left out."""
    regions, open_ones = {}, []
    for line in text.splitlines():
        match = re.fullmatch(r"\s*// (begin|end) (\S+)", line)
        if match is None:
            for name in open_ones:
                regions[name].append(line)
        elif match.group(1) == "begin":
            open_ones.append(match.group(2))
            regions.setdefault(match.group(2), [])
        else:
            open_ones.remove(match.group(2))
    if open_ones:
        raise ValueError(f"no end of {open_ones}")
    return {name: textwrap.dedent("\n".join(lines)).strip("\n") + "\n" for name, lines in regions.items()}


def page_findings(page, regions, quoted):
    """What is wrong with the quotes of a page; `regions` maps files, as the page names them, to their regions. Adds
    what is quoted to `quoted`, as (file, region)."""
    wrong = []
    for file, region, block in QUOTE.findall(page):
        if not file:
            wrong.append(f"a block of C++ that quotes nothing: {block.splitlines()[0]}")
        elif region not in regions.get(file, {}):
            wrong.append(f"there is no region {region} in {file}")
        else:
            quoted.add((file, region))
            if regions[file][region] != block:
                wrong.append(f"not what {file} has as {region} (check_quotes.py --write .)")
    return wrong


def rewritten(page, regions):
    def now(match):
        file, region, block = match.groups()
        if file:
            block = regions.get(file, {}).get(region, block)
        return (f"<!-- {file}: {region} -->\n" if file else "") + f"```cpp\n{block}```"

    return QUOTE.sub(now, page)


def has_member(root, owner, member):
    """Whether a header declares both, as far as a glance can tell, or a body defines OWNER::MEMBER."""
    for path in sorted((root / "include/millrace").rglob("*.[hi]pp")):
        text = path.read_text(encoding="utf-8")
        if re.search(rf"\b{owner}(<\w*>)?::~?{member}\b", text):
            return True
        declared = re.search(rf"\b(class|struct|namespace|enum)\s+(class\s+)?([\w:]+::)?{owner}\b", text)
        if declared and re.search(rf"\b{member}\b", text):
            return True
    return owner in ("std", "mill")  # not the library's, and an alias of it


def prose_of(page):
    return re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)


def link_findings(page, folder):
    """Links of a page in `folder` that lead nowhere."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose_of(page))
    return [f"a link to what is not there: {t}" for t in targets if "://" not in t and not (folder / t).exists()]


def name_findings(page, folder, root, words):
    """Links and names of a page in `folder` that lead nowhere; in changes.md old names are wanted."""
    wrong = link_findings(page, folder)
    prose = prose_of(page)
    for name in re.findall(r"`([^`\n]+)`", "" if page.startswith("# Renamed and removed\n") else prose):
        if re.fullmatch(r"(millrace/)?\w+(/\w+)*\.hpp", name):
            if not (root / "include/millrace" / re.sub("^millrace/", "", name)).exists() and not (root / name).exists():
                wrong.append(f"a header that is not there: {name}")
        elif re.fullmatch(r"\w+(::\w+)*(<>)?(\(\))?", name):
            wrong += [f"a name that nothing has: {name}" for w in re.findall(r"\w+", name) if w not in words]
            owned = re.fullmatch(r"(\w+)::(\w+)(\(\))?", name)
            if owned and not has_member(root, owned.group(1), owned.group(2)):
                wrong.append(f"a member that its class does not have: {name}")
    return wrong


def head_findings(page):
    """A page of docs/design names the headers that it explains, in the paragraph after its title."""
    if re.match(r"# .+\n\nExplains [^\n]*`[\w/]+\.hpp`", page) is None:
        return ["its first paragraph names no header: Explains `room/topic.hpp`"]
    return []


def check_itself():
    files = {"examples/a.cpp": "void f() {\n  one();\n  two();\n}\n", "examples/common/b.hpp": "int b;\n"}

    def quote(name, lines):
        return f"```cpp\n// {name}\n{lines}\n```\n"

    good = quote("examples/a.cpp", "one();\ntwo();")
    assert findings(good, files) == []
    assert findings("", files) == ["not quoted: examples/a.cpp"]
    assert findings(good + quote("examples/a.cpp", "two();\none();"), files) == ["not in examples/a.cpp: two();"]
    assert findings(good + quote("examples/b.cpp", "int b;"), files) != []
    assert findings(good + "```cpp\none();\n```\n", files) == ["names no example in its first line: one();"]

    regions = {"code/a.cpp": regions_of("int a;\n  // begin f\n  f();\n  // begin g\n\n    g();\n  // end f\n  // end g\n")}
    assert regions == {"code/a.cpp": {"f": "f();\n\n  g();\n", "g": "g();\n"}}
    page = "<!-- code/a.cpp: g -->\n```cpp\ng();\n```\n"
    seen = set()
    assert page_findings(page, regions, seen) == [] and seen == {("code/a.cpp", "g")}
    old = page.replace("g();", "h();")
    assert len(page_findings(old, regions, set())) == 1 and rewritten(old, regions) == page
    assert len(page_findings(page.replace(": g", ": x"), regions, set())) == 1
    assert len(page_findings("```cpp\ng();\n```\n", regions, set())) == 1
    here = pathlib.Path(__file__)
    root = here.parents[2]
    known = f"[x]({here.name}) [y](https://x.y/z) [z](#there) `version.hpp` `shard::url` `a | b`\n"
    assert name_findings(known, here.parent, root, {"shard", "url"}) == []
    words = {"shard", "url", "executor", "read_indexes"}
    for unknown in ("[x](gone.py)", "`gone/gone.hpp`", "`gone()`", "`executor::read_indexes()`"):
        assert len(name_findings(unknown, here.parent, root, words)) == 1, unknown
    assert head_findings("# Loop\n\nExplains `loop/event_loop.hpp`.\n") == []
    assert len(head_findings("# Loop\n\nA loop is one thread.\n")) == 1


def main():
    check_itself()
    root = pathlib.Path(sys.argv[-1])
    names = sorted(p for p in (root / "examples").rglob("*") if p.suffix in (".cpp", ".hpp"))
    files = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in names}
    wrong = []
    if (root / "README.md").read_text(encoding="utf-8").count("```cpp\n") != 1:
        wrong.append(("README.md", "its one block of C++ is the program that is built"))

    code = {p: p.read_text(encoding="utf-8") for p in sorted((root / "docs/guide/code").glob("*.c*"))}
    code |= {p: p.read_text(encoding="utf-8") for p in sorted((root / "examples/python").glob("*.cpp"))}
    tree = [p for top in ("include", "tests", "examples", "bench", "cmake", "docs/guide/code")
            for p in sorted((root / top).rglob("*")) if p.suffix in (".hpp", ".ipp", ".cpp", ".py", ".sh", ".txt", ".cmake")]
    tree.append(root / "CMakeLists.txt")
    words = set(re.findall(r"\w+", "\n".join(p.read_text(encoding="utf-8") for p in tree)))
    unquoted = {(p, region) for p in code for region in regions_of(code[p])}
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md"):
        page = root / name
        wrong += [(name, what) for what in link_findings(page.read_text(encoding="utf-8"), page.parent)]
    for page in [p for folder in ("docs", "docs/design", "docs/guide") for p in sorted((root / folder).glob("*.md"))]:
        shown = page.relative_to(root).as_posix()
        text = page.read_text(encoding="utf-8")
        if shown == "docs/reference.md":
            continue
        by_name = {}
        for p in code:
            name = ("" if page.parent.name == "guide" else "guide/") + "code/" + p.name
            if p.parent.name == "python":
                name = os.path.relpath(p, page.parent)
            by_name[name] = regions_of(code[p])
        if "--write" in sys.argv[1:-1] and rewritten(text, by_name) != text:
            text = rewritten(text, by_name)
            page.write_text(text, encoding="utf-8")
        quoted = set()
        if shown == "docs/guide/examples.md":
            wrong += [(shown, what) for what in findings(text, files)]
        else:
            wrong += [(shown, what) for what in page_findings(text, by_name, quoted)]
        wrong += [(shown, what) for what in name_findings(text, page.parent, root, words)]
        if page.parent.name == "design" and page.name != "README.md":
            wrong += [(shown, what) for what in head_findings(text)]
        unquoted -= {(p, region) for file, region in quoted for p in code if p.name == file.split("/")[-1]}
    wrong += [(p.relative_to(root).as_posix(), f"a region that no page quotes: {r}") for p, r in sorted(unquoted)]
    for name, what in wrong:
        print(f"{name}: {what}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
