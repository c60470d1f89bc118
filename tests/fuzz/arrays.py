"""Arrays that are wrong in some way, and the comparison of arrays that were accepted."""

import gzip
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.world import World, samples

Array = np.ndarray[Any, Any]
TYPES = ("f2", "f4", "f8", "u1", "i1", "i4", "i8", "u8", "?", "c8", "U3", "S3", "M8[s]", "m8[s]", ">f4", ">i8", "V5")
SHAPES = (
    (0,), (80,), (80, 0), (80, 3), (0, 6, 6), (80, 6, 6), (80, 6, 6, 3), (80, 6, 6, 2), (79, 1, 6, 6), (80, 1, 1, 1),
    (1, 1, 6, 6), (80, 1, 1, 6, 6), (),
)  # fmt: skip
NUMBERS = (-1, -(2**63), 2**31, 2**62, 10**6, 65_535, 65_536, 3, 99, np.nan, np.inf, -np.inf, 0.5, 1e300, -1e300)


def write(path: Path, world: World, random: Random) -> tuple[str, Callable[[], str]]:
    """Write an .npz file with other arrays; return what is other, and a check for when it was accepted."""
    found: dict[str, Array] = samples()
    if random.random() < 0.1:
        shutil.copy(world.bomb, path)
        return "a bomb", lambda: "a bomb was accepted"
    kind = random.choice((_typed, _shaped, _numbered, _named, _archive))
    note, refused = kind(path, found, random)
    if kind in (_typed, _shaped, _numbered, _named):
        np.savez(path, **found)  # type: ignore[arg-type]
    return note, lambda: f"{note} was accepted" if refused else ""


def _typed(path: Path, found: dict[str, Array], random: Random) -> tuple[str, bool]:
    name, kind = random.choice("xy"), random.choice(TYPES)
    found[name] = np.zeros(found[name].shape, kind)
    allowed = "fu" if name == "x" else "fiub"
    return f"{name} of type {kind}", found[name].dtype.kind not in allowed or (name == "x" and kind == "u8")


def _shaped(path: Path, found: dict[str, Array], random: Random) -> tuple[str, bool]:
    name, shape = random.choice("xy"), random.choice(SHAPES)
    found[name] = np.zeros(shape, found[name].dtype)
    right = {"x": ((80, 3), (80, 6, 6), (80, 6, 6, 3), (80, 1, 1, 1)), "y": ((80,),)}
    return f"{name} of shape {shape}", shape not in right[name]


def _numbered(path: Path, found: dict[str, Array], random: Random) -> tuple[str, bool]:
    name, number = random.choice("xy"), random.choice(NUMBERS)
    found[name] = found[name].astype(np.float64)
    found[name].flat[random.randrange(found[name].size)] = number
    wrong = number not in (3, 99, 65_535) if name == "y" else not abs(number) <= np.finfo(np.float32).max
    return f"{name} with {number}", wrong


def _named(path: Path, found: dict[str, Array], random: Random) -> tuple[str, bool]:
    old, new = random.choice("xy"), random.choice(("z", "x_train", "../y", "x" * 300))
    found[new] = found.pop(old)
    return f"{old} named {new}", True


def _archive(path: Path, found: dict[str, Array], random: Random) -> tuple[str, bool]:
    """An archive whose entries are no arrays, or claim to be far larger than they are."""
    header: dict[str, Any] = {
        "descr": "<f4",
        "fortran_order": False,
        "shape": random.choice(((2**40,), (-1,), (2**70, 2))),
    }
    header = random.choice((header, {**header, "descr": "|O"}, {"shape": (3,)}, {**header, "descr": "x" * 9000}))
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "y.npy"):
            text = repr(header).encode()
            archive.writestr(
                name, random.choice((b"", b"no array", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text))
            )
    return f"an archive of {header!r:.60}", True


def differing(path: Path, good: Path) -> str:
    """Say whether an .npz file that was accepted has other arrays than the one that it was made of."""
    with np.load(path) as changed, np.load(good) as first:
        same = all(np.array_equal(changed[name], first[name]) for name in "xy")
    return "" if same else "the arrays of samples.npz were changed, and nobody noticed"


def idx_differing(path: Path, sets: Path) -> str:
    """Say whether an IDX file that was accepted has other bytes than the one that it was made of."""
    good = sets / "fashion-mnist" / path.name
    same = gzip.decompress(path.read_bytes()) == gzip.decompress(good.read_bytes())
    return "" if same else f"{path.name} was changed, and nobody noticed"
