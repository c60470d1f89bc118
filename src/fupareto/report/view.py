"""View of a run: the facts that sections and figures share, from summary, rounds and audit."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from fupareto.report.markup import measured, percent
from fupareto.tally import Tally, tally_of
from fupareto.vocabulary import RETRAINED as RETRAINED
from fupareto.vocabulary import SECOND as SECOND

STAGES = ("initial", "unlearned", "recovered")
ACTIVITY = {"initial": "training", "unlearned": "unlearning", "recovered": "recovery"}
FAILED = "failed"
HEADLINE = "confidence"  # the membership attack that every audit makes
_PART = "/forget"  # suffix of the part of a client that a request for samples or classes names

Points = list[tuple[int, float]]


def outcome(record: dict[str, Any]) -> str:
    """What a round did: its phase, or `failed` when no step was accepted. Training searches none."""
    phase = str(record.get("phase", "round"))
    if phase != "train" and "step" in record and record["step"] is None:
        return FAILED
    return phase


def positions(history: list[dict[str, Any]]) -> list[int]:
    """Where each round stands on the axis: its number, or its place when numbers do not grow."""
    numbers = [record.get("round") for record in history]
    known = [n for n in numbers if isinstance(n, int)]
    if len(known) == len(numbers) and all(a < b for a, b in pairwise(known)):
        return known
    return list(range(1, len(history) + 1))


def series(history: list[dict[str, Any]], key: str) -> Points:
    """The rounds at which `key` was measured, with its values."""
    pairs = zip(positions(history), (measured(record.get(key)) for record in history), strict=True)
    return [(place, value) for place, value in pairs if value is not None]


def dig(tree: Any, *keys: str) -> Any:
    """What stands in nested objects under the keys, `None` where one of them is absent or null."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


@dataclass(frozen=True)
class RunView:
    """One run as the report sees it. Anything in `summary`, `rounds` or `audit` may be absent or null."""

    name: str
    summary: dict[str, Any]
    rounds: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    audit: dict[str, Any] = field(default_factory=dict)

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """The stages that the run reached, in order."""
        found = self.summary.get("stages") or {}
        return {stage: found[stage] for stage in STAGES if found.get(stage)}

    @property
    def final(self) -> str | None:
        """The stage of the model that the run hands over."""
        named = self.summary.get("final")
        return named if named in self.stages else next(reversed(self.stages), None)

    @property
    def judged(self) -> bool:
        """Whether the run answered a request, so that its model can be checked against it."""
        return bool(self.forget) and self.final not in (None, "initial")

    @property
    def tally(self) -> Tally | None:
        """How many of the audit's checks are shown, open and refuted; `None` where none were made."""
        return tally_of(self.summary, self.audit)

    @property
    def forget(self) -> list[str]:
        """The forget clients."""
        return [str(name) for name in self.summary.get("forget") or []]

    @property
    def part(self) -> str:
        """The part of the clients' data to be forgotten, in words; empty where it is whole clients."""
        said = str(self.summary.get("part") or "")
        if said or not self.forget or not all(name.endswith(_PART) for name in self.forget):
            return said
        owners = [self.shown(name) for name in self.forget]
        return f"part of the data of client{'s' if len(owners) > 1 else ''} {', '.join(owners)}"

    @property
    def owners(self) -> int:
        """How many clients there are; the part of a client that is to be forgotten is not one more."""
        names = [str(name) for name in self.summary.get("clients") or []]
        return len({self.shown(name) for name in names} if self.part else names)

    def shown(self, name: str) -> str:
        """The name of a client as the reader knows it, whole or the part of it that is to be forgotten."""
        return name.removesuffix(_PART) if name in self.forget else name

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rounds after the initial model; the rounds of training when there are no others."""
        after = [record for record in self.rounds if record.get("stage") != "initial"]
        return after or self.rounds

    @property
    def counts(self) -> dict[str, int]:
        """How many rounds ended in which way; the summary's own counts come first."""
        counted = Counter(outcome(record) for record in self.history)
        known = {str(k): v for k, v in (self.summary.get("phases") or {}).items() if measured(v) is not None}
        return {**counted, **known}

    def value(self, stage: str | None, key: str) -> Any:
        """One measurement of one stage, `None` where there is none."""
        return self.stages.get(stage or "", {}).get(key)

    def client(self, stage: str | None, name: str, key: str) -> Any:
        """One measurement of one client at one stage, `None` where there is none."""
        return ((self.value(stage, "clients") or {}).get(name) or {}).get(key)

    def clients(self, side: str) -> list[str]:
        """The clients measured on a side ("forget" or "retained") at any stage, in the federation's order."""
        found: dict[str, None] = {}
        for stage in self.stages:
            for name, values in (self.value(stage, "clients") or {}).items():
                if values.get("side") == side:
                    found[name] = None
        order = {str(name): place for place, name in enumerate(self.summary.get("clients") or [])}
        return sorted(found, key=lambda name: order.get(name, len(order)))

    @property
    def marked(self) -> bool:
        """Whether backdoors show what is remembered; without them only the accuracy on the forgotten data does."""
        values = [self.client(stage, name, "asr") for stage in self.stages for name in self.clients("forget")]
        values += [place.get("asr") for place in (*self.stages.values(), *self.rounds)]
        if any(measured(value) is not None for value in values):
            return True
        others = [place.get("forget_acc") for place in (*self.stages.values(), *self.rounds)]
        return not self.part and not any(measured(value) is not None for value in others)

    @property
    def forgetting(self) -> str:
        """The key under which stages and rounds say how much is remembered."""
        return "asr" if self.marked else "forget_acc"

    @property
    def forgetting_title(self) -> str:
        """The name of that measure."""
        return "ASR" if self.marked else "Forget accuracy"

    @property
    def absences(self) -> dict[str, list[tuple[Any, str]]]:
        """For every client that ever failed to answer, the rounds and the reasons."""
        found: dict[str, list[tuple[Any, str]]] = {}
        for record in self.rounds:
            for name, reason in (record.get("missing") or {}).items():
                found.setdefault(str(name), []).append((record.get("round"), str(reason)))
        for name, reason in (self.summary.get("missing") or {}).items():
            found.setdefault(str(name), [] if measured(reason) is not None else [(None, str(reason))])
        return found

    def audited(self, *keys: str) -> Any:
        """What the audit says under nested keys, `None` where it says nothing."""
        return dig(self.audit, *keys)

    def models(self, *keys: str) -> list[str]:
        """The models that a part of the audit looked at, in order; the retrained ones are last."""
        found = self.audited(*keys) or {}
        return [stage for stage in (*STAGES, RETRAINED, SECOND) if found.get(stage)]

    @property
    def attacked(self) -> list[str]:
        """The clients whose membership was attacked, in the request's order."""
        found = [name for stage in self.models("membership") for name in self.clients_of(stage)]
        return sorted(dict.fromkeys(found), key=lambda name: self.forget.index(name) if name in self.forget else 999)

    def clients_of(self, stage: str) -> dict[str, Any]:
        """The audit's membership results of a model by client."""
        return self.audited("membership", stage, "clients") or {}

    def leak(self, stage: str | None, client: str, key: str = "auc", attack: str = HEADLINE) -> float | None:
        """One number of a membership attack on a client, `None` where there is none."""
        return measured(self.audited("membership", stage or "", "clients", client, "attacks", attack, key))

    def mean_leak(self, stage: str | None, key: str = "auc", attack: str = HEADLINE) -> float | None:
        """The mean of an attack's AUC over clients, or an end of its interval."""
        return measured(self.audited("membership", stage or "", "mean", attack, key))

    @property
    def outdated(self) -> bool:
        """Whether the audit was made by an earlier version, which measured relearning in another way."""
        return bool(self.audit) and self.audited("format") == 1


def moved(run: RunView, key: str, form: Callable[[float], str] = percent) -> str:
    """ "82.1% to 2.9%" for a measure's value in the initial and in the final model."""
    known = [measured(run.value(stage, key)) for stage in ("initial", run.final)]
    return " to ".join("an unknown value" if value is None else form(value) for value in known)
