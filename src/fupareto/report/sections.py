"""What came out of the run? The page's sections on results: verdict, stages, convergence, clients."""

from fupareto.report import figures
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
from fupareto.report.measures import MEASURES, STAGE_MEANING
from fupareto.report.view import STAGES, Run


def section(name: str, title: str, *content: object) -> Safe:
    """A titled part of the page."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")


def figure(drawing: Safe | None, caption: object, absent: str) -> Safe:
    """A figure with its caption, or a note in its place."""
    if drawing is None:
        return tag("p", absent, class_="note")
    return tag("figure", drawing, tag("figcaption", caption))


def header(run: Run) -> Safe:
    """Verdict first, then what was asked."""
    about = run.summary
    status = str(about.get("status") or "unknown")
    learner = join("a model", " (", about["model"], ")") if about.get("model") else escape("a model")
    owners = f"{len(about.get('clients') or [])} clients"
    data = join(" on ", about["dataset"]) if about.get("dataset") else None
    if run.forget:
        lede = join(
            "Client " if len(run.forget) == 1 else "Clients ",
            names(run.forget),
            f", of {owners} in all, must be forgotten by ",
            learner,
            " trained",
            data,
            ".",
            join(" Method: ", tag("strong", about["method"]), ".") if about.get("method") else None,
        )
    else:
        lede = join(f"{owners} trained ", learner, " together", data, "; nothing has been forgotten yet.")
    return tag(
        "header",
        tag("p", "Unlearning report · ", tag("bdi", run.name), class_="eyebrow"),
        tag("h1", about.get("verdict") or f"Run {run.name}"),
        tag("p", lede, class_="lede"),
        None
        if status == "complete"
        else tag(
            "p",
            tag("strong", f"Status: {status}. "),
            "The run is not complete; the numbers below are those of its last measurement.",
            class_="warning",
        ),
    )


def tiles(run: Run) -> Safe | None:
    """The numbers that a reader in a hurry needs."""
    if not run.final:
        return None
    forgetting = MEASURES[0] if run.forgetting_measure == "asr" else MEASURES[4]
    shown = [(forgetting, "Still remembered")] if run.forget else []
    shown += [(MEASURES[2], "For those who stay"), (MEASURES[3], "Served worst")]
    cards = []
    for measure, question in shown:
        before = None
        if run.final != "initial":
            old = number(f"stages.initial.{measure.key}", run.value("initial", measure.key), measure.form)
            before = tag("p", "before: ", old, class_="small")
        key = f"stages.{run.final}.{measure.key}"
        cards.append(
            tag(
                "div",
                tag("p", question, class_="label"),
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
            tag("p", "What it took", class_="label"),
            number("cost.seconds", cost.get("seconds"), duration, "p", class_="big"),
            tag("p", number("cost.rounds", cost.get("rounds"), count), " rounds", class_="small"),
            class_="tile",
        )
    )
    return tag("div", *cards, class_="tiles")


def stages(run: Run) -> Safe:
    """The models at a glance: one row per measure with its meaning, one column per stage."""
    if not run.stages:
        return section("stages", "The models at a glance", tag("p", "No model has been measured yet.", class_="note"))
    heads = [
        tag("th", stage, tag("small", STAGE_MEANING[stage]), scope="col", role="columnheader", class_="number")
        for stage in run.stages
    ]
    rows = []
    for measure in MEASURES:
        values = [measured(run.value(stage, measure.key)) for stage in run.stages]
        if measure.key == "mia_auc" and not any(value is not None for value in values):
            continue
        cells = []
        for stage, value in zip(run.stages, values, strict=True):
            content: object = number(f"stages.{stage}.{measure.key}", value, measure.form)
            if measure.key == "r_acc" and measured(run.value(stage, "r_acc_std")) is not None:
                spread = number(f"stages.{stage}.r_acc_std", run.value(stage, "r_acc_std"), percent)
                content = join(content, tag("span", " ± ", spread, class_="spread"))
            last = " final" if stage == run.final else ""
            cells.append(tag("td", content, class_=f"number{last}", role="cell", data_stage=stage))
        title = tag("th", measure.title, tag("span", measure.wish, class_="wish"), scope="row", role="rowheader")
        meaning = tag("td", measure.meaning, class_="meaning", role="cell")
        rows.append(tag("tr", title, *cells, meaning, role="row"))
    meaning_head = tag("th", "what it means", scope="col", role="columnheader", class_="meaning")
    table = tag(
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
    note = tag("p", "This run has no ", " and no ".join(absent), " model.", class_="note") if absent else None
    return section("stages", "The models at a glance", table, note)


def convergence(run: Run) -> Safe:
    """How the numbers moved, round by round."""
    caption = (
        "Each mark is a measured round; its shape says what the round did. The dashed line is the initial "
        "model, the dotted one the retained client served worst."
    )
    if len(run.history) > figures.MOST_MARKS:
        caption += f" At most {figures.MOST_MARKS} marks of a kind are drawn; the line has every measured round."
    drawing = figures.convergence(run)
    return section(
        "convergence",
        "Round by round",
        figure(drawing, caption, "No rounds were recorded, so there is no curve to show."),
    )


def clients(run: Run) -> Safe:
    """Nobody hides in a mean: every client before and after."""
    forget, retained = run.clients("forget"), run.clients("retained")
    if not forget and not retained:
        return section("clients", "Client by client", tag("p", "No client was measured on its own.", class_="note"))
    caption = f"Hatched bars are the initial model, solid bars the {run.final} one."
    if run.final == "initial":
        caption = "The bars are the initial model."
    if max(len(forget), len(retained)) > figures.MOST_BARS:
        caption += f" Of many clients, the {figures.MOST_BARS} that changed most for the worse; the table has all."
    drawing = figures.clients(run)
    return section(
        "clients",
        "Client by client",
        figure(drawing, caption, "No client has a number to draw."),
        *(_client_table(run, side, ids) for side, ids in (("forget", forget), ("retained", retained)) if ids),
    )


def _client_table(run: Run, side: str, ids: list[str]) -> Safe:
    """One side's clients: accuracy, and ASR on the side to be forgotten, at every stage."""
    keys = ["accuracy"]
    if side == "forget" and run.forgetting_measure == "asr":
        keys = ["asr", "accuracy"]
    titles = {"asr": "ASR", "accuracy": "accuracy"}
    change = run.final is not None and run.final != "initial"
    heads = [tag("th", "client", scope="col")]
    for key in keys:
        label = tag("small", titles[key]) if len(keys) > 1 else None
        heads += [tag("th", label, stage, scope="col", class_="number") for stage in run.stages]
        if change:
            heads.append(tag("th", label, "change", scope="col", class_="number"))
    rows = []
    for name in ids:
        cells = [tag("th", tag("bdi", name), scope="row")]
        for key in keys:
            values = [run.client(stage, name, key) for stage in run.stages]
            cells += [
                number(f"stages.{stage}.clients.{name}.{key}", value, percent, "td", class_="number")
                for stage, value in zip(run.stages, values, strict=True)
            ]
            if change:
                before, after = (measured(run.client(stage, name, key)) for stage in ("initial", run.final))
                moved = after - before if before is not None and after is not None else None
                cells.append(number(None, moved, points, "td", class_="number"))
        rows.append(tag("tr", *cells))
    title = f"{'Clients to be forgotten' if side == 'forget' else 'Retained clients'} ({len(ids)})"
    explain = "Accuracy on their own test data." if len(keys) == 1 else ""
    explain += " Change is in percentage points." if change else ""
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="plain")
    scroll = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=title)
    return join(tag("h3", title), tag("p", explain, class_="small") if explain else None, scroll)
