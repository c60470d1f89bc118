"""The audit of a run: attacks, further training, relearning, retrained models, exclusivity, and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from torch import Tensor

from fupareto.audit import checks, exclusivity, relearning
from fupareto.audit import dormancy as dormant
from fupareto.audit.attacks import delta, membership, paired
from fupareto.audit.attacks.outputs import MEMBERS, NONMEMBERS, outputs
from fupareto.audit.attacks.shadowed import Attacks, Shadowed, stronger
from fupareto.audit.barrier import barriers
from fupareto.audit.checks import Thresholds
from fupareto.audit.estimates import ways
from fupareto.audit.further import Curves, Further, not_stored
from fupareto.audit.measure import measure
from fupareto.audit.retrained import distance
from fupareto.audit.training import Progress, Training, measure_of, no_progress
from fupareto.federation.contract import Federation
from fupareto.randomness import stream
from fupareto.tally import with_tally
from fupareto.vocabulary import COST, RETRAINED, SECOND

FORMAT = 2  # of audit.json; in format 1, relearning was rounds until the forgotten was back, and there was no dormancy


@dataclass(frozen=True)
class Truth:
    """A model that was retrained without what had to be forgotten, and what it took."""

    w: Tensor
    cost: Mapping[str, Any]


@dataclass(frozen=True)
class Extent:
    """How thorough an audit is.

    Attributes:
        truths: Models that were trained without what had to be forgotten: one to compare with, and another one of
            another seed that says how much retrained models differ.
        training: How clients train; models are trained on for dormancy and, where there is a retrained one, relearning.
        dormancy: Further rounds of training with the retained clients; 0 for none.
        shadowed: Shadow models, for the attacks of tiers 2 and 3.
        curves: Store of the curves of further training.
    """

    truths: tuple[Truth, ...] = ()
    training: Training | None = None
    dormancy: int = 0
    shadowed: Shadowed | None = None
    curves: Curves = not_stored


def audit(
    federation: Federation,
    models: Mapping[str, Tensor],
    sides: tuple[Sequence[str], Sequence[str]],
    rounds: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    *,
    seed: int = 0,
    extent: Extent | None = None,
    thresholds: Thresholds | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Attack the models of a run that was measured and return the audit, as audit.json has it.

    Args:
        federation: The clients, as they were when the request was answered.
        models: The flat model of every stage; the retrained ones are attacked beside them.
        sides: The forget clients and the retained clients.
        rounds: The lines of rounds.jsonl.
        summary: What was measured, as summary.json has it.
        seed: Seed of the attacks' and of further training's random streams.
        extent: What the run is compared with, and how far it is trained on.
        thresholds: Where a number is good enough.
        progress: How rounds of further training are shown while they run.
    """
    forget, _ = sides
    extent, limits = extent or Extent(), thresholds or Thresholds()
    retrained = dict(zip((RETRAINED, SECOND), extent.truths, strict=False))
    found: dict[str, Any] = {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "tier": 1,
        "told_apart": None,
        "truth": compare(federation, models, summary["stages"], retrained, sides) if retrained else None,
        "dormancy": None,
        "relearning": None,
        "barrier": None,
        "way": None,
    }
    models = {**models, **{stage: truth.w for stage, truth in retrained.items()}}
    found["stages"] = list(models)
    attacks = attacked(federation, models, forget, seed)
    if extent.shadowed is not None:
        rng = stream(seed, "membership", "shadowed")
        found["tier"] = extent.shadowed.tier
        attacks, found["told_apart"] = stronger(
            federation, models, forget, attacks, extent.shadowed, summary["final"], rng
        )
    if retrained:
        attacks = {s: a if s == RETRAINED else paired.against(a, attacks[RETRAINED]) for s, a in attacks.items()}
    found["membership"] = {stage: membership.summary(clients) for stage, clients in attacks.items()}
    first = summary["stages"]["initial"]
    key = measure_of(first)
    if extent.training is not None and first[key] is not None:
        further = Further(federation, sides, key, extent.training, seed, progress, extent.curves)
        found |= trained_on(further, models, ("initial", summary["final"], RETRAINED, SECOND), extent)
    if retrained:
        measured = {**summary["stages"], **{stage: found["truth"][stage] for stage in retrained}}
        found["way"] = ways(measured, found, summary["final"])
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


def attacked(
    federation: Federation, models: Mapping[str, Tensor], forget: Sequence[str], seed: int
) -> dict[str, Attacks]:
    """Make the attacks that need no models but these on every forget client that answers."""
    found = {stage: attack(federation, w, forget, seed) for stage, w in models.items()}
    return delta.with_delta(federation, models, forget, found, seed)


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
    retrained: Mapping[str, Truth],
    sides: tuple[Sequence[str], Sequence[str]],
) -> dict[str, Any]:
    """Measure the retrained models, and every other one against the first of them."""
    own = {stage: measure(federation, truth.w, models["initial"], *sides)[0] for stage, truth in retrained.items()}
    first = retrained[RETRAINED]
    others = {**models, **{stage: truth.w for stage, truth in retrained.items() if stage != RETRAINED}}
    known = {**measured, **own}
    return {
        **{key: first.cost.get(key) for key in COST},
        **own,
        "stages": {
            stage: distance(federation, w, first.w, known[stage], own[RETRAINED], sides[0])
            for stage, w in others.items()
        },
    }


def trained_on(
    further: Further, models: Mapping[str, Tensor], stages: Sequence[str], extent: Extent
) -> dict[str, dict[str, Any] | None]:
    """Train models on and return the entries ``dormancy``, ``relearning`` and ``barrier``.

    Args:
        further: How the models are trained on.
        models: Models by stage.
        stages: The stages to train on, where there is a model.
        extent: How many rounds, and whether there is a retrained model, without which relearning says little.
    """
    chosen = {stage: models[stage] for stage in stages if stage in models}
    others = {stage: w for stage, w in chosen.items() if stage not in ("initial", SECOND)}
    return {
        "dormancy": dormant.dormancy(further, chosen, extent.dormancy) if extent.dormancy else None,
        "relearning": relearning.relearning(further, chosen) if extent.truths else None,
        "barrier": barriers(further.federation, models["initial"], others, further.sides[1])
        if extent.dormancy
        else None,
    }
