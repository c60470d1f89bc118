"""What does a run's record say? The facts that sections and figures share, from summary and rounds."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fupareto.report.markup import measured

STAGES = ("initial", "unlearned", "recovered")
ACTIVITY = {"initial": "training", "unlearned": "unlearning", "recovered": "recovery"}
FAILED = "failed"


def outcome(record: dict[str, Any]) -> str:
    """What a round did: its phase, or `failed` when no step was accepted. Training searches none."""
    phase = str(record.get("phase", "round"))
    if phase != "train" and "step" in record and record["step"] is None:
        return FAILED
    return phase


@dataclass(frozen=True)
class Run:
    """One run as the report sees it. Anything in `summary` or `rounds` may be absent or null."""

    name: str
    summary: dict[str, Any]
    rounds: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)

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
    def forget(self) -> list[str]:
        """The clients to be forgotten."""
        return [str(name) for name in self.summary.get("forget") or []]

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
    def forgetting_measure(self) -> str:
        """How forgetting was measured: by backdoors (`asr`), or by accuracy when no backdoor was planted."""
        values = [self.client(stage, name, "asr") for stage in self.stages for name in self.clients("forget")]
        values += [stage.get("asr") for stage in self.stages.values()]
        return "asr" if any(measured(value) is not None for value in values) else "accuracy"

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
