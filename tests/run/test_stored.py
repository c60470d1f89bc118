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


@pytest.mark.parametrize(
    ("shape", "raw", "key", "value"),
    [
        *((stored.Record, RECORD, "round", v) for v in (0, -1, 1.5, True, "1", 2**63, None)),
        *((stored.Record, RECORD, "stage", v) for v in ("other", 1, "../secret")),
        *((stored.Record, RECORD, "losses", v) for v in ([], {"1": "x"}, {"x" * 256: 1.0}, {"1": float("nan")})),
        *((stored.Record, RECORD, "missing", v) for v in ("x", {"1": 3})),
        *((stored.Record, RECORD, "seconds", v) for v in (-1, "x", None)),
        *((stored.Summary, SUMMARY, "final", v) for v in ("../secret/w", None, "retrained")),
        *((stored.Summary, SUMMARY, "forget", v) for v in ("1", [1], None)),
        *((stored.Summary, SUMMARY, "stages", v) for v in ([], {"initial": 3}, {"initial": {"asr": "x"}})),
        *((stored.Summary, SUMMARY, "cost", v) for v in (3, {"seconds": "x"}, {"rounds": -1})),
        *((stored.Summary, SUMMARY, "status", v) for v in ("fine", 1)),
        *((stored.Asked, ASKED, "clients", v) for v in ("1", [1], None, [None])),
        *((stored.Asked, ASKED, "samples", v) for v in ([], {"1": 3}, {"1": ["0"]}, {"1": [0.0]})),
        *((stored.Audit, AUDIT, "membership", v) for v in ([], {"initial": 1}, {"initial": {"clients": []}})),
        *((stored.Audit, AUDIT, "verdict", v) for v in (None, {"checks": [1]}, {"checks": [{"claim": 1}]})),
        *((stored.Config, {}, "experiment", v) for v in ([], 1)),
        *((stored.Config, {}, "versions", v) for v in ({"torch": 1}, "x")),
    ],
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
