"""Training of the initial model from an experiment file."""

from pathlib import Path

from fupareto import api, trust
from fupareto.config import Experiment
from fupareto.experiment.duration import check as check_duration
from fupareto.experiment.host import SILENT, Host
from fupareto.experiment.setting import default_request, facts, federation, training
from fupareto.methods import Method
from fupareto.methods.registry import find
from fupareto.methods.ridge import Ridge
from fupareto.run.directory import Run
from fupareto.run.execute import Settings
from fupareto.run.start import Start
from fupareto.versions import versions


def train(experiment: Experiment, out: Path, *, resume: bool = False, host: Host = SILENT) -> Run:
    """Train the model of an experiment with FedAvg.

    Args:
        experiment: The experiment.
        out: Run directory to write.
        resume: Continue the run in ``out``.
        host: Surroundings of the run.

    Returns:
        The finished run.
    """
    trust.name(experiment.model, experiment.unlearn.method, *experiment.task_code)
    find(experiment.unlearn.method, experiment.unlearn.options)  # report mistakes in [unlearn] before the training
    section = experiment.train
    method: Method = Ridge() if section.method == "ridge" else training(experiment)
    record = [*section.record, *(["ridge"] if section.method == "ridge" and "ridge" not in section.record else [])]
    wanted = default_request(experiment)
    engine, w = federation(experiment, root=host.root, device=host.device)
    check_duration(method, engine, w, host.agree)
    settings = Settings(
        experiment.seed,
        out,
        resume,
        measure_every=10,
        progress=host.progress,
        say=host.say,
        config={"kind": "train", "experiment": experiment.model_dump(), "versions": versions()},
        facts=facts(experiment, method.name),
    )
    api.learn(
        engine,
        Start(w),
        method,
        settings,
        record=record,
        keep=experiment.train.keep,
        about=None if wanted.partial else wanted,  # virtual clients do not exist before the request is answered
    )
    return Run.open(out)
