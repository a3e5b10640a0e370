#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""NumPy or PyTorch takes the tensors of a batch, and gives some of its own, without a copy.

    consumers.py LIBRARY numpy|torch

LIBRARY is that of batch_library.hpp. Leaves with 77 where the consumer is not installed.
"""

import ctypes
import gc
import importlib
import sys
import weakref

library = ctypes.CDLL(sys.argv[1])
try:
    consumer = importlib.import_module(sys.argv[2])
    consumer.from_dlpack
except (ImportError, AttributeError):
    sys.exit(77)

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
library.take_field.restype = ctypes.c_void_p
library.address_of.restype = ctypes.c_size_t
library.live_batches.restype = ctypes.c_uint64
library.keep_foreign.restype = ctypes.c_size_t
library.keep_foreign.argtypes = [ctypes.c_void_p]
library.last_refusal.restype = ctypes.c_char_p
library.sum_of_foreign.restype = ctypes.c_double
USED = b"used_dltensor"  # a capsule keeps the pointer


class Field:
    """What a producer of DLPack is for Python. Its capsule is taken: nothing is left to drop."""

    def __init__(self, name):
        self.name = name

    def __dlpack__(self, **_):
        tensor = library.take_field(self.name)
        check(tensor is not None, f"{self.name} was not passed")
        return api.PyCapsule_New(tensor, b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)  # kDLCPU


def check(so, what):
    if not so:
        sys.exit(f"{sys.argv[2]}: {what}")


def address(array):
    return array.data_ptr() if sys.argv[2] == "torch" else array.__array_interface__["data"][0]


def takes_fields():
    expected = {b"image": ("uint8", [2, 3, 4]), b"label": ("int64", [2]), b"wave": ("float32", [2, 5]),
                b"half": ("float16", [2, 2])}
    if sys.argv[2] == "torch":
        expected[b"brain"] = ("bfloat16", [2, 2])  # NumPy has no such type
    library.make_batch()
    arrays = {}
    for name, (dtype, shape) in expected.items():
        array = consumer.from_dlpack(Field(name))
        check(address(array) == library.address_of(name), f"{name} was copied")
        check(str(array.dtype).replace("torch.", "") == dtype, f"{name} became {array.dtype}")
        check(list(array.shape) == shape, f"{name} became {array.shape}")
        numbers = [float(x) for x in array.reshape(-1)]
        check(numbers == [float(i) for i in range(len(numbers))], f"{name} became {numbers}")
        arrays[name] = array
    del array
    library.drop_batch()
    for name in list(arrays):
        check(library.live_batches() == 1, f"the batch has gone before {name}")
        del arrays[name]
        gc.collect()
    check(library.live_batches() == 0, "the batch is kept")


def gives_tensors():
    array = consumer.arange(6, dtype=consumer.float32).reshape(2, 3)
    taken = address(array)
    gone = weakref.ref(array)
    capsule = array.__dlpack__()
    tensor = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName(capsule, USED)
    check(library.keep_foreign(tensor) == taken, "it was copied: " + library.last_refusal().decode())
    # NumPy's tensor keeps the array, PyTorch's its memory.
    array[1, 2] = 100
    del array, capsule
    gc.collect()
    check(library.sum_of_foreign() == 0 + 1 + 2 + 3 + 4 + 100, "the numbers are others")
    check(sys.argv[2] == "torch" or gone() is not None, "the array was let go of too early")
    library.drop_foreign()
    check(gone() is None, "the array is kept")


def refuses_other_orders():
    array = consumer.arange(6, dtype=consumer.float32).reshape(2, 3).T
    gone = weakref.ref(array)
    capsule = array.__dlpack__()
    tensor = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName(capsule, USED)
    check(library.keep_foreign(tensor) == 0, "columns first were taken for rows")
    reason = library.last_refusal().decode()
    check("of 3x2 has a stride of 3 in dimension 1, not 1" in reason, reason)
    del array, capsule
    gc.collect()
    check(gone() is None, "what was refused is kept")


takes_fields()
gives_tensors()
refuses_other_orders()
print(f"{sys.argv[2]} {consumer.__version__}: ok")
