"""The names offered by `isthmus.attacks` are the files that are there."""

import isthmus.attacks
from isthmus.core import catalog


def test_every_attack_is_offered_and_every_offer_is_kept() -> None:
    methods = {entry.class_name for entry in catalog.entries("attacks")}
    assert methods <= set(isthmus.attacks.__all__)
    for name in isthmus.attacks.__all__:
        assert getattr(isthmus.attacks, name).__name__ == name
    assert set(dir(isthmus.attacks)) == set(isthmus.attacks.__all__)
    assert isthmus.attacks.__all__ == sorted(isthmus.attacks.__all__, key=lambda name: (not name.isupper(), name))
