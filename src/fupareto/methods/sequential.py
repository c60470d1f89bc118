"""Sequential unlearning: a method applied to the clients of a request one by one, each from the previous result."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fupareto import serial
from fupareto.errors import NotApplicable
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import Method, State
from fupareto.randomness import derive

STATES = 3  # copies of a packed state while it is replaced


@dataclass(frozen=True)
class SequentialState(State):
    """State of a sequential method."""

    turn: int = 0  # position of the current client in the request
    asked: dict[str, Any] = field(default_factory=dict)  # the request, with what earlier ones forgot
    inner: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))  # bytes of the method's state


@dataclass(frozen=True)
class Sequential(Method):
    """Forget the clients of a request one by one, in its order; forgotten clients take no further part.

    Clients whose turn has not come count as retained, with their forget data: in an experiment with a backdoor, all of
    these carry the trigger.
    """

    name: ClassVar[str] = "sequential"
    state: ClassVar[type[State]] = SequentialState

    method: Method  # applied to each client
    requests: int  # number of clients in the request

    @property
    def budget(self) -> int:
        """Rounds for all clients together."""
        return self.requests * self.method.budget

    @property
    def expected(self) -> int:
        """Rounds for all clients together, as far as they can be told."""
        return self.requests * self.method.expected

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> SequentialState:
        """Start with the first client."""
        if request is None or request.partial or len(request.clients) != self.requests:
            raise NotApplicable("sequential unlearning needs a request for clients, not for samples or classes")
        forget = request.clients  # in the order of the request
        retained = request.sides(federation.ids)[1]
        inner, *_ = (self._begin(federation, w0, request, turn, seed) for turn in range(len(forget)))  # check all
        return SequentialState(
            w=w0,
            forget=forget,
            retained=retained,
            seed=seed,
            stage=inner.stage,
            asked=request.to_json(),
            inner=_pack(inner),
        )

    def rows(self, forget: int, retained: int) -> int:
        """Count the vectors of the method for one client, and copies of its packed state."""
        return self.method.rows(1, forget + retained - 1) + STATES * self.method.rows(1, 0)

    @property
    def local_batch(self) -> int:
        """Batch size of the inner method."""
        return self.method.local_batch

    def step(self, federation: Federation, state: SequentialState) -> SequentialState:
        """Run one round for the current client; start with the next client when the method is done."""
        inner = self.method.step(federation, serial.moved(self._unpack(state.inner), state.w.device))
        turn, w, done = state.turn, inner.w, False
        record = {**inner.record, "request": state.forget[turn]}
        phase = inner.phase
        if inner.done:
            turn += 1
            done = turn == len(state.forget)
            if not done:
                inner = self._begin(federation, w, Request.from_json(state.asked), turn, state.seed)
        return state.after(phase, record, w=w, done=done, turn=turn, stage=inner.stage, inner=_pack(inner))

    def stored(self, state: SequentialState) -> SequentialState:
        """Return the state with the method's own state as that is stored."""
        inner = self.method.stored(self._unpack(state.inner))
        return dataclasses.replace(state, inner=_pack(inner))

    def restored(
        self, federation: Federation, state: SequentialState, unlearned: Tensor | None
    ) -> tuple[SequentialState, dict[str, str]]:
        """Restore the method's own state."""
        held = serial.moved(self._unpack(state.inner), state.w.device)
        inner, missing = self.method.restored(federation, held, unlearned)
        return dataclasses.replace(state, inner=_pack(inner)), missing

    def _begin(self, federation: Federation, w: Tensor, request: Request, turn: int, seed: int) -> Any:
        """Return the method's state for one client; those before it, and those of earlier requests, have left."""
        left = (*request.left, *request.clients[:turn])
        one = dataclasses.replace(request, clients=(request.clients[turn],), left=left)
        return self.method.init(federation, w, one, derive(seed, "request", turn) if turn else seed)

    def _unpack(self, inner: Tensor) -> Any:
        cls = self.method.state
        return serial.from_bytes({cls.__name__: cls}, inner.cpu().numpy().tobytes())


def _pack(inner: State) -> Tensor:
    return torch.frombuffer(bytearray(serial.to_bytes(inner)), dtype=torch.uint8)
