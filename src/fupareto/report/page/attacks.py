"""The page's section on membership attacks."""

from fupareto.report.figures.membership import FEWEST, MOST_AXES
from fupareto.report.markup import Safe, count, interval, join, measured, number, percent, score, tag
from fupareto.report.parts import cell, figure, note, row, section, table
from fupareto.report.view import HEADLINE, RETRAINED, RunView, dig

TITLE = "Membership attacks"
ATTACKS = {
    "confidence": "learns from the sorted confidences of the model’s answers",
    "loss": "takes a low loss for a sign of training",
    "margin": "takes a wide margin over the next best answer for a sign of training",
    "entropy": "takes a decided answer for a sign of training",
    "delta": "takes a change of the loss since the initial model for a sign of training",
    "rmia": "compares with reference models and with other samples (RMIA)",
    "lira": "compares with models that did and did not see the sample, before unlearning (LiRA)",
    "u-lira": "compares with models that forgot the sample and models that never saw it (U-LiRA)",
}
TOO_FEW = "too few samples to see"


def membership(run: RunView) -> Safe | None:
    """The headline attack client by client, the other attacks folded away."""
    if not run.audit:
        return None
    if not run.attacked:
        return section("membership", TITLE, note("No membership attack was made."))
    explain = (
        "The attacker sees samples, some used for training and some not, and says which is which. An AUC of 0.5 is a "
        "coin toss; above 0.5 the attacker can tell. The headline attack is trained, so that an AUC below 0.5 is "
        "chance. The scores loss, margin, entropy, RMIA and LiRA have a fixed sign: for them an AUC below 0.5 is a "
        "leak too, as an attacker who knows it only has to turn the answer round. Small numbers are 95% intervals."
    )
    if RETRAINED in run.models("membership"):
        explain += (
            " Every attack is judged against the same attack on the retrained model: what a model that never saw the "
            "client gives away is no trace of training."
        )
    return section(
        "membership",
        TITLE,
        tag("p", explain),
        figure("membership", run, _caption(run), "No client has an AUC to draw."),
        tag("h3", f"AUC of the headline attack ({HEADLINE})"),
        _by_stage(run),
        tag("h3", "Found with few false alarms"),
        _rare(run),
        _told_apart(run),
        *_others(run),
    )


def _caption(run: RunView) -> str:
    if len(run.attacked) < FEWEST:
        return "Each mark is an AUC, each line its 95% interval. The nearer to the line at 0.5, the better."
    text = (
        "Each axis is a forget client, each polygon a model. The nearer to the ring at 0.5, the better. The "
        "other panel has the means, with their 95% intervals."
    )
    if len(run.attacked) > MOST_AXES:
        text += f" Of {len(run.attacked)} clients, the {MOST_AXES} that the final model tells most about are drawn."
    return text


def _key(stage: str, name: str, attack: str) -> str:
    return f"audit.membership.{stage}.clients.{name}.attacks.{attack}"


def _auc(run: RunView, stage: str, name: str, attack: str = HEADLINE) -> Safe:
    key, found = _key(stage, name, attack), dig(run.clients_of(stage), name, "attacks", attack)
    return cell(number(f"{key}.auc", dig(found, "auc"), score), interval(key, found))


def _by_stage(run: RunView) -> Safe:
    """A row per client and one for their mean, a column per model."""
    stages = run.models("membership")
    rows = []
    for name in run.attacked:
        own = next(values for stage in stages if (values := run.clients_of(stage).get(name)) is not None)
        sizes = [measured(own.get(side)) for side in ("members", "nonmembers")]
        used = [count(size) if size is not None else "?" for size in sizes]
        about = tag("small", f"{used[0]} used, {used[1]} not")
        rows.append(row(join(tag("bdi", run.shown(name)), about), *(_auc(run, stage, name) for stage in stages)))
    means = []
    for stage in stages:
        key, found = f"audit.membership.{stage}.mean.{HEADLINE}", run.audited("membership", stage, "mean", HEADLINE)
        means.append(cell(number(f"{key}.auc", dig(found, "auc"), score), interval(key, found)))
    rows.append(tag("tr", tag("th", "mean of the clients", scope="row"), *means, class_="total"))
    return table(["client", *stages], rows, "AUC of the headline attack")


def _rare(run: RunView) -> Safe:
    """How many samples the headline attack finds in the final model when it may hardly ever be wrong."""
    stage = run.final or ""
    rows = []
    for name in run.attacked:
        key, found = _key(stage, name, HEADLINE), dig(run.clients_of(stage), name, "attacks", HEADLINE)
        rates = [
            cell(number(f"{key}.{rate}", dig(found, rate), percent, absent=TOO_FEW)) for rate in ("tpr_1", "tpr_01")
        ]
        right = cell(number(f"{key}.balanced_accuracy", dig(found, "balanced_accuracy"), percent))
        rows.append(row(tag("bdi", run.shown(name)), right, *rates))
    heads = ["client", "balanced accuracy", "found at 1% false alarms", "found at 0.1% false alarms"]
    explain = (
        f"Of the {stage} model: how often the attack is right when used and unused samples count alike, and the share "
        "of used samples that it finds when at most 1% or 0.1% of unused ones may raise a false alarm. Guessing is "
        "right half of the time and finds 1% or 0.1%."
    )
    return join(tag("p", explain, class_="small"), table(heads, rows, "Found with few false alarms"))


def _told_apart(run: RunView) -> Safe | None:
    """Whether models that forgot can be told from models that never saw the clients."""
    found = run.audited("told_apart")
    if not found:
        return None
    key = "audit.told_apart"
    text = join(
        "Over ",
        number(f"{key}.with", found.get("with"), count),
        " models that forgot and ",
        number(f"{key}.without", found.get("without"), count),
        " models that never saw the clients, an attacker tells one kind from the other with an AUC of ",
        number(f"{key}.auc", found.get("auc"), score),
        " ",
        interval(key, found),
        ".",
    )
    rows = [
        row(
            tag("bdi", run.shown(name)),
            cell(number(f"{key}.clients.{name}.auc", dig(values, "auc"), score)),
            cell(interval(f"{key}.clients.{name}", values)),
        )
        for name, values in (found.get("clients") or {}).items()
    ]
    title = "Models that forgot against models that never saw them"
    content = table(["client", "AUC", "interval"], rows, title) if rows else None
    return join(tag("h3", title), tag("p", text), content)


def _others(run: RunView) -> list[Safe]:
    """Every attack with all of its numbers, folded away."""
    stages = run.models("membership")
    known = {
        attack: None
        for stage in stages
        for values in run.clients_of(stage).values()
        for attack in dig(values, "attacks") or {}
    }
    order = [attack for attack in (*ATTACKS, *known) if attack in known]
    folded = []
    for attack in dict.fromkeys(order):
        rows = [
            _all(run, stage, name, attack)
            for name in run.attacked
            for stage in stages
            if dig(run.clients_of(stage), name, "attacks", attack)
        ]
        heads = ["client", "model", "AUC", "balanced accuracy", "found at 1%", "found at 0.1%"]
        what = f": {ATTACKS[attack]}" if attack in ATTACKS else ""
        content = table(heads, rows, f"Attack {attack}", "dense", words=(0, 1))
        summary = tag("summary", tag("strong", "Attack ", tag("bdi", attack)), what)
        folded.append(tag("details", summary, content, class_="more attack"))
    return [tag("h3", "Every attack"), *folded] if folded else []


def _all(run: RunView, stage: str, name: str, attack: str) -> Safe:
    key, found = _key(stage, name, attack), dig(run.clients_of(stage), name, "attacks", attack)
    rates = [cell(number(f"{key}.{rate}", dig(found, rate), percent, absent=TOO_FEW)) for rate in ("tpr_1", "tpr_01")]
    right = cell(number(f"{key}.balanced_accuracy", dig(found, "balanced_accuracy"), percent))
    return row(tag("bdi", run.shown(name)), tag("td", stage), _auc(run, stage, name, attack), right, *rates)
