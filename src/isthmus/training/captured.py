"""Records training steps as a CUDA graph and replays them, so that the GPU does not wait for the host.

    first sight of a shape      an ordinary step, which warms up
    second                      an ordinary step in which torch reports every wait for the GPU, then the recording
    third                       the recording against an ordinary step from the same weights and draws
    from there on               rows, step sizes and noise are filled in, and the recording is replayed

A recording holds everything between two batches: the gather of the rows, the walk of the losses with all its passes,
clipping, Adam. What a step takes from the host is put into fixed places before a replay: row numbers, step sizes, and
the draws of the streams of the model and of the batch, which come from the same keys as in an ordinary step. Dropout
draws from torch's stream, which a replay moves on as an ordinary step does. Passes that share their dropout masks set
that stream back between them, and a recording holds that too.

Only a defence that says so is recorded (`Defence.is_steady`), and only with a model whose forward pass is known to
leave all decisions to the device. Where a recording cannot be made, or does not agree with an ordinary step, a note
says so and the training goes on step by step.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from isthmus.arithmetic.randomness import BatchDraw, Draw, Stream
from isthmus.core import progress as work
from isthmus.defences.base import Batch, Defence, speaks_for_itself
from isthmus.training.walk import backward, walk

if TYPE_CHECKING:
    from isthmus.core.types import Autocast
    from isthmus.models import Classifier

Found = TypeVar("Found")

LARGEST = 24
"""Recordings kept of one training; shapes that come later take ordinary steps."""
ENABLED = True
"""Whether anything is recorded at all."""
_STEADY_ENCODERS = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""Encoders of transformers whose forward pass, with a mask in its final form, asks the host for nothing."""
_CLOSE = 0.05
"""How far terms, gradient norm and the way of the weights may be from those of an ordinary step, of their size. Two
ordinary steps in bfloat16 can be a percent apart."""


class Taken(NamedTuple):
    """The results of a step."""

    names: tuple[str, ...]
    terms: Tensor  # [names]
    norm: Tensor


def is_recordable(model: nn.Module, defence: Defence, device: torch.device, accumulation: int) -> bool:
    """Whether the steps of this training may be recorded."""
    if not ENABLED or device.type != "cuda" or accumulation != 1:
        return False
    if defence.asks_evaluated and getattr(model, "stochastic", False):
        return False  # Its draws depend on the batch's seed, which a recording does not know.
    return defence.is_steady and speaks_for_itself(type(defence)) and has_steady_passes(model)


def has_steady_passes(model: nn.Module) -> bool:
    """Whether every forward pass of `model` is the same work on the device."""
    from isthmus.arithmetic.transfer import takes_final_masks
    from isthmus.models import Classifier
    from isthmus.models.backbones import StockBackbone
    from isthmus.models.bottleneck import GaussianBottleneck
    from isthmus.models.gaussian_noise import GaussianNoise
    from isthmus.models.image_backbones import LibraryNetwork
    from isthmus.models.images import ImageClassifier
    from isthmus.training.head_only import HeadOnly

    if isinstance(model, HeadOnly):
        return model.bottleneck is None or isinstance(model.bottleneck, GaussianBottleneck)
    if not isinstance(model, Classifier | ImageClassifier):
        return False
    if not all(isinstance(slot, GaussianBottleneck | GaussianNoise) for slot in model.slots.by_name().values()):
        return False
    if isinstance(model, ImageClassifier):
        return not isinstance(model.backbone, LibraryNetwork)
    backbone = model.backbone
    if not isinstance(backbone, StockBackbone):
        return False
    kind = str(backbone.model.config.model_type)
    return kind in _STEADY_ENCODERS and takes_final_masks(backbone.model)


@contextlib.contextmanager
def own_stream(device: torch.device, wanted: bool) -> Iterator[None]:
    """Compute on a stream of our own, which can be recorded; without a GPU nothing changes."""
    if not wanted:
        yield
        return
    side, usual = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    side.wait_stream(usual)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        usual.wait_stream(side)


class StepDraws:
    """What a step draws from the streams of the model and of its batch, in order.

    A stream that is set back between two passes gives the same numbers again: both passes read one place.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = streams
        self.asked: list[tuple[Draw | BatchDraw, int]] = []
        """Each with its turn: how many draws of its stream come before it in a step."""
        self._moves: list[int] = []
        self._places: dict[tuple[Draw | BatchDraw, int], Tensor] = {}

    @contextlib.contextmanager
    def noting(self, batch: Batch) -> Iterator[None]:
        """Inside, a step over `batch` draws as usual, and what it draws is noted."""
        begun = {id(stream): stream.count for stream in self.streams}

        def note(draw: Draw) -> None:
            self.asked.append((draw, draw.stream.count - begun[id(draw.stream)]))

        def note_of_batch(draw: BatchDraw) -> None:
            self.asked.append((draw, 0))

        for stream in self.streams:
            stream.listener = note
        batch.tap = note_of_batch
        try:
            yield
        finally:
            batch.tap = None
            for stream in self.streams:
                stream.listener = None
            self._moves = [stream.count - begun[id(stream)] for stream in self.streams]

    def make_places(self, device: torch.device) -> None:
        """Make a tensor for everything that was noted."""
        self._places = {
            (draw, turn): torch.zeros(draw.shape, dtype=draw.dtype, device=device) for draw, turn in self.asked
        }

    def fill(self, seed: int) -> None:
        """Draw into the tensors what the next step draws, whose batch has this seed; the streams move on."""
        begun = {id(stream): stream.count for stream in self.streams}
        for (draw, turn), place in self._places.items():
            if isinstance(draw, BatchDraw):
                draw.fill(place, seed)
            else:
                draw.stream.count = begun[id(draw.stream)] + turn
                draw.fill(place)
        for stream, moves in zip(self.streams, self._moves, strict=True):
            stream.count = begun[id(stream)] + moves

    @contextlib.contextmanager
    def handing_out(self, batch: Batch) -> Iterator[None]:
        """Inside, the streams return these tensors instead of drawing."""
        left = iter(self.asked)

        def hand_out(asked: Draw | BatchDraw) -> Tensor:
            draw, turn = next(left, (None, 0))
            if draw is None or draw != asked:
                raise RuntimeError(f"{asked.name} drew something else than in the step before")
            return self._places[draw, turn]

        for stream in self.streams:
            stream.source = hand_out
        batch.tap = hand_out
        try:
            yield
        finally:
            batch.tap = None
            for stream in self.streams:
                stream.source = None


@dataclass
class _Recording:
    graph: Any
    rows: Tensor
    names: tuple[str, ...]
    values: Tensor
    """Terms and gradient norm of the last replay."""
    draws: StepDraws


@dataclass
class _Seen:
    """A batch shape before its recording."""

    times: int = 0
    recording: _Recording | None = None
    trusted: bool = False


@dataclass
class RecordedSteps:
    """Runs whole optimiser steps over rows of resident data, recorded if possible."""

    model: nn.Module
    defence: Defence
    optimizer: torch.optim.Optimizer
    autocast: Autocast
    max_norm: float
    device: torch.device
    records: bool
    """Whether recordings may be made; switched off by the first that fails."""
    _seen: dict[Hashable, _Seen] = field(default_factory=dict)
    _pool: Any = None

    def __post_init__(self) -> None:
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._streams = [module for module in self.model.modules() if isinstance(module, Stream)]
        self._rates: list[Tensor] = []
        self._rates_set: list[float] = []
        self._seed = 0

    def take(
        self, shape: Hashable, rows: Tensor, make: Callable[[Tensor], Batch], rates: Sequence[float], seed: int = 0
    ) -> Taken:
        """Run one step over `rows`, whose batch `make` makes, with one step size per parameter group.

        The `seed` is the batch's, from which its streams draw.
        """
        self._seed = seed
        if not self.records:
            return self._ordinary(rows, make, rates)
        seen = self._seen.setdefault(shape, _Seen())
        seen.times += 1
        if seen.recording is not None and seen.trusted:
            return self._replay(seen.recording, rows, rates)
        before = _Passed(self)
        try:
            if seen.recording is None:
                return self._approach(seen, rows, make, rates, before)
            return self._compare(seen, rows, make, rates)
        except torch.OutOfMemoryError:
            if not self._recorded:
                raise
        # The memory of a step is free again when its error is. What recordings hold may be what is missing.
        self._give_up("they leave too little memory for ordinary steps")
        before.restore()
        return self._ordinary(rows, make, rates)

    def make_room_for(self, what: str, work: Callable[[], Found]) -> Found:
        """Do work between recorded steps; where it lacks memory, recordings are given up and it begins again.

        It may leave gradients behind, which are deleted before it begins again.
        """
        if not self._recorded:
            return work()
        before, training = None, self.model.training
        with contextlib.suppress(torch.OutOfMemoryError):
            before = _Passed(self)
            return work()
        self._give_up(f"they leave too little memory for {what}")
        if before is not None:
            before.restore()
        self.model.train(training)
        self.optimizer.zero_grad()
        return work()

    @property
    def _recorded(self) -> int:
        """Number of recordings."""
        return sum(each.recording is not None for each in self._seen.values())

    def ordinary(self, batch: Batch, rates: Sequence[float]) -> Taken:
        """Run a step without recordings."""
        self.optimizer.zero_grad()
        names, terms, norm = self._walk(batch)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.optimizer.step()
        return Taken(names, terms, norm)

    def _ordinary(
        self, rows: Tensor, make: Callable[[Tensor], Batch], rates: Sequence[float], draws: StepDraws | None = None
    ) -> Taken:
        """Run a step without recordings; its draws are noted in `draws`."""
        batch = make(rows)
        batch.seed = self._seed
        if draws is None:
            return self.ordinary(batch, rates)
        with draws.noting(batch):
            return self.ordinary(batch, rates)

    def _walk(self, batch: Batch) -> tuple[tuple[str, ...], Tensor, Tensor]:
        terms = walk(self.defence, cast("Classifier", self.model), batch, backward=backward, autocast=self.autocast)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.max_norm or math.inf)
        return tuple(terms), torch.stack([value.float() for value in terms.values()]), norm

    # From ordinary steps to a recording.

    def _approach(
        self, seen: _Seen, rows: Tensor, make: Callable[[Tensor], Batch], rates: Sequence[float], before: _Passed
    ) -> Taken:
        """Run an ordinary step; the second of a shape is observed, and the shape is recorded after it."""
        if seen.times == 1 or self._recorded >= LARGEST:
            return self._ordinary(rows, make, rates)
        draws = StepDraws(self._streams)
        try:
            with _refusing_waits():
                taken = self._ordinary(rows, make, rates, draws)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # No weight has moved: the optimiser comes last, and waits for nothing.
            self._give_up(f"a step waits for the GPU ({_first_line(error)})")
            before.restore()
            return self._ordinary(rows, make, rates)
        here, state = torch.cuda.current_stream(self.device), _Passed(self)
        try:
            seen.recording = self._record(rows, make, draws)
        except Exception as error:  # Whatever a library raises here, the training must go on.
            torch.cuda.set_stream(here)
            _renew_generator(self.device)
            state.restore()
            self.optimizer.zero_grad()
            self._give_up(_first_line(error))
        return taken

    def _record(self, rows: Tensor, make: Callable[[Tensor], Batch], draws: StepDraws) -> _Recording:
        fixed = rows.clone()
        draws.make_places(self.device)
        values = torch.zeros(0, device=self.device)
        if not self._rates:
            self._rates = [torch.zeros((), device=self.device) for _ in self.optimizer.param_groups]
            self._rates_set = [math.nan] * len(self._rates)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad()
        here = torch.cuda.current_stream(self.device)
        with (
            self._capturable(),
            torch.cuda.graph(graph, pool=self._pool, stream=here),
        ):
            batch = make(fixed)
            with draws.handing_out(batch):
                names, terms, norm = self._walk(batch)
            self.optimizer.step()
            values = torch.cat([terms, norm.float().view(1)])
        self._pool = graph.pool()
        self.optimizer.zero_grad()
        return _Recording(graph, fixed, names, values, draws)

    @contextlib.contextmanager
    def _capturable(self) -> Iterator[None]:
        """Inside, the optimiser reads its step sizes from the device."""
        kept = [(group["lr"], group["capturable"]) for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"], group["capturable"] = rate, True
        try:
            yield
        finally:
            for group, (rate, capturable) in zip(self.optimizer.param_groups, kept, strict=True):
                group["lr"], group["capturable"] = rate, capturable

    def _replay(self, recording: _Recording, rows: Tensor, rates: Sequence[float]) -> Taken:
        recording.rows.copy_(rows)
        for number, rate in enumerate(rates):
            if rate != self._rates_set[number]:
                self._rates[number].fill_(rate)
                self._rates_set[number] = rate
        recording.draws.fill(self._seed)
        recording.graph.replay()
        values = recording.values.clone()
        return Taken(recording.names, values[:-1], values[-1])

    def _compare(self, seen: _Seen, rows: Tensor, make: Callable[[Tensor], Batch], rates: Sequence[float]) -> Taken:
        """Run the recording's step and undo it, then an ordinary step, which counts."""
        assert seen.recording is not None
        before = _Stepped(self)
        try:
            replayed = self._replay(seen.recording, rows, rates)
            after = [parameter.detach().clone() for parameter in self.parameters]
        finally:
            before.restore()
        taken = self._ordinary(rows, make, rates)
        way = _length([p.detach() - old for p, old in zip(self.parameters, before.weights, strict=True)])
        apart = _length([p.detach() - other for p, other in zip(self.parameters, after, strict=True)])
        found = torch.cat([replayed.terms, replayed.norm.view(1)])
        wanted = torch.cat([taken.terms, taken.norm.view(1)])
        close = ((found - wanted).abs() <= _CLOSE * wanted.abs().clamp(min=1e-3)).all() & (apart <= 0.5 * way + 1e-12)
        if replayed.names == taken.names and bool(close):
            seen.trusted = True
        elif bool(torch.isfinite(wanted).all()):
            pairs = zip((*taken.names, "gradient norm"), found.tolist(), wanted.tolist(), strict=True)
            figures = ", ".join(f"{name} {one:.4g} and {other:.4g}" for name, one, other in pairs)
            far = float(apart / way.clamp(min=1e-12))
            self._give_up(
                f"a recorded step does not agree with an ordinary one ({figures}; weights {far:.0%} of the way apart)"
            )
        return taken

    def _give_up(self, why: str) -> None:
        self.records = False
        for seen in self._seen.values():
            seen.recording = None
        self._seen.clear()
        self._pool = None
        work.note(f"steps are not recorded as CUDA graphs: {why}. The training goes on step by step")


class _Passed:
    """The state that the losses change: positions of all streams, buffers, and parameters that are not optimised.

    A teacher is made of such parameters, and so is a network with an optimiser of its own.
    """

    def __init__(self, steps: RecordedSteps) -> None:
        self.streams, self.device = steps._streams, steps.device
        self.counts = [stream.count for stream in self.streams]
        self.state = torch.cuda.get_rng_state(self.device)
        optimised = set(map(id, steps.parameters))
        kept = [each for each in steps.model.parameters() if id(each) not in optimised]
        self.others = [(each, each.detach().clone()) for each in (*steps.model.buffers(), *kept)]

    def restore(self) -> None:
        with torch.no_grad():
            for place, value in self.others:
                place.copy_(value)
        torch.cuda.set_rng_state(self.state, self.device)
        for stream, count in zip(self.streams, self.counts, strict=True):
            stream.count = count


class _Stepped(_Passed):
    """The state that a step changes."""

    def __init__(self, steps: RecordedSteps) -> None:
        super().__init__(steps)
        self.weights = [parameter.detach().clone() for parameter in steps.parameters]
        self.others += list(zip(steps.parameters, self.weights, strict=True))
        for parts in steps.optimizer.state.values():
            self.others += [(value, value.clone()) for value in parts.values() if isinstance(value, Tensor)]


@contextlib.contextmanager
def _refusing_waits() -> Iterator[None]:
    """Inside, torch raises an error if the host would wait for the GPU."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _renew_generator(device: torch.device) -> None:
    """Free torch's random stream on the GPU after an interrupted recording."""
    with contextlib.suppress(Exception):
        generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
        generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())


def _length(values: list[Tensor]) -> Tensor:
    length: Tensor = torch.stack(torch._foreach_norm([value.float() for value in values])).norm()
    return length


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
