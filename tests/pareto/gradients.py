"""Sets of gradients that are hard on purpose: zero, duplicate, collinear, conflicting, dependent, many."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fupareto.pareto import Array, guidance


def exact_gradients(most: int = 6) -> st.SearchStrategy[Array]:
    """Few short integer vectors: every degenerate configuration turns up, and Gram matrices are exact."""
    shapes = st.tuples(st.integers(1, most), st.integers(1, 5))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(-4, 4).map(float)))


@st.composite
def client_gradients(draw: st.DrawFn, most: int = 199) -> Array:
    """1 to ``most`` clients: a common part, duplicates, collinear pairs, norms up to four decades apart."""
    m = draw(st.one_of(st.integers(1, 12), st.integers(1, most)))
    n = draw(st.integers(2, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.normal(size=(m, n)) + draw(st.sampled_from([0.0, 0.3, 3.0])) * rng.normal(size=n)
    rows *= 10.0 ** (-draw(st.sampled_from([0, 1, 4])) * rng.random((m, 1)))
    if m >= 4 and draw(st.booleans()):
        rows[1], rows[3] = rows[0], draw(st.sampled_from([-0.5, 2.0])) * rows[2]
    return rows


@st.composite
def guided_gradients(draw: st.DrawFn) -> Array:
    """Clients' gradients and, as last row, their guidance gradient: the Gram matrix is exactly singular."""
    rows = draw(client_gradients())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    forget = draw(st.integers(0, len(rows) - 1))
    h = guidance(rng.random(len(rows)) + 0.1, (np.arange(len(rows)) >= forget).astype(np.float64))
    return rows if h is None else np.vstack([rows, h @ rows])
