"""Attacks with shadow models: RMIA at tier 2; LiRA, U-LiRA and telling models apart at tier 3."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto.audit.attacks import lira, rmia
from fupareto.audit.attacks.membership import Attacked
from fupareto.audit.attacks.outputs import MEMBERS, NONMEMBERS, outputs
from fupareto.audit.attacks.roc import Array
from fupareto.federation.contract import Federation

Attacks = dict[str, Attacked]  # by client


@dataclass(frozen=True)
class Shadowed:
    """A run's shadow models: ``load`` takes with, without or forgotten, and a number below ``each``.

    ``inside`` says of a shadow that was trained with the forget clients which of their samples, members first, it was
    trained on. RMIA looks at all of them as they were before they forgot, half of which saw a sample.
    """

    tier: int
    each: int
    load: Callable[[str, int], Tensor]
    inside: Callable[[int], Mapping[str, NDArray[np.bool_]]]

    def models(self, which: str) -> Iterable[Tensor]:
        """Return one kind of them, loaded one by one."""
        return (self.load(which, number) for number in range(self.each))


@dataclass(frozen=True)
class View:
    """Outputs of several models on one client's samples, members first: (models, samples)."""

    members: int
    probability: Array
    scaled: Array

    def sides(self, scores: Array) -> tuple[Array, Array]:
        """Split scores of all samples into those of members and of non-members."""
        return scores[: self.members], scores[self.members :]


def views(federation: Federation, models: Iterable[Tensor], forget: Sequence[str]) -> dict[str, View]:
    """Ask the forget clients for signals of models on their samples; a client that is ever missing is left out."""
    rows: dict[str, list[tuple[Array, Array]]] = {i: [] for i in forget}
    members, count = {}, 0
    for count, w in enumerate(models, 1):  # noqa: B007  (how many there were is needed)
        inside, _ = outputs(federation, w, forget, MEMBERS)
        outside, _ = outputs(federation, w, forget, NONMEMBERS)
        for i in inside.keys() & outside.keys():
            members[i] = len(inside[i])
            both = [(o.probability, o.scaled) for o in (inside[i], outside[i])]
            rows[i].append((np.concatenate([b[0] for b in both]), np.concatenate([b[1] for b in both])))
    return {
        i: View(members[i], np.stack([r[0] for r in found]), np.stack([r[1] for r in found]))
        for i, found in rows.items()
        if count and len(found) == count
    }


def stronger(
    federation: Federation,
    models: Mapping[str, Tensor],
    forget: Sequence[str],
    attacks: Mapping[str, Attacks],
    shadowed: Shadowed,
    final: str,
    rng: np.random.Generator,
) -> tuple[dict[str, Attacks], dict[str, Any] | None]:
    """Return the attacks on every stage with those that need shadow models, and what tells models apart."""
    trained = views(federation, shadowed.models("with"), forget)
    own = {stage: views(federation, [w], forget) for stage, w in models.items()}
    found = {
        stage: {i: _add(a, "rmia", own[stage], trained, i, _rmia, rng) for i, a in clients.items()}
        for stage, clients in attacks.items()
    }
    if shadowed.tier < 3:
        return found, None
    inside = {i: np.stack([shadowed.inside(k)[i] for k in range(shadowed.each)]) for i in trained}

    def likelihood(mine: View, theirs: View, i: str) -> Array:
        return lira.scores(mine.scaled[0], theirs.scaled, inside[i])

    forgotten = views(federation, shadowed.models("forgotten"), forget)
    for stage, name, theirs in (("initial", "lira", trained), (final, "u-lira", forgotten)):
        found[stage] = {i: _add(a, name, own[stage], theirs, i, likelihood, rng) for i, a in found[stage].items()}
    without = views(federation, shadowed.models("without"), forget)
    return found, _apart(forgotten, without, shadowed.each)


def _add(
    attacked: Attacked,
    name: str,
    own: Mapping[str, View],
    others: Mapping[str, View],
    i: str,
    attack: Callable[[View, View, str], Array],
    rng: np.random.Generator,
) -> Attacked:
    if i not in own or i not in others:
        return attacked
    return attacked.plus(name, *own[i].sides(attack(own[i], others[i], i)), rng)


def _rmia(own: View, references: View, _: str) -> Array:
    """Score against the client's other non-members: the population of which members are to be told."""
    held = np.arange(own.members, own.probability.shape[1])
    place = np.concatenate([np.full(own.members, -1), np.arange(len(held))]).astype(np.int64)
    return rmia.scores(
        own.probability[0], references.probability, own.probability[0][held], references.probability[:, held], own=place
    )


def _apart(forgotten: Mapping[str, View], without: Mapping[str, View], each: int) -> dict[str, Any]:
    """Tell models apart by all forget clients' samples together, and by each client's."""
    ids = [i for i in forgotten if i in without]
    together = [np.concatenate([side[i].scaled for i in ids], axis=1) for side in (forgotten, without)] if ids else []
    overall = lira.told_apart(*together) if together else lira.told_apart(np.empty((0, 0)), np.empty((0, 0)))
    clients = {i: lira.told_apart(forgotten[i].scaled, without[i].scaled).to_json() for i in ids}
    return {**overall.to_json(), "with": each, "without": each, "clients": clients}
