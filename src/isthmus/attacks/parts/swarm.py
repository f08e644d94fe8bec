"""The particle swarm: texts move towards their own best and the best of all, and mutate.

    v_d    <- w v_d + (1 - w) (I(x_d, own best_d) + I(x_d, best of all_d)),   I = -v_max if equal, +v_max if not
    w       = (w_1 - w_2) (T - t) / T + w_2                                   inertia, falling
    turn    : with P_1 falling to P_2 towards its own best, with P_2 rising to P_1 towards the best of all;
              every word moves with probability sigmoid(v_d)
    mutate  : with probability 1 - 2 (words changed / words), to one of the best swaps of its words, p ∝ what it gains

An iteration is two requests: all particles after their turns, and all swaps of those that mutate.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.attacks.parts.members import (
    BestSwaps,
    Substitutes,
    Swaps,
    best_swaps,
    draw_weighted,
    find_permitted,
    score_swaps,
    settle,
    stream_of,
)
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Bools, Doubles, Floats, Int32, Ints
from isthmus.engine.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Settings of the swarm."""

    particles: int = 60
    iterations: int = 20
    max_velocity: float = 3.0
    inertia: tuple[float, float] = (0.8, 0.2)
    """At the start and at the end."""
    turning: tuple[float, float] = (0.8, 0.2)
    """Probability of a turn to its own best at the start and at the end; to the best of all the other way round."""
    towards: bool = False
    """Whether sigmoid(v) is the probability that a word becomes the best's, or that it does not, as in TextAttack."""
    retries: int = 20
    """Turns tried by a particle that would break a limit."""
    anyone: bool = False
    """Whether any particle may reach the goal, or only the one that is furthest."""

    def __post_init__(self) -> None:
        for name in ("particles", "iterations"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_velocity <= 0:
            raise UsageError(f"max_velocity must be positive, not {self.max_velocity}")


@dataclass(slots=True)
class Particles:
    """Texts and scores of particles, current or best."""

    words: Int32  # [particles, words]
    scores: Floats  # [particles, classes]
    progress: Floats  # [particles]

    def take(self, rows: Ints) -> Particles:
        """Copies of some of them."""
        return Particles(self.words[rows], self.scores[rows], self.progress[rows])

    def leader(self) -> Particles:
        """The best particle."""
        return self.take(np.array([self.progress.argmax()]))

    def put(self, rows: Ints | Bools, others: Particles) -> None:
        """Set others in the place of some of them."""
        self.words[rows], self.scores[rows], self.progress[rows] = others.words, others.scores, others.progress


class Swarm:
    """The particle swarm on one example."""

    def __init__(self, trial: Trial, flight: Flight, substitutes: Substitutes) -> None:
        self.trial, self.flight, self.substitutes = trial, flight, substitutes
        self.stream = stream_of(trial)

    def search(self) -> Search:
        """Move the swarm until the goal is reached."""
        swarm = yield from self._start()
        if self._settle(swarm):
            return
        shape, flight = swarm.words.shape, self.flight
        velocity = np.tile(self.stream.uniform(-flight.max_velocity, flight.max_velocity, (shape[0], 1)), shape[1])
        own, best = swarm.take(np.arange(shape[0])), swarm.leader()
        for iteration in range(flight.iterations):
            velocity = steer(velocity, swarm.words, own.words, best.words, flight, iteration / flight.iterations)
            yield from self._turn(swarm, own.words, best.words, velocity, iteration / flight.iterations)
            swarm.scores = yield from score_swaps(self.trial, swarm.words, Swaps.of_rows(np.arange(shape[0])))
            swarm.progress = self.trial.judge(swarm.scores)
            if self._settle(swarm):
                return
            yield from self._mutate(swarm)
            if self._settle(swarm):
                return
            better = swarm.progress > own.progress
            own.put(better, swarm.take(np.flatnonzero(better)))
            leader = swarm.leader()
            if leader.progress[0] > best.progress[0]:
                best = leader

    def _settle(self, swarm: Particles) -> bool:
        return settle(self.trial, swarm.words, swarm.scores, swarm.progress, self.flight.anyone)

    def _start(self) -> Generator[Request, Any, Particles]:
        """Make the initial particles, each the original after one mutation."""
        trial, size = self.trial, self.flight.particles
        progress = np.array([trial.progress], np.float32)
        swarm = Particles(trial.original.ids[None], trial.scores[None], progress).take(np.zeros(size, np.int64))
        best = yield from best_swaps(trial, swarm.words[:1], self.substitutes.swaps(swarm.words[:1]))
        gains, which = _lay_out_gains(best, swarm.take(np.zeros(1, np.int64)))
        self._move(swarm, np.arange(size), np.repeat(gains, size, axis=0), np.repeat(which, size, axis=0), best)
        return swarm

    # ------------------------------------------------------------------ turns

    def _turn(self, swarm: Particles, own: Int32, best: Int32, velocity: Doubles, time: float) -> Search:
        """Move particles towards their own best, then towards the best of all."""
        high, low = self.flight.turning
        chance = 1 / (1 + np.exp(-velocity))
        for goal, odds in ((own, high - time * (high - low)), (best, low + time * (high - low))):
            rows = np.flatnonzero(self.stream.random(len(own)) < odds)
            aims = np.broadcast_to(goal, own.shape)[rows]
            swarm.words[rows] = yield from self._turn_towards(swarm.words[rows], aims, chance[rows])

    def _turn_towards(self, words: Int32, goal: Int32, chance: Doubles) -> Generator[Request, Any, Int32]:
        """Rows in which each word stays or becomes the goal's; one that breaks a limit is tried again, and given up."""
        if not self.flight.towards:
            chance = 1 - chance
        turned = np.where(self.stream.random(words.shape) < chance, goal, words)
        if not (self.trial.plain_rules or self.trial.asking_rules):
            return turned
        home = words if self.flight.towards else goal
        unfit = np.arange(len(words))
        for _ in range(self.flight.retries + 1):
            holding = yield from find_permitted(self.trial, turned[unfit], Swaps.of_rows(np.arange(len(unfit))))
            unfit = np.delete(unfit, holding)
            if not len(unfit):
                return turned
            draws = self.stream.random(words[unfit].shape) < chance[unfit]
            turned[unfit] = np.where(draws, goal[unfit], words[unfit])
        turned[unfit] = home[unfit]
        return turned

    # ------------------------------------------------------------------ mutations

    def _mutate(self, swarm: Particles) -> Search:
        """Mutate particles, the less the further they are from the original."""
        changed = (swarm.words != self.trial.original.ids).mean(axis=1)
        rows = np.flatnonzero(self.stream.random(len(changed)) < 1 - 2 * changed)
        if not len(rows):
            return
        mutating = swarm.take(rows)
        best = yield from best_swaps(self.trial, mutating.words, self.substitutes.swaps(mutating.words))
        self._move(swarm, rows, *_lay_out_gains(best, mutating), best)

    def _move(self, swarm: Particles, rows: Ints, gains: Doubles, which: Ints, best: BestSwaps) -> None:
        """Each of the rows to one of its words' best swaps; a word that has none leaves it where it is."""
        at = draw_weighted(mutation(gains), self.stream)
        chosen = which[np.arange(len(rows)), at]
        rows, chosen = rows[chosen >= 0], chosen[chosen >= 0]
        swarm.words[rows, best.swaps.at[chosen]] = best.swaps.words[chosen]
        swarm.scores[rows], swarm.progress[rows] = best.scores[chosen], best.progress[chosen]


def steer(velocity: Doubles, words: Int32, own: Int32, best: Int32, flight: Flight, time: float) -> Doubles:
    """Velocities after `time`, the share of the iterations that is over."""
    first, last = flight.inertia
    inertia = (first - last) * (1 - time) + last
    away = np.where(words == own, -1.0, 1.0) + np.where(words == best, -1.0, 1.0)
    return np.asarray(inertia * velocity + (1 - inertia) * flight.max_velocity * away)


def mutation(gains: Doubles) -> Doubles:
    """Probability of each word of each row to be the one that mutates; any word where nothing helps."""
    gains = np.maximum(gains, 0)
    gains = np.where(gains.sum(axis=1, keepdims=True) > 0, gains, 1.0)
    return np.asarray(gains / gains.sum(axis=1, keepdims=True))


def _lay_out_gains(best: BestSwaps, particles: Particles) -> tuple[Doubles, Ints]:
    """The gain of the best swap of every word, and the index of that swap (-1: none), [particles, words]."""
    gains, which = np.zeros(particles.words.shape), np.full(particles.words.shape, -1)
    rows, at = best.swaps.rows, best.swaps.at
    gains[rows, at] = best.progress - particles.progress[rows]
    which[rows, at] = np.arange(len(rows))
    return gains, which
