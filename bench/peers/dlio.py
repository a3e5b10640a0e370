#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""The workloads of MLPerf Storage in DLIO's harness, fed by millrace and by other loaders, of the same files.

    dlio.py --environment FOLDER [--install] [--module FOLDER] [--workloads unet3d,...] [--accelerator h100] [--quick]
            [--rounds 3] --out FILE.json

--install makes the virtual environment FOLDER, which wants Open MPI (Debian: openmpi-bin); --module is where dlio_door
was built for its python, without which nothing is measured. DLIO makes the data, calls a loader, sleeps in place of
each step, as long as that accelerator takes, and says what share of the time it slept, without the first step of an
epoch: the accelerator utilisation. All that it needs is set as in its own files (workload/NAME_ACCELERATOR.yaml) but
for what SIZES says, two threads or processes that read, and no checkpoints. Loaders take turns, one accelerator each,
and before each no file is in the page cache; what fits into it is there from the second epoch on. $TMPDIR takes 13 GB.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from measure import drop_pages

HERE = pathlib.Path(__file__).resolve().parent
# The first without its own requirements, which have TensorFlow and DALI for GPUs.
PACKAGES = ["dlio-benchmark==2.0.0", "pydftracer==1.0.2", "hydra-core==1.3.8", "mpi4py==4.1.2", "h5py==3.14.0",
            "pandas==3.1.1", "psutil==7.2.2", "pillow==13.0.0", "torch==2.15.0", "tensorflow-cpu==2.21.0",
            "nvidia-dali-cuda130==2.4.0", "litdata==0.2.76", "nanobind==3.1.0"]

# What is smaller than MLPerf's, and what is small enough for a look.
SIZES = {
    "unet3d": ({"dataset.num_files_train": 42, "train.epochs": 3},
               {"dataset.num_files_train": 21, "dataset.record_length": 4_000_000,
                "dataset.record_length_stdev": 1_000_000, "train.epochs": 2}),
    "resnet50": ({"dataset.num_files_train": 6, "train.epochs": 3},
                 {"dataset.num_files_train": 2, "dataset.num_samples_per_file": 800, "train.epochs": 2}),
    "cosmoflow": ({"dataset.num_files_train": 512, "train.epochs": 3},
                  {"dataset.num_files_train": 16, "train.epochs": 2}),
}
KINDS = {"unet3d": "npz", "resnet50": "TFRecord", "cosmoflow": "TFRecord"}

TORCH = {"framework": "pytorch", "reader.data_loader": "pytorch"}
TENSORFLOW = {"framework": "tensorflow", "reader.data_loader": "tensorflow"}
DALI = {"framework": "pytorch", "reader.data_loader": "dali"}


def plugin(name, readers="custom"):
    return {"framework": "pytorch", "reader.data_loader": readers, "reader.data_loader_sampler": "iterative",
            "reader.data_loader_classname": f"dlio_loaders.{name}"}


# DLIO refuses TFRecord files with PyTorch's loader, and npz with DALI's own readers.
OURS = ("millrace: epochs() | batch()", plugin("Millrace"), "shuffled, CRCs")
LITDATA = ("litData", plugin("Litdata"), "own chunks, shuffled")
CONTENDERS = {
    "npz": [OURS, ("PyTorch's DataLoader, NumPy", TORCH, "shuffled, CRCs, fixed batches"),
            ("DALI, fed by NumPy", DALI, "shuffled, CRCs, fixed batches"), LITDATA],
    "TFRecord": [OURS, ("tf.data", TENSORFLOW, "CRCs, one fixed image a step"),
                 ("DALI, CPU", plugin("Dali", "native_dali"), "no CRCs, whole records"), LITDATA],
}


class Harness:
    def __init__(self, options, workload, folder):
        self.options, self.workload, self.folder = options, workload, folder
        self.data = f"{folder}/{workload}"
        programs = os.path.join(options.environment, "bin")
        self.program = os.path.join(programs, "dlio_benchmark")
        paths = [str(HERE), options.module, os.environ.get("PYTHONPATH")]
        self.environment = {**os.environ, "PATH": programs + os.pathsep + os.environ["PATH"],
                            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
                            # As root, and of one process, without a launcher.
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.common = {**SIZES[workload][options.quick], "dataset.data_folder": self.data,
                       "workflow.checkpoint": False, "reader.read_threads": 2}

    def run(self, settings):
        """One run of DLIO. Returns its summary."""
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            words = [f"++workload.{k}={v}" for k, v in {**self.common, **settings, "output.folder": out}.items()]
            done = subprocess.run([self.program, f"workload={self.workload}_{self.options.accelerator}", *words,
                                   f"hydra.run.dir={out}"], cwd=self.folder, env=self.environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            summary = pathlib.Path(out, "summary.json")
            if done.returncode != 0 or (settings["workflow.train"] and not summary.exists()):
                lines = [line.strip() for line in done.stdout.splitlines() if "Error" in line or "Exception" in line]
                raise RuntimeError((lines or done.stdout.splitlines() or ["it says nothing"])[-1][:200])
            return json.loads(summary.read_text())["metric"] if summary.exists() else {}

    def make_data(self):
        made = TENSORFLOW if KINDS[self.workload] == "TFRecord" else TORCH
        os.mkdir(f"{self.folder}/bin")
        os.symlink(shutil.which("true"), f"{self.folder}/bin/tfrecord2idx")  # dlio_loaders.py does that
        self.environment["PATH"] = f"{self.folder}/bin{os.pathsep}{self.environment['PATH']}"
        self.run({**made, "workflow.generate_data": True, "workflow.train": False})
        done = subprocess.run([os.path.join(self.options.environment, "bin/python"), str(HERE / "dlio_loaders.py"),
                               self.data, KINDS[self.workload].lower()], env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"no index or no chunks: {(done.stdout.splitlines() or ['it says nothing'])[-1]}")

    def measure(self):
        self.make_data()
        rows = [{"name": name, "marks": marks, "ours": name.startswith("millrace"), "utilisation": [], "samples": []}
                for name, _, marks in CONTENDERS[KINDS[self.workload]]]
        for _ in range(self.options.rounds):
            for row, (name, settings, _) in zip(rows, CONTENDERS[KINDS[self.workload]]):
                if "error" in row:
                    continue
                drop_pages(self.data)
                try:
                    said = self.run({**settings, "workflow.train": True})
                except RuntimeError as error:
                    row["error"] = str(error)
                    print(f"  {name:50} {error}", flush=True)
                    continue
                row["utilisation"].append(round(said["train_au_mean_percentage"], 2))
                row["samples"].append(round(said["train_throughput_mean_samples_per_second"], 2))
                print(f"  {name:50} {row['utilisation'][-1]:6.2f} % of the accelerator, {row['samples'][-1]:.1f} "
                      f"samples a second; by epoch {[round(au, 1) for au in said['train_au_percentage']]}", flush=True)
        return {"title": f"{self.workload}, {KINDS[self.workload]} files, {self.options.accelerator.upper()}",
                "rows": rows}


def install(environment):
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [os.path.join(environment, "bin/pip"), "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES[1:]], check=True)
    subprocess.run([*pip, "--no-deps", PACKAGES[0]], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--module", help="the folder of dlio_door")
    parser.add_argument("--workloads", default=",".join(SIZES))
    parser.add_argument("--accelerator", default="h100", choices=["h100", "a100", "v100"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    options.environment = os.path.abspath(options.environment)
    if options.install:
        install(options.environment)
    if not options.module:
        return
    options.module = os.path.abspath(options.module)
    result = {}
    for workload in options.workloads.split(","):
        print(f"{workload}: {options.accelerator}", flush=True)
        with tempfile.TemporaryDirectory(prefix="millrace-dlio.") as folder:
            result[workload] = Harness(options, workload, folder).measure()
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
