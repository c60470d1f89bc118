"""A federation of ten, three requests over months; then what was recorded is tampered with, and everything is found."""

import base64
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fupareto.cli import app
from fupareto.errors import UserError
from fupareto.evidence import keys, reading, schema, signing
from fupareto.evidence.entries import PAYLOAD
from fupareto.evidence.issue import code, draw
from fupareto.evidence.ledger import Ledger
from manifests import relist

EXPERIMENT = """
name = "story"
[data]
samples = 600
[partition]
kind = "iid"
clients = 10
[train]
rounds = 15
[backdoor]
clients = ["3"]
[request]
clients = ["3"]
[unlearn]
options = { lr = 0.05, rounds = 3, recovery_rounds = 2 }
"""
KEY = ("--key", "keys/operator.key")
RETRAIN = ("--method", "retrain", "--set", "rounds=6")


def run(place: Path, *args: object, code: int = 0) -> str:
    """Run a command in a directory and return what it printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("fupareto.cli.requests.report", lambda made: made.save_report("not drawn"))
        patch.setattr("fupareto.cli.common.report", lambda made: made.save_report("not drawn"))
        ended = CliRunner().invoke(app, [*map(str, args)], catch_exceptions=False)
    assert ended.exit_code == code, ended.output
    return ended.output


def day(months: int) -> str:
    return (datetime.now(UTC).date() - timedelta(days=30 * months)).isoformat()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Live through the story, and keep a copy of the ledger as it was after the second answer."""
    place = tmp_path_factory.mktemp("story")
    (place / "federation.toml").write_text(EXPERIMENT)
    (place / "rows.json").write_text(json.dumps({"3": [0, 1, 2, 5, 8, 13]}))
    run(place, "train", "federation.toml", "--out", "training", "--quiet")
    for name in ("operator", "client-3"):
        run(place, "keys", "make", name)
    (place / "trusted").mkdir()
    for file in (place / "keys").glob("*.pub"):
        shutil.copy(file, place / "trusted")
    run(place, "requests", "open", "training", *KEY)
    run(place, "requests", "add", "--clients", "5", "--gone", "--received", day(3), "--deadline", "30d", *KEY)
    run(place, "requests", "answer", "1", *RETRAIN, "--quiet", *KEY)
    run(place, "requests", "add", "--samples", "rows.json", "--received", day(2), "--deadline", "90d", *KEY)
    run(place, "requests", "answer", "--quiet", *KEY)
    run(place, "attest", "ledger/runs/2", "--client", "3", "--key", "keys/client-3.key")
    shutil.copytree(place / "ledger", place / "second")
    run(place, "requests", "add", "--clients", "3", "--reference", "case 12", *KEY)
    run(place, "requests", "answer", "3", "--retrain", "1", "--dormancy", "0", "--quiet", *KEY)
    run(place, "attest", "ledger/runs/3", "--client", "3", "--key", "keys/client-3.key")
    return place


@pytest.fixture
def copy(story: Path, tmp_path: Path) -> Path:
    """A copy of the story that a test may tamper with."""
    shutil.copytree(story, tmp_path / "story")
    return tmp_path / "story"


def findings(
    place: Path, certificate: str, *args: object, ledger: str = "ledger", code: int = 0
) -> dict[str, list[str]]:
    """Verify with keys and the ledger, and return what was found, by level."""
    arguments = ("verify", certificate, "--trusted", "trusted", "--ledger", ledger, "--json", "--quiet", *args)
    found: dict[str, list[str]] = {"ok": [], "failed": [], "not checked": []}
    for one in json.loads(run(place, *arguments, code=code))["findings"]:
        found[one["level"]].append(one["about"])
    return found


def head(place: Path, ledger: str = "ledger") -> str:
    return Ledger.open(place / ledger).head


# The story ----------------------------------------------------------------------------------------------------------


def test_the_ledger_tells_it(story: Path) -> None:
    listed = json.loads(run(story, "requests", "list", "--json"))
    assert [one["number"] for one in listed] == [1, 2, 3]
    assert [one["answer"]["status"] for one in listed] == ["unverified", "complete", "complete"]
    assert all(one["days_left"] is None for one in listed)
    assert listed[0]["answer"]["at"][:10] > listed[0]["deadline"]  # it was late, and says so
    assert "can no longer be reached" in run(story, "requests", "show", "1")
    shown = run(story, "requests", "show", "2")
    assert "6 training samples of client 3" in shown
    assert "On the model of request 3: It is still forgotten" in shown
    assert json.loads((story / "ledger/runs/3/request.json").read_text())["left_samples"] == {"3": [0, 1, 2, 5, 8, 13]}
    assert json.loads((story / "ledger/runs/3/request.json").read_text())["left"] == ["5"]


def test_every_check_is_made_and_passed(story: Path) -> None:
    """With keys, the ledger, its head and the data, nothing stays unchecked but the client who is gone."""
    for number in (1, 2, 3):
        last = head(story)
        found = findings(
            story, f"ledger/runs/{number}", "--head", last, "--audit", "--replay", "all", "--strict", code=number > 1
        )
        assert found["failed"] == []
        assert set(found["not checked"]) == ({"earlier"} if number > 1 else set())  # client 5 cannot be asked
        assert any(about.startswith("round.") for about in found["ok"])
    assert "receipt.3" in found["ok"]
    assert "retrained" in found["ok"]


def test_every_model_that_is_loaded_is_named(story: Path) -> None:
    lines = run(story, "verify", "ledger/runs/3").splitlines()
    loaded = [line for line in lines if "can be loaded" in line]
    assert len(loaded) == len(set(loaded)) == 2
    assert any("retrained/unlearned: can be loaded" in line for line in loaded)


def test_which_model_is_deployed(story: Path, tmp_path: Path) -> None:
    import safetensors.numpy
    import safetensors.torch

    def said(model: Path, code: int) -> str:
        words = run(story, "verify", "ledger/runs/3", "--ledger", "ledger", "--model", model, code=code)
        return next(line for line in words.splitlines() if str(model) in line)

    def kept(number: int) -> Path:
        certificate = schema.load(story / f"ledger/runs/{number}/certificate.json")
        return story / f"ledger/runs/{number}" / str(certificate["kept"]["file"])

    assert "is the model that answered request 3, and in force" in said(kept(3), 0)
    assert "is the model that answered request 2; it was superseded by the model that answered request 3" in said(
        kept(2), 1
    )
    assert "is the model from before any request; it was superseded" in said(story / "training/initial.safetensors", 1)
    tensors = safetensors.numpy.load_file(kept(3))
    other = tmp_path / "deployed.safetensors"  # in another order, with more tensors and remarks
    more = {**dict(reversed(tensors.items())), "extra": tensors["1.bias"]}
    safetensors.numpy.save_file(more, other, {"made": "elsewhere"})
    assert "in force" in said(other, 0)
    tensors["1.bias"] = tensors["1.bias"] + 1
    safetensors.numpy.save_file(tensors, other)
    assert "is unknown" in said(other, 1)


def test_letters_and_index(story: Path) -> None:
    for number, words in ((1, "not all of them could be"), (2, "6 training samples of client 3"), (3, "case 12")):
        letter = (story / f"ledger/letters/{number}-letter.html").read_text()
        assert words in letter
        assert "We do not claim" in letter
        assert "$" not in letter
        record = (story / f"ledger/letters/{number}-record.html").read_text()
        assert schema.load(story / f"ledger/runs/{number}/certificate.json")["digest"] in record
    page = (story / "ledger/index.html").read_text()
    assert "3 requests, 10 clients: 0 open, 3 answered" in page
    assert head(story) in page
    assert page.count("in force") == 1


def test_a_template_of_ones_own(copy: Path) -> None:
    (copy / "mine").mkdir()
    (copy / "mine/letter.html").write_text("<p>Hello $reference: $tally, $not_shown</p>")
    run(copy, "requests", "letter", "3", "--templates", "mine")
    letter = (copy / "ledger/letters/3-letter.html").read_text()
    assert "<main>\n<p>Hello case 12: " in letter  # in the layout of both papers
    (copy / "mine/letter.html").write_text("<html><p>Hello</p></html>")  # a whole page stays as it is
    (copy / "mine/layout.html").write_text("<html><title>$title</title>$body</html>")
    run(copy, "requests", "letter", "3", "--templates", "mine")
    assert (copy / "ledger/letters/3-letter.html").read_text() == "<html><p>Hello</p></html>"
    assert "<title>Record of request no. 3</title>" in (copy / "ledger/letters/3-record.html").read_text()[:60]
    (copy / "mine/letter.html").write_text("only 5 $ left")
    with pytest.raises(UserError, match="write \\$\\$ for a dollar sign"):
        run(copy, "requests", "letter", "3", "--templates", "mine")
    (copy / "mine/letter.html").write_text("$nonsense")
    with pytest.raises(UserError, match="'nonsense'; the names are number, reference, "):
        run(copy, "requests", "letter", "3", "--templates", "mine")


# Tampering ----------------------------------------------------------------------------------------------------------


def forge(place: Path, run: Path, ledger: str = "ledger", **changes: Any) -> None:
    """Write a certificate and the newest entry of the ledger anew, as an operator who cheats can: with the key.

    The manifest is made to fit as well, so that a forgery is found by what was certified, not as damage.
    """
    relist(run)
    held = schema.load(run / "certificate.json")
    signer = keys.signer(place / "keys/operator.key")
    content = {**held, **draw(run), "code": code(), **changes}
    sealed = schema.seal({key: content[key] for key in schema.ORDER if key not in ("parts", "digest")})
    data = schema.render({key: sealed[key] for key in schema.ORDER})
    (run / "certificate.json").write_bytes(data)
    receipts = signing.envelopes(run / "certificate.json")[1:]
    signing.bundle_of(run / "certificate.json").unlink()
    signing.add(run / "certificate.json", [signing.envelope(signing.statement_of(sealed, data), signer), *receipts])
    relink(place / ledger, signer, certificate=reading.sha256(data), weights=sealed["kept"]["weights"])


def relink(ledger: Path, signer: keys.Signer, **changes: Any) -> None:
    """Write the newest entry of a ledger anew."""
    lines = (ledger / "ledger.jsonl").read_bytes().splitlines()
    entry = {**json.loads(lines[-1]), **changes}
    del entry["signature"]
    signature = base64.b64encode(signer.sign(signing.pae(PAYLOAD, reading.canonical(entry)))).decode()
    lines[-1] = reading.canonical({**entry, "signature": {"keyid": signer.id, "sig": signature}})
    (ledger / "ledger.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value, indent=2) + "\n")


def test_an_honest_certificate_that_is_written_anew_still_holds(copy: Path) -> None:
    """Else the forgeries below would be found for another reason than theirs."""
    forge(copy, copy / "ledger/runs/3")
    found = findings(copy, "ledger/runs/3", code=1)
    assert found["failed"] == ["receipt.3"]  # a client's receipt is for the certificate that it saw
    (copy / "ledger/runs/3/certificate.intoto.jsonl").write_text(
        (copy / "ledger/runs/3/certificate.intoto.jsonl").read_text().splitlines()[0] + "\n"
    )
    assert findings(copy, "ledger/runs/3")["failed"] == []


def found_or_named(place: Path, run: str, about: str, *args: object, ledger: str = "ledger") -> str:
    """Return how a forgery shows: "failed", or "not checked" where --strict fails."""
    bundle = place / run / "certificate.intoto.jsonl"
    bundle.write_text(bundle.read_text().splitlines()[0] + "\n")  # without receipts: these find more
    arguments = ("verify", run, "--trusted", "trusted", "--ledger", ledger, "--json", "--quiet", *args)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        plain, strict = (CliRunner().invoke(app, [*map(str, arguments), *more]) for more in ([], ["--strict"]))
    levels = {one["level"] for one in json.loads(plain.output)["findings"] if one["about"].startswith(about)}
    assert strict.exit_code == 1
    if "failed" in levels:
        assert plain.exit_code == 1
        return "failed"
    assert "not checked" in levels
    return "not checked"


def test_1_initial_weights_with_invented_numbers(copy: Path) -> None:
    made = copy / "ledger/runs/3"
    kept = schema.load(made / "certificate.json")["kept"]["file"]
    shutil.copy(made / "initial.safetensors", made / kept)
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "models") == "failed"
    edit(made / "summary.json", lambda s: s["stages"][kept.removesuffix(".safetensors")].update(distance=0.0))
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "kept") == "failed"
    assert found_or_named(copy, "ledger/runs/3", "summary", "--audit") == "failed"


def test_2_another_method(copy: Path) -> None:
    import tomllib

    import tomli_w

    made = copy / "ledger/runs/3"
    config = tomllib.loads((made / "config.toml").read_text())
    config["method"]["training"]["lr"] = 0.1  # the same method with other options, which is harder to see
    (made / "config.toml").write_text(tomli_w.dumps(config))
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "method") == "not checked"
    assert found_or_named(copy, "ledger/runs/3", "round", "--replay", "1") == "failed"
    config["method"] = {"name": "finetune"}
    (made / "config.toml").write_text(tomli_w.dumps(config))
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "config") == "failed"  # the summary names another
    edit(made / "summary.json", lambda s: s.update(method="finetune"))
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "round", "--replay", "all") == "failed"


def test_2_another_rate_after_renewal(copy: Path) -> None:
    import tomllib

    import tomli_w

    made = copy / "ledger/runs/3"
    config = tomllib.loads((made / "config.toml").read_text())
    config["method"]["lr"] = 0.5
    (made / "config.toml").write_text(tomli_w.dumps(config))
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "round.", "--replay", "all") == "failed"


def test_3_no_rounds(copy: Path) -> None:
    made = copy / "ledger/runs/3"
    (made / "rounds.jsonl").write_text("")
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "rounds") == "failed"
    (made / "rounds.jsonl").unlink()
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "files") == "failed"


@pytest.mark.parametrize("created", ["2020-01-01T00:00:00+00:00", "2099-01-01T00:00:00+00:00", "yesterday"])
def test_4_impossible_dates(copy: Path, created: str) -> None:
    forge(copy, copy / "ledger/runs/3", created=created)
    assert found_or_named(copy, "ledger/runs/3", "dates") == "failed"


def test_5_a_fork(copy: Path) -> None:
    """A second certificate follows the first, as if request 2 had never been answered."""
    first = copy / "ledger/runs/1/certificate.json"
    shutil.copytree(copy / "ledger/runs/3", copy / "ledger/runs/other")
    other = copy / "ledger/runs/other"
    link = {"sha256": reading.hash_file(first), "hint": "1/certificate.json", "start": "other", "forgotten": ["5"]}
    before = (copy / "ledger/ledger.jsonl").read_bytes()
    forge(copy, other, previous=link, position=2)
    (copy / "ledger/ledger.jsonl").write_bytes(before)
    assert found_or_named(copy, "ledger/runs/other", "position") == "failed"
    relink(
        copy / "ledger",
        keys.signer(copy / "keys/operator.key"),
        certificate=reading.hash_file(other / "certificate.json"),
    )
    assert found_or_named(copy, "ledger/runs/other", "position") == "failed"


def test_6_the_newest_link_withheld(copy: Path) -> None:
    newest = head(copy)
    lines = (copy / "ledger/ledger.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "ledger/ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    assert found_or_named(copy, "ledger/runs/2", "head") == "not checked"
    assert found_or_named(copy, "ledger/runs/2", "head", "--head", newest) == "failed"


def test_7_a_chain_begun_anew(copy: Path) -> None:
    known = head(copy)
    run(copy, "requests", "open", "training", "--ledger", "anew", *KEY)
    run(copy, "requests", "add", "--clients", "8", "--ledger", "anew", *KEY)
    run(copy, "requests", "answer", "1", "--ledger", "anew", "--quiet", *KEY)
    assert found_or_named(copy, "anew/runs/1", "head", ledger="anew") == "not checked"
    assert found_or_named(copy, "anew/runs/1", "head", "--head", known, ledger="anew") == "failed"
    assert found_or_named(copy, "anew/runs/1", "position") == "failed"  # in the ledger that is known


def test_8_replay_of_an_old_certificate(copy: Path) -> None:
    """The certificate of request 2 is given for request 3."""
    old = copy / "ledger/runs/2/certificate.json"
    relink(copy / "ledger", keys.signer(copy / "keys/operator.key"), certificate=reading.hash_file(old), run="runs/2")
    assert found_or_named(copy, "ledger/runs/2", "position") == "failed"
    shutil.rmtree(copy / "ledger")
    shutil.copytree(copy / "second", copy / "ledger")
    run(copy, "requests", "add", "--clients", "8", *KEY)
    last = json.loads((copy / "ledger/ledger.jsonl").read_text().splitlines()[-2])
    facts = {
        key: value
        for key, value in last.items()
        if key in ("run", "certificate", "weights", "status", "verdict", "checks", "method")
    }
    Ledger.open(copy / "ledger").answer(
        {**facts, "requests": [3], "earlier": None}, keys.signer(copy / "keys/operator.key")
    )
    assert found_or_named(copy, "ledger/runs/2", "position") == "failed"


def test_9_other_rows(copy: Path) -> None:
    made = copy / "second/runs/2"
    receipts = (made / "certificate.intoto.jsonl").read_text().splitlines()[1:]
    edit(made / "request.json", lambda r: r.update(samples={"3": [20, 21]}))
    forge(copy, made, "second")
    assert found_or_named(copy, "second/runs/2", "requests", ledger="second") == "failed"
    edit(made / "request.json", lambda r: r.update(samples={"3": [0, 1, 2, 5, 8, 13]}))
    edit(made / "summary.json", lambda s: s["data"].update({"3/forget": 64 * "a"}))  # others were forgotten instead
    forge(copy, made, "second")
    assert found_or_named(copy, "second/runs/2", "numbers", ledger="second") == "not checked"
    assert found_or_named(copy, "second/runs/2", "summary.data", "--audit", ledger="second") == "failed"
    with (made / "certificate.intoto.jsonl").open("a") as file:  # and what the client itself signed says so, too
        file.write("\n".join(receipts) + "\n")
    assert any(
        about.startswith("receipt") for about in findings(copy, "second/runs/2", ledger="second", code=1)["failed"]
    )


def test_10_an_unloadable_model(copy: Path) -> None:
    made = copy / "ledger/runs/3"
    kept = made / schema.load(made / "certificate.json")["kept"]["file"]
    data = kept.read_bytes()
    assert b'"F32"' in data
    kept.write_bytes(data.replace(b'"F32"', b'"F99"', 1))  # of the right size, but of a type that does not exist
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "models") == "failed"
    kept.write_bytes(data[:-4] + b"\xff\xff\xff\x7f")  # not a number
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "models") == "failed"


def test_11_retrained_replaced_by_the_kept_model(copy: Path) -> None:
    made = copy / "ledger/runs/3"
    kept = schema.load(made / "certificate.json")["kept"]["file"]
    shutil.copy(made / kept, made / "retrained/unlearned.safetensors")
    assert found_or_named(copy, "ledger/runs/3", "retrained") == "failed"  # it is not the file that was certified
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "retrained") == "failed"  # nor can it be certified


def test_12_lax_thresholds(copy: Path) -> None:
    made = copy / "ledger/runs/3"
    edit(made / "audit.json", lambda a: a["thresholds"].update(asr=1.0, relearning=0.0))
    forge(copy, made)
    assert found_or_named(copy, "ledger/runs/3", "thresholds") == "not checked"
    assert found_or_named(copy, "ledger/runs/3", "thresholds", "--threshold", "asr=0.05") == "failed"
    assert "asr 1.0" in run(copy, "verify", "ledger/runs/3")


def test_13_relabelled_data(copy: Path) -> None:
    made = copy / "ledger/runs/3"
    edit(made / "summary.json", lambda s: s["data"].update({"3": 64 * "b"}))
    forge(copy, made)
    assert "receipt.3" in findings(copy, "ledger/runs/3", code=1)["failed"]  # the client signed other data
    assert found_or_named(copy, "ledger/runs/3", "numbers") == "not checked"
    assert found_or_named(copy, "ledger/runs/3", "summary.data", "--audit") == "failed"
