"""Answers to what attacks ask of models other than the victim, and of the victim's gradient: batched across attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from isthmus.core.errors import IsthmusError, UsageError, VictimError
from isthmus.core.types import Differentiable, Floats, MaskedLM, SentenceEncoder, TokenBatch, TokenVictim, Victim
from isthmus.engine.assembly import Template
from isthmus.engine.requests import INSERT, MERGE, Fill, Fills, Gradient, Similarity, TokenGradient
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import DELETE, Vocabulary
from isthmus.text.words import Words

_CONTEXT = 128
"""Tokens around a blank that the masked language model reads."""


# ---------------------------------------------------------------------- similarity


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
        first, last = 0, min(size, length - 1)
    elif position + half >= length:
        first, last = max(0, length - size), length - 1
    else:
        first, last = position - math.ceil(half), position + math.floor(half)
    offsets = text.offsets()
    return str(text)[offsets[first][0] : offsets[last][1]]


# ---------------------------------------------------------------------- blanks


def serve_fills(model: MaskedLM, requests: Sequence[Fill], vocabulary: Vocabulary) -> list[Fills | IsthmusError]:
    """Likeliest whole words for every blank of every request."""
    template = Template(model.tokenizer, 1, _CONTEXT)
    rows: list[list[int]] = []
    places: list[int] = []
    for request in requests:
        for position in request.positions.tolist():
            ids, place = _blanked(model, template, request, position)
            rows.append(ids)
            places.append(place)
    most = max((request.k for request in requests), default=0)
    try:
        tokens, probabilities = _filled(model, rows, places, most)
    except IsthmusError as error:
        return [error] * len(requests)
    words = _whole_words(model, vocabulary)
    answers: list[Fills | IsthmusError] = []
    at = 0
    for request in requests:
        block = slice(at, at + len(request.positions))
        answers.append(_best_words(tokens[block], probabilities[block], words, request.k))
        at = block.stop
    return answers


def _blanked(model: MaskedLM, template: Template, request: Fill, position: int) -> tuple[list[int], int]:
    """Token ids around the blank, special tokens included, and where in them the blank is."""
    tokenizer, base = model.tokenizer, request.base
    field = base.field_of(position)
    text = base.parsed()[field]
    local = position - base.structure.starts[field]
    mask = str(tokenizer.mask_token)
    if request.span == INSERT:
        text = text.insert(local, mask)
    elif request.span == MERGE:
        text = text.merge(local, mask)
    elif not request.keep:
        text = text.replace({local: mask})
    start, end = text.offsets()[local]
    encoding = tokenizer(str(text), add_special_tokens=False, return_offsets_mapping=True)
    whole = list(encoding["input_ids"])
    place = next((at for at, (left, right) in enumerate(encoding["offset_mapping"]) if left < end and right > start), 0)
    before_all, after_all = template.specials
    first = max(0, min(place - template.room // 2, len(whole) - template.room))
    ids = [*before_all, *whole[first : first + template.room], *after_all]
    return ids, place - first + len(before_all)


def _filled(
    model: MaskedLM, rows: Sequence[Sequence[int]], places: Sequence[int], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Fill rows of equal length together."""
    # Sub-words are dropped afterwards, so ask for more than are wanted.
    wanted = min(4 * k, len(model.tokenizer))
    tokens = np.zeros((len(rows), wanted), np.int64)
    probabilities = np.zeros((len(rows), wanted), np.float32)
    lengths = np.array([len(row) for row in rows])
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length).tolist()
        batch = TokenBatch(np.array([rows[index] for index in same], np.int64))
        positions = np.array([places[index] for index in same], np.int64)
        tokens[same], probabilities[same] = model.fill(batch, positions, wanted)
    return tokens, probabilities


def _whole_words(model: MaskedLM, vocabulary: Vocabulary) -> np.ndarray:
    """For every token the word it stands for, or DELETE where it is a piece, a mark or a special token."""
    known: dict[int, np.ndarray] = model.__dict__.setdefault("_whole_words", {})
    if id(vocabulary) not in known:
        tokenizer = model.tokenizer
        words = np.full(len(tokenizer), DELETE, np.int32)
        special = set(tokenizer.all_special_ids)
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        starts_marked = any(piece is not None and piece[:1] in "Ġ▁" for piece in pieces)
        for index, piece in enumerate(pieces):
            if piece is None or index in special or piece.startswith("##"):
                continue
            if starts_marked and piece[:1] not in "Ġ▁":
                continue
            word = piece[1:] if starts_marked else piece
            if Words.of(word).words == (word,):
                words[index] = vocabulary.id(word)
        known.clear()
        known[id(vocabulary)] = words
    return known[id(vocabulary)]


def _best_words(tokens: np.ndarray, probabilities: np.ndarray, words: np.ndarray, k: int) -> Fills:
    chosen = np.full((len(tokens), k), DELETE, np.int32)
    weights = np.zeros((len(tokens), k), np.float32)
    for row, candidates in enumerate(words[tokens]):
        kept = np.flatnonzero(candidates != DELETE)[:k]
        chosen[row, : len(kept)] = candidates[kept]
        weights[row, : len(kept)] = probabilities[row, kept]
    return Fills(chosen, weights)


# ---------------------------------------------------------------------- gradients


def serve_gradients(victim: Victim, requests: Sequence[Gradient]) -> list[TokenGradient | IsthmusError]:
    """The victim's gradients, rows of equal length together."""
    if not (isinstance(victim, Differentiable) and isinstance(victim, TokenVictim)):
        raise UsageError("this attack needs the victim's gradient, which only a model run in this process gives")
    encoded = [_with_positions(victim, request.base) for request in requests]
    answers: list[TokenGradient | IsthmusError] = [VictimError("no gradient")] * len(requests)
    groups: dict[tuple[int, int], list[int]] = {}
    for index, (ids, _, _) in enumerate(encoded):
        groups.setdefault((len(ids), requests[index].draws), []).append(index)
    for (_, draws), members in groups.items():
        ids = np.array([encoded[index][0] for index in members], np.int64)
        types = encoded[members[0]][1]
        segments = None if types is None else np.array([encoded[index][1] for index in members], np.int64)
        labels = np.array([requests[index].label for index in members], np.int64)
        try:
            values = victim.embedding_gradients(TokenBatch(ids, None, segments), labels, draws=draws)
        except IsthmusError as error:
            for index in members:
                answers[index] = error
            continue
        for row, index in enumerate(members):
            answers[index] = TokenGradient(values[row], encoded[index][2])
    return answers


def _with_positions(victim: TokenVictim, draft: Draft) -> tuple[list[int], list[int] | None, np.ndarray]:
    """Token ids and segment ids of a draft, and which word each token belongs to."""
    encoding = victim.tokenizer(
        *draft.texts.values(),
        truncation="longest_first" if len(draft.structure.fields) > 1 else True,
        max_length=victim.max_tokens,
        return_offsets_mapping=True,
    )
    fields = encoding.sequence_ids(0)
    spans = [words.offsets() for words in draft.parsed()]
    position_of = np.full(len(encoding["input_ids"]), -1, np.int32)
    for token, (field, (start, end)) in enumerate(zip(fields, encoding["offset_mapping"], strict=True)):
        if field is None or start == end:
            continue
        # Byte-level tokenizers count the space before a word to its first token.
        for local, (left, right) in enumerate(spans[field]):
            if start < right and end > left:
                position_of[token] = draft.structure.starts[field] + local
                break
    uses_types = "token_type_ids" in victim.tokenizer.model_input_names
    return list(encoding["input_ids"]), list(encoding["token_type_ids"]) if uses_types else None, position_of
