"""Question by which a leaving client measures a model on its own data, and says so in a statement that it can sign."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.questions.base import Answer, Question
from fupareto.federation.questions.digest import digest
from fupareto.federation.request import Splits
from fupareto.tasks.samples import samples_of


@dataclass(frozen=True)
class Attested(Answer):
    """What a client measured.

    Attributes:
        statement: In-toto statement, as JSON.
        envelope: The statement signed by the client, as JSON; empty where the client has no key.
    """

    statement: str
    envelope: str = ""


@dataclass(frozen=True)
class Attest(Question):
    """Measure a model on the client's own data: forgetting, and a membership attack on the loss (tier 1).

    Attributes:
        w: The model (parameters,).
        nonce: SHA-256 of the certificate that the statement is for.
    """

    answered_by: ClassVar[type[Answer]] = Attested

    w: Tensor
    nonce: str

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Attested:
        """Return the statement, not signed: the node signs it, if it has a key."""
        from fupareto.evidence import models, signing

        parameters.write(module, self.w)
        module.eval()
        own = "clean" if "clean" in splits else "train"
        right, _ = _measured(module, splits[own])
        measured: dict[str, Any] = {"data": digest(splits), "samples": len(right), "accuracy": float(right.mean())}
        if "trigger" in splits:
            measured["asr"] = float(_measured(module, splits["trigger"])[0].mean())
        members, others = splits.get("member", splits[own]), splits.get("nonmember", splits.get("test"))
        if others is not None:
            measured["membership_auc"] = _auc(-_measured(module, members)[1], -_measured(module, others)[1])
        named = parameters.Layout.of(module).named(self.w)
        weights = models.weights_of({name: t.detach().cpu().numpy() for name, t in named.items()})
        return Attested(json.dumps(signing.receipt(client, self.nonce, weights, measured)))

    def flaw(self, answer: Attested, size: int) -> str | None:
        """Return why the statement cannot be used, or None."""
        found = json.loads(answer.statement)["predicate"]
        return None if found["nonce"] == self.nonce else "answered another question"


def _measured(module: nn.Module, held: Any) -> tuple[Any, Any]:
    """Return, per sample, whether the model is right (the share of its decisions that is), and its loss."""
    samples, right, losses = samples_of(held), [], []
    with torch.no_grad():
        for batch in samples.batches():
            outputs = samples.outputs(module, batch)
            found = samples.task.decisions(outputs, batch.targets)
            right.append(found.mean((found.logits.argmax(1) == found.labels).double()).cpu())
            losses.append(samples.task.objective(outputs, batch.targets).double().cpu())
    return torch.cat(right).numpy(), torch.cat(losses).numpy()


def _auc(members: Any, others: Any) -> float:
    """Return the share of pairs in which the member has the higher score; ties count half."""
    higher = np.greater.outer(members, others).mean()
    return float(higher + 0.5 * np.equal.outer(members, others).mean())
