"""Square attack (Andriushchenko et al. 2020): random search in an l-inf ball, without gradients.

It begins with stripes of ±ε. In every query a random window gets ±ε, one sign for each channel, and is kept where the
margin grew. Windows shrink on a schedule: a share p of the image, 0.8 at first, halved eight times.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.attacks.gradient.parts.losses import margin
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball, like

_SHARE = 0.8
_HALVED_AT = (10, 50, 200, 1000, 2000, 4000, 6000, 8000)
"""Queries of 10,000 after which the share is halved."""


class ImageGrid(NamedTuple):
    """Inputs seen as images; what has no height is one row of pixels."""

    channels: int
    height: int
    width: int

    @staticmethod
    def of(inputs: Tensor) -> ImageGrid:
        """The last two dimensions are height and width; a first one before them is channels."""
        shape = tuple(inputs.shape[1:])
        if len(shape) < 3:
            shape = (1,) * (3 - len(shape)) + shape
        return ImageGrid(shape[0], math.prod(shape[1:-1]), shape[-1])

    def window(self, share: float) -> tuple[int, int]:
        """Height and width of a window that covers a share of the image: a square, where there is room for one."""
        area = share * self.height * self.width
        height = max(1, min(round(math.sqrt(area)), self.height))
        if self.height >= height < round(math.sqrt(area)):
            return height, max(1, min(round(area / height), self.width))
        return height, max(1, min(round(math.sqrt(area)), self.width))


def share_at(query: int, queries: int) -> float:
    """p: the share of the image that a window covers."""
    return _SHARE / 2.0 ** sum(query * 10_000 / queries > limit for limit in _HALVED_AT)


def roam(problem: Problem, ball: Ball, rows: Tensor, queries: int) -> Tensor:
    """The point of the largest margin found for each row; a row is done once it is fooled, were it by shared draws."""
    grid = ImageGrid.of(problem.inputs)
    place = torch.arange(len(rows), device=rows.device)
    inside, left = ball.at(rows), rows
    stripes = problem.uniform(left, "stripes", (grid.channels, 1, grid.width)) < 0.5
    points = _move_by_signs(inside, stripes.expand(-1, -1, grid.height, -1))  # vertical stripes of ±ε
    found, best = points.clone(), torch.full((len(rows),), -math.inf, dtype=torch.float64, device=rows.device)
    tried, done = points, torch.zeros_like(rows, dtype=torch.bool)
    for query in range(queries):
        logits = problem.logits(left, tried)
        value, fooled = margin(logits, problem.goal.at(left)).mean(dim=1), problem.is_fooled(left, logits)
        better = ((value > best) | fooled) & ~done
        points, best = torch.where(like(better, points), tried, points), torch.where(better, value, best)
        done = done | fooled
        if problem.looks(query) and bool(done.any()):
            found[place[done]] = points[done]
            kept = (~done).nonzero().squeeze(1)
            place, left, inside, points, best = place[kept], left[kept], inside.at(kept), points[kept], best[kept]
            done = done[kept]
            if not len(left):
                return found
        tried = _change_windows(problem, inside, grid, left, points, query, queries)
    found[place] = points
    return found


def _change_windows(
    problem: Problem, inside: Ball, grid: ImageGrid, rows: Tensor, points: Tensor, query: int, queries: int
) -> Tensor:
    """The points with a window of ±ε each, where and with which signs the row's own stream says."""
    height, width = grid.window(share_at(query, queries))
    drawn = problem.uniform(rows, f"square {query}", (2 + grid.channels,))  # top, side, a sign for each channel
    top = (drawn[:, 0] * (grid.height - height + 1)).long().clamp(max=grid.height - height).view(-1, 1)
    side = (drawn[:, 1] * (grid.width - width + 1)).long().clamp(max=grid.width - width).view(-1, 1)
    down, across = (torch.arange(size, device=rows.device) for size in (grid.height, grid.width))
    # [rows, height], [rows, width]
    vertical, horizontal = (down >= top) & (down < top + height), (across >= side) & (across < side + width)
    window = (vertical.unsqueeze(2) & horizontal.unsqueeze(1)).unsqueeze(1)  # [rows, 1, height, width]
    signs = (drawn[:, 2:] < 0.5).view(-1, grid.channels, 1, 1).expand(-1, -1, grid.height, grid.width)
    return torch.where(window.expand_as(signs).reshape(points.shape), _move_by_signs(inside, signs), points)


def _move_by_signs(inside: Ball, plus: Tensor) -> Tensor:
    """Each centre plus or minus ε, inside the box."""
    signs = torch.where(plus, inside.epsilon, -inside.epsilon).to(inside.centres.dtype)
    return inside.project(inside.centres + signs.reshape(inside.centres.shape))
