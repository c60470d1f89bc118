"""Dormancy: what comes back of the forgotten when the retained clients train on.

After a request has been answered, a federation goes on training with the clients that stay. A model that only
suppresses what it knew may then show it again, without any forget client taking part. The comparison is the same
training from a retrained model; from the initial model it shows what ordinary fine-tuning would have forgotten.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fupareto.audit import utility
from fupareto.audit.training import Progress, Training, known, no_progress
from fupareto.federation.contract import Federation
from fupareto.randomness import derive

ROUNDS = 40


def dormancy(
    federation: Federation,
    models: Mapping[str, Tensor],
    sides: tuple[Sequence[str], Sequence[str]],
    measure: str,
    training: Training,
    rounds: int = ROUNDS,
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Train every model on with the retained clients, as the training did, and measure it after every round.

    Args:
        federation: The clients; the forget clients only measure.
        models: The models to start from, by stage.
        sides: The forget clients and the retained clients.
        measure: What says that something came back: asr, or forget_acc where there is no mark.
        training: The training's own settings: its rate, with the decay from its start, its epochs and batches.
        rounds: Number of further rounds.
        seed: Seed of the training's random streams, the same for every model.
        progress: How rounds are shown while they run.

    Returns:
        The entry ``dormancy`` of audit.json. A model's ``curve`` starts with the model as it is; ``worst`` is the
        largest value after that, in round ``worst_round``, with every forget client's value in that round
        (``clients``); ``missing`` are the forget clients that stopped being measured; ``r_acc`` is the retained
        clients' accuracy at the end.
    """
    found = {}
    for stage, w in models.items():
        with progress(f"training the {stage} model on", rounds) as watch:
            found[stage] = _curve(federation, w, sides, measure, training, rounds, seed, watch)
    return {"measure": measure, "rounds": rounds, "lr": training.lr, "models": found}


def _curve(
    federation: Federation,
    w: Tensor,
    sides: tuple[Sequence[str], Sequence[str]],
    measure: str,
    training: Training,
    rounds: int,
    seed: int,
    watch: Any,
) -> dict[str, Any]:
    forget, retained = sides
    value, first = known(federation, w, forget, measure)
    curve, absent = [value], set[str]()
    worst: dict[str, Any] = {"worst": None, "worst_round": None, "clients": {}}
    further = training.onward(federation, w, retained, derive(seed, "dormancy"))
    for number, w in zip(range(1, rounds + 1), further, strict=False):
        value, clients = known(federation, w, forget, measure)
        curve.append(value)
        absent |= set(first) - set(clients)
        if value is not None and (worst["worst"] is None or value > worst["worst"]):
            worst = {"worst": value, "worst_round": number, "clients": clients}
        if watch:
            watch({"round": number, "said": "not measured" if value is None else f"{100 * value:.1f}% remembered"})
    after = utility.utility(federation.evaluate(w, retained, utility.SPLITS), retained)
    return {"curve": curve, **worst, "r_acc": after["r_acc"], "missing": sorted(absent)}
