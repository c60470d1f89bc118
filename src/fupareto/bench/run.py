"""Running a bench: methods × settings × seeds, one initial model for all methods of a setting and seed.

Every cell and every training is an ordinary run directory, so an interrupted bench can continue: finished runs are
read, unfinished ones are resumed.

    OUT/SETTING/seed-9/training/      the initial model, with the history that the methods need
    OUT/SETTING/seed-9/METHOD/        one cell
    OUT/SETTING/seed-9/reference/     a retrained model that all of them are compared with, if the file asks for one
    OUT/SETTING/seed-9/curves/        further training of models that several cells share, measured once
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fupareto import experiment as experiments
from fupareto import trust
from fupareto.audit.assemble import FORMAT as AUDIT_FORMAT
from fupareto.audit.summary import cost
from fupareto.bench import reuse
from fupareto.bench.curves import StoredCurves
from fupareto.bench.file import CURVES, REFERENCES, Audit, Bench, Cell, cells
from fupareto.errors import Diverged, NotApplicable, UserError
from fupareto.federation import Request
from fupareto.methods.registry import kind
from fupareto.run.directory import Run
from fupareto.tally import tally_of
from fupareto.versions import versions
from fupareto.vocabulary import COST, RETRAINED, SECOND, STAGES

FORGOTTEN = 0.05  # an ASR at which a backdoor counts as forgotten, for what it took
MEASURED = ("asr", "asr_max", "r_acc", "r_acc_std", "r_acc_min", "forget_acc", "mia_auc", "distance")


def run(
    bench: Bench,
    out: Path,
    *,
    host: experiments.Host = experiments.SILENT,
    done: Callable[[Cell, dict[str, Any]], None] = lambda cell, result: None,
    known: reuse.Known = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Run every cell that is not finished and return all results.

    Args:
        bench: The bench, at one of its scales.
        out: Output directory.
        host: Surroundings of the runs.
        done: Called with every cell and its result when it is finished.
        known: Cells that were measured elsewhere; they are not run.
    """
    found = []
    taken = {
        cell.out: reuse.find(known, cell, bench) for cell in cells(bench, out)
    }  # refused before the first training
    for cell in cells(bench, out):
        result = taken[cell.out]
        if result is None:
            trust.name(cell.experiment.model, cell.entry.method, *cell.experiment.task_code)
            _train(cell, host)
            result = _answer(cell, bench, host)
        found.append(result)
        done(cell, result)
    return found


def _train(cell: Cell, host: experiments.Host) -> None:
    """Train the initial model of a cell unless it is finished."""
    if Run.begun(cell.trained) and (place := Run.open(cell.trained)).finished:
        stored, wanted = experiments.stored_experiment(place), cell.experiment
        changes: dict[str, Any] = {"name": wanted.name, "unlearn": wanted.unlearn}
        if set(wanted.train.record) <= set(stored.train.record):  # more history than needed is accepted
            changes["train"] = stored.train.model_copy(update={"record": wanted.train.record})
        if stored.model_copy(update=changes) != wanted:
            raise UserError(
                f"{cell.trained} was trained with other settings; choose another --out, or delete it to train again"
            )
        place.tidy()
        return
    experiments.train(cell.experiment, cell.trained, resume=True, host=host)


def _answer(cell: Cell, bench: Bench, host: experiments.Host) -> dict[str, Any]:
    """Run a cell, or read it; that a method cannot answer this request, or diverges, is a result too."""
    place = {"setting": cell.setting.name, "seed": cell.seed, "label": cell.entry.label, "method": cell.entry.method}
    try:
        run = experiments.unlearn(
            cell.trained,
            cell.out,
            method=cell.entry.method,
            options=cell.entry.options,
            sequential=cell.entry.sequential,
            measure_every=bench.measure_every,
            resume=True,
            attack=False,
            host=host,
        )
    except NotApplicable as error:
        return {**place, "status": "not applicable", "error": str(error)}
    except Diverged as error:
        return {**place, "status": "diverged", "error": str(error)}
    if bench.audit is not None:
        _audit(cell, run, bench.audit, host)
    elif run.audit is None:
        experiments.audit(run, dormancy=0, host=host)
    return {**place, **cell_result(run, kind(cell.entry.method).history, cell.trained)}


def _audit(cell: Cell, run: Run, asked: Audit, host: experiments.Host) -> None:
    """Audit a cell as the file asks, unless that was done; retrained models are made once for all methods."""
    trained = Run.open(cell.trained)
    experiment, request = experiments.stored_experiment(trained), Request.from_json(run.request)
    references = [cell.trained.parent / name for name in REFERENCES[: asked.retrain]]
    for number, out in enumerate(references):
        experiments.retrain_into(out, trained, experiment, request, number, host)
    if not _audited(run.audit, asked):
        curves = StoredCurves(cell.trained.parent / CURVES)
        experiments.audit(run, reference=references, dormancy=asked.dormancy, curves=curves, host=host)


def _audited(found: dict[str, Any] | None, asked: Audit) -> bool:
    """Whether an audit is as thorough as the file asks."""
    if found is None or found.get("format") != AUDIT_FORMAT:
        return False
    retrained = sum(name in (found["truth"] or {}) for name in (RETRAINED, SECOND))
    rounds = (found["dormancy"] or {}).get("rounds", 0)
    return retrained >= asked.retrain and rounds == asked.dormancy


def cell_result(run: Run, history: str, trained: Path) -> dict[str, Any]:
    """Return the parts of a finished run that the tables use."""
    summary = run.summary
    return {
        "status": summary["status"],
        "forget": summary["forget"],
        "stages": {s: {k: stage[k] for k in MEASURED} for s, stage in summary["stages"].items() if s in STAGES},
        "cost": {**summary["cost"], "storage": stored(run, history, trained)},
        "until": until(run.rounds()),
        "phases": summary["phases"],
        "checks": tally_of(summary, run.audit),
        "final": summary["final"],
        "membership": attacked(run),
        "lasting": lasting(run),
        "options": {k: v for k, v in run.config["method"].items() if k != "name"},
    }


def until(rounds: list[dict[str, Any]], forgotten: float = FORGOTTEN) -> dict[str, Any] | None:
    """Return the cost up to the first round that was measured with an ASR of at most ``forgotten``, and its R-Acc."""
    low = (k for k, record in enumerate(rounds, 1) if record.get("asr") is not None and record["asr"] <= forgotten)
    last = next(low, None)
    return None if last is None else {**cost(rounds[:last]), "r_acc": rounds[last - 1]["r_acc"]}


def attacked(run: Run) -> dict[str, Any]:
    """Return by stage the headline attack's result for each forget client, and the mean of every attack."""
    found = run.audit
    if found is None:
        return {}
    return {
        stage: {
            "mean": told["mean"].get("confidence"),
            "attacks": told["mean"],
            "clients": {i: client["attacks"]["confidence"] for i, client in told["clients"].items()},
        }
        for stage, told in found["membership"].items()
    }


def lasting(run: Run) -> dict[str, Any]:
    """Return what an audit says of the initial, the kept and the retrained models beyond the run itself.

    By stage the worst ASR (or forget accuracy) within further training and its curve, R-Acc after it, the mean of slow
    relearning, the loss attack's mean AUC, the divergence from the first retrained model in bits and the loss barrier
    to the initial model, for retrained models ASR and R-Acc too; the way that the kept model has gone, by measure; and
    what one retraining cost.
    """
    found, final = run.audit, run.summary["final"]
    if found is None or found.get("format") != AUDIT_FORMAT:
        return {}
    truth, ways = found["truth"] or {}, found["way"] or {}
    apart = ways.get("divergence", {}).get("values", {})
    models = {}
    for stage in ("initial", final, RETRAINED, SECOND):
        if stage in found["membership"]:
            models[stage] = {
                **({key: truth[stage][key] for key in MEASURED} if stage in truth else {}),
                "later": _of(found["dormancy"], stage, "worst"),
                "r_acc_later": _of(found["dormancy"], stage, "r_acc"),
                "relearning": _of(found["relearning"], stage, "mean"),
                "loss": found["membership"][stage]["mean"].get("loss", {}).get("auc"),
                "divergence": apart.get(stage, {}).get("value"),
                "curve": _of(found["dormancy"], stage, "curve"),
                "barrier": ((found.get("barrier") or {}).get(stage) or {}).get("height"),
            }
    way = {name: own["models"][final]["value"] for name, own in ways.items()}
    retraining = {key: truth[key] for key in COST if key in truth}
    return {"models": models, "way": way, "rounds": (found["dormancy"] or {}).get("rounds"), "retraining": retraining}


def _of(found: dict[str, Any] | None, stage: str, key: str) -> Any:
    return ((found or {}).get("models", {}).get(stage) or {}).get(key)


def stored(run: Run, history: str, trained: Path) -> int:
    """Return the bytes that the server holds for a method: its history, and its state without the model."""
    folder = trained / "history" / history
    kept = sum(map(_payload, folder.rglob("*.safetensors"))) if history else 0
    return kept + int(run.summary.get("stored") or 0)


def _payload(path: Path) -> int:
    """Return the bytes of a file's tensors, without the header that describes them."""
    with path.open("rb") as file:
        return path.stat().st_size - 8 - int.from_bytes(file.read(8), "little")


def results(bench: Bench, scale: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of results.json: the bench, the results of its cells, and software versions."""
    return {
        "format": 1,
        "name": bench.name,
        "title": bench.title,
        "scale": scale,
        "reduced": bench.reduced,
        "measure_every": bench.measure_every,
        "paper": bench.paper,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "experiment": bench.experiment,
        "settings": [
            {"name": s.name, "experiment": s.experiment, "seeds": s.seeds or bench.seeds, "paper": s.paper}
            for s in bench.settings
        ],
        "methods": [
            {"label": m.label, "method": m.method, "sequential": m.sequential, "paper": m.paper} for m in bench.methods
        ],
        "cells": found,
    }
