"""The parts of a page that an audit fills: in words, in order, and without falling over what is not there."""

import copy
from typing import Any

import pytest

from fupareto.report import render, render_comparison
from fupareto.report.page.sections import headline
from fupareto.report.view import RunView, outcome

pytestmark = pytest.mark.usefixtures("no_drawing")
EMPTY: list[Any] = [
    {},
    {"verdict": None, "membership": None, "told_apart": None, "truth": None, "relearning": None, "exclusivity": None},
    {"verdict": {}, "membership": {"recovered": {}}, "truth": {}, "relearning": {"models": {}}, "exclusivity": {}},
    {"verdict": {"checks": [{}]}, "relearning": {"models": {"recovered": {"rounds": None, "curve": []}}}, "tier": 9},
    {"membership": {"recovered": {"clients": {"3": {"attacks": {"confidence": {}}}, "7": {}}, "mean": {}}}},
    {"truth": {"retrained": None, "stages": None}, "exclusivity": {"worst": None, "conflicts": [None, {"round": 1}]}},
]


def part(page: str, name: str) -> str:
    """Return one section of the page."""
    return page.split(f'<section id="{name}"', 1)[1].split("</section>", 1)[0]


def test_the_verdict_stands_before_everything_else(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    page = render(summary, rounds, config, audit)
    order = [page.index(f'<section id="{name}"') for name in ("verdict", "stages", "trajectory", "membership", "truth")]
    assert page.index("<h1>") < order[0]
    assert order == sorted(order)
    checks = part(page, "verdict")
    for word, sign in (("shown", "✓"), ("refuted", "✕"), ("open", "?")):
        assert f'<span class="result {word}"><span aria-hidden="true">{sign}</span> {word}</span>' in checks
    assert audit["verdict"]["text"] in checks
    for text in ("at least ", " times", " two retrained models’", " of the way", "0.5 ± ", " points"):
        assert text in checks


def test_every_title_carries_the_tally(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    tally = "4 shown, 2 open, 3 refuted"
    for held in ({}, {"checks": {"shown": 4, "open": 2, "refuted": 3}}):
        page = render(summary | held, rounds, config, audit)
        assert f" · {tally} · " in page.split("<title>")[1].split("</title>")[0]
        assert f"Checks: {tally}." in page.split("<h1>")[1].split("</h1>")[0]
        tiles = page.split('<div class="tiles">')[1].split("<nav")[0]
        assert [tiles.split(f'<p class="{r}">')[1].split("</span>")[0][-1] for r in ("shown", "open", "refuted")] == [
            "4",
            "2",
            "3",
        ]
        assert tally in part(render_comparison([("a", summary | held, rounds)], {"a": audit}), "verdicts")
    unaudited = render(summary, rounds, config)
    assert "Checks: none made." in unaudited.split("<h1>")[1].split("</h1>")[0]
    assert "none made" in part(render_comparison([("a", summary, rounds)]), "verdicts")
    alone = summary | {"forget": [], "stages": {"initial": summary["stages"]["initial"]}, "final": "initial"}
    assert "none made" not in render(alone, [], config)


def test_a_check_says_what_was_tested_and_how_sure_that_is(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    audit["verdict"]["checks"][2] |= {
        "claim": "no retained client lost more than 10 points",
        "result": "open",
        "value": -0.071,
        "low": -0.443,
        "high": 0.309,
    }
    checks = part(render(summary, rounds, config, audit), "verdict")
    assert "No retained client lost more than 10 points<small>" in checks
    for text in ("−7.1</span> points", ">−44.3</span> to <span", ">+30.9</span>"):
        assert text in checks


def test_an_unaudited_run_says_so(summary: Any, rounds: Any, config: Any) -> None:
    page = render(summary, rounds, config)
    assert "has not been audited" in part(page, "verdict")
    assert 'id="membership"' not in page
    assert "retraining" not in part(page, "cost")
    alone = summary | {"forget": [], "stages": {"initial": summary["stages"]["initial"]}, "final": "initial"}
    assert 'id="verdict"' not in render(alone, [], config)


@pytest.mark.parametrize("audit", EMPTY)
def test_an_audit_may_lack_anything(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    page = render(summary, rounds, config, audit)
    assert "None" not in page
    assert render_comparison([("a", summary, rounds)], {"a": audit, "b": None})


def test_what_the_first_tier_does_not_measure_is_named(summary: Any, rounds: Any, config: Any, audit_of: Any) -> None:
    page = render(summary, rounds, config, audit_of(summary, tier=1))
    assert "No model was retrained" in part(page, "truth")
    assert "Relearning was not tried" in part(page, "relearning")
    assert "shadow" not in page
    assert "retrained" not in part(page, "membership")
    assert "never saw them" not in part(page, "membership")


def test_membership_reads_both_ways(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    section = part(render(summary, rounds, config, audit), "membership")
    assert "The headline attack is trained, so that an AUC below 0.5 is chance" in section
    assert section.count("too few samples to see") > 2
    assert section.count("<details") == len({a for s in audit["membership"].values() for a in s["mean"]})
    assert "Over <span" in section  # told apart


def test_what_lasts_has_three_sections(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    page = render(summary, rounds, config, audit)
    assert "worst later" in part(page, "dormancy")
    assert "mean over the rounds" in part(page, "relearning")
    way = part(page, "way")
    assert "way gone, recovered" in way
    assert "way gone, retrained-2" in way
    assert "they do not differ beyond chance" in way


def test_an_audit_of_an_earlier_format_says_what_to_do(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    old = {key: value for key, value in audit.items() if key not in ("dormancy", "way")}
    old |= {
        "format": 1,
        "relearning": {"goal": 0.75, "limit": 30, "models": {"recovered": {"rounds": 4, "curve": [0.1]}}},
    }
    page = render(summary, rounds, config, old)
    for name in ("dormancy", "relearning"):
        assert "Make it again: fupareto audit RUN" in part(page, name)


def test_cost_in_words(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    text = part(render(summary, rounds, config, audit), "cost")
    assert "Retraining took 3.3 times the rounds, 7.9 times the time and 3.3 times the traffic of this run." in text
    assert "cost more" not in text
    audit["truth"] |= {"seconds": 6.17, "bytes_up": None, "bytes_down": None}
    text = part(render(summary, rounds, config, audit), "cost")
    assert (
        "3.3 times the rounds and 0.50 times the time of this run. This run cost more than retraining in time." in text
    )


def test_what_renewal_alone_would_have_cost(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    assert "Renewal" not in part(render(summary, rounds, config, audit), "cost")
    renewed = [{**record, "phase": "renew"} if record["round"] <= 25 else record for record in rounds]
    text = part(render(summary, renewed, config, audit), "cost")
    assert "Renewal alone would have cost 25 rounds and 0.6 MB (this run: 60 rounds and 99.4 MB; retraining: " in text
    text = part(render(summary, renewed, config), "cost")
    assert "Renewal alone would have cost 25 rounds and 0.6 MB (this run: 60 rounds and 99.4 MB)." in text
    assert "Renewal" not in part(render(summary, [{**r, "phase": "renew"} for r in rounds], config), "cost")
    summary["cost"] = None
    assert "cost 25 rounds and 0.6 MB." in part(render(summary, renewed, config), "cost")


def test_the_trajectory_explains_the_rounds_that_it_shows(summary: Any, rounds: Any, config: Any) -> None:
    """The caption says of every kind of round in the picture where it leads, and nothing of the others."""
    sentences = {
        "renew": "Renewal leads",
        "improve": "An improvement",
        "expand": "An expansion",
        "recover": "Recovery leads",
        "failed": "A cross",
    }
    renewed = [record | {"phase": "renew", "step": 1.0, "stage": "unlearned"} for record in rounds]
    for history in (rounds, renewed, renewed[:20] + [record for record in rounds[20:] if record["phase"] == "improve"]):
        caption = part(render(summary, history, config), "trajectory").split("<figcaption", 1)[1]
        kinds = {outcome(record) for record in history}
        assert {kind for kind, words in sentences.items() if words in caption} == kinds


def test_whom_the_updates_opposed(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    section = part(render(summary, rounds, config, audit), "exclusivity")
    assert "opposed a retained client in 4 of 39 rounds and a forget client in none of 40 rounds." in section
    assert "no line" not in section


@pytest.mark.parametrize("side", ["forget", "retained"])
def test_a_side_without_gradients_is_said_to_have_no_line(
    summary: Any, rounds: Any, config: Any, audit: Any, side: str
) -> None:
    for record in audit["exclusivity"]["conflicts"]:
        record[side] = None
    section = part(render(summary, rounds, config, audit), "exclusivity")
    assert section.count("have no line") == 1
    assert f"The {side} clients have no line" in section


def test_part_of_the_data_is_named_in_words(make: Any, rounds: Any, config: Any, audit_of: Any) -> None:
    names = [*"0123", "1/forget", "2/forget"]
    summary = make(names, names[-2:])
    for stage in summary["stages"].values():
        stage["asr"] = stage["asr_max"] = None
        for values in stage["clients"].values():
            values["asr"] = None
    for record in rounds:
        record["forget_acc"] = record.pop("asr", None)
    page = render(summary | {"part": "training samples of class 4"}, rounds, config, audit_of(summary))
    assert "that 4 clients trained on digits: <strong>training samples of class 4</strong>." in page
    assert "Attack success rate" not in page
    assert "Parts to be forgotten, by client (2)" in page
    assert "<bdi>1</bdi>" in part(page, "membership")
    assert "1/forget" not in page.replace("clients.1/forget", "")
    assert "<strong>part of the data of clients 1, 2</strong>" in render(summary, rounds, config)
    assert "forget accuracy" in render_comparison([("a", summary, rounds)])


def test_a_long_verdict_is_a_title_and_a_paragraph(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    text = "It works in 0.6% of all tries. Others keep 96.4%. " + "Shown: much, and at length. " * 9
    assert headline(text)[0].startswith("It works in 0.6% of all tries. Others keep 96.4%. Shown")
    assert len(headline(text)[0]) < 180
    assert " ".join(headline(text)) == text.strip()
    assert headline("One. Two.") == ("One. Two.", "")
    summary["verdict"] = audit["verdict"]["text"] = text.strip()
    for found in (None, audit):
        page = render(summary, rounds, config, found)
        assert page.count(headline(text)[1]) == 1  # the rest is said once: below the title, or in the audit's section


def test_a_comparison_has_the_audits_beside_each_other(summary: Any, rounds: Any, audit: Any) -> None:
    other = copy.deepcopy(audit)
    other["dormancy"] = other["relearning"] = other["way"] = None
    page = render_comparison([(n, summary, rounds) for n in "abc"], {"a": audit, "b": other})
    for key in ("membership.recovered.mean.confidence.auc", "truth.stages.recovered.divergence", "exclusivity.lost"):
        assert f'data-key="runs.0.audit.{key}"' in page
        assert f'data-key="runs.2.audit.{key}"' not in page
    for key in ("dormancy.models.recovered.worst", "relearning.models.recovered.mean"):
        assert f'data-key="runs.0.audit.{key}"' in page
    assert "4 shown" in page
    without = render_comparison([(n, summary, rounds) for n in "abc"])
    assert "What the audits say" not in without
    assert 'id="membership"' not in without


def test_models_and_clients_stand_in_order(summary: Any, audit: Any) -> None:
    audit["membership"] = dict(reversed(audit["membership"].items()))
    run = RunView("demo", summary, audit=audit)
    assert run.models("membership") == ["initial", "unlearned", "recovered", "retrained", "retrained-2"]
    assert run.attacked == ["3", "7"]
    assert run.leak("recovered", "nobody") is None
    assert RunView("demo", summary).attacked == []
