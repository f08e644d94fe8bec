import time
from dataclasses import dataclass, replace

import pytest
import torch
import training_toys as toys
from children import Network, clusters

from isthmus.core.errors import DataError, TrainingError, UsageError
from isthmus.core.types import Output
from isthmus.defences import ConfidencePenalty, Defence, LabelSmoothing, Terms
from isthmus.training import Resident, TrainingSettings, train, train_resident

SETTINGS = TrainingSettings(
    precision="fp32",
    epochs=8,
    batch_size=16,
    learning_rate=1e-2,
    log_every=5,
    optimizer="adam",
    betas=(0.5, 0.999),
    schedule="staircase",
)


def trained(defence=None, model=None, *, settings=SETTINGS, data=None, **rest):
    data = clusters(60, 1) if data is None else data
    return train_resident(
        data, Network() if model is None else model, defence, dev=clusters(30, 2), settings=settings, **rest
    )


def test_it_learns_logs_and_reports(tmp_path):
    progress = toys.Recorder()
    model = trained(folder=tmp_path, progress=progress)
    rows = toys.rows(tmp_path)
    assert max(row["dev_accuracy"] for row in rows if "dev_accuracy" in row) > 0.85
    assert [call[:2] for call in progress.calls] == [(step, 32) for step in range(1, 33)]
    assert {row["step"] for row in rows if "loss" in row} == {
        step for step in range(1, 33) if step % 5 == 0 or step % 4 == 0
    }
    assert not model.training
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "train.jsonl"]


def test_the_same_seed_gives_the_same_bits_with_and_without_a_folder(tmp_path):
    results = [toys.weights(model) for model in (trained(), trained(folder=tmp_path), trained(seed=1))]
    assert toys.same_bits(results[0], results[1])
    assert not toys.same_bits(results[0], results[2])


@pytest.mark.parametrize("defence", [LabelSmoothing(0.0), ConfidencePenalty(0.0)])
def test_a_defence_switched_off_equals_plain_training_to_the_last_bit(defence):
    assert toys.same_bits(toys.weights(trained(defence)), toys.weights(trained()))


def test_both_drivers_walk_the_same_losses(tmp_path):
    """One step over everything, without dropout, gives the same figures under the Trainer and over resident tensors."""
    settings = TrainingSettings(precision="fp32", epochs=1, batch_size=32, learning_rate=1e-2, log_every=1)
    data, defence = toys.splits(32, 8), ConfidencePenalty(0.3)
    train(data, toys.classifier(dropout=0.0), defence, settings=settings, folder=tmp_path / "trainer", device="cpu")
    model = toys.classifier(dropout=0.0)

    def resident(split):
        return Resident(model.encode(split.texts()), torch.as_tensor(split.label_indices()))

    train_resident(
        resident(data.train), model, defence, dev=resident(data.dev), settings=settings, folder=tmp_path / "resident"
    )
    for row, other in zip(toys.rows(tmp_path / "trainer"), toys.rows(tmp_path / "resident"), strict=True):
        assert toys.flat(row) == pytest.approx(toys.flat(other), rel=1e-4)
        assert ("dev_information" in row) == ("dev_loss" in row)


def test_accumulated_passes_equal_one_large_batch(monkeypatch):
    monkeypatch.setattr("isthmus.training.resident.make_optimizer", toys.plain_descent)
    large = replace(SETTINGS, batch_size=24, learning_rate=0.1)
    small = replace(large, batch_size=8, accumulation=3)
    models = [trained(model=Network().apply(_no_dropout), settings=settings) for settings in (large, small)]
    assert toys.largest_difference(*(toys.weights(model) for model in models)) < 1e-6


def _no_dropout(module):
    if isinstance(module, torch.nn.Dropout):
        module.p = 0.0


@dataclass(frozen=True)
class Breaks(Defence):
    def losses(self, model, batch):
        (terms,) = super().losses(model, batch)
        model.count = getattr(model, "count", 0) + 1
        yield Terms({"fragile": terms.total() / (0.0 if model.count == 7 else 1.0)})


def test_a_loss_that_is_not_a_number_names_its_step_and_keeps_the_last_checkpoint(tmp_path):
    with pytest.raises(TrainingError, match="fragile became inf at step 7"):
        trained(Breaks(), folder=tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints" / "epoch-0").iterdir()] == ["checkpoint-4"]
    with pytest.raises(UsageError, match="unfinished"):
        trained(folder=tmp_path)


def test_patience_and_the_best_weights():
    settings = replace(SETTINGS, epochs=40, patience=3)
    progress = toys.Recorder()
    model, dev = trained(settings=settings, progress=progress), clusters(30, 2)
    assert progress.calls[-1][0] < 160
    best = max(metrics.get("dev_accuracy", 0) for _, _, metrics in progress.calls)
    with torch.no_grad():
        assert (model(**dev.inputs).logits.argmax(-1) == dev.labels).float().mean().item() == pytest.approx(best)


def test_rows_that_do_not_belong_together_are_refused():
    with pytest.raises(DataError, match="vectors has 3 rows and there are 2 labels"):
        Resident({"vectors": torch.zeros(3, 4)}, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(DataError, match="at least one of each"):
        trained(data=Resident({"vectors": torch.zeros(0, 6)}, torch.zeros(0, dtype=torch.int64)))


def test_a_defence_can_read_the_labels_when_it_prepares():
    seen = []

    @dataclass(frozen=True)
    class Entropy(Defence):
        def prepare(self, model, data):
            seen.append(data.label_indices().tolist())

    trained(Entropy(), settings=replace(SETTINGS, epochs=1))
    assert seen == [clusters(60, 1).labels.tolist()]


class Nothing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(2))

    def forward(self, vectors):
        return Output(vectors + self.bias)


def test_a_step_costs_little_more_than_the_arithmetic():
    """A generous bound, for a busy machine; the figure to aim at is 0.2 milliseconds."""
    data = Resident({"vectors": torch.randn(3200, 2)}, torch.zeros(3200, dtype=torch.int64))
    settings = TrainingSettings(precision="fp32", epochs=4, batch_size=32, log_every=50, evaluation_batch_size=4096)
    started = time.process_time()
    train_resident(data, Nothing(), dev=data, settings=settings)
    whole = time.process_time() - started
    model = Nothing()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    started = time.process_time()
    for step in range(400):
        rows = slice(step % 100 * 32, step % 100 * 32 + 32)
        torch.nn.functional.cross_entropy(model(data.inputs["vectors"][rows]).logits, data.labels[rows]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    bare = time.process_time() - started
    print(f"{whole / 400 * 1e3:.3f} ms a step, bare {bare / 400 * 1e3:.3f}")
    assert (whole - bare) / 400 < 1e-3
