"""FUGAS, federated unlearning with gradient shielding: preference optimisation, projected by the retained gradients.

Forget clients minimise (2/b) log(1 + (p / p0)^b), with p the probability of the data's label and p0 that of the
original model; the loss is flat once the label is unlikely. The server replaces each of their gradients by the nearest
direction that raises no retained client's loss to first order, and steps along the mean. Retained gradients are not
added.

Faithfulness: reimplemented from its abstract, the only public part; identified by name. The loss follows
negative preference optimisation; the shield as a cone (rather than a subspace) is our reading.

Storage: w0. Communication: one model down and one gradient up per client and round, and w0 down to forget clients.
"""

from dataclasses import dataclass
from typing import ClassVar

from fupareto.federation.contract import Federation
from fupareto.methods.base import positive
from fupareto.methods.staged import CE, Staged, StagedState, rows, stepped
from fupareto.pareto import combine, gram, into_cone
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class FUGAS(Staged):
    """Forget relative to the original model, without raising a retained loss to first order."""

    name: ClassVar[str] = "fugas"
    from_training: ClassVar[tuple[str, ...]] = ("batch_size",)

    lr: float = 0.004
    b: float = 1.0  # exponent of the loss; larger values flatten it sooner

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(b=self.b)

    def unlearn(self, federation: Federation, state: StagedState) -> StagedState:
        """Step along the mean of the shielded gradients."""
        local = self.local(state, self.lr)
        objectives = {**dict.fromkeys(state.forget, Loss("npo", b=self.b)), **dict.fromkeys(state.retained, CE)}
        answer = federation.gradients(state.w, objectives, pseudo=local, reference=state.w0)
        forget, retained = rows(answer, state.forget), rows(answer, state.retained)
        direction = None
        if forget and retained:
            shielded = into_cone(gram(answer.gradients), forget, retained).mean(0)
            direction = combine(shielded, answer.gradients)
        return stepped(state, local.lr, answer, direction)
