"""NoT (Khalil et al., CVPR 2025): negate the weights of the first layer, then recover with the retained clients.

Negation breaks what the layers have learnt to expect of each other; FedAvg with the retained clients at the training's
rate brings back what they need.

Faithfulness: reimplemented from its published description. Negated are the weights of the first layer, its bias is
not. The number of rounds is ours.

Storage: nothing. Communication: one model down and one up per retained client and round; the forget clients are not
needed.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import State
from fupareto.methods.finetune import FineTune
from fupareto.parameters import Layout


@dataclass(frozen=True)
class NoT(FineTune):
    """Negate, then fine-tune."""

    name: ClassVar[str] = "not"

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> State:
        """Start from ``w0`` with its first layer negated."""
        state = super().init(federation, w0, request, seed)
        return dataclasses.replace(state, w=negated(w0, federation.layout))


def negated(w: Tensor, layout: Layout) -> Tensor:
    """Return the model with the weights of its first layer, the first tensor of the vector, multiplied by -1."""
    first = layout.names[0]
    named = {name: -part if name == first else part for name, part in layout.named(w).items()}
    return layout.flat(named)
