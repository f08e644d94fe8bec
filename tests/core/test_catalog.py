import pathlib
import sys
import textwrap

import numpy
import pytest

from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.parameter_values import check, convert

METHOD = '''
"""Module words."""
from dataclasses import dataclass, field
from typing import ClassVar, Literal
raise RuntimeError("imported")

Semantics = Literal["paper", "textattack"]

@dataclass(frozen=True)
class Parent:
    strength: float = 0.1
    """How strong.

    In nats."""

@dataclass(frozen=True)
class TextFooler(Parent):
    """Swap important words
    for neighbours (Jin et al., 2020).

        equation
    """

    semantics: Semantics = "textattack"
    """Whose rules."""
    needed: int
    count: ClassVar[int] = 3
    _hidden: int = 0
    protect: tuple[str, ...] = field(default=("premise",))
    made: int = field(default=0, init=False)
    extra: list[int] = field(default_factory=list)
'''


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "_ROOT", tmp_path)
    for folder in ("attacks/words", "attacks/gradient", "defences"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "attacks/words/text_fooler.py").write_text(METHOD)
    for quiet in ("base.py", "_private.py", "__init__.py"):
        (tmp_path / "attacks/words" / quiet).write_text("raise RuntimeError")
    return tmp_path


def test_reading_imports_nothing(root):
    assert catalog.names("attacks") == ("text_fooler",)
    entry = catalog.find("attacks", "TextFooler")
    assert entry == catalog.find("attacks", "text-fooler") == catalog.entries("attacks")[0]
    assert entry.module == "isthmus.attacks.words.text_fooler"
    assert entry.class_name == "TextFooler"
    assert entry.summary == "Swap important words for neighbours (Jin et al., 2020)."
    assert "equation" in entry.docstring
    assert entry.module not in sys.modules


def test_parameters(root):
    found = {parameter.name: parameter for parameter in catalog.find("attacks", "textfooler").parameters}
    assert list(found) == ["strength", "semantics", "needed", "protect", "extra"]
    assert found["strength"].doc == "How strong.\n\nIn nats."
    assert found["semantics"].annotation == "Literal['paper', 'textattack']"
    assert found["semantics"].default == "'textattack'"
    assert found["needed"].default is None
    assert found["protect"].default == "('premise',)"
    assert found["extra"].default == "list()"


def test_aliases_and_bases_from_other_modules(root):
    (root / "defences/base.py").write_text(
        'Mode = Literal["paper", "released"]\nclass Defence:\n    mode: Mode = "paper"\n    """Which."""\n'
    )
    (root / "defences/vib.py").write_text(
        "from isthmus.defences.base import Defence, Mode\nclass VIB(Defence):\n    other: Mode = 'paper'\n"
    )
    parameters = catalog.find("defences", "vib").parameters
    assert [(p.name, p.annotation, p.doc) for p in parameters] == [
        ("mode", "Literal['paper', 'released']", "Which."),
        ("other", "Literal['paper', 'released']", ""),
    ]


def test_same_name_in_two_families(root):
    (root / "attacks/gradient/pgd.py").write_text("class PGD: ...")
    (root / "defences/pgd.py").write_text("class PGD: ...")
    assert [entry.family for entry in catalog.search("pgd")] == ["attacks", "defences"]


def test_misses_suggest(root):
    with pytest.raises(UnknownName, match=r"no attack named 'textfoler'\. Did you mean 'text_fooler'"):
        catalog.find("attacks", "textfoler")
    with pytest.raises(UnknownName, match="no defence named"):
        catalog.find("defences", "vib")
    with pytest.raises(UnknownName, match="no method named 'zzz'"):
        catalog.search("zzz")
    with pytest.raises(UnknownName, match="Did you mean 'attacks'"):
        catalog.names("atacks")
    assert catalog.names("measures") == ()


def test_a_file_without_its_class_is_a_programming_error(root):
    (root / "defences/odd.py").write_text("class Even: ...")
    with pytest.raises(RuntimeError, match=r"odd\.py"):
        catalog.entries("defences")


BUILT = textwrap.dedent(
    '''
    from dataclasses import dataclass
    from typing import Literal

    @dataclass(frozen=True)
    class Sample:
        """One."""
        size: int
        rate: float | None = 0.5
        mode: Literal["paper", "released"] = "paper"

        def __post_init__(self):
            if self.size < 0:
                raise ValueError("size must not be negative")
    '''
)


@pytest.fixture
def importable(root, monkeypatch):
    import isthmus.defences

    (root / "defences/sample.py").write_text(BUILT)
    monkeypatch.setattr(isthmus.defences, "__path__", [str(root / "defences")])
    yield
    sys.modules.pop("isthmus.defences.sample", None)


def test_build_converts_strings(importable):
    made = catalog.build("defences", "sample", {"size": "3", "rate": "none", "mode": "released"})
    assert (made.size, made.rate, made.mode) == (3, None, "released")
    assert catalog.build("defences", "sample", {"size": 4}).size == 4


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "sample needs size"),
        ({"sise": "3"}, "no parameter of sample named 'sise'. Did you mean 'size'"),
        ({"size": "three"}, "sample: size should be a whole number, not 'three'"),
        ({"size": "3", "rate": "x"}, "sample: rate should be a number or none, not 'x'"),
        ({"size": "3", "mode": "papr"}, "did you mean 'paper'"),
        ({"size": "-1"}, "sample: size must not be negative"),
    ],
)
def test_build_refuses(importable, parameters, words):
    with pytest.raises(UsageError, match=words):
        catalog.build("defences", "sample", parameters)


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("3", "int", 3),
        ("1e-3", "float", 1e-3),
        ("inf", "float", float("inf")),
        ("yes", "bool", True),
        ("False", "bool", False),
        ("none", "str | None", None),
        ("word", "None | str", "word"),
        ("3", "Optional[int]", 3),
        ("null", "Union[int, None]", None),
        ("a, b", "tuple[str, ...]", ("a", "b")),
        ("()", "tuple[str, ...]", ()),
        ("(1, 0.5)", "tuple[int, float]", (1, 0.5)),
        ("1,2", "list[int]", (1, 2)),
        ("2", "Literal[1, 2]", 2),
        ("3", "'int'", 3),
        ("anything", "SomeClass", "anything"),
        ("3", "int | str", 3),
        ("x", "str | int", "x"),
    ],
)
def test_convert(text, annotation, value):
    found = convert(text, annotation, "x")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation"),
    [("3.5", "int"), ("maybe", "bool"), ("1,2,3", "tuple[int, int]"), ("a", "tuple[int, ...]"), ("3", "Literal[1, 2]")],
)
def test_convert_refuses(text, annotation):
    with pytest.raises(UsageError, match="x should be"):
        convert(text, annotation, "x")


@pytest.mark.parametrize(
    ("value", "annotation", "words"),
    [
        (1.5, "int", "a whole number"),
        (True, "int", "a whole number"),
        ({}, "float | None", "a number or none"),
        (1, "bool", "true or false"),
        (True, "Literal[1, 2]", "one of 1, 2"),
        ([], "Literal['a', 'b'] | None", "one of 'a', 'b' or none"),
        ({}, "str", "a name"),
        (object(), "Optional[str]", "a name or none"),
    ],
)
def test_check_refuses(value, annotation, words):
    with pytest.raises(UsageError, match=f"m: p should be {words}, not "):
        check(value, annotation, "m: p")


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (numpy.int64(3), "int"),
        (3, "float"),
        (numpy.float32(0.5), "float | None"),
        (None, "'int | None'"),
        ("a", "Literal['a', 'b']"),
        (pathlib.Path("a"), "str | None"),
        ([1], "tuple[int, ...]"),
        (object(), "Victim | None"),
    ],
)
def test_check_keeps_what_fits(value, annotation):
    found = check(value, annotation, "m: p")
    assert found == value
    assert type(found).__module__ != "numpy"


def test_what_is_read_is_what_is_there():
    """The source as `ast` reads it, against the classes themselves."""
    import dataclasses

    from isthmus.core.catalog import FAMILIES, entries

    found = [entry for family in FAMILIES for entry in entries(family)]
    assert found
    for entry in found:
        assert entry.summary, entry.name
        fields = [field.name for field in dataclasses.fields(entry.load()) if field.init]
        assert [parameter.name for parameter in entry.parameters] == fields, entry.name
