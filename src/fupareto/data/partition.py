"""Partition of the pool over clients, and the local split into train and test samples."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fupareto.errors import UserError

Indices = NDArray[np.int64]

KINDS = ("dirichlet", "pat", "iid")
TRIES = 1000


def partition(
    labels: NDArray[np.integer],
    clients: int,
    kind: str,
    rng: np.random.Generator,
    *,
    alpha: float = 0.1,
    classes_per_client: int = 2,
    balance: bool = True,
    smallest: float = 0.0,
) -> list[Indices]:
    """Divide the pool over clients and return one array of row numbers per client; disjoint, covering the pool.

    - ``dirichlet``: for each class, shares drawn from Dir(alpha), zero for clients that already have an equal share of
      the pool. The whole partition is drawn again until every client has at least as many samples as there are classes.
    - ``pat``: pathological, every client has ``classes_per_client`` classes (see :func:`_pat`); a random permutation
      assigns the parts to clients.
    - ``iid``: a random permutation divided into equal parts.

    Args:
        labels: Labels of the pool (N,).
        clients: Number of clients.
        kind: ``dirichlet``, ``pat`` or ``iid``.
        rng: Source of all random draws.
        alpha: Concentration of ``dirichlet``; smaller values give more heterogeneous clients.
        classes_per_client: Classes of each client in ``pat``.
        balance: Whether ``pat`` divides a class into equal parts; otherwise part sizes are random.
        smallest: Smallest size of a random part in ``pat``.
    """
    labels = np.asarray(labels)
    if kind not in KINDS:
        raise UserError(f"unknown partition {kind!r}; choose one of {', '.join(KINDS)}")
    if clients < 1:
        raise UserError(f"a partition needs at least 1 client, not {clients}")
    if labels.ndim != 1 or labels.size == 0:
        raise UserError(f"a partition needs a 1-D, non-empty array of labels, not one of shape {labels.shape}")
    if kind == "dirichlet":
        parts = _dirichlet(labels, clients, rng, alpha)
    elif kind == "pat":
        parts = _pat(labels, clients, rng, classes_per_client, None if balance else smallest)
        parts = [parts[i] for i in rng.permutation(clients)]
    else:
        parts = np.array_split(rng.permutation(labels.size), clients)
    if empty := sum(part.size == 0 for part in parts):
        raise UserError(
            f"the {kind} partition of {labels.size} samples over {clients} clients leaves {empty} of them "
            "without data; use fewer clients, more samples" + (" or more classes per client" if kind == "pat" else "")
        )
    return parts


def _dirichlet(labels: NDArray[np.integer], clients: int, rng: np.random.Generator, alpha: float) -> list[Indices]:
    if not (np.isfinite(alpha) and alpha > 0):
        raise UserError(f"alpha of the Dirichlet partition must be a positive number, not {alpha}")
    members = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    least = len(members)
    if labels.size < clients * least:
        raise UserError(
            f"{labels.size} samples cannot give {clients} clients at least {least} samples each (one per "
            f"class); use at most {labels.size // least} clients, or more samples"
        )
    for _ in range(TRIES):
        parts = _dirichlet_try(members, clients, labels.size / clients, rng, alpha)
        if parts is not None and min(part.size for part in parts) >= least:
            return [rng.permutation(part) for part in parts]
    raise UserError(
        f"no Dirichlet partition with alpha {alpha} gave each of {clients} clients at least {least} samples "
        f"(one per class) in {TRIES} tries; use fewer clients, more samples, or a larger alpha"
    )


def _dirichlet_try(
    members: list[Indices], clients: int, full: float, rng: np.random.Generator, alpha: float
) -> list[Indices] | None:
    """Draw one partition; return None if a class has no client left to go to (all shares are zero)."""
    held: list[list[Indices]] = [[] for _ in range(clients)]
    sizes = np.zeros(clients, dtype=np.int64)
    for indices in members:
        shuffled = rng.permutation(indices)
        shares = np.where(sizes >= full, 0.0, rng.dirichlet(np.full(clients, alpha)))
        total = shares.sum()
        if not (np.isfinite(total) and total > 0):
            return None
        cuts = (np.cumsum(shares / total) * shuffled.size).astype(np.int64)[:-1]
        for client, piece in enumerate(np.split(shuffled, cuts)):
            held[client].append(piece)
            sizes[client] += piece.size
    return [np.concatenate(pieces) for pieces in held]


def _pat(
    labels: NDArray[np.integer], clients: int, rng: np.random.Generator, quota: int, smallest: float | None
) -> list[Indices]:
    """Return parts with at most ``quota`` classes; each class goes to the first parts whose quota is not used up.

    A class is divided over floor(clients * quota / classes) parts, in the order of the data. So 10 clients with 2 of 10
    classes come in pairs, (0, 1), (0, 1), (2, 3), (2, 3), ... Every class is assigned; a quota too small for that
    raises UserError. Remaining quota is not used, so a client may have fewer classes.
    """
    members = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    if not 1 <= quota <= len(members):
        raise UserError(f"classes per client must be between 1 and {len(members)}, not {quota}")
    sharing = clients * quota // len(members)
    if sharing == 0:
        raise UserError(
            f"{clients} clients with {quota} classes each cannot hold all {len(members)} classes; use at "
            f"least {-(-len(members) // quota)} clients or {-(-len(members) // clients)} classes per client"
        )
    size_of = _equal if smallest is None else _uneven(rng, smallest)
    left = [quota] * clients
    held: list[list[Indices]] = [[np.empty(0, dtype=np.int64)] for _ in range(clients)]
    for indices in members:
        takers = [client for client in range(clients) if left[client] > 0][:sharing]
        start = 0
        for client in takers:
            size = indices.size - start if client == takers[-1] else size_of(indices.size // len(takers))
            held[client].append(indices[start : start + size])
            start += size
            left[client] -= 1
    return [np.concatenate(pieces) for pieces in held]


def _equal(size: int) -> int:
    return size


def _uneven(rng: np.random.Generator, smallest: float) -> Callable[[int], int]:
    """Return a function that draws sizes in [max(s/10, smallest), s) for the equal size s; s if the range is empty."""

    def size_of(size: int) -> int:
        low = max(size / 10, smallest)
        return int(rng.uniform(low, size)) if low < size else size

    return size_of


def split(indices: Indices, train_fraction: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Shuffle one client's samples; return ``int(train_fraction * len)`` of them for training, and the others."""
    count = int(train_fraction * len(indices))
    if not 0 < count < len(indices):
        raise ValueError(
            f"{len(indices)} samples at a train fraction of {train_fraction:.3f} leave "
            f"{'no training' if count <= 0 else 'no test'} samples"
        )
    shuffled = rng.permutation(indices)
    return shuffled[:count], shuffled[count:]
