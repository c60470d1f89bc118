"""Shadow models, which did or did not learn from a sample, for the stronger attacks.

Every shadow is trained like the model under audit. Those *with* the clients to be forgotten give each of them a random
half of its samples, members and non-members together, to train on; the next one gets the other half, so over a pair
every sample was once in and once out (Carlini et al., "Membership Inference Attacks From First Principles", 2022).
Afterwards they are made to forget the clients, as the audited run was: in = trained with and then unlearned, out =
never trained on (Hayes et al., "Inexact Unlearning Needs More Careful Evaluations to Avoid a False Sense of Privacy",
2024). Those *without* are trained by the retained clients alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto import api
from fupareto.errors import UserError
from fupareto.federation import Request, SimulatedFederation
from fupareto.federation.request import Splits
from fupareto.methods import FedAvg, Method
from fupareto.randomness import derive, stream
from fupareto.result import Result
from fupareto.run.execute import Settings
from fupareto.run.start import Start

Masks = Mapping[str, NDArray[np.bool_]]  # client -> which of its samples, members first, a shadow trains on
POOLS = {
    "trained": (("member", "train"), ("nonmember", "test")),
    "objective": (("train",), ("spare", "nonmember", "test")),
}


def pool(splits: Splits, form: str) -> tuple[Tensor, Tensor]:
    """Return a client's members and then its non-members, as ``trained`` on or in the form of the ``objective``."""
    parts = []
    for names in POOLS[form]:
        found = next((splits[name] for name in names if name in splits), None)
        if found is None:
            raise UserError(f"shadow models need held-out samples of every forget client; there is no {names[-1]} data")
        parts.append(found)
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def halves(
    federation: SimulatedFederation, forget: Sequence[str], seed: int, number: int
) -> dict[str, NDArray[np.bool_]]:
    """Draw which half of each forget client's samples shadow ``number`` trains on; an odd one gets the rest."""
    masks = {}
    for i in forget:
        size = len(pool(federation.clients[i], "trained")[1])
        mask = np.zeros(size, bool)
        mask[stream(seed, "shadow", number // 2, i).permutation(size)[: size // 2]] = True
        masks[i] = ~mask if number % 2 else mask
    return masks


def world(
    federation: SimulatedFederation, forget: Sequence[str], masks: Masks | None, form: str
) -> SimulatedFederation:
    """Return the federation of a shadow: forget clients with their half in a ``form``, or without them at all."""
    clients: dict[str, Splits] = {}
    for i, splits in federation.clients.items():
        if i not in forget:
            clients[i] = splits
        elif masks is not None:
            x, y = pool(splits, form)
            chosen = torch.from_numpy(masks[i]).to(x.device)
            clients[i] = {"train": (x[chosen], y[chosen]), "test": (x[~chosen], y[~chosen])}
    return federation.like(clients)


def own_seed(seed: int, without: bool, number: int) -> int:
    """Return a shadow's own seed, so that it starts from a model of its own."""
    return derive(seed, "shadow", "without" if without else "with", number)


def train(
    federation: SimulatedFederation, forget: Sequence[str], masks: Masks | None, method: FedAvg, seed: int
) -> Tensor:
    """Train a shadow from a new model of its own."""
    learning = world(federation, forget, masks, "trained")
    w = learning.fresh(derive(seed, "shadow model"))
    return _model(api.learn(learning, Start(w), method, Settings(seed, measure_every=0)), "initial")


def forget(
    federation: SimulatedFederation, request: Request, masks: Masks, w: Tensor, method: Method, stage: str, seed: int
) -> Tensor:
    """Make a shadow forget, and return its model of the ``stage`` that the audited run keeps."""
    sides = request.sides(federation.ids)
    answering = world(federation, sides[0], masks, "objective")
    return _model(api.answer(answering, Start(w), request, method, Settings(seed, measure_every=0)), stage)


def _model(result: Result, stage: str) -> Tensor:
    w = result.outcome.model(stage)
    if w is None:
        raise UserError(f"a shadow model did not come to the stage {stage}")
    return w
