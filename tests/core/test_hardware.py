import faulthandler
import os
import signal
import time

import pytest
import torch

from isthmus.core import hardware


@pytest.fixture(autouse=True)
def forget():
    hardware.bfloat16_works.cache_clear()
    yield
    hardware.bfloat16_works.cache_clear()


def crash() -> None:
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    ("child", "works", "hangs"),
    [
        (lambda: os._exit(0), True, False),
        (lambda: os._exit(1), False, False),
        (crash, False, False),
        (lambda: time.sleep(60), False, True),
    ],
)
def test_the_fate_of_the_child_is_the_answer(child, works, hangs, monkeypatch):
    monkeypatch.setattr(hardware, "_try_product", child)
    # On a busy machine a child that ends may take its time; only the one that hangs has to be cut short.
    monkeypatch.setattr(hardware, "_PATIENCE", 0.2 if hangs else 60)
    children: list[int] = []
    fork = os.fork

    def remember() -> int:
        if pid := fork():
            children.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", remember)
    assert hardware.bfloat16_works("cpu") is works
    (pid,) = children
    with pytest.raises(ChildProcessError):  # Its end was waited for: nothing is left behind.
        os.waitpid(pid, os.WNOHANG)


def test_it_answers_here_without_ending_the_process():
    assert hardware.bfloat16_works("cpu") in (True, False)
    assert hardware.has_fast_bfloat16("cpu") <= hardware.bfloat16_works("cpu")
    assert hardware.has_fast_bfloat16("mps") is False
    assert hardware.attacks_faster_in_bfloat16("cpu") <= hardware.bfloat16_works("cpu")
    assert hardware.attacks_faster_in_bfloat16("cuda") is False


@pytest.mark.parametrize("has", [True, False])
def test_attacks_gain_where_vector_instructions_have_bfloat16(has: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has, raising=False)
    monkeypatch.setattr(hardware, "bfloat16_works", lambda device: True)
    assert hardware.attacks_faster_in_bfloat16("cpu") is has
