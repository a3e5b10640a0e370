#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""make_arrays.py FOLDER: what NumPy writes, for arrays_test.cpp. Leaves with 77 where NumPy is not installed."""

import pathlib
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
numbers = np.arange(24)
for kind in ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"):
    name = {"?": "b1"}.get(kind, kind)
    np.save(folder / f"{name}.npy", (numbers % 2 if kind == "?" else numbers).astype(kind).reshape(2, 3, 4))
for version in (1, 2, 3):
    with open(folder / f"version{version}.npy", "wb") as out:
        np.lib.format.write_array(out, numbers.astype("<f4").reshape(4, 6), version=(version, 0))
np.save(folder / "scalar.npy", np.float64(2.5))
np.save(folder / "empty.npy", np.zeros((0, 7), "<i4"))
np.save(folder / "row.npy", np.asfortranarray(numbers.astype("<i4").reshape(1, 24)))
np.save(folder / "fortran.npy", np.asfortranarray(numbers.reshape(4, 6)))
np.save(folder / "big.npy", numbers.astype(">i4"))
np.save(folder / "complex.npy", numbers.astype("c8"))
np.save(folder / "text.npy", np.array(["a", "bc"]))
np.save(folder / "struct.npy", np.zeros(3, [("a", "<i4"), ("b", "<f4")]))
np.save(folder / "object.npy", np.array([{}, None], object), allow_pickle=True)
np.savez(folder / "plain.npz", x=numbers.astype("<f4"), y=np.int64(7))
np.savez_compressed(folder / "packed.npz", x=numbers.astype("<f4"), y=np.int64(7), z=np.zeros(100000, "<f8"))
