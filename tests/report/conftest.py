"""Synthetic runs: what a run directory holds, without running anything."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from fupareto.report import comparison, figures, render, render_comparison
from fupareto.report.markup import Safe

Summary = dict[str, Any]
Rounds = list[dict[str, Any]]


def make_stage(clients: list[str], forget: list[str], asr: float | None, accuracy: float, moved: float) -> Any:
    measured: dict[str, Any] = {}
    for place, name in enumerate(clients):
        wave = 0.04 * math.sin(1.7 * place)
        side = "forget" if name in forget else "retained"
        client_asr = None if asr is None or side == "retained" else max(0.0, asr + wave)
        measured[name] = {"side": side, "asr": client_asr, "accuracy": accuracy + wave}
    retained = [values["accuracy"] for values in measured.values() if values["side"] == "retained"]
    return {
        "asr": asr,
        "asr_max": None if asr is None else asr + 0.04,
        "r_acc": sum(retained) / len(retained),
        "r_acc_std": 0.0283,
        "r_acc_min": min(retained),
        "forget_acc": accuracy - 0.11,
        "mia_auc": None,
        "distance": moved,
        "clients": measured,
    }


def make_rounds(unlearning: int = 40, recovery: int = 20, every: int = 2) -> Rounds:
    rounds: Rounds = []
    for number in range(1, unlearning + recovery + 1):
        forgetting = number <= unlearning
        phase = "recover" if not forgetting else "expand" if number % 9 == 0 else "improve"
        failed = forgetting and number % 9 == 8
        record: dict[str, Any] = {
            "round": number,
            "stage": "unlearned" if forgetting else "recovered",
            "phase": phase,
            "lr": 0.05,
            "step": None if failed else 0.1 / (1 + number % 4),
            "tried": [0.1 / 2**k for k in range(1 + number % 4)],
            "losses": {"0": 0.3, "3": 1.2},
            "missing": {"7": "timed out after 30 s"} if number in (4, 5, 6, 11) else {},
            "distance": 2.4 * (1 - math.exp(-number / 12)),
            "seconds": 0.2,
            "bytes_up": 10_000,
            "bytes_down": 12_000,
        }
        if number % every == 0:
            record["asr"] = 0.02 + 0.8 * math.exp(-number / 9)
            record["r_acc"] = 0.9 - 0.06 * math.exp(-(((number - 18) / 12) ** 2))
            record["r_acc_min"] = record["r_acc"] - 0.05
        if failed:
            record["note"] = "no step suited every client"
        rounds.append(record)
    return rounds


def make_summary(clients: list[str] | None = None, forget: list[str] | None = None) -> Summary:
    clients = clients or [str(number) for number in range(10)]
    forget = forget or ["3", "7"]
    return {
        "format": 1,
        "name": "demo",
        "method": "fupareto",
        "dataset": "digits",
        "model": "mlp",
        "seed": 0,
        "clients": clients,
        "forget": forget,
        "stages": {
            "initial": make_stage(clients, forget, 0.8214, 0.9012, 0.0),
            "unlearned": make_stage(clients, forget, 0.0312, 0.8533, 2.317),
            "recovered": make_stage(clients, forget, 0.0291, 0.8977, 2.391),
        },
        "cost": {"rounds": 60, "seconds": 12.34, "bytes_up": 48_123_456, "bytes_down": 51_234_567},
        "phases": {"improve": 31, "expand": 4, "failed": 5},
        "status": "complete",
        "final": "recovered",
        "verdict": "Clients 3 and 7 are forgotten: their backdoors work 2.9% of the time instead of 82.1%, "
        "and those who stay keep their accuracy.",
        "missing": {},
        "versions": {"fupareto": "0.1.0", "torch": "2.13.0"},
        "created": "2026-05-04T10:11:12+00:00",
    }


CONFIG: dict[str, Any] = {
    "name": "demo",
    "seed": 0,
    "data": {"source": "digits", "clients": 10, "partition": {"kind": "dirichlet", "alpha": 0.5}},
    "method": {"name": "fupareto", "steps": [1, 2, 3], "recovery": {"rounds": 20}},
}


@pytest.fixture
def summary() -> Summary:
    return make_summary()


@pytest.fixture
def rounds() -> Rounds:
    return make_rounds()


@pytest.fixture
def config() -> dict[str, Any]:
    return CONFIG


@pytest.fixture
def make() -> Callable[..., Summary]:
    return make_summary


@pytest.fixture(scope="session")
def pages() -> tuple[str, str]:
    """The report of the synthetic run, and its comparison with itself."""
    run = make_summary(), make_rounds()
    return render(*run, CONFIG), render_comparison([("a", *run), ("b", *run)])


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time; a test that reads the words around them does without."""
    for module in (figures, comparison):
        monkeypatch.setattr(module, "both_widths", lambda *_: Safe("<svg></svg>"))
