"""Fairness guidance: the angle between the clients' losses and a preference, and its gradient."""

from typing import Literal

import numpy as np

from fupareto.pareto.gram import Array


def guidance(losses: Array, preference: Array, scale: Literal["unit", "exact"] = "unit") -> Array | None:
    """Return ``h`` with ``g_p = ∇F_p = Σ h_i g_i``, where ``F_p = arccos(p·F / ‖F‖)`` (in Eqs. 4 and 8).

    With ``p̂ = p/‖p‖``, ``v = F/‖F‖``, ``c = p̂·v`` and ``s = √(1 - c²) = ‖c v - p̂‖``:
    ``∂F_p/∂F_i = (c v_i - p̂_i) / (s ‖F‖)``.

    The paper does not normalise its 0/1 preference, which can make the argument of arccos larger than 1.

    Args:
        losses: ``F``, one loss per client (m,).
        preference: ``p``, one value per client (m,).
        scale: ``"exact"`` is the derivative; ``"unit"`` omits ``1/‖F‖``, so that ``‖h‖ = 1`` and the weight of the
            guidance among the other objectives does not depend on the size of the losses.

    Returns:
        ``h`` (m,), or None where it has no direction: losses proportional (or opposite) to the preference, or a zero
        vector.

    >>> h = guidance(np.array([1.0, 1.0]), np.array([0.0, 1.0]))
    >>> h.round(3).tolist()
    [0.707, -0.707]
    """
    size = float(np.linalg.norm(losses))
    parts = _split(losses, preference)
    if parts is None or size < 1e-12:
        return None
    _, across = parts
    sine = np.linalg.norm(across)
    if sine < 1e-6:
        return None
    divisor = {"unit": sine, "exact": sine * size}[scale]
    return np.asarray(across / divisor, dtype=np.float64)


def angle(losses: Array, preference: Array) -> float:
    """Return ``F_p = arccos(p̂·F / ‖F‖)`` in radians, 0 (as preferred) to π; 0 when ``F`` or ``p`` is zero.

    Computed as ``atan2(s, c)``, which needs no clipping and is accurate at small angles. Arguments are those of
    :func:`guidance`.
    """
    parts = _split(losses, preference)
    if parts is None:
        return 0.0
    cosine, across = parts
    return float(np.arctan2(np.linalg.norm(across), cosine))


def _split(losses: Array, preference: Array) -> tuple[float, Array] | None:
    """Return ``c`` and ``c v - p̂``; None for a zero vector."""
    f, p = np.asarray(losses, dtype=np.float64), np.asarray(preference, dtype=np.float64)
    if f.ndim != 1 or f.shape != p.shape:
        raise ValueError(f"losses and preference must have one value per client, not shapes {f.shape} and {p.shape}")
    if not (np.isfinite(f).all() and np.isfinite(p).all()):
        raise ValueError("losses and preference must be finite; leave out clients with NaN or infinity")
    sizes = np.linalg.norm(f), np.linalg.norm(p)
    if min(sizes) == 0.0:
        return None
    v, unit = f / sizes[0], p / sizes[1]
    cosine = float(v @ unit)
    return cosine, np.asarray(cosine * v - unit, dtype=np.float64)
