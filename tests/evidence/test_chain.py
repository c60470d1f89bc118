"""Certificates in order: each names the one before it, of the same federation."""

import shutil
from pathlib import Path

import pytest

import fupareto
from fupareto.errors import UserError
from fupareto.evidence import NOT_CHECKED, OK, Finding, certify, load, reading, schema, verify
from manifests import relist

from .conftest import METHOD, failed, failures, federation, model, rewrite


@pytest.fixture
def chain(runs: Path) -> list[Path]:
    """Three certificates; the third run starts again where the first one started."""
    first = certify(runs / "first")
    second = certify(runs / "second", previous=first)
    shutil.copytree(runs / "second", runs / "third", ignore=shutil.ignore_patterns("certificate.json"))
    rewrite(runs / "third/request.json", received="2026-01-01T00:00:00+00:00")
    return [first, second, certify(runs / "third", previous=second)]


def of(findings: list[Finding], *abouts: str) -> list[tuple[str, str]]:
    return [(f.level, f.text) for f in findings if f.about in abouts]


def test_three_in_order(chain: list[Path]) -> None:
    first, second, third = chain
    found = verify(third)
    assert failed(found) == {}
    texts = [text for level, text in of(found, "previous") if level == OK]
    assert f"{third} follows {second.resolve()}, in the same federation." in texts
    assert f"{second.resolve()} follows {first.resolve()}, in the same federation." in texts
    assert texts[-1] == f"{first.resolve()} is the first certificate of its chain."
    assert load(second)["previous"]["hint"] == "first/certificate.json"


def test_the_middle_one_was_changed(chain: list[Path]) -> None:
    rewrite(chain[1], created="2020-01-01T00:00:00+00:00")
    found = failures(chain[2])
    assert str(chain[1]) in found["previous"]
    assert str(chain[1]) in found["created"]
    assert failures(chain[0]) == {}


def test_the_middle_one_was_sealed_again(chain: list[Path]) -> None:
    content = {key: value for key, value in load(chain[1]).items() if key not in ("parts", "digest")}
    chain[1].write_bytes(schema.render(schema.seal({**content, "code": {"version": "9", "sha256": 64 * "0"}})))
    assert failures(chain[1]) == {}
    assert "another SHA-256" in failures(chain[2])["previous"]


def test_the_middle_one_is_no_certificate_any_more(chain: list[Path]) -> None:
    chain[1].write_text("{}")
    assert "cannot be read" in failures(chain[2])["previous"]


def test_the_middle_one_is_missing(chain: list[Path], tmp_path: Path) -> None:
    moved = chain[1].rename(tmp_path / "moved.json")
    [(level, text)] = of(verify(chain[2]), "previous")
    assert level == NOT_CHECKED
    assert "second/certificate.json" in text
    found = verify(chain[2], previous=[moved])  # the first one lies no longer beside it
    assert [level for level, _ in of(found, "previous")] == [OK, NOT_CHECKED]
    found = verify(chain[2], previous=[chain[0], moved])
    assert [level for level, _ in of(found, "previous")] == [OK, OK, OK]


def test_one_that_does_not_belong_to_the_chain(chain: list[Path], runs: Path) -> None:
    stray = certify(runs / "other")
    assert f"{stray} was given, but" in failures(chain[2], previous=[stray])["previous"]
    with pytest.raises(UserError, match=r"cannot read .*nowhere"):
        verify(chain[2], previous=[runs / "nowhere"])


def test_certificates_in_one_folder(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = certify(runs / "first", folder / "1.json")
    certify(runs / "second", folder / "2.json", previous=first)
    moved = folder.rename(tmp_path / "archive")
    found = verify(moved / "2.json", runs / "second")
    assert [level for level, _ in of(found, "previous")] == [OK, OK]


def test_where_a_request_starts(chain: list[Path], runs: Path) -> None:
    kept = verify(chain[1])
    assert load(chain[1])["previous"]["start"] == "kept"
    assert of(kept, "start") == []
    same = certify(runs / "other", previous=chain[0])
    assert load(same)["previous"]["start"] == "same"
    [(level, text)] = of(verify(same), "start")
    assert level == NOT_CHECKED
    assert "that its model forgot the earlier request too is not shown" in text
    other = certify(runs / "second", runs / "second/x.json", previous=same)
    assert load(other)["previous"]["start"] == "other"
    assert load(other)["previous"]["forgotten"] == ["a", "c"]
    texts = [text for _, text in of(verify(other), "start")]
    assert "what happened in between is not certified" in texts[0]
    assert "not shown" in texts[1]  # of the link before


def test_a_request_that_repeats_the_earlier_one_covers_it(run: Path) -> None:
    again = certify(run, run / "again.json", previous=run / "certificate.json")
    assert load(again)["previous"]["start"] == "same"
    assert of(verify(again), "start") == []
    assert failures(again) == {}


def test_wrong_words_of_the_one_before(chain: list[Path]) -> None:
    content = {key: value for key, value in load(chain[1]).items() if key not in ("parts", "digest")}
    content["previous"]["start"] = "other"
    chain[1].write_bytes(schema.render(schema.seal(content)))
    assert "'start' would be 'kept'" in failures(chain[1])["previous"]
    content["previous"] |= {"start": "kept", "forgotten": []}
    chain[1].write_bytes(schema.render(schema.seal(content)))
    assert "'forgotten' would be ['a']" in failures(chain[1])["previous"]


@pytest.mark.parametrize(
    ("names", "wide", "says"),
    [("abce", 8, r"other clients \(see d, e\)"), ("abc", 8, r"other clients \(see d\)"), ("abcd", 9, "another model")],
)
def test_another_federation(runs: Path, names: str, wide: int, says: str) -> None:
    engine, start = federation(*names, wide=wide), model(wide)
    fupareto.unlearn(engine, start, ["b"], METHOD, out=runs / "strange")
    previous = certify(runs / "first")
    with pytest.raises(UserError, match=f"certificate of another federation: it has {says}"):
        certify(runs / "strange", previous=previous)
    assert not (runs / "strange/certificate.json").exists()
    strange = certify(runs / "strange")  # and one that was forged to follow it
    content = {key: value for key, value in load(strange).items() if key not in ("parts", "digest")}
    link = {
        "sha256": reading.sha256(previous.read_bytes()),
        "hint": "first/certificate.json",
        "start": "same",
        "forgotten": ["a"],
    }
    strange.write_bytes(schema.render(schema.seal({**content, "previous": link})))
    assert "another federation" in failures(strange)["previous"]


def test_other_data_are_another_federation(runs: Path) -> None:
    for seed, name in ((1, "first"), (2, "other")):
        with (runs / name / "config.toml").open("a") as file:
            file.write(f"\n[experiment]\nseed = {seed}\n")
        relist(runs / name)
    first = certify(runs / "first")
    with pytest.raises(UserError, match="another source, partition or seed"):
        certify(runs / "other", previous=first)


def test_nothing_follows_what_was_changed(runs: Path) -> None:
    first = certify(runs / "first")
    with pytest.raises(UserError, match="cannot follow itself"):
        certify(runs / "first", previous=first)
    rewrite(first, created="2020")
    with pytest.raises(UserError, match=r"nothing can follow .*'created'"):
        certify(runs / "second", previous=first)
    with pytest.raises(UserError, match=r"cannot read .*: No such file"):
        certify(runs / "second", previous=runs / "nowhere")


def test_one_that_is_there_with_another_previous_one(chain: list[Path], runs: Path) -> None:
    assert certify(runs / "second", previous=chain[0]) == chain[1]
    assert certify(runs / "second") == chain[1]
    with pytest.raises(UserError, match="does not match the run in previous"):
        certify(runs / "second", previous=certify(runs / "other", previous=chain[0]))
