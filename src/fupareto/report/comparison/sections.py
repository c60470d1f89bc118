"""Sections of the page that compares runs."""

from fupareto.report.figures.comparison import MOST_CURVES, MOST_ROWS
from fupareto.report.markup import (
    Safe,
    count,
    decimal,
    duration,
    interval,
    join,
    measured,
    names,
    number,
    percent,
    points,
    score,
    size,
    tag,
)
from fupareto.report.parts import cell, figure, note, row, section
from fupareto.report.parts import table as as_table
from fupareto.report.view import HEADLINE, RunView
from fupareto.tally import with_tally

COLUMNS = (
    ("asr", "ASR", percent),
    ("asr_max", "worst client’s ASR", percent),
    ("r_acc", "R-Acc", percent),
    ("r_acc_min", "worst retained", percent),
    ("distance", "distance", decimal),
)
UNMARKED = ("forget_acc", "forget accuracy", percent)
COSTS = (
    ("rounds", "rounds", count),
    ("seconds", "time", duration),
)


def header(runs: list[RunView]) -> Safe:
    """The number of runs, and a warning where they differ in more than their method."""
    title = f"{len(runs)} runs side by side" if len(runs) != 1 else "One run"
    return tag("header", tag("p", "Comparison of runs", class_="eyebrow"), tag("h1", title), _differences(runs))


def _differences(runs: list[RunView]) -> Safe | None:
    """What makes the runs unlike each other, besides their method."""
    unlike = []
    for key, title in (
        ("dataset", "data set"),
        ("model", "model"),
        ("clients", "clients"),
        ("forget", "forget clients"),
        ("seed", "seed"),
    ):
        if len({repr(run.summary.get(key)) for run in runs}) > 1:
            unlike.append(title)
    if not unlike:
        return None
    what = ", ".join(unlike)
    text = f"These runs differ in more than their method: {what}."
    return tag("p", text, class_="warning")


def _who(run: RunView) -> Safe:
    about = [str(run.summary[key]) for key in ("method", "dataset", "model") if run.summary.get(key)]
    return join(tag("bdi", run.name), tag("small", " · ".join([*about, run.final or "no model"])))


def table(runs: list[RunView]) -> Safe:
    """One row per run: the final model's numbers, the initial one's below, and the cost."""
    columns = [column for column in COLUMNS if not column[0].startswith("asr") or any(run.marked for run in runs)]
    columns += [UNMARKED] if any(not run.marked for run in runs) else []
    rows = []
    for index, run in enumerate(runs):
        cells = []
        for key, _, form in columns:
            end = number(f"runs.{index}.stages.{run.final}.{key}", run.value(run.final, key), form)
            start = None
            if run.final != "initial" and key != "distance":
                old = number(f"runs.{index}.stages.initial.{key}", run.value("initial", key), form)
                start = tag("small", "from ", old)
            cells.append(cell(end, start))
        spent = run.summary.get("cost") or {}
        cells += [cell(number(f"runs.{index}.cost.{key}", spent.get(key), form)) for key, _, form in COSTS]
        up, down = (number(f"runs.{index}.cost.{key}", spent.get(key), size) for key in ("bytes_up", "bytes_down"))
        rows.append(row(_who(run), *cells, cell(up, " up", tag("small", down, " down"))))
    heads = ["run", *(title for _, title, _ in (*columns, *COSTS)), "traffic"]
    explain = (
        "ASR is how much of the forget clients is still remembered (lower is better), R-Acc the mean "
        "accuracy of the retained clients (higher is better). “From” is the initial model of the same run."
    )
    content = as_table(heads, rows, "The numbers", "dense runs")
    return section("table", "The numbers", tag("p", explain, class_="small"), content, _audits(runs))


def _audits(runs: list[RunView]) -> Safe | None:
    """One row per audited run: membership, distance to a retrained model, later, relearning, gains, losses, checks."""
    found = [(index, run) for index, run in enumerate(runs) if run.audit]
    if not found:
        return None
    rows = []
    for index, run in found:
        key, final = f"runs.{index}.audit", run.final or ""
        auc = run.audited("membership", final, "mean", HEADLINE)
        place = f"{key}.membership.{final}.mean.{HEADLINE}"
        cells = [cell(number(f"{place}.auc", run.mean_leak(final), score), interval(place, auc))]
        for measure, form in ((run.forgetting, points), ("r_acc", points), ("divergence", decimal)):
            gap = run.audited("truth", "stages", final, measure)
            cells.append(cell(number(f"{key}.truth.stages.{final}.{measure}", gap, form)))
        later = run.audited("dormancy", "models", final, "worst")
        cells.append(cell(number(f"{key}.dormancy.models.{final}.worst", later, percent)))
        slow = run.audited("relearning", "models", final, "mean")
        gone = run.audited("way", "relearning", "models", final, "value")
        way = tag("small", number(f"{key}.way.relearning.models.{final}.value", gone, percent), " of the way")
        mean = number(f"{key}.relearning.models.{final}.mean", slow, percent)
        cells.append(cell(mean, way if measured(gone) is not None else None))
        cells += [_paid(run, f"{key}.exclusivity", side) for side in ("gained", "lost")]
        found_checks = run.tally or {}
        said = [tag("small", f"{times} {result}") for result, times in found_checks.items()]
        rows.append(row(_who(run), *cells, cell(*said)))
    heads = ["run", "membership AUC", "forgetting gap", "R-Acc gap", "bits apart", "worst later", "slow relearning"]
    heads += ["clients gained", "clients lost", "checks"]
    explain = (
        "Of each run’s final model. An AUC of 0.5 is best. Gaps are to a retrained model, in percentage points: of ASR "
        "(of forget accuracy where there is no backdoor) and of R-Acc; bits apart is how far the outputs differ. Worst "
        "later is what is remembered, at its worst, while the retained clients train on; slow relearning is how much "
        "is back in the mean over slow rounds on the forgotten data, with the way gone from the initial to a retrained "
        "model."
    )
    return join(
        tag("h3", "What the audits say"),
        tag("p", explain, class_="small"),
        as_table(heads, rows, "What the audits say", "dense runs"),
    )


def _paid(run: RunView, key: str, side: str) -> Safe:
    return cell(number(f"{key}.{side}", run.audited("exclusivity", side), count))


def from_to(runs: list[RunView]) -> Safe:
    """The first and the last model of each run."""
    shown = [run for run in runs if run.stages][:MOST_ROWS]
    caption = "Hollow circles are initial models, triangles unlearned ones, solid circles recovered ones."
    if len(shown) < len(runs):
        caption += f" {len(shown)} of {len(runs)} runs are drawn; the table has all."
    return section("from-to", "From start to end", figure("from-to", runs, caption, "No run has measured a model."))


def _too_many(runs: list[RunView]) -> Safe | None:
    if len([run for run in runs if run.history]) <= MOST_CURVES:
        return None
    return note(f"More than {MOST_CURVES} runs would hide each other here; see each run’s own report.")


def trajectories(runs: list[RunView]) -> Safe:
    """The trajectory of each run."""
    caption = "Dash and mark tell the runs apart; the large hollow mark is where a run ended."
    absent = "The runs have no measured rounds that lie in one plane."
    drawing = _too_many(runs) or figure("trajectories", runs, caption, absent)
    return section("trajectories", "Trajectories", drawing)


def curves(runs: list[RunView]) -> Safe:
    """The measures of each run by round."""
    absent = "No run has recorded a round."
    drawing = _too_many(runs) or figure("curves", runs, "Dash and mark tell the runs apart.", absent)
    return section("curves", "Round by round", drawing)


def membership(runs: list[RunView]) -> Safe | None:
    """The membership attack on each run's final model."""
    if not any(measured(run.mean_leak(run.final)) is not None for run in runs):
        return None
    caption = (
        "AUC of the membership attack on each run’s final model. The nearer to 0.5, the better; the attack is trained, "
        "so below 0.5 is chance. Lines are 95% intervals."
    )
    drawing = figure("membership-runs", runs, caption, "No run has an AUC to draw.")
    return section("membership", "Membership attacks", drawing)


def verdicts(runs: list[RunView]) -> Safe:
    """Each run's verdict, with the tally of its checks."""
    items = []
    for run in runs:
        who: object = run.part or names(run.forget)
        asked = join("Asked to forget ", who, ". ") if run.forget else None
        status = str(run.summary.get("status") or "unknown")
        state = None if status == "complete" else tag("strong", f" Status: {status}.")
        verdict = str(run.summary.get("verdict") or "No verdict.")
        items.append(
            join(
                tag("dt", tag("bdi", run.name)),
                tag("dd", asked, with_tally(verdict, run.tally) if run.judged else verdict, state),
            )
        )
    return section("verdicts", "In words", tag("dl", *items, class_="verdicts"))
