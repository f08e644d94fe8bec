"""Answers `Similarity` requests: cosines of sentence vectors, batched across attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from isthmus.core.errors import IsthmusError, VictimError
from isthmus.core.types import Floats, SentenceEncoder
from isthmus.engine.requests import Similarity
from isthmus.text.words import Words


def serve_similarities(encoder: SentenceEncoder, requests: Sequence[Similarity]) -> list[Floats | IsthmusError]:
    """Cosine of every candidate to its reference; every distinct text is encoded once."""
    pairs = [list(_pairs(request)) for request in requests]
    distinct = list(dict.fromkeys(text for own in pairs for pair in own for text in pair))
    place = {text: index for index, text in enumerate(distinct)}
    try:
        vectors = encoder.encode(distinct)
    except IsthmusError as error:
        return [error] * len(requests)
    answers: list[Floats | IsthmusError] = []
    for own in pairs:
        left = vectors[[place[candidate] for candidate, _ in own]]
        right = vectors[[place[reference] for _, reference in own]]
        cosines = np.clip((left * right).sum(axis=1), -1.0, 1.0).astype(np.float32)
        if np.isfinite(cosines).all():
            answers.append(cosines)
        else:
            answers.append(VictimError(f"the sentence encoder {encoder.name} returned NaN"))
    return answers


def _pairs(request: Similarity) -> list[tuple[str, str]]:
    """Each candidate's text and the reference it is compared with."""
    pairs = []
    bounds = np.searchsorted(request.edits[:, 0], np.arange(request.count + 1))
    edits = request.edits[:, 1:].tolist()
    references = request.reference.parsed()
    for candidate in range(request.count):
        own = [(position, span, word) for position, span, word in edits[bounds[candidate] : bounds[candidate + 1]]]
        draft = request.base.apply(own)
        position = own[0][0] if own else 0
        field = min(request.base.field_of(position), len(references) - 1)
        text, reference = draft.parsed()[field], references[field]
        if request.window is None:
            pairs.append((str(text), str(reference)))
        else:
            local = position - request.base.structure.starts[field]
            pairs.append((window(text, local, request.window), window(reference, local, request.window)))
    return pairs


def window(text: Words, position: int, size: int) -> str:
    """The part of a text that holds `size` words around a position, or as many as there are on either side."""
    length = len(text)
    if not length:
        return str(text)
    position = min(position, length - 1)
    half = (size - 1) / 2
    if position - half < 0:
        first, last = 0, min(size, length) - 1
    elif position + half >= length:
        first, last = max(0, length - size), length - 1
    else:
        first, last = position - math.ceil(half), position + math.floor(half)
    offsets = text.offsets()
    return str(text)[offsets[first][0] : offsets[last][1]]
