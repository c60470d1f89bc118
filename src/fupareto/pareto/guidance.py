"""How far are the clients' losses from the preferred proportion, and which way leads there?"""

from typing import Literal

import numpy as np

from fupareto.pareto.gram import Array


def guidance(losses: Array, preference: Array, scale: Literal["unit", "exact"] = "unit") -> Array | None:
    """Return ``h`` with ``g_p = ∇F_p = Σ h_i g_i``, where ``F_p = arccos(p·F / ‖F‖)`` (in Eqs. 4 and 8).

    With ``p̂ = p/‖p‖``, ``v = F/‖F‖``, ``c = p̂·v`` and ``s = √(1 - c²) = ‖c v - p̂‖``:
    ``∂F_p/∂F_i = (c v_i - p̂_i) / (s ‖F‖)``.

    ``"exact"`` is that derivative. ``"unit"`` drops ``1/‖F‖``, so that ``‖h‖ = 1`` and the weight of guidance
    among the other objectives does not depend on how large the losses happen to be.

    The paper's 0/1 preference must be normalised, or the arccos has no value. None where the guidance has no
    direction: losses already proportional (or opposite) to the preference, or all zero, or no preference.

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

    Computed as ``atan2(s, c)``, which needs no clipping and stays accurate at small angles.
    """
    parts = _split(losses, preference)
    if parts is None:
        return 0.0
    cosine, across = parts
    return float(np.arctan2(np.linalg.norm(across), cosine))


def _split(losses: Array, preference: Array) -> tuple[float, Array] | None:
    """Return ``c`` and ``c v - p̂``, what the losses lack of the preference; None for a zero vector."""
    f, p = np.asarray(losses, dtype=np.float64), np.asarray(preference, dtype=np.float64)
    if f.ndim != 1 or f.shape != p.shape:
        raise ValueError(f"one loss and one preference per client: got shapes {f.shape} and {p.shape}")
    if not (np.isfinite(f).all() and np.isfinite(p).all()):
        raise ValueError("losses and preference must be finite; leave out the clients that have none")
    sizes = np.linalg.norm(f), np.linalg.norm(p)
    if min(sizes) == 0.0:
        return None
    v, unit = f / sizes[0], p / sizes[1]
    cosine = float(v @ unit)
    return cosine, np.asarray(cosine * v - unit, dtype=np.float64)
