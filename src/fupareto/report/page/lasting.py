"""The page's sections on whether forgetting lasts: further training, relearning, and the way gone."""

from fupareto.report.markup import Safe, count, interval, number, percent, score, tag
from fupareto.report.parts import cell, figure, note, row, section, table
from fupareto.report.view import RETRAINED, SECOND, RunView

EARLIER = (
    "This audit was made by an earlier version, which measured relearning in another way and did not train on. Make it "
    "again: fupareto audit RUN."
)
MEASURES = {
    "asr": ("ASR", percent),
    "forget_acc": ("Forget accuracy", percent),
    "later": ("The same at its worst, later", percent),
    "relearning": ("Slow relearning, mean", percent),
    "loss": ("Loss attack, mean AUC", score),
    "divergence": ("Outputs, bits from retrained", score),
}


def dormancy(run: RunView) -> Safe | None:
    """What comes back when the retained clients train the model on."""
    if not run.audit:
        return None
    title = "Further training"
    stages = run.models("dormancy", "models")
    if not stages:
        absent = "The retained clients did not train the model on; fupareto audit RUN --dormancy 40 does that."
        return section("dormancy", title, note(EARLIER if run.outdated else absent))
    rows = []
    for stage in stages:
        place, found = f"audit.dormancy.models.{stage}", run.audited("dormancy", "models", stage)
        curve = found.get("curve") or [None]
        rows.append(
            row(
                stage,
                cell(number(f"{place}.curve.0", curve[0], percent)),
                cell(number(f"{place}.worst", found.get("worst"), percent)),
                cell(number(f"{place}.worst_round", found.get("worst_round"), count)),
                cell(number(f"{place}.r_acc", found.get("r_acc"), percent)),
            )
        )
    explain = (
        "A federation goes on training after it has answered a request. Here the retained clients, and nobody else, "
        "trained each model on as the initial one was trained. What was only suppressed comes back; from a retrained "
        "model there is nothing to come back."
    )
    caption = "What is remembered after each further round. The initial model shows what ordinary training forgets."
    return section(
        "dormancy",
        title,
        tag("p", explain),
        figure("dormancy", run, caption, "No curve was recorded."),
        table(["model", "now", "worst later", "after rounds", "R-Acc at the end"], rows, title),
    )


def relearning(run: RunView) -> Safe | None:
    """How much is back in the mean over slow rounds of training on the forgotten data."""
    if not run.audit:
        return None
    title = "Relearning"
    stages = run.models("relearning", "models")
    if not stages or run.outdated:
        return section("relearning", title, note(EARLIER if run.outdated else "Relearning was not tried."))
    rows = []
    for stage in stages:
        place, found = f"audit.relearning.models.{stage}", run.audited("relearning", "models", stage)
        curve = found.get("curve") or [None]
        first = cell(number(f"{place}.curve.0", curve[0], percent))
        rows.append(row(stage, first, cell(number(f"{place}.mean", found.get("mean"), percent))))
    explain = (
        "Each model is trained on the forgotten data alone, at a hundredth of the training’s rate. What was only "
        "hidden comes back at once; what was removed has to be learnt like something new, as the retrained model does. "
        "The measure is the mean of the curve."
    )
    return section(
        "relearning",
        title,
        tag("p", explain),
        figure("relearning", run, "What each model knows after each slow round.", "No curve was recorded."),
        table(["model", "knows at first", "mean over the rounds"], rows, title),
    )


def way(run: RunView) -> Safe | None:
    """How far the kept model is on the way from the initial to the retrained one, measure by measure."""
    found = run.audited("way")
    if not run.audit or not found:
        return None
    title, final = "The way gone", run.final or ""
    stages = list(dict.fromkeys(("initial", final, RETRAINED)))
    second = any((values or {}).get("spread") is not None for values in found.values())
    rows = []
    for key, (name, form) in MEASURES.items():
        values = found.get(key)
        if not values:
            continue
        place = f"audit.way.{key}"
        cells = [
            cell(number(f"{place}.values.{s}.value", run.audited("way", key, "values", s, "value"), form))
            for s in stages
        ]
        cells += [cell(number(f"{place}.spread", values.get("spread"), form))] if second else []
        cells += [_gone(run, key, stage) for stage in ([final, SECOND] if second else [final])]
        rows.append(row(name, *cells))
    heads = [*stages, *(["two retrained apart"] if second else []), f"way gone, {final}"]
    heads += [f"way gone, {SECOND}"] if second else []
    explain = (
        "0% is the initial model, 100% a retrained one; beyond 100% lies past the retrained one. Small numbers are 95% "
        "intervals. Where the two ends do not differ beyond chance there is no way to go."
    )
    content = table(["measure", *heads], rows, title)
    return section("way", title, tag("p", explain, class_="small"), content)


def _gone(run: RunView, key: str, stage: str) -> Safe:
    found = run.audited("way", key, "models", stage) or {}
    place = f"audit.way.{key}.models.{stage}"
    return cell(
        number(f"{place}.value", found.get("value"), _whole, absent=found.get("reason")), interval(place, found, _whole)
    )


def _whole(value: float) -> str:
    return f"{100 * value:.0f}%".replace("-", "−")
