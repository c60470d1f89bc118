"""Documents of a run directory with wrong fields are refused, and the message names the field."""

import copy
from typing import Any

import pytest

from fupareto.run import stored

SUMMARY: dict[str, Any] = {
    "method": "fupareto", "dataset": "digits", "forget": ["1"], "cost": {"rounds": 1, "seconds": 0.5}, "verdict": "",
    "stages": {"initial": {"asr": None, "r_acc": 1, "clients": {"1": {"side": "forget", "samples": 3}}}},
    "phases": {"improve": 1}, "status": "complete", "final": "initial",
}  # fmt: skip
RECORD: dict[str, Any] = {"round": 1, "stage": "unlearned", "phase": "improve", "losses": {"1": 0.5}, "extra": [1]}
ASKED: dict[str, Any] = {"clients": ["1"], "received": "2026-01-01"}
AUDIT: dict[str, Any] = {"membership": {"initial": {"clients": {}}}, "exclusivity": None, "verdict": {"checks": []}}


WRONG: tuple[tuple[Any, dict[str, Any], str, tuple[Any, ...]], ...] = (
    (stored.Record, RECORD, "round", (0, -1, 1.5, True, "1", 2**63, None)),
    (stored.Record, RECORD, "stage", ("other", 1, "../secret")),
    (stored.Record, RECORD, "losses", ([], {"1": "x"}, {"x" * 256: 1.0}, {"1": float("nan")})),
    (stored.Record, RECORD, "missing", ("x", {"1": 3})),
    (stored.Record, RECORD, "seconds", (-1, "x", None)),
    (stored.Summary, SUMMARY, "final", ("../secret/w", None, "retrained")),
    (stored.Summary, SUMMARY, "forget", ("1", [1], None)),
    (stored.Summary, SUMMARY, "stages", ([], {"initial": 3}, {"initial": {"asr": "x"}})),
    (stored.Summary, SUMMARY, "cost", (3, {"seconds": "x"}, {"rounds": -1})),
    (stored.Summary, SUMMARY, "status", ("fine", 1)),
    (stored.Asked, ASKED, "clients", ("1", [1], None, [None])),
    (stored.Asked, ASKED, "samples", ([], {"1": 3}, {"1": ["0"]}, {"1": [0.0]})),
    (stored.Audit, AUDIT, "membership", ([], {"initial": 1}, {"initial": {"clients": []}})),
    (stored.Audit, AUDIT, "verdict", (None, {"checks": [1]}, {"checks": [{"claim": 1}]})),
    (stored.Config, {}, "experiment", ([], 1)),
    (stored.Config, {}, "versions", ({"torch": 1}, "x")),
)


@pytest.mark.parametrize(
    ("shape", "raw", "key", "value"), [(*about, value) for *about, values in WRONG for value in values]
)
def test_wrong_fields(shape: Any, raw: dict[str, Any], key: str, value: Any) -> None:
    whole = copy.deepcopy(raw)
    assert stored.check(whole, shape) is whole
    assert whole == raw
    with pytest.raises(ValueError, match=key if value != {"checks": [{"claim": 1}]} else "missing result"):
        stored.check({**whole, key: value}, shape)


@pytest.mark.parametrize(("shape", "raw"), [(stored.Record, RECORD), (stored.Summary, SUMMARY), (stored.Audit, AUDIT)])
def test_missing_fields(shape: Any, raw: dict[str, Any]) -> None:
    needed = [name for name, field in shape.model_fields.items() if field.is_required()]
    for key in needed:
        with pytest.raises(ValueError, match=f"missing {key}"):
            stored.check({k: v for k, v in raw.items() if k != key}, shape)
