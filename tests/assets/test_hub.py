import urllib.error
import urllib.request
from email.message import Message

import huggingface_hub.constants
import pytest

from isthmus.assets import hub


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for switch in hub._OFFLINE_SWITCHES:
        monkeypatch.delenv(switch, raising=False)
    hub._is_reachable.cache_clear()
    yield
    hub._is_reachable.cache_clear()


def answer(monkeypatch, result):
    asked = []

    def urlopen(request, timeout):
        asked.append(timeout)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return asked


def test_asked_once_and_briefly(monkeypatch):
    asked = answer(monkeypatch, urllib.error.URLError("no route"))
    assert not hub.reachable()
    assert not hub.reachable()
    assert len(asked) == 1
    assert asked[0] < 10


def test_an_error_page_is_an_answer(monkeypatch):
    answer(monkeypatch, urllib.error.HTTPError("x", 403, "no", Message(), None))
    assert hub.reachable()


@pytest.mark.parametrize("switch", hub._OFFLINE_SWITCHES)
def test_switches_keep_it_offline(monkeypatch, switch):
    asked = answer(monkeypatch, urllib.error.URLError("x"))
    monkeypatch.setenv(switch, "1")
    assert not hub.reachable()
    assert asked == []


def test_offline_only_inside(monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda: False)
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    with hub.patient_only_if_reachable():
        assert huggingface_hub.constants.HF_HUB_OFFLINE
    assert before == huggingface_hub.constants.HF_HUB_OFFLINE
    monkeypatch.setattr(hub, "reachable", lambda: True)
    with hub.patient_only_if_reachable():
        assert before == huggingface_hub.constants.HF_HUB_OFFLINE


def test_bars_are_put_back():
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled

    before = are_progress_bars_disabled()
    with hub.without_bars():
        assert are_progress_bars_disabled()
    assert are_progress_bars_disabled() == before
