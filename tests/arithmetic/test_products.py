"""Linear layers by oneDNN: the same products, bits that no other row changes, and nothing left behind."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from encoder_toys import tiny_tokenizer
from torch import nn
from transformers import AutoModelForSequenceClassification, BertConfig

from isthmus.arithmetic import products
from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.products import lay_out, product, without_layouts
from isthmus.core.types import TokenBatch
from isthmus.models.stock import from_transformers
from isthmus.models.victims import ClassifierVictim

WIDTHS = [(384, 384), (384, 1536), (1536, 384), (384, 2), (32, 64)]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor where it pays, so that these tests say something on every one."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch has no oneDNN here")
    monkeypatch.setattr(products, "pays", lambda kind: True)


def layer_of(width: int, outputs: int, kind: torch.dtype = torch.float32) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(width, outputs).to(kind)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("width", "outputs"), WIDTHS)
def test_products_are_those_of_torch(width: int, outputs: int, kind: torch.dtype) -> None:
    layer = layer_of(width, outputs, kind)
    rows = torch.randn(2, 21, width).to(kind)
    with torch.inference_mode():
        found, expected = product(layer)(rows), layer(rows)
    assert found.dtype == kind
    exact = rows.double() @ layer.weight.double().T + layer.bias.double()
    unit = 2**-22 if kind == torch.float32 else 2**-7
    assert (found.double() - exact).abs().max() <= unit * exact.abs().max() * 8
    assert (found.double() - expected.double()).abs().max() <= unit * exact.abs().max() * 8


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("width", "outputs"), WIDTHS)
def test_a_row_has_the_same_bits_whatever_it_is_multiplied_with(width: int, outputs: int, kind: torch.dtype) -> None:
    layer = layer_of(width, outputs, kind)
    least, rows = fewest_rows(nn.Sequential(layer)), torch.randn(1100, width).to(kind)
    with torch.inference_mode():
        multiply = product(layer)
        whole = multiply(rows)
        for count in (*range(least, 70), 128, 255, 299, 391, 512, 700, 1024):
            assert torch.equal(multiply(rows[:count]), whole[:count]), count
        assert torch.equal(multiply(rows[37:137]), whole[37:137])


@pytest.mark.parametrize("sizes", [(64, 256), (256,), (32, 128, 512)])
def test_blocks_answer_every_row_once_and_in_order(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on processors that need no blocks."""
    asked: list[int] = []

    def multiply(rows: torch.Tensor, *given: object) -> torch.Tensor:
        asked.append(len(rows))
        return plain(rows, *given)

    plain = products._multiply
    monkeypatch.setattr(products, "_block_sizes", lambda *_: sizes)
    monkeypatch.setattr(products, "_multiply", multiply)
    layer = layer_of(48, 24, torch.bfloat16)
    for shape in [(1,), (3, 21), (64,), (2, 150), (1, 1024), (1100,)]:
        rows = torch.randn(*shape, 48).bfloat16()
        asked.clear()
        with torch.inference_mode():
            found, expected = product(layer)(rows), layer(rows)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)
        assert set(asked) <= set(sizes)
        assert 0 <= sum(asked) - rows[..., 0].numel() < sizes[-1]


def test_changed_weights_are_seen_and_nothing_stays_behind(everywhere: None) -> None:
    layer, rows = layer_of(384, 384), torch.randn(8, 384)
    model = nn.Sequential(layer)
    with torch.inference_mode(), lay_out(model):
        before = model(rows)
        with lay_out(model):  # Again inside.
            assert torch.equal(model(rows), before)
        assert "forward" in layer.__dict__
    assert "forward" not in layer.__dict__
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.bias.mul_(2)
    with torch.inference_mode(), lay_out(model):
        assert torch.allclose(model(rows), 2 * before, rtol=1e-5, atol=1e-5)


def test_what_is_differentiated_is_left_to_torch(everywhere: None) -> None:
    layer, rows = layer_of(384, 384), torch.randn(8, 384, requires_grad=True)
    with lay_out(layer):
        found = layer(rows)
        found.sum().backward()
    assert torch.equal(found, layer(rows))
    assert rows.grad is not None
    assert layer.weight.grad is not None


def test_gradients_of_inputs_are_those_of_torch(everywhere: None) -> None:
    model = nn.Sequential(layer_of(384, 1536), nn.GELU(), layer_of(1536, 384), layer_of(384, 2))
    rows = torch.randn(40, 384, requires_grad=True)
    (expected,) = torch.autograd.grad(model(rows).square().sum(), rows)
    with lay_out(model), lay_out(model, inputs=True):
        (found,) = torch.autograd.grad(model(rows).square().sum(), rows)
        few = rows[:20].detach().requires_grad_()
        (alone,) = torch.autograd.grad(model(few).square().sum(), few)
    assert not torch.equal(found, torch.zeros_like(found))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(alone, found[:20])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any("forward" in each.__dict__ for each in model.modules())


def test_a_copy_made_inside_has_its_own_weights(everywhere: None) -> None:
    model, rows = nn.Sequential(layer_of(384, 384)), torch.randn(8, 384)
    with torch.no_grad(), lay_out(model):
        half = without_layouts(copy.deepcopy(model).to(torch.bfloat16))
        found = half(rows.bfloat16())
    assert found.dtype == torch.bfloat16
    assert not any("forward" in each.__dict__ for each in half.modules())


@pytest.mark.parametrize("fused", [True, False])
def test_weights_that_an_optimiser_changed_are_laid_out_again(everywhere: None, fused: bool) -> None:
    layer, rows = layer_of(384, 384), torch.randn(8, 384)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=fused)
    with torch.no_grad(), lay_out(layer):
        before = layer(rows)
    layer(rows).sum().backward()
    optimiser.step()
    with torch.no_grad():
        plain = layer(rows)
        with lay_out(layer):
            after = layer(rows)
    assert not torch.allclose(before, plain, atol=1e-2)
    torch.testing.assert_close(after, plain, atol=1e-4, rtol=1e-4)


def test_an_error_inside_leaves_the_layers_as_they_were(everywhere: None) -> None:
    layer = layer_of(384, 384)
    with pytest.raises(RuntimeError, match="stop"), lay_out(layer):
        raise RuntimeError("stop")
    assert "forward" not in layer.__dict__


def victim_of_bert() -> ClassifierVictim:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(**sizes, vocab_size=100, max_position_embeddings=80, initializer_range=0.3)
    return ClassifierVictim(from_transformers(AutoModelForSequenceClassification.from_config(config), tiny_tokenizer()))


def test_a_victim_answers_alike_alone_and_in_passes(everywhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(3)
    batches = [TokenBatch(draw.integers(5, 59, (1 + length % 3, length))) for length in range(3, 60)]
    victim = victim_of_bert()
    together = victim.launch(batches)()  # More rows than a trial needs.
    trial = victim._trial(exact=False)
    assert trial is not None
    assert trial.holds
    alone = np.concatenate([victim.launch([batch])() for batch in batches])
    assert np.array_equal(together, alone)
    assert not any("forward" in each.__dict__ for each in victim.model.modules())
    monkeypatch.setattr(products, "pays", lambda kind: False)
    np.testing.assert_allclose(victim_of_bert().launch(batches)(), together, atol=1e-5)
