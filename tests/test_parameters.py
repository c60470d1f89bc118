from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.errors import UserError
from fupareto.federation import Local, SimulatedFederation
from fupareto.models import MODELS, build
from fupareto.parameters import Layout
from fupareto.tasks.losses import Loss


def normed() -> nn.Module:
    return nn.Sequential(
        OrderedDict(conv=nn.Conv2d(1, 3, 3), norm=nn.BatchNorm2d(3), flat=nn.Flatten(), head=nn.Linear(108, 2))
    )


def random_vector(module: nn.Module, seed: int = 0) -> Tensor:
    return torch.randn(Layout.of(module).size, generator=torch.Generator().manual_seed(seed))


def images(count: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("make", [normed, lambda: build("lenet5", (1, 28, 28), 10, 0)], ids=["batchnorm", "lenet5"])
def test_vector_to_module_and_back(make: type[nn.Module], layout: torch.memory_format) -> None:
    module = make().to(memory_format=layout)  # type: ignore[call-overload]
    w = random_vector(module)
    parameters.write(module, w)
    assert torch.equal(parameters.read(module), w)
    for name, part in Layout.of(module).named(w).items():
        assert torch.equal(module.state_dict()[name], part)


def test_memory_layout_changes_neither_the_vector_nor_the_function() -> None:
    plain = build("lenet5", (1, 28, 28), 10, 0)
    last = build("lenet5", (1, 28, 28), 10, 1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters.write(last, parameters.read(plain))
    assert any(p.dim() == 4 and not p.is_contiguous() for p in last.parameters())
    x = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(plain(x), last(x))


def test_gradient_of_a_channels_last_module_is_in_the_vectors_order() -> None:
    plain = normed().eval()
    last = normed().eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    w = random_vector(plain)
    w[Layout.of(plain).trainable :].abs_()  # variances
    found = []
    for module in (plain, last):
        parameters.write(module, w)
        torch.autograd.backward(module(images()).square().mean())
        found.append(parameters.read_gradient(module, Layout.of(module)))
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-4)


def test_read_is_a_copy_and_write_copies() -> None:
    module = nn.Linear(2, 1, bias=False)
    before = parameters.read(module)
    kept = before.clone()
    w = torch.tensor([5.0, 6.0])
    parameters.write(module, w)
    assert torch.equal(before, kept)
    w.zero_()
    assert module.weight.tolist() == [[5.0, 6.0]]


def test_floating_buffers_are_the_tail_and_integer_ones_are_left_out() -> None:
    module = normed()
    layout = Layout.of(module)
    weights = sum(p.numel() for p in module.parameters())
    assert layout.names[-2:] == ("norm.running_mean", "norm.running_var")
    assert (layout.trainable, layout.size) == (weights, weights + 6)
    assert parameters.read(module)[layout.trainable :].tolist() == [0, 0, 0, 1, 1, 1]
    parameters.write(module, torch.zeros(layout.size))
    assert int(module.get_buffer("norm.num_batches_tracked")) == 0
    assert module.get_buffer("norm.num_batches_tracked").dtype == torch.int64


def test_gradient_is_zero_on_buffers_and_on_unused_weights() -> None:
    module = normed().train()
    module.register_parameter("unused", nn.Parameter(torch.ones(4)))
    layout = Layout.of(module)
    torch.autograd.backward(module(images()).square().mean())
    gradient = parameters.read_gradient(module, layout)
    assert gradient.shape == (layout.size,)
    assert not gradient[layout.trainable :].any()
    by_name = layout.named(gradient)
    assert not by_name["unused"].any()
    assert all(by_name[name].any() for name in ("conv.weight", "norm.weight", "head.weight"))


def test_fedavg_averages_buffers_by_samples() -> None:
    splits = {}
    for i, (count, scale) in enumerate([(6, 1.0), (18, 3.0)]):
        x, y = scale * images(count, seed=i), torch.arange(count) % 2
        splits[str(i)] = {"train": (x, y), "test": (x, y)}
    module = normed()
    federation = SimulatedFederation(module, splits, workers=1)
    w, local = parameters.read(module), Local(lr=0.1, batch_size=50)
    models = federation.train(w, ("0", "1"), Loss("ce"), local).models
    tail = federation.layout.trainable
    assert not torch.allclose(models[0, tail:], models[1, tail:])
    mean = federation.train_mean(w, ("0", "1"), Loss("ce"), local).w
    assert mean is not None
    torch.testing.assert_close(mean, 0.25 * models[0] + 0.75 * models[1])


def test_frozen_parameters_are_left_out_and_untouched() -> None:
    body, head = nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 2)
    module = nn.Sequential(body, head)
    kept = body.weight.clone()
    layout = Layout.of(module)
    assert layout.names == ("1.weight", "1.bias")
    assert (layout.trainable, layout.size) == (10, 10)
    parameters.write(module, torch.zeros(10))
    assert torch.equal(body.weight, kept)
    assert not head.weight.any()
    assert [tuple(p.shape) for p in parameters.trainable(module)] == [(2, 4), (2,)]


def test_nothing_to_train_is_the_users_error() -> None:
    for module in (nn.ReLU(), nn.Linear(2, 2).requires_grad_(False), nn.BatchNorm1d(2, affine=False)):
        with pytest.raises(UserError, match="no trainable parameter"):
            Layout.of(module)


def test_named_and_flat_are_inverse() -> None:
    layout = Layout.of(normed())
    w = random_vector(normed())
    named = layout.named(w)
    assert named["conv.weight"].shape == (3, 1, 3, 3)
    assert torch.equal(layout.flat(dict(reversed(named.items()))), w)


def test_flat_takes_a_state_dict_and_refuses_another_models() -> None:
    module = normed()
    layout = Layout.of(module)
    state = module.state_dict()
    assert torch.equal(layout.flat(state), parameters.read(module))
    with pytest.raises(UserError, match=r"'head\.bias' is missing in the weights"):
        layout.flat({k: v for k, v in state.items() if k != "head.bias"})
    with pytest.raises(UserError, match=r"'head\.weight' has shape \(108, 2\), in the model \(2, 108\)"):
        layout.flat({**state, "head.weight": state["head.weight"].T})


def test_flat_is_float32_whatever_the_file_has() -> None:
    layout = Layout.of(nn.Linear(2, 1))
    flat = layout.flat({"weight": torch.ones(1, 2, dtype=torch.float64), "bias": torch.ones(1, dtype=torch.float16)})
    assert flat.dtype == torch.float32
    assert flat.tolist() == [1, 1, 1]


# The last dense layer ------------------------------------------------------------------------------------------


class Bare(nn.Module):
    """A parameter that no layer owns."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.shift = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x) + self.shift
        return out


def unbiased() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))


HEADS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, tuple[int, int], bool]] = {
    "mlp": (lambda: build("mlp", (1, 8, 8), 10, 0), (1, 8, 8), "3", (10, 64), True),
    "lenet5": (lambda: build("lenet5", (1, 28, 28), 10, 0), (1, 28, 28), "fc3", (10, 84), True),
    "nfresnet18": (lambda: build("nfresnet18", (3, 32, 32), 7, 0), (3, 32, 32), "fc", (7, 256), True),
    "batchnorm": (normed, (1, 8, 8), "head", (2, 108), True),
    "alone": (lambda: nn.Linear(4, 3), (4,), "", (3, 4), True),
    "without bias": (unbiased, (4,), "2", (3, 6), False),
    "not the last entry": (Bare, (4,), "head", (2, 4), True),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_head_is_the_last_dense_layer(name: str) -> None:
    make, _, layer, shape, bias = HEADS[name]
    module = make()
    layout, head = Layout.of(module), Layout.of(module).head()
    assert (head.layer, head.shape) == (layer, shape)
    assert head.stop - head.start == shape[0] * shape[1] + (shape[0] if bias else 0)
    marked = torch.zeros(layout.size)
    marked[head.start : head.stop] = 1.0
    dense = module.get_submodule(layer)
    wanted = {f"{layer}.{p}".lstrip(".") for p, _ in dense.named_parameters()}
    assert {n for n, t in layout.named(marked).items() if bool(t.all())} == wanted
    assert not any(bool(t.any()) for n, t in layout.named(marked).items() if n not in wanted)


@pytest.mark.parametrize("name", [n for n in HEADS if n != "not the last entry"])
def test_features_are_what_the_head_turns_into_logits(name: str) -> None:
    make, shape, *_ = HEADS[name]
    module = make().eval()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    head = Layout.of(module).head()
    seen, logits = parameters.features(module, x)
    assert seen.shape == (3, head.shape[1])
    assert torch.equal(logits, module(x))
    part = parameters.read(module)[head.start : head.stop]
    torch.testing.assert_close(head.apply(seen, part), logits)
    doubled = head.apply(seen, 2 * part)
    torch.testing.assert_close(doubled, 2 * logits)
    assert not list(module.get_submodule(head.layer)._forward_pre_hooks)  # nothing is left behind


def test_features_have_a_gradient() -> None:
    module = build("mlp", (4,), 3, 0)
    seen, _ = parameters.features(module, torch.ones(2, 4))
    torch.autograd.backward(seen.sum())
    named = dict(module.named_parameters())
    assert named["1.weight"].grad is not None
    assert named["3.weight"].grad is None


class Twice(nn.Module):
    """Uses its last layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.head(x))
        return out


def test_models_without_a_usable_head_are_the_users_error() -> None:
    with pytest.raises(UserError, match="no dense last layer"):
        Layout.of(nn.Conv2d(1, 2, 3)).head()
    with pytest.raises(UserError, match="must be called once, with one vector per sample"):
        parameters.features(Twice(), torch.ones(2, 4))
    with pytest.raises(UserError, match="must be called once, with one vector per sample"):
        parameters.features(nn.Linear(4, 2), torch.ones(2, 5, 4))


# Fresh models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "lenet5", "nfresnet18", "batchnorm"])
def test_a_fresh_model_is_as_if_built_anew(name: str) -> None:
    module = HEADS[name][0]()
    trained = 3.0 + random_vector(module).abs()  # nothing like a young model
    parameters.write(module, trained)
    state = torch.get_rng_state()
    one, two, other = (parameters.reinitialised(module, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(parameters.read(module), trained)  # the module itself is left alone
    with torch.random.fork_rng():
        torch.manual_seed(1)
        built = normed() if name == "batchnorm" else MODELS[name](HEADS[name][1], HEADS[name][3][0])
    assert torch.equal(one, parameters.read(built))


def test_gains_and_running_statistics_are_reset_too() -> None:
    module = HEADS["nfresnet18"][0]()
    parameters.write(module, torch.full((Layout.of(module).size,), 5.0))
    fresh = Layout.of(module).named(parameters.reinitialised(module, 0))
    gains = [t for n, t in fresh.items() if n.endswith("gain")]
    assert len(gains) == 11
    assert all(bool((t == 1).all()) for t in gains)
    module = normed()
    parameters.write(module, torch.full((Layout.of(module).size,), 5.0))
    fresh = Layout.of(module).named(parameters.reinitialised(module, 0))
    assert fresh["norm.running_mean"].tolist() == [0, 0, 0]
    assert fresh["norm.running_var"].tolist() == fresh["norm.weight"].tolist() == [1, 1, 1]


def test_a_frozen_layer_keeps_its_running_statistics() -> None:
    """They belong to the pre-trained backbone; those of a layer that is trained, though only its bias, are reset."""
    names = ("frozen", "bias", "trained")
    module = nn.Sequential(OrderedDict({name: nn.BatchNorm1d(3) for name in names}))
    parameters.write(module, torch.full((Layout.of(module).size,), 5.0))
    for name in names[:2]:
        module.get_submodule(name).requires_grad_(False)
    module.get_parameter("bias.bias").requires_grad_(True)
    fresh = Layout.of(module).named(parameters.reinitialised(module, 0))
    means = {name: fresh[f"{name}.running_mean"].tolist() for name in names}
    assert means == {"frozen": [5, 5, 5], "bias": [0, 0, 0], "trained": [0, 0, 0]}
    variances = {name: fresh[f"{name}.running_var"].tolist() for name in names}
    assert variances == {"frozen": [5, 5, 5], "bias": [1, 1, 1], "trained": [1, 1, 1]}


def test_a_parameter_that_nobody_resets_is_drawn_with_its_own_mean_and_spread() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Parameter(5 + 3 * torch.randn(4000, generator=torch.Generator().manual_seed(0)))
            self.zeros = nn.Parameter(torch.zeros(3))

    module = Own()
    one, two = (Layout.of(module).named(parameters.reinitialised(module, seed)) for seed in (1, 2))
    assert one["wide"].mean() == pytest.approx(5, abs=0.2)
    assert one["wide"].std() == pytest.approx(3, abs=0.2)
    assert abs(float(torch.corrcoef(torch.stack([one["wide"], module.wide.detach()]))[0, 1])) < 0.1
    assert not torch.equal(one["wide"], two["wide"])
    assert one["zeros"].tolist() == [0, 0, 0]


def test_a_user_can_say_how_a_fresh_model_is_made() -> None:
    def fresh(seed: int) -> nn.Module:
        module = Bare()
        parameters.write(module, torch.full((12,), float(seed)))
        return module

    x, y = torch.ones(2, 4), torch.tensor([0, 1])
    held = {i: {"train": (x, y), "test": (x, y)} for i in "ab"}
    assert SimulatedFederation(Bare(), held, workers=1, fresh=fresh).fresh(7).tolist() == [7.0] * 12
    assert SimulatedFederation(Bare(), held, workers=1).fresh(7).tolist() != [7.0] * 12
