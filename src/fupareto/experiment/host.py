"""Where the runs of an experiment file compute, and how they speak to the user."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fupareto.experiment.duration import Agree, always
from fupareto.run.execute import Progress, no_progress, silent


@dataclass(frozen=True)
class Host:
    """Surroundings of a run, which are not part of the experiment.

    Attributes:
        root: Directory of the data sets; None for the default.
        device: Device on which the clients compute.
        progress: Display of the rounds.
        say: Function that shows a remark.
        agree: Function that is asked before a run that takes longer than a day.
    """

    root: Path | None = None
    device: str = "cpu"
    progress: Progress = no_progress
    say: Callable[[str], None] = silent
    agree: Agree = always


SILENT = Host()
