"""Recorded steps: who may be recorded, and that a training with recordings goes the way of one without."""

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import training_toys as toys

from isthmus import defences
from isthmus.arithmetic.randomness import Stream
from isthmus.core import progress as work
from isthmus.core.types import Output
from isthmus.defences import Batch, Defence, Terms
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.training import captured
from isthmus.training.captured import RecordedSteps

GPU = torch.device("cuda")
RATE = 2.0**-7


@dataclass(frozen=True)
class Counts(defences.Standard):
    """Replaces the losses without saying that they are still the same work every time."""

    def losses(self, model, batch):
        yield from super().losses(model, batch)


@pytest.mark.parametrize(
    ("defence", "steady"),
    [
        (defences.Standard(), True),
        (defences.VIB(), True),
        (defences.VUB(), True),
        (defences.LabelSmoothing(), True),
        (defences.ConfidencePenalty(), True),
        (defences.VIB(adversary="freelb"), False),
        (defences.FreeLB(), False),
        (defences.SMART(), False),
        (defences.InfoBERT(), False),
        (defences.RSMI(), False),
        (Counts(), False),
    ],
    ids=lambda value: str(value)[:24],
)
def test_which_defences_are_recorded(defence, steady):
    model = toys.classifier()
    assert captured.is_recordable(model, defence, GPU, 1) is steady
    assert not captured.is_recordable(model, defence, torch.device("cpu"), 1)
    assert not captured.is_recordable(model, defence, GPU, 2)


def test_which_models_are_recorded():
    assert captured.has_steady_passes(toys.classifier().fill(bottleneck=GaussianBottleneck(16, 4)))
    assert not captured.has_steady_passes(toys.classifier().fill(noise=GaussianNoise(0.1, (0,))))
    assert not captured.has_steady_passes(torch.nn.Linear(2, 2))
    unknown: Any = toys.classifier()
    unknown.backbone.model.config.model_type = "other"
    assert not captured.has_steady_passes(unknown)


def test_steps_under_a_gradient_attack_are_recorded_where_it_draws_nothing():
    from isthmus.core.types import ImageClassification
    from isthmus.models import ImageClassifier

    def recorded(attack="fgsm", parameters="", model=None, **more):
        defence = defences.Adversarial(attack=attack, attack_parameters=parameters, **more)
        return captured.is_recordable(model or network, defence, GPU, 1)

    task = ImageClassification(("a", "b"), shape=(1, 4, 4))
    network = ImageClassifier.create("mlp", task)
    assert recorded()
    assert recorded(base="vib")
    assert recorded("pgd", "random_start=false")
    assert not recorded("pgd")
    assert not recorded("fgsm,bim")
    assert not recorded("cw")
    assert not recorded(base="rdrop")
    mean, drawn = (ImageClassifier.create("mlp", task) for _ in range(2))
    mean.fill(bottleneck=GaussianBottleneck(mean.pooled_size, 4))
    drawn.fill(bottleneck=GaussianBottleneck(drawn.pooled_size, 4, inference="sample"))
    assert recorded(model=mean)
    assert not recorded(model=drawn)


def test_a_stream_hands_out_what_it_would_have_drawn():
    like = torch.zeros(3, 5)
    plain, told, fed = (Stream("noise", 7) for _ in range(3))
    expected = [plain.normal(like), plain.uniform(like), plain.normal(like)]
    heard: list[Any] = []
    told.listener = heard.append
    assert all(map(torch.equal, expected, [told.normal(like), told.uniform(like), told.normal(like)]))
    assert [draw.kind for draw in heard] == ["normal", "uniform", "normal"]
    places = [(draw.__class__(fed, draw.kind, draw.shape, draw.dtype), torch.zeros(3, 5)) for draw in heard]
    for draw, place in places:
        draw.fill(place)
    with captured._handing_out([fed], places):
        assert all(map(torch.equal, expected, [fed.normal(like), fed.uniform(like), fed.normal(like)]))
        with pytest.raises(RuntimeError, match="something else"):
            fed.normal(like)
    assert fed.count == plain.count


# A training on the CPU whose recordings are played by a stand-in for the graph.


class Network(torch.nn.Module):
    """A bottleneck's draws, dropout, and a buffer that every pass changes."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)
        self.norm, self.dropout = torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2)
        self.stream = Stream("noise", 3)

    def forward(self, vectors):
        hidden = self.norm(self.first(vectors))
        return Output(self.last(self.dropout(hidden + 0.1 * self.stream.normal(hidden))))


@dataclass
class Player:
    """Takes the steps of a recording by ordinary means."""

    steps: RecordedSteps
    make: Any
    rows: torch.Tensor
    values: torch.Tensor
    places: list
    wrong: float = 0.0
    played: int = 0

    def replay(self):
        self.played += 1
        steps = self.steps
        steps.optimizer.zero_grad()
        with captured._handing_out(steps._streams, self.places):
            _, terms, norm = steps._walk(self.make(self.rows))
        for group, rate in zip(steps.optimizer.param_groups, steps._rates, strict=True):
            group["lr"] = float(rate)
        steps.optimizer.step()
        self.values.copy_(torch.cat([terms + self.wrong, norm.view(1)]))


@dataclass(frozen=True)
class Waits(Defence):
    """Fails, as torch makes it fail where a step waits and must not, once it has drawn."""

    def losses(self, model, batch):
        output = model(**batch.inputs)
        if model.refuses:
            raise RuntimeError("called a synchronizing CUDA operation\nsomewhere")
        yield Terms({"cross_entropy": torch.nn.functional.cross_entropy(output.logits, batch.labels)})


@pytest.fixture
def notes(monkeypatch):
    told: list[Any] = []
    monkeypatch.setattr(work, "note", told.append)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.get_rng_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: torch.set_rng_state(state))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    return told


def walked(monkeypatch, *, records, record=None, defence=None, steps=24):
    """Weights, terms and norms after steps over two shapes of batches, and the players of their recordings."""
    torch.manual_seed(0)
    model: Any = Network().train()
    players: list[Any] = []
    model.refuses = False
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    data, labels = torch.randn(60, 6), torch.arange(60) % 2

    def make(rows):
        return Batch({"vectors": data[rows]}, labels[rows])

    taker = RecordedSteps(
        model, defence or defences.Standard(), optimizer, contextlib.nullcontext, 1.0, data.device, records
    )

    @contextlib.contextmanager
    def refusing():
        model.refuses = isinstance(defence, Waits)
        try:
            yield
        finally:
            model.refuses = False

    def play(self, rows, make, draws, wrong=0.0):
        self._rates, self._rates_set = [torch.zeros(())], [-1.0]
        places = [(draw, torch.zeros(draw.shape)) for draw in draws]
        player = Player(self, make, rows.clone(), torch.zeros(2), places, wrong)
        players.append(player)
        return captured._Recording(player, player.rows, ("cross_entropy",), player.values, places)

    monkeypatch.setattr(captured, "_refusing_waits", refusing)
    monkeypatch.setattr(RecordedSteps, "_record", lambda *arguments: (record or play)(*arguments))
    taken = []
    for number in range(steps):
        rows = torch.randperm(60, generator=torch.Generator().manual_seed(number))[: 10 if number % 3 else 6]
        step = taker.take(len(rows), rows, make, [RATE / 2 ** (number // 8)])
        taken.append((step.names, step.terms.tolist(), float(step.norm)))
    return toys.weights(model), taken, players, taker, play


def test_recorded_steps_are_the_ordinary_ones(monkeypatch, notes):
    weights, taken, _, _, _ = walked(monkeypatch, records=False)
    own, also, players, taker, _ = walked(monkeypatch, records=True)
    assert also == taken
    assert toys.same_bits(own, weights)
    # Of each shape two steps come before the recording, and one compares it.
    assert [player.played for player in players] == [16 - 2, 8 - 2]
    assert taker.records
    assert notes == []


def test_a_recording_that_cannot_be_made_is_noted_and_the_training_goes_on(monkeypatch, notes):
    def fails(self, rows, make, draws):
        torch.rand(5)  # as far as it came
        self.model.stream.normal(torch.zeros(2, 2))
        raise RuntimeError("capture failed\nwith details")

    weights, taken, _, _, _ = walked(monkeypatch, records=False)
    own, also, _, taker, _ = walked(monkeypatch, records=True, record=fails)
    assert also == taken
    assert toys.same_bits(own, weights)
    assert not taker.records
    assert notes == ["steps are not recorded as CUDA graphs: capture failed. The training goes on step by step"]


def test_a_recording_that_disagrees_is_not_used(monkeypatch, notes):
    weights, taken, _, _, play = walked(monkeypatch, records=False)
    own, also, _, taker, _ = walked(monkeypatch, records=True, record=lambda *given: play(*given, wrong=0.5))
    assert also == taken
    assert toys.same_bits(own, weights)
    assert not taker.records
    assert "does not agree" in notes[0]


def test_a_step_that_waits_for_the_gpu_is_not_recorded(monkeypatch, notes):
    weights, taken, _, _, _ = walked(monkeypatch, records=False, defence=Waits())
    own, also, players, _, _ = walked(monkeypatch, records=True, defence=Waits())
    assert also == taken
    assert toys.same_bits(own, weights)
    assert players == []
    assert "a step waits for the GPU (called a synchronizing CUDA operation)" in notes[0]


def test_only_so_many_shapes_are_recorded(monkeypatch, notes):
    monkeypatch.setattr(captured, "LARGEST", 1)
    weights, _, _, _, _ = walked(monkeypatch, records=False)
    own, _, players, _, _ = walked(monkeypatch, records=True)
    assert len(players) == 1
    assert toys.same_bits(own, weights)
