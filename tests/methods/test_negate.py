"""NoT: what is negated, and that fine-tuning follows."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fupareto import parameters
from fupareto.federation.request import Request
from fupareto.methods.finetune import FineTune
from fupareto.methods.negate import NoT, negated
from fupareto.parameters import Layout

from . import blobs
from .quadratics import walk
from .spies import Spy, clients

SETTINGS: dict[str, Any] = {"rounds": 3, "lr": 0.3, "batch_size": 5}


@given(st.integers(0, 2**31))
def test_the_first_layer_sees_the_world_negated_and_all_others_are_as_before(seed: int) -> None:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    x = torch.randn(7, 4)
    wanted = net(-x)  # weights times -x are negated weights times x; the bias stays
    w = parameters.read(net)
    parameters.write(net, negated(w, Layout.of(net)))
    torch.testing.assert_close(net(x), wanted)
    assert torch.equal(negated(negated(w, Layout.of(net)), Layout.of(net)), w)


def test_the_rounds_are_fine_tuning_from_there() -> None:
    spy = Spy(clients())
    states = walk(NoT(**SETTINGS), spy, blobs.trained(), blobs.FORGET, seed=2)
    tuned = walk(FineTune(**SETTINGS), clients(), states[0].w, blobs.FORGET, seed=2)
    assert all(torch.equal(a.w, b.w) for a, b in zip(states, tuned, strict=True))
    assert spy.who() == {"2", "3"}


def test_w0_itself_is_left_alone() -> None:
    w0 = blobs.trained().clone()
    NoT(**SETTINGS).init(clients(), w0, Request(blobs.FORGET))
    assert torch.equal(w0, blobs.trained())
