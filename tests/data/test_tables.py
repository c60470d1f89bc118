"""CSV files: features, targets and clients by column; what cannot be used is refused with its place."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fupareto import config
from fupareto.data import load
from fupareto.data.tables import Columns
from fupareto.errors import UserError
from fupareto.experiment.setting import federation
from fupareto.tasks import Labels, Numbers

GOOD = "age,client,price,size\n" + "".join(f"{k},{'wne'[k % 3]},{k * 2}.5,{k / 7}\n" for k in range(30))


def table(tmp_path: Path, text: str, encoding: str = "utf-8") -> str:
    path = tmp_path / "houses.csv"
    path.write_bytes(text.encode(encoding))
    return str(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_columns_are_features_targets_and_clients(tmp_path: Path, encoding: str) -> None:
    path = table(tmp_path, GOOD.replace("\n", "\r\n"), encoding)
    data = load(path, task=Numbers(), columns=Columns(("price",)))
    assert data.x[:3].tolist() == [[0, 0], [1, pytest.approx(1 / 7)], [2, pytest.approx(2 / 7)]]
    assert data.y[:3, 0].tolist() == [0.5, 2.5, 4.5]
    assert data.client is not None
    assert data.client[:3].tolist() == [2, 1, 0]  # e, n and w
    assert data.name == "houses"
    part = load(path, samples=6, task=Numbers(), columns=Columns(("price",)))
    assert np.bincount(part.client).tolist() == [2, 2, 2]  # type: ignore[arg-type]


def test_clients_with_numbers_keep_their_order_and_targets_may_be_several(tmp_path: Path) -> None:
    path = table(tmp_path, "a,x,owner,b\n1,0.5,10,0\n0,1.5,9,0\n0,2.5,100,1\n")
    data = load(path, task=Labels(), columns=Columns(("a", "b"), "owner"))
    assert data.y.tolist() == [[1, 0], [0, 0], [0, 1]]
    assert data.client is not None
    assert data.client.tolist() == [1, 0, 2]
    assert torch.equal(data.x, torch.tensor([[0.5], [1.5], [2.5]]))


def test_an_experiment_file_names_its_columns(tmp_path: Path) -> None:
    table(tmp_path, GOOD)
    (tmp_path / "own.toml").write_text(
        'task = "numbers"\ndata = { source = "houses.csv", target = "price" }\nrequest.clients = ["1"]\n'
        'partition = { kind = "given", clients = 3 }\n'
    )
    engine, w = federation(config.load(tmp_path / "own.toml"))
    assert [len(s["train"]) + len(s["test"]) for s in engine.clients.values()] == [10, 10, 10]
    assert "mae" in engine.evaluate(w, engine.ids, ("test",)).counts["0"]["test"]
    with pytest.raises(UserError, match=r"target name columns of a .csv file, and source = 'digits' is none"):
        config.validate({"data": {"target": "price"}}, "test")


@pytest.mark.parametrize(
    ("text", "columns", "says"),
    [
        ("", Columns(), "has 0 columns in its first line"),
        ("a;y\n1;2\n", Columns(), "separated by commas"),
        ("a,y\n", Columns(), "contains no samples"),
        ("1,2\n3,4\n", Columns(), "must have the names of the columns"),
        ("a,a,y\n1,2,3\n", Columns(), "several columns 'a'"),
        ("a,b\n1,2\n", Columns(), r"say which column is the target.*The columns are a, b"),
        ("a,price\n1,2\n", Columns(("prize",)), "no column 'prize'.*did you mean 'price'"),
        ("a,y\n1,2\n", Columns(client="who"), "no column 'who'"),
        ("client,y\nn,2\n", Columns(), "there must be a feature"),
        ("a,y\n1,2\n3\n", Columns(), "line 3: 1 values, but there are 2 columns"),
        ("a,y\nmale,2\n", Columns(), "line 2: column 'a' is 'male', which is no number"),
        ("a,y\n1,\n", Columns(), "line 2: column 'y' is empty"),
        ("a,y\nnan,1\n", Columns(), "column 'a' is 'nan'"),
        ("a,y\n1e99,1\n", Columns(), "column 'a' is '1e99'"),
        ("a,client,y\n1,n,0\n2, ,1\n", Columns(), "column 'client' is empty in row 2"),
        ('a,y\n"1,2\n', Columns(), "not a CSV file"),
        ("a,y\n1,0.5\n", Columns(), "labels must be integers"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, columns: Columns, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load(table(tmp_path, text), columns=columns)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "houses.csv"
    for content, says in ((b"a,y\n\xff,1\n", "UTF-8"), (b"a,y\n\0,1\n", "houses.csv")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=says):
            load(str(path))
    path.unlink()
    with pytest.raises(UserError, match="does not exist"):
        load(str(path))
