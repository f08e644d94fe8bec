"""The losses themselves, against closed forms."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus import defences
from isthmus.core.errors import UsageError
from isthmus.core.types import Output
from isthmus.defences import Batch
from isthmus.defences.confidence_penalty import entropy


class Free(torch.nn.Module):
    """Logits are the parameters, so that a gradient with respect to them is easy to read."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self):
        return Output(self.logits)


def loss_of(defence, logits, labels):
    model = Free(torch.as_tensor(logits, dtype=torch.float32))
    (terms,) = defence.losses(model, Batch({}, torch.as_tensor(labels)))
    return terms, model


@given(st.integers(2, 6), st.floats(0.01, 0.99))
@settings(max_examples=30, deadline=None)
def test_label_smoothing_has_no_gradient_at_its_target(classes, epsilon):
    target = torch.full((classes,), epsilon / classes, dtype=torch.float64)
    target[1] += 1 - epsilon
    terms, model = loss_of(defences.LabelSmoothing(epsilon), target.log()[None], [1])
    terms.total().backward()
    assert model.logits.grad.abs().max() < 1e-6
    torch.testing.assert_close(terms.total().double(), -(target * target.log()).sum(), rtol=1e-5, atol=1e-6)


def test_label_smoothing_is_cross_entropy_plus_the_divergence_from_uniform():
    logits, labels, epsilon = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 4, 0.3
    log_p = logits.log_softmax(-1)
    uniform = torch.full_like(log_p, 0.25)
    divergence = (uniform * (uniform.log() - log_p)).sum(-1).mean()
    plain = torch.nn.functional.cross_entropy(logits, labels)
    expected = (1 - epsilon) * plain + epsilon * (divergence + math.log(4))
    torch.testing.assert_close(loss_of(defences.LabelSmoothing(epsilon), logits, labels)[0].total(), expected)


@pytest.mark.parametrize(
    ("classes", "probability", "objective"), [(2, 0.78219, -0.27846), (4, 0.62362, -0.60355), (10, 0.47596, -1.10100)]
)
def test_the_confidence_penalty_of_weight_one_has_the_known_optimum(classes, probability, objective):
    rest = (1 - probability) / (classes - 1)
    logits = torch.full((1, classes), math.log(rest))
    logits[0, 0] = math.log(probability)
    terms, model = loss_of(defences.ConfidencePenalty(gamma=1.0), logits, [0])
    terms.total().backward()
    assert terms.total().item() == pytest.approx(objective, abs=2e-5)
    assert model.logits.grad.abs().max() < 2e-5


@given(st.lists(st.floats(-200, 200, width=32), min_size=2, max_size=6), st.floats(1e-3, 10))
@settings(max_examples=50, deadline=None)
def test_the_confidence_penalty_is_bounded_by_the_largest_entropy(logits, gamma):
    terms, model = loss_of(defences.ConfidencePenalty(gamma), [logits], [0])
    penalty = terms.values["confidence_penalty"]
    assert -gamma * math.log(len(logits)) * (1 + 1e-5) - 1e-6 <= penalty.item() <= 1e-6
    terms.total().backward()
    assert model.logits.grad.isfinite().all()


def test_entropy_of_known_distributions():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1e4, 0.0, 0.0, 0.0], [math.log(3.0), 0.0, -1e4, -1e4]])
    expected = torch.tensor([math.log(4), 0.0, -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))])
    torch.testing.assert_close(entropy(logits), expected)


def test_entropy_has_its_own_gradient_though_the_logarithm_is_not_followed():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(entropy, logits)


def test_losses_are_computed_in_float32():
    logits = torch.tensor([[3.0, -1.0]], dtype=torch.bfloat16)
    for defence in (defences.Standard(), defences.LabelSmoothing(), defences.ConfidencePenalty()):
        (terms,) = defence.losses(Free(logits), Batch({}, torch.tensor([0])))
        assert all(value.dtype == torch.float32 for value in terms.values.values())


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, math.nan])
def test_label_smoothing_refuses_what_is_not_a_share(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        defences.LabelSmoothing(epsilon)


@pytest.mark.parametrize("gamma", [-0.1, math.inf, math.nan])
def test_the_confidence_penalty_refuses_what_is_not_a_weight(gamma):
    with pytest.raises(UsageError, match="gamma"):
        defences.ConfidencePenalty(gamma)
