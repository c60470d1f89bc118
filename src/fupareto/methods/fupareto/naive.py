"""Naive descent, the paper's ablation M1: steps of eta along the mean forget gradient."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fupareto.federation.contract import Federation
from fupareto.methods.fupareto.method import CE, FUPareto, FUParetoState
from fupareto.methods.fupareto.search import Found
from fupareto.pareto import combine
from fupareto.pareto.direction import length


@dataclass(frozen=True)
class NaiveDescent(FUPareto):
    """Follow the mean forget gradient without direction finding, projection or search, then recover as FUPareto."""

    renewal: float = 0.0
    rounds: int = 100
    recovery_rounds: int = 100
    rates: Literal["follow", "fall"] = "fall"

    def _unlearn(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        losses = {**dict.fromkeys(state.forget, self.forgetting), **dict.fromkeys(state.sample, CE)}
        objectives = self._ask(federation, state, losses)
        forget = objectives.of_clients(state.forget)
        if not forget:
            return self._stay(state, "descend", objectives, "forget")
        mean = np.zeros(len(objectives.gram))
        mean[forget] = 1.0 / len(forget)
        if length(objectives.gram, mean) == 0.0:  # all forget clients are forgotten
            return self._moved(state, "descend", objectives, Found())
        direction = combine(mean, objectives.rows)
        found = Found(direction, self._eta(state), cosines=objectives.cosines(mean))
        return self._moved(state, "descend", objectives, found)
