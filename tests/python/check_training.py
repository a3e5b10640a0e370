# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""examples/python/train.py, killed, stopped and resumed: check_training.py FOLDER_OF_MODULES [ray].

Alone and under torchrun; with "ray" on workers of Ray Train. Every sample comes once an epoch on any number of ranks,
and a training that was killed comes to the weights of one that was not, bit by bit.
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
import time
import zlib

RAY = sys.argv[2:] == ["ray"]
MODULES, PACKAGES = ("ray.train.torch", "ray[train], torch") if RAY else ("torch.distributed.run", "torch")
if subprocess.run([sys.executable, "-c", f"import torch, {MODULES}"], capture_output=True).returncode != 0:
    print(f"skipped: what trains is not installed for {sys.executable} (PyPI: {PACKAGES})")
    sys.exit(77)

TRAIN = str(pathlib.Path(__file__).parents[2] / "examples/python/train.py")
EPOCHS = 200  # under Ray, so that it is found in the middle
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


# This machine is a cluster of its own, with a CPU for each worker and one for what leads them.
RAY_DRIVER = """
import runpy, sys
import ray
ray.init(address="local", num_cpus=int(sys.argv[3]) + 1, include_dashboard=False)
runpy.run_path(TRAIN, run_name="__main__")
"""


class RayTraining:
    """A start of train.py on so many workers."""

    def __init__(self, folder, workers, epochs):
        self.folder, self.workers, self.before = folder, workers, set(folder.glob("seen.*"))
        environment = {**ENVIRONMENT, "RAY_USAGE_STATS_ENABLED": "0"}
        self.log = tempfile.TemporaryFile("w+")
        self.driver = subprocess.Popen([sys.executable, "-c", RAY_DRIVER.replace("TRAIN", repr(TRAIN)), str(folder),
                                        str(epochs), str(workers)], stdout=self.log, stderr=subprocess.STDOUT,
                                       env=environment, start_new_session=True)

    def fail(self, why):
        self.driver.kill()
        self.log.seek(0)
        sys.exit(why + "\n" + "".join(self.log.readlines()[-60:]))

    def until(self, what, holds):
        for _ in range(6000):
            if result := holds():
                return result
            if self.driver.poll() is not None:
                break
            time.sleep(0.02)
        self.fail(f"Ray's training does not get to {what}")

    def begun(self):
        """The files of its workers, once all have saved. A second call returns those of the workers that came after."""

        def saved():
            new = set(self.folder.glob("seen.*")) - self.before
            return new if len(new) == self.workers and all(path.stat().st_size for path in new) else None

        new = self.until("its steps", saved)
        self.before |= new
        return new

    def ended(self):
        try:
            status = self.driver.wait(300)
        except subprocess.TimeoutExpired:
            self.fail("Ray's training does not end")
        for _ in range(600):
            if not any(os.path.exists(f"/proc/{path.suffix[1:]}") for path in self.before):  # none can still write
                return status
            time.sleep(0.05)
        self.fail("Ray's workers do not end")


def under_ray(folder):
    keys = make_data(folder)
    training = RayTraining(folder, 2, EPOCHS)
    starts = [training.begun()]
    [killed] = [path for path in starts[0] if ".1." in path.name]
    os.kill(int(killed.suffix[1:]), signal.SIGKILL)
    starts.append(training.begun())  # by Ray
    training.driver.terminate()
    assert training.ended() != 0, "it has come to the end"
    training = RayTraining(folder, 3, EPOCHS)
    starts.append(training.begun())
    if training.ended() != 0:
        training.fail("it fails")

    of_step = {}
    for start in starts:
        lines = [line.split(" ") for path in start for line in path.read_text().splitlines()]
        of_step.update({line[0]: [] for line in lines})  # what was not saved is trained on again
        for line in lines:
            of_step[line[0]].append(" ".join(line[1:]))
    each_once(collections.Counter(sample for samples in of_step.values() for sample in samples), keys, EPOCHS)
    print(f"Ray, 2 workers, of which one was killed, then 3: each of {len(keys)} samples once an epoch")


def alone_and_under_torchrun(made):
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


with tempfile.TemporaryDirectory(prefix="millrace-python.") as made:
    if RAY:
        under_ray(pathlib.Path(made))
    else:
        alone_and_under_torchrun(made)
