"""How is the initial model trained, and what is kept of it for the methods that need a history?"""

from collections.abc import Callable
from pathlib import Path

from fupareto import runner
from fupareto.config import Experiment
from fupareto.experiment.setting import Progress, default_request, facts, federation, no_progress, versions
from fupareto.federation import Federation
from fupareto.federation.recording import Recording
from fupareto.history import History, Plan
from fupareto.methods import FedAvg
from fupareto.methods.registry import find
from fupareto.runs import Run


def train(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    root: Path | None = None,
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Train the federation's model with FedAvg into the run directory ``out``."""
    find(experiment.unlearn.method, experiment.unlearn.options)  # a mistake there should not wait for the training
    config = {"kind": "train", "experiment": experiment.model_dump(), "versions": versions()}
    engine, w = federation(experiment, root=root)
    place = Run.make(out, config, None, resume)
    if not place.finished:
        method = FedAvg(**experiment.train.model_dump(exclude={"record", "keep"}))
        wanted = default_request(experiment)
        about = None if wanted.partial else wanted  # virtual clients are made when the request is answered
        recorded = _recording(experiment, engine, place, say)
        with progress("training", method.budget) as watch:
            outcome = runner.run(
                method, recorded, w, None, seed=experiment.seed, place=place, about=about, measure_every=10, watch=watch
            )
        place.save_summary(runner.summarise(outcome, facts(experiment, method.name)))
    return place


def _recording(experiment: Experiment, engine: Federation, place: Run, say: Callable[[str], None]) -> Federation:
    """Keep what the methods of ``record`` will need, saying first what it takes."""
    training = experiment.train
    if not training.record:
        return engine
    plan = Plan(
        parts=tuple(dict.fromkeys(training.record)),
        clients=engine.ids,
        rounds=training.rounds,
        keep=training.keep,
        heads=default_request(experiment).clients if "fedau" in training.record else (),
        label_seed=experiment.seed,
    )
    head = engine.layout.head() if "fedau" in training.record else None
    sizes = plan.bytes(engine.layout.size, head.stop - head.start if head else 0)
    parts = ", ".join(f"{part} {_megabytes(size)}" for part, size in sizes.items())
    say(f"Recording for {parts}: {_megabytes(sum(sizes.values()))} in {place.path / 'history'}.")
    return Recording(engine, History.create(place.path / "history", plan, sum(sizes.values())))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
