"""A model read through Gaussian noise on its word embeddings, many draws of many texts at once.

Rows of equal length share a batch, nothing is padded, and every draw's noise comes from its own key: a vote depends on
(seed, example, number of the draw) and on nothing else. Votes are counted on the device and fetched once a round.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus.arithmetic.batching import columns_of
from isthmus.arithmetic.randomness import draw_normal
from isthmus.arithmetic.transfer import Inputs, any_shape, index_tensor, on_device
from isthmus.attacks.gradient.parts.embedding_ascent import EmbeddingAscent
from isthmus.attacks.parts.protection import Protection
from isthmus.certificates._votes import Ballot
from isthmus.core.errors import VictimError
from isthmus.core.seeds import derive
from isthmus.core.types import Example, Floats, Ints, Texts, TokenBatch, Victim
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.models import masking
from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise
from isthmus.models.masking import MaskGradient, embedding_gradient
from isthmus.text.words import Words


class TokenRow(NamedTuple):
    """A text as token ids, as the model reads it."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None
    offset: Tensor | None = None  # what its embeddings are moved by [tokens, width]

    @property
    def length(self) -> float:
        """Length of the perturbation of the row's embeddings."""
        return 0.0 if self.offset is None else float(self.offset.double().norm())


_STREAM = derive(0, "certify", "embedding noise")
_TOKENS_AT_ONCE = {"cpu": 8_192, "cuda": 65_536}
_ROWS_AT_ONCE = {"cpu": 4_096, "cuda": 65_536}


def masks_of(victim: Victim) -> Any:
    """The settings of a victim that masks words before it reads a text; None if it masks none."""
    settings = getattr(victim, "settings", None)
    return settings if getattr(settings, "masks", False) else None


class NoisyReader:
    """The base classifier of the Gaussian certificate."""

    stochastic = True

    def __init__(self, victim: Victim, sigma: float) -> None:
        self.model: Any = victim.model  # type: ignore[attr-defined]
        self.model.eval()
        self.sigma = sigma
        self.masks = masks_of(victim)
        self._front_end = getattr(victim, "steps", None)
        self._special: NDArray[np.bool_] = self.model.special_ids.cpu().numpy()
        kind = self.model.device.type
        self.rows_at_once = _ROWS_AT_ONCE.get(kind, _ROWS_AT_ONCE["cpu"])
        self._tokens = _TOKENS_AT_ONCE.get(kind, _TOKENS_AT_ONCE["cpu"])

    @property
    def inner_noise(self) -> tuple[float, ...]:
        """Standard deviations of the noise inside the encoder, one for each layer that has any."""
        noise = self.model.slots.noise
        if noise is None:
            return ()
        inside = [layer for layer in noise.layers if layer != EMBEDDINGS]
        return (float(getattr(noise, "sigma", 0.0)),) * len(inside)

    @property
    def total_sigma(self) -> float:
        """Standard deviation of all Gaussian noise on the embeddings: the certificate's and the model's own together.

        Both are added before anything else is computed, so that their sum is the noise of the smoothed classifier.
        Masks of two-step inference come between the two: a masked word gets the model's own noise once more, so that
        the two are no longer one. The model's is then randomness inside the classifier, which the proof allows but
        does not count.
        """
        if self.masks is not None:
            return self.sigma
        noise = self.model.slots.noise
        own = noise.sigma if isinstance(noise, GaussianNoise) and EMBEDDINGS in noise.layers else 0.0
        return math.hypot(self.sigma, own)

    def encode(self, texts: Sequence[Texts]) -> list[TokenRow]:
        """Token rows of texts as the model reads them: after its front end, if it has one, and truncated."""
        if self._front_end is not None:
            texts = self._front_end.read(texts)
        try:
            found = self.model.tokenizer(
                *columns_of(texts, self.model.task.fields), truncation="longest_first", max_length=self.model.max_tokens
            )
        except (TypeError, UnicodeError, ValueError) as error:
            raise VictimError(f"the tokenizer cannot read one of {len(texts)} texts: {error}") from error
        types = found.get("token_type_ids")
        return [
            TokenRow(tuple(ids), None if types is None else tuple(types[place]))
            for place, ids in enumerate(found["input_ids"])
        ]

    def votes(self, ballots: Sequence[Ballot]) -> Ints:
        """Count the votes for each class [ballots, classes]."""
        counts = torch.zeros(len(ballots), len(self.model.labels), dtype=torch.int64, device=self.model.device)
        try:
            with torch.no_grad(), any_shape():
                for owners, batch in self._batches(ballots):
                    (inputs,) = on_device([batch], self.model.device)
                    inputs = self._move(inputs, ballots, owners)
                    logits = self._logits(inputs)[: inputs.rows].float()
                    whole = torch.isfinite(logits).all(dim=1).to(torch.int64)
                    owner = torch.from_numpy(owners).to(self.model.device)
                    counts.index_put_((owner, logits.argmax(dim=1)), whole, accumulate=True)
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model failed on {len(ballots)} texts with noise: {error}") from error
        return counts.cpu().numpy()

    def _move(self, inputs: Inputs, ballots: Sequence[Ballot], owners: Ints) -> Inputs:
        """The batch with perturbed embeddings; in one batch all rows are perturbed, or none."""
        numbers, index = np.unique(owners, return_inverse=True)
        offsets = [ballots[number].text.offset for number in numbers.tolist()]
        if any(offset is None for offset in offsets):
            return inputs
        moved = torch.stack(offsets)[index_tensor(index.reshape(-1), self.model.device, len(inputs.ids))]
        return inputs._replace(embeddings=self.model.embed(inputs.ids) + moved)

    def _logits(self, inputs: Inputs) -> Tensor:
        noisy = self._noisy(inputs)
        with self.model.use_keys(inputs.keys):
            logits: Tensor = self.model(inputs.ids, inputs.mask, inputs.types, inputs_embeds=noisy).logits
        return logits

    def _noisy(self, inputs: Inputs) -> Tensor:
        """The model's input: the embeddings with noise, and with the masks that follow from it."""
        assert inputs.keys is not None
        embeddings = self.model.embed(inputs.ids) if inputs.embeddings is None else inputs.embeddings
        noise = draw_normal(inputs.keys, embeddings.shape, _STREAM).to(embeddings.dtype)
        noisy: Tensor = embeddings + self.sigma * noise
        # A mask, whether a slot's or that of two-step inference, is computed from the noisy embeddings.
        with self.model.use_keys(inputs.keys):
            return noisy if self.masks is None else self._mask(inputs, noisy)

    def margin_gradient(self, inputs: Inputs, target: Tensor, rival: Tensor) -> MaskGradient:
        """Gradient of f_rival - f_target under the noise of each row's key, straight through its masks."""
        noisy = self._noisy(inputs)
        with self.model.use_keys(inputs.keys):
            return embedding_gradient(
                self.model, inputs.ids, inputs.mask, inputs.types, target, rival=rival, replaced=noisy
            )

    def attack(
        self,
        ascent: EmbeddingAscent,
        rows: Sequence[TokenRow],
        classes: Sequence[int],
        radii: Sequence[float],
        keys: Sequence[int],
    ) -> list[TokenRow]:
        """Perturb rows, each within its radius, towards where the smoothed classifier changes its class."""
        device, found = self.model.device, list(rows)
        of_length: dict[int, list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            of_length[len(row.ids)].append(number)
        try:
            with any_shape():
                for length, numbers in sorted(of_length.items()):
                    most = max(16, self._tokens // max(1, length))
                    for start in range(0, len(numbers), most):
                        own = numbers[start : start + most]
                        (inputs,) = on_device([_batch([rows[at] for at in own], [keys[at] for at in own])], device)
                        target = torch.tensor([classes[at] for at in own], device=device)
                        radius = torch.tensor([radii[at] for at in own], dtype=torch.float64, device=device)
                        offsets = ascent(self, inputs, target, radius).offset
                        for at, offset in zip(own, offsets, strict=True):
                            found[at] = rows[at]._replace(offset=offset)
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model cannot be differentiated on {len(rows)} texts with noise: {error}") from error
        return found

    def _mask(self, inputs: Inputs, noisy: Tensor) -> Tensor:
        """Mask the words of the noisy embeddings that two-step inference would mask."""
        assert self.masks is not None
        words = masking.mask_of_words(self.model, inputs.ids, inputs.mask)
        if self.masks.masking == "random":
            assert inputs.keys is not None
            chosen = masking.draw_from_all(words, inputs.keys, self.masks.masked)
        else:
            gradient = embedding_gradient(self.model, inputs.ids, inputs.mask, inputs.types, replaced=noisy)
            chosen = masking.most_salient(gradient.saliency(), words, self.masks.masked)
        places = masking.flags(chosen, inputs.ids.shape[1])
        return masking.mask_embeddings(self.model, inputs.ids, places, noisy)

    def _batches(self, ballots: Sequence[Ballot]) -> Iterator[tuple[Ints, TokenBatch]]:
        """Yield batches of draws, and the ballot that each row belongs to."""
        of_length: dict[int, list[int]] = defaultdict(list)
        for number, ballot in enumerate(ballots):
            of_length[len(ballot.text.ids)].append(number)
        for length, numbers in sorted(of_length.items()):
            most = max(16, self._tokens // max(1, length))
            owners = np.repeat(np.array(numbers), [ballots[number].draws for number in numbers])
            keys = np.concatenate([ballots[number].keys() for number in numbers])
            ids = {number: np.array(ballots[number].text.ids, np.int64) for number in numbers}
            types = {number: ballots[number].text.types for number in numbers}
            for start in range(0, len(owners), most):
                own = owners[start : start + most]
                chosen = own.tolist()
                segments = None if types[chosen[0]] is None else np.array([types[at] for at in chosen], np.int64)
                rows = np.stack([ids[at] for at in chosen])
                yield own, TokenBatch(rows, types=segments, keys=keys[start : start + most])

    # ------------------------------------------------------------------ distances of actual texts

    def distance(self, before: Texts, after: Texts) -> float | None:
        """L2 distance of two embedding sequences; None if their lengths differ."""
        one, other = self.encode([before, after])
        if not self._is_aligned(one, other):
            return None
        rows = self._embeddings(np.array([one[0], other[0]]))
        return float(np.sqrt(((rows[0] - rows[1]) ** 2).sum()))

    def _is_aligned(self, one: TokenRow, other: TokenRow) -> bool:
        """Whether two rows differ in words only: equal length, special tokens and fields in the same places."""
        if len(one[0]) != len(other[0]) or one[1] != other[1]:
            return False
        return bool((self._special[list(one[0])] == self._special[list(other[0])]).all())

    def _embeddings(self, ids: Ints) -> Floats:
        with torch.inference_mode():
            found: Tensor = self.model.embed(torch.from_numpy(ids).to(self.model.device)).double()
        return found.cpu().numpy()

    def swaps_inside(
        self, example: Example, table: SynonymTable, protection: Protection, reach: float
    ) -> Mapping[str, Any]:
        """The number of one-word swaps inside the ball, and how many words may be swapped at once without leaving it.

        The second is a certificate: squared distances of different words add up, so the largest of each word's, taken
        over as many words as have the largest, must not exceed R². A synonym with another number of tokens shifts all
        that follows, so a word that has one is never covered.
        """
        worst: list[float] = []
        total = inside = 0
        editable = protection.editable(example.texts, usual=())
        place = 0
        for name, text in example.texts.items():
            words = Words.of(text)
            for position, word in enumerate(words):
                may = editable is None or bool(editable[place])
                place += 1
                others = table.replacements(word) if may else ()
                if not others:
                    continue
                fields = [{**example.texts, name: str(words.replace({position: other}))} for other in others]
                distances = self._distances(example.texts, fields)
                total += len(distances)
                inside += sum(distance <= reach for distance in distances)
                worst.append(max(distances) ** 2)
        # The r words that move furthest, for every r.
        covered = np.cumsum(np.sort(worst)[::-1]) <= reach**2 if worst else np.zeros(0, bool)
        return {"swaps": total, "swaps_inside": inside, "words_inside": int(covered.sum()), "substitutable": len(worst)}

    def _distances(self, before: Texts, after: Sequence[Texts]) -> list[float]:
        first, *rows = self.encode([before, *after])
        found = [math.inf] * len(rows)
        aligned = [place for place, row in enumerate(rows) if self._is_aligned(first, row)]
        if aligned:
            own = self._embeddings(np.array([first[0]]))
            others = self._embeddings(np.array([rows[place][0] for place in aligned]))
            lengths = np.sqrt(((others - own) ** 2).sum(axis=(1, 2)))
            for place, length in zip(aligned, lengths.tolist(), strict=True):
                found[place] = length
        return found


def _batch(rows: Sequence[TokenRow], keys: Sequence[int]) -> TokenBatch:
    """Make a batch of rows of one length."""
    types = None if rows[0].types is None else np.array([row.types for row in rows], np.int64)
    return TokenBatch(np.array([row.ids for row in rows], np.int64), types=types, keys=np.asarray(keys, np.uint64))
