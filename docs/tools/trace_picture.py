#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Draws a stretch of a trace, which MILLRACE_TRACE has written, as an SVG.

    MILLRACE_TRACE=out.json example_quickstart
    python3 docs/tools/trace_picture.py out.json docs/trace.svg --from 0 --to 100   # milliseconds

Only for pages: Perfetto (https://ui.perfetto.dev) shows all of a trace."""

import argparse
import json

LEFT, WIDTH, ROW, GAP, TOP = 130, 830, 15, 4, 26
COLOURS = {"step": "#4e79a7", "wait": "#d3d3d3", "first item": "#b0b0b0", "end": "#b0b0b0", "first byte": "#f1ce63",
           "body": "#59a14f", "queue": "#e15759", "page": "#b07aa1", "part": "#86bcb6", "copy": "#ff9d9a"}
JOBS = "#f28e2b"


def rows_of(events):
    """[(lane, [(begin, end, name)])]: threads and connections, then what may overlap, in as few rows as it needs."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    lanes = {}
    for e in events:
        if e["ph"] == "X":
            lanes.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"], e["name"]))
    begun, apart = {}, {}
    for e in events:
        if e["ph"] == "b":
            begun[e["id"]] = e
        elif e["ph"] == "e":
            b = begun.pop(e["id"])
            apart.setdefault(b["cat"], []).append((b["ts"], e["ts"], b["name"]))
    rows = []
    connections = 0
    for tid in sorted(lanes):
        name = names[tid]
        if name.startswith("connection"):
            connections += 1
            name = f"connection {connections}"
        rows.append((name, lanes[tid]))
    for cat in ("queue", "list", "part", "copy"):
        free = []
        for one in sorted(apart.get(cat, [])):
            row = next((r for r in free if r[-1][1] <= one[0]), None)
            if row is None:
                free.append([one])
            else:
                row.append(one)
        rows += [(cat if i == 0 else "", row) for i, row in enumerate(free)]
    return rows


def picture(events, begin, end):
    scale = WIDTH / (end - begin)
    rows = []
    for name, all_of in rows_of(events):
        seen = [x for x in all_of if x[1] > begin and x[0] < end]
        if seen:
            rows.append((name, seen))
    height = TOP + len(rows) * (ROW + GAP) + 34
    out = ["<!-- SPDX-FileCopyrightText: The millrace authors -->", "<!-- SPDX-License-Identifier: Apache-2.0 -->",
           "<!-- Drawn by docs/tools/trace_picture.py: do not edit. -->",
           f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 10} {height}" '
           'font-family="sans-serif" font-size="11" role="img">',
           "<title>A stretch of a trace: lanes of threads and connections over time</title>",
           f'<rect width="{LEFT + WIDTH + 10}" height="{height}" fill="#ffffff"/>']
    used = {}
    bottom = TOP + len(rows) * (ROW + GAP)
    for i in range(11):
        x = LEFT + WIDTH * i / 10
        at = (begin + (end - begin) * i / 10) / 1000
        out.append(f'<path d="M{x:.0f} {TOP - 6}V{bottom}" stroke="#eeeeee"/>'
                   f'<text x="{x:.0f}" y="{TOP - 10}" text-anchor="middle" fill="#666666">{at:.0f} ms</text>')
    for i, (name, seen) in enumerate(rows):
        y = TOP + i * (ROW + GAP)
        out.append(f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{name}</text>')
        paths = {}
        for b, e, what in seen:
            x0 = LEFT + max(0, b - begin) * scale
            x1 = LEFT + min(end - begin, e - begin) * scale
            paths.setdefault(what, []).append(f"M{x0:.1f} {y}h{max(0.3, x1 - x0 - 0.3):.1f}v{ROW}H{x0:.1f}z")
        for what, shapes in paths.items():
            used.setdefault(what, COLOURS.get(what, JOBS))
            out.append(f'<path fill="{used[what]}" d="{"".join(shapes)}"/>')
    x = LEFT
    for what, colour in used.items():
        out.append(f'<rect x="{x}" y="{bottom + 12}" width="11" height="11" fill="{colour}"/>'
                   f'<text x="{x + 15}" y="{bottom + 22}">{what}</text>')
        x += 28 + 7 * len(what)
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace")
    parser.add_argument("svg")
    parser.add_argument("--from", dest="begin", type=float, default=0, help="milliseconds")
    parser.add_argument("--to", dest="end", type=float, default=100, help="milliseconds")
    args = parser.parse_args()
    with open(args.trace, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    with open(args.svg, "w", encoding="utf-8") as f:
        f.write(picture(events, 1000 * args.begin, 1000 * args.end))


if __name__ == "__main__":
    main()
