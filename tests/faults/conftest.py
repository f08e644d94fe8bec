"""The laboratory, made once for all tests of a process."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from fork_server import Server
from laboratory import SEED, Laboratory


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with Server() as server:
        yield Laboratory(server, tmp_path_factory.mktemp("laboratory"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of this test alone."""
    return random.Random(f"{SEED} {request.node.name}")
