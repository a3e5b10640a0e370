#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What bench/run parses and writes, and how bench/peers/measure.py judges: run_test.py ROOT. Nothing is measured."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
run = load("run", ROOT / "bench/run")
measure = sys.modules["measure"] = load("measure", ROOT / "bench/peers/measure.py")
contenders = load("contenders", ROOT / "bench/peers/contenders.py")

OUTPUT = """AMD EPYC, 2 cores, compiler 12.2.0; load average 0.3 at the start

plain HTTP, io_uring
                                      GB/s    (low - high)  CPU s/GB      (low - high)  faults/GB
(a) bare epoll, recv into slabs       5.99 ( 4.96 -  6.30)    0.1369 (0.1351 - 0.1469)          0
(c) fetch                             5.28 ( 5.01 -  5.49)    0.1549 (0.1491 - 0.1583)         12
  GB/s, fetch / bare libcurl                                     1.012 x   goal >= 0.97     PASS
  minor faults per GB beyond those of bare recv                 12.000     goal <= 500      PASS
  a figure whose name takes more columns than there are for it, and then some   1.310 x   goal <= 1.3      MISS
  a ratio without rounds                                          -nan x   goal <= 1        MISS
  60000 lines/s (59000 - 61000), 70000 per CPU second
"""


def result(**changed):
    goals, rows = run.parsed(OUTPUT)
    return {"commit": "unknown", "changed": False, "date": "2026-01-02", "quick": False, "note": "", "machine": "EPYC",
            "load": 0.3, "goals": goals, "rows": rows, **changed}


def row(name, cpu, **changed):
    return {"name": name, "marks": "", "ours": False, "cpu": cpu, "seconds": cpu, "first_ms": cpu, "peak_mb": 10, **changed}


class Parsing(unittest.TestCase):
    def test_goals(self):
        goals, _ = run.parsed(OUTPUT)
        self.assertEqual([(g["value"], g["unit"], g["sense"], g["goal"], g["met"]) for g in goals],
                         [(1.012, "x", ">=", 0.97, True), (12, "", "<=", 500, True), (1.31, "x", "<=", 1.3, False),
                          (None, "x", "<=", 1, False)])
        self.assertEqual(goals[0]["what"], "GB/s, fetch / bare libcurl")

    def test_rows(self):
        _, rows = run.parsed(OUTPUT)
        self.assertEqual([r["who"] for r in rows], ["(a) bare epoll, recv into slabs", "(c) fetch"])
        self.assertEqual((rows[1]["rate"], rows[1]["cpu_low"], rows[1]["faults"]), (5.28, 0.1491, 12))

    def test_goals_of_one_name_say_where(self):
        line = "  fetch / awscrt                                                 1.857 x   goal >= 1.5      PASS\n"
        goals, _ = run.parsed("20 ms away, medians of 3\n" + line + "\n15 ms away, medians of 3\n" + line)
        self.assertEqual([g["what"] for g in goals], ["fetch / awscrt (20 ms away)", "fetch / awscrt (15 ms away)"])

    def test_results_that_are_kept(self):
        """Every goal that a program printed is among its goals."""
        for path in sorted((ROOT / "bench/results").glob("*_bench.json")):
            result = json.loads(path.read_text())
            printed = sum(" goal " in line and line.rstrip().endswith(("PASS", "MISS")) for line in result["output"])
            self.assertEqual(len(result["goals"]), printed, path.name)
            self.assertFalse(path.with_suffix(".txt").exists(), path.name)


class Pages(unittest.TestCase):
    def test_missed_goals_and_origin_are_said(self):
        programs = {name: run.PROGRAMS[name] for name in ("fetch_bench", "device_bench")}
        text = run.page(programs, {"fetch_bench": result(quick=True)}, {"device_bench"}, None, {"fetch_bench"})
        for part in ("### fetch_bench", "1.31 x", "**missed**", "its commit is unknown here", "2026-01-02", "quick",
                     "--only fetch_bench --quick", "(results/fetch_bench.svg)", "(results/device_bench.txt)"):
            self.assertIn(part, text)

    def test_a_result_is_written_as_it_is(self):
        value = {"a": [{"b": [1, "[x"]}, {}], "c": {"d": []}, "output": ["x", ""], "e": None}
        self.assertEqual(json.loads(run.as_json(value)), value)
        self.assertIn('\n  {"b": [1, "[x"]},\n', run.as_json(value))

    def test_pictures_are_svg(self):
        text = run.picture("a & b", "s", [("<ours>", 1.0, run.OURS, 0.5, 2.0), ("theirs", 0, run.OTHERS, 0, 0)], 1)
        self.assertEqual(len(xml.etree.ElementTree.fromstring(text)), 11)
        self.assertIn(">a &amp; b<", text)

    def test_older_than_the_code(self):
        before, run.git = run.git, lambda *a: "commit" if a[0] == "cat-file" else "0123456789"
        try:
            self.assertIn("**older than the code**", run.label(result(commit="abc")))
            run.git = lambda *a: "commit" if a[0] == "cat-file" else ""
            self.assertNotIn("older", run.label(result(commit="abc")))
        finally:
            run.git = before

    def test_peers(self):
        rows = [row("ours", [1.0, 1.2, 1.1], ours=True), row("theirs", [2.0, 2.0, 2.0], marks="unsigned"),
                {"name": "broken", "marks": "", "ours": False, "error": "has ended: no such module"}]
        goals = measure.judge([("cpu", "ours", ["theirs", "broken"], 0.6), ("peak_mb", "ours", ["broken"], 0.2)], rows)
        group = {"title": "samples", "unit": "CPU us a sample", "rows": rows, "goals": goals,
                 "origin": {k: v for k, v in result().items() if k not in ("goals", "rows")}}
        text = run.page({}, {}, set(), {"groups": {"samples": group}, "missing": ["other==1"]}, {"peers_samples"})
        for part in ("### Samples", "| **ours** | 1.1 (1 - 1.2)", "unsigned", "not measured: has ended: no such module",
                     "**0.55**, goal at most 0.6: met", "not measured, goal 0.2", "other==1", "peers_samples.svg"):
            self.assertIn(part, text)

    def test_peers_start_and_steady_state(self):
        mine = row("ours", [2.0], ours=True, first_cpu_ms=[7.0], server=[0.5])
        group = {"title": "samples", "unit": "CPU us a sample", "gb": 5.2, "rows": [mine, {**mine, "name": "theirs"}],
                 "goals": [], "origin": {k: v for k, v in result().items() if k not in ("goals", "rows")}}
        text = run.page({}, {}, set(), {"groups": {"samples": group}}, set())
        for part in ("| CPU us a sample | us a sample | start, ms | start, CPU ms | server's core | peak MB | GB |",
                     "| **ours** | 2 (2 - 2) | 2 (2 - 2) | 2 (2 - 2) | 7 (7 - 7) | 0.5 | 10 | 5.2 |"):
            self.assertIn(part, text)

    def test_dlio(self):
        rows = [{"name": "theirs", "marks": "own chunks", "ours": False, "utilisation": [95.0], "samples": [20.0]},
                {"name": "ours", "marks": "", "ours": True, "utilisation": [97.0, 99.0], "samples": [21.0, 23.0]},
                {"name": "broken", "marks": "", "ours": False, "error": "no such module"}]
        dlio = {**result(), "workloads": {"unet3d": {"title": "unet3d, npz files, H100", "rows": rows}}}
        text = run.page({}, {}, set(), None, set(), dlio)
        for part in ("### unet3d, npz files, H100", "| **ours** | 98 (97 - 99) | 22 (21 - 23) |",
                     "| broken | not measured: no such module |"):
            self.assertIn(part, text)
        self.assertLess(text.index("**ours**"), text.index("theirs"))
        self.assertIn("--only dlio --peers", run.page({}, {}, set(), None, set()))

    def test_all_programs_are_there(self):
        there = {p.stem for p in (ROOT / "bench").glob("*_bench.cpp")} - {"peers_bench"}
        self.assertEqual(set(run.PROGRAMS), there)


class Judging(unittest.TestCase):
    def test_beside_the_best_and_by_rounds(self):
        rows = [row("ours", [1, 4, 1]), row("slow", [9, 9, 9]), row("best", [2, 4, 8])]
        (goal,) = measure.judge([("cpu", "ours", ["slow", "best"], 0.4)], rows)
        self.assertEqual((goal["beside"], goal["ratio"], goal["met"]), ("best", 0.5, False))

    def test_cpu_of_descendants_counts(self):
        burn = "import time\nwhile time.process_time() < 0.2: pass"
        program = (f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
                   f"child = subprocess.Popen([sys.executable, '-c', {burn + chr(10) + 'time.sleep(60)'!r}])\n"
                   "import time\ntime.sleep(0.1)\n"
                   f"{burn}\nprint('ready', flush=True)\nsys.stdin.read()\nchild.kill()")
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdout.readline()
        seconds = 0
        for _ in range(600):  # the living child may still be at it
            seconds = measure.cpu_seconds(process.pid)
            if seconds >= 0.5:
                break
            __import__("time").sleep(0.05)
        process.stdin.close()
        process.wait()
        process.stdout.close()
        self.assertGreaterEqual(seconds, 0.5)

    def test_start_and_steady_state_are_apart(self):
        group = measure.Group("", "", 0, (300, None), 300, [], steady=True, passes=2)
        one = measure.Contender("", [])
        # 6 s and 2 CPU s until the first item, 7 and 3 at a third, 11 and 5 at the end, of 600.
        one.rounds = [([600, 1e9, 100, 6, 2, 200, 7, 3, 600, 11, 5], 0.25)]
        found = one.row(group)
        self.assertEqual([found[what] for what in ("first_ms", "first_cpu_ms", "seconds", "cpu", "server")],
                         [[6000], [2000], [4 / 400], [2 / 400], [0.25]])

    def test_contenders_take_the_time_of_the_first_item_and_of_a_third(self):
        counter = contenders.Counter(1, 20)
        for items in (10, 15, 35):
            counter.add(7, items)
        self.assertEqual((counter.items, counter.bytes), (60, 21))
        self.assertEqual([moment[0] for moment in (counter.at_first, counter.at_third, counter.now())], [10, 25, 60])
        self.assertTrue(0 < counter.at_first[1] <= counter.at_third[1] <= counter.now()[1])
        at_once = contenders.Counter(1, 20)
        at_once.add(7, 60)
        self.assertEqual(at_once.at_first, at_once.at_third)
        self.assertEqual(contenders.Counter(1, 0).at_third, (0, 0, 0))

    def test_dlio_is_given_loaders_that_exist(self):
        sys.path.insert(0, str(ROOT / "bench/peers"))
        dlio = load("dlio", ROOT / "bench/peers/dlio.py")
        source = (ROOT / "bench/peers/dlio_loaders.py").read_text()
        for workload, kind in dlio.KINDS.items():
            self.assertIn(workload, dlio.SIZES)
            self.assertEqual(sum(name.startswith("millrace") for name, _, _ in dlio.CONTENDERS[kind]), 1)
            for _, settings, _ in dlio.CONTENDERS[kind]:
                if plugin := settings.get("reader.data_loader_classname"):
                    self.assertIn(f"class {plugin.removeprefix('dlio_loaders.')}(BaseDataLoader)", source)

    def test_groups_name_contenders_that_exist(self):
        source = (ROOT / "bench/peers_bench.cpp").read_text()
        for group in measure.groups(4, 2, 8, 4000, 440_000_000, 195_000, 312_000_000).values():
            names = [label for label, _, _ in group.rows]
            self.assertEqual(len(set(names)), len(names))
            for label, what, _ in group.rows:
                if what.startswith("ours:"):
                    self.assertTrue(label.startswith("millrace") or "unsigned" in dict((r[0], r[2]) for r in group.rows)[label])
                    self.assertIn('"lines"' if what.startswith("ours:lines") else f'"{what[5:]}"', source)
                else:
                    contenders.find(what)
            for _, name, others, _ in group.goals:
                self.assertIn(name, names)
                self.assertTrue(set(others) <= set(names), others)


if __name__ == "__main__":
    unittest.main()
