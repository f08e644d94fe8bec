import contextlib
from dataclasses import dataclass

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.core.errors import TrainingError
from isthmus.core.hardware import bfloat16_works
from isthmus.core.types import Output
from isthmus.defences import Batch, Defence, Terms
from isthmus.training.numerics import autocast_on
from isthmus.training.walk import Ledger, add_together, walk


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))

    def forward(self, x):
        return Output(x @ self.weight)


def batch(rows=4, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return Batch({"x": torch.randn(rows, 2, generator=stream)}, torch.arange(rows) % 2, seed=seed)


def backward(loss, retain_graph):
    loss.backward(retain_graph=retain_graph)


def walked(defence, model, data, weight=1.0):
    return walk(defence, model, data, backward=backward, autocast=contextlib.nullcontext, weight=weight)


def test_the_default_defence_is_cross_entropy():
    model, data = Linear(), batch()
    terms = walked(Defence(), model, data)
    expected = torch.nn.functional.cross_entropy(data.inputs["x"] @ model.weight, data.labels)
    (gradient,) = torch.autograd.grad(expected, model.weight)
    assert list(terms) == ["cross_entropy"]
    assert torch.equal(terms["cross_entropy"], expected.detach())
    assert torch.equal(model.weight.grad, gradient)


def has_gradient(model: torch.nn.Linear) -> bool:
    return model.weight.grad is not None


@dataclass(frozen=True)
class ReadsGradients(Defence):
    def losses(self, model, batch):
        output = model(**batch.inputs)
        assert not has_gradient(model)
        yield Terms({"first": output.logits.square().mean()}, retain_graph=True)
        before = model.weight.grad.clone()
        yield Terms({"second": output.logits.mean(), "first": output.logits.abs().mean()})
        assert not torch.equal(before, model.weight.grad)


def test_each_yield_is_differentiated_before_the_generator_goes_on_and_names_add_up():
    model, data = Linear(), batch()
    terms = walked(ReadsGradients(), model, data)
    logits = data.inputs["x"] @ model.weight
    total = logits.square().mean() + logits.mean() + logits.abs().mean()
    (gradient,) = torch.autograd.grad(total, model.weight)
    torch.testing.assert_close(model.weight.grad, gradient)
    torch.testing.assert_close(terms["first"], (logits.square().mean() + logits.abs().mean()).detach())
    assert not any(value.requires_grad for value in terms.values())


def test_the_weight_scales_gradients_and_not_the_terms():
    plain, scaled, data = Linear(), Linear(), batch()
    terms, same = walked(Defence(), plain, data), walked(Defence(), scaled, data, weight=0.25)
    assert torch.equal(terms["cross_entropy"], same["cross_entropy"])
    torch.testing.assert_close(scaled.weight.grad, plain.weight.grad * 0.25)


def test_mixed_precision_covers_the_generator_and_not_the_backward_pass():
    inside = []

    @contextlib.contextmanager
    def autocast():
        inside.append(True)
        yield
        inside.pop()

    @dataclass(frozen=True)
    class Watches(Defence):
        def losses(self, model, batch):
            for name in "ab":
                assert inside
                yield Terms({name: model(**batch.inputs).logits.mean()})

    def outside(loss, retain_graph):
        assert not inside
        loss.backward()

    walk(Watches(), Linear(), batch(), backward=outside, autocast=autocast)


@dataclass(frozen=True)
class Twice(Defence):
    def losses(self, model, batch):
        for name in "ab":
            yield Terms({name: model(**batch.inputs).logits.float().square().mean()})


class Casts(TorchDispatchMode):
    """How often something of a weight's shape is cast to bfloat16."""

    def __init__(self, weight):
        super().__init__()
        self.shape, self.count = weight.shape, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._to_copy.default and result.dtype == torch.bfloat16:
            self.count += result.shape == self.shape
        return result


@pytest.mark.skipif(not bfloat16_works("cpu"), reason="this processor has no working bfloat16")
def test_a_weight_is_cast_once_a_step_and_has_the_gradients_of_all_passes():
    model, data = Linear(), batch()
    with Casts(model.weight) as casts:
        walk(Twice(), model, data, backward=backward, autocast=autocast_on(torch.device("cpu"), "bf16"))
    assert casts.count == 1
    twice = model.weight.grad.clone()
    model.weight.grad = None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**data.inputs).logits.float().square().mean()
    loss.backward()
    assert torch.equal(twice, 2 * model.weight.grad)
    with torch.no_grad():
        model.weight.mul_(2)  # what was cast must not outlive the step
    with Casts(model.weight) as casts:
        walk(Twice(), model, data, backward=backward, autocast=autocast_on(torch.device("cpu"), "bf16"))
    assert casts.count == 1


def test_gradients_added_together_are_those_of_a_backward_pass():
    model = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])
    used_before, used_twice, used_after = model
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))

    def passes(around):
        model.zero_grad()
        used_twice(used_before(x)).square().mean().backward()
        with around():
            used_twice(used_after(x)).square().mean().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = passes(contextlib.nullcontext)
    assert all(map(torch.equal, passes(lambda: add_together(list(model.parameters()))), expected))


def test_losses_that_yield_nothing_are_an_error():
    @dataclass(frozen=True)
    class Silent(Defence):
        def losses(self, model, batch):
            yield from ()

    with pytest.raises(TrainingError, match="Silent"):
        walked(Silent(), Linear(), batch())


def test_streams_depend_on_seed_and_name_alone():
    draws = [torch.rand(3, generator=data.stream(name)) for data in (batch(seed=1), batch(seed=2)) for name in "ab"]
    assert len({tuple(draw.tolist()) for draw in draws}) == 4
    assert torch.equal(draws[0], torch.rand(3, generator=batch(seed=1, rows=9).stream("a")))


def test_the_ledger_averages_over_steps_and_adds_the_passes_of_a_step():
    ledger = Ledger()
    ledger.add(1, {"a": torch.tensor(2.0), "b": torch.tensor(-1.0)}, 0.75)
    ledger.add(1, {"a": torch.tensor(6.0), "b": torch.tensor(-1.0)}, 0.25)
    ledger.add(2, {"a": torch.tensor(5.0), "b": torch.tensor(1.0)})
    assert ledger.take() == {"a": 4.0, "b": 0.0, "loss": 4.0}
    ledger.add(3, {"a": torch.tensor(1.0)})
    assert ledger.take() == {"a": 1.0, "loss": 1.0}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_ledger_names_the_first_step_and_term_that_is_not_a_number(bad):
    ledger = Ledger()
    for step, value in ((7, 1.0), (8, bad), (9, bad)):
        ledger.add(step, {"good": torch.tensor(1.0), "odd": torch.tensor(value)})
    with pytest.raises(TrainingError, match=f"odd became {bad} at step 8"):
        ledger.take()
