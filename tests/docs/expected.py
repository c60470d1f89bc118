"""What each table of the result pages must say, computed from the files of results/.

A table is found by the marker above it, ``<!-- table: NAME -->``. ``EXPECTED[NAME]()`` returns its header and rows.
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean, stdev
from typing import Any

from .markdown import ROOT, Table

Stage = Mapping[str, Any]
BOTH = ("unlearned", "recovered")
FRONT = ("model", "w0", "FUPareto", "FUPareto without renewal", "FedOSD", "Fine-tuning", "retrained")
LOSSES = ("Retraining", "FedOSD", "FUPareto s=3")
SCHEDULES = {  # how renewal ends, by its name in results/tune-schedule.json
    "cooldown": "a rate that falls to zero",
    "mean of 40 %": "momentum, mean of the last 40 %",
    "falling": "falling momentum",
    "falling, mean of 30 %": "falling momentum, mean of the last 30 % (default)",
    "falling, mean of 50 %": "falling momentum, mean of the last 50 %",
}
PRINTED = {"initial": ("initial",), "unlearned": ("unlearn",), "recovered": ("post",)}  # our stages, the paper's words


@dataclass(frozen=True)
class Row:
    """A method's model at a stage: means over seeds, and the cell that the paper prints."""

    mean: Stage
    paper: Stage | None


@cache
def load(name: str) -> Any:
    """Return the content of a result file."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def short(value: float | None, digits: int = 3) -> str:
    """Return a fraction without its leading zero, rounded once."""
    assert value is not None
    return f"{value:.{digits}f}".removeprefix("0")


def cell(stage: Stage | None, std: bool = False, known: str = "asr") -> str:
    """Return ASR / R-Acc of a stage, with the deviation over clients if it is wanted; nothing for no stage."""
    if stage is None:
        return ""
    spread = f" ({short(stage['r_acc_std'])})" if std else ""
    return f"{short(stage[known])} / {short(stage['r_acc'])}{spread}"


def rows_of(name: str, setting: str) -> dict[tuple[str, str], Row]:
    """Return means over seeds, by label and stage; w0 is the initial model."""
    results = load(name)
    [declared] = [found for found in results["settings"] if found["name"] == setting]
    runs = [c for c in results["cells"] if c["setting"] == setting and "stages" in c]
    initial = {c["seed"]: c["stages"]["initial"] for c in reversed(runs)}
    found = {("w0", "initial"): _row(list(initial.values()), results, declared, "w0", "initial")}
    for method in results["methods"]:
        for stage in BOTH:
            mine = [c["stages"][stage] for c in runs if c["label"] == method["label"] and stage in c["stages"]]
            if mine:
                found[method["label"], stage] = _row(mine, results, declared, method["paper"], stage)
    return found


def _row(stages: Sequence[Stage], results: Stage, setting: Stage, printed: str, stage: str) -> Row:
    mean = {key: fmean(s[key] for s in stages) for key in ("asr", "r_acc", "r_acc_std") if stages[0][key] is not None}
    return Row(mean, _printed(results["paper"], printed, setting["paper"], stage))


@cache
def _paper_tables() -> Any:
    [path] = (ROOT / "src").rglob("paper.json")
    return json.loads(path.read_text())


def _printed(table: str, method: str, column: Stage, stage: str) -> Stage | None:
    """Return the paper's cell, or None where it prints none; its ablation has one number per variant."""
    if not (table and method and column):
        return None
    stages = (*PRINTED[stage], "unlearn_or_final_unspecified")
    for row in _paper_tables()[table]["rows"]:
        same = _plain(row["method"]) == _plain(method) and all(row.get(key) == value for key, value in column.items())
        if same and row["stage"] in stages:
            return {"asr": row["ASR"], "r_acc": row["R_Acc_mean"], "r_acc_std": row["R_Acc_std"]}
    return None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def labels_of(name: str) -> list[str]:
    """Return the labels of a bench's methods, in order."""
    return [method["label"] for method in load(name)["methods"]]


def cell_of(name: str, setting: str, label: str, seed: int | None = None) -> dict[str, Any]:
    """Return one run of a bench."""
    [found] = [
        c
        for c in load(name)["cells"]
        if (c["setting"], c["label"]) == (setting, label) and seed in (None, c["seed"]) and "stages" in c
    ]
    return dict(found)


# Table I, the ablation and what was run at small scales ------------------------------------------------------------


def methods(name: str, setting: str, std: bool, paper: Sequence[str] = ()) -> Table:
    """Return a row per method that was measured and a column per stage, then the paper's."""
    rows = rows_of(name, setting)
    head = ["method", *BOTH, *(f"paper, {stage}" for stage in paper)]
    first = rows["w0", "initial"]
    table = [head, ["w0", cell(first.mean, std), "", *_paper(first, None, std, paper)]]
    for label in labels_of(name):
        found = [rows.get((label, stage)) for stage in BOTH]
        if not any(found):
            continue  # of a file that has not every method yet
        shown = [cell(row.mean, std) if row else "" for row in found]
        table.append([label, *shown, *_paper(found[0], found[1], std, paper)])
    return table


def _paper(unlearned: Row | None, recovered: Row | None, std: bool, paper: Sequence[str]) -> list[str]:
    both = {"unlearned": unlearned, "recovered": recovered}
    return [cell(row.paper, std) if (row := both[stage]) else "" for stage in paper]


ABLATIONS = ("ablation-fmnist", "ablation-fmnist-fresh", "ablation-cifar10", "ablation-cifar100")


def ablation(name: str) -> Table:
    """Return an ablation with the paper's one number per variant."""
    rows = rows_of(name, "CN=3")
    first = rows["w0", "initial"]
    table = [["method", *BOTH, "paper"], ["w0", cell(first.mean, True), "", cell(first.paper, True)]]
    for label in labels_of(name):
        unlearned, recovered = (rows[label, stage] for stage in BOTH)
        table.append([label, cell(unlearned.mean, True), cell(recovered.mean, True), cell(unlearned.paper, True)])
    return table


def projection() -> Table:
    """Return FUPareto beside M5 under every reading: what they reach, and how often they improve and expand."""
    name, head = "projection-fmnist", ("unlearned", "worst client", "improve / expand / failed")
    runs = {label: cell_of(name, "CN=3", label) for label in labels_of(name)}
    first = next(iter(runs.values()))["stages"]["initial"]
    table = [
        ["reading", *head, "M5", *head[1:], "change of R-Acc"],
        ["w0", cell(first), short(first["r_acc_min"]), *5 * [""]],
    ]
    labels = list(runs)
    for one, other in zip(labels[::2], labels[1::2], strict=True):
        pair = [runs[label]["stages"]["unlearned"] for label in (one, other)]
        shown = [
            [cell(stage), short(stage["r_acc_min"]), " / ".join(str(runs[label]["phases"][p]) for p in PHASES)]
            for label, stage in zip((one, other), pair, strict=True)
        ]
        reading = one.removeprefix("FUPareto").removeprefix(", ") or "as in Table I"
        table.append([reading, *shown[0], *shown[1], signed(pair[1]["r_acc"] - pair[0]["r_acc"])])
    return table


PHASES = ("improve", "expand", "failed")


def tried() -> Table:
    """Return the other rates that were tried where Table I contradicts the paper."""
    rows = rows_of("contradictions-gtsrb", "CN=1")
    table = [["method", "unlearned"], ["w0", cell(rows["w0", "initial"].mean)]]
    return table + [[label, cell(rows[label, "unlearned"].mean)] for label in labels_of("contradictions-gtsrb")]


LITERAL = {
    "paper-0.2": ("fupareto:paper", "0.2"),
    "paper-m5-0.2": ("fupareto:paper, no projection", "0.2"),
    "paper-0.02": ("fupareto:paper", "0.02"),
    "paper-m5-0.02": ("fupareto:paper, no projection", "0.02"),
}


def literal() -> Table:
    """Return the runs of the paper's literal reading."""
    table = [["method", "lr", "w0", "unlearned", "rounds", "improve / expand / failed"]]
    for name, run in load("ablation-paper").items():
        phases = " / ".join(str(run["phases"][p]) for p in ("improve", "expand", "failed"))
        stages = [cell(run["stages"][stage], True) for stage in ("initial", "unlearned")]
        table.append([*LITERAL[name], *stages, str(run["cost"]["rounds"]), phases])
    return table


def harm() -> Table:
    """Return FUPareto with and without the limit on what expansions cost."""
    found = load("expansion-harm")
    table = [["expansion_harm", "w0", "unlearned", "improve / expand / failed"]]
    for name, value in (("without", "none"), ("with", "1")):
        run = found[name]
        stages = [cell(run["stages"][stage], True) for stage in ("initial", "unlearned")]
        table.append([value, *stages, " / ".join(str(run["phases"][p]) for p in ("improve", "expand", "failed"))])
    return table


def by_setting(name: str) -> Table:
    """Return a row per method and stage, a column per setting."""
    settings = [setting["name"] for setting in load(name)["settings"]]
    rows = {setting: rows_of(name, setting) for setting in settings}
    table = [["method", "stage", *settings]]
    for key in rows[settings[0]]:
        table.append([*key, *(cell(rows[setting][key].mean, True) for setting in settings)])
    return table


def sequential() -> Table:
    """Return requests together and one by one, with their cost."""
    name, table = "sequential-fmnist", [["method", *BOTH, "rounds", "MB up and down"]]
    rows = rows_of(name, "CN=5")
    table.append(["w0", cell(rows["w0", "initial"].mean, True), "", "", ""])
    for label in labels_of(name):
        cost = cell_of(name, "CN=5", label)["cost"]
        megabytes = f"{(cost['bytes_up'] + cost['bytes_down']) / 1e6:,.0f}"
        stages = [cell(rows[label, stage].mean, True) for stage in BOTH]
        table.append([label, *stages, str(cost["rounds"]), megabytes])
    return table


def fupga() -> Table:
    """Return FUPGA at slower rates, with the paper's numbers in the last row."""
    name = "fupga-fmnist"
    both = {setting: rows_of(name, setting) for setting in ("CN=1", "CN=5")}
    head = ["method", *(f"{setting}, {stage}" for setting in both for stage in BOTH)]
    first = [c for rows in both.values() for c in (cell(rows["w0", "initial"].mean), "")]
    table = [head, ["w0", *first]]
    for label in labels_of(name):
        table.append([label, *(cell(rows[label, stage].mean) for rows in both.values() for stage in BOTH)])
    printed = [rows[labels_of(name)[0], "unlearned"].paper for rows in both.values()]
    table.append(["paper", *(c for found in printed for c in (cell(found), ""))])
    return table


def seeds(name: str) -> Table:
    """Return runs of one command over seeds."""
    table = [["seed", "w0", *BOTH, "improve / expand / failed", "kept"]]
    for run in load(name).values():
        stages = [cell(run["stages"][stage], True) for stage in ("initial", *BOTH)]
        phases = " / ".join(str(run["phases"][p]) for p in ("improve", "expand", "failed"))
        table.append([str(run["seed"]), *stages, phases, run["final"]])
    return table


def demo() -> Table:
    """Return runs of the demo over seeds: before, after, at its worst later, and what the audit concludes."""
    table = [["seed", "before", "after", "worst ASR later", "retrained", "way gone", "shown / open / refuted"]]
    for run in load("demo-digits").values():
        kept = run["final"]
        later = [short(run["later"][stage]) for stage in (kept, "retrained")]
        counts = " / ".join(str(run["checks"][result]) for result in ("shown", "open", "refuted"))
        stages = [cell(run["stages"][stage]) for stage in ("initial", kept)]
        table.append([str(run["seed"]), *stages, *later, percent([run], "relearning"), counts])
    return table


def participation() -> Table:
    """Return FUPareto with a share of the retained clients, with the worst client's accuracy and the traffic."""
    name = "participation-fmnist"
    asked = {"FUPareto, everybody": "everybody", "FUPareto, a half": "a half (8)", "FUPareto, a fifth": "a fifth (3)"}
    head = ["asked of 15 retained clients", *BOTH, "worst client, unlearned", "recovered", "MB up", "MB down"]
    first = cell_of(name, "CN=5", "FUPareto, everybody")["stages"]["initial"]
    table = [head, ["w0", cell(first), "", short(first["r_acc_min"]), "", "", ""]]
    for label, words in asked.items():
        run = cell_of(name, "CN=5", label)
        stages = [run["stages"][stage] for stage in BOTH]
        traffic = [f"{run['cost'][way] / 1e6:,.0f}" for way in ("bytes_up", "bytes_down")]
        table.append([words, *map(cell, stages), *(short(s["r_acc_min"]) for s in stages), *traffic])
    return table


# Digits ------------------------------------------------------------------------------------------------------------


def requests() -> Table:
    """Return accuracy on what was to be forgotten, and R-Acc, of the model after the last stage."""
    name, settings = "requests-digits", ("class 4", "poisoned samples")
    first = [cell_of(name, s, "Retraining")["stages"]["initial"] for s in settings]
    table = [["method", *settings], ["w0", *(cell(stage, True, "forget_acc") for stage in first)]]
    for label in labels_of(name):
        shown = []
        for setting in settings:
            [run] = [c for c in load(name)["cells"] if (c["setting"], c["label"]) == (setting, label)]
            stages = run.get("stages", {})
            last = stages.get("recovered", stages.get("unlearned"))
            shown.append(cell(last, True, "forget_acc") if last else "refuses")
        table.append([label, *shown])
    return table


def recovery() -> Table:
    """Return what each recovery brings back, from one unlearned model per seed."""
    rows = load("recovery-digits")["rows"]
    found = {(row["seed"], row["recovery"]): row for row in rows}
    table = [["recovery", "seed 0", "seed 1"]]
    table.append(["unlearned, before", *(cell(found[seed, "guard"]["unlearned"]) for seed in (0, 1))])
    for kind in ("guard", "away", "project", "printed", "none"):
        table.append([f"`{kind}`", *(cell(found[seed, kind]["recovered"]) for seed in (0, 1))])
    return table


# Membership --------------------------------------------------------------------------------------------------------


def auc(found: Mapping[str, Any], digits: int = 2) -> str:
    """Return an AUC with its interval."""
    low, high = short(found["low"], digits), short(found["high"], digits)
    return f"{short(found['auc'], digits)} ({low}–{high})"


def _models(name: str, setting: str, seed: int) -> list[dict[str, Any]]:
    """Return what the attacks told of w0, then of every method's final model."""
    runs = [cell_of(name, setting, label, seed) for label in labels_of(name)]
    return [runs[0]["membership"]["initial"], *(run["membership"][run["final"]] for run in runs)]


def _mean_error(values: Sequence[float]) -> str:
    return f"{short(fmean(values))} ± {short(stdev(values) / len(values) ** 0.5)}"


def membership(name: str) -> Table:
    """Return AUCs of the learned attack by client, then their means with standard errors."""
    [setting] = load(name)["settings"]
    table = [["seed, client", "w0", *labels_of(name)]]
    columns: list[list[float]] = [[] for _ in table[0][1:]]
    for seed in setting["seeds"]:
        told = _models(name, setting["name"], seed)
        for client in told[0]["clients"]:
            found = [model["clients"][client] for model in told]
            table.append([f"{seed}, {client}", *map(auc, found)])
            for column, one in zip(columns, found, strict=True):
                column.append(one["auc"])
    table.append(["mean ± its standard error", *map(_mean_error, columns)])
    return table


def untriggered() -> Table:
    """Return mean AUCs over clients where non-members carry no trigger."""
    runs = load("membership-untriggered")["runs"]
    table = [["data", "w0", "Retraining", "FedOSD", "FUPareto", "FUPareto, UCE"]]
    for words, name in (("Fashion-MNIST", "membership-fmnist"), ("digits", "membership-digits")):
        mine = {key: run for key, run in runs.items() if key.startswith(f"{name}/")}
        first = [v for key, run in mine.items() if key.endswith("/retraining") for v in run["initial"].values()]
        means = [fmean(first)]
        for slugs in (("retraining",), ("fedosd",), ("fupareto", "fupareto-s3"), ("fupareto-uce",)):
            means.append(fmean(_last(mine, slugs)))
        table.append([words, *map(short, means)])
    return table


def _last(runs: Mapping[str, Any], slugs: Iterable[str]) -> list[float]:
    found = []
    for key, run in runs.items():
        if key.rpartition("/")[2] in slugs:
            [stage] = [stage for stage in run if stage != "initial"]
            found += list(run[stage].values())
    return found


def by_heart() -> Table:
    """Return ASR and two attacks on the final models of CIFAR-10."""
    name, setting = "convergence-cifar10", "CN=2"
    runs = [cell_of(name, setting, label) for label in labels_of(name)]
    table = [["model", "ASR", "learned, on sorted outputs", "loss, which knows the label"]]
    models = [("w0", runs[0], "initial"), *((run["label"], run, run["final"]) for run in runs)]
    for label, run, stage in models:
        attacks = run["membership"][stage]["attacks"]
        table.append([label, short(run["stages"][stage]["asr"]), auc(attacks["confidence"]), auc(attacks["loss"])])
    return table


def loss_attack() -> Table:
    """Return mean AUCs of the attack that knows the label, over clients of one seed or over seeds."""
    table = [["data", "w0", "Retraining", "FedOSD", "FUPareto", "FUPareto, UCE"]]
    for words, name, setting in (
        ("Fashion-MNIST, two seeds", "membership-fmnist", "CN=5"),
        ("digits, five seeds", "membership-digits", "CN=2"),
    ):
        columns: list[list[float]] = [[] for _ in table[0][1:]]
        [declared] = load(name)["settings"]
        for seed in declared["seeds"]:
            for column, model in zip(columns, _models(name, setting, seed), strict=True):
                column.append(model["attacks"]["loss"]["auc"])
        table.append([words, *(short(fmean(column)) for column in columns)])
    for words, name, setting, labels in (
        ("GTSRB, one seed", "table1-gtsrb", "CN=5", LOSSES),
        ("CIFAR-10, one seed", "convergence-cifar10", "CN=2", (*LOSSES, "FUPareto, UCE")),
    ):
        runs = [cell_of(name, setting, label) for label in labels]
        found = [runs[0]["membership"]["initial"], *(run["membership"][run["final"]] for run in runs)]
        means = [short(model["attacks"]["loss"]["auc"]) for model in found]
        table.append([words, *means, *[""] * (len(table[0]) - 1 - len(means))])
    return table


def audited() -> Table:
    """Return the attacks of a tier 3 audit on the demo's models."""
    told = load("audit-demo")["audit"]["membership"]
    table = [["attack", "initial", "recovered (kept)", "retrained"]]
    for words, names in (
        ("confidence (learned)", ("confidence", "confidence", "confidence")),
        ("loss", ("loss", "loss", "loss")),
        ("RMIA", ("rmia", "rmia", "rmia")),
        ("LiRA, then U-LiRA", ("lira", "u-lira", None)),
    ):
        means = [told[stage]["mean"] for stage in ("initial", "recovered", "retrained")]
        found = [auc(mean[name], 3) if name else "" for mean, name in zip(means, names, strict=True)]
        table.append([words, *found])
    return table


def checks() -> Table:
    """Return the audit's checks of the demo's model."""
    found = load("audit-demo")["audit"]["verdict"]["checks"]
    return [["check", "result", "measured"], *([c["name"], c["result"], c["text"]] for c in found)]


# Tuning ------------------------------------------------------------------------------------------------------------


def _tuned(stage: str) -> dict[str, dict[str, Stage]]:
    found: dict[str, dict[str, Stage]] = {}
    for run in load("tune-fmnist")["cells"]:
        method, _, value = run["label"].partition(" ")
        if value.startswith("recovery_lr") == (stage == "recovered"):
            found.setdefault(method, {})[value] = run["stages"][stage]
    return found


def score(stage: Stage) -> float:
    """Return what the grid chose by: R-Acc - ASR."""
    return float(stage["r_acc"] - stage["asr"])


def grid(stage: str) -> Table:
    """Return every value that was tried, in increasing order, and which was best."""
    table = [["method", "value", stage, "R-Acc − ASR", "chosen"]]
    for method, values in _tuned(stage).items():
        best = max(values, key=lambda value: score(values[value]))
        for value in sorted(values, key=_numbers):
            chosen = "yes" if value == best else ""
            table.append([method, value, cell(values[value]), short(score(values[value])).replace("-0", "-"), chosen])
    return table


def _numbers(value: str) -> list[float]:
    """Order values by their main option; a smaller mu comes after a larger one of the same rate."""
    numbers = [float(part.partition("=")[2]) for part in value.split(" ")]
    return [numbers[0], -(numbers[1] if len(numbers) > 1 else 1.0)]


# The page in front -------------------------------------------------------------------------------------------------


def overview() -> Table:
    """Return the one table of docs/results.md."""
    table = [["setting", "w0", "FUPareto", "`fupareto:paper`", "FedOSD", "FUGAS", "Retraining"]]
    for words, name, setting in (
        ("Fashion-MNIST, 5 of 20, two seeds", "table1-fmnist", "CN=5"),
        ("Fashion-MNIST, 1 of 20, one fresh seed", "table1-fmnist-fresh", "CN=1"),
        ("GTSRB, 1 of 20, one seed", "table1-gtsrb-cn1", "CN=1"),
        ("GTSRB, 5 of 20, one seed", "table1-gtsrb", "CN=5"),
        ("CIFAR-10, 2 of 10, one seed", "convergence-cifar10", "CN=2"),
    ):
        rows = rows_of(name, setting)
        others = [cell(rows[label, "recovered"].mean) for label in ("FUPareto s=3", "FedOSD", "FUGAS")]
        ends = [cell(rows[key].mean) for key in (("w0", "initial"), ("Retraining", "unlearned"))]
        table.append([words, ends[0], others[0], "not run", *others[1:], ends[1]])
    rows = rows_of("ablation-fmnist", "CN=3")
    paper = cell(load("ablation-paper")["paper-0.2"]["stages"]["unlearned"])
    first, ours = cell(rows["w0", "initial"].mean), cell(rows["FUPareto", "recovered"].mean)
    table.append(["Fashion-MNIST, 3 of 10, one seed", first, ours, paper, "not run", "not run", "not run"])
    return table


LASTING = {
    "lasting-digits": "digits",
    "lasting-fmnist": "Fashion-MNIST",
    "lasting-fmnist-cn5": "Fashion-MNIST, 5 of 20",
    "lasting-cifar10": "CIFAR-10",
    "lasting-gtsrb": "GTSRB",
}


def measured_there(name: str, setting: str | None = None) -> bool:
    """Return whether a bench has a result file, with cells of a setting."""
    if not (ROOT / "results" / f"{name}.json").exists():
        return False
    return setting is None or any(cell["setting"] == setting for cell in load(name)["cells"])


def lasting_models(name: str) -> dict[str, list[Stage]]:
    """Return by model and seed what audits say: now, at its worst later, ways gone, and what it cost."""
    results, runs = load(name), [c for c in load(name)["cells"] if "stages" in c]
    first = list({c["seed"]: c for c in reversed(runs)}.values())

    def told(run: Stage, stage: str, cost: Stage, way: Stage) -> Stage:
        models = run["lasting"]["models"]
        size = (cost["bytes_up"] + cost["bytes_down"]) / 1e6 if cost else None
        apart = models[stage]["divergence"] / models["retrained-2"]["divergence"]
        more = {"apart": apart, "way": way, "rounds": cost.get("rounds"), "MB": size}
        return {**run["stages"].get(stage, {}), **models[stage], **more}

    found = {"w0": [told(c, "initial", {}, {}) for c in first]}
    found["retrained"] = [  # two for every seed; how far they are apart is the unit
        {**told(c, stage, c["lasting"]["retraining"], {}), "apart": None}
        for c in first
        for stage in ("retrained", "retrained-2")
    ]
    for label in (m["label"] for m in results["methods"]):
        if mine := [c for c in runs if c["label"] == label]:
            few = "" if len(mine) == len(first) else f" ({len(mine)} of {len(first)} seeds)"
            found[label + few] = [told(c, c["final"], c["cost"], c["lasting"]["way"]) for c in mine]
    return found


def average(models: Sequence[Stage], key: str) -> float | None:
    """Return the mean over all seeds; None if a model was not measured so on any of them."""
    values = [m[key] for m in models]
    return None if all(v is None for v in values) else fmean(values)


def percent(models: Sequence[Stage], way: str) -> str:
    """Return the mean way gone, with the number of seeds if it is not defined on all; nothing where it is on none."""
    values = [m["way"][way] for m in models if m["way"].get(way) is not None]
    few = "" if len(values) == len(models) else f" ({len(values)} of {len(models)})"
    return f"{100 * fmean(values):.0f} %{few}" if values else ""


def times(value: float | None) -> str:
    """Return a ratio."""
    return "" if value is None else f"{value:.1f} ×"


def whole(value: float | None) -> str:
    """Return a rounded number; nothing for none."""
    return "" if value is None else f"{value:,.0f}"


def lasting(name: str) -> Table:
    """Return a row per model: now, at its worst later, and on the way to retraining."""
    header = ["model", "ASR", "worst ASR later", "R-Acc", "worst client", "slow relearning", "way gone", "loss AUC"]
    header += ["way gone ", "apart", "rounds", "MB"]
    rows = []
    for label, models in lasting_models(name).items():
        shares = [short(average(models, key)) for key in ("asr", "later", "r_acc", "r_acc_min", "relearning", "loss")]
        ways = [percent(models, way) for way in ("relearning", "loss")]
        costs = [whole(average(models, key)) for key in ("rounds", "MB")]
        apart = times(average(models, "apart"))
        rows.append([label, *shares[:5], ways[0], shares[5], ways[1], apart, *costs])
    return [[word.strip() for word in header], *rows]


def lasting_checks() -> Table:
    """Return how many checks of each method's models are shown, open and refuted, over all settings and seeds."""
    names = [name for name in LASTING if measured_there(name)]
    table = [["method", "shown", "open", "refuted"]]
    for label in labels_of(names[0]):
        tallies = [c["checks"] for name in names for c in load(name)["cells"] if c["label"] == label and "stages" in c]
        table.append([label, *(str(sum(tally[word] for tally in tallies)) for word in table[0][1:])])
    return table


def lasting_overview() -> Table:
    """Return a row per data set: w0, FUPareto and a retrained model."""
    header = ["data", "ASR", "worst ASR later", "R-Acc", "slow relearning: way gone", "loss attack: way gone", "apart"]
    rows = []
    for name, words in LASTING.items():
        if not measured_there(name):
            continue
        found = lasting_models(name)
        three = [found[label] for label in ("w0", "FUPareto", "retrained")]
        shares = [" → ".join(short(average(m, key)) for m in three[:2]) for key in ("asr", "later", "r_acc")]
        shares = [
            f"{own} ({short(average(three[2], key))})"
            for own, key in zip(shares, ("asr", "later", "r_acc"), strict=True)
        ]
        ways = [percent(three[1], way) for way in ("relearning", "loss")]
        rounds, training = average(three[1], "rounds"), average(three[2], "rounds")
        assert rounds is not None
        assert training is not None
        rows.append([words, *shares, *ways, times(average(three[1], "apart")), f"{rounds:.0f} of {training:.0f}"])
    return [[*header, "rounds"], *rows]


def rates() -> Table:
    """Return ASR, R-Acc and rounds of FUPareto by its starting rate."""
    results = load("rates")
    settings = [s["name"] for s in results["settings"]]
    rows = []
    for label in (m["label"] for m in results["methods"]):
        row = [label.removeprefix("FUPareto lr=")]
        for setting in settings:
            mine = [c for c in results["cells"] if c["label"] == label and c["setting"] == setting]
            kept = [c["stages"][c["final"]] for c in mine]
            means = {key: fmean(stage[key] for stage in kept) for key in ("asr", "r_acc")}
            row += [cell(means), f"{fmean(c['cost']['rounds'] for c in mine):.0f}"]
        rows.append(row)
    return [["starting rate", *(word for s in settings for word in (s, "rounds"))], *rows]


def scheduled() -> Table:
    """Return what FUPareto keeps and what comes back, by how renewal ends; means over the seeds."""
    rows = [row for row in load("tune-schedule")["rows"] if row["method"] == "fupareto"]
    keys = ("r_acc", "r_acc_min", "later", "r_acc_later")
    table = [["data", "seeds", "renewal ends with", "R-Acc", "worst client", "worst ASR later", "R-Acc later"]]
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data]
        seeds = sorted({row["seed"] for row in mine})
        before = {row["seed"]: row["initial"] for row in mine}.values()
        w0 = [short(fmean(initial[key] for initial in before)) for key in keys[:2]]
        table.append([data, ", ".join(map(str, seeds)), "w0", *w0, "", ""])
        for schedule in dict.fromkeys(row["schedule"] for row in mine):
            told = [row for row in mine if row["schedule"] == schedule]
            assert sorted(row["seed"] for row in told) == seeds
            table.append(["", "", SCHEDULES[schedule], *(short(fmean(row[key] for row in told)) for key in keys)])
    return table


def tuned() -> Table:
    """Return ASR / R-Acc of every value of the compared methods' main options; the best of a data set has a tick."""
    results = load("tune-lasting")
    settings = [s["name"] for s in results["settings"]]
    labels = [m["label"] for m in results["methods"]]
    kept = {(c["label"], c["setting"]): c["stages"][c["final"]] for c in results["cells"] if "stages" in c}

    def score(label: str, setting: str) -> float:
        stage = kept.get((label, setting))
        return float(stage["r_acc"] - stage["asr"]) if stage else -math.inf

    rows = []
    for label in labels:
        family = [other for other in labels if other.rsplit(" ", 1)[0] == label.rsplit(" ", 1)[0]]
        cells = []
        for setting in settings:
            best = max(family, key=lambda other: score(other, setting))
            own = cell(kept[label, setting]) if (label, setting) in kept else "diverged"
            cells.append(f"{own} ✓" if label == best else own)
        rows.append([*label.rsplit(" ", 1), *cells])
    return [["method", "value", *settings], *rows]


def front() -> Table:
    """Return the one table of README.md."""
    table = [["setting", "before", "FUPareto without renewal", "FedOSD", "Retraining"]]
    for words, name, setting in (
        ("Fashion-MNIST, 5 of 20 clients forgotten, two seeds", "table1-fmnist", "CN=5"),
        ("GTSRB, 5 of 20, one seed", "table1-gtsrb", "CN=5"),
        ("CIFAR-10, 2 of 10, one seed", "convergence-cifar10", "CN=2"),
    ):
        rows = rows_of(name, setting)
        keys = (("w0", "initial"), ("FUPareto s=3", "recovered"), ("FedOSD", "recovered"), ("Retraining", "unlearned"))
        table.append([words, *(cell(rows[key].mean) for key in keys)])
    return table


# Attacks -------------------------------------------------------------------------------------------------------------


def by_attack(part: str) -> dict[str, list[Any]]:
    """Return the runs of a part of results/attacks.json, all seeds, by attack."""
    found: dict[str, list[Any]] = {}
    for row in load("attacks")[part]:
        found.setdefault(row["attack"], []).append(row)
    return found


def lied_in_training() -> Table:
    """Return the accuracy of the honest clients by attack and average, means over seeds."""
    averages = {"mean, off": "`mean` without limits", "mean": "`mean`", "trimmed": "`trimmed`", "median": "`median`"}
    body = [
        [attack, *(short(fmean(row["accuracy"][how] for row in rows)) for how in averages)]
        for attack, rows in by_attack("training").items()
    ]
    return [["attack", *averages.values()], *body]


def lied_to_fupareto() -> Table:
    """Return steps, ASR and R-Acc of the honest clients by attack, without and with the rules, means over seeds."""
    head = ["attack", "steps without", "ASR / R-Acc without", "steps", "ASR / R-Acc", "named"]
    lines = []
    for attack, rows in by_attack("unlearning").items():
        line = [attack]
        for rule in ("off", "on"):
            means = {key: fmean(row[rule][key] for row in rows) for key in ("steps", "asr", "r_acc")}
            line += [f"{means['steps']:.0f}", cell(means)]
        right = sum(row["on"]["named"] == [row["liar"]] for row in rows)
        nobody = not any(row["on"]["named"] for row in rows)
        lines.append([*line, "nobody" if nobody else f"{right} of {len(rows)}"])
    return [head, *lines]


# The paper, cell by cell ---------------------------------------------------------------------------------------------

COLUMNS = [("table1", d, n) for d in ("FMNIST", "CIFAR-100", "GTSRB") for n in (1, 5)]
COLUMNS += [("ablation", d, 3) for d in ("FMNIST", "CIFAR-10", "CIFAR-100")]
WORDS = ["reproduced", "better", "worse", "contradicted", "not comparable", "not run"]


Source = tuple[str, str]  # a result file and the setting of it that answers a column of the paper


@cache
def sources(table: str, dataset: str, forget: int) -> tuple[Source, ...]:
    """Return the listed result files that answer a column of the paper: the first, and those with cells it lacks."""
    found: list[Source] = []
    have: set[tuple[str, str]] = set()
    for name in tomllib.loads((ROOT / "docs/results/paper.toml").read_text())["sources"]:
        if (ROOT / "results" / f"{name}.json").exists() and load(name)["paper"] == table:
            for setting in load(name)["settings"]:
                if setting["paper"] == {"dataset": dataset, "CN": forget}:
                    rows = beside(table, dataset, forget, (name, setting["name"]))[1:]
                    new = {(row[0], row[1]) for row in rows if row[-1] != "not run"} - have
                    found += [(name, setting["name"])] if new else []
                    have |= new
    return tuple(found)


def part(table: str, dataset: str, forget: int, number: int) -> Table:
    """Return one of the tables of a column; only the last one has rows of cells that were not run."""
    found = sources(table, dataset, forget)
    shown = beside(table, dataset, forget, found[number] if found else None)
    return [row for row in shown if number >= len(found) - 1 or row[-1] != "not run"]


@cache
def beside(table: str, dataset: str, forget: int, found: Source | None) -> Table:
    """Return every cell of a column of the paper beside that of a result file, with the verdict."""
    rows = rows_of(*found) if found else {}
    named = {m["label"]: _plain(m["paper"]) for m in load(found[0])["methods"] if m["paper"]} if found else {}
    ours = {(named.get(label, label), stage): row.mean for (label, stage), row in rows.items()}
    words = {"initial": "initial", "unlearn": "unlearned", "post": "recovered"}
    printed = [r for r in _paper_tables()[table]["rows"] if (r["dataset"], r["CN"]) == (dataset, forget)]
    head = ["method", "stage", "paper", "ours", "ASR, ours − paper", "R-Acc from w0, ours − paper", "verdict"]
    shown = [head]
    for row in printed:
        stage = words.get(row["stage"], "unlearned")
        line = [row["method"], stage, f"{short(row['ASR'])} / {short(row['R_Acc_mean'])}"]
        mine = ours.get((_plain(row["method"]), stage))
        if mine is None:
            shown.append([*line, "", "", "", "not run"])
            continue
        asr, change = mine["asr"] - row["ASR"], mine["r_acc"] - ours["w0", "initial"]["r_acc"]
        their_change = row["R_Acc_mean"] - printed[0]["R_Acc_mean"]
        line += [cell(mine), signed(asr)]
        if stage == "initial":
            shown.append([*line, "", "where both start"])
            continue
        start = (ours["w0", "initial"]["asr"], ours["w0", "initial"]["r_acc"])
        known = (printed[0]["ASR"], printed[0]["R_Acc_mean"])
        said = judged((mine["asr"], change, *start), (row["ASR"], their_change, *known))
        shown.append([*line, signed(change - their_change), said])
    return shown


def judged(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the verdict on ASR, change of R-Acc, and ASR and R-Acc of w0, from the words of the page."""
    if ours[2] < theirs[2] / 2 or ours[3] < theirs[3] / 2:
        return "not comparable"
    worse_asr, worse_change = round(ours[0] - theirs[0], 9), round(theirs[1] - ours[1], 9)
    better = worse_asr < -0.05 or worse_change < -0.04
    worse = worse_asr > 0.05 or worse_change > 0.04
    if not better and not worse:
        return "reproduced"
    forgets = abs(worse_asr) > 0.05 and (ours[0] < ours[2] / 2) != (theirs[0] < theirs[2] / 2)
    costs = abs(worse_change) > 0.04 and (round(ours[1], 9) < -0.04) != (round(theirs[1], 9) < -0.04)
    if forgets or costs or (better and worse):
        return "contradicted"
    return "better" if better else "worse"


def signed(value: float) -> str:
    """Return a difference with its sign."""
    return f"{'−' if round(value, 3) < 0 else '+'}{short(abs(value))}"


def counted() -> Table:
    """Return how many cells of each column have each verdict."""
    names = {"table1": "Table I", "ablation": "Ablation", "FMNIST": "Fashion-MNIST"}
    lines = []
    for table, dataset, forget in COLUMNS:
        verdicts: dict[tuple[str, str], str] = {}
        for found in sources(table, dataset, forget) or (None,):
            for row in beside(table, dataset, forget, found)[1:]:
                if verdicts.get((row[0], row[1]), "not run") == "not run" and row[1] != "initial":
                    verdicts[row[0], row[1]] = row[-1]
        said = list(verdicts.values())
        title = f"{names[table]}, {names.get(dataset, dataset)}, CN = {forget}"
        lines.append([title, *(str(said.count(word)) for word in WORDS)])
    total = [str(sum(int(line[k]) for line in lines)) for k in range(1, len(WORDS) + 1)]
    return [["column", *WORDS], *lines, ["all", *total]]


EXPECTED: dict[str, Callable[[], Table]] = {
    "paper counts": counted,
    **{
        f"paper {table} {d} CN={n} {name}": partial(part, table, d, n, number)
        for table, d, n in COLUMNS
        for number, name in enumerate([name for name, _ in sources(table, d, n)] or ["not run"])
    },
    "overview": overview,
    "front": front,
    "front lasting": lasting_overview,
    "lasting": lasting_overview,
    **{name: partial(lasting, name) for name in LASTING if measured_there(name)},
    "attacks training": lied_in_training,
    "attacks unlearning": lied_to_fupareto,
    "lasting checks": lasting_checks,
    "rates": rates,
    "tune-lasting": tuned,
    "tune-schedule": scheduled,
    "table1-fmnist CN=5": lambda: methods("table1-fmnist", "CN=5", False, BOTH),
    "table1-fmnist CN=1": lambda: methods("table1-fmnist", "CN=1", False, BOTH),
    **{
        f"{name} {setting}": partial(methods, name, setting, False, BOTH)
        for name in ("table1-fmnist-fresh", "table1-fmnist-full")
        for setting in ("CN=1", "CN=5")
        if measured_there(name, setting)
    },
    "table1-gtsrb": lambda: methods("table1-gtsrb", "CN=5", True, BOTH),
    **(
        {"table1-gtsrb-cn1": lambda: methods("table1-gtsrb-cn1", "CN=1", True, BOTH)}
        if measured_there("table1-gtsrb-cn1")
        else {}
    ),
    "table1-cifar100": lambda: methods("table1-cifar100", "CN=1", True, BOTH),
    "convergence-cifar10": lambda: methods("convergence-cifar10", "CN=2", True),
    "fmnist-cn5": lambda: seeds("fmnist-cn5"),
    **{name: partial(ablation, name) for name in ABLATIONS if measured_there(name)},
    **({"projection-fmnist": projection} if measured_there("projection-fmnist") else {}),
    "ablation-paper": literal,
    "contradictions-gtsrb": tried,
    "expansion-harm": harm,
    "table1-fmnist-small CN=5": lambda: methods("table1-fmnist-small", "CN=5", True),
    "table1-fmnist-small CN=1": lambda: methods("table1-fmnist-small", "CN=1", True),
    "sequential-fmnist": sequential,
    "heterogeneity-fmnist": lambda: by_setting("heterogeneity-fmnist"),
    "population-fmnist": lambda: by_setting("population-fmnist"),
    "participation-fmnist": participation,
    "demo-digits": demo,
    "requests-digits": requests,
    "recovery-digits": recovery,
    "membership-fmnist": lambda: membership("membership-fmnist"),
    "membership-digits": lambda: membership("membership-digits"),
    "membership-untriggered": untriggered,
    "membership-cifar10": by_heart,
    "membership-loss": loss_attack,
    "audit-demo attacks": audited,
    "audit-demo checks": checks,
    "tune-fmnist unlearned": lambda: grid("unlearned"),
    "tune-fmnist recovered": lambda: grid("recovered"),
    "fupga-fmnist": fupga,
}
