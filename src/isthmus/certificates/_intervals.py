"""Interval bounds of a `cnn` or `lstm` over every substitution of synonyms at once.

    first layer      min and max of W e over the embeddings e of a word and its synonyms, word by word
    convolution      sum of the bounds of its taps;  ReLU and maximum over time keep order, so bounds go through them
    LSTM             W h: centre and radius;  c' = σ(f) c + σ(i) tanh(g) and h' = σ(o) tanh(c'): the extreme corner
                     products of the factors' intervals, σ and tanh being monotone
    head             min of (w_A - w_c)·h + b_A - b_c over the box of h, class by class

Taking the minimum over the synonyms themselves, after the first linear map instead of before it, is at least as tight
as the box around their embeddings, and exact where the model is linear. Jia, Raghunathan, Göksel, Liang: Certified
Robustness to Adversarial Word Substitutions, 2019.

Bounds are computed in double precision, the model answers in float32. A float32 sum of n terms, added in any order, is
within n u / (1 - n u) of the sum of their sizes, u = 2^-24. So every sum of the model is widened by that much, at every
layer and at every step of an LSTM: what the model computes from numbers inside a box lies inside the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus.arithmetic.batching import columns_of
from isthmus.certificates._substitutions import SubstitutionSpace
from isthmus.core.types import Victim

_UNIT = 2.0**-24
"""What float32 loses in one operation, relative to its result."""

_LEAST = 1e-5
"""What is allowed for the shortest sums: convolutions may be computed by algorithms that add more than their terms."""

_STEP = 8 * _UNIT
"""What is allowed for a product, or for a sum of two."""

_FUNCTION = 1e-6
"""What sigmoid and tanh in float32 may be off by: eight times the spacing of float32 below one."""

TokenChoices = list[list[int]]
"""For every token of a text, the possible ids, its own first."""


class Box(NamedTuple):
    """Bounds of a tensor, element by element."""

    low: Tensor
    high: Tensor


def slack(terms: int) -> float:
    """Largest rounding error of a float32 sum of `terms` products in any order, relative to the sum of their sizes."""
    return max(_LEAST, 1.01 * (terms + 4) * _UNIT)


def is_bounded(victim: Victim) -> bool:
    """Whether bounds can be computed: the model is a word-level network with no slot filled and no front end.

    A word mask that scales every word by its own factor is as good as another table.
    """
    from isthmus.models.victims.classifier import ClassifierVictim

    if type(victim) is not ClassifierVictim:
        return False
    model: Any = victim.model
    form = getattr(getattr(model, "backbone", None), "form", None)
    if form not in ("cnn", "lstm") or model.head is None:
        return False
    return all(name == "word_mask" and slot.scales_words for name, slot in model.slots.by_name().items())


def bound_margin(model: Any, space: SubstitutionSpace, prediction: int) -> float | None:
    """A lower bound of the lead of `prediction` over the whole space; None if a word is not one token."""
    choices = token_choices(model, space)
    if choices is None:
        return None
    with torch.inference_mode():
        return lower_margin(model, bound_pooled(model, choices), prediction)


def token_choices(model: Any, space: SubstitutionSpace) -> TokenChoices | None:
    """The possible token ids at every place of the token row."""
    tokenizer = model.tokenizer
    texts = space.with_words({})
    row = tokenizer(
        *columns_of([texts], model.task.fields), truncation="longest_first", max_length=model.max_tokens,
        return_offsets_mapping=True,
    )  # fmt: skip
    ids = list(row["input_ids"][0])
    found: TokenChoices = [[token] for token in ids]
    sequences, offsets = row.sequence_ids(0), row["offset_mapping"][0]
    at = {(field, *map(int, span)): place for place, (field, span) in enumerate(zip(sequences, offsets, strict=True))}
    position = 0
    for field, words in enumerate(space.fields.values()):
        last = max((int(span[1]) for own, span in zip(sequences, offsets, strict=True) if own == field), default=0)
        for start, end in words.offsets():
            others = space.choices[position]
            position += 1
            if not others or start >= last:  # nothing to substitute, or cut off with the end of the text
                continue
            place = at.get((field, start, end))
            tokens = [tokenizer(other, add_special_tokens=False)["input_ids"] for other in others]
            if place is None or any(len(own) != 1 for own in tokens):
                return None
            found[place] += [int(own[0]) for own in tokens]
    return found


def bound_pooled(model: Any, choices: TokenChoices) -> Box:
    """Bounds of the pooled vector."""
    backbone = model.backbone
    reader = _WordBounds(model.read_table(), choices)
    if backbone.form == "cnn":
        parts = [
            _bound_convolution(reader, layer, size)
            for layer, size in zip(backbone.convolutions.filters, backbone.convolutions.widths, strict=True)
        ]
        return Box(torch.cat([part.low for part in parts]), torch.cat([part.high for part in parts]))
    lstm = backbone.recurrence.lstm
    ways = [_recurrence(reader, lstm, "", range(len(choices)))]
    if lstm.bidirectional:
        ways.append(_recurrence(reader, lstm, "_reverse", range(len(choices) - 1, -1, -1)))
    return Box(torch.cat([way.low for way in ways]), torch.cat([way.high for way in ways]))


def lower_margin(model: Any, box: Box, prediction: int) -> float:
    """The smallest lead of `prediction` over any other class, less the rounding error."""
    weight, bias = model.head.weight.double(), model.head.bias.double()
    lead = weight[prediction] - weight  # [classes, pooled]
    # Positive weights meet the lower bounds, negative ones the upper: the least of lead · x over the box [classes].
    least = lead.clamp(min=0) @ box.low + lead.clamp(max=0) @ box.high + bias[prediction] - bias
    size = (weight[prediction].abs() + weight.abs()) @ _largest_size(box)
    # The 1: two scores that float32 cannot tell apart are a tie, which goes to the first class.
    least = least - slack(len(box.low) + 1) * (1 + size + bias.abs() + bias[prediction].abs())
    others = [place for place in range(len(least)) if place != prediction]
    return float(least[others].min())


class _WordBounds:
    """Bounds of linear maps of the words, over the possible words at each place."""

    def __init__(self, table: Tensor, choices: TokenChoices) -> None:
        known: dict[int, int] = {}
        owner, column = [], []
        for place, tokens in enumerate(choices):
            for token in tokens:
                owner.append(place)
                column.append(known.setdefault(token, len(known)))
        self.vectors = table.detach()[list(known)].double().cpu()  # [distinct tokens, width]
        self.owner, self.column = torch.tensor(owner), torch.tensor(column)
        self.length = len(choices)

    def map(self, weight: Tensor, lost: float) -> Box:
        """Bounds of W e at every place [places, outputs], widened by the relative rounding error `lost`."""
        exact = weight.detach().double().cpu().T
        values, room = self.vectors @ exact, lost * (self.vectors.abs() @ exact.abs())
        low, high = (values - room)[self.column], (values + room)[self.column]  # [tokens over all places, outputs]
        index = self.owner.unsqueeze(1).expand_as(low)
        # The least and the largest over the tokens that may stand at each place.
        empty = values.new_zeros(self.length, values.shape[1])
        return Box(
            empty.scatter_reduce(0, index, low, "amin", include_self=False),
            empty.scatter_reduce(0, index, high, "amax", include_self=False),
        )


def _bound_convolution(reader: _WordBounds, layer: Any, size: int) -> Box:
    """Bounds of the filters of one width over centred windows, ReLU, maximum over time; the text is zero-padded."""
    bias = layer.bias.detach().double().cpu()
    lost = slack(size * reader.vectors.shape[1] + 1)
    low = (bias - lost * bias.abs()).repeat(reader.length, 1)
    high = (bias + lost * bias.abs()).repeat(reader.length, 1)
    for tap in range(size):
        shift = tap - (size - 1) // 2
        part = reader.map(layer.weight[:, :, tap], lost)
        # Windows whose tap lies inside the text, and where that tap reads; elsewhere it reads zeros.
        inside = slice(max(0, -shift), min(reader.length, reader.length - shift))
        source = slice(inside.start + shift, inside.stop + shift)
        if inside.start < inside.stop:
            low[inside] += part.low[source]
            high[inside] += part.high[source]
    return Box(low.clamp(min=0).amax(dim=0), high.clamp(min=0).amax(dim=0))


def _recurrence(reader: _WordBounds, lstm: Any, way: str, order: Sequence[int]) -> Box:
    """Bounds of the largest hidden state over time, for one direction."""
    weights = {
        name: getattr(lstm, f"{name}_l0{way}").detach().double().cpu() for name in ("weight_hh", "bias_ih", "bias_hh")
    }
    lost = slack(reader.vectors.shape[1] + lstm.hidden_size + 2)
    words = reader.map(getattr(lstm, f"weight_ih_l0{way}"), lost)
    bias, room = weights["bias_ih"] + weights["bias_hh"], weights["bias_ih"].abs() + weights["bias_hh"].abs()
    hidden = cell = Box(*(torch.zeros(lstm.hidden_size, dtype=torch.float64),) * 2)
    pooled: Box | None = None
    for place in order:
        own = _bound_linear(weights["weight_hh"], hidden)
        off = lost * (room + weights["weight_hh"].abs() @ _largest_size(hidden))
        gates = Box(words.low[place] + own.low + bias - off, words.high[place] + own.high + bias + off)
        i, f, g, o = (Box(*pair) for pair in zip(gates.low.chunk(4), gates.high.chunk(4), strict=True))
        kept, new = (
            product(_monotone(torch.sigmoid, f), cell),
            product(_monotone(torch.sigmoid, i), _monotone(torch.tanh, g)),
        )
        off = _STEP * (_largest_size(kept) + _largest_size(new))
        cell = Box(kept.low + new.low - off, kept.high + new.high + off)
        hidden = product(_monotone(torch.sigmoid, o), _monotone(torch.tanh, cell))
        off = _STEP * _largest_size(hidden)
        hidden = Box(hidden.low - off, hidden.high + off)
        if pooled is None:
            pooled = hidden
        else:
            pooled = Box(torch.maximum(pooled.low, hidden.low), torch.maximum(pooled.high, hidden.high))
    assert pooled is not None
    return pooled


def _bound_linear(weight: Tensor, box: Box) -> Box:
    # W maps a box of centre c and radius r into one of centre W c and radius |W| r.
    centre, radius = weight @ (box.low + box.high) / 2, weight.abs() @ (box.high - box.low) / 2
    return Box(centre - radius, centre + radius)


def _largest_size(box: Box) -> Tensor:
    """The largest absolute value inside a box."""
    return torch.maximum(box.low.abs(), box.high.abs())


def _monotone(function: Any, box: Box) -> Box:
    return Box(function(box.low) - _FUNCTION, function(box.high) + _FUNCTION)


def product(a: Box, b: Box) -> Box:
    """Bounds of the product of two numbers, from the corners of their intervals."""
    corners = torch.stack([a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high])
    return Box(corners.amin(dim=0), corners.amax(dim=0))
