"""TextAttack's recipes, built with stand-ins for resources that are not available."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from standins import Notes, gradient, sememes, tagger


@dataclass
class Work:
    """What a model auxiliary was asked, and the processor time it took."""

    rows: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Resources:
    """Where the stand-ins lie; None where none was given."""

    vectors: Path | None = None
    sememes: Path | None = None
    tags: Path | None = None
    encoder: Path | None = None
    masked_lm: Path | None = None
    masked_length: int = 512


RECIPES = {
    "textfooler": ("textfooler_jin_2019", "TextFoolerJin2019", ("vectors", "tags", "encoder")),
    "pwws": ("pwws_ren_2019", "PWWSRen2019", ()),
    "bae": ("bae_garg_2019", "BAEGarg2019", ("tags", "encoder", "masked_lm")),
    "clare": ("clare_li_2020", "CLARE2020", ("tags", "encoder", "masked_lm")),
    "deepwordbug": ("deepwordbug_gao_2018", "DeepWordBugGao2018", ()),
    "textbugger": ("textbugger_li_2018", "TextBuggerLi2018", ("vectors", "encoder")),
    "genetic": ("genetic_algorithm_alzantot_2018", "GeneticAlgorithmAlzantot2018", ("vectors",)),
    "iga": ("iga_wang_2019", "IGAWang2019", ("vectors",)),
    "pso": ("pso_zang_2020", "PSOZang2020", ("sememes",)),
    "bertattack": ("bert_attack_li_2020", "BERTAttackLi2020", ("encoder", "masked_lm")),
    "hotflip": ("hotflip_ebrahimi_2017", "HotFlipEbrahimi2017", ("vectors", "tags")),
}
"""name -> module, class, resources it needs."""


def missing(name: str, given: Resources) -> list[str]:
    """The resources a recipe needs and was not given."""
    return [need for need in RECIPES[name][2] if getattr(given, need) is None]


def _given(path: Path | None) -> Path:
    """A resource that the recipe needs: `missing` says before which ones are not there."""
    if path is None:
        raise SystemExit("a resource of the recipe was not given")
    return path


def build(name: str, victim: Any, given: Resources, encoder: Work) -> tuple[Any, Notes]:
    """The recipe around the victim, and what stands in for what; the encoder's work is noted in `encoder`."""
    module_name, class_name, needs = RECIPES[name]
    module: Any = importlib.import_module(f"textattack.attack_recipes.{module_name}")
    notes: Notes = {}
    if "vectors" in needs:
        notes["counter-fitted vectors"] = f"{given.vectors}"
    if "encoder" in needs:
        module.UniversalSentenceEncoder = partial(sentence_encoder, _given(given.encoder), encoder)
        notes["Universal Sentence Encoder"] = f"{given.encoder} through SBERT, the recipe's threshold, metric, window"
    if "masked_lm" in needs:
        notes |= _masked_lm(name, module, given)
    if name == "clare":
        notes["Flair tagger"] = tagger.instead_of_flair()
    if name == "pso":
        module.WordSwapHowNet = sememes.instead_of_hownet(_given(given.sememes))
        notes["HowNet candidates"] = f"{given.sememes}: words that share a set of sememes, any part of speech"
    if name == "genetic":
        module.Google1BillionWordsLanguageModel = _dropped()
        notes["Google 1-billion-words language model"] = "none: the constraint is left out"
    if name == "textbugger":
        notes |= _homoglyphs()
    if name == "hotflip":
        notes["gradient"] = gradient.allow_transformers(victim.tokenizer)
    attack = getattr(module, class_name).build(victim)
    attack.constraints = [one for one in attack.constraints if type(one).__name__ != "Dropped"]
    return attack, notes


def _dropped() -> Any:
    """A constraint that the recipe can build, to be taken out again."""
    from textattack.constraints import Constraint

    class Dropped(Constraint):  # type: ignore[misc]
        def __init__(self, **_: Any) -> None:
            super().__init__(compare_against_original=True)

        def check_compatibility(self, transformation: Any) -> bool:
            return True

        def _check_constraint(self, transformed_text: Any, reference_text: Any) -> bool:
            raise AssertionError("this constraint is left out")

    return Dropped


def sentence_encoder(
    folder: Path, work: Work, *, threshold: float = 0.8, metric: str = "angular", large: bool = False, **options: Any
) -> Any:
    """TextAttack's own SBERT constraint on another encoder, with the defaults of its USE constraint."""
    from textattack.constraints.semantics.sentence_encoders.sentence_bert import SBERT

    constraint = SBERT(threshold=threshold, metric=metric, model_name=str(folder), **options)
    encode = constraint.model.encode

    def noted(sentences: list[str], **settings: Any) -> Any:
        started = time.process_time()
        found = encode(sentences, show_progress_bar=False, **settings)
        work.cpu_s += time.process_time() - started
        work.rows += len(sentences)
        return found

    constraint.model.encode = noted
    return constraint


def _masked_lm(name: str, module: Any, given: Resources) -> Notes:
    """Another masked language model; in CLARE it still goes through `AutoModelForCausalLM`, as in the recipe."""
    import transformers

    folder, length = str(given.masked_lm), given.masked_length
    for part in ("WordSwapMaskedLM", "WordInsertionMaskedLM", "WordMergeMaskedLM"):
        if hasattr(module, part):
            own = getattr(module, part)
            setattr(module, part, partial(own, max_length=length))
    if name == "clare":
        module.transformers = SimpleNamespace(
            AutoModelForCausalLM=_always_from(transformers.AutoModelForCausalLM, folder),
            AutoTokenizer=_always_from(transformers.AutoTokenizer, folder),
        )
        own_name = "distilroberta-base"
    else:
        module.WordSwapMaskedLM = partial(module.WordSwapMaskedLM, masked_language_model=folder)
        own_name = "bert-base-uncased"
    padded = "" if length == 512 else f", rows padded to {length} tokens (TextAttack: 512)"
    return {own_name: f"{folder}{padded}"}


def quick(attack: Any) -> Notes:
    """Spare what changes no outcome: padding of the masked model's rows, sentences encoded twice in one call."""
    from textattack import transformations

    def encode(self: Any, text: Any) -> Any:
        rows = self._lm_tokenizer(text, max_length=self.max_length, truncation=True, padding=True, return_tensors="pt")
        return rows.to(self._language_model.device)

    for part in ("WordSwapMaskedLM", "WordInsertionMaskedLM", "WordMergeMaskedLM"):
        getattr(transformations, part)._encode_text = encode
    for constraint in attack.constraints:
        if type(constraint).__name__ == "SBERT":
            constraint.encode = partial(_distinct, constraint.model.encode)
    return {
        "padding": "to the longest row of a batch (TextAttack: to a fixed length); the same scores up to rounding",
        "repeated sentences": "encoded once per call",
    }


def _distinct(encode: Any, sentences: list[str]) -> Any:
    place = {sentence: index for index, sentence in enumerate(dict.fromkeys(sentences))}
    return encode(list(place))[[place[sentence] for sentence in sentences]]


def _always_from(loader: Any, folder: str) -> Any:
    return SimpleNamespace(from_pretrained=lambda *_, **__: loader.from_pretrained(folder))


def _homoglyphs() -> Notes:
    """TextAttack's wheel lacks a file that its homoglyph swap opens; TextBugger uses nothing of it."""
    import textattack

    file = Path(textattack.__file__).parent / "shared" / "intentional_homoglyphs.txt"
    if not file.exists():
        file.write_text("# missing from the wheel; TextBugger does not use it\n", encoding="utf-8")
    return {"intentional_homoglyphs.txt": "an empty file (missing from the wheel, opened but not used by TextBugger)"}
