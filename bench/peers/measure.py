#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""millrace beside the libraries that do the same, on the same bytes, from the same server, in turns.

    measure.py --program BUILD/bench/peers_bench --environment FOLDER [--install] [--groups raw,samples,...] [--quick]
               [--rounds N] --out FILE.json

--install makes the virtual environment FOLDER from requirements.txt. Each contender is a process of its own on core 1
and the server one on core 0. CPU seconds are those of the process and all its descendants, by their own clocks; what
the server's core is busy with counts apart, so that a row whose seconds are the server's is seen. Peak memory is the
kernel's high-water mark of one process, and of several the largest sum of their proportional shares that a look every
0.1 s saw. What comes is counted in items and bytes: a contender that reads anything else has no figures, but an error.

Groups of samples, lines, images and clips tell the start from the steady state. In each round each contender is a new
process, which has imported its modules and made its client, and reads all data several times with one loader. The start
is the time until the first item, whatever a loader does before; the figures are of the last two thirds.

Of other groups all contenders are started, do their work once (this is discarded), and then take turns. Before each
round of a group that reads its data from the disk, all files are written out and leave the page cache
(POSIX_FADV_DONTNEED), and who then reads less than 0.95 of the samples' bytes from the disk (/proc/PID/io) has no
figures either.
"""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
RAW, VOLUME, SLOW, TEXT = 128 << 20, 140_000_000, 64 << 20, 156_000_000
RECORDS, RECORD = 1251, 114_660  # samples of a TFRecord file of MLPerf Storage's resnet50, bytes of one
SMALLS, SMALL = 64, 256 << 10
FIRST = 32
FARS, FAR = 10, 256_000_000
DECODED, CROPPED = 500 * 375 * 3, 224 * 224 * 3
FILM_CLIPS, CLIP_SHAPE, CLIP_STRIDE = 30, (16, 126, 224, 3), 3
TENSORS, TENSOR_BYTES = 16, 8 * 4 * (1024 * 1024 + 1024)  # of a file of a checkpoint


# ---- processes, and what they cost


def descendants(pid):
    found = [pid]
    for each in found:
        for path in pathlib.Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in path.read_text().split()]
            except OSError:
                pass
    return found


def cpu_seconds(pid):
    """Of a process, its living descendants, and those that they have waited for."""
    total = 0.0
    for each in descendants(pid):
        try:
            total += time.clock_gettime((~each << 3) | 2)  # the clock of that process
            fields = pathlib.Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
            total += (int(fields[13]) + int(fields[14])) / TICK
        except OSError:
            pass
    return total


def memory_of(pid):
    """Bytes that are the process's own: its share of those that several use."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def high_water(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def read_from_disk(pid):
    """Bytes, of a process, its living descendants, and those that they have waited for."""
    total = 0
    for each in descendants(pid):
        try:
            total += int(re.search(r"^read_bytes: (\d+)", pathlib.Path(f"/proc/{each}/io").read_text(), re.M)[1])
        except OSError:
            pass
    return total


def drop_pages(folder):
    """Leaves nothing of the files of a folder in the page cache."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)  # what is not written stays
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


class Contender:
    def __init__(self, label, command, marks="", ours=False):
        self.label, self.command, self.marks, self.ours = label, command, marks, ours
        self.rounds, self.peak, self.error, self.process = [], 0, None, None

    def start(self, folder):
        if self.error:
            return
        self.log = open(os.path.join(folder, "log"), "w+")

        def place():
            if os.cpu_count() > 1:
                os.sched_setaffinity(0, {1})

        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, cwd=folder, preexec_fn=place, start_new_session=True)
        if self.process.stdout.readline().strip() != "ready":
            self.fail("has not started")

    def fail(self, why):
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()] or ["it says nothing"]
        told = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        self.error = f"{why}: {(told or lines)[-1][:200]}"
        self.stop()

    def work(self, group, server, counts):
        """One round of the group's work."""
        if self.error:
            return
        pid = self.process.pid
        done = threading.Event()

        def look():
            while not done.wait(0.1):
                tree = descendants(pid)
                if len(tree) > 1:
                    self.peak = max(self.peak, sum(map(memory_of, tree)))

        watcher = threading.Thread(target=look)
        watcher.start()
        items, size = group.expected
        third = group.passes * items // 3 if group.steady else 0
        read, busy, begin = read_from_disk(pid), server.cpu(), time.monotonic()
        try:
            self.process.stdin.write(f"{group.passes} {group.first} {third}\n")
            self.process.stdin.flush()
            answer = [float(x) for x in self.process.stdout.readline().split()]
        except OSError:
            answer = []
        busy = (server.cpu() - busy) / (time.monotonic() - begin)
        read = read_from_disk(pid) - read
        done.set()
        watcher.join()
        if len(answer) != 11:
            return self.fail("has ended")
        for what, came, wanted in (("items", answer[0], items), ("bytes", answer[1], size)):
            if wanted is not None and came != group.passes * wanted:
                return self.fail(f"has read {came:.0f} {what}, not {group.passes * wanted}")
        if counts and read < group.from_disk:
            return self.fail(f"has read {read} bytes from the disk, not {group.from_disk}")
        self.peak = max(self.peak, high_water(pid))
        if counts:
            self.rounds.append((answer, busy))

    def stop(self):
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, 9)  # a session of its own
        except OSError:
            pass
        self.process.wait()
        self.process = None

    def row(self, group):
        row = {"name": self.label, "marks": self.marks, "ours": self.ours}
        if self.error:
            return {**row, "error": self.error}
        row.update({name: [] for name in ("cpu", "seconds", "first_ms", "first_cpu_ms", "server")})
        for (items, _, _, first, first_cpu, at_third, third, third_cpu, _, end, end_cpu), busy in self.rounds:
            # How many of what the figures are given for have come since.
            units = group.per * group.passes * (items - at_third) / items
            row["cpu"].append((end_cpu - third_cpu) / units)
            row["seconds"].append((end - third) / (units if group.steady else 1))
            row["first_ms"].append(1e3 * first)
            row["first_cpu_ms"].append(1e3 * first_cpu)
            row["server"].append(busy)
        return {**row, "peak_mb": round(self.peak / 1e6)}


class Server:
    def __init__(self, program, sizes, shape):
        """`sizes`: how many tars, texts and large objects; `shape`: of peers_bench, "" for the usual one."""
        self.process = subprocess.Popen([program, "serve", *map(str, sizes), *([shape] if shape else [])],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint, *authority = self.process.stdout.readline().split()
        self.authority = authority[0] if authority else None

    def cpu(self):
        return cpu_seconds(self.process.pid)

    def say(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


# ---- the groups


class Group:
    """`per`: how many of what the figures are given for are in a pass. `expected`: its items and bytes, None where
    these may differ. `read`: bytes that a pass reads. `steady`: the start counts apart. `from_disk`: bytes that come
    from there in each pass, and not from the page cache."""

    def __init__(self, title, unit, keys, expected, per, rows, goals=(), read=0, steady=False, passes=1, rounds=3,
                 first=1, slow=False, from_disk=0):
        self.title, self.unit, self.keys, self.expected, self.per, self.rows = title, unit, keys, expected, per, rows
        self.goals, self.read, self.steady, self.passes, self.rounds = goals, read, steady, passes, rounds
        self.first, self.slow, self.from_disk = first, slow, from_disk

    def fresh(self):
        """Each round is a new process of each contender."""
        return self.steady and not self.from_disk


UNSIGNED, MULTI = "unsigned", "several threads"
LOCAL, CHUNKS = "local files", "own chunks, the second pass from its cache"
CHECKED = "shuffled, CRC of each field"

LINES = (1, 16, 512, 1024)
GROUPS = ["raw", "raw_tls", "samples", "samples_tls", "far_tls", "warm", "large", "resnet50", "first", "volumes",
          "slow", "lossy", *[f"lines{size}" for size in LINES], "decode", "crops", "augment", "video", "save", "load"]


def groups(shards, texts, raws, samples, sample_bytes, lines, text_bytes, path=""):
    """Each row: what it is called, "ours:WORK" or a contender of contenders.py, and marks. Goals: the figure, the row
    it is of, the best of which rows it stands beside, and the ratio at most."""
    volumes = 4
    readers = ["webdataset, curl", "webdataset, boto3", "webdataset, obstore", "webdataset, s3torchconnector",
               "webdataset, awscrt", "spdl, boto3"]
    direct = lambda prefix: [("boto3, readinto", f"boto3_readinto:{prefix}", ""),
                             ("boto3, read", f"boto3_read:{prefix}", ""),
                             ("awscrt", f"awscrt:{prefix}", MULTI + ", 4 objects at once"),
                             ("s3torchconnector", f"s3torchconnector:{prefix}", MULTI),
                             ("obstore", f"obstore:{prefix}", MULTI)]
    whole = lambda prefix: [*direct(prefix), ("s3fs, cat_file", f"s3fs:{prefix}", ""),
                            ("s3dlio", f"s3dlio:{prefix}", MULTI),
                            ("KvikIO", f"kvikio:{prefix}", MULTI + ", into host memory; wants a GPU's driver")]
    average = sample_bytes // max(1, samples) // 1000
    of_samples = {"unit": "CPU us a sample", "keys": shards, "expected": (samples, sample_bytes), "per": samples / 1e6,
                  "read": sample_bytes, "steady": True}
    of_raws = {"unit": "CPU s a GB", "keys": raws, "expected": (None, raws * RAW), "per": raws * RAW / 1e9}
    of_images = {**of_samples, "unit": "CPU us an image", "passes": 2, "rounds": 2}
    ours = [("millrace: list | fetch | untar | group_samples", "ours:stages", "not shuffled, no CRC"),
            ("millrace: epochs() | batch()", "ours:epochs", f"{CHECKED}, the start makes the index"),
            ("millrace: epochs() | batch(), indexed", "ours:epochs_indexed", f"{CHECKED}, the index is there")]
    by_webdataset = [("webdataset, boto3", "webdataset:boto3", "not shuffled"),
                     ("webdataset, obstore", "webdataset:obstore", "not shuffled"),
                     ("webdataset, s3torchconnector", "webdataset:s3torchconnector", "not shuffled"),
                     ("webdataset, awscrt", "webdataset:awscrt", "not shuffled, shards whole in memory")]
    all_of = {
        "raw": Group(
            f"{raws} objects of 128 MiB, read and dropped", **of_raws, rows=
            [("bare recv, epoll", "ours:recv", UNSIGNED), ("libcurl, io_uring", "ours:libcurl", UNSIGNED),
             ("millrace: fetch", "ours:fetch", "8 objects at once"),
             ("millrace: fetch, consumer on the loop", "ours:fetch_on_loop", "8 objects at once"), *whole("raw")],
            goals=[("cpu", "millrace: fetch", ["boto3, readinto"], 0.9), ("cpu", "millrace: fetch", ["awscrt"], 0.3)]),
        "raw_tls": Group(
            f"{raws} objects of 128 MiB over TLS, read and dropped", **of_raws, rows=
            [("libcurl, io_uring", "ours:libcurl", UNSIGNED),
             ("millrace: fetch", "ours:fetch", "8 objects at once"), *direct("raw")],
            goals=[("cpu", "millrace: fetch", ["boto3, readinto"], 1), ("cpu", "millrace: fetch", ["awscrt"], 0.6)]),
        "samples": Group(
            f"Samples of {average} KB in tars, in batches of 100", **of_samples, passes=2, rounds=2, rows=
            [*ours, ("millrace: epochs({.bytes = 88 MiB}) | batch()", "ours:epochs_half",
                     f"{CHECKED}, the start makes the index"),
             ("millrace: epochs(), no index", "ours:epochs_no_index", "shuffled"),
             ("webdataset, local files", "webdataset:local", f"{LOCAL}, not shuffled"),
             ("webdataset, curl", "webdataset:curl", UNSIGNED + ", not shuffled"), *by_webdataset,
             ("webdataset, curl, 2 workers", "webdataset:curl:2", UNSIGNED + ", DataLoader"),
             ("litdata", "litdata", f"{CHUNKS}, shuffled"),
             ("litdata, 2 workers", "litdata:2", f"{CHUNKS}, DataLoader, forked, copied to bytes"),
             ("mosaicml-streaming", "mosaicml", f"{CHUNKS}, shuffled"),
             ("spdl, boto3", "spdl", "not shuffled, 2 threads")],
            goals=[("cpu", "millrace: epochs() | batch()", readers, 0.15),
                   ("cpu", "millrace: epochs() | batch()", readers[:-1], 0.15),
                   *[("peak_mb", f"millrace: {stage} | batch()",
                      ["webdataset, curl, 2 workers", "litdata, 2 workers"], 0.2)
                     for stage in ("epochs()", "epochs({.bytes = 88 MiB})")]]),
        "samples_tls": Group(
            f"Samples of {average} KB in tars over TLS, in batches of 100", **of_samples, passes=2, rows=
            [*ours, *by_webdataset],
            goals=[("cpu", "millrace: epochs() | batch()", ["webdataset, boto3"], 0.25)]),
        "far_tls": Group(
            f"{FARS} objects of 256 MB over TLS, 15 ms away, 85 MB/s a connection, a link of 800 MB/s", "CPU s a GB",
            FARS, (None, FARS * FAR), FARS * FAR / 1e9,
            [("millrace: fetch", "ours:far", ""),
             ("boto3, 10 threads", f"boto3_threads:far:{FARS}", MULTI),
             ("awscrt", "awscrt:far", MULTI + ", 4 objects at once"),
             ("s3torchconnector, 4 threads", "s3torchconnector_threads:far:4", MULTI),
             ("obstore, 10 at once", "obstore_gather:far", MULTI)]),
        "warm": Group(
            f"A later epoch of samples of {average} KB, from the disk, in batches of 100", **of_samples, rows=
            [("millrace: epochs() over disk_cache() | batch()", "ours:warm", "shuffled, CRC of each block and field"),
             ("litdata", "litdata", "own chunks, shuffled"),
             ("litdata, 2 workers", "litdata:2", "own chunks, shuffled, DataLoader, forked, copied to bytes"),
             ("mosaicml-streaming", "mosaicml", "own shards, shuffled"),
             ("webdataset, local files", "webdataset:local", f"{LOCAL}, not shuffled")],
            from_disk=int(0.95 * sample_bytes)),
        "large": Group(
            f"Samples of {average} KB in one tar of 1.5 GiB, in batches of 100", **of_samples, passes=4, rounds=2, rows=
            [*ours, ("webdataset, curl", "webdataset:curl", UNSIGNED + ", not shuffled"), *by_webdataset[:2],
             ("spdl, boto3", "spdl", "not shuffled, the shard whole in memory")]),
        "resnet50": Group(
            f"TFRecord files of {RECORDS} samples of {RECORD / 1000:.0f} KB (MLPerf's resnet50), in batches of 100",
            "CPU us a sample", shards, (shards * RECORDS, None), shards * RECORDS / 1e6,
            [("millrace: epochs() | batch()", "ours:records", "shuffled, both CRCs of each record"),
             ("boto3, framing in Python", "records:boto3", "not shuffled, no CRC"),
             ("obstore, framing in Python", "records:obstore", MULTI + ", not shuffled, no CRC"),
             ("s3torchconnector, framing in Python", "records:s3torchconnector", MULTI + ", not shuffled, no CRC"),
             ("s3dlio, framing in Python", "records:s3dlio", MULTI + ", not shuffled, no CRC, files whole in memory")],
            read=shards * RECORDS * RECORD, steady=True, passes=2),
        "lossy": Group(
            f"{SMALLS} objects of 256 KiB, 60 ms away, with 1 % of the packets lost", "CPU s a GB", SMALLS,
            (None, SMALLS * SMALL), SMALLS * SMALL / 1e9,
            [("millrace: fetch", "ours:small", path),
             ("boto3, 32 threads", "boto3_threads:small:32", f"{MULTI}; {path}"),
             ("obstore, 64 at once", "obstore_gather:small", f"{MULTI}; {path}"),
             ("s3torchconnector, 32 threads", "s3torchconnector_threads:small:32", f"{MULTI}; {path}")]),
        "first": Group(
            "the first 32 samples of the tars", "CPU ms", shards, (FIRST, None), 1e-3,
            [("millrace: list | fetch | untar | group_samples", "ours:stages_first", "lists first"),
             ("millrace: epochs() | batch()", "ours:epochs_first", "shuffled"),
             ("curl and tarfile", "tar_stream:curl", UNSIGNED), ("boto3 and tarfile", "tar_stream:boto3", "")],
            goals=[("first_ms", "millrace: list | fetch | untar | group_samples", ["curl and tarfile"], 1),
                   ("first_ms", "millrace: epochs() | batch()", ["curl and tarfile"], 1)], rounds=21, first=FIRST),
        "decode": Group(
            "JPEGs of 500x375 and 110 KB to RGB", **{**of_images, "expected": (samples, samples * DECODED)}, rows=
            [("millrace: epochs() | decode_images() | batch()", "ours:decode", "from the store, shuffled, CRC"),
             ("PIL", "pil_decode", "from memory"), ("simplejpeg", "simplejpeg_decode", "from memory"),
             ("torchvision", "torchvision_decode", "from memory"),
             ("DALI, CPU", "dali:decode", f"{LOCAL}, prefetches before a pass begins"),
             ("turboloader", "turboloader_decode", LOCAL)]),
        "crops": Group(
            "random crops to 224x224, mirrored, normalised, f16, in batches of 100",
            **{**of_images, "expected": (samples, samples * CROPPED)}, rows=
            [("millrace: epochs() | decode_images() | batch()", "ours:crops", "from the store, shuffled, CRC"),
             ("PIL and torchvision v2", "pil_crops", "from memory"),
             ("torchvision v2", "torchvision_crops", "from memory"),
             ("DALI, CPU", "dali:crops", f"{LOCAL}, shuffled, prefetches before a pass begins")],
            goals=[("cpu", "millrace: epochs() | decode_images() | batch()", ["DALI, CPU"], 0.5),
                   ("cpu", "millrace: epochs() | decode_images() | batch()", ["torchvision v2"], 0.65)]),
        "augment": Group(
            "random crops to 224x224, jittered, turned, blurred, one in four erased in part",
            **{**of_images, "expected": (samples, samples * CROPPED)}, rows=
            [("millrace: epochs() | decode_images(f) | batch()", "ours:augment", "from the store, shuffled, CRC"),
             ("torchvision v2, floats", "torchvision_augment:float32", "from memory"),
             ("torchvision v2, bytes", "torchvision_augment:uint8", "from memory; bytes until they are normalised"),
             ("DALI, CPU", "dali:augment",
              f"{LOCAL}, shuffled, prefetches before a pass begins; bytes, hues by one matrix, in a fixed order")],
            goals=[("cpu", "millrace: epochs() | decode_images(f) | batch()",
                    ["torchvision v2, floats", "torchvision v2, bytes"], 0.65),
                   ("cpu", "millrace: epochs() | decode_images(f) | batch()", ["DALI, CPU"], 1)]),
        "video": Group(
            "clips of 2 s, 16 frames of 224x126, from H.264 of 640x360 and a minute, in batches of 8",
            **{**of_samples, "unit": "CPU ms a clip", "per": samples / 1e3,
               "expected": (samples, samples * math.prod(CLIP_SHAPE))}, passes=2, rounds=2, rows=
            [("millrace: epochs() of video_shards() | decode_video() | batch()", "ours:clips",
              "from the store, shuffled, the start makes the index"),
             ("millrace: decode_video() of whole files", "ours:clips_of_files", "from memory"),
             ("torchcodec, exact", "torchcodec:exact", LOCAL),
             ("torchcodec, approximate", "torchcodec:approximate", LOCAL),
             ("PyAV", "pyav", f"{LOCAL}, an FFmpeg of its own, from YUV to the small RGB at once"),
             ("DALI, CPU", "dali_video", f"{LOCAL}, shuffled; its documentation says: H.264 on GPUs alone")],
            goals=[("cpu", f"millrace: {ours_of_clips}",
                    ["torchcodec, exact", "torchcodec, approximate", "PyAV", "DALI, CPU"], 1)
                   for ours_of_clips in ("epochs() of video_shards() | decode_video() | batch()",
                                         "decode_video() of whole files")]),
        "volumes": Group(
            f"{volumes} objects of 140 MB, each in one piece of memory", "CPU s a GB", volumes,
            (None, volumes * VOLUME), volumes * VOLUME / 1e9,
            [("millrace: s3.read() into memory", "ours:volumes", ""),
             ("millrace: epochs() of objects", "ours:volumes_epochs", "CRC of each object"), *whole("volume")]),
        "save": Group(
            f"a checkpoint of {shards * TENSORS} tensors, {shards * TENSOR_BYTES / 1e6:.0f} MB, saved by one process",
            "CPU s a GB", shards, (shards * TENSORS, shards * TENSOR_BYTES), shards * TENSOR_BYTES / 1e9,
            [("millrace: checkpoints, write() and commit()", "ours:save", "safetensors; SHA-256 of all bytes in the signatures, which the server checks"),
             ("DCP, s3torchconnector", "dcp_s3torchconnector:save", MULTI + ", pickles"),
             ("safetensors, boto3", "safetensors_boto3:save", MULTI + ", safetensors")]),
        "load": Group(
            f"a checkpoint of {shards} files, {shards * TENSOR_BYTES / 1e6:.0f} MB, loaded by one process",
            "CPU s a GB", shards, (shards * TENSORS, shards * TENSOR_BYTES), shards * TENSOR_BYTES / 1e9,
            [("millrace: checkpoints, open() and load()", "ours:load", "safetensors, into memory of the program"),
             ("run:ai model streamer", "runai_streamer", MULTI + ", safetensors"),
             ("DCP, s3torchconnector", "dcp_s3torchconnector:load", MULTI + ", pickles, one file of its own"),
             ("safetensors, boto3", "safetensors_boto3:load", MULTI + ", safetensors")]),
        "slow": Group(
            "8 objects of 64 MiB at once; the first request of one takes a second", "CPU s a GB", 8, (None, 8 * SLOW),
            8 * SLOW / 1e9,
            [("millrace: fetch, .hedges = 0", "ours:even", ""), ("millrace: fetch", "ours:hedged", "asks twice"),
             ("boto3, 8 threads", "boto3_threads:slow:8", MULTI), ("obstore, 8 at once", "obstore_gather:slow", MULTI)],
            slow=True),
    }
    for size in LINES:
        rows = [(f"millrace: fetch | lines, batches of {size}", f"ours:lines{size}", ""),
                ("boto3, split", f"lines_boto3:{size}", "")]
        if size == 512:
            rows += [("obstore, split", "lines_obstore:512", MULTI),
                     ("s3torchconnector, split", "lines_s3torchconnector:512", MULTI),
                     ("s3fs, split", "lines_s3fs:512", ""), ("boto3, iter_lines", "lines_iter:512", "")]
        all_of[f"lines{size}"] = Group(
            f"Texts of 156 MB in lines of 1.6 KB, in batches of {size}", "CPU s a GB", texts, (lines, text_bytes),
            text_bytes / 1e9, rows, [("cpu", rows[0][0], ["boto3, split"], 0.4)], text_bytes, True, 2)
    return all_of


def figure(row, what):
    value = row.get(what)
    return statistics.median(value) if isinstance(value, list) else value


def judge(goals, rows):
    """A goal's ratio is the median over the rounds of the quotients within a round, beside the best of the others."""
    by_name = {row["name"]: row for row in rows}
    judged = []
    for what, name, others, limit in goals:
        mine = by_name.get(name, {"error": "not measured"})
        there = [by_name[o] for o in others if o in by_name and "error" not in by_name[o]]
        goal = {"what": what, "of": name, "limit": limit, "beside": None, "ratio": None, "met": None}
        if "error" not in mine and there:
            best = min(there, key=lambda row: figure(row, what))
            pairs = (zip(mine[what], best[what]) if isinstance(mine[what], list) else [(mine[what], best[what])])
            ratio = statistics.median(a / b for a, b in pairs)
            goal.update(beside=best["name"], ratio=round(ratio, 3), met=ratio <= limit)
        judged.append(goal)
    return judged


# ---- the whole


def install(environment):
    """Returns what could not be had."""
    missing = []
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    for line in (HERE / "requirements.txt").read_text().splitlines():
        wanted, _, comment = line.partition("#")
        wanted = wanted.strip()
        if not wanted:
            continue
        place = pathlib.Path(environment)
        if comment.strip() == "alone":
            place = place / "alone" / wanted.split("==")[0]
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
        done = subprocess.run([place / "bin/pip", "install", "-q", "--disable-pip-version-check", wanted],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            missing.append(wanted)
            print(f"{wanted} does not install: {(done.stderr.strip().splitlines() or ['?'])[-1]}", flush=True)
    return missing


ALONE = {"s3fs": "s3fs", "lines_s3fs": "s3fs", "kvikio": "kvikio-cu13"}


def command(what, program, environment, server, keys, folder):
    if what.startswith("ours:"):
        return [program, what[5:], server.endpoint, str(keys)]
    apart = pathlib.Path(environment) / "alone" / ALONE.get(what.split(":")[0], "-")
    python = (apart if apart.exists() else pathlib.Path(environment)) / "bin/python"
    return [str(python), str(HERE / "contenders.py"), what, server.endpoint, str(keys), folder]


def counted_texts(endpoint, texts):
    import urllib.request

    lines = 0
    for i in range(texts):
        with urllib.request.urlopen(f"{endpoint}/b/text/{i:04d}.txt") as body:
            while piece := body.read(1 << 22):
                lines += piece.count(b"\n")
    return lines


def copied_films(endpoint, films, folder):
    """Puts copies into the folder; returns clips and the bytes of the films."""
    import urllib.request

    paths = [os.path.join(folder, f"{i:04d}.mp4") for i in range(films)]
    for path in paths:
        urllib.request.urlretrieve(f"{endpoint}/b/films/{os.path.basename(path)}", path)
    return films * FILM_CLIPS, sum(map(os.path.getsize, paths))


def copied_tars(endpoint, shards, folder):
    """Puts copies into the folder; returns samples and their bytes."""
    import tarfile
    import urllib.request

    samples = size = 0
    for i in range(shards):
        path = os.path.join(folder, f"{i:04d}.tar")
        urllib.request.urlretrieve(f"{endpoint}/b/train/{i:04d}.tar", path)
        with tarfile.open(path) as archive:
            for member in archive:
                size += member.size
                samples += member.name.endswith(".cls")
    return samples, size


def measure(name, group, options, server, folder):
    contenders, places = [], []
    for label, what, marks in group.rows:
        line = command(what, options.program, options.environment, server, group.keys, folder)
        contenders.append(Contender(label, line, marks, label.startswith("millrace")))
        places.append(os.path.join(folder, f"of{len(places)}"))
    server.say("even")
    try:
        for c, place in zip(contenders, places):
            os.makedirs(place)
            c.start(place)
            if group.fresh():  # it has prepared what it reads
                c.stop()
            else:
                c.work(group, server, False)
        print(f"{name}: measuring", flush=True)
        for _ in range(options.rounds or group.rounds):
            for c, place in zip(contenders, places):
                if group.slow:
                    server.say("slow")
                if group.from_disk:
                    drop_pages(folder)
                if group.fresh():
                    shutil.rmtree(place)
                    os.makedirs(place)
                    c.start(place)
                c.work(group, server, True)
                if group.fresh():
                    c.stop()
    finally:
        for c, place in zip(contenders, places):
            c.stop()
            shutil.rmtree(place, ignore_errors=True)
    rows = [c.row(group) for c in contenders]
    result = {"title": group.title, "unit": group.unit, "gb": round(group.passes * group.read / 1e9, 2),
              "passes": group.passes, "rows": rows, "goals": judge(group.goals, rows)}
    for row in rows:
        if "error" in row:
            print(f"  {row['name']:50} {row['error']}", flush=True)
        else:
            print(f"  {row['name']:50} {figure(row, 'cpu'):10.3f} ({min(row['cpu']):.3f} - {max(row['cpu']):.3f}) "
                  f"{group.unit}, {figure(row, 'seconds'):.2f} of wall time, first {figure(row, 'first_ms'):.1f} ms "
                  f"and {figure(row, 'first_cpu_ms'):.1f} CPU ms, {row['peak_mb']} MB, the server's core "
                  f"{figure(row, 'server'):.2f}", flush=True)
    for goal in result["goals"]:
        print(f"  goal: {goal}", flush=True)
    return result


# On a network of our own, each way. Segments are those of Ethernet: a loss is of one, and not of 64 KiB.
NETEM = ["unshare", "-n", "sh", "-c", "ip link set lo up mtu 1500 gso_max_segs 1 && "
         "tc qdisc add dev lo root netem delay 30ms loss 1% limit 100000 && exec \"$@\"", "sh"]


def why_no_netem():
    """Why the kernel delays and loses nothing here; "" if it does."""
    try:
        done = subprocess.run([*NETEM, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stdout.strip().splitlines() or ["no reason given"])[-1]


def measure_from_one(names, options, sizes, shape=""):
    """Groups from one server, which has so many tars, texts and large objects."""
    shards, texts, _ = sizes
    path = ""
    if shape == "lossy":
        path = "by netem"
        if not options.netem:
            if why := why_no_netem():
                path = f"by the server's own delay and 0.3 MB/s a connection: no netem ({why})"
            else:  # this program once more, where the kernel does it
                with tempfile.TemporaryDirectory() as folder:
                    out = os.path.join(folder, "lossy.json")
                    subprocess.run([*NETEM, sys.executable, __file__, "--program", options.program, "--environment",
                                    options.environment, "--groups", "lossy", "--rounds", str(options.rounds),
                                    "--netem", "--out", out], check=True)
                    return json.loads(pathlib.Path(out).read_text())["groups"]
        else:
            shape = "small"
        print(f"lossy: {path}", flush=True)
    server = Server(options.program, sizes, shape)
    os.environ.update(AWS_ENDPOINT_URL=server.endpoint, AWS_ENDPOINT_URL_S3=server.endpoint)
    for variable in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        os.environ.pop(variable, None)
        if server.authority:
            os.environ[variable] = server.authority
    try:
        with tempfile.TemporaryDirectory() as folder:
            tars = shards if shape in ("", "large", "tls") else 0
            samples, sample_bytes = copied_tars(server.endpoint, tars, folder)
            if shape == "films":
                samples, sample_bytes = copied_films(server.endpoint, shards, folder)
            lines = counted_texts(server.endpoint, texts)
            all_of = groups(*sizes, samples, sample_bytes, lines, texts * TEXT, path)
            return {name: measure(name, all_of[name], options, server, folder) for name in names}
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--groups", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=0, help="of each group; 0: as many as it has")
    parser.add_argument("--out", required=True)
    parser.add_argument("--netem", action="store_true", help=argparse.SUPPRESS)  # the network is a far one
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.environment = os.path.abspath(options.environment)
    missing = install(options.environment) if options.install else []
    os.environ.update(AWS_ACCESS_KEY_ID="test-key", AWS_SECRET_ACCESS_KEY="test-secret", AWS_REGION="us-east-1",
                      AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", AWS_ALLOW_HTTP="true",
                      NO_PROXY="127.0.0.1,localhost", no_proxy="127.0.0.1,localhost")
    sizes = (2, 1, 2) if options.quick else (24, 16, 8)  # two passes of the tars or the texts are 5 GB
    names = [g for g in options.groups.split(",") if g] or GROUPS
    unknown = [g for g in names if g not in GROUPS]
    if unknown:
        sys.exit(f"no such groups: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    results = {}
    images = (1 if options.quick else 6, 0, 0)  # they take ten times longer than bytes
    tls = (sizes[0], 0, sizes[2])
    apart = {  # servers of their own
        **{name: (images, "") for name in ("decode", "crops", "augment")}, "large": ((1, 0, 0), "large"),
        "video": (images, "films"),
        "resnet50": ((1 if options.quick else 18, 0, 0), "records"), "lossy": ((0, 0, 0), "lossy"),
        "raw_tls": (tls, "tls"), "samples_tls": (tls, "tls"), "far_tls": ((0, 0, FARS), "far"),
        **dict.fromkeys(["save", "load"], ((1 if options.quick else 32, 0, 0), "checkpoint"))}
    served = {}
    for name in names:
        served.setdefault(apart.get(name, (sizes, "")), []).append(name)
    for (of, shape), wanted in served.items():
        results.update(measure_from_one(wanted, options, of, shape))
    out = pathlib.Path(options.out)
    before = json.loads(out.read_text()) if out.exists() else {}
    out.write_text(json.dumps({**before, "groups": {**before.get("groups", {}), **results},
                               "missing": missing or before.get("missing", [])}, indent=1) + "\n")


if __name__ == "__main__":
    main()
