"""Shadow models with and without a sample in their training data, for the attacks of tiers 2 and 3.

Every shadow model is trained like the model under audit. Shadow models of the kind *with* include the forget clients,
each with a random half of its samples, members and non-members together; the next shadow model gets the other half, so
that every sample is in the training data of one model of a pair (Carlini et al., "Membership Inference Attacks From
First Principles", 2022). They are then unlearned like the audited run: a sample counts as *in* if it was trained on and
then unlearned, as *out* if it was never trained on (Hayes et al., "Inexact Unlearning Needs More Careful Evaluations to
Avoid a False Sense of Privacy", 2024). Shadow models of the kind *without* are trained by the retained clients alone.
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
from fupareto.tasks.samples import Held, together

Masks = Mapping[str, NDArray[np.bool_]]  # client -> which of its samples, members first, a shadow model trains on
POOLS = {  # form -> names of the splits of members and of non-members; the first that exists is taken
    "trained": (("member", "train"), ("nonmember", "test")),
    "objective": (("train",), ("spare", "nonmember", "test")),
}


def pool(splits: Splits, form: str) -> Held:
    """Return the members and then the non-members of a client.

    Args:
        splits: Data of the client.
        form: "trained", as the samples are trained on, or "objective", as the objective of the request has them.
    """
    parts = []
    for names in POOLS[form]:
        found = next((splits[name] for name in names if name in splits), None)
        if found is None:
            raise UserError(f"shadow models need held-out samples of every forget client; {names[-1]} data are missing")
        parts.append(found)
    return together(parts)


def halves(
    federation: SimulatedFederation, forget: Sequence[str], seed: int, number: int
) -> dict[str, NDArray[np.bool_]]:
    """Return which half of the samples of each forget client a shadow model trains on.

    Shadow models of an even ``number`` get a random half, the following odd one the other half.
    """
    masks = {}
    for i in forget:
        size = len(pool(federation.clients[i], "trained"))
        mask = np.zeros(size, bool)
        mask[stream(seed, "shadow", number // 2, i).permutation(size)[: size // 2]] = True
        masks[i] = ~mask if number % 2 else mask
    return masks


def world(
    federation: SimulatedFederation, forget: Sequence[str], masks: Masks | None, form: str
) -> SimulatedFederation:
    """Return the federation of a shadow model.

    Args:
        federation: The federation of the audited run.
        forget: The forget clients.
        masks: Samples that they train on; None leaves the forget clients out.
        form: Form of their samples, see :func:`pool`.
    """
    clients: dict[str, Splits] = {}
    for i, splits in federation.clients.items():
        if i not in forget:
            clients[i] = splits
        elif masks is not None:
            held = pool(splits, form)
            chosen = torch.from_numpy(masks[i])
            clients[i] = {"train": held.take(chosen), "test": held.take(~chosen)}
    return federation.like(clients)


def own_seed(seed: int, without: bool, number: int) -> int:
    """Return the seed of a shadow model; each has another, and so another initial model."""
    return derive(seed, "shadow", "without" if without else "with", number)


def train(
    federation: SimulatedFederation, forget: Sequence[str], masks: Masks | None, method: FedAvg, seed: int
) -> Tensor:
    """Train a shadow model from a newly initialised model and return its vector."""
    learning = world(federation, forget, masks, "trained")
    w = learning.fresh(derive(seed, "shadow model"))
    return _model(api.learn(learning, Start(w), method, Settings(seed, measure_every=0)), "initial")


def forget(
    federation: SimulatedFederation, request: Request, masks: Masks, w: Tensor, method: Method, stage: str, seed: int
) -> Tensor:
    """Make a shadow model forget, and return its vector at ``stage``, the final stage of the audited run."""
    sides = request.sides(federation.ids)
    answering = world(federation, sides[0], masks, "objective")
    return _model(api.answer(answering, Start(w), request, method, Settings(seed, measure_every=0)), stage)


def _model(result: Result, stage: str) -> Tensor:
    """Return the vector of a stage's model."""
    w = result.outcome.model(stage)
    if w is None:
        raise UserError(f"a shadow model did not reach the stage '{stage}'")
    return w
