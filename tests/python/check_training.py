# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""examples/python/train.py, killed, stopped and resumed, alone and under torchrun: check_training.py FOLDER_OF_MODULES.

Every sample comes once an epoch on any number of ranks, and a training that was killed comes to the weights of one that
was not, bit by bit.
"""

import collections
import io
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

if subprocess.run([sys.executable, "-c", "import torch, torch.distributed.run"], capture_output=True).returncode != 0:
    print(f"skipped: torch is not installed for {sys.executable} (PyPI: torch)")
    sys.exit(77)

TRAIN = str(pathlib.Path(__file__).parents[2] / "examples/python/train.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": sys.argv[1], "OMP_NUM_THREADS": "1"}


def png(side, colour):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + bytes(colour) * side) * side
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_data(folder):
    """Images of a class's colour, in shards of unequal length; their keys."""
    random.seed(7)
    keys = []
    for shard, samples in enumerate([13, 3, 22, 9]):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for i in range(samples):
                keys.append(f"{shard}-{i}")
                label = random.randrange(4)
                colour = [60 + 120 * (label + 1 >> c & 1) + random.randrange(60) for c in range(3)]
                for extension, data in (("png", png(random.randrange(12, 40), colour)), ("cls", b"%d" % label)):
                    member = tarfile.TarInfo(f"{keys[-1]}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return keys


def start(folder, ranks, epochs):
    command = [sys.executable, TRAIN, str(folder), str(epochs)]
    if ranks > 1:
        # Torch 1.13 fails with Python 3.11 where a process has the default; there is no process 9. Its --standalone
        # takes one port for all trainings of a machine: two at a time disturb each other.
        command[1:1] = ["-m", "torch.distributed.run", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0",
                        "--rdzv_id", str(os.getpid()), "--redirects", "9:1", "--tee", "9:1",
                        "--nproc_per_node", str(ranks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def until(training, step):
    for line in training.stdout:
        if f"step {step} " in line:
            return
    raise AssertionError(f"it ended before step {step}")


def losses_of(training):
    out = training.communicate(timeout=120)[0]
    assert training.returncode == 0, out
    return [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step ")]


def collect(folder, trained):
    """Adds what was trained on up to the step that is saved. Returns that checkpoint's bytes."""
    read = "import sys, torch; print(torch.load(sys.argv[1])['step'])"
    step = int(subprocess.run([sys.executable, "-c", read, str(folder / "checkpoint.pt")], capture_output=True,
                              check=True).stdout)
    for path in folder.glob("seen.*"):
        for line in path.read_text().splitlines():
            words = line.split(" ")
            if len(words) == 3 and int(words[0]) <= step:
                trained[words[1] + " " + words[2]] += 1
        path.unlink()
    return (folder / "checkpoint.pt").read_bytes()


def each_once(trained, keys, epochs):
    wanted = collections.Counter(f"{epoch} {key}" for epoch in range(epochs) for key in keys)
    assert trained == wanted, (wanted - trained, trained - wanted)


with tempfile.TemporaryDirectory(prefix="millrace-python.") as made:
    whole, killed = pathlib.Path(made, "whole"), pathlib.Path(made, "killed")
    for folder in (whole, killed):
        folder.mkdir()
        keys = make_data(folder)

    trained = collections.Counter()
    losses = losses_of(start(whole, 1, 4))
    weights = collect(whole, trained)
    each_once(trained, keys, 4)
    assert sum(losses[-5:]) < sum(losses[:5]), losses

    trained = collections.Counter()
    for signal_sent, after in ((signal.SIGKILL, 8), (signal.SIGTERM, 17)):
        training = start(killed, 1, 4)
        until(training, after)
        training.send_signal(signal_sent)
        training.communicate(timeout=60)
        assert training.returncode == (-signal.SIGKILL if signal_sent == signal.SIGKILL else 0)
        collect(killed, trained)
    rest = losses_of(start(killed, 1, 4))
    assert collect(killed, trained) == weights and rest == losses[-len(rest):], "other weights after a kill"
    each_once(trained, keys, 4)
    print(f"one process, killed and stopped: each of {len(keys)} samples once an epoch, and the same weights")

    for folder in (whole, killed):
        for path in folder.glob("*.pt"):
            path.unlink()
    trained = collections.Counter()
    training = start(killed, 2, 2)
    until(training, 6)
    training.terminate()  # torchrun asks its processes to stop
    training.communicate(timeout=60)
    collect(killed, trained)
    losses_of(start(killed, 2, 2))
    collect(killed, trained)
    each_once(trained, keys, 2)
    print(f"torchrun, 2 ranks, stopped and resumed: each of {len(keys)} samples once an epoch")
