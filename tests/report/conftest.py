"""Synthetic runs: what a run directory holds, without running anything."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from fupareto.report import render, render_comparison, style, svg
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
        "cost": {"rounds": 60, "seconds": 12.34, "bytes_up": 48_123_456, "bytes_down": 51_234_567, "passes": 1_234.5},
        "phases": {"improve": 31, "expand": 4, "failed": 5},
        "status": "complete",
        "final": "recovered",
        "verdict": "Clients 3 and 7 are forgotten: their backdoors work 2.9% of the time instead of 82.1%, "
        "and those who stay keep their accuracy.",
        "missing": {},
        "versions": {"fupareto": "0.1.0", "torch": "2.13.0"},
        "created": "2026-05-04T10:11:12+00:00",
    }


# What an audit leaves, for any clients, with nulls wherever they are allowed ---------------------------------------

ATTACKS = {1: ("confidence", "loss", "margin", "entropy", "delta"), 2: ("rmia",), 3: ("lira", "u-lira")}
LEVELS = {"initial": 0.83, "unlearned": 0.41, "recovered": 0.53, "retrained": 0.51, "retrained-2": 0.52}


def _wave(place: int) -> float:
    return math.sin(1.7 * place + 0.4)


def _result(auc: float, spread: float, members: int) -> dict[str, Any]:
    return {
        "auc": auc,
        "low": max(0.0, auc - spread),
        "high": min(1.0, auc + spread),
        "balanced_accuracy": 0.5 + 0.8 * abs(auc - 0.5),
        "tpr_1": 0.012 + 0.2 * max(0.0, auc - 0.5) if members >= 100 else None,
        "tpr_01": None if members < 1000 else 0.002,
    }


def _membership(stage: str, forget: list[str], tier: int) -> dict[str, Any]:
    names = [name for level, found in ATTACKS.items() if level <= tier for name in found]
    names = [name for name in names if name != ("lira" if stage != "initial" else "u-lira")]
    clients: dict[str, Any] = {}
    for place, client in enumerate(forget):
        members = 240 if place % 3 else 40
        attacks = {
            name: _result(LEVELS[stage] + 0.03 * _wave(place + 3 * k), 0.045 + 0.03 * (place % 3 == 0), members)
            for k, name in enumerate(names)
        }
        clients[client] = {"members": members, "nonmembers": 40, "attacks": attacks}
    mean = {}
    for name in names:
        auc = sum(values["attacks"][name]["auc"] for values in clients.values()) / len(clients)
        mean[name] = {"auc": auc, "low": auc - 0.03, "high": auc + 0.03}
    return {"clients": clients, "mean": mean}


def _truth(summary: dict[str, Any], marked: bool) -> dict[str, Any]:
    first = summary["stages"]["initial"]
    retrained = {**first, "asr": 0.012 if marked else None, "forget_acc": 0.7931, "r_acc": first["r_acc"] - 0.0031}
    gaps = {}
    second = {"retrained-2": {**retrained, "r_acc": retrained["r_acc"] + 0.002}}
    for place, (stage, own) in enumerate({**summary["stages"], **second}.items()):
        gaps[stage] = {
            key: None if own[key] is None or retrained[key] is None else own[key] - retrained[key]
            for key in ("asr", "forget_acc", "r_acc")
        } | {
            "divergence": 0.31 / (1 + 4 * place),
            "divergence_error": 0.01,
            "disagreement": 0.22 / (1 + 3 * place),
            "distance": 3.1 - place,
        }
    cost = {"rounds": 200, "seconds": 97.3, "bytes_up": 160_123_456, "bytes_down": 171_234_567, "passes": 4_000.0}
    return {**cost, "retrained": retrained, **second, "stages": gaps}


SPEEDS = {"initial": 0.9, "recovered": 0.19, "retrained": 0.05, "retrained-2": 0.06}


def _dormancy(marked: bool, forget: list[str]) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for stage, speed in SPEEDS.items():
        curve = [0.2 - 0.19 * math.exp(-0.3 * speed * place) for place in range(41)]
        clients = {name: {"value": curve[-1], "samples": 60} for name in forget}
        models[stage] = {"curve": curve, "worst": curve[-1], "worst_round": 40, "clients": clients, "r_acc": 0.9021}
    models["retrained"]["curve"][3] = None
    return {"measure": "asr" if marked else "forget_acc", "rounds": 40, "lr": 0.1, "models": models}


def _relearning(marked: bool) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for stage, speed in SPEEDS.items():
        curve = [0.9 - 0.87 * math.exp(-speed * place) for place in range(21)]
        models[stage] = {"mean": sum(curve[1:]) / 20, "curve": curve}
    return {"measure": "asr" if marked else "forget_acc", "rounds": 20, "lr": 0.001, "models": models}


def _way(marked: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, name in enumerate(("asr" if marked else "forget_acc", "later", "relearning", "loss", "divergence")):
        gone = {"value": 0.8 + 0.05 * place, "low": 0.7, "high": 1.1, "reason": None}
        nowhere = {"value": None, "low": None, "high": None, "reason": "they do not differ beyond chance"}
        found[name] = {
            "values": {s: {"value": 0.8 - 0.2 * k, "error": 0.01} for k, s in enumerate(SPEEDS)},
            "models": {"recovered": nowhere if name == "loss" else gone, "retrained-2": gone},
            "spread": 0.0123,
        }
    return found


def _exclusivity(summary: dict[str, Any], forget: list[str], rounds: int) -> dict[str, Any]:
    before, after = (summary["stages"][stage]["clients"] for stage in ("initial", "recovered"))
    clients = {}
    for place, name in enumerate(name for name in before if name not in forget):
        change = after[name]["accuracy"] - before[name]["accuracy"] + 0.02 * _wave(place)
        old = before[name]["accuracy"]
        ends = {"low": None, "high": None} if place == 1 else {"low": change - 0.2, "high": change + 0.15}
        samples = None if place == 1 else 14 + place
        clients[name] = {"before": old, "after": old + change, "change": change, "samples": samples, **ends}
    worst, changes = min(clients, key=lambda n: clients[n]["change"]), [c["change"] for c in clients.values()]
    conflicts = []
    for number in range(1, rounds + 1):
        expands = number % 9 == 0
        retained = {"min": -0.12 if expands else 0.03, "mean": 0.2, "negative": 2 if expands else 0}
        conflicts.append(
            {
                "round": number,
                "phase": "expand" if expands else "improve",
                "forget": {"min": 0.05 + 0.3 * math.exp(-number / 20), "mean": 0.4, "negative": 0},
                "retained": None if number == 3 else retained,
            }
        )
    return {
        "clients": clients,
        "gained": sum(change > 0.005 for change in changes),
        "lost": sum(change < -0.005 for change in changes),
        "same": sum(abs(change) <= 0.005 for change in changes),
        "worst": {"client": worst, "change": clients[worst]["change"]},
        "conflicts": conflicts,
    }


def _verdict(summary: dict[str, Any], full: bool) -> dict[str, Any]:
    empty = {"value": None, "low": None, "high": None, "threshold": None}
    checks = [
        ("forgotten", "Is the mark of every forgotten client gone?", "shown", 0.0691, 0.05),
        ("lasting", "Does the mark stay gone when the others train on?", "refuted", 0.1523, 0.05),
        ("useful", "Is the model as useful as before to those who stay?", "shown", -0.0035, -0.02),
        ("exclusive", "Was nobody else harmed?", "refuted", -0.1123, -0.1),
        ("private", "Can an attack not tell the forgotten samples from samples never seen?", "open", 0.571, 0.1),
        ("alike", "Does it answer on the forgotten data as a retrained model does?", "shown", 1.134, 1.5),
        ("removed", "Is the knowledge removed rather than hidden?", "shown", 0.8161, 0.7),
        ("unseen", "Can models that forgot not be told from models that never saw them?", "refuted", 0.97, 0.1),
        ("novel", "A check of a later version?", "open", 1.5, 2.0),
    ]
    made = [
        empty
        | {"name": name, "question": question, "result": result, "text": f"what was measured for {name}"}
        | ({"value": value, "threshold": limit} if full or result == "shown" else {})
        | ({"low": value - 0.05, "high": min(1.0, value + 0.05)} if full and name in ("private", "unseen") else {})
        for name, question, result, value, limit in checks
    ]
    text = f"{summary['verdict']} Shown: the mark is gone (the worst works in 6.9% of all tries); the model is as "
    text += (
        "useful as before. Refuted: nobody else was harmed. Open: attacks cannot tell forgotten samples from others."
    )
    return {"checks": made, "text": text}


def make_audit(summary: dict[str, Any], tier: int = 3, rounds: int = 40) -> dict[str, Any]:
    """An audit of a run's summary as tiers 1 to 3 leave it; tier 1 has no retrained model."""
    forget = summary["forget"]
    marked = summary["stages"]["initial"]["asr"] is not None
    stages = [*summary["stages"], *(["retrained", "retrained-2"] if tier > 1 else [])]
    apart = {name: {"auc": 0.9 + 0.05 * _wave(place), "low": 0.8, "high": 1.0} for place, name in enumerate(forget)}
    return {
        "format": 2,
        "created": "2026-05-04T11:11:12+00:00",
        "seed": 0,
        "tier": tier,
        "stages": stages,
        "membership": {stage: _membership(stage, forget, tier) for stage in stages},
        "told_apart": {"auc": 0.97, "low": 0.9, "high": 1.0, "with": 32, "without": 31, "clients": apart}
        if tier > 2
        else None,
        "truth": _truth(summary, marked) if tier > 1 else None,
        "dormancy": _dormancy(marked, forget) if tier > 1 else None,
        "relearning": _relearning(marked) if tier > 1 else None,
        "way": _way(marked) if tier > 1 else None,
        "exclusivity": _exclusivity(summary, forget, rounds),
        "thresholds": {"asr": 0.05, "leak": 0.1},
        "verdict": _verdict(summary, tier > 1),
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


@pytest.fixture(scope="session")
def lines() -> Rounds:
    return make_rounds()


@pytest.fixture(scope="session")
def config() -> dict[str, Any]:
    return CONFIG


@pytest.fixture(scope="session")
def make() -> Callable[..., Summary]:
    return make_summary


@pytest.fixture
def audit(summary: Summary) -> dict[str, Any]:
    return make_audit(summary)


@pytest.fixture(scope="session")
def audit_of() -> Callable[..., dict[str, Any]]:
    return make_audit


@pytest.fixture(scope="session")
def pages() -> tuple[str, str]:
    """The report of the synthetic run with its audit, and its comparison with itself."""
    run = make_summary(), make_rounds()
    audit = make_audit(run[0])
    return render(*run, CONFIG, audit), render_comparison([("a", *run), ("b", *run)], {"a": audit})


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time; a test that reads the words around them does without."""
    monkeypatch.setattr(svg, "inline", lambda *_: Safe("<svg></svg>"))


@pytest.fixture(params=["wide"])
def one_width(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A test of what is on figures needs each of them once."""
    monkeypatch.setattr(style, "WIDTHS", {request.param: style.WIDTHS[request.param]})
