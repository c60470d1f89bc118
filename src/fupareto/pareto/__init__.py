"""Which way, and how far: the mathematics of FUPareto as pure functions on small float64 matrices.

A direction is a vector of coefficients over the clients' gradients. Everything here is a function of the
clients' losses and of the Gram matrix of their gradients; only `gram` and `combine` touch parameters.
"""

from fupareto.pareto.cone import into_cone
from fupareto.pareto.gram import Array, combine, gram
from fupareto.pareto.guidance import angle, guidance
from fupareto.pareto.line_search import highest_acceptable, sufficient_decrease, trial_steps
from fupareto.pareto.min_norm import min_norm
from fupareto.pareto.projection import project_out

__all__ = [
    "Array",
    "angle",
    "combine",
    "gram",
    "guidance",
    "highest_acceptable",
    "into_cone",
    "min_norm",
    "project_out",
    "sufficient_decrease",
    "trial_steps",
]
