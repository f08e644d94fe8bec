"""The allowed points of an attack: a box, a ball around each input, or the whole space.

    box      lower <= x' <= upper       pixels; None: embeddings, which have no box
    l-inf    |x'_i - x_i| <= epsilon
    l2       ‖x' - x‖₂ <= epsilon

Every bound is kept as the float64 difference of the two tensors says, not only up to the rounding of float32.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Norm = Literal["linf", "l2"]
Bounds = tuple[float, float]
_INSIDE = 1 - 1e-6
"""Share of an l2 radius that is used, so that rounding does not leave the ball."""


def waits(values: Tensor) -> bool:
    """Whether reading a value, or selecting rows by a mask, waits for the device: True on a GPU."""
    return values.is_cuda


class Space(NamedTuple):
    """The allowed values of a point's coordinates."""

    bounds: Bounds | None
    movable: Tensor | None  # False where a coordinate stays as it is; like the inputs, or broadcast to them

    def clip(self, points: Tensor) -> Tensor:
        """Project onto the box."""
        return points if self.bounds is None else points.clamp(*self.bounds)

    def free(self, values: Tensor) -> Tensor:
        """Set to zero where nothing may move."""
        return values if self.movable is None else values * self.movable

    def at(self, rows: Tensor) -> Space:
        """The space for some of the rows."""
        return self if self.movable is None else self._replace(movable=self.movable[rows])


class Gaps(NamedTuple):
    """How rows that are done make room: the last rows move to their places, and nothing else is copied."""

    left: int  # rows that stay
    places: Tensor  # of rows that are done, among the first `left`
    movers: Tensor  # rows behind them that are not done

    @staticmethod
    def of(done: Tensor) -> Gaps:
        """The gaps of these rows [rows]."""
        left = len(done) - int(done.sum())
        places, movers = done[:left].nonzero().squeeze(1), (~done[left:]).nonzero().squeeze(1)
        return Gaps(left, places, movers.add_(left))

    def close(self, values: Tensor) -> Tensor:
        """What is left of the values [rows, ...], in place."""
        return values.index_copy_(0, self.places, values.index_select(0, self.movers))[: self.left]


class Ball:
    """A ball around every row of `centres`, inside the space."""

    _rows: Tensor | None  # which rows of `_whole` these are; None: all

    def __init__(self, norm: Norm, epsilon: float, centres: Tensor, space: Space) -> None:
        self.norm, self.epsilon, self.space = norm, epsilon, space
        self._whole, self._rows = centres, None
        if norm == "linf":
            self._low, self._high = _box_around(centres, epsilon, space)

    @property
    def centres(self) -> Tensor:
        """The points that the balls are around; steps in l-inf need the walls alone, so that these are not kept."""
        return self._whole if self._rows is None else take(self._whole, self._rows)

    def at(self, rows: Tensor) -> Ball:
        """The balls of some of the rows."""
        part = Ball.__new__(Ball)
        part.norm, part.epsilon, part.space = self.norm, self.epsilon, self.space.at(rows)
        part._whole, part._rows = self._whole, rows.clone() if self._rows is None else self._rows[rows]
        if self.norm == "linf":
            part._low, part._high = take(self._low, rows), take(self._high, rows)
        return part

    def keep(self, gaps: Gaps) -> Ball:
        """The balls of the rows that are left, in the order of `gaps`; for what `at` made: it reuses the memory."""
        part = Ball.__new__(Ball)
        part.norm, part.epsilon, part.space, part._whole = self.norm, self.epsilon, self.space, self._whole
        assert self._rows is not None
        part._rows = gaps.close(self._rows)
        if self.space.movable is not None:
            part.space = self.space._replace(movable=gaps.close(self.space.movable))
        if self.norm == "linf":
            part._low, part._high = gaps.close(self._low), gaps.close(self._high)
        return part

    def project(self, points: Tensor) -> Tensor:
        """The nearest point of each ball; in l2 the box is cut after the ball, which never leaves it."""
        if self.norm == "linf":
            return points.clamp(self._low, self._high)
        centres = self.centres
        moves = self.space.free(points - centres)
        share = (_INSIDE * self.epsilon / lengths(moves).clamp_min(torch.finfo(moves.dtype).tiny)).clamp(max=1.0)
        return self.space.clip(moves.mul_(like(share, moves)).add_(centres))

    def step(self, points: Tensor, gradient: Tensor, length: float | Tensor) -> Tensor:
        """Move by `length` along the steepest ascent in this norm, and back into the ball; overwrites the gradient."""
        if self.norm == "l2":
            return self.project(points + steepest(self.norm, gradient, length))
        moves = gradient.sign_()
        if isinstance(length, Tensor):
            return moves.mul_(like(length, gradient)).add_(points).clamp_(self._low, self._high)
        return torch.add(points, moves, alpha=length, out=moves).clamp_(self._low, self._high)

    def confine(self, points: Tensor) -> Tensor:
        """Move points whose rounded coordinates lie slightly outside their balls inside."""
        for power in range(16 if self.norm == "l2" else 0):
            centres = self.centres
            far = lengths(points.double() - centres.double()) > self.epsilon
            if not waits(points) and not bool(far.any()):
                break
            nearer = centres + (1 - 1e-6 * 2.0**power) * (points - centres)
            points = torch.where(like(far, points), nearer, points)
        return points

    def uniform(self, draws: Tensor, radii: Tensor) -> Tensor:
        """Uniform random points of each ball; in l-inf the draws are overwritten.

        Args:
            draws: Uniform numbers in (0, 1) for l-inf, normal ones for l2, shaped like the points.
            radii: One uniform number in (0, 1) for each row.
        """
        if self.norm == "linf":
            return draws.mul_(2).sub_(1).mul_(self.epsilon).add_(self.centres).clamp_(self._low, self._high)
        # Normal draws of length 1 have any direction; the radius is the d-th root, d the coordinates that move.
        direction = unit(self.space.free(draws))
        size = math.prod(self.centres.shape[1:])
        if self.space.movable is not None:
            moved = self.space.movable.expand_as(self.centres).flatten(1).sum(dim=1).clamp(min=1)
            return self.project(self.centres + direction * like(self.epsilon * radii ** (1 / moved), direction))
        return self.project(self.centres + direction * like(self.epsilon * radii ** (1 / size), direction))


_IN_CACHE = 1 << 14
"""Coordinates whose float64 values, and what becomes of them, lie in a processor's cache."""


def _box_around(centres: Tensor, epsilon: float, space: Space) -> tuple[Tensor, Tensor]:
    """The smallest and largest value of every coordinate in the box and within `epsilon` of the centre."""
    low, high = torch.empty_like(centres), torch.empty_like(centres)
    # A GPU wants everything at once.
    at_once = len(centres) if waits(centres) else max(1, _IN_CACHE // max(1, centres[:1].numel()))
    for own, below, above in zip(*(torch.split(each, at_once) for each in (centres, low, high)), strict=True):
        exact = own.double()
        below.copy_(exact - epsilon)
        above.copy_(exact + epsilon)
        far_below, far_above = exact - below.double() > epsilon, above.double() - exact > epsilon
        if space.bounds is not None:  # What the box cuts off needs no care.
            far_below &= below >= space.bounds[0]
            far_above &= above <= space.bounds[1]
        _nudge(below, far_below, 1, space)
        _nudge(above, far_above, -1, space)
    if space.movable is not None:
        low, high = torch.where(space.movable, low, centres), torch.where(space.movable, high, centres)
    return (low, high) if space.bounds is None else (low.clamp_(*space.bounds), high.clamp_(*space.bounds))


def _nudge(values: Tensor, chosen: Tensor, way: int, space: Space) -> None:
    """Replace the chosen values by the next larger or smaller number, in place."""
    if values.dtype == torch.float32 and space.bounds is not None and space.bounds[0] >= 0:
        # Numbers of 0 and more that are chosen lie inside the box, and their bits count upwards with them.
        values.view(torch.int32).add_(chosen, alpha=way)
    else:
        values.copy_(torch.where(chosen, torch.nextafter(values, values.new_full((), way * math.inf)), values))


def steepest(norm: Norm, gradient: Tensor, length: float | Tensor) -> Tensor:
    """The move of `length` that raises a linear function with this gradient most."""
    direction = gradient.sign() if norm == "linf" else unit(gradient)
    return direction * (like(length, direction) if isinstance(length, Tensor) else length)


def lengths(values: Tensor) -> Tensor:
    """The Euclidean length of every row."""
    found: Tensor = values.flatten(1).norm(dim=1)
    return found


def largest(values: Tensor) -> Tensor:
    """The largest absolute coordinate of every row."""
    return values.flatten(1).abs().amax(dim=1)


def unit(values: Tensor) -> Tensor:
    """Each row with length 1; a row of zeros stays zeros."""
    tiny = torch.finfo(values.dtype).tiny
    # The largest number first: squares of small ones would vanish.
    values = values / like(largest(values).clamp_min(tiny), values)
    return values / like(lengths(values).clamp_min(tiny), values)


def take(values: Tensor, rows: Tensor) -> Tensor:
    """Some of the rows, by their numbers or by a mask; numbers are quicker, since whole rows are copied."""
    return values[rows] if rows.dtype == torch.bool else values.index_select(0, rows)


def like(rows: Tensor, points: Tensor) -> Tensor:
    """One number for each row, shaped so that it meets every coordinate of the row."""
    return rows.view(-1, *[1] * (points.dim() - 1))
