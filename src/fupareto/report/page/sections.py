"""The page's sections on results: verdict, stages, trajectory, convergence, clients."""

import re

from fupareto.report.figures.by_round import MOST_MARKS
from fupareto.report.figures.clients import MOST_BARS
from fupareto.report.markup import (
    Safe,
    count,
    duration,
    escape,
    join,
    measured,
    names,
    number,
    percent,
    points,
    tag,
)
from fupareto.report.measures import BY_KEY, MEASURES, STAGE_MEANING, Measure
from fupareto.report.parts import cell, figure, note, row, section, table
from fupareto.report.view import FAILED, STAGES, RunView, outcome
from fupareto.tally import RESULTS, without_tally, words

LONGEST_TITLE = 170  # characters of a verdict that are read as one
LEADS = {  # what a round did: where it leads in the plane of the trajectory
    "renew": "Renewal leads left, and up while the retained clients train the renewed model.",
    "improve": "An improvement is meant to lead left or up without harm to any client.",
    "expand": "An expansion leads left when no improvement is found.",
    "recover": "Recovery leads up.",
    FAILED: "A cross is a round without a step.",
}


def headline(verdict: str) -> tuple[str, str]:
    """The verdict's first sentences, as many as make a title, and the rest."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", verdict.strip())
    shown = 1
    while shown < len(sentences) and len(" ".join(sentences[: shown + 1])) <= LONGEST_TITLE:
        shown += 1
    return " ".join(sentences[:shown]), " ".join(sentences[shown:])


def _asked(run: RunView) -> Safe:
    """The request: who or what is to be forgotten, by which model."""
    about = run.summary
    learner = join("a model", " (", about["model"], ")") if about.get("model") else escape("a model")
    owners = f"{run.owners} clients"
    data = join(" on ", about["dataset"]) if about.get("dataset") else None
    if not run.forget:
        return join(f"{owners} trained ", learner, " together", data, "; nothing has been forgotten yet.")
    method = join(" Method: ", tag("strong", about["method"]), ".") if about.get("method") else None
    if run.part:
        who = join("To be forgotten by ", learner, f" that {owners} trained", data, ": ", tag("strong", run.part))
    else:
        kind = "Client " if len(run.forget) == 1 else "Clients "
        who = join(kind, names(run.forget), f", of {owners} in all, must be forgotten by ", learner, " trained", data)
    return join(who, ".", method)


def header(run: RunView) -> Safe:
    """Verdict first, then what was asked."""
    status = str(run.summary.get("status") or "unknown")
    title, rest = headline(without_tally(str(run.summary.get("verdict") or f"Run {run.name}")))
    checks = tag("span", f"Checks: {words(run.tally)}.", class_="tally") if run.judged else None
    told = run.audited("verdict", "text") is not None  # the audit's section has the whole of it
    return tag(
        "header",
        tag("p", "Unlearning report · ", tag("bdi", run.name), class_="eyebrow"),
        tag("h1", title, " " if checks else None, checks),
        tag("p", rest) if rest and not told else None,
        tag("p", _asked(run), class_="lede"),
        None if status == "complete" else tag("p", tag("strong", f"Status: {status}. "), _doubt(run), class_="warning"),
    )


def _doubt(run: RunView) -> str:
    """Say what a status other than "complete" means."""
    silent = [str(i) for i in run.summary.get("missing") or ()]
    if run.summary.get("status") != "unverified":
        return "The run is not complete; the numbers below are those of its last measurement."
    if forgotten := [i for i in silent if i in run.forget]:
        return f"The run is finished, but {', '.join(forgotten)} did not measure every model, so nothing is claimed."
    return f"The run is finished, but {', '.join(silent) or 'a client'} never gave a usable answer."


def tiles(run: RunView) -> Safe | None:
    """The most important numbers."""
    if not run.final:
        return None
    shown = [(BY_KEY[run.forgetting], "Forget clients")] if run.forget else []
    shown += [(BY_KEY["r_acc"], "Retained clients"), (BY_KEY["r_acc_min"], "Worst retained client")]
    cards = [_tally(run)] if run.judged else []
    for measure, label in shown:
        before = None
        if run.final != "initial":
            old = number(f"stages.initial.{measure.key}", run.value("initial", measure.key), measure.form)
            before = tag("p", "before: ", old, class_="small")
        key = f"stages.{run.final}.{measure.key}"
        cards.append(
            tag(
                "div",
                tag("p", label, class_="label"),
                number(key, run.value(run.final, measure.key), measure.form, "p", class_="big"),
                tag("p", measure.title, class_="small"),
                before,
                class_="tile",
            )
        )
    cost = run.summary.get("cost") or {}
    cards.append(
        tag(
            "div",
            tag("p", "Cost", class_="label"),
            number("cost.seconds", cost.get("seconds"), duration, "p", class_="big"),
            tag("p", number("cost.rounds", cost.get("rounds"), count), " rounds", class_="small"),
            class_="tile",
        )
    )
    return tag("div", *cards, class_="tiles")


def _tally(run: RunView) -> Safe:
    """The tile of the checks: how many are shown, open and refuted."""
    found, held = run.tally, run.summary.get("checks")
    if found is None:
        return tag("div", tag("p", "Checks", class_="label"), tag("p", "none made", class_="small"), class_="tile")
    lines = [
        tag("p", number(f"checks.{r}" if held else None, found[r], count), f" {r}", class_=r if found[r] else "none")
        for r in RESULTS
    ]
    return tag("div", tag("p", "Checks", class_="label"), *lines, class_="tile counts")


def stages(run: RunView) -> Safe:
    """The models at a glance: one row per measure with its meaning, one column per stage."""
    if not run.stages:
        return section("stages", "The models at a glance", note("No model has been measured yet."))
    heads = [
        tag("th", stage, tag("small", STAGE_MEANING[stage]), scope="col", role="columnheader", class_="number")
        for stage in run.stages
    ]
    rows = [_stage_row(run, measure) for measure in MEASURES if _told(run, measure)]
    meaning_head = tag("th", "what it means", scope="col", role="columnheader", class_="meaning")
    glance = tag(
        "table",
        tag(
            "thead",
            tag("tr", tag("th", "measure", scope="col", role="columnheader"), *heads, meaning_head, role="row"),
            role="rowgroup",
        ),
        tag("tbody", *rows, role="rowgroup"),
        class_=f"stages columns-{len(run.stages)}",
        role="table",
    )
    absent = [stage for stage in STAGES if stage not in run.stages]
    lacking = note(f"This run has no {' and no '.join(absent)} model.") if absent else None
    return section("stages", "The models at a glance", glance, lacking)


def _told(run: RunView, measure: Measure) -> bool:
    """Whether a measure has a row: what no audit or no backdoor could measure needs none."""
    optional = measure.key == "mia_auc" or (measure.key in ("asr", "asr_max") and not run.marked)
    return not optional or any(measured(run.value(stage, measure.key)) is not None for stage in run.stages)


def _stage_row(run: RunView, measure: Measure) -> Safe:
    """One measure at every stage, with its meaning."""
    cells = []
    for stage in run.stages:
        content: object = number(f"stages.{stage}.{measure.key}", run.value(stage, measure.key), measure.form)
        if measure.key == "r_acc" and measured(run.value(stage, "r_acc_std")) is not None:
            spread = number(f"stages.{stage}.r_acc_std", run.value(stage, "r_acc_std"), percent)
            content = join(content, tag("span", " ± ", spread, class_="spread"))
        last = " final" if stage == run.final else ""
        cells.append(tag("td", content, class_=f"number{last}", role="cell", data_stage=stage))
    title = tag("th", measure.title, tag("span", measure.wish, class_="wish"), scope="row", role="rowheader")
    return tag("tr", title, *cells, tag("td", measure.meaning, class_="meaning", role="cell"), role="row")


def trajectory(run: RunView) -> Safe | None:
    """The trajectory between forgetting and usefulness."""
    if not run.forget:
        return None
    caption = (
        f"Each mark is a measured round: how much is remembered ({run.forgetting_title}) and how useful the model is "
        "to the retained clients (R-Acc)."
    )
    kinds = {outcome(record) for record in run.history}
    caption = " ".join([caption, *(told for kind, told in LEADS.items() if kind in kinds)])
    if any(measured(record.get("r_acc")) is None for record in run.history):
        caption += " Not every round was measured, so one line may hold the steps of several rounds."
    if run.audited("truth", "retrained"):
        caption += " The diamond is the model retrained without the forgotten data."
    absent = "No round was measured on both sides, so there is no trajectory."
    return section("trajectory", "Trajectory", figure("trajectory", run, caption, absent))


def convergence(run: RunView) -> Safe:
    """The measures by round."""
    caption = (
        "Each mark is a measured round; its shape says what the round did. The dashed line is the initial "
        "model, the dotted one the worst retained client."
    )
    if len(run.history) > MOST_MARKS:
        caption += f" At most {MOST_MARKS} marks of a kind are drawn; the line has every measured round."
    absent = "No rounds were recorded, so there is no curve to show."
    return section("convergence", "Round by round", figure("convergence", run, caption, absent))


def clients(run: RunView) -> Safe:
    """Every client before and after."""
    forget, retained = run.clients("forget"), run.clients("retained")
    if not forget and not retained:
        return section("clients", "Client by client", note("No client was measured on its own."))
    caption = f"Hatched bars are the initial model, solid bars the {run.final} one."
    if run.final == "initial":
        caption = "The bars are the initial model."
    if max(len(forget), len(retained)) > MOST_BARS:
        caption += f" Of many clients, the {MOST_BARS} that changed most for the worse; the table has all."
    return section(
        "clients",
        "Client by client",
        figure("clients", run, caption, "No client has a number to draw."),
        *(_client_table(run, side, ids) for side, ids in (("forget", forget), ("retained", retained)) if ids),
    )


def _client_table(run: RunView, side: str, ids: list[str]) -> Safe:
    """One side's clients: accuracy, and ASR on the side to be forgotten, at every stage."""
    keys = ["asr", "accuracy"] if side == "forget" and run.marked else ["accuracy"]
    titles = {"asr": "ASR", "accuracy": "accuracy"}
    change = run.final is not None and run.final != "initial"
    heads: list[object] = ["client"]
    for key in keys:
        label = tag("small", titles[key]) if len(keys) > 1 else None
        heads += [join(label, stage) for stage in run.stages] + ([join(label, "change")] if change else [])
    rows = [row(tag("bdi", run.shown(name)), *_client_cells(run, name, keys, change)) for name in ids]
    gone = "Parts to be forgotten, by client" if run.part else "Forget clients"
    title = f"{gone if side == 'forget' else 'Retained clients'} ({len(ids)})"
    explain = "Accuracy on their own test data." if side == "retained" else ""
    if side == "forget" and len(keys) == 1:
        explain = "Accuracy on the training samples to be forgotten."
    explain += " Change is in percentage points." if change else ""
    return join(tag("h3", title), tag("p", explain, class_="small") if explain else None, table(heads, rows, title))


def _client_cells(run: RunView, name: str, keys: list[str], change: bool) -> list[Safe]:
    cells = []
    for key in keys:
        for stage in run.stages:
            value = run.client(stage, name, key)
            cells.append(cell(number(f"stages.{stage}.clients.{name}.{key}", value, percent)))
        if change:
            before, after = (measured(run.client(stage, name, key)) for stage in ("initial", run.final))
            moved = after - before if before is not None and after is not None else None
            cells.append(cell(number(None, moved, points)))
    return cells
