"""The delta attack: tell members by how much the loss of a sample changed from the initial to the audited model.

Whoever has both models, as every retained client has, can compare them sample by sample. Forgetting that raises the
loss of the forgotten samples and of no others tells who was forgotten. A retrained model changes the members' losses
too, because it never learnt them, so the attack is read against the same attack on a retrained model, on either side: a
model that changed nothing is as conspicuous as one that changed too much.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from fupareto.audit.attacks.membership import Attacked
from fupareto.audit.attacks.outputs import MEMBERS, NONMEMBERS, outputs
from fupareto.audit.attacks.roc import Array
from fupareto.federation.contract import Federation
from fupareto.randomness import stream

NAME = "delta"
Losses = Mapping[str, tuple[Array, Array]]  # by client, of members and of non-members


def with_delta(
    federation: Federation,
    models: Mapping[str, Tensor],
    forget: Sequence[str],
    attacks: Mapping[str, Mapping[str, Attacked]],
    seed: int,
) -> dict[str, dict[str, Attacked]]:
    """Return the attacks on every stage with the delta attack added, but for the initial model itself."""
    before = losses(federation, models["initial"], forget)
    found = {}
    for stage, clients in attacks.items():
        after = before if stage == "initial" else losses(federation, models[stage], forget)
        found[stage] = {
            i: a
            if stage == "initial" or i not in before or i not in after
            else a.plus(NAME, *scores(before[i], after[i]), stream(seed, "membership", NAME, i))
            for i, a in clients.items()
        }
    return found


def scores(before: tuple[Array, Array], after: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return by how much the losses of members and of non-members rose."""
    members, nonmembers = (new - old for old, new in zip(before, after, strict=True))
    return np.asarray(members, np.float64), np.asarray(nonmembers, np.float64)


def losses(federation: Federation, w: Tensor, forget: Sequence[str]) -> dict[str, tuple[Array, Array]]:
    """Ask the forget clients for the losses of their members and non-members."""
    inside, _ = outputs(federation, w, forget, MEMBERS)
    outside, _ = outputs(federation, w, forget, NONMEMBERS)
    return {i: (inside[i].loss, outside[i].loss) for i in forget if i in inside and i in outside}
