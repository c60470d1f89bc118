"""The summary of a run: its models measured, its cost, the model to keep, and a verdict in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fupareto.audit.attendance import never_answered
from fupareto.audit.measure import measure
from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.tally import with_tally


def summarise(
    federation: Federation,
    models: Mapping[str, Tensor],
    sides: tuple[Sequence[str], Sequence[str]],
    rounds: Sequence[Mapping[str, Any]],
    part: str = "",
) -> dict[str, Any]:
    """Measure the models of a run and return its summary, as summary.json has it but for names and versions.

    Args:
        federation: The clients, as they were when the request was answered.
        models: The flat model of every stage that the run came to; the initial one is what others are compared with.
        sides: The forget clients and the retained clients.
        rounds: The lines of rounds.jsonl.
        part: What is to be forgotten, in words, when it is not whole clients.
    """
    if "initial" not in models:
        raise UserError("the run has no initial model to measure against")
    forget, retained = sides
    measured: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for stage, w in models.items():
        measured[stage], unheard = measure(federation, w, models["initial"], forget, retained)
        missing |= unheard
    missing |= unlike(measured, missing)
    return conclude(measured, rounds, federation.ids, forget, missing, part)


def unlike(measured: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str]) -> dict[str, str]:
    """Return the forget clients that did not measure all models on the same samples, with the reason.

    A client that leaves out the mark, or most samples, once the model should have forgotten it was not measured.
    """
    found: dict[str, str] = {}
    first, *others = measured.items()
    for stage, entry in others:
        for i, before in first[1]["clients"].items():
            after = entry["clients"].get(i)
            if before["side"] != "forget" or i in missing or after is None:
                continue
            counts = [(c["samples"], c["asr_samples"]) for c in (before, after)]
            if counts[0] != counts[1]:
                found[i] = (
                    f"measured the {stage} model on {counts[1][0]} samples and {counts[1][1]} with a mark, the "
                    f"{first[0]} model on {counts[0][0]} and {counts[0][1]}"
                )
    return found


def conclude(
    measured: Mapping[str, dict[str, Any]],
    rounds: Sequence[Mapping[str, Any]],
    clients: Sequence[str],
    forget: Sequence[str],
    missing: Mapping[str, str],
    part: str = "",
) -> dict[str, Any]:
    """Draw the summary from what was measured.

    A forget client that was not measured is never called forgotten, and a run with a client that never gave a usable
    answer is unverified.
    """
    unheard = [i for i in forget if i in missing]
    silent = never_answered(rounds)
    final = better(measured)
    return {
        "clients": list(clients),
        "forget": list(forget),
        "part": part,
        "stages": dict(measured),
        "cost": cost(rounds),
        "phases": phases(rounds),
        "status": "unverified" if unheard or silent else "complete",
        "final": final,
        "verdict": verdict(measured, forget, final, unheard, part) if forget else "",
        "missing": {**silent, **missing},
    }


def cost(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what the method's rounds took; measuring the model in between is not part of it.

    Passes are None where a round of an earlier version did not count them.
    """
    passes = [r["passes"] for r in rounds if r.get("passes") is not None]
    return {
        "rounds": len(rounds),
        "seconds": round(sum(r["seconds"] for r in rounds), 3),
        "bytes_up": sum(r["bytes_up"] for r in rounds),
        "bytes_down": sum(r["bytes_down"] for r in rounds),
        "passes": round(sum(passes), 3) if len(passes) == len(rounds) else None,
    }


def phases(rounds: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count what unlearning rounds did; a round without an accepted step has failed, whatever it tried.

    Rounds of renewal are counted where there are any.
    """
    unlearning = [r for r in rounds if r["stage"] == "unlearned"]
    renewed = sum(r["phase"] == "renew" for r in unlearning)
    return {
        **({"renew": renewed} if renewed else {}),
        "improve": sum(r["phase"] == "improve" and r.get("step") is not None for r in unlearning),
        "expand": sum(r["phase"] == "expand" and r.get("step") is not None for r in unlearning),
        "failed": sum("step" in r and r["step"] is None for r in unlearning),  # a method may have no steps
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
    back = after[known] is None or after[known] > (before[known] or 0.0) + 0.01  # unmeasured: nobody knows
    return "unlearned" if lost or back else "recovered"


def verdict(
    stages: Mapping[str, Mapping[str, Any]],
    forget: Sequence[str],
    final: str,
    unheard: Sequence[str],
    part: str = "",
) -> str:
    """Say in plain words what was measured, and no more; ``part`` names the data when it is not whole clients."""
    first, last = stages["initial"], stages[final]
    heard = [i for i in forget if i not in unheard] or list(forget)  # the numbers are theirs alone
    marked = [i for i in heard if last["clients"].get(i, {}).get("asr") is not None] or heard
    unmarked = [i for i in heard if i not in marked]

    def before(key: str) -> str:
        return "" if final == "initial" else f", {_percent(first[key])} before"

    if last["asr"] is not None:
        text = f"The backdoor of {_named(marked)} works in {_percent(last['asr'])} of all tries{before('asr')}."
        text += f" That says nothing of {_named(unmarked)}, without a backdoor." if unmarked else ""
    else:
        data = part or f"training samples of {_named(heard)}"
        text = f"The model is right on {_percent(last['forget_acc'])} of the {data}{before('forget_acc')}."
    text += f" Retained clients have an accuracy of {_percent(last['r_acc'])}{before('r_acc')}."
    if final == "unlearned" and "recovered" in stages:
        text += " Recovery did not improve on the unlearned model, so the unlearned one is kept."
    if unheard:
        text += f" Not verified for {', '.join(unheard)}: no answer when the model was measured."
    return text if final == "initial" else with_tally(text, None)


def _named(clients: Sequence[str]) -> str:
    *most, last = clients
    names = " and ".join(filter(None, [", ".join(most), last]))
    return f"{'clients' if most else 'client'} {names}"


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f}%"
