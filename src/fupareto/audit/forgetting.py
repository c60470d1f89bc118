"""Forgetting: attack success rate, and accuracy on the data to be forgotten."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fupareto.federation.collected import Evaluation

SPLITS = ("trigger?", "clean|train")  # of forget clients; one without a mark has no clean copy


def forgetting(evaluation: Evaluation, forget: Sequence[str]) -> dict[str, Any]:
    """Return ASR (mean and worst forget client) and the accuracy on the forget clients' own training samples.

    ASR is the accuracy on triggered inputs against the trigger's labels, and null without a trigger. Forget
    accuracy is on the training samples as their owner has them, without any trigger. Clients that did not answer
    are not in the means; they are never counted as forgotten (see ``missing`` in the summary). Each client's entry
    says on how many samples both were measured: ``asr_samples`` and ``samples``.
    """
    asr = {i: a for i in forget if (a := evaluation.accuracy(i, "trigger")) is not None}
    known = [a for i in forget if (a := _own(evaluation, i)) is not None]
    return {
        "asr": float(np.mean(list(asr.values()))) if asr else None,
        "asr_max": max(asr.values()) if asr else None,
        "forget_acc": float(np.mean(known)) if known else None,
        "clients": {
            i: {
                "side": "forget",
                "asr": asr.get(i),
                "accuracy": _own(evaluation, i),
                "samples": count(evaluation, i, "clean") or count(evaluation, i, "train"),
                "asr_samples": count(evaluation, i, "trigger"),
            }
            for i in forget
            if i in evaluation.counts
        },
    }


def _own(evaluation: Evaluation, client: str) -> float | None:
    clean = evaluation.accuracy(client, "clean")
    return evaluation.accuracy(client, "train") if clean is None else clean


def count(evaluation: Evaluation, client: str, split: str) -> int:
    """Return how many samples of a split a client was measured on; 0 where it has none."""
    return int(evaluation.counts.get(client, {}).get(split, {}).get("samples", 0))
