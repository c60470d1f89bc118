"""How is the initial model trained, and what is kept of it for the methods that need a history?"""

from collections.abc import Callable
from pathlib import Path

from fupareto.config import Experiment
from fupareto.experiment.setting import Progress, default_request, facts, federation, no_progress
from fupareto.federation.history import Plan
from fupareto.federation.recording import record
from fupareto.methods import FedAvg
from fupareto.methods.registry import find
from fupareto.run import budget, loop
from fupareto.run.directory import Run
from fupareto.versions import versions


def train(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    root: Path | None = None,
    device: str = "cpu",
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Train the federation's model with FedAvg into the run directory ``out``."""
    find(experiment.unlearn.method, experiment.unlearn.options)  # a mistake there should not wait for the training
    config = {"kind": "train", "experiment": experiment.model_dump(), "versions": versions()}
    engine, w = federation(experiment, root=root, device=device)
    method = FedAvg(**experiment.train.model_dump(exclude={"record", "keep"}))
    budget.check(method, engine, 0, len(engine.ids))
    place = Run.make(out, config, None, resume)
    if not place.finished:
        wanted = default_request(experiment)
        about = None if wanted.partial else wanted  # virtual clients are made when the request is answered
        training = experiment.train
        heads = wanted.clients if "fedau" in training.record else ()
        parts = tuple(dict.fromkeys(training.record))
        plan = Plan(parts, engine.ids, training.rounds, training.keep, heads, experiment.seed)
        recorded = record(engine, place.path / "history", plan, say)
        with progress("training", method.budget) as watch:
            outcome = loop.run(
                method, recorded, w, None, seed=experiment.seed, place=place, about=about, measure_every=10, watch=watch
            )
        place.save_summary(loop.summarise(outcome, facts(experiment, method.name)))
    return place
