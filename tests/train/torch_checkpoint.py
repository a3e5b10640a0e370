#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""torch_checkpoint.py OURS THEIRS: PyTorch's distributed checkpoints (DCP) read the folder OURS, of a checkpoint that
checkpoint_test.cpp has written, and write the same tensors plus 1 to the folder THEIRS. Leaves with 77 where torch has
no HuggingFaceStorageReader (before 2.8), or safetensors is not there."""

import sys

try:
    import safetensors  # noqa: F401
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
except ImportError:
    sys.exit(77)

wanted = {"w": torch.arange(100.0, 160.0).reshape(12, 5), "b": torch.arange(100.0, 103.0), "s": torch.tensor(5.0),
          "n": torch.arange(3), "h": torch.tensor([1.0, 2.0]).bfloat16()}
state = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
dcp.load(state, storage_reader=HuggingFaceStorageReader(sys.argv[1]))
for name, tensor in wanted.items():
    assert state[name].dtype == tensor.dtype and torch.equal(state[name], tensor), (name, state[name])
dcp.save({name: tensor + 1 for name, tensor in wanted.items()},
         storage_writer=HuggingFaceStorageWriter(sys.argv[2], {"w": 1, "b": 2, "s": 2, "n": 2, "h": 1}))
