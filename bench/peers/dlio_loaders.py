# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Loaders for DLIO, of which each is a class that data_loader_classname names: dlio_loaders.Millrace.

A batch has a square of each sample's first bytes, of the size that DLIO's own loaders say they resize to; theirs, but
for DALI's readers, is one array of random numbers, whatever was read. As a program, dlio_loaders.py FOLDER FORMAT makes
what loaders need of the files that DLIO has made in FOLDER/train: FOLDER/millrace.index, litData's chunks in
FOLDER/litdata, and where DLIO looks for them DALI's indexes, for which DLIO would start a process for each file.
"""

import os
import struct
import sys

import numpy
import torch


def samples_of(path):
    """The bytes of each sample of a file, npz or TFRecord."""
    if path.endswith(".npz"):
        yield numpy.load(path)["x"].tobytes()
        return
    with open(path, "rb") as file:
        while head := file.read(12):
            record = file.read(struct.unpack("<Q", head[:8])[0])
            file.read(4)
            yield record


def square(data, side):
    row = torch.zeros(side * side, dtype=torch.uint8)
    n = min(len(data), side * side)
    row[:n] = torch.frombuffer(data, dtype=torch.uint8, count=n)
    return row.view(side, side)


if __name__ == "__main__":
    import dlio_door
    import litdata

    folder, kind = sys.argv[1:]
    dlio_door.training(f"{folder}/train/", format=kind, index=f"{folder}/millrace.index").__next__()
    paths = sorted(f"{folder}/train/{name}" for name in os.listdir(f"{folder}/train"))
    litdata.optimize(fn=samples_of, inputs=paths, output_dir=f"{folder}/litdata", chunk_bytes="64MB", num_workers=1)
    for path in paths if kind == "tfrecord" else []:
        at = 0
        os.makedirs(f"{folder}/index/train", exist_ok=True)
        with open(f"{folder}/index/train/{os.path.basename(path)}.idx", "w") as index:
            for record in samples_of(path):
                index.write(f"{at} {len(record) + 16}\n")
                at += len(record) + 16
    sys.exit()

from dlio_benchmark.common.enumerations import DataLoaderType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader


class Millrace(BaseDataLoader):
    """All epochs are one pipeline."""

    def __init__(self, format_type, dataset_type, epoch_number):
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.CUSTOM)
        self.passes = 0

    def read(self):
        import dlio_door

        # MPI, which DLIO uses, sets PMIX_RANK without a number of processes.
        os.environ.update(MILLRACE_RANK=str(self._args.my_rank), MILLRACE_WORLD_SIZE=str(self._args.comm_size))
        folder = os.path.abspath(self._args.data_folder)
        self.batches = dlio_door.training(f"{folder}/train/", format=self._args.format.value,
                                          index=f"{folder}/millrace.index", seed=self._args.seed,
                                          epochs=self._args.epochs, batch=self.batch_size,
                                          side=self._args.max_dimension)

    def next(self):
        epoch, self.passes = self.passes, self.passes + 1
        for batch in self.batches:
            if batch.epoch == epoch:  # DLIO leaves a shorter last batch
                yield torch.from_dlpack(batch["image"])

    def finalize(self):
        pass


class Dali(BaseDataLoader):
    """DLIO's own, which adds a pipeline in each epoch and is refused by DALI in the second one."""

    def __init__(self, format_type, dataset_type, epoch_number):
        from dlio_benchmark.data_loader.native_dali_data_loader import NativeDaliDataLoader

        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.NATIVE_DALI)
        self.of = NativeDaliDataLoader(format_type, dataset_type, epoch_number)

    def read(self):
        pass

    def next(self):
        self.of.pipelines = []
        yield from self.of.next()

    def finalize(self):
        pass


class Litdata(BaseDataLoader):
    """Of the chunks beside DLIO's files."""

    def __init__(self, format_type, dataset_type, epoch_number):
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.CUSTOM)

    def read(self):
        import litdata

        side = self._args.max_dimension
        data = litdata.StreamingDataset(os.path.abspath(self._args.data_folder) + "/litdata", shuffle=True,
                                        seed=self._args.seed, drop_last=True)
        self.batches = litdata.StreamingDataLoader(
            data, batch_size=self.batch_size, num_workers=self._args.read_threads, multiprocessing_context="fork",
            collate_fn=lambda samples: torch.stack([square(sample, side) for sample in samples]))

    def next(self):
        yield from self.batches

    def finalize(self):
        pass
