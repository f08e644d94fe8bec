"""What every certificate must keep to; a new file in the family is found by itself and needs one row in the table."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import certify_toys as toys
import pytest

from isthmus import certificates
from isthmus.certificates.base import Certificate, Certified
from isthmus.core import catalog
from isthmus.core.errors import UsageError, VictimError
from isthmus.core.types import Example
from isthmus.models import wrap

QUICK: dict[str, dict[str, Any]] = {
    "gaussian": {"n0": 20, "n": 50, "sigma": 0.3},
    "synonym": {"n0": 20, "n": 50},
    "exact": {"limit": 50},
}
HEADINGS = ["References:", "Where we depart:", "Relations:", "Example:"]
NAMES = catalog.names("certificates")


@pytest.fixture
def table(tmp_path) -> str:
    toys.table().write(tmp_path / "synonyms.json")
    return str(tmp_path)


def build(name: str, table: str) -> Certificate:
    """A quick one, with the toy table where it takes a table."""
    takes = {parameter.name for parameter in catalog.find("certificates", name).parameters}
    return catalog.build("certificates", name, {**QUICK[name], **({"table": table} if "table" in takes else {})})


def test_the_table_has_every_certificate():
    assert set(QUICK) == set(NAMES)


def test_the_public_names_are_the_files():
    classes = {catalog.find("certificates", name).class_name for name in NAMES}
    assert set(certificates.__all__) == classes | {"Certificate", "Certified", "Statement"}
    assert all(getattr(certificates, name).__name__ == name for name in certificates.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_frozen_record_whose_docstring_has_the_headings(name):
    certificate = catalog.build("certificates", name)
    assert isinstance(certificate, Certificate)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(certificate, "anything", 1)  # noqa: B010
    entry = catalog.find("certificates", name)
    positions = [entry.docstring.find(heading) for heading in HEADINGS]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert re.search(r"^ {4}\S+ .*(=|>)", entry.docstring, re.MULTILINE), "an equation"
    assert all(parameter.doc for parameter in entry.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_has_one_result_and_a_statement_goes_with_it(name, table):
    certificate, model = build(name, table), toys.network("cnn")
    results = list(certificate(model, toys.examples()))
    assert sorted(result.id for result in results) == [f"test:{number}" for number in range(len(toys.TEXTS))]
    for result in results:
        assert result.outcome in ("certified", "wrong", "abstained")
        assert (result.strength >= 0) == (result.outcome != "abstained")
        assert result.outcome != "certified" or result.prediction == result.label
        assert Certified.from_row(json.loads(json.dumps(result.to_row()))).to_row() == json.loads(
            json.dumps(result.to_row())
        )
        assert Certified.from_row(result.to_row()).strength == result.strength
    statement = certificate.statement(wrap(model))
    assert all((statement.classifier, statement.threat_model, statement.probability, *statement.assumptions))
    if hasattr(certificate, "table"):
        assert "table" in certificate.resources(wrap(model))["synonyms"]


@pytest.mark.parametrize("name", NAMES)
def test_the_text_itself_needs_no_strength_and_does_not_refute(name, table):
    certificate, victim = build(name, table), wrap(toys.network("lstm"))
    from isthmus.attacks.parts.protection import Protection
    from isthmus.certificates.base import Challenge

    for example, result in zip(toys.examples(), certificate(victim, toys.examples()), strict=True):
        assert certificate.needs(victim, example, example.texts, Protection()) == 0
        if result.prediction is not None and result.outcome != "abstained":
            (answer,) = certificate.challenge(victim, [Challenge("x", example.texts, result.prediction)], 0)
            assert not answer.refutes


@pytest.mark.parametrize("name", NAMES)
def test_answers_to_questions_are_refused(name, table):
    certificate = build(name, table)
    with pytest.raises(UsageError, match="no class label"):
        certificate(toys.network("cnn"), [Example("q", {"text": "who"}, ())])


@pytest.mark.parametrize("name", NAMES)
def test_odd_texts_get_a_result_too(name, table):
    texts = ["", "   ", "!?.,;", "🎬 👍", "שלום עולם", "fine " * 300, "a\x00b \ud800 film", "FILM\u200dfilm ﬁne"]
    certificate = build(name, table)
    for text in texts:
        try:
            (result,) = certificate(toys.network("lstm"), [Example("odd", {"text": text}, 1)])
        except VictimError:
            assert "\ud800" in text, "only half a character cannot be read by a tokenizer"
            continue
        assert result.outcome in ("certified", "wrong", "abstained")
