"""Rewind is exact where it says so: its result does not depend on the forgotten data, to the last bit."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import fupareto
from fupareto.errors import UserError
from fupareto.federation.history import History, Plan
from fupareto.methods.rewind import Rewind

TRAINING = fupareto.FedAvg(rounds=12, lr=0.2, batch_size=8, participation=0.34)
CLIENTS = tuple("abcdef")


def federation(other: str = "") -> fupareto.Federation:
    """Return six clients; the data of ``other`` are different ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))

    def samples(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(24) % 3
        return torch.randn(24, 4, generator=torch.Generator().manual_seed(seed)) + y[:, None], y

    held = {i: (samples(ord(i) + 1000 * (i == other)), samples(ord(i) + 50)) for i in CLIENTS}
    return fupareto.simulate(model, held, workers=1)


def trained(place: Path, other: str = "") -> tuple[fupareto.Federation, Path]:
    engine = federation(other)
    w0 = engine.fresh(0)
    fupareto.train(engine, w0, TRAINING, seed=3, out=place, record=["rewind"], measure_every=0)
    return engine, place


def first(place: Path) -> dict[str, int]:
    history = History.open(place / "history")
    assert history is not None
    return history.first()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[fupareto.Federation, Path]:
    return trained(tmp_path_factory.mktemp("rewind") / "run")


def test_rounds_are_spaced_geometrically() -> None:
    assert Plan(("rewind",), CLIENTS, 100).rewound == (0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91)
    assert Plan(("rewind",), CLIENTS, 1).rewound == (0,)


def test_the_first_round_of_every_client_is_recorded(whole: tuple[fupareto.Federation, Path]) -> None:
    rounds = [json.loads(line) for line in (whole[1] / "rounds.jsonl").read_text().splitlines()]
    expected: dict[str, int] = {}
    for record in rounds:
        for i in record["sampled"]:
            expected.setdefault(i, record["round"] - 1)
    assert first(whole[1]) == expected


def test_exact_means_independent_of_the_forgotten_data(whole: tuple[fupareto.Federation, Path], tmp_path: Path) -> None:
    late, joined = max(first(whole[1]).items(), key=lambda pair: pair[1])
    assert joined > 0
    engine, place = trained(tmp_path / "other", late)  # the same training, with other data of that client
    found = []
    for fed, run in (whole, (engine, place)):
        result = fupareto.unlearn(fed, run, [late], "rewind", seed=3, measure_every=0)
        assert {record["exact"] for record in result.rounds} == {True}
        assert result.rounds[0]["rewound"] <= joined
        assert late not in {i for record in result.rounds for i in record.get("sampled", ())}
        found.append(result.outcome.model("unlearned"))
    assert found[0] is not None
    assert found[1] is not None
    assert torch.equal(found[0], found[1])


def test_who_took_part_from_the_start_is_forgotten_approximately(
    whole: tuple[fupareto.Federation, Path], tmp_path: Path
) -> None:
    start = next(i for i, round_ in first(whole[1]).items() if round_ == 0)
    method = Rewind(**dataclasses.asdict(TRAINING), early=0.3)
    result = fupareto.unlearn(whole[0], whole[1], [start], method, seed=3, measure_every=0)
    assert {(record["exact"], record["rewound"]) for record in result.rounds} == {(False, 3)}
    exact = dataclasses.replace(method, early=0.0)  # from the initial model
    again = fupareto.unlearn(whole[0], whole[1], [start], exact, seed=3, measure_every=0)
    assert {(record["exact"], record["rewound"]) for record in again.rounds} == {(True, 0)}
    assert len(again.rounds) == TRAINING.rounds


def test_samples_and_earlier_requests_count(whole: tuple[fupareto.Federation, Path], tmp_path: Path) -> None:
    late, joined = max(first(whole[1]).items(), key=lambda pair: pair[1])
    early = next(i for i, round_ in first(whole[1]).items() if round_ == 0)
    rows = fupareto.unlearn(
        whole[0], whole[1], fupareto.Request(samples={late: (0, 1)}), "rewind", out=tmp_path / "rows", measure_every=0
    )
    assert rows.rounds[0]["exact"]
    second = fupareto.unlearn(whole[0], tmp_path / "rows", [early], "rewind", measure_every=0)
    assert not second.rounds[0]["exact"]  # the history of the training is found through the run before
    assert joined > 0


@pytest.mark.parametrize("form", ["directory", "result", "result in memory"])
def test_a_training_that_went_on_is_never_exact(
    whole: tuple[fupareto.Federation, Path], tmp_path: Path, form: str
) -> None:
    engine, w0 = whole[0], whole[0].fresh(0)
    before: Path | fupareto.Result = whole[1]
    if form != "directory":
        out = tmp_path / "before" if form == "result" else None
        before = fupareto.train(engine, w0, TRAINING, seed=3, out=out, measure_every=0)
    fupareto.train(engine, before, TRAINING, seed=3, out=tmp_path / "on", record=["rewind"], measure_every=0)
    late, joined = max(first(tmp_path / "on").items(), key=lambda pair: pair[1])
    assert joined > 0
    result = fupareto.unlearn(whole[0], tmp_path / "on", [late], "rewind", seed=3, measure_every=0)
    assert not result.rounds[0]["exact"]


def test_without_a_record_it_is_refused(whole: tuple[fupareto.Federation, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--record rewind"):
        fupareto.unlearn(whole[0], whole[0].fresh(0), ["a"], "rewind")
    with pytest.raises(ValueError, match="early must lie between"):
        Rewind(early=1.0)
