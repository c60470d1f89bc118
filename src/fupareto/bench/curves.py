"""Stored curves of further training, so that a bench trains a model that several cells share on once.

All methods of a setting and seed are audited with the same initial and retrained models. A curve is a small file in
``OUT/SETTING/seed-9/curves``, named by a hash of everything that it depends on: the model, the rounds, the training's
settings, the clients of both sides, the seed and the versions of the software.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fupareto.audit.further import Curve
from fupareto.bench.output import put_file


@dataclass(frozen=True)
class StoredCurves:
    """Curves in the files of a directory.

    Attributes:
        where: The directory.
    """

    where: Path

    def __call__(self, key: Mapping[str, Any], measure: Callable[[], Curve]) -> Curve:
        """Return the stored curve; otherwise measure it, and store it if all of its rounds were measured."""
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        path = self.where / f"{key['curve']}-{name}.json"
        found = _read(path, key)
        if found is None:
            found = measure()
            if None not in found["curve"] and not found.get("missing"):
                put_file(path, json.dumps({"key": key, "curve": found}, indent=2, allow_nan=False).encode() + b"\n")
        return found


def _read(path: Path, key: Mapping[str, Any]) -> Curve | None:
    """Return the curve of a file; None where it is missing, damaged or of another key."""
    try:
        stored = json.loads(path.read_bytes())
        found: Curve = stored["curve"]
        return found if stored["key"] == key and isinstance(found["curve"], list) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
