#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Trains under a real engine, with a kill, a stop and other numbers of ranks: run.py ENGINE PROGRAM.

ENGINE: mpi and pmix (mpirun of Open MPI), torchrun, ray, slurm, files (processes that only know their numbers). PROGRAM
is the training of tests/engines/ for it: training_by_c10d for torchrun and ray; for slurm training_by_files and, after
it, training_by_pmix, which is taken where srun has PMIx. MILLRACE_ENGINE_PYTHON names a python that has torch
(torchrun) or ray and torch (ray), the one of a virtual environment for instance; without it that of the system is
asked.

Three starts of one training: 3 ranks, of which one is killed; 2 ranks, of which one is asked to stop; 4 ranks, to the
end. All samples must have come once an epoch. Exit status 77: the engine is not installed.
"""
import collections
import io
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
PYTHON = os.environ.get("MILLRACE_ENGINE_PYTHON", SYSTEM_PYTHON)


def skip(why):
    print("skipped: " + why)
    sys.exit(SKIPPED)


def fail(why):
    print("FAILED: " + why)
    sys.exit(1)


def need(program, package):
    found = shutil.which(program)
    if found is None:
        skip(f"{program} is not installed (Debian: {package})")
    return found


def python_has(modules):
    return subprocess.run([PYTHON, "-c", "import " + modules], capture_output=True).returncode == 0


class Processes:
    """Numbers alone: no launcher."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def command(self, ranks):
        return [sys.executable, __file__, "--launch", str(ranks), self.program, self.folder]

    def close(self):
        pass


class Mpirun(Processes):
    def __init__(self, program, folder):
        super().__init__(program, folder)
        self.mpirun = need("mpirun", "openmpi-bin")

    def command(self, ranks):
        return [self.mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), self.program, self.folder]


class Torchrun(Processes):
    def __init__(self, program, folder):
        super().__init__(program, folder)
        if not python_has("torch.distributed.run"):
            skip("torch is not installed (Debian: python3-torch)")

    def command(self, ranks):
        # Torch 1.13 fails with Python 3.11 where a process has the default; there is no process 9. Its --standalone
        # takes one port for all trainings of a machine: two at a time disturb each other.
        output = ["--redirects", "9:1", "--tee", "9:1"]
        alone = ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", "--rdzv_id", str(os.getpid())]
        return [PYTHON, "-m", "torch.distributed.run", "--no_python", *alone, *output, "--nproc_per_node",
                str(ranks), self.program, self.folder]


RAY_TRAINING = """
import os, subprocess, sys
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def each(config):
    status = subprocess.run([config["program"], config["folder"]]).returncode
    if status not in (0, 75):
        raise RuntimeError("status %d" % status)

program, folder, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
ray.init(num_cpus=ranks + 1, include_dashboard=False, log_to_driver=True)
TorchTrainer(each, train_loop_config={"program": program, "folder": folder},
             scaling_config=ScalingConfig(num_workers=ranks, use_gpu=False),
             run_config=RunConfig(storage_path=folder + "/ray")).fit()
"""


class Ray(Processes):
    def __init__(self, program, folder):
        super().__init__(program, folder)
        if not python_has("ray.train.torch"):
            skip("ray and torch are not installed for " + PYTHON + " (PyPI: ray[train], torch)")
        os.environ["RAY_DEDUP_LOGS"] = "0"

    def command(self, ranks):
        return [PYTHON, "-c", RAY_TRAINING, self.program, self.folder, str(ranks)]


class Slurm(Processes):
    """One node: munged, slurmctld and slurmd of this machine, with folders of their own."""

    def __init__(self, program, folder):
        super().__init__(program, folder)
        for daemon, package in [("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"),
                                ("munged", "munge")]:
            need(daemon, package)
        if os.geteuid() != 0:
            skip("slurmd needs root")
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="millrace-slurm."))
        host = os.uname().nodename.split(".")[0]
        settings = {
            "ClusterName": "millrace", "SlurmctldHost": f"{host}(127.0.0.1)", "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.state}/munge.socket",
            "CredType": "cred/munge", "SlurmUser": "root", "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none", "MpiDefault": "none", "ReturnToService": 2, "SlurmctldPort": 16817,
            "SlurmdPort": 16818, "SlurmctldPidFile": self.state / "ctld.pid", "SlurmdPidFile": self.state / "slurmd.pid",
            "SlurmdSpoolDir": self.state / "spool", "StateSaveLocation": self.state / "state",
            "SlurmctldLogFile": self.state / "ctld.log", "SlurmdLogFile": self.state / "slurmd.log",
            "SchedulerType": "sched/builtin", "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CPU",
            "SlurmdParameters": "config_overrides", "KillWait": 30, "UnkillableStepTimeout": 60,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        text += f"NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN\n"
        text += f"PartitionName=all Nodes={host} Default=YES OverSubscribe=FORCE:8 MaxTime=INFINITE State=UP\n"
        (self.state / "slurm.conf").write_text(text)
        (self.state / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        os.environ["SLURM_CONF"] = str(self.state / "slurm.conf")
        for name in ("spool", "state"):
            (self.state / name).mkdir()
        key = self.state / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.daemons = []
        self.start(["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.state}/munge.socket",
                    f"--pid-file={self.state}/munge.pid", f"--log-file={self.state}/munge.log",
                    f"--seed-file={self.state}/munge.seed"])
        time.sleep(1)
        self.start(["slurmctld", "-D", "-c", "-f", str(self.state / "slurm.conf")])
        self.start(["slurmd", "-D", "-c", "-N", host, "-f", str(self.state / "slurm.conf")])
        for _ in range(60):
            seen = subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True)
            if seen.stdout.strip() == "idle":
                break
            time.sleep(0.5)
        else:
            self.close()
            skip("Slurm's node does not come up here: " + (seen.stdout + seen.stderr).strip())
        kinds = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True)
        self.pmix = "pmix" in kinds.stdout + kinds.stderr
        self.pmix = self.pmix and len(sys.argv) > 3
        if self.pmix:
            self.program = sys.argv[3]
        print("by PMIx" if self.pmix else "this srun has no PMIx: the ranks meet in a folder")

    def start(self, command):
        log = open(self.state / (command[0] + ".out"), "w")
        self.daemons.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def command(self, ranks):
        kind = ["--mpi=pmix"] if self.pmix else ["--mpi=none"]
        return ["srun", *kind, "--kill-on-bad-exit", "--ntasks", str(ranks), "--unbuffered", self.program, self.folder]

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        shutil.rmtree(self.state, ignore_errors=True)


ENGINES = {"mpi": Mpirun, "pmix": Mpirun, "torchrun": Torchrun, "ray": Ray, "slurm": Slurm, "files": Processes}


def make_data(folder):
    """Five shards of unequal length; the keys."""
    random.seed(7)
    (folder / "train").mkdir()
    keys = []
    for shard, samples in enumerate([40, 7, 66, 21, 46]):
        with tarfile.open(folder / "train" / f"{shard}.tar", "w") as tar:
            for i in range(samples):
                keys.append(f"{shard}/{i}")
                member = tarfile.TarInfo(keys[-1] + ".bin")
                member.size = random.randrange(3000)
                tar.addfile(member, io.BytesIO(bytes(member.size)))
    return keys


class Start:
    """One start of the engine; its lines are read by a thread."""

    def __init__(self, engine, ranks):
        self.ranks, self.steps, self.processes, self.last = ranks, [], {}, {}
        self.output, self.sources = [], set()
        command = engine.command(ranks)
        print("$ " + " ".join(w for w in command if len(w) < 100), flush=True)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.output.append(line)
            if found := re.search(r"rank (\d+) of (\d+) is process (\d+) by ([\w ]+)", line):
                self.processes[int(found[1])] = int(found[3])
                self.sources.add(found[4].strip())
            elif found := re.search(r"step (\d+)\s*$", line) if "rank" not in line else None:
                self.steps.append(int(found[1]))
            elif found := re.search(r"rank (\d+) (stops|ends) after step (\d+)", line):
                self.last[int(found[1])] = (found[2], int(found[3]))

    def until(self, steps):
        """Waits until it has made so many steps."""
        for _ in range(1200):
            if len(self.steps) >= steps and len(self.processes) == self.ranks:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.give_up("it does not get to its steps")

    def ended(self):
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.give_up("it does not end")
        self.reader.join()
        return self.process.returncode

    def give_up(self, why):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        sys.stdout.writelines(self.output[-40:])
        raise RuntimeError(why)


def train(engine, folder, keys):
    saved = folder / "state"
    step_of = lambda: int(saved.read_text().split("\n")[0]) if saved.exists() else 0
    trained = collections.Counter()

    def collect():
        """What was trained on up to the step that is saved."""
        last = step_of()
        for path in folder.glob("seen.*"):
            for line in path.read_text().splitlines():
                words = line.split(" ")
                if len(words) == 3 and int(words[0]) <= last:
                    trained[words[1] + " " + words[2]] += 1
            path.unlink()

    first = Start(engine, 3)
    first.until(8)
    os.kill(first.processes[1], signal.SIGKILL)
    began = time.monotonic()
    status = first.ended()
    if status == 0:
        first.give_up("a training without one of its ranks ends well")
    print(f"3 ranks by {', '.join(sorted(first.sources))}, rank 1 killed: ended after "
          f"{time.monotonic() - began:.1f} s with status {status}; step {step_of()} is saved")
    collect()

    second = Start(engine, 2)
    second.until(8)
    os.kill(second.processes[1], signal.SIGUSR1)
    began = time.monotonic()
    while len(second.last) != 2 and time.monotonic() - began < 60:
        time.sleep(0.01)
    took = time.monotonic() - began
    second.ended()
    if len(second.last) != 2 or len(set(second.last.values())) != 1 or second.last[0][0] != "stops":
        second.give_up(f"ranks that do not stop together: {second.last}")
    print(f"2 ranks, rank 1 asked to stop: all stop after step {second.last[0][1]}, within {took:.1f} s")
    if took > 5:  # 2 s, and what a loaded machine adds
        fail("too late")
    collect()

    third = Start(engine, 4)
    status = third.ended()
    if status != 0 or len(third.last) != 4 or {how for how, _ in third.last.values()} != {"ends"}:
        third.give_up(f"four ranks: status {status}, {third.last}")
    collect()
    wanted = collections.Counter(f"{epoch} {key}" for epoch in (0, 1) for key in keys)
    if trained != wanted:
        fail(f"{sum((wanted - trained).values())} samples are missing, {sum((trained - wanted).values())} came twice")
    print(f"4 ranks to the end: each of {len(keys)} samples once an epoch")


def launch(ranks, program, folder):
    """Runs that many processes; once one fails, the others are killed. Their highest exit status."""
    names = [{"MILLRACE_WORLD_SIZE": str(ranks), "MILLRACE_RANK": str(r)} for r in range(ranks)]
    running = [subprocess.Popen([program, folder], env={**os.environ, **n}) for n in names]
    left, status = list(running), 0
    while left:
        for process in [p for p in left if p.poll() is not None]:
            left.remove(process)
            ended = process.returncode if process.returncode >= 0 else 128 - process.returncode
            status = max(status, ended)
            if ended not in (0, 75):
                for other in left:
                    other.kill()
        time.sleep(0.02)
    return status


def main():
    if sys.argv[1:2] == ["--launch"]:
        sys.exit(launch(int(sys.argv[2]), *sys.argv[3:]))
    if len(sys.argv) < 3 or sys.argv[1] not in ENGINES:
        print(__doc__)
        sys.exit(2)
    with tempfile.TemporaryDirectory(prefix="millrace-engine.") as made:
        folder = pathlib.Path(made)
        engine = ENGINES[sys.argv[1]](sys.argv[2], made)
        try:
            train(engine, folder, make_data(folder))
        except RuntimeError as e:
            fail(str(e))
        finally:
            engine.close()


main()
