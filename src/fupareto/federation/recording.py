"""Federations with a history: one that records its training, and one that gives methods access to the record."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fupareto.federation.contract import Federation
from fupareto.federation.history import History, Plan
from fupareto.federation.questions import Answer, Failure, Question, Summed, Train, Trained, TrainHead, flaw
from fupareto.federation.wrappers import Wrapper

GAMMA = 0.5  # weight of the second head in FedAU's mix before a round


class WithHistory(Wrapper):
    """A federation with the history of its training, for methods that need it."""

    def __init__(self, inner: Federation, history: History) -> None:
        super().__init__(inner)
        sized = type(history) is History
        self.history = History(history.path, inner.layout.size, history.only) if sized else history


def history_of(federation: Federation) -> History | None:
    """Return the history of a wrapped federation; None if there is none."""
    while isinstance(federation, Wrapper):
        if isinstance(federation, WithHistory):
            return federation.history
        federation = federation.inner
    return None


def record(
    federation: Federation, where: Path, plan: Plan, say: Callable[[str], None] = lambda text: None
) -> Federation:
    """Return a federation that records its training; the same federation if the plan is empty.

    Args:
        federation: The federation to train.
        where: Directory of the history.
        plan: What to record.
        say: Called with a message about the disk space that is needed.
    """
    if not plan.parts:
        return federation
    head = federation.layout.head() if "fedau" in plan.parts else None
    sizes = plan.bytes(federation.layout.size, head.stop - head.start if head else 0)
    each = ", ".join(f"{part} {size / 1e6:,.1f} MB" for part, size in sizes.items())
    say(f"Recording for {each}: {sum(sizes.values()) / 1e6:,.1f} MB in {where}.")
    return Recording(federation, History.create(where, plan, sum(sizes.values())))


class Recording(Wrapper):
    """A federation that stores local models while it trains; the trained model is the same as without it."""

    def __init__(self, inner: Federation, history: History, round_: int = 0) -> None:
        super().__init__(inner)
        self.kept, self.plan, self.round = history, history.plan, round_

    def at(self, round_: int) -> Federation:
        """Return the federation for a round, whose number is part of the file names."""
        return Recording(self.inner.at(round_), self.kept, round_)

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        """Ask the inner federation and store usable local models; then train the second heads."""
        training = {i: q for i, q in questions.items() if isinstance(q, Train)}
        replayed = "federaser" in self.plan.parts and self.round in self.plan.replayed
        last = "fupga" in self.plan.parts and self.round == self.plan.rounds - 1
        for question in list(training.values())[:1] if replayed else ():
            self.kept.keep_before(self.round, question.w)
        usable = []
        rewound = "rewind" in self.plan.parts and bool(training)
        if rewound and self.round in self.plan.rewound:
            self.kept.keep_global(self.round, next(iter(training.values())).w)
        for i, answer in self.inner.ask(questions):
            if isinstance(answer, Summed) and "ridge" in self.plan.parts:
                self.kept.keep_sums(i, {"gram": answer.gram, "moments": answer.moments})
            if i in training and isinstance(answer, Trained) and flaw(training[i], answer, self.layout.size) is None:
                usable.append(i)
                if replayed:
                    self.kept.keep_local(self.round, i, answer.w, answer.size)
                if last:
                    self.kept.keep_last(i, answer.w, answer.size)
                if rewound:  # before the answer is used
                    self.kept.keep_first(self.round, [i])
            yield i, answer
        if training and replayed:
            self.kept.keep_clients(self.round, usable)
        if training and last:
            self.kept.keep_clients(None, usable)
        if training and "fedau" in self.plan.parts:
            self._train_heads({i: q for i, q in training.items() if i in self.plan.heads})

    def _train_heads(self, training: Mapping[str, Train]) -> None:
        """Train FedAU's second heads: W2 <- (1 - gamma) W1 + gamma W2, then local epochs towards wrong labels."""
        head = self.layout.head()
        heads = self.kept.heads(self.round - 1)
        questions: dict[str, Question] = {}
        for i, q in training.items():
            first = q.w[head.start : head.stop]
            mixed = (1 - GAMMA) * first + GAMMA * heads.get(i, first).to(first.device)
            questions[i] = TrainHead(q.w, mixed, q.lr, q.epochs, q.batch_size, self.plan.label_seed)
        answers, _ = self.answers(questions)
        heads |= {i: answer.w for i, answer in answers.items() if isinstance(answer, Trained)}
        self.kept.keep_heads(self.round, heads)
