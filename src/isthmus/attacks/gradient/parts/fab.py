"""The fast adaptive boundary attack towards one class (Croce and Hein 2020): the smallest move that respects the box.

    π: f_t - f_y = 0, linearised at x_i;   d₁ = move from x_i to π,  d₂ = move from x to π, both smallest in the box
    x_{i+1} = clip( (1 - α)(x_i + η d₁) + α (x + η d₂) ),    α = min( ‖d₁‖ / (‖d₁‖ + ‖d₂‖), 0.1 ),    η = 1.05

Whenever a point fools, the way back to x is shortened to 0.9 of it, and the walk goes on from there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.attacks.gradient.parts.ascent import better
from isthmus.attacks.gradient.parts.losses import towards
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball, Norm, Space, largest, lengths, like

_LEAST, _BEYOND, _BACK = 0.1, 1.05, 0.9


def walk(problem: Problem, ball: Ball, rows: Tensor, target: Tensor, steps: int) -> Tensor:
    """The nearest point found for each row; a row is done once that lies in its ball. Without any: the input."""
    origins = problem.inputs[rows]
    found, shortest = origins.clone(), torch.full((len(rows),), torch.inf, dtype=origins.dtype, device=rows.device)
    left, points = torch.arange(len(rows), device=rows.device), origins
    for step in range(steps):
        slope = problem.slope(rows[left], points, towards(target[left]))
        start, space = origins[left], problem.space.at(rows[left])
        size = _size_of_moves(ball.norm, points - start)
        # A row whose point lies in its ball is done, and may be worked on for a while yet.
        shorter = slope.fooled & (size < shortest[left]) & (shortest[left] > ball.epsilon)
        if problem.waits:
            found[left] = better(found[left], points, shorter)
            shortest[left] = torch.where(shorter, size, shortest[left])
        else:
            found[left[shorter]], shortest[left[shorter]] = points[shorter], size[shorter]
        ahead, gradient = slope.loss.to(points.dtype), slope.gradient
        # w · (z - x_i) + ahead = 0 seen from x_i, and from the input.
        near = reach(ball.norm, gradient, -ahead, points, space)
        level = ahead + (gradient * (start - points)).flatten(1).sum(dim=1)
        far = reach(ball.norm, gradient, -level, start, space)
        one, two = _size_of_moves(ball.norm, near), _size_of_moves(ball.norm, far)
        share = like((one / (one + two).clamp_min(torch.finfo(one.dtype).tiny)).clamp(max=_LEAST), points)
        onward = space.clip((1 - share) * (points + _BEYOND * near) + share * (start + _BEYOND * far))
        points = torch.where(like(slope.fooled, points), start + _BACK * (points - start), onward)
        if problem.looks(step):
            going = (shortest[left] > ball.epsilon).nonzero().squeeze(1)
            left, points = left[going], points[going]
            if not len(left):
                break
    return found


def reach(norm: Norm, slope: Tensor, rise: Tensor, points: Tensor, space: Space) -> Tensor:
    """The smallest move δ with slope · δ = rise that stays in the box; where none does, the furthest that does.

    Each coordinate goes with the slope: by λ (l-inf) or λ |slope_i| (l2), or to the wall; the rise grows with λ in
    straight pieces between the λ at which coordinates meet their walls, so that sorting these gives λ exactly.
    """
    way = slope.flatten(1) * rise.sign().unsqueeze(1)  # [rows, coordinates], from here on
    weight, wanted = way.abs(), rise.abs()
    pace = torch.ones_like(weight) if norm == "linf" else weight
    if space.bounds is None:
        gain = (weight * pace).sum(dim=1)
        step = torch.where(gain > 0, wanted / gain.clamp_min(torch.finfo(gain.dtype).tiny), 0.0)
        return (way.sign() * pace * step.unsqueeze(1)).view_as(points)
    low, high = space.bounds
    here = points.flatten(1)
    room = torch.where(way > 0, high - here, here - low)  # how far each coordinate can go
    # The λ at which each coordinate meets its wall.
    wall = torch.where(weight > 0, room / pace.clamp_min(torch.finfo(pace.dtype).tiny), 0.0)
    order = wall.argsort(dim=1)
    walls = wall.gather(1, order).double()
    gains = (weight * pace).gather(1, order).double()
    met = (gains * walls).cumsum(dim=1)  # rise of the coordinates that have met their walls
    free = (gains.sum(dim=1, keepdim=True) - gains.cumsum(dim=1)).clamp_min(0.0)  # gain of the others
    # met + free λ at each wall is the rise so far, sorted: the piece in which it reaches what is wanted [rows].
    place = torch.searchsorted(met + free * walls, wanted.double().unsqueeze(1)).squeeze(1)
    before = (place - 1).clamp_min(0).unsqueeze(1)
    first = (place == 0).unsqueeze(1)
    # Inside its piece: rise at the last wall, and what the rest gains with λ, both [rows, 1].
    done = torch.where(first, 0.0, met.gather(1, before))
    gain = torch.where(first, gains.sum(dim=1, keepdim=True), free.gather(1, before))
    step = (wanted.double().unsqueeze(1) - done) / gain.clamp_min(torch.finfo(torch.float64).tiny)
    beyond = (place == walls.shape[1]).unsqueeze(1)  # the box does not allow so much
    step = torch.where(beyond, walls[:, -1:], step).to(pace.dtype)
    return (way.sign() * torch.minimum(pace * step, room)).view_as(points)


def _size_of_moves(norm: Norm, moves: Tensor) -> Tensor:
    return largest(moves) if norm == "linf" else lengths(moves)
