"""Recorded steps: who may be recorded, and that a training with recordings goes the way of one without."""

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import training_toys as toys
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus import defences
from isthmus.arithmetic.randomness import Stream, draw_from
from isthmus.core import progress as work
from isthmus.core.types import Output
from isthmus.defences import Batch, Defence, Terms
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.models.slots import Noise
from isthmus.training import captured
from isthmus.training.captured import RecordedSteps, StepDraws

GPU = torch.device("cuda")
RATE = 2.0**-7


@dataclass(frozen=True)
class Counts(defences.Standard):
    """Replaces the losses without saying that they are still the same work every time."""

    def losses(self, model, batch):
        yield from super().losses(model, batch)


@dataclass(frozen=True)
class Climbs(defences.FreeLB):
    """The same on a defence of several passes."""

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
        (defences.VIB(adversary="freelb"), True),
        (defences.FreeLB(), True),
        (defences.FreeLBpp(), True),
        (defences.PGD(), True),
        (defences.SMART(), True),
        (defences.ALUM(), True),
        (defences.RDrop(), True),
        (defences.InfoBERT(), True),
        (defences.RSMI(), True),
        (defences.FLAT(), False),
        (Counts(), False),
        (Climbs(), False),
    ],
    ids=lambda value: str(value)[:24],
)
def test_which_defences_are_recorded(defence, steady):
    model = toys.classifier()
    assert captured.is_recordable(model, defence, GPU, 1) is steady
    assert not captured.is_recordable(model, defence, torch.device("cpu"), 1)
    assert not captured.is_recordable(model, defence, GPU, 2)


class OtherNoise(Noise):
    """Nobody knows what it does."""

    def __init__(self, sigma, layers):
        super().__init__()
        self.layers = layers


def test_which_models_are_recorded():
    assert captured.has_steady_passes(toys.classifier().fill(bottleneck=GaussianBottleneck(16, 4)))
    assert captured.has_steady_passes(toys.classifier().fill(noise=GaussianNoise(0.1, (0,))))
    assert not captured.has_steady_passes(toys.classifier().fill(noise=OtherNoise(0.1, (0,))))
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
    assert recorded(base="rdrop")
    assert not recorded(base="gaussian_noise")
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
    batch, draws = Batch({}, torch.zeros(3)), StepDraws([fed])
    with draws.noting(batch):
        assert all(map(torch.equal, expected, [fed.normal(like), fed.uniform(like), fed.normal(like)]))
    fed.count = 0
    draws.make_places(like.device)
    draws.fill(seed=0)
    with draws.handing_out(batch):
        assert all(map(torch.equal, expected, [fed.normal(like), fed.uniform(like), fed.normal(like)]))
        with pytest.raises(RuntimeError, match="something else"):
            fed.normal(like)
    assert fed.count == plain.count


def test_a_stream_that_is_set_back_hands_out_the_same_again():
    like, fed = torch.zeros(3, 5), Stream("noise", 7)

    def twice():
        first, begun = fed.normal(like), fed.count
        again = [fed.uniform(like)]
        fed.count = begun
        again.append(fed.uniform(like))
        return first, *again

    batch, draws = Batch({}, torch.zeros(3)), StepDraws([fed])
    with draws.noting(batch):
        twice()
    draws.make_places(like.device)
    expected, fed.count = twice(), 2
    draws.fill(seed=0)
    assert fed.count == 4
    with draws.handing_out(batch):
        assert all(map(torch.equal, expected, twice()))
    assert fed.count == 4


def test_a_batch_hands_out_what_it_would_have_drawn():
    device, words, numbers = torch.device("cpu"), torch.Size([3, 5]), torch.Size([3])

    def three(batch):
        normal = batch.draws("a").draw("normal", words, device, torch.float32)
        bits = batch.draws("b").draw("bits", numbers, device, torch.int64)
        return normal, bits, draw_from(batch.draws("a"), "uniform", words, device)

    batch, draws = Batch({}, torch.zeros(3), seed=1), StepDraws([])
    with draws.noting(batch):
        noted = three(batch)
    assert torch.equal(noted[0], torch.randn(words, generator=batch.stream("a")))
    assert torch.equal(noted[1], torch.empty(numbers, dtype=torch.int64).random_(generator=batch.stream("b")))
    assert torch.equal(noted[2], torch.rand(words, generator=batch.stream("a")))
    draws.make_places(device)
    draws.fill(seed=2)
    with draws.handing_out(batch):
        handed = three(batch)
        with pytest.raises(RuntimeError, match="a drew something else"):
            three(batch)
    assert not torch.equal(handed[0], noted[0])
    assert all(map(torch.equal, handed, three(Batch({}, torch.zeros(3), seed=2))))


# Steps that ask the host for nothing: on torch's device without memory there is no number to look at.

REFUSED = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim"}


class Refusing(TorchDispatchMode):
    """Raises where an operation would wait for the device, or copies from the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().partition("::")[2].partition(".")[0]
        if name in REFUSED:
            raise RuntimeError(f"{name} waits for the device")
        found = func(*args, **(kwargs or {}))
        if name in ("_to_copy", "copy_", "lift_fresh"):
            devices = {each.device for each in (*args, found) if isinstance(each, torch.Tensor)}
            if len(devices) > 1:
                raise RuntimeError(f"{name} copies between {devices}")
        return found


def one_step(defence, monkeypatch, model=None):
    """Walk one step where there are no numbers; the number of draws."""
    model = model or toys.classifier()
    defence.prepare(model, toys.splits()["train"])
    model.to("meta").train()
    assert captured.is_recordable(model, defence, GPU, 1)
    ids = torch.zeros(8, 16, dtype=torch.int64, device="meta")
    batch = Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids[:, 0])
    drawn = []

    def hand_out(draw):
        drawn.append(draw)
        return torch.empty(draw.shape, dtype=draw.dtype, device="meta")

    for module in model.modules():
        if isinstance(module, Stream):
            module.source = hand_out
    batch.tap = hand_out
    # As on a GPU, where the mask is made in its final form and is not looked at.
    monkeypatch.setattr(
        "isthmus.models.backbones.attention_mask",
        lambda _, mask: mask[:, None, None, :].bool().expand(-1, 1, mask.shape[1], -1),
    )
    monkeypatch.setattr(torch, "autocast", lambda *given, **named: contextlib.nullcontext())
    with Refusing():
        for terms in defence.losses(model, batch):
            torch.autograd.backward(terms.total(), retain_graph=terms.retain_graph)
    return len(drawn)


SEVERAL_PASSES = [
    (defences.FreeLB(steps=3), 1),
    (defences.FreeLBpp(steps=2, max_norm=1.0), 1),
    (defences.PGD(steps=2), 1),
    (defences.SMART(), 1),
    (defences.SMART(steps=2, mode="released", proximal=0), 1),
    (defences.SMART(strength=0), 0),
    (defences.ALUM(), 1),
    (defences.ALUM(mode="paper"), 1),
    (defences.RDrop(), 0),
    (defences.RSMI(), 4),
    (defences.RSMI(masking="random", mode="released"), 5),
    (defences.RSMI(sigma=0), 0),
    (defences.InfoBERT(), 2),
    (defences.InfoBERT(mode="paper", features="global"), 1),
    (defences.InfoBERT(adversary="freelb", steps=2), 5),
    (defences.InfoBERT(adversary="pgd", mode="paper"), 2),
    (defences.InfoBERT(p_t_given_x="auxiliary"), 2),
    (defences.VIB(latent=4, adversary="freelb", steps=2), 3),
    (defences.VUB(latent=4, adversary="pgd", steps=2), 4),
]


@pytest.mark.parametrize(("defence", "draws"), SEVERAL_PASSES, ids=lambda value: str(value)[:60])
def test_a_step_asks_the_host_for_nothing(defence, draws, monkeypatch):
    assert one_step(defence, monkeypatch) == draws


@dataclass(frozen=True)
class Looks(defences.Standard):
    """Looks at a number, or copies one from the host."""

    copies: bool = False
    is_steady = True

    def losses(self, model, batch):
        for terms in super().losses(model, batch):
            if self.copies:
                yield Terms({"cross_entropy": terms.total() * torch.tensor([2.0]).to(batch.labels.device).sum()})
            elif terms.total() > 0:
                yield terms


@pytest.mark.parametrize("copies", [True, False])
def test_a_look_at_a_number_is_noticed(copies, monkeypatch):
    with pytest.raises(RuntimeError):
        one_step(Looks(copies=copies), monkeypatch)


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
    draws: StepDraws
    wrong: float = 0.0
    played: int = 0

    def replay(self):
        self.played += 1
        steps = self.steps
        steps.optimizer.zero_grad()
        batch = self.make(self.rows)
        with self.draws.handing_out(batch):
            _, terms, norm = steps._walk(batch)
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


def walked(monkeypatch, *, records, record=None, defence=None, steps=24, texts=False):
    """Weights, terms and norms after steps over two shapes of batches, and the players of their recordings."""
    torch.manual_seed(0)
    labels = torch.arange(60) % 2
    defence = defence or defences.Standard()
    model: Any = toys.classifier() if texts else Network()
    players: list[Any] = []
    if texts:
        defence.prepare(model, toys.splits()["train"])
        data = torch.randint(5, len(model.tokenizer), (60, 12))
        data[:, 0] = 2
        there = torch.arange(12) < torch.randint(3, 13, (60, 1))
    else:
        data = torch.randn(60, 6)
    model.train()
    model.refuses = False
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE, fused=True)

    def make(rows):
        if not texts:
            return Batch({"vectors": data[rows]}, labels[rows])
        return Batch({"input_ids": data[rows], "attention_mask": there[rows].long()}, labels[rows])

    taker = RecordedSteps(model, defence, optimizer, contextlib.nullcontext, 1.0, data.device, records)

    @contextlib.contextmanager
    def refusing():
        model.refuses = isinstance(defence, Waits)
        try:
            yield
        finally:
            model.refuses = False

    def play(self, rows, make, draws, wrong=0.0):
        self._rates, self._rates_set = [torch.zeros(())], [-1.0]
        draws.make_places(rows.device)
        names = taken[-1][0]
        player = Player(self, make, rows.clone(), torch.zeros(len(names) + 1), draws, wrong)
        players.append(player)
        return captured._Recording(player, player.rows, names, player.values, draws)

    monkeypatch.setattr(captured, "_refusing_waits", refusing)
    monkeypatch.setattr(RecordedSteps, "_record", lambda *arguments: (record or play)(*arguments))
    taken = []
    for number in range(steps):
        rows = torch.randperm(60, generator=torch.Generator().manual_seed(number))[: 10 if number % 3 else 6]
        step = taker.take(len(rows), rows, make, [RATE / 2 ** (number // 8)], seed=1000 + number)
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


@pytest.mark.parametrize("defence", [each for each, _ in SEVERAL_PASSES], ids=lambda value: str(value)[:60])
def test_recorded_steps_of_several_passes_are_the_ordinary_ones(defence, monkeypatch, notes):
    weights, taken, _, _, _ = walked(monkeypatch, records=False, defence=defence, steps=10, texts=True)
    own, also, players, _, _ = walked(monkeypatch, records=True, defence=defence, steps=10, texts=True)
    assert also == taken
    assert toys.same_bits(own, weights)
    assert [player.played for player in players] == [6 - 2, 4 - 2]
    assert notes == []


def test_what_the_losses_move_besides_the_weights_is_put_back(monkeypatch, notes):
    def fails(self, rows, make, draws):
        for _ in self.defence.losses(self.model, make(rows)):
            raise RuntimeError("capture failed")

    for defence in (defences.SMART(momentum=0.5), defences.InfoBERT(p_t_given_x="auxiliary")):
        weights, taken, _, _, _ = walked(monkeypatch, records=False, defence=defence, steps=6, texts=True)
        own, also, _, taker, _ = walked(monkeypatch, records=True, record=fails, defence=defence, steps=6, texts=True)
        assert also == taken
        assert toys.same_bits(own, weights)
        assert not taker.records


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


@pytest.mark.parametrize("when", ["another shape", "the comparison"])
def test_recordings_make_room_where_an_ordinary_step_lacks_memory(when, monkeypatch, notes):
    usual = RecordedSteps._walk

    def starves(self, batch):
        found = usual(self, batch)
        if self._recorded and (len(batch) == 6 if when == "another shape" else batch.tap is None):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return found

    for defence, texts in ((defences.Standard(), False), (defences.SMART(momentum=0.5), True)):
        monkeypatch.setattr(RecordedSteps, "_walk", usual)
        weights, taken, _, _, _ = walked(monkeypatch, records=False, defence=defence, steps=9, texts=texts)
        monkeypatch.setattr(RecordedSteps, "_walk", starves)
        own, also, players, taker, _ = walked(monkeypatch, records=True, defence=defence, steps=9, texts=texts)
        assert also == taken
        assert toys.same_bits(own, weights)
        assert players
        assert not taker.records
        assert "too little memory" in notes.pop()


def test_a_step_that_lacks_memory_without_recordings_ends_the_training(monkeypatch, notes):
    def starves(self, batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(RecordedSteps, "_walk", starves)
    with pytest.raises(torch.OutOfMemoryError):
        walked(monkeypatch, records=True)
    assert notes == []


def test_only_so_many_shapes_are_recorded(monkeypatch, notes):
    monkeypatch.setattr(captured, "LARGEST", 1)
    weights, _, _, _, _ = walked(monkeypatch, records=False)
    own, _, players, _, _ = walked(monkeypatch, records=True)
    assert len(players) == 1
    assert toys.same_bits(own, weights)
