"""Scores for victims that take token ids.

Rows of equal token length are batched together: nothing is padded, and a row's bits then do not depend on what it was
batched with (on a CPU), so that results are the same whatever the number of attacks in flight. On a GPU lengths are
mixed where padding costs less than another launch, and identity is promised for the same packing only.

A victim that scores in bfloat16 is asked again in float32 for every row that would count as a success, so that an
attack never sees a success that does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from isthmus.core.types import Floats, Ints, TokenBatch, TokenVictim
from isthmus.engine.assembly import Assembler, Rows, Template, padded
from isthmus.engine.cache import Keys, ScoreCache
from isthmus.engine.scoring import (
    MOST_UNITS,
    Answers,
    Asked,
    Failures,
    Int64,
    Later,
    Range,
    Reached,
    Scorer,
    as_victim_error,
    halves,
    handed_out,
    not_finite,
)
from isthmus.text.draft import Draft
from isthmus.text.splice import Splicer
from isthmus.text.vocabulary import Vocabulary

_LAUNCH_COST = 32_000
"""Padded tokens whose forward pass costs a large GPU and its host about as much as one more launch."""

_MOST_TOKENS = 1 << 18
"""Padded tokens in one batch on a GPU."""


class TokenScorer(Scorer):
    """For victims that take token ids."""

    victim: TokenVictim

    def __init__(
        self, victim: TokenVictim, vocabulary: Vocabulary, cache: ScoreCache | None, *, reached: Reached | None = None
    ) -> None:
        super().__init__(victim, cache)
        self.reached = reached  # what is confirmed in full precision
        self.inexact = getattr(victim, "precision", "fp32") != "fp32"
        self.assembler = Assembler(victim.tokenizer, Splicer(victim.tokenizer, vocabulary), victim.max_tokens)
        self.on_gpu = victim.device_type != "cpu"
        self.pad = victim.tokenizer.pad_token_id or 0

    def renew(self, vocabulary: Vocabulary) -> None:
        """Forget every word and unit."""
        self.assembler.splicer.clear(vocabulary)

    def rows_at_once(self, base: Draft) -> int:
        """As many as fit in memory: the model reads no more than its limit of any text."""
        return MOST_UNITS // (2 * self.assembler.max_tokens)

    def _size(self, item: Asked) -> int:
        base = item.request.base
        known = base.structure.units
        if known is None or base.units is None:
            known = self.assembler.prepare(base)
        if known.whole:
            return sum(map(len, base.structure.gaps))
        return min(len(base.units), 2 * self.assembler.max_tokens)  # type: ignore[arg-type]

    def _start(self, asked: list[Asked]) -> Later:
        requests = [item.request for item in asked]
        work = Matrices.of(self.assembler.rows(requests), self.assembler, len(requests[0].base.structure.fields))
        streams = self._streams(asked)
        plan = self._plan(asked, work.keys)
        wait = self._forward(work, plan.wanted, streams)

        def finish() -> Answers | Later:
            scores, failures = self._settle(plan, work.keys, *wait())
            if self.inexact:
                return self._confirm(asked, work, scores, failures, streams)
            return handed_out(asked, scores, failures)

        return finish

    def _confirm(
        self, asked: Sequence[Asked], work: Matrices, scores: Floats, failures: Failures, streams: Keys | None
    ) -> Answers | Later:
        """Start scoring again, in full precision, what was asked for exactly and what counts as a success."""
        counts = [item.request.count for item in asked]
        exact = np.repeat([item.request.exact for item in asked], counts)
        labels = np.repeat([item.label for item in asked], counts)
        claimed = np.zeros(len(scores), bool) if self.reached is None else self.reached(scores, labels)
        again = np.flatnonzero(claimed | exact)
        if not len(again):
            return handed_out(asked, scores, failures)
        wait = self._forward(work, again, streams, exact=True)

        def finish() -> Answers:
            scores[again], failed = wait()
            failures.update({int(again[index]): error for index, error in failed.items()})
            if self.reached is not None:
                holds = self.reached(scores, labels)
                self.statistics.confirmed += int(claimed.sum())
                self.statistics.unconfirmed += int((claimed & ~holds).sum())
            return handed_out(asked, scores, failures)

        return finish

    # ------------------------------------------------------------------ batches

    def _forward(
        self, work: Matrices, rows: Int64, streams: Keys | None, *, exact: bool = False
    ) -> Callable[[], tuple[Floats, Failures]]:
        """Start scoring these rows; the result holds their scores in order, and what failed by index."""
        order, batches = self._batches(work, rows, streams)
        statistics = self.statistics
        statistics.forwarded += len(rows)
        statistics.batches += len(batches)
        statistics.tokens += int(work.rows.total[rows].sum())
        statistics.padded_tokens += sum(batch.ids.size for batch in batches)
        began = time.perf_counter()
        try:
            pending = self.victim.launch(batches, exact=exact) if batches else None
            early: Exception | None = None
        except Exception as error:
            pending, early = None, error
        statistics.model_s += time.perf_counter() - began

        def wait() -> tuple[Floats, Failures]:
            began = time.perf_counter()
            scores = np.zeros((len(rows), len(self.victim.labels)), np.float32)
            failed: Failures = {}
            try:
                if early is not None:
                    raise early
                if pending is not None:
                    scores[order] = pending()
            except Exception:
                self._rescue(batches, order, scores, failed, exact)
            statistics.model_s += time.perf_counter() - began
            not_finite(scores, failed)
            return scores, failed

        return wait

    def _rescue(
        self, batches: Sequence[TokenBatch], order: Int64, scores: Floats, failed: Failures, exact: bool
    ) -> None:
        """Something failed: score batch by batch, then row by row, so that only the guilty rows are lost."""
        at = 0
        for batch in batches:
            own = order[at : at + len(batch.ids)]
            at += len(batch.ids)
            for rows in halves(len(own)):
                try:
                    scores[own[rows.start : rows.stop]] = self.victim.launch([_take(batch, rows)], exact=exact)()
                except Exception as error:
                    if len(rows) > 1:
                        rows.split = True
                        continue
                    failed[int(own[rows.start])] = as_victim_error(error)

    def _batches(self, work: Matrices, rows: Int64, streams: Keys | None) -> tuple[Int64, list[TokenBatch]]:
        """Batches for these rows, and the order in which they hold them."""
        by_length = np.argsort(work.rows.total[rows], kind="stable")
        lengths = work.rows.total[rows][by_length]
        cuts = np.flatnonzero(np.diff(lengths)) + 1
        groups = [group for group in np.split(by_length, cuts) if len(group)]
        if self.on_gpu:
            return self._padded_batches(work, rows, groups, streams)
        batches, order = [], []
        for group in groups:
            length = int(work.rows.total[rows[group[0]]])
            most = max(4, min(128, 4096 // length))
            for start in range(0, len(group), most):
                chosen = group[start : start + most]
                batches.append(self._batch(work, rows[chosen], streams))
                order.append(chosen)
        return (np.concatenate(order) if order else np.zeros(0, np.int64)), batches

    def _batch(self, work: Matrices, rows: Int64, streams: Keys | None) -> TokenBatch:
        ids, types = work.take(rows)
        return TokenBatch(ids, None, types, None if streams is None else streams[rows])

    def _padded_batches(
        self, work: Matrices, rows: Int64, groups: list[Int64], streams: Keys | None
    ) -> tuple[Int64, list[TokenBatch]]:
        batches, order = [], []
        for batch_groups in _cheap_cuts(groups, work.rows.total[rows]):
            matrices = [work.take(rows[group]) for group in batch_groups]
            length = max(ids.shape[1] for ids, _ in matrices)
            batch = padded([ids for ids, _ in matrices], [types for _, types in matrices], length, self.pad)
            members = np.concatenate(batch_groups)
            batch.keys = None if streams is None else streams[rows[members]]
            batches.append(batch)
            order.append(members)
        return (np.concatenate(order) if order else np.zeros(0, np.int64)), batches


class Matrices:
    """The rows of a round as matrices of equal length, and a key for each row."""

    __slots__ = ("group_of", "keys", "matrices", "place", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.keys = np.zeros(len(rows), np.uint64)
        self.group_of = np.zeros(len(rows), np.int64)
        self.place = np.zeros(len(rows), np.int64)
        self.matrices: list[tuple[Ints, Ints | None]] = []

    @classmethod
    def of(cls, rows: Rows, assembler: Assembler, fields: int) -> Matrices:
        """Gather the rows of every length into one matrix."""
        work, template = cls(rows), assembler.template(fields)
        order = np.argsort(rows.total, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(rows.total[order])) + 1):
            work._add(group, template, assembler)
        return work

    def _add(self, group: Int64, template: Template, assembler: Assembler) -> None:
        ids, types = template.matrix(self.rows, group)
        self.keys[group] = assembler.keys(ids, types)
        self.group_of[group] = len(self.matrices)
        self.place[group] = np.arange(len(group))
        self.matrices.append((ids, types))

    def take(self, rows: Int64) -> tuple[Ints, Ints | None]:
        """Ids and segment ids of rows of one length."""
        ids, types = self.matrices[self.group_of[rows[0]]]
        place = self.place[rows]
        return ids[place], None if types is None else types[place]


def _take(batch: TokenBatch, rows: Range) -> TokenBatch:
    chosen = slice(rows.start, rows.stop)
    return TokenBatch(
        batch.ids[chosen],
        None if batch.mask is None else batch.mask[chosen],
        None if batch.types is None else batch.types[chosen],
        None if batch.keys is None else batch.keys[chosen],
    )


def _cheap_cuts(groups: list[Int64], lengths: Int64) -> list[list[Int64]]:
    """Groups of rows of one length each, joined into batches at the least cost in padded tokens and launches.

        cost(i, j) = launch + rows(i … j) * longest(i … j),    best(j) = min over i of best(i) + cost(i, j)

    Groups come shortest first; one that is too large for a batch is cut before.
    """
    groups = [
        group[start : start + most]
        for group in groups
        for most in [max(4, _MOST_TOKENS // int(lengths[group[0]]))]
        for start in range(0, len(group), most)
    ]
    rows = np.cumsum([0, *map(len, groups)])
    longest = np.array([int(lengths[group[0]]) for group in groups], np.int64)
    best, cut = np.zeros(len(groups) + 1), np.zeros(len(groups) + 1, np.int64)
    for end in range(1, len(groups) + 1):
        tokens = (rows[end] - rows[:end]) * longest[end - 1]
        cost = best[:end] + _LAUNCH_COST + np.where(tokens > _MOST_TOKENS, np.inf, tokens)
        cost[end - 1] = best[end - 1] + _LAUNCH_COST + tokens[-1]
        cut[end] = int(cost.argmin())
        best[end] = cost[cut[end]]
    batches = []
    end = len(groups)
    while end:
        batches.append(groups[cut[end] : end])
        end = int(cut[end])
    return batches
