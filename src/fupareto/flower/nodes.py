"""Where is a client? Nodes of a Flower Grid come, go and come back as others; clients keep their names."""

import re
import time
from collections.abc import Iterable, Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fupareto.errors import UserError
from fupareto.flower.records import read_here

WHO = "query.client"  # the question for a node's client
POLL = (0.02, 1.0)  # seconds between looks for replies: a tenth of the time waited, within these; Flower's loop takes 3
MEETING = 60.0  # seconds in which a node has to say who it is, and after which it is asked again


class Nodes:
    """The clients of a Grid by name, and how messages reach them."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.of: dict[str, int] = {}  # client -> node
        self.silent: set[str] = set()  # clients whose node did not answer the last time
        self._asked: dict[int, float] = {}  # node that is nobody, or has not said who -> when it was asked

    def gather(self, clients: int, patience: float) -> None:
        """Wait until so many clients are there."""
        end = time.monotonic() + patience
        while True:
            self._introduce(set(self.grid.get_node_ids()))
            if len(self.of) >= clients:
                return
            if time.monotonic() >= end:
                there = ", ".join(self.names) or "nobody"
                raise UserError(
                    f"{len(self.of)} of {clients} clients are there after {patience:g} seconds ({there}); start the "
                    "others, or ask for fewer"
                )
            time.sleep(1.0)

    def find(self, wanted: Iterable[str], patience: float) -> None:
        """Look who is there; somebody who is not where it was may have come back as another node."""
        end = time.monotonic() + patience
        while True:
            here = set(self.grid.get_node_ids())
            for client in [i for i, node in self.of.items() if node not in here]:
                del self.of[client]
            if any(i not in self.of or i in self.silent for i in wanted):
                self._introduce(here, returning=True)
            if self.of:
                return
            if time.monotonic() >= end:
                raise UserError(
                    f"nobody has been connected for {patience:g} seconds, so the run stops; what is done is on disk. "
                    "Start the nodes, and run it again with resume=true"
                )
            time.sleep(1.0)

    def send(self, messages: Mapping[str, Message], timeout: float) -> dict[str, Message]:
        """Push the messages and look for replies until all are there or time is up."""
        if not messages:
            return {}
        pushed = list(self.grid.push_messages(list(messages.values())))
        waiting = {number: i for number, i in zip(pushed, messages, strict=False) if number}
        replies: dict[str, Message] = {}
        start = time.monotonic()
        while waiting:
            for reply in self.grid.pull_messages(list(waiting)):
                i = waiting.pop(reply.metadata.reply_to_message_id, None)
                if i is not None:
                    replies[i] = reply
            waited = time.monotonic() - start
            if not waiting or waited >= timeout:
                break
            time.sleep(min(max(POLL[0], 0.1 * waited), POLL[1], timeout - waited))
        return replies

    @property
    def names(self) -> tuple[str, ...]:
        """Return the clients that are there, 2 before 10."""
        return tuple(sorted(self.of, key=_natural))

    def _introduce(self, here: set[int], returning: bool = False) -> None:
        """Ask nodes that are not known for their clients.

        At first, two nodes of one name are a mistake. Later a node takes the place of one that is silent, and of
        nobody else.
        """
        now = time.monotonic()
        known = set(self.of.values())
        new = [n for n in sorted(here - known) if n not in self._asked or now - self._asked[n] >= MEETING]
        replies = self.send({str(n): Message(RecordDict(), n, WHO, ttl=MEETING + 60.0) for n in new}, MEETING)
        for node in new:
            self._asked[node] = time.monotonic()
            reply = replies.get(str(node))
            ids, refused = read_here(reply.content) if reply is not None and reply.has_content() else ([], "")
            if refused:
                raise UserError(f"node {node} refuses: {refused}")
            if not ids:
                continue
            client = ids[0]
            if client not in self.of or (returning and client in self.silent):
                self.of[client] = node
                self.silent.discard(client)
                del self._asked[node]
            elif not returning:
                raise UserError(
                    f"two nodes say that they are client '{client}'; give every SuperNode a client-id of its own "
                    "with --node-config"
                )


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
