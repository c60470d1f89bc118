"""Identity of model files: the digest of the file, of its weights whatever their order, and of every tensor.

Files are read without torch. A model is checked by loading it: a file that has the right digest may still be useless.
"""

import hashlib
import json
import math
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fupareto import documents
from fupareto.errors import UserError
from fupareto.evidence.reading import LARGEST, sha256

Tensors = dict[str, NDArray[Any]]


def identity(where: Path, stage: str) -> dict[str, Any]:
    """Return what identifies the model of a stage in a run: its file, its weights, its layout, its tensors."""
    return {"stage": stage, "file": f"{stage}.safetensors", **digests(where / f"{stage}.safetensors")}


def digests(path: Path) -> dict[str, Any]:
    """Return the digests of a model file.

    ``weights`` depends on names, types, shapes and numbers, and on nothing else: the same weights are recognised in
    another file, with other metadata or in another order. ``layout`` depends on names, types and shapes. ``tensors`` is
    by name, the digest of type, shape and numbers.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            length = int.from_bytes(data[:8], "little")
            if length > min(LARGEST, len(data)):
                raise ValueError("its header is too long")
            header = documents.parse_object(bytes(data[8 : 8 + length]))
            tensors, layout, end = {}, {}, 8 + length
            for name, about in header.items():
                if name == "__metadata__":
                    continue
                layout[name] = [about["dtype"], about["shape"]]
                first, last = (8 + length + int(offset) for offset in about["data_offsets"])
                hashed = hashlib.sha256(json.dumps(layout[name]).encode())
                hashed.update(memoryview(data)[first:last])
                tensors[name] = hashed.hexdigest()
                end = max(end, last)
            if len(data) != end:
                raise ValueError(f"it has {len(data)} bytes, but its header says {end}")
            whole = hashlib.sha256(data).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"the model {path} is damaged: {error}") from error
    tensors = dict(sorted(tensors.items()))
    return {"sha256": whole, "weights": sha256(tensors), "layout": sha256(layout), "tensors": tensors}


def same_weights(found: Mapping[str, str], held: Mapping[str, str]) -> bool:
    """Return whether a model has all tensors of another; it may have more, such as frozen or shared ones."""
    return bool(held) and all(found.get(name) == digest for name, digest in held.items())


def load(path: Path) -> Tensors:
    """Return the tensors of a model file; refuse one that cannot be loaded, or has numbers that are not finite."""
    import safetensors
    from safetensors.numpy import load_file

    try:
        tensors: Tensors = load_file(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the model {path} cannot be loaded: {error}") from error
    if wrong := [name for name, t in tensors.items() if not np.isfinite(t.astype(np.float64)).all()]:
        raise UserError(f"the model {path} cannot be used: {wrong[0]!r} has numbers that are not finite")
    return tensors


def distance(one: Tensors, other: Tensors) -> float:
    """Return the Euclidean distance of two models of the same layout."""
    return math.sqrt(sum(_squares(one[name], other[name]) for name in one))


def norm(model: Tensors) -> float:
    """Return the Euclidean norm of a model."""
    return math.sqrt(sum(_squares(t, np.zeros_like(t)) for t in model.values()))


def alike(models: Iterable[Tensors]) -> bool:
    """Return whether models have the same names and shapes."""
    shapes = [{name: t.shape for name, t in model.items()} for model in models]
    return all(shape == shapes[0] for shape in shapes)


def _squares(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.square(one.astype(np.float64) - other.astype(np.float64)).sum())


def weights_of(tensors: Mapping[str, NDArray[np.float32]]) -> str:
    """Return the digest ``weights`` of a float32 model in memory, the same as that of its file."""
    found = {}
    for name, tensor in tensors.items():
        hashed = hashlib.sha256(json.dumps(["F32", list(tensor.shape)]).encode())
        hashed.update(np.ascontiguousarray(tensor, dtype="<f4").tobytes())
        found[name] = hashed.hexdigest()
    return sha256(found)
