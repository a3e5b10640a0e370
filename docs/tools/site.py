#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""The documentation as HTML: a page for each header, made of its comments, and the pages of Markdown. Searchable.

    site.py ROOT OUT           writes the pages into the folder OUT, and leaves with 1 when a link leads nowhere
    site.py --self-test        checks the scanner and the links on texts of its own

Needs the Python package Markdown (Debian: python3-markdown); without it, it says so and leaves with 77. The pages need
no server. Of a header, what stands in a namespace outside of `detail` and has a comment is shown, and of a class what is
public (see reference.py).
"""

import html
import html.parser
import json
import os
import pathlib
import re
import sys
import urllib.parse

import reference

try:
    import markdown
except ImportError:
    markdown = None

STARTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
STYLE = """
:root { --ink: #1d2125; --soft: #5b6570; --line: #d9dee3; --paper: #fff; --panel: #f5f7f9; --link: #0b5cad }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e6e9; --soft: #9aa4ae; --line: #363d44; --paper: #15181b; --panel: #1e2327; --link: #7ab8f5 }
  main img { background: #fff }
}
* { box-sizing: border-box }
body { margin: 0; display: flex; color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif }
nav { width: 17rem; flex: none; height: 100vh; position: sticky; top: 0; overflow: auto; padding: 1rem;
      background: var(--panel); border-right: 1px solid var(--line); font-size: .92rem }
nav h3 { margin: 1.1rem 0 .2rem; font-size: .8rem; text-transform: uppercase; color: var(--soft) }
nav a, #found a { display: block; padding: .08rem 0 }
nav .name { font-size: 1.2rem; font-weight: 700; color: var(--ink) }
main { flex: 1; min-width: 0; max-width: 66rem; padding: 1.5rem 2.5rem 4rem }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
input { width: 100%; margin: .7rem 0 .3rem; padding: .4rem .6rem; font: inherit; color: inherit;
        background: var(--paper); border: 1px solid var(--line); border-radius: 4px }
code, pre { font: .87em/1.45 ui-monospace, "DejaVu Sans Mono", monospace }
pre { padding: .7rem .9rem; overflow: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 4px }
pre.declared { white-space: pre-wrap; margin: .4rem 0 }
:not(pre) > code { padding: .05em .25em; background: var(--panel); border-radius: 3px }
table { display: block; overflow: auto; border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .35rem .7rem; border: 1px solid var(--line); text-align: left; vertical-align: top }
img { max-width: 100% } h1 { line-height: 1.2 } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line) }
.members { margin: .6rem 0 0 1rem; padding-left: 1rem; border-left: 2px solid var(--line) }
#found small { display: block; color: var(--soft) }
@media (max-width: 50rem) {
  body { display: block } nav { width: auto; height: auto; position: static } main { padding: 1rem }
  nav section { display: none }
}
"""
SCRIPT = """
const box = document.getElementById("search"), found = document.getElementById("found");
const rest = document.querySelector("nav section");
const rank = (name, text) => name === text ? 0 : name.startsWith(text) ? 1 : name.includes(text) ? 2 : 3;
function show() {
  const text = box.value.trim().toLowerCase(), words = text.split(/\\s+/);
  rest.hidden = text !== "";
  found.replaceChildren();
  if (text === "") return;
  const hits = entries.filter(e => words.every(w => (e[0] + " " + e[2]).toLowerCase().includes(w)));
  const last = e => e[0].toLowerCase().split("::").pop();
  hits.sort((a, b) => rank(last(a), text) - rank(last(b), text) || a[0].length - b[0].length);
  for (const [name, url, about] of hits.slice(0, 40)) {
    const link = document.createElement("a"), small = document.createElement("small");
    link.href = top_folder + url;
    link.textContent = name;
    small.textContent = about;
    found.append(link, small);
  }
  if (hits.length === 0) found.textContent = "nothing found";
}
box.addEventListener("input", show);
box.addEventListener("keydown", e => { if (e.key === "Enter" && found.querySelector("a")) found.querySelector("a").click(); });
document.addEventListener("keydown", e => {
  if (e.key === "/" && document.activeElement !== box) { e.preventDefault(); box.focus(); }
});
show();
"""


def slug(text, separator="-"):
    """The anchor of a heading, as the pages' links spell it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", separator)


# --- headers

def closing(text, begin):
    """The position of the brace that ends what begins before `begin`."""
    depth = 1
    for match in reference.TOKEN.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(match.group(), 0) if match.lastgroup == "mark" else 0
        if depth == 0:
            return match.start()
    return len(text)


def members(body, public):
    """(declaration, comment) of the public members that the body of a class declares."""
    found, now, doc, parens, i = [], "", [], 0, 0

    def emit():
        text = " ".join(now.split())
        text = re.sub(r"(\)(?: (?:const|noexcept))*) : (?!:).*", r"\1;", text)  # without the initialisers
        left_out = r"friend|static_assert|~|[,{)]|template.*\bfriend\b|.*= (default|delete);?$|.*\bdetail::refused\b"
        if public and text.strip(";") and not re.match(left_out, text):
            found.append((text if text.endswith(";") else text + ";", doc))

    while (match := reference.TOKEN.search(body, i)) is not None:
        kind, token, i = match.lastgroup, match.group(), match.end()
        if kind == "doc":
            if token.startswith("///<") and public and not now.strip() and found:
                found[-1] = (found[-1][0], found[-1][1] + [token[4:]])
            elif not token.startswith("///<") and not now.strip():
                doc, now = doc + [token[3:]], ""
        elif kind in ("comment", "preprocessor"):
            continue
        elif token == "{":
            end = closing(body, i)
            head = re.sub(r"\[\[.*?\]\]", "", now)
            if parens or re.match(r"\s*enum\b", head) or re.search(r"=\s*$", head) or "(" not in head and not re.search(
                    r"\b(class|struct|union)\b", head):
                now += body[match.start():end + 1]  # an initialiser, or values, which are shown
            else:
                emit()
                now, doc = "", []
            i = end + 1
        elif token == ";" and parens == 0:
            now += ";"
            emit()
            now, doc = "", []
        elif token == ":" and now.strip() in ("public", "private", "protected"):
            public, now, doc = now.strip() == "public", "", []
        else:
            parens += {"(": 1, ")": -1}.get(token, 0)
            now += token
            if not now.strip() and now.count("\n") > 1:
                doc = []
    return found


def shown(declaration):
    """A declaration as a reader wants it: without macros, the body's brace and the spaces of the source."""
    text = re.sub(r"\b(MILLRACE_(?!ABI)[A-Z_]+(\([^()]*\))?|inline)\s+|\[\[.*?\]\]\s*", "", " ".join(declaration.split()))
    text = text.replace("( ", "(")
    text = re.sub(r"^(template <.*?>) (?=(?:requires|class|struct|constexpr|auto|\[\[|[a-z]))", r"\1\n", text)
    return text.rstrip("{ ").rstrip(";") + ";"


def comment_html(doc):
    """A comment as HTML: its Markdown, in which < and & are themselves."""
    lines = []
    for line in doc:
        line = line[1:] if line.startswith(" ") else line
        if not line.startswith("    "):
            parts = line.split("`")
            parts[::2] = [p.replace("&", "&amp;").replace("<", "&lt;").replace("*", "&#42;") for p in parts[::2]]
            line = "`".join(parts)
        if re.match(r"(Concurrency|Cancellation|Dropping|Lifetime|Memory|Bounds?|Order|Errors|Cost): ", line):
            lines.append("")  # the parts of a contract
        lines.append(line)
    return markdown.markdown("\n".join(lines), extensions=["sane_lists"])


def names_of(text):
    """Of a header: {qualified name: [(declaration, comment, members)]} in the order of the file."""
    found = {}
    for scope, declaration, doc, end in reference.declarations(text, ends=True):
        parts = scope.split("::")
        name = reference.name_of(declaration)
        if name is None or parts[0] != "millrace" or "detail" in parts or "" in parts:
            continue
        inside = []
        plain = reference.without_templates(declaration)
        if text[end - 1] == "{" and (kind := re.match(r"(class|struct|union|enum)\b", plain)):
            body = text[end:closing(text, end)]
            if kind.group(1) == "enum":
                declaration += "{" + re.sub(r"\n\s*", "\n  ", body.rstrip()) + ("\n}" if "\n" in body else " }")
            else:
                inside = members(body, kind.group(1) != "class")
        found.setdefault("::".join(parts[1:] + [name]), []).append((declaration, doc, inside))
    return {name: all_of for name, all_of in found.items() if any(doc for _, doc, _ in all_of)}


def header_page(header, text, entries):
    """The body of a header's page; what it has for the search is added to `entries`."""
    about = re.search(r"^/// \\file\n((?:///[^\n]*\n)+)", text, re.MULTILINE)
    out = [f"<h1>{html.escape(header)}</h1>", f"<pre class=declared>#include &lt;millrace/{html.escape(header)}&gt;</pre>"]
    if about:
        out.append(comment_html([line[3:] for line in about.group(1).splitlines()]))
    for name, all_of in names_of(text).items():
        out.append(f'<h2 id="{html.escape(name)}">{html.escape(name)}</h2>')
        first = next(doc for _, doc, _ in all_of if doc)
        entries.append([name, f"api/{header[:-4]}.html#{name}", reference.sentence(first)])
        for declaration, doc, inside in all_of:
            if not doc and not inside and re.match(r"(template.*)?(class|struct) \w+;$", shown(declaration), re.DOTALL):
                continue  # declared ahead
            values = "enum" in declaration and "{" in declaration
            out.append(f"<pre class=declared>{html.escape(declaration.strip() + ';' if values else shown(declaration))}</pre>")
            out.append(comment_html(doc))
            if inside:
                out.append("<div class=members>")
                for member, comment in inside:
                    out.append(f"<pre class=declared>{html.escape(shown(member))}</pre>{comment_html(comment)}")
                out.append("</div>")
    return "\n".join(out)


# --- pages

class site:
    def __init__(self, root, out):
        self.root, self.out = pathlib.Path(root), pathlib.Path(out)
        self.entries, self.pages, self.waiting, self.seen = [], {}, [], set()
        base = self.root / "include/millrace"
        self.headers = {p.relative_to(base).as_posix() for p in base.rglob("*.hpp") if "detail" not in p.parts}

    def target(self, path):
        """The page that a file of the tree has become; it is made when it is the first link to it."""
        if path.startswith("include/millrace/"):
            header = path[len("include/millrace/"):].rstrip("/")
            return f"api/{header[:-4]}.html" if header in self.headers else "api/index.html"
        file = self.root / path
        if not file.exists():
            return None
        if path not in self.seen:
            self.seen.add(path)
            self.waiting.append(path)
        if file.is_dir():
            return path.rstrip("/") + "/folder.html"
        if file.suffix == ".md":
            return "index.html" if path == "README.md" else path[:-3] + ".html"
        return path if file.suffix in (".svg", ".png") else path + ".html"

    def relinked(self, body, path):
        """The HTML with links to files of the tree led to their pages; one that leads nowhere stays, and is found."""
        here = pathlib.PurePosixPath(self.target(path)).parent

        def link(match):
            url = html.unescape(match.group(2))
            if re.match(r"[a-z]+:|#", url):
                return match.group()
            name, _, fragment = url.partition("#")
            there = self.target(os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(name))))
            if there is None:
                return match.group()
            url = os.path.relpath(there, here) + ("#" + fragment if fragment else "")
            return f'{match.group(1)}="{html.escape(url)}"'

        return re.sub(r'\b(href|src)="([^"]*)"', link, body)

    def convert(self, path):
        file = self.root / path
        if file.suffix in (".svg", ".png"):
            self.pages[path] = file.read_bytes()
            return
        where = self.target(path)
        if file.is_dir():
            links = "".join(f'<li><a href="{p.name}">{html.escape(p.name)}</a></li>' for p in sorted(file.iterdir())
                            if p.is_file() and not p.name.startswith("."))
            base = path.rstrip("/") + "/x"
            self.seen.add(base)
            body = re.sub(r'href="([^"]*)"', lambda m: f'href="{path.rstrip("/")}/{m.group(1)}"', links)
            self.add(where, path, f"<h1>{html.escape(path)}</h1><ul>{self.from_top(body, where)}</ul>")
            return
        text = file.read_text(encoding="utf-8", errors="replace")
        if file.suffix != ".md":
            self.add(where, path, f"<h1>{html.escape(path)}</h1><pre>{html.escape(text)}</pre>")
            return
        text = re.sub(r"^<!-- .*? -->\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"(?m)(^(?!\s*(?:[-*]|\d+\.) |\s*$|\s).*\n)(?=(?:[-*]|\d+\.) )", r"\1\n", text)
        made = markdown.Markdown(extensions=["tables", "fenced_code", "toc", "sane_lists"],
                                 extension_configs={"toc": {"slugify": slug}})
        body = self.relinked(made.convert(text), path)
        title = re.search(r"^# (.*)", text, re.MULTILINE)
        title = title.group(1) if title else path
        if not path.startswith("bench/results/"):
            self.entries.append([title, where, "page"])
            for level in re.findall(r"^##+ (.*)", text, re.MULTILINE):
                plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", level)
                self.entries.append([plain, f"{where}#{slug(plain)}", title])
        self.add(where, title, body)

    def from_top(self, body, where):
        """Links that are written from the top of the tree, as those of a page."""
        here = pathlib.PurePosixPath(where).parent
        return re.sub(r'href="([^":#]*)"', lambda m: f'href="{os.path.relpath(self.target(m.group(1)), here)}"', body)

    def add(self, where, title, body):
        self.pages[where] = (title, body)

    def navigation(self):
        guide = re.findall(r"^\| \[(.*?)\]\(([^)#]*\.md)\)", (self.root / "docs/guide/README.md").read_text(), re.MULTILINE)
        folders = sorted({h.split("/")[0] for h in self.headers if "/" in h})
        parts = [("", [("All pages", "docs/README.html"), ("Glossary", "docs/glossary.html"), ("Changes", "CHANGELOG.html")]),
                 ("Guide", [(name, f"docs/guide/{page[:-3]}.html") for name, page in guide]),
                 ("Headers", [("all", "api/index.html")] + [(f, f"api/index.html#{f}") for f in folders])]
        return [(head, [(html.escape(n), p) for n, p in links]) for head, links in parts]

    def write(self):
        for start in STARTS + tuple(p.relative_to(self.root).as_posix() for p in self.root.glob("docs/**/*.md")):
            self.target(start)
        while self.waiting:
            self.convert(self.waiting.pop(0))
        rows = {}
        for header in sorted(self.headers):
            text = (self.root / "include/millrace" / header).read_text(encoding="utf-8")
            before = len(self.entries)
            self.add(f"api/{header[:-4]}.html", header, header_page(header, text, self.entries))
            mine = "".join(f'<li><a href="{html.escape(url[4:])}"><code>{html.escape(name)}</code></a> {html.escape(about)}</li>'
                           for name, url, about in self.entries[before:])
            rows.setdefault(header.split("/")[0] if "/" in header else "millrace", []).append(
                f'<h3><a href="{header[:-4]}.html">{header}</a></h3><ul>{mine}</ul>')
        self.add("api/index.html", "Headers", "<h1>Headers</h1>" + "".join(
            f'<h2 id="{folder}">{folder}</h2>{"".join(parts)}' for folder, parts in rows.items()))
        navigation = self.navigation()
        for where, page in self.pages.items():
            file = self.out / where
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(page, bytes):
                file.write_bytes(page)
                continue
            title, body = page
            top = os.path.relpath(".", pathlib.PurePosixPath(where).parent) + "/"
            links = "".join((f"<h3>{head}</h3>" if head else "") + "".join(f'<a href="{top}{p}">{n}</a>' for n, p in all_of)
                            for head, all_of in navigation)
            file.write_text(f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(re.sub("[`*]", "", title))}{"" if where == "index.html" else " - millrace"}</title>
<link rel="stylesheet" href="{top}site.css"></head>
<body><nav><a class="name" href="{top}index.html">millrace</a>
<input id="search" type="search" placeholder="search ( / )" aria-label="search">
<div id="found"></div><section>{links}</section></nav>
<main>{body}</main>
<script>const top_folder = "{top}";</script><script src="{top}entries.js"></script><script src="{top}search.js"></script>
</body></html>
""", encoding="utf-8")
        (self.out / "site.css").write_text(STYLE)
        # As a script: browsers read no JSON beside a page that is a file.
        (self.out / "entries.js").write_text("const entries = " + json.dumps(self.entries, indent=0) + ";\n")
        (self.out / "search.js").write_text(SCRIPT)


# --- links

class links_of(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src"):
                self.links.append(value)
            elif name == "id":
                self.ids.add(value)


def broken(out):
    """'page: link' of every link in the folder that leads nowhere; those of the search, too."""
    out = pathlib.Path(out)
    pages = {p: links_of(p.read_text(encoding="utf-8")) for p in sorted(out.rglob("*.html"))}
    wanted = [(page, link) for page, parsed in pages.items() for link in parsed.links]
    entries = out / "entries.js"
    if entries.exists():
        wanted += [(out / "entries.js", url) for _, url, _ in json.loads(entries.read_text()[len("const entries = "):-2])]
    found = []
    for page, link in wanted:
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = link.partition("#")
        there = pathlib.Path(os.path.normpath(page.parent / urllib.parse.unquote(name))) if name else page
        if not there.is_file() or fragment and there in pages and urllib.parse.unquote(fragment) not in pages[there].ids:
            found.append(f"{page.relative_to(out)}: {link}")
    return found


def self_test():
    body = """
 public:
  /// Makes. One `x<y>`.
  explicit thing(int x) : a_{x}, b_(x) { f(); }
  ~thing();
  std::array<double, 2> scale = {0.08, 1};  ///< from and to
  struct inner { int hidden; };
  friend bool operator==(thing, thing) { return true; }
  template <class T> auto get(T t = {}) const -> int { return 1; }
 private:
  int a_;  ///< Not this.
"""
    found = members(body, False)
    assert [m for m, _ in found] == ["explicit thing(int x);", "std::array<double, 2> scale = {0.08, 1};", "struct inner;",
                                     "template <class T> auto get(T t = {}) const -> int;"], found
    assert found[0][1] == [" Makes. One `x<y>`."] and found[1][1] == [" from and to"], found
    assert slug("raw: 8 objects, `a_b`") == "raw-8-objects-a_b"
    parsed = links_of('<a href="x#y"><img src="z"></a><h2 id="h">')
    assert parsed.links == ["x#y", "z"] and parsed.ids == {"h"}


def main(arguments):
    if markdown is None:
        print("skipped: site.py: there is no Python package Markdown (Debian: python3-markdown)")
        return 77
    self_test()
    if arguments == ["--self-test"]:
        return 0
    if len(arguments) != 2:
        print(__doc__)
        return 2
    made = site(*arguments)
    made.write()
    found = broken(arguments[1])
    for link in found:
        print(f"leads nowhere: {link}")
    print(f"{len(made.pages)} pages, {len(made.entries)} entries of the search, {len(found)} links that lead nowhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
