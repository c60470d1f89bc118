"""The tables of docs/tasks.md say what the result files hold."""

import json
from collections.abc import Callable
from statistics import fmean, pstdev
from typing import Any

from fupareto.methods.registry import METHODS

from .markdown import ROOT

NAMES = {
    "classes": "digits, `classes`",
    "text": "text, `classes`",
    "text, 60 rounds": "text, trained for 60 rounds",
    "binary": "breast cancer, `binary`",
    "labels": "digits, `labels`",
    "numbers": "diabetes, `numbers`",
    "numbers, 60 rounds": "diabetes, trained for 60 rounds",
    "tokens": "standard library, `tokens`",
    "tokens, 40 rounds": "standard library, trained for 40 rounds",
}
TUNED = range(5)  # seeds on which settings were chosen
Get = Callable[[dict[str, Any]], dict[str, Any]]
MODELS: tuple[Get, ...] = (
    lambda run: run["initial"],
    lambda run: run["methods"]["fupareto"],
    lambda run: run["methods"]["renew"],
    lambda run: run["retrained"],
)


def test_methods_that_need_a_task_are_named() -> None:
    page = " ".join((ROOT / "docs" / "tasks.md").read_text().split())
    *most, last = sorted((cls.__name__ for cls in METHODS.values() if cls.tasks), key=str.lower)
    assert {cls.tasks for cls in METHODS.values()} == {(), ("classes",)}
    assert f"{', '.join(most)} and {last} need the task `classes`, all other methods take any." in page


def test_what_is_forgotten_by_task() -> None:
    page = (ROOT / "docs" / "tasks.md").read_text()
    tasks = json.loads((ROOT / "results" / "tasks.json").read_text())["tasks"]
    assert set(tasks) == set(NAMES)
    for task, name in NAMES.items():
        assert len({run["seed"] for run in tasks[task]} - set(TUNED)) == 3
        cells = [name]
        for key, digits in (("asr", 2), ("r_acc", 3)):
            for get in MODELS:
                values = [get(run)[key] for run in tasks[task]]
                cells.append(f"{fmean(values):.{digits}f} ± {pstdev(values):.{digits}f}")
        assert f"| {' | '.join(cells)} |" in page, task


def test_what_a_mark_gets_by_chance() -> None:
    page = " ".join((ROOT / "docs" / "tasks.md").read_text().split())
    tasks = json.loads((ROOT / "results" / "tasks.json").read_text())["tasks"]
    found = {task: [run["methods"]["fresh"]["asr"] for run in tasks[task]] for task in ("text", "binary", "numbers")}
    text, table, numbers = (f"{fmean(values):.2f}" for values in found.values())
    lowest, middle, highest = (f"{value:.2f}" for value in sorted(found["numbers"]))
    assert lowest == middle
    assert f"in {text} of the tries on text, {table} on breast cancer and {numbers} on diabetes" in page
    assert f"on diabetes, where one seed has {highest} and the others {lowest}." in page
    left = {task: fmean(run["methods"]["fupareto"]["asr"] for run in tasks[task]) for task in found}
    gaps = {task: left[task] - fmean(values) for task, values in found.items()}
    assert f"differs from that by at most {max(map(abs, gaps.values())):.2f} in the mean" in page
    assert gaps["binary"] < 0 < min(gaps["text"], gaps["numbers"])


def test_what_a_language_model_forgets() -> None:
    page = (ROOT / "docs" / "tasks.md").read_text()
    seeds = json.loads((ROOT / "results" / "language-model.json").read_text())
    assert len(set(map(int, seeds)) - set(TUNED)) == 3
    first = next(iter(seeds.values()))
    for measure in first["before"]:
        digits = 1 if "perplexity" in measure else 2
        cells = [f"{fmean(run[model][measure] for run in seeds.values()):.{digits}f}" for model in first]
        assert f"| {measure} | {' | '.join(cells)} |" in page
