#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the folders of include/millrace on their floors, with what each includes: docs/floors.svg.

    floors.py ROOT           writes the picture
    floors.py --check ROOT   leaves with 1 when the picture is not what would be drawn now

The floors and the third-party headers are those of tests/structure/check_structure.py. An arrow from A to B: a file of
A includes one of B. Arrows that a longer way of arrows implies are left out. The same tree gives the same bytes.
"""

import importlib.util
import math
import pathlib
import sys
import zlib

import page

PICTURE = "docs/floors.svg"
BOX_HEIGHT, FLOOR_HEIGHT, BOX_GAP, LINE_GAP = 44, 92, 22, 14
LEFT, RIGHT, TOP = 92, 24, 16
# How a pattern of check_structure.CONFINED begins, and what the picture calls it.
LIBRARIES = {
    "liburing": "liburing", "curl": "libcurl", "archive": "libarchive", "zlib": "zlib",
    "zstd": "libzstd", "openssl": "OpenSSL", "expat": "expat",
    "(cuda": "CUDA runtime", "(jpeglib": "libjpeg-turbo", "spng": "libspng", "webp": "libwebp",
    "(sndfile": "libsndfile", "lib(av": "FFmpeg", "simdjson": "simdjson", "(arrow": "Arrow",
    "dlpack": "DLPack", "mpi": "MPI", "pmix": "PMIx",
}


def rules_of(root):
    path = pathlib.Path(root, "tests/structure/check_structure.py")
    spec = importlib.util.spec_from_file_location("check_structure", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def includes_of(root, rules):
    """{folder or top header: set of those that it includes}, by names in order."""
    base = pathlib.Path(root, "include/millrace")
    found = {}
    for path in sorted(p for p in base.rglob("*") if p.suffix in (".hpp", ".ipp")):
        relative = path.relative_to(base).as_posix()
        own = relative.split("/")[0]
        if relative in ("version.hpp", rules.ALL_BODIES):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            match = rules.INCLUDE.match(line)
            if match and match.group(2).startswith("millrace/"):
                theirs = match.group(2)[len("millrace/"):].split("/")[0]
                if theirs not in (own, "version.hpp"):
                    found.setdefault(own, set()).add(theirs)
        found.setdefault(own, set())
    return {name: found[name] for name in sorted(found)}


def reduced(includes):
    """Without the arrows that a longer way implies."""
    reach = {}

    def beyond(name):
        if name not in reach:
            reach[name] = set()
            for other in includes[name]:
                reach[name] |= {other} | beyond(other)
        return reach[name]

    return {name: sorted(t for t in targets if not any(t in beyond(u) for u in targets if u != t))
            for name, targets in includes.items()}


class Layout:
    """Every folder gets a place on its floor. Where an arrow passes a floor it has a narrow place of its own there,
    shared by the arrows to one folder: nodes are names, or (name of the target, floor)."""

    def __init__(self, arrows, floor_of, libraries):
        self.libraries = libraries
        self.floors = [[] for _ in range(max(floor_of.values()) + 1)]
        for name in sorted(floor_of):
            self.floors[floor_of[name]].append(name)
        self.beside = []  # arrows between neighbours on one floor
        self.down = []    # pieces of arrows, from one floor to the next
        for source in sorted(arrows):
            for target in arrows[source]:
                before, floor = source, floor_of[source]
                if floor == floor_of[target]:
                    self.beside.append((source, target))
                while floor > floor_of[target]:
                    floor -= 1
                    after = target if floor == floor_of[target] else (target, floor)
                    if after != target and after not in self.floors[floor]:
                        self.floors[floor].append(after)
                    if (before, after) not in self.down:
                        self.down.append((before, after))
                    before = after
        self.floor_of = {node: floor for floor, nodes in enumerate(self.floors) for node in nodes}
        self.order()
        self.place()

    def width(self, node):
        if isinstance(node, tuple):
            return 0
        return max(74, 26 + 9 * len(node), 22 + 6 * len(self.libraries.get(node, "")))

    def cost(self):
        """Crossings, and how far apart neighbours on a floor are."""
        at = {node: i for nodes in self.floors for i, node in enumerate(nodes)}
        total = sum(12 * (abs(at[a] - at[b]) - 1) for a, b in self.beside)
        for i, (a, b) in enumerate(self.down):
            total += 0.1 * abs(at[a] / len(self.floors[self.floor_of[a]]) - at[b] / len(self.floors[self.floor_of[b]]))
            for c, d in self.down[:i]:
                if self.floor_of[a] == self.floor_of[c] and (at[a] - at[c]) * (at[b] - at[d]) < 0:
                    total += 4
        return total

    def order(self):
        """The simplest of what a few different beginnings lead to."""
        simplest = None
        for begin in range(24):
            for nodes in self.floors:
                nodes.sort(key=lambda node: (zlib.crc32(f"{begin} {node}".encode()), str(node)))
            cost = self.simplify()
            if simplest is None or cost < simplest[0] - 1e-9:
                simplest = cost, [nodes[:] for nodes in self.floors]
        self.floors = simplest[1]

    def simplify(self):
        """Moves nodes about on their floors as long as that makes the picture simpler."""
        best, better = self.cost(), True
        while better:
            better = False
            for nodes in self.floors:
                for i in range(len(nodes)):
                    for j in range(len(nodes)):
                        nodes.insert(j, nodes.pop(i))
                        now = self.cost()
                        if now < best - 1e-9:
                            best, better = now, True
                        else:
                            nodes.insert(i, nodes.pop(j))
        return best

    def place(self):
        near = {node: [] for node in self.floor_of}
        for a, b in self.down:
            near[a].append(b)
            near[b].append(a)
        self.x = {}
        for nodes in self.floors:
            at = 0
            for node in nodes:
                self.x[node] = at + self.width(node) / 2
                at += self.width(node) + BOX_GAP
            for node in nodes:
                self.x[node] -= at / 2
        for _ in range(200):
            for nodes in self.floors:
                wanted = [math.fsum(self.x[n] for n in near[node]) / len(near[node]) if near[node] else self.x[node]
                          for node in nodes]
                self.settle(nodes, wanted)
        left = min(self.x[n] - self.width(n) / 2 for n in self.x)
        self.x = {n: round(LEFT + x - left) for n, x in self.x.items()}
        self.right = max(self.x[n] + self.width(n) // 2 for n in self.x) + RIGHT

    def settle(self, nodes, wanted):
        """As near to where they want to be as the order and their widths allow."""
        def apart(a, b):
            gap = LINE_GAP if isinstance(a, tuple) or isinstance(b, tuple) else BOX_GAP
            if any({a, b} == set(pair) for pair in self.beside):
                gap = 2 * BOX_GAP
            return (self.width(a) + self.width(b)) / 2 + gap

        forth, back = wanted[:], wanted[:]
        for i in range(1, len(nodes)):
            forth[i] = max(forth[i], forth[i - 1] + apart(nodes[i - 1], nodes[i]))
        for i in range(len(nodes) - 2, -1, -1):
            back[i] = min(back[i], back[i + 1] - apart(nodes[i], nodes[i + 1]))
        for i, node in enumerate(nodes):
            self.x[node] = (forth[i] + back[i]) / 2


def drawn(root):
    rules = rules_of(root)
    includes = includes_of(root, rules)
    floor_of = {name: rules.TOP_FLOOR if name.endswith(".hpp") else rules.FLOORS[name] for name in includes}
    libraries = {}
    for pattern, homes in rules.CONFINED.items():
        known = [text for begin, text in LIBRARIES.items() if pattern.startswith(begin)]
        if not known:
            raise SystemExit(f"name the library of {pattern} in LIBRARIES")
        for home in homes.split():
            libraries[home] = ", ".join(filter(None, [libraries.get(home), known[0]]))
    plan = Layout(reduced(includes), floor_of, libraries)
    top_floor = len(plan.floors) - 1
    width, height = plan.right, 2 * TOP + FLOOR_HEIGHT * len(plan.floors)

    def top(node):
        return TOP + (top_floor - plan.floor_of[node]) * FLOOR_HEIGHT + (FLOOR_HEIGHT - BOX_HEIGHT) // 2

    def ports(node, lines, other):
        """Where the lines meet an edge of the box: side by side, in the order of their other ends."""
        if isinstance(node, tuple):
            return {line: plan.x[node] for line in lines}
        lines = sorted(lines, key=lambda line: (plan.x[line[other]], str(line)))
        step = min(16, (plan.width(node) - 20) / max(1, len(lines) - 1))
        return {line: round(plan.x[node] + step * (i - (len(lines) - 1) / 2)) for i, line in enumerate(lines)}

    out = [
        '<!-- SPDX-FileCopyrightText: The millrace authors -->',
        '<!-- SPDX-License-Identifier: Apache-2.0 -->',
        '<!-- Drawn by docs/tools/floors.py: do not edit. -->',
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" role="img">',
        '<title>The folders of include/millrace on their floors</title>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0.5 L8,4 L0,7.5 z" fill="#5b6b7c"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>',
    ]
    for floor in range(len(plan.floors)):
        y = TOP + (top_floor - floor) * FLOOR_HEIGHT
        fill = "#f2f5f8" if floor % 2 == 0 else "#ffffff"
        out.append(f'<rect x="8" y="{y}" width="{width - 16}" height="{FLOOR_HEIGHT}" rx="6" fill="{fill}"/>')
        out.append(f'<text x="20" y="{y + FLOOR_HEIGHT // 2 + 4}" font-size="12" fill="#7b8794">floor {floor}</text>')

    leaving, reaching = {}, {}
    for node in plan.floor_of:
        leaving.update(ports(node, [line for line in plan.down if line[0] == node], 1))
        reaching.update(ports(node, [line for line in plan.down if line[1] == node], 0))
    line_style = 'fill="none" stroke="#8a99a8" stroke-width="1.4"'
    for line in plan.down:
        source, target = line
        x0, y0, x1, y1 = leaving[line], top(source) + BOX_HEIGHT, reaching[line], top(target)
        bend = (y1 - y0) // 2
        path = f"M{x0},{y0} C{x0},{y0 + bend} {x1},{y1 - bend} {x1},{y1}"
        tip = "" if isinstance(target, tuple) else ' marker-end="url(#tip)"'
        if isinstance(target, tuple):
            path += f" V{y1 + BOX_HEIGHT}"
        out.append(f'<path d="{path}" {line_style}{tip}/>')
    for source, target in plan.beside:
        step = 1 if plan.x[target] > plan.x[source] else -1
        between = plan.floors[plan.floor_of[source]]
        y = top(source) + BOX_HEIGHT // 2
        if abs(between.index(source) - between.index(target)) == 1:
            x0 = plan.x[source] + step * plan.width(source) // 2
            x1 = plan.x[target] - step * plan.width(target) // 2
            path = f"M{x0},{y} H{x1}"
        else:
            x0 = plan.x[source] + step * plan.width(source) // 4
            x1 = plan.x[target] - step * plan.width(target) // 4
            y = top(source)
            path = f"M{x0},{y} C{x0},{y - 22} {x1},{y - 22} {x1},{y}"
        out.append(f'<path d="{path}" {line_style} marker-end="url(#tip)"/>')

    for node in sorted(n for n in plan.floor_of if not isinstance(n, tuple)):
        x, y, w = plan.x[node], top(node), plan.width(node)
        apart = node in rules.TEST_KIT or node in ("cuda", "millrace_cuda.hpp", "mpi.hpp", "pmix.hpp", "c10d.hpp")
        fill, edge = ("#fff6e6", "#d9a441") if apart else ("#e8f1fb", "#4f7fb0")
        out.append(f'<rect x="{x - w // 2}" y="{y}" width="{w}" height="{BOX_HEIGHT}" rx="6" fill="{fill}" '
                   f'stroke="{edge}" stroke-width="1.3"/>')
        below = libraries.get(node, "")
        out.append(f'<text x="{x}" y="{y + (20 if below else 27)}" font-size="14" text-anchor="middle" '
                   f'fill="#1f2d3d">{node}</text>')
        if below:
            out.append(f'<text x="{x}" y="{y + 35}" font-size="10.5" text-anchor="middle" fill="#66788a">{below}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


if __name__ == "__main__":
    sys.exit(page.write_or_check(sys.argv[1:], PICTURE, drawn, "floors.py"))
