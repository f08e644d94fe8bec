import faulthandler
import os
import signal
import time

import pytest

from isthmus.core import hardware


@pytest.fixture(autouse=True)
def forget():
    hardware.bfloat16_works.cache_clear()
    yield
    hardware.bfloat16_works.cache_clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    ("child", "works"),
    [
        (lambda: os._exit(0), True),
        (lambda: os._exit(1), False),
        (lambda: (faulthandler.disable(), os.kill(os.getpid(), signal.SIGILL)), False),
        (lambda: time.sleep(60), False),
    ],
)
def test_the_fate_of_the_child_is_the_answer(child, works, monkeypatch):
    monkeypatch.setattr(hardware, "_try_product", child)
    monkeypatch.setattr(hardware, "_PATIENCE", 0.2)
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
