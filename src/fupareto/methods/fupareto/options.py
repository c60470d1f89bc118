"""Options of FUPareto, with presets for the algorithm without renewal, the paper's literal reading and the ablations.

The preset ``guard`` is the algorithm of the paper, in the reading that its text supports where the paper contradicts
itself, with a guarded recovery; the preset ``paper`` is the literal reading. docs/methods/fupareto-presets.md lists the
differences and their reasons. Values that follow from the options alone are properties here; method.py contains the
algorithm.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fupareto.methods.base import Method, decaying, positive, sample_size, share
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.fupareto.rates import RATES, Falling
from fupareto.methods.fupareto.recovery import RECOVERIES, Recovery
from fupareto.methods.renew import Renew
from fupareto.tasks.losses import Loss

GUARD: dict[str, Any] = {  # without renewal, with a base rate that only falls: our first version
    "renewal": 0.0,
    "rates": "fall",
    "lr": 0.2,  # as tuned on Fashion-MNIST
    "rounds": 100,
    "recovery_rounds": 100,
}

PAPER: dict[str, Any] = {  # the literal reading, including misprints
    **GUARD,
    "lr": 0.02,
    "mbs_form": "printed",
    "armijo": "printed",
    "guidance_scale": "exact",
    "equal_norms": False,
    "rescale": False,
    "expansion_guidance": "all",
    "expansion_fallback": "skip",
    "expansion_harm": None,
    "gradient": "pseudo",
    "search_mode": "train",
    "recovery": "printed",
    "recovery_search": False,
    "forgotten_loss": 0.0,
}

ABLATIONS: dict[str, dict[str, Any]] = {  # the paper's M2 to M8; M1 is in naive.py
    "m2": {**GUARD, "guidance": "off"},
    "m3": {**GUARD, "guidance": "uniform"},
    "m4": {**GUARD, "expansion_guidance": "off"},
    "m5": {**GUARD, "expansion_projection": False},
    "m6": {**GUARD, "expansion_large_steps": True},
    "m7": {**GUARD, "loss": "uce"},
    "m8": {**GUARD, "loss": "kl"},
}

WITHOUT_RENEWAL = (  # options of what does not happen after renewal
    "expansion_guidance",
    "expansion_projection",
    "expansion_large_steps",
    "expansion_fallback",
    "expansion_harm",
    "forgotten_loss",
)


OF_RENEWAL = ("renewal_remains", "renewal_momentum", "renewal_averaged")


@dataclass(frozen=True)
class FUParetoOptions(Method):
    """Hyper-parameters of FUPareto."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {"guard": GUARD, "paper": PAPER, **ABLATIONS}
    from_training: ClassVar[tuple[str, ...]] = ("batch_size", "training")

    renewal: float = 0.25  # share of the training's rounds for which the renewed model is trained first; 0: no renewal
    renewal_remains: float = 0.4  # of w0 after the mixture; this and the next two as in renew.py
    renewal_momentum: float = 0.9  # on the server, in the middle of renewal
    renewal_averaged: float = 0.3  # share of renewal's rounds, the last ones, whose models are averaged
    rounds: int = 10  # of improvement and expansion
    recovery_rounds: int = 0
    lr: float = 0.02  # eta_0, the middle of the search range
    rates: Literal["follow", "fall"] = "follow"  # follow: eta is that of the accepted steps; fall: it decays
    recovery_lr: float | None = None  # eta_0 of recovery; None: lr / 400, the ratio of FedOSD's published rates
    decay: float = 0.999  # factor of a rate that falls, per round
    s: int = 3  # breadth of the line search: steps from 2^s eta to 2^-s eta
    loss: Literal["mbs", "uce", "kl", "reverse-kl"] = "mbs"  # of the forget clients
    delta: float = 1e-3  # margin of MBS
    mbs_form: Literal["separating", "printed"] = "separating"  # sign of delta in eq. (3)
    gradient: Literal["full", "pseudo"] = "full"  # pseudo: of one local epoch
    batch_size: int = 200  # of pseudo-gradients
    participation: float = 1.0  # share of the retained clients that take part in a round
    quorum: float = 1.0  # share of the clients that must accept a step; below 1 a minority is overruled
    beta: float = 1e-4  # of the sufficient decrease, eq. (6)
    armijo: Literal["descent", "printed"] = "descent"  # sign in eq. (6)
    search_mode: Literal["eval", "train"] = "eval"  # train: with dropout active
    guidance: Literal["forget-first", "uniform", "off"] = "forget-first"  # preference of an improvement, eq. (4)
    guidance_scale: Literal["unit", "exact"] = "unit"  # see pareto/guidance.py
    equal_norms: bool = True  # scale gradients to one length before solving
    rescale: bool = True  # scale the direction to the length of the mean gradient
    expansion_guidance: Literal["forget", "all", "off"] = "forget"  # clients whose losses guide an expansion, eq. (8)
    expansion_projection: bool = True  # project out the retained gradients, eq. (7)
    expansion_large_steps: bool = False  # search from 2^s eta instead of eta
    expansion_fallback: Literal["best", "skip"] = "best"  # when no expansion step is accepted
    expansion_harm: float | None = 1.0  # share by which expansions may raise the retained mean loss; None: any
    recovery: Literal["guard", "away", "printed", "project", "none"] = "guard"  # see recovery.py
    recovery_search: bool = True  # line search in recovery
    forgotten_loss: float = 3e-4  # up to this loss a forget client counts as forgotten and has no veto
    training: FedAvg | None = None  # the training that made w0, for renewal; None: FedAvg()

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(rounds=self.rounds, lr=self.lr, batch_size=self.batch_size)
        share(decay=self.decay, participation=self.participation, quorum=self.quorum)
        if self.recovery_lr is not None:
            positive(recovery_lr=self.recovery_lr)
        if not 0 <= self.renewal <= 1:
            raise ValueError(f"renewal must lie between 0 and 1, not {self.renewal}")
        if not 0 <= self.s <= 30:
            raise ValueError(f"s must lie between 0 and 30, not {self.s}")
        if self.recovery_rounds < 0:
            raise ValueError(f"recovery_rounds must not be negative, not {self.recovery_rounds}")
        if self.expansion_harm is not None and self.expansion_harm < 0:
            raise ValueError(f"expansion_harm must not be negative, not {self.expansion_harm}")
        if self.forgotten_loss < 0:
            raise ValueError(f"forgotten_loss must not be negative, not {self.forgotten_loss}")
        if not 0 < self.beta < 1:
            raise ValueError(f"beta must lie between 0 and 1, not {self.beta}")
        without, when = (
            (WITHOUT_RENEWAL, "after renewal; set renewal=0 with it") if self.renew else (OF_RENEWAL, "without renewal")
        )
        if idle := [name for name in without if getattr(self, name) != _default(name)]:
            raise ValueError(f"{', '.join(idle)} has no effect {when}")
        decaying(self.rounds, self.decay, lr=self.lr)
        if self.recovery_rounds:
            decaying(self.budget, self.decay, recovery_lr=self.recovery_rate)

    @property
    def renew(self) -> Renew | None:
        """Renewal, the first phase; None without it."""
        mixture = (self.renewal_remains, self.renewal_momentum, self.renewal_averaged)
        return Renew(self.renewal, *mixture, self.training) if self.renewal else None

    @property
    def budget(self) -> int:
        """Rounds of all phases together, at most."""
        return (self.renew.budget if self.renew else 0) + self.rounds + self.recovery_rounds

    @property
    def expected(self) -> int:
        """Rounds of all phases together, without further rounds of renewal."""
        return (self.renew.expected if self.renew else 0) + self.rounds + self.recovery_rounds

    def rows(self, forget: int, retained: int) -> int:
        """Count w0, the momentum or the gradients of those asked, and in recovery the guards, thrice while saving."""
        asked = sample_size(retained, self.participation)
        guards = (2 * forget if self.recovery_kind.guarded else 1) if self.recovery_rounds else 0
        renewing = self.renew.rows(forget, retained) - 1 if self.renew else 0
        answering = asked if self.renew else forget + asked
        return 1 + max(answering, asked + guards, 3 * guards, renewing)

    @property
    def local_batch(self) -> int:
        """Batch size of renewal and of pseudo-gradients; clients do not train otherwise."""
        return max(self.renew.local_batch if self.renew else 1, self.batch_size if self.gradient == "pseudo" else 1)

    @property
    def forgetting(self) -> Loss:
        """Objective of the forget clients."""
        if self.loss == "mbs":
            return Loss("mbs", delta=self.delta, form=self.mbs_form)
        return Loss("kl", direction="model") if self.loss == "reverse-kl" else Loss(self.loss)

    @property
    def rating(self) -> Falling:
        """Rule for the base rate."""
        return RATES[self.rates](self.s, self.decay)

    @property
    def recovery_kind(self) -> Recovery:
        """Variant of recovery."""
        return RECOVERIES[self.recovery]

    @property
    def recovery_rate(self) -> float:
        """Base rate eta_0 of recovery."""
        return self.lr / 400 if self.recovery_lr is None else self.recovery_lr


def _default(name: str) -> Any:
    return FUParetoOptions.__dataclass_fields__[name].default
