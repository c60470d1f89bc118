"""How is a finished run audited again, and where does the truth come from that it is compared with?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fupareto.audit.assemble import Truth
from fupareto.audit.checks import Thresholds
from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.experiment.conclude import examine as conclusions
from fupareto.experiment.conclude import keep
from fupareto.experiment.setting import FACTS, Progress, default_request, federation, no_progress, stored_experiment
from fupareto.experiment.shadows import make
from fupareto.experiment.unlearn import answer
from fupareto.federation import Request
from fupareto.parameters import Layout
from fupareto.run import loop
from fupareto.run.directory import Run


def audit(place: Run, root: Path | None = None, **options: Any) -> dict[str, Any]:
    """Audit a finished run anew, write its summary and its audit, and return the summary; for options see below."""
    if (place.path / "certificate.json").is_file():
        raise UserError(
            f"{place.path} has a certificate, with which new numbers would not agree; check it with `fupareto verify`, "
            "or move it away first"
        )
    summary, found = examine(place, root, **options)
    keep(place, summary, found)
    return summary


def examine(
    place: Run,
    root: Path | None = None,
    *,
    tier: int = 1,
    shadows: int | None = None,
    retrain: bool = False,
    reference: Path | None = None,
    thresholds: Thresholds | None = None,
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Measure and audit the models of a finished run anew; a training run has no audit.

    Tier 2 needs ``shadows`` models that were trained like the initial one; at tier 3 half of them are made to forget
    and half never saw the forgotten. The truth to compare with is the model of ``reference``, a run of the method
    retrain on the same request, or one that is made with ``retrain``, or one that was made so earlier.
    """
    if not place.finished:
        raise UserError(f"{place.path} has not come to its end; continue it with --resume first")
    kind = place.config.get("kind")
    if kind not in ("train", "unlearn"):
        raise UserError(
            f"{place.path} was made from Python, which has its clients: audit it there, with result.audit()"
        )
    experiment = stored_experiment(place)
    facts = {key: place.summary.get(key) for key in FACTS}
    if kind == "train":
        if tier > 1 or retrain or reference:
            raise UserError(f"{place.path} is a training run, which forgot nothing; audit a run of `fupareto unlearn`")
        engine, _ = federation(experiment, root=root)
        wanted = default_request(experiment)
        sides = ((), engine.ids) if wanted.partial else wanted.sides(engine.ids)
        return loop.summarise(loop.Outcome(engine, place, sides), facts), None
    request = Request.from_json(place.request)
    engine, _ = federation(experiment, request, root)
    truth = _truth(place, experiment, request, engine.layout, root, retrain, reference, progress)
    shadowed = make(place, root, tier, shadows, progress, say) if tier > 1 else None
    outcome = loop.Outcome(engine, place, request.sides(engine.ids), request.words())
    return conclusions(place, outcome, facts, truth, shadowed, thresholds)


def _truth(
    place: Run,
    experiment: Experiment,
    request: Request,
    layout: Layout,
    root: Path | None,
    retrain: bool,
    reference: Path | None,
    progress: Progress,
) -> Truth | None:
    """Return the retrained model, made with the training's own number of rounds where it has to be made."""
    out = reference or place.path / "retrained"
    if retrain and reference is None:
        weights = place.load_model("initial")
        if weights is None:
            raise UserError(f"{place.path} has lost its model initial.safetensors, without which nothing is compared")
        options = {"rounds": experiment.train.rounds}
        answer(
            experiment,
            weights,
            out,
            request=request,
            chosen="retrain",
            options=options,
            measure_every=10,
            resume=True,
            root=root,
            progress=progress,
        )
    elif reference is None and not (Run.begun(out) and Run.open(out).finished):
        return None
    made = Run.open(out)
    same = Request.from_json(made.request) == request and stored_experiment(made) == experiment
    if made.config.get("method", {}).get("name") != "retrain" or not made.finished or not same:
        raise UserError(f"{out} is not a finished run of the method retrain for the same request and experiment")
    tensors = made.load_model("unlearned")
    if tensors is None:
        raise UserError(f"{out} has lost its model unlearned.safetensors; delete it and retrain")
    return Truth(layout.flat(tensors), made.summary["cost"])
