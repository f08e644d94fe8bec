"""A classifier with two-step Monte-Carlo inference, as a victim that takes token ids.

The draws of many texts run as one batch; on a GPU so do the second steps of texts of similar lengths. What precedes
the first noise layer is computed once per masked text: in the second step, too, where fewer sets of words can be masked
than there are draws (10 of 50 by default). The saliency pass is taken once per text; the second step only for texts
that need it, once the first has been waited for. Every draw is keyed by its row, so that answers do not depend on
how rows are packed.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.products import lay_out
from isthmus.arithmetic.randomness import branch, copy_keys, mix64
from isthmus.arithmetic.transfer import (
    Inputs,
    any_shape,
    copy_rows,
    fill_up,
    make_failure,
    on_device,
    pending,
    pick_rows,
)
from isthmus.core.errors import UsageError, VictimError
from isthmus.core.seeds import derive
from isthmus.core.types import ABSTAINS, Floats, Ints, Pending, TokenBatch
from isthmus.inference.two_step_batches import merge_batches, repeat_draws, take_rows
from isthmus.inference.votes import average_logits, find_undecided, share_votes, votes_of
from isthmus.models import masking
from isthmus.models.classifier import Classifier
from isthmus.models.masking import MaskCandidates
from isthmus.models.victims.classifier import MOST_TOKENS, ClassifierVictim

if TYPE_CHECKING:
    from isthmus.inference.two_step import TwoStep

_MANY = 16
"""Rows from which on no library is known to compute otherwise than with more."""
_TRIED = 12
"""Tokens of the rows on which the smallest batch is tried."""
_LIKE_COPIES = 8
"""A gradient keeps the activations that a forward pass discards: about the memory of this number of copies."""


class TwoStepVictim(ClassifierVictim):
    """A victim with two-step inference: see `isthmus.inference.two_step`.

    ``draws`` independent answers of the whole procedure are averaged; ``fixed`` gives every query the same draws.
    `asked` and `second` count the texts answered so far and those of them that needed the second step.
    """

    def __init__(
        self, model: Classifier, settings: TwoStep, precision: Any = "fp32", *, draws: int = 1, fixed: bool = False
    ) -> None:
        super().__init__(model, precision, draws=draws, fixed=fixed)
        if model.task.name != "classification":
            raise UsageError(f"two-step inference votes over classes, and a model for {model.task.name} has none")
        if settings.masks:
            masking.check(model)
        self.settings = settings
        self.asked = self.second = 0
        self._accepted = torch.from_numpy(settings.find_accepted())
        self._calls = 0
        self._by_means = False

    @property
    def graded(self) -> TwoStepVictim | None:
        """The same victim with mean logits instead of votes, and without abstention; None if it does not vote."""
        if self.settings.aggregate != "vote" or self._by_means:
            return None
        other = copy.copy(self)
        other._by_means = True
        return other

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names; the last is `ABSTAINS` if it may abstain."""
        return self.model.labels if self.settings.abstain is None else (*self.model.labels, ABSTAINS)

    @property
    def stochastic(self) -> bool:
        """Whether the same text may get different scores."""
        return self._draws_anything and not self.fixed

    @property
    def _draws_anything(self) -> bool:
        settings = self.settings
        by_masks = settings.masks and (settings.masking == "random" or not bool(self._accepted[-1]))
        return self.model.stochastic or by_masks

    # ------------------------------------------------------------------ answering

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Pending:
        """Launch the first step of all batches; the second follows once its rows are known."""
        model = self._evaluating(exact)
        try:
            given = on_device(batches, model.device)
        except (RuntimeError, IndexError, ValueError) as error:
            raise make_failure(len(batches), error) from error
        return self._answer(model, given)

    def scores_at(self, inputs: Inputs) -> Floats:
        """Scores of the whole procedure for rows with given word embeddings, in float32 arithmetic."""
        return self._answer(self._evaluating(exact=True), [inputs])()

    def _answer(self, model: Classifier, batches: Sequence[Inputs]) -> Pending:
        draws = self.draws if self._draws_anything else 1
        saliency = 2 if self.settings.masks and self.settings.masking == "gradient" else 0
        try:
            with torch.no_grad(), any_shape(), lay_out(model):
                work = [repeat_draws(self._add_keys(inputs), draws) for inputs in batches]
                first = [self._first(model, inputs) for inputs in work]
                wait = pending(torch.cat(first) if first else torch.empty(0, len(self.labels) + 1))
        except (RuntimeError, IndexError, ValueError) as error:
            raise make_failure(len(batches), error) from error

        def finish() -> Floats:
            values = wait()
            answers, settled = values[:, :-1].copy(), values[:, -1] > 0
            self.asked += len(answers)
            self.second += int((~settled).sum())
            self.passes += len(answers) * (self.settings.k0 + saliency)
            self.passes += int((~settled).sum()) * (self.settings.k1 + saliency)
            try:
                with torch.no_grad(), any_shape(), lay_out(model):
                    self._take_second(model, work, settled, answers)
            except (RuntimeError, IndexError, ValueError) as error:
                raise make_failure(len(batches), error) from error
            return answers if draws == 1 else answers.reshape(-1, draws, answers.shape[1]).mean(axis=1)

        return finish

    def _add_keys(self, inputs: Inputs) -> Inputs:
        """Add a key to every row: its own, the one of all queries, or a new one."""
        inputs = super()._add_keys(inputs)
        if inputs.keys is not None:
            return inputs
        self._calls += 1
        start = derive(self.model.seed, "unkeyed query", self._calls) >> 1
        rows = torch.arange(len(inputs.ids), device=inputs.ids.device)
        return inputs._replace(keys=mix64(rows + start))

    def _first(self, model: Classifier, inputs: Inputs) -> Tensor:
        """Scores of the first step; the last column says whether they are final [rows, classes + 1]."""
        settings = self.settings
        by_gradient = settings.masks and settings.masking == "gradient"
        copies = max(settings.k0, _LIKE_COPIES) if by_gradient else settings.k0
        return torch.cat([self._first_of(model, part) for part in self._parts(inputs, copies)])

    def _first_of(self, model: Classifier, part: Inputs) -> Tensor:
        assert part.keys is not None
        settings, keys = self.settings, copy_keys(branch(part.keys, "first step"), self.settings.k0)
        sound = None
        if settings.masks and settings.masking == "random":
            logits = self._each(model, part, keys, settings.k0, None)
        else:
            ids, embeddings = part.ids, part.embeddings
            if settings.masks:
                candidates, sound = self._candidates(model, part, "first saliency")
                chosen = masking.flags(masking.first(candidates, settings.masked), part.ids.shape[1])
                ids, embeddings = masking.mask_rows(model, part.ids, chosen, part.embeddings)
            drawn = slice(self._texts_drawn(part))
            mask, types = (None if value is None else value[drawn] for value in (part.mask, part.types))
            with model.use_keys(keys[: len(ids[drawn]) * settings.k0]):
                own = None if embeddings is None else embeddings[drawn]
                logits = model(ids[drawn], mask, types, own, copies=settings.k0).logits
        logits = logits.view(-1, settings.k0, logits.shape[-1])[: part.rows]
        votes = votes_of(logits).amax(dim=-1)
        stands = self._accepted.to(votes.device)[votes]
        unsure = None if settings.two_step else settings.abstain
        answers = self._scores(logits, sound, unsure)
        return torch.cat([answers, stands.to(answers.dtype).unsqueeze(-1)], dim=1)

    def _take_second(
        self, model: Classifier, work: Sequence[Inputs], settled: np.ndarray[Any, Any], answers: Floats
    ) -> None:
        """Score the rows that the first step left open again, by the second step."""
        at, parts = 0, list[tuple[Ints, Inputs]]()
        for inputs in work:
            rows = np.flatnonzero(~settled[at : at + inputs.rows])
            if len(rows):
                parts.append((at + rows, take_rows(inputs, rows)))
            at += inputs.rows
        if self.device_type == "cuda":
            parts = merge_batches(parts, self.tokenizer.pad_token_id or 0)
        started = [(places, pending(self._second(model, inputs))) for places, inputs in parts]
        for places, wait in started:
            answers[places] = wait()

    def _second(self, model: Classifier, inputs: Inputs) -> Tensor:
        assert inputs.keys is not None
        settings, candidates, sound = self.settings, None, None
        if settings.masks and settings.masking == "gradient":
            candidates, sound = self._all_candidates(model, inputs)
        keys = copy_keys(branch(inputs.keys, "second step"), settings.k1)
        logits = self._each(model, inputs, keys, settings.k1, candidates)
        logits = logits.view(len(inputs.ids), settings.k1, -1)[: inputs.rows]
        return self._scores(logits, sound, settings.abstain)

    def _each(
        self, model: Classifier, inputs: Inputs, keys: Tensor, copies: int, candidates: MaskCandidates | None
    ) -> Tensor:
        """Logits of every copy of every row, each with its own masks [rows * copies, classes]."""
        length = inputs.ids.shape[1]
        most = max(self._least, MOST_TOKENS.get(inputs.ids.device.type, MOST_TOKENS["cpu"]) // length)
        most -= most % copies if most > copies else 0  # Draws of one text share more than those of two halves.
        found = []
        for start in range(0, len(keys), most):
            own = keys[start : start + most]
            short = max(0, self._least - len(own))
            own = torch.cat([own, own[-1:].expand(short)]) if short else own
            # Copy j of row r has key r * copies + j; what fills up belongs to the last row.
            row = torch.arange(start, start + len(own), device=own.device).clamp(max=len(keys) - 1) // copies
            texts = range(start // copies, -(-(start + len(own) - short) // copies))
            logits = self._shared(model, inputs, own, row, texts, candidates)
            if logits is None:
                logits = self._apart(model, inputs, own, row, candidates)
            found.append(logits[: len(own) - short])
        return torch.cat(found)

    def _apart(
        self, model: Classifier, inputs: Inputs, keys: Tensor, row: Tensor, candidates: MaskCandidates | None
    ) -> Tensor:
        """Logits of copies that are computed separately from the first layer on."""
        part = pick_rows(inputs, row)
        text = masking.Masked(part.ids, part.embeddings)
        if self.settings.masks:
            text = self._mask_apart(model, part, keys, row, candidates)
        with model.use_keys(keys):
            logits: Tensor = model(text.ids, part.mask, part.types, text.embeddings).logits
        return logits

    def _shared(
        self,
        model: Classifier,
        inputs: Inputs,
        keys: Tensor,
        row: Tensor,
        texts: range,
        candidates: MaskCandidates | None,
    ) -> Tensor | None:
        """The same logits; copies with equal masks share the layers before the first noise. None if that is no gain."""
        settings, device = self.settings, keys.device
        if settings.masks and candidates is None:  # Masks from all words seldom fall together.
            return None
        sets, drawn = masking.subsets(1, 1, device), torch.zeros_like(row)
        if settings.masks and candidates is not None:
            width = candidates.positions.shape[1]
            if width > masking.MOST_NUMBERED:
                return None
            if math.comb(width, min(settings.masked, width)) * len(texts) >= len(keys):
                return None
            sets = masking.subsets(width, settings.masked, device)
            own = MaskCandidates(candidates.positions[row], candidates.valid[row])
            drawn = masking.draw_subset(own, branch(keys, "masks"), settings.masked)
        distinct = len(texts) * len(sets)
        at = torch.arange(max(distinct, self._least), device=device).clamp(max=distinct - 1)
        row_of, chosen = texts.start + at // len(sets), sets[at % len(sets)]
        part = pick_rows(inputs, row_of)
        text = masking.Masked(part.ids, part.embeddings)
        if settings.masks and candidates is not None:
            own = masking.pick_candidates(
                MaskCandidates(candidates.positions[row_of], candidates.valid[row_of]), chosen
            )
            text = masking.mask_rows(model, part.ids, masking.flags(own, part.ids.shape[1]), part.embeddings)
        owners = (row - texts.start) * len(sets) + drawn
        with model.use_keys(keys):
            logits: Tensor = model(text.ids, part.mask, part.types, text.embeddings, copies=owners).logits
        return logits

    def _mask_apart(
        self, model: Classifier, part: Inputs, keys: Tensor, row: Tensor, candidates: MaskCandidates | None
    ) -> masking.Masked:
        """Mask the words that the rows' keys draw: from their candidates, or from all of their words."""
        keys, count = branch(keys, "masks"), self.settings.masked
        if candidates is None:
            chosen = masking.draw_from_all(masking.mask_of_words(model, part.ids, part.mask), keys, count)
        else:
            chosen = masking.draw_candidates(
                MaskCandidates(candidates.positions[row], candidates.valid[row]), keys, count
            )
        return masking.mask_rows(model, part.ids, masking.flags(chosen, part.ids.shape[1]), part.embeddings)

    def _candidates(self, model: Classifier, part: Inputs, purpose: str) -> tuple[MaskCandidates, Tensor]:
        """The most salient words for the model's own prediction, and the rows with a finite saliency."""
        assert part.keys is not None
        with model.use_keys(branch(part.keys, purpose)):
            gradient = masking.embedding_gradient(model, part.ids, part.mask, part.types, replaced=part.embeddings)
        saliency = gradient.saliency()
        words = masking.mask_of_words(model, part.ids, part.mask)
        sound = (saliency.isfinite() | ~words).all(dim=-1)
        return masking.most_salient(saliency, words, self.settings.candidates), sound[: part.rows]

    def _all_candidates(self, model: Classifier, inputs: Inputs) -> tuple[MaskCandidates, Tensor]:
        found = [
            (*self._candidates(model, part, "second saliency"), part.rows) for part in self._parts(inputs, _LIKE_COPIES)
        ]
        positions = torch.cat([candidates.positions[:rows] for candidates, _, rows in found])
        valid = torch.cat([candidates.valid[:rows] for candidates, _, rows in found])
        return MaskCandidates(positions, valid), torch.cat([sound for _, sound, _ in found])

    def _scores(self, logits: Tensor, sound: Tensor | None, unsure: float | None) -> Tensor:
        """Class probabilities, with a column for abstention if the classifier may abstain."""
        settings = self.settings
        scores = average_logits(logits) if settings.aggregate == "average" or self._by_means else share_votes(logits)
        if settings.abstain is not None:
            scores = torch.cat([scores, torch.zeros_like(scores[:, :1])], dim=1)
        if unsure is not None and not self._by_means:
            top = votes_of(logits).topk(2, dim=-1).values
            table = torch.from_numpy(find_undecided(logits.shape[1], unsure)).to(top.device)
            # table[a, b]: whether a votes for the first and b for the second class leave it open.
            open_ = table[top[:, 0], top[:, 1]].unsqueeze(-1)
            # Half of the weight goes to abstention, which then outweighs every class; their order stays visible.
            declined = scores / 2
            declined[:, -1] = 0.5 + 1e-6
            scores = torch.where(open_, declined, scores)
        whole = logits.isfinite().flatten(1).all(dim=-1)
        if sound is not None:
            whole = whole & sound
        return scores.masked_fill(~whole.unsqueeze(-1), torch.nan)

    @functools.cached_property
    def _least(self) -> int:
        """The smallest number of rows that does not change the bits, found by a trial with this model."""
        if self.device_type != "cpu":
            return 1
        usual, own = fewest_rows(), fewest_rows(self.model)
        if own >= usual:
            return usual
        models = {id(each): each for each in (self._evaluating(exact) for exact in (False, True))}
        self.__dict__["_least"] = own  # What is tried is used in the trial.
        return own if all(self._holds(each, own, usual) for each in models.values()) else usual

    def _texts_drawn(self, part: Inputs) -> int:
        """Number of texts to draw in a full batch: one text has rows enough, but its saliency may need more."""
        enough = max(-(-self._least // self.settings.k0), -(-_MANY // part.ids.shape[1]))
        if max(part.rows, enough) >= len(part.ids) or not self._draws_hold:
            return len(part.ids)
        return max(part.rows, enough)

    @functools.cached_property
    def _draws_hold(self) -> bool:
        """Whether the draws of single texts get the same bits as among many texts."""
        self.__dict__["_draws_hold"] = True  # What is tried is used in the trial.
        models = {id(each): each for each in (self._evaluating(exact) for exact in (False, True))}
        for model in models.values():
            whole = self._make_up_rows(model, _MANY)
            try:
                with torch.no_grad(), any_shape(), lay_out(model):
                    among = self._first_of(model, whole)
                    alone = [self._first_of(model, pick_rows(whole, torch.tensor([n]), self._least)) for n in range(3)]
            except (RuntimeError, IndexError, ValueError):
                return False
            if not torch.equal(torch.cat(alone), among[:3]):
                return False
        return True

    def _make_up_rows(self, model: Classifier, rows: int) -> Inputs:
        """Rows of random words, for trials."""
        stream, size = np.random.default_rng(0), model.table.num_embeddings
        ids = stream.integers(size // 4, max(size // 2, size // 4 + 1), (rows, min(_TRIED, model.max_tokens)))
        keys = stream.integers(0, 2**62, rows).astype(np.uint64)
        (made,) = on_device([TokenBatch(ids.astype(np.int64), None, None, keys)], model.device)
        return made

    def _holds(self, model: Classifier, few: int, many: int) -> bool:
        """Whether a few rows get the same draws, saliencies and scores as among many rows."""
        whole = self._make_up_rows(model, many)
        part, found = pick_rows(whole, torch.arange(few)), list[Tensor]()
        try:
            with torch.no_grad(), any_shape(), lay_out(model):
                for each in (whole, part):
                    with model.use_keys(each.keys):
                        found.append(masking.embedding_gradient(model, each.ids).values[:few])
                    found.append(self._first_of(model, each)[:few])
        except (RuntimeError, IndexError, ValueError):  # The rows that were asked for may do better.
            return False
        return torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])

    def _parts(self, inputs: Inputs, copies: int) -> Iterator[Inputs]:
        """Split the rows into parts that are not too large, each large enough to keep its bits."""
        tokens = copies * inputs.ids.shape[1]
        most = max(self._least, MOST_TOKENS.get(inputs.ids.device.type, MOST_TOKENS["cpu"]) // tokens)
        for start in range(0, inputs.rows, most):
            rows = torch.arange(start, min(start + most, inputs.rows), device=inputs.ids.device)
            yield pick_rows(inputs, rows, self._least)

    # ------------------------------------------------------------------ gradients

    def embedding_gradients(
        self, batch: TokenBatch, labels: Ints, *, draws: int = 1, as_scored: bool = False
    ) -> Floats:
        """Gradient through noise and masks, averaged over `draws` (expectation over transformation).

        Masks cannot be differentiated: the gradient at a masked word passes straight through to the word. Each draw
        has those of the step that answers it.
        """
        model = self._evaluating(exact=True)
        if len(labels) != len(batch.ids) or len(batch.ids) == 0:
            raise UsageError(f"{len(labels)} labels for {len(batch.ids)} rows")
        (inputs,) = on_device([batch], model.device)
        inputs = self._add_keys(inputs)
        assert inputs.keys is not None
        target = torch.from_numpy(fill_up(np.asarray(labels, dtype=np.int64), len(inputs.ids))).to(model.device)
        keys = [mix64(inputs.keys + draw) for draw in range(draws if self._draws_anything else 1)]
        if as_scored:
            keys = [inputs.keys] if self.draws == 1 else [mix64(inputs.keys + draw) for draw in range(self.draws)]
        total = torch.zeros((), device=model.device)
        try:
            with torch.no_grad(), any_shape(), lay_out(model):
                for own in keys:
                    total = total + self._gradient(model, inputs._replace(keys=own), target).values
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model cannot be differentiated on these rows: {error}") from error
        return (total[: inputs.rows] / len(keys)).cpu().numpy()

    def margin_gradient(self, inputs: Inputs, target: Tensor, rival: Tensor) -> masking.MaskGradient:
        """The gradient of the margin through noise and masks; a masked word passes it straight through to the word."""
        model = self._evaluating(exact=True)
        try:
            with torch.no_grad(), any_shape(), lay_out(model):
                return self._gradient(model, self._add_keys(inputs), target, rival)
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model cannot be differentiated on these rows: {error}") from error

    def logits_at(self, inputs: Inputs, copies: int = 1) -> Tensor:
        """Logits at given embeddings; at a masked word the gradient passes straight through to the word.

        Where no gradient is asked for, the logarithm of what the whole procedure answers.
        """
        model, each = self._evaluating(exact=True), self._add_keys(copy_rows(inputs, copies))
        embeddings = each.embeddings
        assert embeddings is not None
        assert each.keys is not None
        if not torch.is_grad_enabled():
            scores = torch.from_numpy(self.scores_at(each)).to(embeddings.device)
            return scores.clamp_min(torch.finfo(scores.dtype).tiny).log().view(len(inputs.ids), copies, -1)
        try:
            with any_shape():
                if self.settings.masks:
                    with torch.no_grad():
                        places = self._places(model, each)
                        masked = masking.mask_embeddings(model, each.ids, places, embeddings)
                    # The value of `masked`, and the gradient of the embeddings: their difference is zero.
                    embeddings = masked + (embeddings - embeddings.detach())
                with model.use_keys(copy_keys(branch(each.keys, "first step"), 1)):
                    logits: Tensor = model(each.ids, each.mask, each.types, embeddings).logits
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model cannot be differentiated on these rows: {error}") from error
        return logits.float().view(len(inputs.ids), copies, -1)

    def _gradient(
        self, model: Classifier, inputs: Inputs, target: Tensor, rival: Tensor | None = None
    ) -> masking.MaskGradient:
        replaced = inputs.embeddings
        if self.settings.masks:
            places = self._places(model, inputs)
            replaced = masking.mask_embeddings(model, inputs.ids, places, inputs.embeddings)
        assert inputs.keys is not None
        with model.use_keys(copy_keys(branch(inputs.keys, "first step"), 1)):
            ids, mask, types, as_read = inputs.ids, inputs.mask, inputs.types, rival is None
            return masking.embedding_gradient(
                model, ids, mask, types, target, rival=rival, replaced=replaced, as_read=as_read
            )

    def _places(self, model: Classifier, inputs: Inputs) -> Tensor:
        """The masked positions of one draw [rows, length], as in the step that answers this query.

        Random masks, like noise, are drawn alike in both steps. Of gradient masks the first step has the most salient,
        and a query that it does not settle is answered by any of the candidates.
        """
        assert inputs.keys is not None
        settings, length = self.settings, inputs.ids.shape[1]
        if settings.masking == "random":
            keys = branch(copy_keys(branch(inputs.keys, "first step"), 1), "masks")
            words = masking.mask_of_words(model, inputs.ids, inputs.mask)
            return masking.flags(masking.draw_from_all(words, keys, settings.masked), length)
        candidates, _ = self._candidates(model, inputs, "first saliency")
        places = masking.flags(masking.first(candidates, settings.masked), length)
        if not settings.two_step:
            return places
        settled = self._first(model, inputs)[:, -1] > 0
        if bool(settled.all()):
            return places
        keys = branch(copy_keys(branch(inputs.keys, "second step"), 1), "masks")
        candidates, _ = self._candidates(model, inputs, "second saliency")
        drawn = masking.flags(masking.draw_candidates(candidates, keys, settings.masked), length)
        filling = settled.new_ones(len(inputs.ids) - inputs.rows)
        return torch.where(torch.cat([settled, filling]).unsqueeze(-1), places, drawn)
