#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Lists every public name with its header and how its comment begins: docs/reference.md.

    reference.py ROOT                 writes the page
    reference.py --check ROOT         leaves with 1 when the page is not what would be written now
    reference.py --undocumented ROOT  prints the public names without a comment

Public is what stands in a namespace of a header, outside of `detail`; members of classes are not listed. An alias
`x = basic_x<>` stands for the template. Left out: names without a comment, and types that a function only returns.
"""

import pathlib
import re
import sys

import page

PAGE = "docs/reference.md"
TOKEN = re.compile(r"""(?P<doc>///[^\n]*)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<raw>R"\((?:.|\n)*?\)")"""
                   r"""|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<char>(?<!\w)'(?:[^'\\\n]|\\.)+')"""
                   r"""|(?P<preprocessor>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)|(?P<mark>[{}();])|(?P<text>.|\n)""",
                   re.S | re.M | re.X)


def declarations(text, ends=False):
    """(namespace, declaration, comment) of what stands in the namespaces of a header; with `ends` and the end of each."""
    scopes, now, doc, parens = [], "", [], 0
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        outside = all(name is not None for name in scopes)
        if kind == "doc" and outside:
            if not now.strip() and not token.startswith("///<"):
                doc.append(token[3:])
                now = ""
        elif kind in ("comment", "doc", "preprocessor"):
            if kind == "preprocessor":
                doc = []
        elif token == "{" and (not outside or parens == 0):
            # The inline namespace of the version and the mode is no part of a name.
            now = now.replace("::inline MILLRACE_ABI", "")
            named = re.search(r"\bnamespace\s+([\w:]*)\s*$", now) if outside else None
            if named:
                scopes.append(named.group(1))
                now, doc = "", []
            elif outside and re.search(r"\brequires\s*(\([^()]*(\([^()]*\)[^()]*)*\))?\s*$", now) and "concept" not in now:
                scopes.append(None)  # of a requirement: the declaration continues after it
            else:
                if outside:
                    yield ("::".join(scopes), now, doc) + ((match.end(),) if ends else ())
                    now, doc = "", []
                scopes.append(None)
        elif token == "}" and (not outside or parens == 0):
            if scopes:
                scopes.pop()
        elif outside and token == ";" and parens == 0:
            yield ("::".join(scopes), now + ";", doc) + ((match.end(),) if ends else ())
            now, doc = "", []
        elif outside:
            parens += {"(": 1, ")": -1}.get(token, 0)
            now += token
            if not now.strip() and now.count("\n") > 1:
                doc = []  # a comment with a blank line after it is about something else


def without_templates(declaration):
    """The declaration without `template <...>` and attributes."""
    text = re.sub(r"\[\[.*?\]\]", " ", declaration, flags=re.S).strip()
    while (match := re.match(r"template\s*<", text)) is not None:
        depth, i = 1, match.end()
        while depth > 0:
            depth += {"<": 1, ">": -1}.get(text[i], 0) if text[i - 1:i + 1] != "->" else 0
            i += 1
        text = text[i:].strip()
        text = re.sub(r"^requires\s+(?:requires\s*)?(?:[\w:]+(?:<[^()]*?>)?\s*(?:&&|\|\|)?\s*|\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)+?(?=(?:class|struct|auto|inline|constexpr|async_generator|stream|task|void|bool|std::|[\w:]+(?:<[^()]*>)?[&*]?\s+\w+\s*\())", "", text)
    return " ".join(text.split())


def name_of(declaration):
    """The name that is declared; None for what declares none of its own."""
    if re.match(r"\s*(extern\s+template|template\s*<\s*>|template\s+(class|struct)|friend|static_assert)\b", declaration):
        return None
    text = without_templates(declaration)
    for pattern in (r"concept (\w+)", r"using (\w+) =", r"(?:class|struct|union|enum(?: class| struct)?) (\w+)(?=\s*(?:$|final|:|\{))"):
        match = re.match(pattern, text)
        if match:
            return match.group(1)
    if re.match(r"using|typedef|(class|struct|enum)\b", text) or "operator" in text:
        return None
    function = re.match(r"[^=(]*?(?<![:\w~])(\w+)\s*\(", text)
    if function:
        guide = re.search(r"\)\s*->", text) and not re.search(r"\bauto\b", text)
        return None if guide or function.start(1) == 0 else function.group(1)
    if "(" in text.split("=")[0]:  # a member that is defined outside of its class
        return None
    variable = re.search(r"(\w+)(?:\[\w*\])?\s*(?:=|;|$)", text)
    return variable.group(1) if variable and " " in text else None


def sentence(doc):
    """The first sentence of a comment; two where the first is a few words."""
    paragraph = []
    for line in doc:
        if not line.strip() or line.startswith("     "):
            if paragraph:
                break
            continue
        paragraph.append(line.strip())
    text = " ".join(paragraph)
    ends = [m.end() for m in re.finditer(r"(?<!e\.g)(?<!i\.e)\.(?= |$)", text)]
    if ends:
        text = text[:ends[1] if ends[0] < 40 and len(ends) > 1 else ends[0]]
    return re.sub(r"[:;,]$", ".", text)


def public_names(root):
    """(names, undocumented): lists of (header, qualified name, first sentence)."""
    base = pathlib.Path(root, "include/millrace")
    documented, bare = {}, {}
    for path in sorted(base.rglob("*.hpp")):
        header = path.relative_to(base).as_posix()
        if "detail" in header.split("/"):
            continue
        found, aliases = {}, {}
        for scope, declaration, doc in declarations(path.read_text(encoding="utf-8")):
            parts = scope.split("::")
            if parts[0] != "millrace" or "detail" in parts or "" in parts:
                continue
            name = name_of(declaration)
            if name is None:
                continue
            name = "::".join(parts[1:] + [name])
            stands_for = re.search(r"using \w+ = (?:\w+::)*(basic_\w+)<", declaration)
            if stands_for:
                aliases["::".join(parts[1:] + [stands_for.group(1)])] = name
            if found.get(name, "") == "":
                found[name] = sentence(doc)
        for basic, alias in aliases.items():
            text = found.pop(basic, "")
            found[alias] = found.get(alias) or text
        for name, text in found.items():
            (documented if text else bare).setdefault((header, name), text)
    names = [(header, name, text) for (header, name), text in documented.items()
             if not re.match(r"What \w+\(\) returns\.", text)]
    listed = {name for _, name, _ in names}
    return names, sorted((h, n) for h, n in bare if n not in listed)


def written(root):
    names, _ = public_names(root)
    folders = {}
    for header, name, text in names:
        folders.setdefault(header.split("/")[0] if "/" in header else "", []).append((name, header, text))
    out = [
        "<!-- Written by docs/tools/reference.py: do not edit. -->",
        "",
        "# Public names",
        "",
        "Every public name, its header, and how its comment begins: the header has the rest. All of them are in",
        "namespace `millrace`, which is left out. Types that a function only returns are not listed.",
        "",
        "Folders: " + ", ".join(f"[{folder}](#{folder})" for folder in sorted(folders) if folder) + ".",
    ]
    for folder in sorted(folders):
        out += ["", f"## {folder or 'millrace'}", "", "| name | header | |", "|---|---|---|"]
        for name, header, text in sorted(folders[folder]):
            cell = text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else re.sub(
                r"(`[^`]*`)|<", lambda m: m.group(1) or "&lt;", text).replace("|", "\\|")
            out.append(f"| `{name}` | [{header}](../include/millrace/{header}) | {cell} |")
    return "\n".join(out) + "\n"


def check_itself():
    text = """
#define X(a) { a
namespace millrace {
/// \\file
/// Not this.

/// A thing: { of ( two. Not this.
template <class T = void>
class basic_thing final : public base { int member; void f() { ; } };
using thing = basic_thing<>;
namespace detail { /// Hidden.
int hidden(); }
namespace s3 {
/// Adds. And more.
template <class T>
  requires requires(T t) { t.x; }
[[nodiscard("why")]] auto add(options o = {}, int x = f(1)) -> int { return '{' + "}"; }
/// A number:
///
///     code();
inline constexpr int limit = 3;
class later;
}
template <class T>
void basic_thing<T>::f() {}
template <class T>
basic_thing<T>::~basic_thing() noexcept = default;
int bare() { return 1; }
}
"""
    found = [(scope, name_of(d), sentence(doc)) for scope, d, doc in declarations(text) if name_of(d)]
    assert found == [
        ("millrace", "basic_thing", "A thing: { of ( two. Not this."), ("millrace", "thing", ""),
        ("millrace::detail", "hidden", "Hidden."), ("millrace::s3", "add", "Adds. And more."),
        ("millrace::s3", "limit", "A number."), ("millrace", "bare", "")], found


def main(arguments):
    check_itself()
    if "--undocumented" in arguments:
        for header, name in public_names(arguments[-1])[1]:
            print(f"{header}: {name}")
        return 0
    return page.write_or_check(arguments, PAGE, written, "reference.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
