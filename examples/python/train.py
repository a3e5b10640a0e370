# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""A training with torch on the images of FOLDER/*.tar: train.py FOLDER [EPOCHS [WORKERS]].

Alone, under torchrun, or, where WORKERS are given, on that many of Ray Train. PYTHONPATH leads to the module photos.
The model and the place in the data are saved together, in FOLDER/checkpoint.pt: a training that was killed or stopped
(SIGTERM) goes on after the batch that was saved last, on any number of ranks. Every rank writes to
FOLDER/seen.RANK.PROCESS which samples it was trained on, "STEP EPOCH KEY" each.
"""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

import photos


def train(folder, epochs):
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    path = folder + "/checkpoint.pt"
    saved = torch.load(path) if os.path.exists(path) else {"step": 0, "state": ""}

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    if "model" in saved:
        model.load_state_dict(saved["model"])
    if world > 1:
        if not dist.is_initialized():  # Ray Train has done it
            dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    loader = photos.training(folder + "/*.tar", index=folder + "/photos.index", meet=folder + "/ranks/", seed=7,
                             epochs=epochs, batch=4, side=16, state=saved["state"])
    if threading.current_thread() is threading.main_thread():  # Ray Train has a thread for this function
        signal.signal(signal.SIGTERM, lambda *_: loader.stop())
    step = saved["step"]
    seen = open(f"{folder}/seen.{rank}.{os.getpid()}", "w")

    def save():
        seen.flush()
        if world > 1:
            dist.barrier()  # what the checkpoint says is on the disks of all ranks
        if rank == 0:
            weights = getattr(model, "module", model).state_dict()
            torch.save({"step": step, "state": loader.state(), "model": weights}, path + ".part")
            os.replace(path + ".part", path)

    for batch in loader:
        image = torch.from_dlpack(batch["image"])  # without a copy; so are these
        label, weight = torch.from_dlpack(batch["label"]), torch.from_dlpack(batch.weights)
        each = torch.nn.functional.cross_entropy(model(image / 255), label, reduction="none")
        loss = (each * weight).sum() / weight.sum().clamp(min=1)  # padding weighs 0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        for key, counts in zip(batch.keys, weight.tolist()):
            if counts != 0:
                seen.write(f"{step} {batch.epoch} {key}\n")
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % 5 == 0:
            save()
    save()
    print(f"rank {rank} {'stops' if loader.stopped else 'ends'} after step {step}", flush=True)


def train_by_ray(folder, epochs, workers):
    """Ray starts all workers again, three times at most, when one has failed or is gone."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    TorchTrainer(lambda: train(folder, epochs), scaling_config=ScalingConfig(num_workers=workers),
                 run_config=RunConfig(storage_path=folder + "/ray",
                                      failure_config=FailureConfig(max_failures=3))).fit()


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[2:]]
    if len(numbers) == 2:
        train_by_ray(os.path.abspath(sys.argv[1]), *numbers)
    else:
        train(sys.argv[1], *(numbers or [2]))
