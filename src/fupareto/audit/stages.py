"""What does the audit say of one model, and of a run's three models together?"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fupareto.audit import forgetting, utility
from fupareto.federation.base import Federation, Missing


def measure(
    federation: Federation, w: Tensor, w0: Tensor, forget: Sequence[str], retained: Sequence[str]
) -> tuple[dict[str, Any], Missing]:
    """Measure one model against a request; also say which clients did not answer."""
    on_forget = federation.evaluate(w, forget, forgetting.SPLITS)
    on_retained = federation.evaluate(w, retained, utility.SPLITS)
    left = forgetting.forgetting(on_forget, forget)
    right = utility.utility(on_retained, retained)
    clients = {**left.pop("clients"), **right.pop("clients")}
    distance = float((w.double() - w0.double()).norm())
    stage = {**left, **right, "mia_auc": None, "distance": distance, "clients": clients}
    return stage, {**on_forget.missing, **on_retained.missing}


def cost(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what the method's rounds took; measuring the model in between is not part of it."""
    return {
        "rounds": len(rounds),
        "seconds": round(sum(r["seconds"] for r in rounds), 3),
        "bytes_up": sum(r["bytes_up"] for r in rounds),
        "bytes_down": sum(r["bytes_down"] for r in rounds),
    }


def phases(rounds: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count what unlearning rounds did; a round without an accepted step has failed, whatever it tried."""
    unlearning = [r for r in rounds if r["stage"] == "unlearned"]
    return {
        "improve": sum(r["phase"] == "improve" and r["step"] is not None for r in unlearning),
        "expand": sum(r["phase"] == "expand" and r["step"] is not None for r in unlearning),
        "failed": sum(r["step"] is None for r in unlearning),
    }


def better(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """Say which model to keep: the recovered one, unless recovery cost accuracy or brought knowledge back.

    Knowledge is back when ASR (or, without a trigger, forget accuracy) rose by more than one point.
    """
    if "recovered" not in stages:
        return "unlearned" if "unlearned" in stages else "initial"
    before, after = stages["unlearned"], stages["recovered"]
    known = "asr" if after["asr"] is not None and before["asr"] is not None else "forget_acc"
    lost = (after["r_acc"] or 0.0) < (before["r_acc"] or 0.0)
    back = (after[known] or 0.0) > (before[known] or 0.0) + 0.01
    return "unlearned" if lost or back else "recovered"


def verdict(stages: Mapping[str, Mapping[str, Any]], forget: Sequence[str], final: str, unheard: Sequence[str]) -> str:
    """Say in plain words what was measured, and no more."""
    first, last = stages["initial"], stages[final]
    who = ("client " if len(forget) == 1 else "clients ") + ", ".join(forget)
    if last["asr"] is not None and first["asr"] is not None:
        known = (
            f"the backdoor of {who} works on {_percent(last['asr'])} of its inputs ({_percent(first['asr'])} before)"
        )
    else:
        known = (
            f"the model is right on {_percent(last['forget_acc'])} of the training samples of {who} "
            f"({_percent(first['forget_acc'])} before)"
        )
    kept = f"retained clients have {_percent(last['r_acc'])} accuracy ({_percent(first['r_acc'])} before)"
    text = f"After forgetting, {known}; {kept}."
    if final == "unlearned" and "recovered" in stages:
        text += " Recovery did not improve on the unlearned model, so the unlearned one is kept."
    if unheard:
        text += f" Not verified for {', '.join(unheard)}: no answer when the model was measured."
    return text


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f} %"
