"""One classifier class over every architecture: what goes in, what comes out, what the slots do, and what is kept."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from isthmus.core.errors import ModelError, RunError, UnknownName, UsageError
from isthmus.models import Bottleneck, Classifier, Noise, WordMask, load_model, register_slot

ENCODERS = ("bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "albert", "t5")
ALL = (*ENCODERS, "lstm", "cnn")
TEXTS = [
    {"text": "a moving, quiet film"},
    {"text": "the story was very very dull and it was too long!"},
    {"text": ""},
    {"text": "nobody saw it twice"},
]
LABELS = ("negative", "neutral", "positive")
WORD_OPTIONS = {"vectors": None, "width": 12, "hidden": 10, "filters": 4}


@register_slot
class HalveWords(WordMask):
    """Scales every word that is not special."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.learned = nn.Parameter(torch.tensor(0.25))

    def config(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def forward(
        self, embeddings: Tensor, attention_mask: Tensor | None, special_mask: Tensor, input_ids: Tensor
    ) -> Tensor:
        factor = torch.where(special_mask, 1.0, self.scale + self.learned)
        return embeddings * factor.unsqueeze(-1)


@register_slot
class GaussianNoise(Noise):
    """Always on."""

    stochastic = True

    def __init__(self, layers: list[int], sigma: float) -> None:
        super().__init__()
        self.layers, self.sigma = tuple(layers), sigma
        self.seen: list[int] = []

    def config(self) -> dict[str, Any]:
        return {"layers": list(self.layers), "sigma": self.sigma}

    def forward(self, layer: int, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        self.seen.append(layer)
        return hidden + self.sigma * self.stream.normal(hidden, tag=layer)


@register_slot
class MeanCode(Bottleneck):
    """A Gaussian code: its mean outside training."""

    def __init__(self, pooled: int, latent: int) -> None:
        super().__init__()
        self.latent_size, self.pooled = latent, pooled
        self.mean, self.spread = nn.Linear(pooled, latent), nn.Linear(pooled, latent)

    def config(self) -> dict[str, Any]:
        return {"pooled": self.pooled, "latent": self.latent_size}

    def forward(self, pooled: Tensor) -> Any:
        mean, spread = self.mean(pooled), nn.functional.softplus(self.spread(pooled))
        sample = mean + spread * self.stream.normal(mean) if self.training else mean
        return SimpleNamespace(mean=mean, spread=spread, sample=sample)


def make(architecture: str, encoder: Callable[[str], Path], **more: Any) -> Classifier:
    if architecture in ("lstm", "cnn"):
        texts = [text["text"] for text in TEXTS]
        return Classifier.create(architecture, LABELS, texts=texts, options=WORD_OPTIONS, seed=5, **more)
    return Classifier.create(encoder(architecture), LABELS, seed=5, **more)


def slots_for(model: Classifier, which: str) -> dict[str, Any]:
    last = model.backbone.depth - 1
    made: dict[str, Any] = {
        "word_mask": lambda: HalveWords(0.5),
        "noise": lambda: GaussianNoise(sorted({0, last}), 0.3),
        "bottleneck": lambda: MeanCode(model.pooled_size, 6),
    }
    return {name: build() for name, build in made.items() if which in (name, "all")}


def answer(model: Classifier, inputs: dict[str, Tensor]) -> Tensor:
    keys = torch.arange(len(inputs["input_ids"]), dtype=torch.int64) + 11
    with torch.no_grad(), model.use_keys(keys):
        return model(**inputs).logits


@pytest.mark.parametrize("architecture", ALL)
def test_forward_gives_logits_embeddings_and_hidden_states(architecture: str, encoder: Callable[[str], Path]) -> None:
    model = make(architecture, encoder)
    inputs = model.encode(TEXTS)
    output = model(**inputs, hidden=True)
    batch, length = inputs["input_ids"].shape
    assert output.logits.shape == (batch, 3)
    assert output.embeddings is not None
    assert torch.equal(output.embeddings, model.embed(inputs["input_ids"]))
    assert output.hidden is not None
    assert len(output.hidden) == model.backbone.depth + 1
    assert output.hidden[-1].shape == (batch, length, model.hidden_size)
    assert model(**inputs).hidden is None
    gradient = torch.autograd.grad(output.logits.logsumexp(-1).sum(), output.embeddings)[0]
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("architecture", ALL)
def test_embeddings_stand_in_for_ids(architecture: str, encoder: Callable[[str], Path]) -> None:
    model = make(architecture, encoder)
    inputs = model.encode(TEXTS)
    given = {**inputs, "inputs_embeds": model.embed(inputs["input_ids"])}
    assert torch.allclose(model(**given).logits, model(**inputs).logits, atol=1e-6)
    moved = {**given, "inputs_embeds": given["inputs_embeds"].roll(1, dims=1) * 3.0}
    assert not torch.allclose(model(**moved).logits, model(**inputs).logits, atol=1e-3)
    assert model(**moved).embeddings is moved["inputs_embeds"]


@pytest.mark.parametrize("architecture", ALL)
def test_padding_does_not_matter(architecture: str, encoder: Callable[[str], Path]) -> None:
    model = make(architecture, encoder)
    together = model(**model.encode(TEXTS)).logits
    alone = torch.cat([model(**model.encode([text])).logits for text in TEXTS])
    assert torch.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("which", ["none", "word_mask", "noise", "bottleneck", "all"])
@pytest.mark.parametrize("architecture", ALL)
def test_saved_and_loaded_logits_are_equal_to_the_last_bit(
    architecture: str, which: str, encoder: Callable[[str], Path], tmp_path: Path
) -> None:
    model = make(architecture, encoder)
    model.fill(**slots_for(model, which)).eval()
    inputs = model.encode(TEXTS)
    before = answer(model, inputs)
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert torch.equal(answer(again, again.encode(TEXTS)), before)
    assert (again.labels, again.task, again.max_tokens) == (model.labels, model.task, model.max_tokens)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    copied = copy.deepcopy(model)
    assert torch.equal(answer(copied, inputs), before)


@pytest.mark.parametrize("architecture", [name for name in ENCODERS if name != "t5"])
def test_an_unfilled_classifier_is_a_stock_folder(
    architecture: str, encoder: Callable[[str], Path], tmp_path: Path
) -> None:
    model = make(architecture, encoder)
    model.save(tmp_path / "model")
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    encoded = tokenizer([text["text"] for text in TEXTS], padding=True, return_tensors="pt")
    if not model.backbone.accepts_types:
        encoded.pop("token_type_ids", None)
    with torch.no_grad():
        assert torch.equal(stock(**encoded).logits, model(**model.encode(TEXTS)).logits)
    assert stock.config.id2label == dict(enumerate(LABELS))
    assert not (tmp_path / "model" / "isthmus.safetensors").exists()


@pytest.mark.parametrize("architecture", ALL)
def test_word_mask_spares_special_tokens(architecture: str, encoder: Callable[[str], Path]) -> None:
    model = make(architecture, encoder)
    inputs = model.encode(TEXTS)
    plain = answer(model, inputs)
    mask = HalveWords(0.5)
    model.fill(word_mask=mask)
    special = model.special_mask(inputs["input_ids"])
    assert special.any(dim=1).all()
    assert not special.all()
    expected = model.embed(inputs["input_ids"]) * torch.where(special, 1.0, 0.75).unsqueeze(-1)
    assert torch.equal(mask(model.embed(inputs["input_ids"]), None, special, inputs["input_ids"]), expected)
    assert not torch.equal(answer(model, inputs), plain)
    with torch.no_grad():
        mask.learned.fill_(0.5)  # a factor of one
    assert torch.allclose(answer(model, inputs), plain, atol=1e-6)
    with pytest.raises(UsageError, match="input_ids"):
        model(inputs_embeds=model.embed(inputs["input_ids"]))


@pytest.mark.parametrize("architecture", ALL)
def test_noise_reaches_exactly_the_chosen_blocks(architecture: str, encoder: Callable[[str], Path]) -> None:
    model = make(architecture, encoder)
    inputs = model.encode(TEXTS)
    clean = model(**inputs, hidden=True)
    chosen = model.backbone.depth - 1
    noise = GaussianNoise([chosen], 0.5)
    model.fill(noise=noise)
    keys = torch.arange(len(TEXTS))
    with model.use_keys(keys):
        noisy = model(**inputs, hidden=True)
    assert noise.seen == [chosen]
    for before, after in zip(clean.hidden[: chosen + 1], noisy.hidden[: chosen + 1], strict=True):
        assert torch.equal(before, after)
    assert not torch.allclose(clean.hidden[-1], noisy.hidden[-1], atol=1e-3)
    assert not torch.allclose(clean.logits, noisy.logits, atol=1e-4)
    noise.sigma = 0.0
    assert torch.equal(model(**inputs).logits, clean.logits)
    with pytest.raises(UsageError, match="blocks 0 to"):
        model.fill(noise=GaussianNoise([99], 1.0))


def test_noise_of_a_row_depends_on_its_key_alone(encoder: Callable[[str], Path]) -> None:
    model = make("bert", encoder)
    model.fill(noise=GaussianNoise([0, 2], 0.5))
    texts = [{"text": "a fine film"}] * 4
    inputs = model.encode(texts)
    with torch.no_grad():
        with model.use_keys(torch.tensor([1, 2, 1, 3])):
            rows = model(**inputs).logits
        with model.use_keys(torch.tensor([3, 9, 9, 1])):
            others = model(**inputs).logits
    assert torch.equal(rows[0], rows[2])
    assert torch.equal(rows[0], others[3])
    assert torch.equal(rows[3], others[0])
    assert not torch.allclose(rows[0], rows[1], atol=1e-4)
    padded = model.encode([*texts[:1], {"text": "the story was very very dull and it was too long!"}])
    with torch.no_grad(), model.use_keys(torch.tensor([1, 2])):
        assert torch.allclose(model(**padded).logits[0], rows[0], atol=1e-5)
    with pytest.raises(ValueError, match="2 keys for 4 rows"), model.use_keys(torch.tensor([1, 2])):
        model(**inputs)


def test_nothing_draws_from_the_global_stream(encoder: Callable[[str], Path]) -> None:
    code = MeanCode(32, 4)  # whoever builds a slot initialises it
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    model = make("bert", encoder).fill(noise=GaussianNoise([0], 0.5), bottleneck=code)
    model(**model.encode(TEXTS))
    assert torch.equal(torch.rand(4), expected)


def test_a_loaded_model_continues_its_draws(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make("bert", encoder).fill(noise=GaussianNoise([0], 0.5))
    inputs = model.encode(TEXTS)
    with torch.no_grad():
        first = model(**inputs).logits
        model.save(tmp_path / "model")
        second, resumed = model(**inputs).logits, load_model(tmp_path / "model")(**inputs).logits
    assert not torch.equal(first, second)
    assert torch.equal(second, resumed)


def test_bottleneck_is_read_by_a_head_of_its_width(encoder: Callable[[str], Path]) -> None:
    model = make("roberta", encoder)
    code = MeanCode(model.pooled_size, 6)
    model.fill(bottleneck=code)
    output = model(**model.encode(TEXTS))
    assert output.latent.sample.shape == (4, 6)
    assert model.head is not None
    assert model.head.weight.shape == (3, 6)
    assert torch.equal(model.head(output.latent.sample), output.logits)
    assert not model.is_stock


def test_the_same_seed_makes_the_same_classifier(encoder: Callable[[str], Path]) -> None:
    for architecture in ("bert", "t5", "lstm"):
        one, two = make(architecture, encoder), make(architecture, encoder)
        torch.rand(1)
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    other = Classifier.create(encoder("bert"), LABELS, seed=6)
    inputs = other.encode(TEXTS)
    assert not torch.equal(other(**inputs).logits, make("bert", encoder)(**inputs).logits)


def test_pairs_are_truncated_at_the_longer_field(encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("bert"), ("no", "yes"), ("premise", "hypothesis"), max_tokens=16)
    long = {"premise": "the film was " * 30, "hypothesis": "it was fine"}
    inputs = model.encode([long])
    assert inputs["input_ids"].shape == (1, 16)
    tail = model.tokenizer("it was fine", add_special_tokens=False)["input_ids"]
    assert inputs["input_ids"][0, -4:-1].tolist() == tail
    assert inputs["token_type_ids"][0].tolist() == [0] * 12 + [1] * 4
    with pytest.raises(UsageError, match="2 text fields"):
        model.encode([{"text": "alone"}])


def test_strange_texts_are_read(encoder: Callable[[str], Path]) -> None:
    for architecture in ("bert", "lstm", "cnn"):
        model = make(architecture, encoder)
        texts = ["", "!!! ... ???", "🙂🙂", "مرحبا بالعالم", "film " * 100_000, "\x00\n\t"]
        inputs = model.encode([{"text": text} for text in texts])
        assert inputs["input_ids"].shape[1] <= model.max_tokens
        assert torch.isfinite(model(**inputs).logits).all()


def test_options_of_word_models(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'hidden'"):
        Classifier.create("lstm", LABELS, texts=["a"], options={"hiden": 3})
    with pytest.raises(UsageError, match="positive whole number"):
        Classifier.create("lstm", LABELS, texts=["a"], options={"hidden": 0})
    with pytest.raises(UsageError, match="training texts"):
        Classifier.create("cnn", LABELS)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("film 1 2 3\nfine 4 5 6\n", encoding="utf-8")
    options = {"vectors": str(vectors), "hidden": 7, "bidirectional": True, "frozen": True, "vocabulary": 6}
    model = Classifier.create("lstm", LABELS, texts=["fine film fine film dull"], options=options)
    ids: Any = model.tokenizer.convert_tokens_to_ids(["film", "fine", "dull", "[MASK]"])
    assert model.embed(torch.tensor(ids[:2])).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert ids[2] == model.tokenizer.unk_token_id  # six tokens are four specials and the two most frequent words
    assert model.embed(torch.tensor(ids[3:])).abs().sum() == 0
    assert not model.table.weight.requires_grad
    together = model(**model.encode(TEXTS)).logits
    alone = torch.cat([model(**model.encode([text])).logits for text in TEXTS])
    assert torch.allclose(together, alone, atol=1e-6)
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").backbone.options() == model.backbone.options()


def test_wrong_slots_are_refused(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make("bert", encoder)
    with pytest.raises(UsageError, match="'noise' takes a Noise, not a HalveWords"):
        model.fill(noise=HalveWords(1.0))  # type: ignore[arg-type]

    class Unregistered(HalveWords):
        pass

    model.fill(word_mask=Unregistered(1.0))
    with pytest.raises(UsageError, match="register_slot"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "os:system",
        "subprocess:Popen",
        "isthmus.models.slots:os",
        "isthmus.models.classifier:Classifier",
        "isthmus.__main__:Slot",
        "isthmus.nowhere:Slot",
        "isthmusx.evil:Slot",
        "isthmus.core.errors:IsthmusError",
        "isthmus..os:System",
    ],
)
def test_a_folder_cannot_name_any_class(path: str, encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make("bert", encoder)
    model.fill(word_mask=HalveWords(0.5)).save(tmp_path / "model")
    file = tmp_path / "model" / "isthmus.json"
    described = json.loads(file.read_text(encoding="utf-8"))
    described["slots"]["word_mask"] = {"class": path, "config": {}}
    file.write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(ModelError):
        load_model(tmp_path / "model")


def test_damaged_folders_are_named(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make("bert", encoder)
    model.fill(word_mask=HalveWords(0.5)).save(tmp_path / "model")
    file = tmp_path / "model" / "isthmus.json"
    good = json.loads(file.read_text(encoding="utf-8"))

    def broken(match: str, **changes: Any) -> None:
        file.write_text(json.dumps({**good, **changes}), encoding="utf-8")
        with pytest.raises(ModelError, match=match):
            load_model(tmp_path / "model")

    broken("newer", format=99)
    broken("'labels'", labels="positive")
    broken("'labels'", labels=[1, 2])
    broken("'form'", form="pickle")
    broken("'slots'", slots={"backdoor": {"class": "x", "config": {}}})
    broken("'options'", form="lstm", slots={})
    broken("cannot be built", slots={"word_mask": {**good["slots"]["word_mask"], "config": {"nonsense": 1}}})
    file.write_text(json.dumps(good), encoding="utf-8")
    weights = tmp_path / "model" / "isthmus.safetensors"
    tensors = load_file(weights)
    save_file({name: tensor for name, tensor in tensors.items() if "learned" not in name}, weights)
    with pytest.raises(ModelError, match="learned"):
        load_model(tmp_path / "model")
    weights.write_bytes(b"torn")
    with pytest.raises(ModelError, match="cannot read"):
        load_model(tmp_path / "model")


def test_folders_that_are_no_classifier(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a BertModel, not a classifier"):
        load_model(encoder("bert"))
    with pytest.raises(ModelError, match="holds no model"):
        load_model(tmp_path)
    model = make("bert", encoder)
    model.save(tmp_path / "model")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / file).unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        load_model(tmp_path / "model")


def test_pickled_weights_and_foreign_code_are_refused(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make("bert", encoder)
    model.save(tmp_path / "model")
    folder = tmp_path / "model"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for key in ("_attn_implementation", "attn_implementation"):
        (folder / "config.json").write_text(json.dumps({**config, key: "somebody/kernel"}), encoding="utf-8")
        with pytest.raises(ModelError, match="somebody/kernel"):
            load_model(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors"):
        load_model(folder)


def test_saving_never_replaces_other_files(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make("bert", encoder)
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(RunError, match="other files"):
        model.save(tmp_path)
    target = tmp_path / "model"
    model.save(target)
    model.save(target)  # a model may be replaced
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="cannot write"):
        model.save(tmp_path / "file" / "model")


def test_run_folders_and_new_names(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    make("bert", encoder).save(tmp_path / "run" / "model")
    model = load_model(tmp_path / "run", labels=("bad", "so-so", "good"))
    assert model.labels == ("bad", "so-so", "good")
    with pytest.raises(UsageError, match="2 labels were given"):
        load_model(tmp_path / "run", labels=("bad", "good"))
    with pytest.raises(UsageError, match="at least two labels"):
        Classifier.create(encoder("bert"), ["only"])


def test_keyed_draws_are_normal_and_uniform() -> None:
    from scipy import stats

    from isthmus.arithmetic.randomness import draw_normal, draw_uniform

    keys = torch.from_numpy(np.random.default_rng(0).integers(0, 2**63, 400))
    normal = draw_normal(keys, (400, 25, 20), 7).double().numpy()
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(normal[:, 0].ravel(), normal[:, 1].ravel())[0, 1]) < 0.05
    assert abs(np.corrcoef(normal[:-1].ravel(), normal[1:].ravel())[0, 1]) < 0.01
    other = draw_normal(keys, (400, 25, 20), 8).double().numpy()
    assert abs(np.corrcoef(normal.ravel(), other.ravel())[0, 1]) < 0.01
    uniform = draw_uniform(keys, (400, 100), 7).double().numpy()
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-3
    assert 0 < uniform.min() <= uniform.max() < 1
    # Neighbouring keys, as a counter would give them, are as good as random ones.
    counted = draw_normal(torch.arange(400), (400, 500), 1).double().numpy()
    assert abs(np.corrcoef(counted[:-1].ravel(), counted[1:].ravel())[0, 1]) < 0.01
    assert stats.kstest(counted[:, 0], "norm").pvalue > 1e-3
    # Longer rows begin like shorter ones, so padding moves no noise.
    assert torch.equal(draw_normal(keys, (400, 25, 20), 7)[:, :10], draw_normal(keys, (400, 10, 20), 7))


def test_public_names_are_lazy_and_real() -> None:
    import isthmus.models as public

    assert list(public.__all__) == sorted(public.__all__, key=lambda name: (name[0].islower(), name))
    assert all(getattr(public, name).__name__ == name for name in public.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = public.nothing
    script = "import sys, isthmus.models, isthmus.models.victims; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_run_and_a_word_model_are_no_encoders_to_begin_with(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    Classifier.create(encoder("bert"), LABELS).save(tmp_path / "run" / "model")
    with pytest.raises(ModelError, match=r"run is a run, not an encoder: its encoder lies in .*model"):
        Classifier.create(tmp_path / "run", LABELS)
    Classifier.create(tmp_path / "run" / "model", LABELS)
    words = Classifier.create("cnn", LABELS, texts=["a quiet film"], options=WORD_OPTIONS)
    words.save(tmp_path / "words" / "model")
    for folder in (tmp_path / "words", tmp_path / "words" / "model"):
        with pytest.raises(ModelError, match=r"not an encoder to start from: choose a form \(lstm, cnn\)"):
            Classifier.create(folder, LABELS)


def test_rows_of_one_key_have_the_same_noise_however_many_there_are() -> None:
    from isthmus.arithmetic.randomness import draw_normal

    keys = torch.tensor([3, 8, 3, 3, -5, 8, 3, -5, 3, 3])
    together = draw_normal(keys, (10, 7, 3), 11)
    for row, key in enumerate(keys):
        assert torch.equal(together[row], draw_normal(key.view(1), (1, 7, 3), 11)[0])
