"""Multi-objective optimisation for FUPareto: directions and step sizes, as pure functions on float64 matrices.

A direction is a vector of coefficients over the clients' gradients. All functions take the clients' losses and the Gram
matrix of their gradients; only :func:`gram` and :func:`combine` work on vectors of the model's size.
"""

from fupareto.pareto.cone import into_cone
from fupareto.pareto.gram import Array, combine, gram
from fupareto.pareto.guidance import angle, guidance
from fupareto.pareto.line_search import accepted, highest_acceptable, trial_steps
from fupareto.pareto.min_norm import min_norm
from fupareto.pareto.projection import project_out

__all__ = [
    "Array",
    "accepted",
    "angle",
    "combine",
    "gram",
    "guidance",
    "highest_acceptable",
    "into_cone",
    "min_norm",
    "project_out",
    "trial_steps",
]
