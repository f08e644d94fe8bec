"""Codes of texts and of images, attacked or not, and the bounds on what they tell."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import training_toys as toys
from image_toys import image_model, images, text_model

from isthmus.core.errors import UnknownName, UsageError
from isthmus.data import Splits
from isthmus.data.images import pixels
from isthmus.measures import Information, InformationBounds, InformationPlane
from isthmus.measures._codes import Codes, InputAttack, head_replaced, read_codes
from isthmus.measures.base import Asked, Subject
from isthmus.measures.information import AMONG, LABEL, OTHERS, RATE, RATE_BITS
from isthmus.measures.information_bounds import ACCURACY, CEILING, PAIRWISE_HIGH, PAIRWISE_LOW, bounds_of


def test_codes_of_images_are_what_the_model_makes_of_them():
    model, data = image_model(), images()
    found = read_codes(model, data)
    with torch.no_grad():
        output = model(torch.from_numpy(pixels(data)))
        vectors = model.backbone(torch.from_numpy(pixels(data)))
    assert torch.equal(found.mean, output.latent.mean)
    assert torch.equal(found.deviation, output.latent.deviation)
    assert torch.allclose(found.vectors, vectors)
    assert torch.allclose(found.logits, output.logits)
    assert found.labels.tolist() == data.label_indices().tolist()


def test_codes_of_texts_come_in_the_order_of_the_data():
    """Batches are sorted by length, and 40 texts are more than one of them."""
    model, data = text_model(), toys.dataset("test", 40, 0)
    found = read_codes(model, data)
    for row in (0, 7, 39):
        with torch.no_grad():
            alone = model(**model.encode([data.examples[row].texts]))
        assert torch.allclose(found.logits[row], alone.logits[0], atol=1e-5)
        assert torch.allclose(found.mean[row], alone.latent.mean[0], atol=1e-5)
    assert found.labels.tolist() == data.label_indices().tolist()


def test_a_model_without_a_head_of_its_own_has_sentence_vectors():
    model, data = toys.classifier(), toys.dataset("test", 5, 0)
    found = read_codes(model, data)
    assert found.vectors.shape == (5, 16)
    with pytest.raises(UsageError, match="only a model with a Gaussian bottleneck"):
        _ = found.gaussian


@pytest.mark.parametrize("name", ["fgsm", "pgd"])
def test_attacked_images_stay_in_the_ball_and_answer_worse(name):
    model, data = image_model(bottleneck=False), images()
    seen: dict[Any, Any] = {}
    model.backbone.register_forward_pre_hook(lambda _m, inputs: seen.update(x=inputs[0].detach()))
    clean = read_codes(model, data)
    before = seen["x"]
    moved = read_codes(model, data, attack=InputAttack(name, 0.1))
    assert 0.09 < float((seen["x"] - before).abs().max()) <= 0.1 + 1e-6
    assert float(seen["x"].min()) >= 0
    assert float(seen["x"].max()) <= 1
    loss = [float(torch.nn.functional.cross_entropy(each.logits, each.labels)) for each in (clean, moved)]
    assert loss[1] > loss[0]


def test_attacked_texts_are_moved_by_a_share_of_a_token():
    model, data = text_model(), toys.dataset("test", 12, 0)
    clean = read_codes(model, data)
    moved = read_codes(model, data, attack=InputAttack("fgsm", 2.0))
    loss = [float(torch.nn.functional.cross_entropy(each.logits, each.labels)) for each in (clean, moved)]
    assert loss[1] > loss[0]


def test_attacks_that_make_no_sense_are_refused():
    with pytest.raises(UnknownName, match="textfooler"):
        InputAttack("textfooler")
    with pytest.raises(UsageError, match="fgsm takes no steps"):
        InputAttack("fgsm", steps=3).build(None)


def test_a_head_is_replaced_for_a_while():
    model = image_model()
    own, other = model.head, torch.nn.Linear(3, 2)
    with head_replaced(model, other):
        assert torch.equal(read_codes(model, images()).logits, other(read_codes(model, images()).mean).detach())
    assert model.head is own


def linear_codes(a: float, s: float, n: int = 3000) -> Codes:
    """T = aX + N(0, s²), X ~ N(0, 1), and the label is the sign of X."""
    x = torch.randn(n, 1, generator=torch.Generator().manual_seed(0))
    logits = torch.cat([torch.zeros_like(x), x], dim=1)
    return Codes((x[:, 0] > 0).long(), logits, x, a * x, torch.full_like(x, s))


@pytest.mark.parametrize(("a", "s"), [(1.0, 1.0), (2.0, 0.5)])
def test_bounds_of_a_linear_gaussian_code_enclose_what_is_known(a, s):
    codes, head = linear_codes(a, s), torch.nn.Linear(1, 2)
    torch.nn.init.zeros_(head.weight)
    found = {figure.name: figure for figure in bounds_of(codes, head, "test")}
    truth = 0.5 * math.log(1 + a**2 / s**2)
    noise = 0.06
    wanted = 0.5 * (a**2 + s**2 - 1 - math.log(s**2))
    assert found[RATE].estimate == pytest.approx(wanted, abs=noise * a**2)
    assert found[RATE_BITS].estimate == pytest.approx(found[RATE].estimate / math.log(2))
    assert found[PAIRWISE_LOW].estimate < found[AMONG].estimate < truth + noise
    assert truth - noise < found[PAIRWISE_HIGH].estimate
    assert found[AMONG].estimate < found[OTHERS].estimate
    assert truth - noise < found[OTHERS].estimate
    assert found[CEILING].estimate == pytest.approx(math.log(256))
    assert found[LABEL].estimate <= 1e-6  # A head that ignores the code tells nothing.
    assert found[ACCURACY].estimate == 1.0


def test_the_measure_takes_clean_and_attacked_images():
    model, data = image_model(), Splits("halves", {"train": images(30, "train"), "test": images(20)})
    found = InformationBounds(attack="fgsm", epsilon=0.2, batch=8)(model, data, n=16)
    assert {figure.of for figure in found.figures} == {"train", "train, fgsm 0.2", "test", "test, fgsm 0.2"}
    clean, moved = (found.figure(RATE, of) for of in ("test", "test, fgsm 0.2"))
    assert clean.low <= clean.estimate <= clean.high
    assert clean.estimate != moved.estimate
    assert found.figure(CEILING, "test").estimate == pytest.approx(math.log(8))
    assert "ln 8 = 2.08 nats" in found.notes[0]


def test_the_measure_refuses_a_model_without_a_code():
    with pytest.raises(UsageError, match="Gaussian bottleneck"):
        InformationBounds()(image_model(bottleneck=False), Splits("halves", {"test": images()}))
    with pytest.raises(UsageError, match="batch is 1"):
        InformationBounds(batch=1)


def test_an_empty_split_is_named():
    empty = replace(images(), examples=())
    with pytest.raises(UsageError, match="test split of halves is empty"):
        read_codes(image_model(), empty)


def test_measures_of_tokens_refuse_images_by_name():
    with pytest.raises(UsageError, match="the model reads images: information_bounds"):
        Information()(image_model(), Splits("halves", {"train": images(8, "train")}))


def test_the_plane_of_images_is_measured_on_snapshots():
    model = image_model()
    subject = Subject.of(model, Splits("halves", {"train": images(8, "train"), "dev": images(6, "dev")}))
    subject.asked = Asked(every_epoch=True)
    subject.snapshots = {1: lambda _model: None}
    found = InformationPlane().measure(subject)
    codes = read_codes(model, images(8, "train"))
    rate = 0.5 * (codes.mean**2 + codes.deviation**2 - 1 - 2 * codes.deviation.log()).sum(1).mean()
    assert found.figure("rate R (nats), epoch 1", "train").estimate == pytest.approx(float(rate), rel=1e-4)
    subject = Subject.of(image_model(False), subject.splits)
    subject.asked, subject.snapshots = Asked(every_epoch=True), {1: lambda _model: None}
    with pytest.raises(UsageError, match="neither a Gaussian bottleneck nor tokens"):
        InformationPlane().measure(subject)
