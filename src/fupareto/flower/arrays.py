"""Tensors as Flower arrays, read without trusting what an array says of itself.

A Flower array is a file in NumPy's npy format with a header of its own. Everything is compared with the bytes that
arrived before memory is allocated, so an array can never need more than it brought along.
"""

import hashlib
import io
import math
from typing import Any

import numpy as np
import torch
from flwr.app import Array
from torch import Tensor

TYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")  # that tensors of answers have, or had before a check
MOST_DIMENSIONS = 8


def array_of(tensor: Tensor) -> Array:
    """Return a tensor as a Flower array."""
    return Array(tensor.detach().cpu().contiguous().numpy())


def tensor_of(array: Array) -> Tensor:
    """Return a Flower array as a writable tensor; ValueError if it is anything else than one array of numbers."""
    if array.stype != "numpy.ndarray":
        raise ValueError("an array that was not written by NumPy")
    stream = io.BytesIO(array.data)
    shape, order, dtype = _header(stream)
    if dtype.name not in TYPES or not dtype.isnative:
        raise ValueError("an array that is not of plain numbers")
    if len(shape) > MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("an array of an impossible shape")
    count, rest = math.prod(shape), len(array.data) - stream.tell()
    if count * dtype.itemsize != rest:
        raise ValueError(f"an array of {rest} bytes whose header speaks of others")
    values: Any = np.frombuffer(array.data, dtype, count, stream.tell())
    return torch.from_numpy(values.reshape(shape, order="F" if order else "C").copy(order="C"))


def fingerprint(w: Tensor) -> str:
    """Return a hash of a model, by which server and client check that they have the same one."""
    return hashlib.blake2b(w.cpu().contiguous().numpy().data, digest_size=16).hexdigest()


def _header(stream: io.BytesIO) -> tuple[Any, bool, np.dtype[Any]]:
    """Return shape, order and type from the header of an npy file; nothing of the data is read."""
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        return read(stream)
    except Exception as error:  # a header is a Python literal, which can fail in many ways
        raise ValueError("an array whose header cannot be read") from error
