"""FUPareto (arXiv 2602.01852): method, options, line search, expansion and recovery."""

from fupareto.methods.fupareto.method import FUPareto
from fupareto.methods.fupareto.naive import NaiveDescent

__all__ = ["FUPareto", "NaiveDescent"]
