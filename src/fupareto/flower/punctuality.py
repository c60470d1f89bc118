"""How long clients usually take, how long a question waits for them, and how often those are asked who do not answer.

*Deadline.* A client that has answered questions of a kind before is waited for three times as long as the slowest usual
answer of that kind, and never longer than the timeout: a node that hangs does not hold up a round for ten minutes.

*Going on without the slowest.* With ``wait_for`` below 1, a question waits for that share of the clients, then as long
again, and goes on. Essential clients, those to be forgotten, are always waited for.

*Asked less often.* After three questions in a row without an answer a client is asked in every second round, then in
every fourth, down to every sixteenth. Measurements ask everybody.
"""

import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import median

LATE = 3.0  # times as long as usual
FLOOR = 10.0  # seconds that a deadline leaves at least: a cold start of a ClientApp takes some
KNOWN = 3  # answers by which a client's usual time is known
REMEMBERED = 9
MISSES = 3  # unanswered questions in a row after which a client is asked less often
RAREST = 16  # rounds


@dataclass
class Punctuality:
    """What is known of the clients' answering times in this run.

    Attributes:
        timeout: Seconds that an answer may take at most.
        wait_for: Share of the clients that a question waits for; 1 for all.
        essential: Clients that are always asked and waited for.
    """

    timeout: float
    wait_for: float = 1.0
    essential: Collection[str] = ()
    _seconds: dict[tuple[str, str], deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=REMEMBERED))
    )
    _missed: dict[str, int] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)  # round in which a client that misses answers was last asked

    def deadline(self, kinds: Mapping[str, str]) -> float:
        """Return the seconds that questions may take, whose kind is given by client."""
        known = [self._seconds[asked] for asked in kinds.items()]
        if not known or any(len(times) < KNOWN for times in known):
            return self.timeout
        return min(self.timeout, max(FLOOR, LATE * max(map(median, known))))

    def enough(self, asked: Collection[str], waiting: Collection[str], elapsed: float, last: float) -> bool:
        """Return whether to go on without the clients that have not answered.

        Args:
            asked: All clients that were asked.
            waiting: Those that have not answered.
            elapsed: Seconds since the question.
            last: Seconds after which the last of the share that is waited for had answered; infinity if it has not.
        """
        return self.wait_for < 1.0 and not set(waiting) & set(self.essential) and elapsed >= 2 * last

    def share(self, asked: Collection[str]) -> int:
        """Return the number of clients that a question waits for."""
        return max(1, math.ceil(self.wait_for * len(asked) - 1e-9))

    def rested(self, client: str, round_: int) -> str | None:
        """Return why a client is not asked in this round, or None if it is."""
        missed = self._missed.get(client, 0)
        if missed < MISSES or client in self.essential:
            return None
        pause = min(RAREST, 2 ** (missed - MISSES + 1))
        if round_ - self._asked.get(client, -RAREST) >= pause:
            self._asked[client] = round_
            return None
        return f"was not asked: it has missed {missed} questions in a row, and is asked every {pause} rounds"

    def heard(self, client: str, kind: str, seconds: float) -> None:
        """Enter an answer."""
        self._seconds[client, kind].append(seconds)
        self._missed.pop(client, None)

    def missed(self, client: str) -> None:
        """Enter a question without an answer."""
        self._missed[client] = self._missed.get(client, 0) + 1
