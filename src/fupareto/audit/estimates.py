"""The measures of an audit as estimates, and the way gone on each of them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fupareto.audit.intervals import z_value
from fupareto.audit.training import measure_of
from fupareto.audit.way import Estimate, Way, proportion, way
from fupareto.vocabulary import RETRAINED, SECOND

Stages = Mapping[str, Mapping[str, Any]]


def ways(measured: Stages, found: Mapping[str, Any], final: str) -> dict[str, Any]:
    """Return the entry ``way`` of audit.json: every measure of the models, and the way gone on it.

    Args:
        measured: The measured models by stage, with the retrained ones.
        found: The audit so far: dormancy, relearning, membership and truth.
        final: The stage of the model that is kept.

    Returns:
        By measure (asr or forget_acc, later, relearning, loss, divergence) the models' values with their standard
        errors, the way that the kept model and a second retrained one have gone, and the ``spread``, which is the
        distance of the two retrained models.
    """
    stages = [s for s in dict.fromkeys(("initial", final, RETRAINED, SECOND)) if s in measured]
    result = {}
    for name, values in _values(measured, found, stages).items():
        first, last = values.get("initial"), values.get(RETRAINED)
        gone = {
            s: way(first, values[s], last) if first and last and s in values else Way(reason="not measured")
            for s in stages
            if s not in ("initial", RETRAINED) or s == final
        }
        result[name] = {
            "values": {s: e.to_json() for s, e in values.items()},
            "models": {s: w.to_json() for s, w in gone.items()},
            "spread": abs(values[SECOND].value - last.value) if last and SECOND in values else None,
        }
    return result


def _values(measured: Stages, found: Mapping[str, Any], stages: Sequence[str]) -> dict[str, dict[str, Estimate]]:
    key = measure_of(measured["initial"])
    samples = {s: effective(measured[s], key) for s in stages}
    values: dict[str, dict[str, Estimate | None]] = {
        key: {s: _share(measured[s][key], samples[s]) for s in stages},
        "later": {s: _share(_of(found["dormancy"], s, "worst"), samples[s]) for s in stages},
        "relearning": {s: _share(_of(found["relearning"], s, "mean"), samples[s]) for s in stages},
        "loss": {s: auc(found["membership"].get(s, {}).get("mean", {}).get("loss")) for s in stages},
        "divergence": {s: divergence(found["truth"], s) for s in stages},
    }
    known = {name: {s: e for s, e in row.items() if e is not None} for name, row in values.items()}
    return {name: row for name, row in known.items() if row}


def effective(stage: Mapping[str, Any], key: str) -> float:
    """Return the samples that have the variance of the mean over measured forget clients (Kish, 1965).

    See ``intervals``; 0 where a client does not say how many samples it has.
    """
    value, samples = ("asr", "asr_samples") if key == "asr" else ("accuracy", "samples")
    measured = (c for c in stage["clients"].values() if c["side"] == "forget" and c[value] is not None)
    counts = [c.get(samples) or 0 for c in measured]
    return len(counts) ** 2 / sum(1 / n for n in counts) if counts and all(counts) else 0.0


def auc(found: Mapping[str, Any] | None) -> Estimate | None:
    """Return an AUC with the standard error that its interval has."""
    if not found or found.get("auc") is None:
        return None
    return Estimate(found["auc"], (found["high"] - found["low"]) / (2 * z_value()))


def divergence(truth: Mapping[str, Any] | None, stage: str) -> Estimate | None:
    """Return a model's divergence from the retrained one, whose own is 0."""
    if truth is None:
        return None
    if stage == RETRAINED:
        return Estimate(0.0)
    found = truth["stages"].get(stage) or {}
    value, error = found.get("divergence"), found.get("divergence_error")
    return None if value is None else Estimate(value, error if error is not None and math.isfinite(error) else value)


def _share(value: float | None, samples: float) -> Estimate | None:
    return None if value is None else proportion(value, samples)


def _of(found: Mapping[str, Any] | None, stage: str, key: str) -> float | None:
    value = ((found or {}).get("models", {}).get(stage) or {}).get(key)
    return None if value is None else float(value)
