"""Random changes of bytes, text and plain values."""

import copy
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

NASTY: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), 2**64, 10**18, 10**30, 10**300,
    0.0, -0.0, 0.5, -0.5, 1.5, 1e-9, 1e-308, 5e-324, 1e38, 1e39, 1e300, 1e308, -1e308, math.inf, -math.inf, math.nan,
    True, False, "", " ", "x", "0", "1", "-1", "nan", "x" * 256, "x" * 5000, "é" * 200, "\0", "\n", "a/b", "..",
    "../..", "~nobody/x.npz", "~no-such-user/x.npz", "/dev/zero", "/dev/null.npz", "digits", "iid", "fupareto",
    "fedavg", "retrain", "federaser", "fupga", "fedau", "os:system", "json:loads", "no_such:thing", ":", "fupareto:",
    "mlp", "lenet5", "1/forget",
    [], [[]], [0], [-1], [1, 1], ["0"], ["0", "0"], ["x"], [0, "0"], [2**63], [None], [True], {}, {"a": 1}, {"0": [0]},
    {"0": [0, 0]}, {"": []}, {"0": {}}, None,
)  # fmt: skip


def flip(data: bytes, random: Random, most: int = 1) -> bytes:
    """Flip one to ``most`` bits."""
    found = bytearray(data)
    for _ in range(random.randint(1, most) if data else 0):
        found[random.randrange(len(found))] ^= 1 << random.randrange(8)
    return bytes(found)


def cut(data: bytes, random: Random) -> bytes:
    """Cut the end off."""
    return data[: random.randrange(len(data))] if data else data


def _remove(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + data[start + random.randint(1, 40) :]


def _insert(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + random.choice(INSERTS)(random) + data[start:]


def _twice(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    end = start + random.randint(1, 200)
    return data[:end] + data[start:end] + data[end:]


def _noise(data: bytes, random: Random) -> bytes:
    return random.randbytes(random.randint(0, 200))


REPEATED = (b"a.", b'{"a":', b"[", b"x={a=", b"[a.b]\n", b"[[a]]\n")
ODD = (b"\\ud800", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"\0", b"\r", b"NaN", b"1e999", b"-")
INSERTS: tuple[Callable[[Random], bytes], ...] = (
    lambda random: random.randbytes(random.randint(1, 8)),
    lambda random: random.choice(b"\"'[]{}=.,:\n\\#").to_bytes() * random.choice((1, 1, 2, 3, 1000, 20_000)),
    lambda random: random.choice(REPEATED) * random.choice((1, 70, 30_000)),
    lambda random: random.choice(ODD),
    lambda random: b"9" * random.choice((1, 19, 20, 5000)),
)
CHANGES = (flip, cut, _remove, _insert, _twice, _noise)


def bytes_changed(data: bytes, random: Random) -> bytes:
    """Return the content of a file with one to three random changes."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        data = random.choice(CHANGES)(data, random)
    return data


def values_changed(value: Any, random: Random) -> Any:
    """Return nested plain values with one to three of them replaced, removed, renamed or added."""
    changed = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(changed))
        if not places:
            return random.choice(NASTY)
        holder, key = random.choice(places)
        _change(holder, key, random)
    return changed


def _change(holder: Any, key: Any, random: Random) -> None:
    kind = random.random()
    if kind < 0.4:
        holder[key] = alike(holder[key], random)
    elif kind < 0.65:
        holder[key] = copy.deepcopy(random.choice(NASTY))
    elif kind < 0.75:
        del holder[key]
    elif kind < 0.85 and isinstance(holder, dict):
        holder[random.choice((f"{key}s", "x" * 300, "", str(key).upper()))] = holder.pop(key)
    elif kind < 0.95:
        _add(holder, random.choice((*holder, "new", "x" * 300)) if isinstance(holder, dict) else key, random)
    else:
        holder[key] = deep(random.choice((3, 60, 100)), random)


def alike(value: Any, random: Random) -> Any:
    """Return another value of the same type: one that a check of types does not find."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        near: tuple[Any, ...] = (value + 1, value - 1, -value, value * 2, value * 10, value * 1000, value // 2)
        return random.choice((*near, *(v for v in NASTY if type(v) is type(value))))
    if isinstance(value, str) and value:
        return random.choice((value[:-1], value + value, value.upper(), *(v for v in NASTY if isinstance(v, str))))
    if isinstance(value, list) and value:
        return random.choice((value[:-1], [*value, value[0]], value[::-1], []))
    return copy.deepcopy(random.choice([v for v in NASTY if type(v) is type(value)] or [value]))


def _add(holder: Any, key: Any, random: Random) -> None:
    value = copy.deepcopy(random.choice(NASTY))
    if isinstance(holder, dict):
        holder[f"{key}_"] = value
    else:
        holder.insert(key, value)


def deep(levels: int, random: Random) -> Any:
    """Return a value that is nested so deep."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in nested values, as its holder and its key there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def without(value: Any, unwritable: Callable[[Any], bool]) -> Any:
    """Return nested values without those that a format cannot have."""
    if isinstance(value, dict):
        return {k: without(v, unwritable) for k, v in value.items() if not unwritable(v)}
    if isinstance(value, list):
        return [without(v, unwritable) for v in value if not unwritable(v)]
    return value
