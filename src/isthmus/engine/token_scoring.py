"""Scores for victims that take token ids.

A victim that scores in bfloat16 is asked again in float32 for every row that would count as a success, so that an
attack never sees a success that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from isthmus.core.types import Floats, Ints, Keys, TokenVictim
from isthmus.engine.assembly import Assembler
from isthmus.engine.cache import ScoreCache
from isthmus.engine.packing import Failures, launch_batches, not_finite, pack_rows
from isthmus.engine.requests import Score
from isthmus.engine.rows import TokenRows, join_ranges
from isthmus.engine.scoring import (
    MOST_UNITS,
    AskedScore,
    Claims,
    Doubtful,
    Later,
    Reached,
    ScoreAnswer,
    ScoreAnswers,
    Scorer,
    ScoreStatistics,
    hand_out,
    owners,
)
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

_WORTH_TRYING = 1000
"""Rows after which it pays to find out whether lengths may be mixed."""


class TokenScorer(Scorer):
    """Scores of victims that take token ids."""

    victim: TokenVictim

    def __init__(
        self,
        victim: TokenVictim,
        vocabulary: Vocabulary,
        cache: ScoreCache | None,
        *,
        reached: Reached | None = None,
        statistics: ScoreStatistics | None = None,
    ) -> None:
        super().__init__(victim, cache, statistics)
        self.reached = reached  # what is confirmed in full precision
        self.inexact = getattr(victim, "precision", "fp32") != "fp32"
        self.assembler = Assembler(victim.tokenizer, vocabulary, victim.max_tokens)
        self._unread_score = self.assembler.number, "score"  # under which a draft notes it
        self.on_gpu = victim.device_type != "cpu"
        self.ahead = 4 if self.on_gpu else 0
        self.pad = victim.tokenizer.pad_token_id or 0

    def renew(self, vocabulary: Vocabulary) -> None:
        """Forget every word and unit."""
        self.assembler.renew(vocabulary)

    def rows_at_once(self, base: Draft) -> int:
        """The number of rows that fit in memory: the model reads no more than its limit of any text."""
        return MOST_UNITS // (2 * self.assembler.max_tokens)

    def _sizes(self, asked: Sequence[AskedScore]) -> list[int]:
        most = 2 * self.assembler.max_tokens
        return [
            self._size(draft) if (units := draft.units) is None else size if (size := len(units)) < most else most
            for draft in [item.request.base for item in asked]
        ]

    def _size(self, draft: Draft) -> int:
        laid = self.assembler.lay(draft)
        if laid.whole:
            return sum(map(len, draft.structure.gaps))
        return min(len(laid.units), 2 * self.assembler.max_tokens)

    def find_known(self, request: Score) -> Floats | None:
        """The scores of candidates that differ only after the part that the victim reads, if one was scored before."""
        base, edits = request.base, request.edits
        if base.notes is None or request.fresh or request.exact or request.draws or not len(edits):
            return None
        score: Floats | None = base.notes.get(self._unread_score)
        if score is None or int(edits[:, 1].min()) < self.assembler.unread_from(base):
            return None
        self.statistics.logical += request.rows
        self.statistics.cached += request.rows
        return np.repeat(score[None], request.rows, axis=0)

    def _note_unread(self, asked: Sequence[AskedScore], answers: ScoreAnswers) -> None:
        """Store, for long texts, the score of a candidate that differs only after the part that the victim reads."""
        if self.inexact or self.victim.stochastic:
            return
        worth_a_look = self.assembler.max_tokens // 4  # Words have few tokens: shorter texts are read whole.
        for item, answer in zip(asked, answers, strict=True):
            request = item.request
            if len(request.base.ids) < worth_a_look or request.draws or not isinstance(answer, np.ndarray):
                continue
            unread, edits = self.assembler.unread_from(request.base), request.edits
            if unread == len(request.base) or not len(edits) or edits[-1, 1] < unread:
                continue
            last = edits[np.searchsorted(edits[:, 0], edits[-1, 0]) :, 1]  # where the last candidate is edited
            if int(last.min()) >= unread:
                request.base.keep_note(self._unread_score, answer[edits[-1, 0]].copy())

    def _start(self, asked: list[AskedScore]) -> Later:
        work = self.assembler.rows([item.request for item in asked])
        # [candidates], [rows] -> candidate, [rows]: a text is assembled once, and asked about once for each draw.
        keys, owner, streams = self.assembler.row_keys(work), owners(asked), self._streams(asked)
        if owner is None:
            owner = np.arange(len(keys))
        else:
            keys = keys[owner]
        plan = self._plan(asked, keys, streams)
        if not self.inexact:
            if not len(plan.missing):  # All of it is known: of a long text most candidates lie behind what is read.
                return lambda: self._answer(asked, work, plan.scores[plan.inverse], {})
            wait = self._forward(work, owner, plan.wanted, streams)
            return lambda: self._answer(asked, work, *self._settle(plan, *wait()))
        exact = np.repeat([item.request.exact for item in asked], [item.request.rows for item in asked])
        if exact.any():
            # What is asked for exactly, and by nobody otherwise, is scored in full precision only.
            otherwise = np.zeros(len(plan.fresh), bool)
            otherwise[plan.inverse[~exact]] = True
            plan.missing = plan.missing[otherwise[plan.missing]]
        wait = self._forward(work, owner, plan.wanted, streams)

        def finish() -> ScoreAnswers | Doubtful:
            scores, failures = self._settle(plan, *wait())
            return self._sift(asked, work, owner, exact, scores, failures, streams)

        return finish

    def _answer(self, asked: Sequence[AskedScore], work: TokenRows, scores: Floats, failures: Failures) -> ScoreAnswers:
        answers = hand_out(asked, scores, failures)
        if len(work) and int(work.total.max()) >= self.assembler.max_tokens:  # Something of a text is not read.
            self._note_unread(asked, answers)
        return answers

    def _sift(
        self,
        asked: Sequence[AskedScore],
        work: TokenRows,
        owner: Ints,
        exact: NDArray[np.bool_],
        scores: Floats,
        failures: Failures,
        streams: Keys | None,
    ) -> ScoreAnswers | Doubtful:
        """Answers, but for requests with rows that count as a success or were asked for exactly."""
        counts = np.fromiter((item.request.rows for item in asked), np.int64, len(asked))
        labels = np.repeat([item.label for item in asked], counts)
        claimed = np.zeros(len(scores), bool) if self.reached is None else self.reached(scores, labels) & ~exact
        wanted, answers = claimed | exact, hand_out(asked, scores, failures)
        request = np.repeat(np.arange(len(asked)), counts)  # [rows]
        wanted[np.isin(request, request[list(failures)])] = False  # its answer is the failure
        if not wanted.any():
            return answers
        doubted = np.unique(request[wanted])
        rows = join_ranges((np.cumsum(counts) - counts)[doubted], counts[doubted])  # of these requests
        again = np.flatnonzero(wanted[rows])
        places, chosen = doubted.tolist(), rows[again]
        own = None if streams is None else streams[chosen]
        items = [asked[place] for place in places]
        claims = Claims(
            places, items, scores[rows], labels[rows], again, claimed[chosen], work.take(owner[chosen]), own
        )
        certain: list[ScoreAnswer | None] = list(answers)
        for place in places:
            certain[place] = None
        return Doubtful(certain, claims)

    def look(self, claims: Sequence[Claims]) -> Callable[[], list[ScoreAnswers]]:
        """Start scoring again, in full precision, what was asked for exactly and what counts as a success."""
        work = TokenRows.join([one.work for one in claims])
        own = [one.streams for one in claims if one.streams is not None]
        rows = np.arange(len(work))
        wait = self._forward(work, rows, rows, np.concatenate(own) if own else None, exact=True)

        def finish() -> list[ScoreAnswers]:
            values, failed = wait()
            ends = np.cumsum([len(one.again) for one in claims]).tolist()
            return [
                self._settle_claims(
                    one, values[start:end], {at - start: failed[at] for at in failed if start <= at < end}
                )
                for one, start, end in zip(claims, [0, *ends], ends, strict=False)
            ]

        return finish

    def _settle_claims(self, claims: Claims, values: Floats, failed: Failures) -> ScoreAnswers:
        """The answers of the requests of one round, with the scores of the second look."""
        claims.scores[claims.again] = values
        if self.reached is not None:
            holds = self.reached(values, claims.labels[claims.again])
            self.statistics.confirmed += int(claims.claimed.sum())
            self.statistics.unconfirmed += int((claims.claimed & ~holds).sum())
        return hand_out(claims.asked, claims.scores, {int(claims.again[at]): error for at, error in failed.items()})

    @property
    def _block(self) -> int:
        # A victim finds out by trying what it withstands, which would not pay for a few rows.
        if self.on_gpu or self.statistics.forwarded < _WORTH_TRYING:
            return 1
        return int(getattr(self.victim, "padding_block", 1))

    def _forward(
        self, work: TokenRows, owner: Ints, rows: Ints, streams: Keys | None, *, exact: bool = False
    ) -> Callable[[], tuple[Floats, Failures]]:
        """Start scoring these rows, each a draw of its `owner`; their scores in order, and what failed by index."""
        own, rows = None if streams is None else streams[rows], owner[rows]
        half = self.inexact and not exact
        together = pack_rows(work, rows, on_gpu=self.on_gpu, pad=self.pad, streams=own, block=self._block, half=half)
        statistics = self.statistics
        statistics.forwarded += len(rows)
        statistics.batches += len(together.batches)
        statistics.tokens += int(work.total[rows].sum())
        statistics.padded_tokens += sum(batch.ids.size for batch in together.batches)
        wait = launch_batches(partial(self.victim.launch, exact=exact), together, statistics.add_time)

        def finish() -> tuple[Floats, Failures]:
            scores = np.zeros((len(rows), len(self.victim.labels)), np.float32)
            values, failed = wait()
            scores[together.order] = values
            failed = {int(together.order[index]): error for index, error in failed.items()}
            not_finite(scores, failed)
            return scores, failed

        return finish
