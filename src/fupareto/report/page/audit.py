"""The page's sections on the audit: verdict, retrained model, exclusivity."""

from collections.abc import Callable

from fupareto.report.figures.evidence import conflicts
from fupareto.report.markup import Safe, count, decimal, interval, join, measured, number, percent, points, score, tag
from fupareto.report.parts import cell, figure, note, row, section, table
from fupareto.report.view import RETRAINED, SECOND, RunView, dig

Form = Callable[[float], str]

SIGNS = {"shown": "✓", "refuted": "✕", "open": "?"}
TIERS = {
    1: "Its attacks need nothing but the models.",
    2: "Its attacks also use reference models.",
    3: "Its attacks also use shadow models that did and did not see the forgotten data.",
}
# check: how its value and its threshold are written: form, words before the threshold, words after both and after it
CHECKS: dict[str, tuple[Form, str, str, str]] = {
    "forgotten": (percent, "at most ", "", ""),
    "unknown": (points, "at most ", " points", ""),
    "lasting": (percent, "at most ", "", ""),
    "useful": (points, "at least ", " points", ""),
    "exclusive": (points, "at least ", " points", ""),
    "private": (score, "0.5 ± ", "", ""),
    "against": (score, "retrained ± ", "", ""),  # private, where there is a retrained model
    "alike": (decimal, "at most ", " times", " two retrained models’"),
    "removed": (percent, "at least ", "", " of the way"),
    "unseen": (score, "0.5 ± ", "", ""),
}


def verdict(run: RunView) -> Safe | None:
    """The checks: what is shown, refuted and open."""
    title = "Checks of the audit"
    if not run.judged:
        return None
    if not run.audit:
        return section("verdict", title, note("This run has not been audited; fupareto audit does that."))
    found = [check for check in run.audited("verdict", "checks") or [] if isinstance(check, dict)]
    rows = [_check(place, check) for place, check in enumerate(found)]
    heads = [tag("th", head, scope="col", role="columnheader") for head in ("claim", "result", "measured", "limit")]
    checks = tag(
        "table",
        tag("thead", tag("tr", *heads, role="row"), role="rowgroup"),
        tag("tbody", *rows, role="rowgroup"),
        class_="checks",
        role="table",
    )
    tier = TIERS.get(run.audited("tier"), "")
    when = f"Audit of the {run.final} model, made {run.audited('created') or 'at an unknown time'}. {tier}"
    return section(
        "verdict",
        title,
        checks if rows else note("The audit made no checks."),
        tag("h3", "In words"),
        tag("p", run.audited("verdict", "text") or "The audit has no verdict."),
        tag("p", when, class_="small"),
    )


def _check(place: int, check: dict[str, object]) -> Safe:
    """One claim with its result, which is a word first and a colour second."""
    key, result = f"audit.verdict.checks.{place}", str(check.get("result") or "open")
    claim = str(check.get("claim") or check.get("question") or check.get("name") or "")
    name = "against" if check.get("name") == "private" and "retrained" in claim else str(check.get("name"))
    form, before, unit, after = CHECKS.get(name, (decimal, "", "", ""))
    sign = tag("span", SIGNS.get(result, "?"), aria_hidden="true")
    word = tag("span", sign, " ", result, class_=f"result {result if result in SIGNS else 'open'}")
    threshold = number(f"{key}.threshold", check.get("threshold"), decimal if form is score else form)
    if measured(check.get("threshold")) is not None:
        threshold = join(before, threshold, unit, after)
    claimed = join(claim[:1].upper() + claim[1:], tag("small", check.get("text") or ""))
    value = join(
        number(f"{key}.value", check.get("value"), form), unit if measured(check.get("value")) is not None else ""
    )
    return tag(
        "tr",
        tag("th", claimed, scope="row", role="rowheader"),
        tag("td", word, role="cell"),
        tag("td", value, interval(key, check, form), role="cell", data_head="measured"),
        tag("td", threshold, role="cell", data_head="limit"),
        role="row",
    )


# Against a retrained model --------------------------------------------------------------------------------------

GAPS: tuple[tuple[str, str, Form, Form], ...] = (
    ("asr", "ASR", percent, points),
    ("forget_acc", "Forget accuracy", percent, points),
    ("r_acc", "R-Acc", percent, points),
)
DIFFERENCES: tuple[tuple[str, str, Form], ...] = (
    ("divergence", "Outputs, bits apart", decimal),
    ("disagreement", "Answers that differ", percent),
    ("distance", "Parameters, distance", decimal),
)


def truth(run: RunView) -> Safe | None:
    """How far each model is from one that was trained without the forgotten data."""
    if not run.audit:
        return None
    title = "Comparison with a retrained model"
    stages = run.models("truth", "stages")
    if not run.audited("truth"):
        return section("truth", title, note("No model was retrained without the forgotten data to compare with."))
    rows = []
    for key, name, form, gap in GAPS:
        own = run.audited("truth", RETRAINED, key)
        gaps = [(f"audit.truth.stages.{s}.{key}", run.audited("truth", "stages", s, key)) for s in stages]
        if measured(own) is None and not any(measured(value) is not None for _, value in gaps):
            continue
        first = cell(number(f"audit.truth.retrained.{key}", own, form))
        rows.append(row(name, first, *(cell(number(place, value, gap)) for place, value in gaps)))
    for key, name, form in DIFFERENCES:
        cells = [
            cell(number(f"audit.truth.stages.{s}.{key}", run.audited("truth", "stages", s, key), form)) for s in stages
        ]
        rows.append(row(name, cell(), *cells))
    explain = (
        "Retraining without the forgotten data is the baseline of unlearning. The first column is "
        "the retrained model itself; the others say how far each model is from it, in percentage points above (+) or "
        "below (−) for the shares. Nearer is better; for R-Acc, above is fine. Outputs and answers are "
        "those on the forgotten data."
    )
    if SECOND in stages:
        explain += f" {SECOND} is another retrained model, from another seed: its column is how far retraining varies."
    content = table(["measure", RETRAINED, *stages], rows, title)
    return section("truth", title, tag("p", explain, class_="small"), content)


# Exclusivity -----------------------------------------------------------------------------------------------------


def exclusivity(run: RunView) -> Safe | None:
    """Gains and losses of the retained clients, and the clients that updates opposed."""
    found = run.audited("exclusivity")
    if not found:
        return None
    facts = [
        tag("div", tag("dt", words), number(f"audit.exclusivity.{key}", found.get(key), count, "dd"))
        for key, words in (("gained", "gained accuracy"), ("same", "stayed the same"), ("lost", "lost accuracy"))
    ]
    worst = found.get("worst") or {}
    if worst:
        change = number("audit.exclusivity.worst.change", worst.get("change"), points)
        who = join(tag("bdi", worst.get("client")), tag("small", change, " points"))
        facts.append(tag("div", tag("dt", "client with the largest loss"), tag("dd", who)))
    caption = (
        "Below zero, the update opposed at least one client: it raised that client’s loss, at least at first. The loss "
        "of a forget client is how much is still remembered of it, so opposing it means to forget less."
    )
    for side in ("forget", "retained"):
        if not any(measured(dig(record, side, "min")) is not None for record in conflicts(run)):
            caption += f" The {side} clients have no line: no gradient of theirs was recorded."
    return section(
        "exclusivity",
        "Effect on the retained clients",
        tag("p", "Retained clients, the final model against the initial one:"),
        tag("dl", *facts, class_="facts"),
        tag("h3", "Clients that updates opposed"),
        tag("p", _opposed(run)) if conflicts(run) else None,
        figure("conflicts", run, caption, "No round recorded how its update stood to the clients’ gradients."),
        _changes(run),
    )


def _opposed(run: RunView) -> str:
    records = conflicts(run)
    words = []
    for side, name in (("retained", "a retained client"), ("forget", "a forget client")):
        known = [n for record in records if (n := measured(dig(record, side, "negative"))) is not None]
        if known:
            times = sum(n > 0 for n in known)
            words.append(f"{name} in {count(times) if times else 'none'} of {count(len(known))} rounds")
    return f"The update opposed {' and '.join(words)}." if words else ""


def _changes(run: RunView) -> Safe | None:
    """Every retained client before and after, folded away: the bars above show the same."""
    clients = run.audited("exclusivity", "clients") or {}
    if not clients:
        return None
    rows = []
    for name, values in clients.items():
        key = f"audit.exclusivity.clients.{name}"
        before, after = (cell(number(f"{key}.{k}", dig(values, k), percent)) for k in ("before", "after"))
        change = cell(number(f"{key}.change", dig(values, "change"), points), interval(key, values, points))
        samples = cell(number(f"{key}.samples", dig(values, "samples"), count))
        rows.append(row(tag("bdi", name), before, after, change, samples))
    heads = ["client", "before", "after", "change", "test samples"]
    content = table(heads, rows, "Retained clients before and after", "dense")
    return tag("details", tag("summary", f"Every retained client ({count(len(rows))})"), content, class_="more")
