"""Names that several packages share: the stages of a run. This module does not import torch."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

STAGES = ("initial", "unlearned", "recovered")  # the models that every run reports, in this order
RETRAINED = "retrained"  # a model trained without the forgotten data, in an audit and as a directory of a run
SECOND = "retrained-2"  # another one, from another seed
COST = ("rounds", "seconds", "bytes_up", "bytes_down", "passes")  # what the rounds of a run took, added up
LARGEST_SETTING = 10**9  # absolute value of any number in an experiment file, or among the options of a method
MOST_KEPT = 10**5  # rounds that a history can have
DATA_FILES = (".npz", ".csv")  # endings of the data files that a user brings


def retrains(method: Any) -> bool:
    """Return whether a method, as config.toml has it, trains a model again without the forgotten data.

    That is retrain, or ridge with the sums of the retained clients asked for anew.
    """
    if not isinstance(method, dict):
        return False
    return method.get("name") == "retrain" or (method.get("name") == "ridge" and method.get("anew") is True)


def shadows_of(request: Mapping[str, Any]) -> str:
    """Return the name of the directory in which a training keeps the shadow models of a request."""
    plain = {key: value for key, value in request.items() if key != "received"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]
