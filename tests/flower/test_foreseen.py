"""The measurement of a round travels with the next question: fewer messages, and the same records."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from federation.worlds import FORGET, clients, plain, start
from fupareto import UserError, api
from fupareto.flower import nodes
from fupareto.flower.engine import FlowerFederation
from fupareto.methods import FedAvg, Method
from fupareto.run.directory import Run
from presets import guard

from .grid import LocalGrid, grid_of
from .test_faults import changed, changed_about

W = start()
TRAINING = FedAvg(rounds=4, lr=0.1, batch_size=9)
UNLEARNING = guard(rounds=4, recovery_rounds=3, lr=0.3)
MEASURES = ("asr", "r_acc", "r_acc_min", "forget_acc", "distance")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MEETING", 0.0)


class AtOnce(FlowerFederation):
    """The engine without announcements: every measurement is a message of its own."""

    def foresee(self, *_: Any) -> bool:
        return False


def engine(kind: type[FlowerFederation] = FlowerFederation) -> tuple[FlowerFederation, LocalGrid]:
    grid = grid_of(plain, clients())
    return kind(grid, plain(), clients=6, timeout=0.0, patience=0.0), grid


def run(federation: FlowerFederation, method: Method, **how: Any) -> Any:
    if isinstance(method, FedAvg):
        return api.train(federation, W, method, **how)
    return api.unlearn(federation, W, list(FORGET), method, **how)


def told(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.mark.parametrize("method", [TRAINING, UNLEARNING], ids=["FedAvg", "FUPareto"])
def test_the_records_are_the_same_with_fewer_messages(method: Method) -> None:
    (mine, grid), (theirs, apart) = engine(), engine(AtOnce)
    found, expected = run(mine, method).rounds, run(theirs, method).rounds
    assert told(found) == told(expected)
    assert all(set(MEASURES) <= set(record) for record in found)
    own, separate = (Counter(g.kinds())["evaluate.unlearn"] for g in (grid, apart))
    # The last model of a stage is measured at once. Recovery does not ask two of six clients: they are sent it alone.
    saved = 3 * 6 if method is TRAINING else 3 * 6 + 2 * 4
    assert separate - own == saved
    assert len(apart.sent) - len(grid.sent) == saved


def test_a_run_that_stops_before_the_measurement_is_resumed_with_the_same_records(tmp_path: Path) -> None:
    expected = run(engine()[0], UNLEARNING).rounds
    federation, grid = engine()

    def stop(record: dict[str, Any]) -> None:
        for i in list(clients()) if record["round"] == 2 else ():  # the record of round 3 waits in the checkpoint
            grid.stop(i)

    with pytest.raises(UserError, match="no client has been connected"):
        run(federation, UNLEARNING, out=tmp_path / "run", watch=stop)
    assert [r["round"] for r in Run.open(tmp_path / "run").rounds()] == [1, 2]
    resumed = run(engine()[0], UNLEARNING, out=tmp_path / "run", resume=True).rounds
    assert [told([r]) for r in resumed] == [told([r]) for r in expected]


LIES = {
    "nothing": "",
    "no JSON": "{",
    "another object": '{"a": 1}',
    "counts of another type": '{"counts": [1, 2]}',
    "counts without samples": '{"counts": {"test": {"samples": 0, "right": 0, "loss": 0.0}}}',
    "a split that was not asked for": '{"counts": {"secret": {"samples": 1, "right": 1, "loss": 0.0}}}',
    "more right than there are": '{"counts": {"test": {"samples": 1, "right": 10, "loss": 0.0}}}',
    "far too much text": '{"counts": "' + "x" * 10**6 + '"}',
}


@pytest.mark.parametrize("name", LIES)
def test_a_client_that_carries_nonsense_is_not_measured_and_trains_on(name: str) -> None:
    federation, grid = engine()
    grid.of("c3").fault = changed(changed_about(measured=LIES[name]))
    clean, records = run(engine()[0], TRAINING).rounds, run(federation, TRAINING).rounds
    assert [r["missing"] for r in records] == [{}] * 4
    asked_alone = name in ("nothing", "no JSON", "another object", "far too much text")
    assert (told(records) == told(clean)) is asked_alone
    assert all(record["r_acc"] is not None for record in records)
