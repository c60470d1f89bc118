"""Dormancy: what comes back of the forgotten when the retained clients train on.

After a request has been answered, a federation goes on training with the clients that stay. A model that only
suppresses what it knew may then show it again, without any forget client taking part. The comparison is the same
training from a retrained model; from the initial model it shows what ordinary fine-tuning would have forgotten.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from fupareto.audit import utility
from fupareto.audit.further import Curve, Further
from fupareto.audit.training import Watch

ROUNDS = 40


def dormancy(further: Further, models: Mapping[str, Tensor], rounds: int = ROUNDS) -> dict[str, Any]:
    """Train every model on with the retained clients, as the training did, and measure it after every round.

    Args:
        further: The clients, of which the forget clients only measure, and how they train: at the training's own rate,
            with the decay from its start.
        models: The models to start from, by stage.
        rounds: Number of further rounds.

    Returns:
        The entry ``dormancy`` of audit.json. A model's ``curve`` starts with the model as it is; ``worst`` is the
        largest value after that, in round ``worst_round``; ``clients`` has every forget client's own largest value,
        with its ``round``; ``missing`` are the forget clients that stopped being measured; ``idle`` is the number
        of rounds in which no retained client trained; ``r_acc`` is the retained clients' accuracy at the end.
    """
    title, trace = "training the {} model on", partial(_curve, further, rounds)
    found = {s: further.curve("dormancy", title.format(s), rounds, w, partial(trace, w)) for s, w in models.items()}
    return {"measure": further.measure, "rounds": rounds, "lr": further.training.lr, "models": found}


def _curve(further: Further, rounds: int, w: Tensor, watch: Watch | None) -> Curve:
    """Train one model on."""
    _, retained = further.sides
    value, first = further.known(w)
    curve, absent = [value], set[str]()
    worst: dict[str, Any] = {"worst": None, "worst_round": None}
    clients: dict[str, dict[str, Any]] = {}
    idle = 0
    for number, trained in zip(range(1, rounds + 1), further.rounds(w, retained, "dormancy"), strict=False):
        w, (value, now) = trained.w, further.after(trained)
        curve.append(value)
        if trained.record["step"] is None:
            idle += 1
        else:
            absent |= set(first) - set(now)
        if value is not None and (worst["worst"] is None or value > worst["worst"]):
            worst = {"worst": value, "worst_round": number}
        for i, own in now.items():
            if i not in clients or own["value"] > clients[i]["value"]:
                clients[i] = {**own, "round": number}
        if watch:
            watch({"round": number, "said": "not measured" if value is None else f"{100 * value:.1f}% remembered"})
    after = utility.utility(further.federation.evaluate(w, retained, utility.SPLITS), retained)
    told = {"r_acc": after["r_acc"], "missing": sorted(absent), "idle": idle}
    return {"curve": curve, **worst, "clients": clients, **told}
