"""The figures that an audit fills: membership attacks, relearning, and whom the updates opposed."""

from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from fupareto.report import style
from fupareto.report.figures import evidence, membership
from fupareto.report.view import RunView


def words_on(figure: Any) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text)}


@pytest.mark.parametrize(("forget", "panels"), [(1, 1), (2, 2), (3, 2), (30, 2)])
def test_few_clients_have_intervals_and_more_a_radar(make: Any, audit_of: Any, forget: int, panels: int) -> None:
    names = [f"client {n}" for n in range(50)]
    summary = make(names, names[:forget])
    run = RunView("demo", summary, audit=audit_of(summary))
    figure = membership.membership(run, style.NARROW)
    assert figure is not None
    assert len(figure.axes) == panels
    assert (figure.axes[0].name == "polar") == (forget >= 3)
    if forget == 30:
        assert len(figure.axes[0].get_xticks()) == membership.MOST_AXES


def test_a_missing_auc_is_a_gap(make: Any, audit_of: Any) -> None:
    summary = make(None, list("345"))
    audit = audit_of(summary)
    audit["membership"]["recovered"]["clients"]["4"]["attacks"]["confidence"]["auc"] = None
    del audit["membership"]["unlearned"]["clients"]["5"]
    figure = membership.membership(RunView("demo", summary, audit=audit), style.WIDE)
    assert figure is not None
    lines = {line.get_color(): np.asarray(line.get_ydata()) for line in figure.axes[0].lines}
    assert np.isnan(lines[style.RETAINED][1])
    assert np.isnan(lines[style.FORGET][2])


def test_the_ring_at_a_coin_toss_is_always_seen(make: Any, audit_of: Any) -> None:
    summary = make(None, list("345"))
    audit = audit_of(summary)
    for found in audit["membership"].values():
        for client in found["clients"].values():
            client["attacks"]["confidence"] |= {"auc": 0.99, "low": 0.98, "high": 1.0}
    figure = membership.membership(RunView("demo", summary, audit=audit), style.WIDE)
    assert figure is not None
    assert figure.axes[0].get_ylim()[0] < 0.5 < figure.axes[0].get_ylim()[1]
    assert "0.5: a coin toss" in words_on(figure)


def test_runs_share_a_radar_only_if_they_forget_the_same(make: Any, audit_of: Any) -> None:
    first, second = make(None, list("345")), make(None, list("3456"))
    runs = [RunView(name, s, audit=audit_of(s)) for name, s in (("a", first), ("_b", first), ("c", second))]
    alike, unlike = (membership.membership_runs(found, style.WIDE) for found in (runs[:2], runs))
    assert alike is not None
    assert unlike is not None
    assert [len(figure.axes) for figure in (alike, unlike)] == [2, 1]
    assert {"a", "_b", "0.5: a coin toss"} <= words_on(alike)


@pytest.mark.parametrize(("part", "draw"), [("relearning", evidence.relearning), ("dormancy", evidence.dormancy)])
def test_further_training_has_a_curve_per_model(summary: Any, audit: Any, part: str, draw: Any) -> None:
    figure = draw(RunView("demo", summary, audit=audit), style.WIDE)
    assert figure is not None
    assert {"initial", "recovered", "retrained", "retrained-2"} <= words_on(figure)
    audit[part]["models"]["recovered"]["curve"] = [None, 0.5]
    assert draw(RunView("demo", summary, audit=audit), style.WIDE) is not None
    audit[part] = None
    assert draw(RunView("demo", summary, audit=audit), style.WIDE) is None


def test_conflicts_are_shares_of_their_side(summary: Any, audit: Any) -> None:
    run = RunView("demo", summary, audit=audit)
    assert evidence.opposed(run, {"retained": {"negative": 2}}, "retained") == 0.25
    assert evidence.opposed(run, {"forget": {"negative": 1}}, "forget") == 0.5
    assert evidence.opposed(run, {"forget": None}, "forget") is None
    figure = evidence.conflict(run, style.WIDE)
    assert figure is not None
    assert figure.axes[0].get_ylim()[0] < -0.12
    audit["exclusivity"]["conflicts"] = [{"round": 1, "phase": "improve", "forget": None, "retained": None}]
    assert "not measured" in words_on(evidence.conflict(run, style.WIDE))
