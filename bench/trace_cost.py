#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What a trace costs: events for a sample, CPU of an event, and CPU of a sample with MILLRACE_TRACE and without.

    python3 bench/trace_cost.py BUILD/bench/peers_bench [--rounds 10] [--shards 4] [WORK...]

WORK is of peers_bench: decode (epochs(), JPEGs decoded on the pool, batches), epochs, stages (list | fetch | untar |
group_samples); all three by default. The CPU of an event is measured alone, in a process without sockets: as it is
added, and as the file is made and written at the run's end. The share of the trace is computed from it, which is exact
where the comparison below it is not (goal: under 2 %). A server on core 0; on core 1, in turns, a process that writes a trace of each
round and two that do not: how far these are from one another is what the machine does. Each does a round first that
does not count. CPU is by the clock of the process, the writing of the file included; a ratio is the median over rounds
of the quotient within a round, with its quartiles.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

KINDS = ["off", "off again", "traced"]


class Process:
    def __init__(self, command, core, **variables):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **variables},
                                        preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.first = self.process.stdout.readline().strip()

    def cpu(self):
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the clock of that process

    def once(self):
        """CPU seconds, seconds and samples of a round."""
        cpu, begun = self.cpu(), time.monotonic()
        self.process.stdin.write("1 1 0\n")
        self.process.stdin.flush()
        items = int(self.process.stdout.readline().split()[0])
        return self.cpu() - cpu, time.monotonic() - begun, items

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def spread(values, digits=4):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f} - {high:.{digits}f})"


def event_costs(program):
    """Nanoseconds of CPU of an event as it is added, and of its part of what happens at the end: medians, highest."""
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run([program, "trace", f"{folder}/t.json"], check=True, stdout=subprocess.PIPE, text=True)
    rounds = [[float(x) for x in line.split()] for line in said.stdout.splitlines()]
    print("an event: added, copied from the ring, written")
    for what, of in (("median", statistics.median), ("highest", max)):
        print(f"  {what:16} ns of CPU " + ", ".join(f"{of(column):.1f}" for column in zip(*rounds)))
    sums = [(line[0], sum(line[1:])) for line in rounds]
    return [[of(column) for column in zip(*sums)] for of in (statistics.median, max)]


def measure(program, work, endpoint, keys, rounds, costs):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/t.json"
        variables = {kind: {"MILLRACE_TRACE": file} if kind == "traced" else {} for kind in KINDS}
        who = {kind: Process([program, work, endpoint, keys], 1, **variables[kind]) for kind in KINDS}
        figures = {kind: [] for kind in KINDS}
        for n in range(-1, rounds):
            for kind in KINDS[n % 3:] + KINDS[:n % 3]:
                figure = who[kind].once()
                if n >= 0:
                    figures[kind].append(figure)
        for each in who.values():
            each.end()
        traces = [path.read_text() for path in pathlib.Path(folder).glob("*.json")]
    samples = figures["off"][0][2]
    events = statistics.median(text.count('"ph": "X"') + text.count('"ph": "b"') for text in traces)
    assert len(traces) == rounds + 1 and all('"dropped_events": "0"' in text for text in traces)
    print(f"{work}: {samples} samples a round, {rounds} rounds; {events / samples:.3f} events a sample")
    for kind in KINDS:
        cpu = [1e6 * c / n for c, _, n in figures[kind]]
        speed = [n / s for _, s, n in figures[kind]]
        print(f"  {kind:16} us of CPU a sample {spread(cpu, 1):28} samples/s {spread(speed, 0)}")
    each = 1e9 * statistics.median(c / n for c, _, n in figures["off"]) / (events / samples)  # ns of CPU to an event
    for what, (added, ended) in zip(("median", "highest"), costs):
        print(f"  trace, {what:9} {100 * added / each:.3f} % while the run goes on and {100 * ended / each:.3f} % at its "
              f"end; goal < 2 %: {'PASS' if 100 * (added + ended) / each < 2 else 'MISS'}")
    for kind in KINDS[1:]:
        pairs = list(zip(figures[kind], figures["off"]))
        print(f"  {kind + ' / off':16} CPU {spread([a[0] / b[0] for a, b in pairs])}   "
              f"time {spread([a[1] / b[1] for a, b in pairs])}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--shards", default="4")
    parser.add_argument("work", nargs="*", default=["decode", "epochs", "stages"])
    args = parser.parse_intermixed_args()
    costs = event_costs(args.program)
    server = Process([args.program, "serve", args.shards, "0", "0"], 0)
    try:
        for work in args.work:
            measure(args.program, work, server.first, args.shards, args.rounds, costs)
    finally:
        server.end()


if __name__ == "__main__":
    main()
