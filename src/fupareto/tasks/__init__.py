"""Tasks: what a sample, an output, a right answer and a loss are.

A :class:`~fupareto.tasks.base.Task` says how a batch becomes outputs, what each sample's loss is, and by how much the
right answer leads. Methods never know which task they serve: they name a loss (``losses.py``), and the task of the
clients' data evaluates it. Names are imported on first use: attacks need the numbers of ``signals.py`` alone, without
torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fupareto.tasks.base import Decisions, Task
    from fupareto.tasks.kinds import TASKS, Binary, Classes, Labels, task_of
    from fupareto.tasks.numbers import Numbers
    from fupareto.tasks.tokens import Tokens

__all__ = ["TASKS", "Binary", "Classes", "Decisions", "Labels", "Numbers", "Task", "Tokens", "task_of"]

_HOMES = {
    "base": ("Decisions", "Task"),
    "kinds": ("TASKS", "Binary", "Classes", "Labels", "task_of"),
    "numbers": ("Numbers",),
    "tokens": ("Tokens",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"fupareto.tasks.{home}"), name)
    raise AttributeError(f"module 'fupareto.tasks' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
