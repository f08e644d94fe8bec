"""Gradient ascent in a ball that chooses its own step sizes (Croce and Hein 2020, algorithm 1).

    z = Π( x_k + η sign g_k ),     x_{k+1} = Π( x_k + a (z - x_k) + (1 - a) (x_k - x_{k-1}) ),     a = 0.75

η begins at 2 ε. At checkpoints it is halved, and the ascent goes on from the best point, where fewer than 3/4 of the
steps since the last checkpoint raised the loss, or where neither η nor the highest loss has changed since then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.attacks.gradient.parts.ascent import better
from isthmus.attacks.gradient.parts.problem import Loss, Problem
from isthmus.attacks.gradient.parts.spaces import Ball

LossOf = Callable[[Tensor], Loss]
"""The loss of the rows that are named."""

_MOMENTUM, _SHARE = 0.75, 0.75


def checkpoints(steps: int) -> list[int]:
    """Numbers of the steps at which η may be halved."""
    places, previous, current = [0.0, 0.22], 0.0, 0.22
    while current < 1:
        previous, current = current, current + max(current - previous - 0.03, 0.06)
        places.append(current)
    return sorted({math.ceil(round(place * steps, 9)) for place in places if 0 < place <= 1})


class _State(NamedTuple):
    """The state of the rows that are still attacked, one entry per row."""

    row: Tensor
    point: Tensor
    previous: Tensor
    best: Tensor
    slope: Tensor  # gradient at the best point
    highest: Tensor  # loss at the best point
    last: Tensor  # loss at the point before this one
    length: Tensor  # η
    rises: Tensor  # steps since the last checkpoint that raised the loss
    halved: Tensor  # whether η was halved at the last checkpoint
    marked: Tensor  # highest loss at the last checkpoint
    done: Tensor  # whether the row was fooled already
    end: Tensor  # the point that fooled it first

    def at(self, kept: Tensor) -> _State:
        return _State(*(value[kept] for value in self))


def climb(problem: Problem, ball: Ball, rows: Tensor, start: Tensor, loss: LossOf, steps: int, stop: bool) -> Tensor:
    """The point of the highest loss of each row; with `stop` the first that fools, after which a row costs nothing."""
    found = start.clone()
    place = torch.full((len(problem.inputs),), -1, dtype=torch.int64, device=rows.device)
    place[rows] = torch.arange(len(rows), device=rows.device)
    nothing = torch.full((len(rows),), -math.inf, dtype=torch.float64, device=rows.device)
    state = _State(
        rows, start, start, start, torch.zeros_like(start), nothing, nothing,
        torch.full_like(nothing, 2 * ball.epsilon), torch.zeros_like(nothing),
        torch.ones_like(nothing, dtype=torch.bool), nothing, torch.zeros_like(nothing, dtype=torch.bool), start,
    )  # fmt: skip
    inside, marks = ball.at(rows), checkpoints(steps)
    for step in range(steps):
        slope = problem.slope(state.row, state.point, loss(state.row))
        gradient = slope.gradient
        if stop:
            end = better(state.end, state.point, slope.fooled & ~state.done) if problem.waits else state.point
            state = state._replace(done=state.done | slope.fooled, end=end)
        if stop and problem.looks(step) and bool(state.done.any()):
            found[place[state.row[state.done]]] = state.end[state.done]
            kept = (~state.done).nonzero().squeeze(1)
            state, inside, gradient = state.at(kept), inside.at(kept), gradient[kept]
            slope = slope._replace(loss=slope.loss[kept])
            if not len(state.row):
                return found
        state, gradient = _look(state, gradient, slope.loss, step, marks)
        ahead = inside.step(state.point, gradient.clone(), state.length.to(state.point.dtype))
        if step:
            ahead = state.point + _MOMENTUM * (ahead - state.point) + (1 - _MOMENTUM) * (state.point - state.previous)
            ahead = inside.project(ahead)
        state = state._replace(previous=state.point, point=ahead)
    found[place[state.row]] = better(inside.confine(state.best), state.end, state.done)
    return found


def _look(state: _State, gradient: Tensor, loss: Tensor, step: int, marks: Sequence[int]) -> tuple[_State, Tensor]:
    """Update with the loss at the current points, and halve η where it is due."""
    higher = loss > state.highest
    state = state._replace(
        best=better(state.best, state.point, higher),
        slope=better(state.slope, gradient, higher),
        highest=torch.where(higher, loss, state.highest),
        rises=state.rises + (loss > state.last),
        last=loss,
    )
    if step not in marks:
        return state, gradient
    since = step - max([mark for mark in marks if mark < step], default=0)
    due = (state.rises < _SHARE * since) | (~state.halved & (state.highest <= state.marked))
    state = state._replace(
        length=torch.where(due, state.length / 2, state.length),
        point=better(state.point, state.best, due),
        previous=better(state.previous, state.best, due),
        rises=torch.zeros_like(state.rises),
        halved=due,
        marked=state.highest,
    )
    return state, better(gradient, state.slope, due)
