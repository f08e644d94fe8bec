import re
from typing import Any

import pytest

from isthmus.core import errors


def test_the_drawn_tree_is_the_real_one():
    drawn = {}
    stack: list[Any] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^ {4}([│├└─ ]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            del stack[depth:]
            drawn[found[2]] = stack[-1] if stack else "Exception"
            stack.append(found[2])
    real = {
        name: value.__base__.__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, Warning)
    }
    assert drawn == real


@pytest.mark.parametrize(
    ("name", "known", "sentence"),
    [
        ("textfoler", ["textfooler", "pwws"], "no attack named 'textfoler'. Did you mean 'textfooler'?"),
        ("TextFoler", ["textfooler", "pwws"], "no attack named 'TextFoler'. Did you mean 'textfooler'?"),
        ("zzz", ["b", "a"], "no attack named 'zzz'. Known: a, b."),
        ("zzz", [], "no attack named 'zzz'."),
    ],
)
def test_unknown_names(name, known, sentence):
    assert str(errors.UnknownName("attack", name, known)) == sentence


def test_long_lists_are_cut():
    assert str(errors.UnknownName("word", "zzzzz", map(str, range(100)))).endswith(", ….")


def test_missing_extra_says_what_to_install():
    assert str(errors.MissingExtra("jinja2", "report", "a report")) == (
        "a report needs jinja2: pip install 'isthmus[report]'"
    )
