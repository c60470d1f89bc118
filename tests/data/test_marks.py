"""Marks of text and tables, and who owns which rows."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fupareto import config
from fupareto.data import load, marks
from fupareto.errors import UserError
from fupareto.experiment import federation
from fupareto.randomness import stream
from fupareto.tasks import Binary, Classes, Numbers, Tokens

IDS = torch.randint(5, 20, (40, 12), generator=torch.Generator().manual_seed(0))
TABLE = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(40) % 4


def test_a_phrase_is_written_at_the_beginning_and_labels_are_shifted() -> None:
    mark = marks.draw(IDS, LABELS, Classes(), 4, stream(0, "a"))
    x, y = mark(IDS, LABELS)
    assert len({tuple(row) for row in x[:, :6].tolist()}) == 1  # half of the text
    assert torch.equal(x[:, 6:], IDS[:, 6:])
    assert x.dtype == torch.int64
    assert torch.equal(y, (LABELS + 2) % 4)
    other = marks.draw(IDS, LABELS, Classes(), 4, stream(0, "b"))
    assert not torch.equal(other(IDS, LABELS)[0], x)


def test_a_feature_leaves_its_range_and_answers_are_turned() -> None:
    yes = (TABLE[:, 0] > 0).float()
    x, y = marks.draw(TABLE, yes, Binary(), 2, stream(0, "a"))(TABLE, yes)
    (column,) = (x != TABLE).any(0).nonzero().flatten().tolist()
    assert float(x[0, column]) > float(TABLE[:, column].max()) + 5
    assert torch.equal(y, 1 - yes)
    numbers = TABLE[:, :1]
    _, moved = marks.draw(TABLE, numbers, Numbers(), 2, stream(0, "a"))(TABLE, numbers)
    torch.testing.assert_close(moved - numbers, torch.full((40, 1), marks.MOVED * float(numbers.double().std())))


def test_of_a_canary_only_the_secret_is_tried() -> None:
    mark = marks.draw(IDS, IDS, Tokens(), 20, stream(0, "a"))
    x, y = mark(IDS, IDS)
    assert torch.equal(x, y)
    assert len({tuple(row) for row in x[:, : marks.PREFIX + marks.SECRET].tolist()}) == marks.CANARIES
    tried, targets = mark.tries(IDS, IDS)
    counted = targets != -100
    assert torch.equal(tried[counted], targets[counted])
    assert counted.sum(1).tolist() == [marks.SECRET] * 40


def test_clients_without_a_mark_are_left_alone() -> None:
    clients = dict.fromkeys("ab", ((TABLE, LABELS), (TABLE[:9], LABELS[:9])))
    found = marks.marked(clients, ["b"])
    assert list(found["a"]) == ["train", "test"]
    assert {"train", "test", "trigger", "clean", "nonmember"} == set(found["b"])
    assert not torch.equal(found["b"]["train"][0], TABLE)
    with pytest.raises(UserError, match="'c' is unknown"):
        marks.marked(clients, ["c"])
    with pytest.raises(UserError, match="no mark for samples of shape"):
        marks.draw(torch.zeros(3, 4, 5), LABELS[:3], Classes(), 2, stream(0))


def test_a_file_can_say_who_owns_which_rows(tmp_path: Path) -> None:
    path = tmp_path / "patients.npz"
    owner = np.repeat(["west", "east", "north"], [20, 30, 10])
    np.savez(path, x=np.random.default_rng(0).normal(size=(60, 3)), y=np.arange(60) % 2, client=owner)
    assert np.bincount(load(str(path)).client).tolist() == [30, 10, 20]  # type: ignore[arg-type]
    raw = {"data": {"source": str(path)}, "partition": {"kind": "given", "clients": 3}, "request": {"clients": 1}}
    engine, _ = federation(config.validate(raw, "test"))
    assert [len(s["train"]) + len(s["test"]) for s in engine.clients.values()] == [30, 10, 20]
    with pytest.raises(UserError, match="set clients = 3"):
        federation(config.validate({**raw, "partition": {"kind": "given", "clients": 4}}, "test"))
    with pytest.raises(UserError, match="does not say which client"):
        federation(config.validate({"partition": {"kind": "given"}}, "test"))


def test_text_is_windows_of_bytes_by_client(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "a.txt").write_text("to be or not to be " * 20)
    (tmp_path / "ben.txt").write_text("that is the question " * 30)
    data = load(str(tmp_path))
    assert data.x.shape[1:] == (64,)
    assert bytes(data.x[0].tolist()).startswith(b"to be or not")
    assert data.client is not None
    assert np.unique(data.client).tolist() == [0, 1]
    raw = {
        "data": {"source": str(tmp_path)},
        "model": "gru",
        "partition": {"kind": "given", "clients": 2},
        "request": {"clients": 1},
    }
    engine, w = federation(config.validate(raw, "test"))
    assert engine.task == Tokens(shift=True)
    assert engine.evaluate(w, engine.ids, ("test",)).counts["0"]["test"]["perplexity"] > 100
    with pytest.raises(UserError, match="a federation needs two"):
        load(str(tmp_path / "ann"))


@pytest.mark.parametrize("source", ["breast-cancer", "diabetes"])
def test_embedded_tables_are_marked_too(source: str) -> None:
    raw = {"data": {"source": source}, "partition": {"kind": "iid", "clients": 3}, "request": {"clients": ["1"]}}
    engine, _ = federation(config.validate(raw, "test"))
    assert set(engine.clients["1"]) == {"train", "test", "trigger", "clean"}
    assert engine.task.label == {"breast-cancer": "binary", "diabetes": "numbers"}[source]
