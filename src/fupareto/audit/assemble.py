"""The audit of a run: attacks, distance to a retrained model, relearning, exclusivity, and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from torch import Tensor

from fupareto.audit import checks, exclusivity, relearning
from fupareto.audit.attacks import membership
from fupareto.audit.attacks.outputs import MEMBERS, NONMEMBERS, outputs
from fupareto.audit.attacks.shadowed import Attacks, Shadowed, stronger
from fupareto.audit.checks import Thresholds
from fupareto.audit.measure import measure
from fupareto.audit.retrained import distance
from fupareto.federation.collected import Local
from fupareto.federation.contract import Federation
from fupareto.randomness import stream
from fupareto.tally import with_tally

RELEARNING_ROUNDS = 50
SLOWLY = 0.1  # relearning is at this share of the training's rate: at the full one it takes a round or two


@dataclass(frozen=True)
class Truth:
    """A model that was retrained without what had to be forgotten, and what it took."""

    w: Tensor
    cost: Mapping[str, Any]


def audit(
    federation: Federation,
    models: Mapping[str, Tensor],
    sides: tuple[Sequence[str], Sequence[str]],
    rounds: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    *,
    seed: int = 0,
    retrained: Truth | None = None,
    local: Local | None = None,
    shadowed: Shadowed | None = None,
    thresholds: Thresholds | None = None,
) -> dict[str, Any]:
    """Attack the models of a run that was measured and return the audit, as audit.json has it.

    Args:
        federation: The clients, as they were when the request was answered.
        models: The flat model of every stage; the retrained one is attacked beside them.
        sides: The forget clients and the retained clients.
        rounds: The lines of rounds.jsonl.
        summary: What was measured, as summary.json has it.
        seed: Seed of the attacks' random streams.
        retrained: A model that was trained without what had to be forgotten, to compare with.
        local: How clients train; with a retrained model it is seen how soon both learn the forgotten again.
        shadowed: Shadow models, for the attacks of tiers 2 and 3.
        thresholds: Where a number is good enough.
    """
    forget, retained = sides
    limits = thresholds or Thresholds()
    found: dict[str, Any] = {
        "format": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "tier": 1,
        "told_apart": None,
        "truth": None,
        "relearning": None,
    }
    if retrained is not None:
        found["truth"] = compare(federation, models, summary["stages"], retrained, forget, retained)
        models = {**models, "retrained": retrained.w}
    found["stages"] = list(models)
    attacks = {stage: attack(federation, w, forget, seed) for stage, w in models.items()}
    if shadowed is not None:
        rng = stream(seed, "membership", "shadowed")
        found["tier"] = shadowed.tier
        attacks, found["told_apart"] = stronger(federation, models, forget, attacks, shadowed, summary["final"], rng)
    found["membership"] = {stage: membership.summary(clients) for stage, clients in attacks.items()}
    if retrained is not None and local is not None:
        known = {**summary["stages"], "retrained": found["truth"]["retrained"]}
        found["relearning"] = relearn(federation, models, known, forget, local)
    found["exclusivity"] = exclusivity.exclusivity(
        summary["stages"]["initial"], summary["stages"][summary["final"]], rounds, forget
    )
    found["thresholds"] = asdict(limits)
    found["verdict"] = checks.verdict(summary["verdict"], checks.checks(summary, found, limits))
    return found


def with_membership(summary: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary with what the audit adds: the tally of its checks, and the headline attack's mean AUCs."""
    aucs = {stage: found["membership"][stage]["mean"].get("confidence", {}).get("auc") for stage in summary["stages"]}
    measured = {stage: {**values, "mia_auc": aucs[stage]} for stage, values in summary["stages"].items()}
    counts = found["verdict"]["tally"]
    return {**summary, "stages": measured, "verdict": with_tally(summary["verdict"], counts), "checks": counts}


def attack(federation: Federation, w: Tensor, forget: Sequence[str], seed: int) -> Attacks:
    """Make the attacks that need no other model on every forget client that answers."""
    inside, _ = outputs(federation, w, forget, MEMBERS)
    outside, _ = outputs(federation, w, forget, NONMEMBERS)
    return {
        i: membership.attack(inside[i], outside[i], stream(seed, "membership", i))
        for i in forget
        if i in inside and i in outside
    }


def compare(
    federation: Federation,
    models: Mapping[str, Tensor],
    measured: Mapping[str, Any],
    retrained: Truth,
    forget: Sequence[str],
    retained: Sequence[str],
) -> dict[str, Any]:
    """Measure the retrained model and every other against it."""
    itself, _ = measure(federation, retrained.w, models["initial"], forget, retained)
    return {
        **{key: retrained.cost[key] for key in ("rounds", "seconds", "bytes_up", "bytes_down")},
        "retrained": itself,
        "stages": {
            stage: distance(federation, w, retrained.w, measured[stage], itself, forget) for stage, w in models.items()
        },
    }


def relearn(
    federation: Federation,
    models: Mapping[str, Tensor],
    measured: Mapping[str, Any],
    forget: Sequence[str],
    local: Local,
) -> dict[str, Any] | None:
    """Train every model but the initial one on the forgotten data until they are back."""
    key = "asr" if measured["initial"]["asr"] is not None else "forget_acc"
    known, unknown = measured["initial"][key], measured["retrained"][key]
    if known is None or unknown is None:
        return None
    goal = relearning.goal(known, unknown)
    local = replace(local, lr=SLOWLY * local.lr)
    return {
        "measure": key,
        "goal": goal,
        "limit": RELEARNING_ROUNDS,
        "lr": local.lr,
        "models": {
            stage: relearning.relearn(federation, w, forget, key, goal, local, RELEARNING_ROUNDS)
            for stage, w in models.items()
            if stage != "initial"
        },
    }
