"""The engine gives every attack its own answers, counts what it asks for, and never lets one attack spoil another."""

import gc
import time
import weakref
from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np
import pytest
from engine_toys import BertVictim, TextVictim, roberta_tokenizer

from isthmus.core.errors import UsageError, VictimError, VictimTimeout
from isthmus.core.types import Texts
from isthmus.engine.garbage import freeze_garbage
from isthmus.engine.requests import UNKNOWN, Score, at_each, replacing
from isthmus.engine.scheduler import BudgetSpent, Engine, EngineSettings, TimeSpent
from isthmus.engine.token_scoring import TokenScorer
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

TEXTS = [
    "a gorgeous , witty , seductive movie",
    "no movement , no yuks , not much of anything .",
    "the plot is dull",
    "oil prices rose sharply on monday as supply fears grew",
    "great",
    "an unapologetic mess whose only saving grace is that it ends , really",
] * 4


class Walk:
    """Asks for the text, then for the text without each word, and returns all scores."""

    def __init__(self, name: str, texts: Texts, budget: int | None = None, rounds: int = 1) -> None:
        self.name, self.texts, self.budget, self.rounds = name, texts, budget, rounds
        self.key, self.label = hash(name) & 0xFFFF, 0
        self.told: list[str] = []

    def start(self, vocabulary: Vocabulary) -> Generator[Score, Any, list[np.ndarray]]:
        draft = Draft.of(self.texts, vocabulary)
        answers = []
        try:
            for _ in range(self.rounds):
                answers.append((yield Score(draft)))
                answers.append((yield Score(draft, at_each(np.arange(len(draft)), UNKNOWN), len(draft))))
        except (BudgetSpent, TimeSpent) as stop:
            self.told.append(type(stop).__name__)
        return answers


def run(engine: Engine, walks: list[Walk]) -> dict[str, Any]:
    return {finished.program.name: finished for finished in engine.run(walks)}  # type: ignore[attr-defined]


def walks(**options: Any) -> list[Walk]:
    return [Walk(f"w{index}", {"text": text}, **options) for index, text in enumerate(TEXTS)]


@pytest.mark.parametrize("tokenizer", [None, roberta_tokenizer()], ids=["wordpiece", "bpe"])
def test_every_answer_is_the_victims_own(tokenizer: Any) -> None:
    victim = BertVictim(tokenizer)
    finished = run(Engine(victim), walks())
    unknown = victim.tokenizer.unk_token
    for walk in walks():
        clean, blanked = finished[walk.name].value
        text = walk.texts["text"]
        draft = Draft.of(walk.texts, Vocabulary(unknown))
        expected = [{"text": draft.replace(at, UNKNOWN).texts["text"]} for at in range(len(draft))]
        assert np.allclose(clean, victim.scores([{"text": text}]), atol=1e-6)
        assert np.allclose(blanked, victim.scores(expected), atol=1e-6)


def test_results_do_not_depend_on_the_number_in_flight() -> None:
    reference = None
    for in_flight in (1, 3, 16, 256):
        engine = Engine(BertVictim(), EngineSettings(in_flight=in_flight))
        finished = run(engine, walks(rounds=2))
        flat = {name: np.concatenate(item.value).tobytes() for name, item in finished.items()}
        counts = {name: (item.logical, item.physical) for name, item in finished.items()}
        reference = reference or (flat, counts)
        assert (flat, counts) == reference


def test_queries_are_counted_and_repeats_are_not_sent() -> None:
    victim = BertVictim()
    engine = Engine(victim)
    finished = run(engine, walks(rounds=3))
    words = {walk.name: len(Draft.of(walk.texts, Vocabulary())) for walk in walks()}
    for name, item in finished.items():
        assert item.logical == 3 * (1 + words[name])
        assert item.physical <= 1 + words[name]
    statistics = engine.statistics.scores
    assert statistics.logical == sum(item.logical for item in finished.values())
    assert statistics.forwarded == victim.rows
    assert statistics.forwarded + statistics.repeated + statistics.cached == statistics.logical
    # Six distinct texts, four copies each, asked for three times.
    assert victim.rows == sum(item.physical for name, item in finished.items() if int(name[1:]) < 6)
    assert statistics.padding_waste == 0


def test_rows_of_equal_length_are_batched_together() -> None:
    victim = BertVictim()
    list(Engine(victim).run(walks()))
    assert all(batch.mask is None for batch in victim.batches)
    assert max(len(batch.ids) for batch in victim.batches) > 6


def test_a_budget_is_never_exceeded() -> None:
    for item in run(Engine(BertVictim()), walks(budget=9)).values():
        assert item.logical <= 9
        assert item.program.told == []  # the second request is answered as far as the budget reaches
    for item in run(Engine(BertVictim()), walks(budget=1)).values():
        assert (item.logical, item.program.told, len(item.value)) == (1, ["BudgetSpent"], 1)


def test_a_time_limit_ends_only_the_slow() -> None:
    def slow(text: Texts) -> float:
        time.sleep(0.02 if "mess" in text["text"] else 0)
        return 0.5

    victim = TextVictim(slow, stochastic=True)
    engine = Engine(victim, EngineSettings(time_limit=0.15, in_flight=1))
    finished = run(engine, walks(rounds=3)[:6])
    assert [item.program.told for item in finished.values()] == [[]] * 5 + [["TimeSpent"]]


def test_a_stochastic_victim_is_never_answered_from_memory() -> None:
    draws = np.random.default_rng(0)
    victim = TextVictim(lambda text: float(draws.random()), stochastic=True)
    finished = run(Engine(victim), [Walk("a", {"text": "one two"}, rounds=3), Walk("b", {"text": "one two"}, rounds=3)])
    assert len(victim.asked) == 18
    assert len(set(victim.keys)) == 18  # every query of every attack has its own stream
    first = finished["a"].value
    assert first[0] != pytest.approx(first[2])
    cached = Engine(victim, EngineSettings(cache_stochastic=True))
    victim.asked.clear()
    run(cached, [Walk("a", {"text": "one two"}, rounds=3)])
    assert len(victim.asked) == 3


def test_streams_do_not_depend_on_company() -> None:
    alone = TextVictim(lambda text: 0.5, stochastic=True)
    run(Engine(alone), [Walk("a", {"text": "one two"})])
    together = TextVictim(lambda text: 0.5, stochastic=True)
    run(Engine(together), [Walk("b", {"text": "three"}), Walk("a", {"text": "one two"})])
    own = [key for key, text in zip(together.keys, together.asked, strict=True) if "three" not in text["text"]]
    assert set(alone.keys) - set(together.keys) == set()
    assert len(own) >= len(alone.keys)


def test_a_text_that_breaks_the_victim_costs_only_its_own_attack() -> None:
    def touchy(text: Texts) -> float:
        if "yuks" in text["text"]:
            raise ValueError("I do not like yuks")
        return 0.5

    finished = run(Engine(TextVictim(touchy)), walks())
    for item in finished.values():
        if "yuks" in item.program.texts["text"]:
            assert item.value is None
            assert "I do not like yuks" in item.error
        else:
            assert item.error is None


def test_a_token_victim_that_breaks_costs_only_the_guilty_rows() -> None:
    class Touchy(BertVictim):
        def launch(self, batches: Any, *, exact: bool = False) -> Any:
            if any((batch.ids == bad).any() for batch in batches):
                raise RuntimeError("index out of range")
            return super().launch(batches, exact=exact)

    victim = Touchy()
    bad = victim.tokenizer.convert_tokens_to_ids("gorgeous")
    assert bad != victim.tokenizer.unk_token_id
    for item in run(Engine(victim), walks()).values():
        assert (item.error is not None) == ("gorgeous" in item.program.texts["text"])


def test_nan_is_an_error_never_an_answer() -> None:
    victim = TextVictim(lambda text: float("nan") if "dull" in text["text"] else 0.5)
    for item in run(Engine(victim), walks()).values():
        assert (item.error is not None and "NaN" in item.error) == ("dull" in item.program.texts["text"])


def test_a_hanging_victim_is_not_asked_again_for_each_half() -> None:
    class Hanging(TextVictim):
        calls = 0

        def scores(self, texts: Any, keys: Any = None) -> Any:
            Hanging.calls += 1
            raise VictimTimeout("no answer within 1 s")

    finished = run(Engine(Hanging(lambda text: 0.5)), walks())
    assert all("no answer" in item.error for item in finished.values())
    assert Hanging.calls == 1


def test_successes_found_in_half_precision_are_checked() -> None:
    class Half(BertVictim):
        precision = "bf16"
        exact_rows = 0

        def launch(self, batches: Any, *, exact: bool = False) -> Any:
            wait = super().launch(batches, exact=exact)
            if exact:
                Half.exact_rows += sum(len(batch.ids) for batch in batches)
                return wait
            return lambda: np.clip(wait() + np.array([0.2, -0.2], np.float32), 0, 1)

    exact, half = BertVictim(), Half()
    reference = run(Engine(exact), walks())
    engine = Engine(half, reached=lambda scores, labels: scores[:, 0] > 0.5)
    finished = run(engine, walks())
    for name, item in finished.items():
        for ours, true in zip(item.value, reference[name].value, strict=True):
            claimed = ours[:, 0] > 0.5
            assert (true[claimed, 0] > 0.5).all()  # nothing unchecked passes for a success
    statistics = engine.statistics.scores
    assert statistics.confirmed == Half.exact_rows > 0
    assert 0 < statistics.unconfirmed < statistics.confirmed


def test_claims_of_several_rounds_are_checked_together() -> None:
    class Half(BertVictim):
        precision = "bf16"
        exact_launches = 0

        def launch(self, batches: Any, *, exact: bool = False) -> Any:
            Half.exact_launches += exact
            return super().launch(batches, exact=exact)

    engine = Engine(Half(), EngineSettings(in_flight=256), reached=lambda scores, labels: scores[:, 0] > 0.5)
    finished = run(engine, walks(rounds=6))
    for name, item in run(Engine(BertVictim()), walks(rounds=6)).items():
        assert all(map(np.array_equal, item.value, finished[name].value))
    assert engine.statistics.scores.confirmed > 0
    assert Half.exact_launches < engine.statistics.rounds


def test_runs_that_take_turns_find_what_each_finds_alone() -> None:
    expected = {name: np.concatenate(item.value).tobytes() for name, item in run(Engine(BertVictim()), walks()).items()}
    words, began = Vocabulary(), time.perf_counter()
    engines = [Engine(BertVictim(), EngineSettings(in_flight=2), vocabulary=words) for _ in range(3)]
    runs = [engine.run_in_turns(walks()) for engine in engines]
    found: list[dict[str, bytes]] = [{} for _ in runs]
    waiting = list(range(len(runs)))
    while waiting:
        turn = waiting.pop(0)
        for task in runs[turn]:
            if task is None:
                waiting.append(turn)
                break
            found[turn][task.program.name] = np.concatenate(task.value).tobytes()  # type: ignore[attr-defined]
    assert found == [expected] * 3
    spent = sum(engine.statistics.total_s for engine in engines)
    assert 0 < spent <= time.perf_counter() - began


def test_what_is_asked_for_exactly_is_scored_once() -> None:
    class Half(BertVictim):
        precision = "bf16"
        asked: ClassVar[dict[bool, int]] = {True: 0, False: 0}

        def launch(self, batches: Any, *, exact: bool = False) -> Any:
            Half.asked[exact] += sum(len(batch.ids) for batch in batches)
            wait = super().launch(batches, exact=exact)
            return wait if exact else lambda: wait() * np.float32(0.5)

    class Twice:
        """Asks for a text exactly, then for the same text otherwise."""

        key, budget, label = 1, None, 0

        def start(self, vocabulary: Vocabulary) -> Any:
            draft = Draft.of({"text": "a great film"}, vocabulary)
            first = yield Score(draft, exact=True)
            return first, (yield Score(draft))

    (finished,) = Engine(Half()).run([Twice()])
    first, second = finished.value
    assert Half.asked == {True: 1, False: 1}
    assert np.array_equal(first * np.float32(0.5), second)  # The cache holds nothing of the other precision.


def test_the_vocabulary_is_renewed_without_a_trace() -> None:
    reference = run(Engine(BertVictim()), walks())
    engine = Engine(BertVictim(), EngineSettings(vocabulary_limit=20, in_flight=2))
    finished = run(engine, walks())
    assert len(engine.vocabulary) < 40
    for name, item in finished.items():
        assert np.concatenate(item.value).tobytes() == np.concatenate(reference[name].value).tobytes()


def test_an_attack_that_raises_is_an_error_of_its_own() -> None:
    class Broken(Walk):
        def start(self, vocabulary: Vocabulary) -> Any:
            yield Score(Draft.of(self.texts, vocabulary))
            raise ZeroDivisionError("oops")

    finished = run(Engine(BertVictim()), [Broken("broken", {"text": "great"}), *walks()])
    assert finished["broken"].error == "ZeroDivisionError: oops"
    assert all(item.error is None for name, item in finished.items() if name != "broken")


def test_settings_are_checked() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        EngineSettings(in_flight=0)
    with pytest.raises(UsageError, match="positive"):
        EngineSettings(time_limit=0)


def test_errors_of_a_victim_keep_their_kind() -> None:
    victim = TextVictim(lambda text: (_ for _ in ()).throw(VictimError("wrong shape")))
    finished = run(Engine(victim), walks()[:1])
    assert "wrong shape" in finished["w0"].error


def test_a_huge_request_is_served_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = run(Engine(BertVictim()), walks())
    monkeypatch.setattr(TokenScorer, "rows_at_once", lambda scorer, base: 3)
    engine = Engine(BertVictim())
    finished = run(engine, walks())
    assert engine.statistics.rounds > 4
    for name, item in finished.items():
        assert (item.logical, item.physical) == (reference[name].logical, reference[name].physical)
        for ours, whole in zip(item.value, reference[name].value, strict=True):
            assert ours.tobytes() == whole.tobytes()


def test_a_time_limit_ends_a_text_of_many_words() -> None:
    victim = TextVictim(lambda text: 0.5)
    engine = Engine(victim, EngineSettings(time_limit=0.5))
    began = time.perf_counter()
    (item,) = run(engine, [Walk("long", {"text": "word " * 100_000})]).values()
    assert item.program.told == ["TimeSpent"]
    assert time.perf_counter() - began < 20


def test_a_trace_is_told_every_query_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows_at_once in (1000, 3):
        monkeypatch.setattr(TokenScorer, "rows_at_once", lambda scorer, base, most=rows_at_once: most)
        told: dict[int, list[tuple[str, bytes]]] = {}

        def trace(key: int, texts: Texts, scores: Any, told: Any = told) -> None:
            told.setdefault(key, []).append((texts["text"], scores.tobytes()))

        finished = run(Engine(BertVictim(), EngineSettings(trace=trace)), walks(rounds=2)[:6])
        for item in finished.values():
            own = told[item.program.key]
            assert len(own) == item.logical
            assert b"".join(scores for _, scores in own) == np.concatenate(item.value).tobytes()
            draft = Draft.of(item.program.texts, Vocabulary())
            expected = [draft, *(draft.replace(at, UNKNOWN) for at in range(len(draft)))] * 2
            assert [text for text, _ in own] == [text.texts["text"] for text in expected]


def test_a_request_that_fits_in_part_is_answered_in_part() -> None:
    texts = {"text": "a great movie with a dull plot"}

    class Blanks(Walk):
        def start(self, vocabulary: Vocabulary) -> Generator[Any, Any, Any]:
            draft = Draft.of(self.texts, vocabulary)
            answers = []
            for _ in range(2):
                request = Score(draft, at_each(np.arange(7, dtype=np.int32), 1), 7)
                try:
                    answers.append((yield request))
                except BudgetSpent:
                    break
                assert request.asked == min(7, self.budget - 7 * (len(answers) - 1))
            return answers

    for budget in (3, 7, 10, 14):
        victim = TextVictim(lambda text: 0.7)
        (item,) = Engine(victim, EngineSettings(cache_megabytes=0)).run([Blanks("one", texts, budget)])
        assert item.logical == budget == len(victim.asked)
        scores = np.concatenate(item.value)
        assert len(scores) == (7 if budget <= 7 else 14)
        assert np.allclose(scores[:budget, 1], 0.7)
        # What was not asked about is certain of the label (0 here).
        assert np.array_equal(scores[budget:], np.tile([1.0, 0.0], (len(scores) - budget, 1)))


def test_attacks_that_ask_for_much_end_one_after_the_other() -> None:
    reference = run(Engine(BertVictim()), walks(rounds=2))
    engine = Engine(BertVictim())
    engine.tokens_at_once = 150
    finished = [item.program.name for item in engine.run(walks(rounds=2)[:6])]  # type: ignore[attr-defined]
    assert finished == [f"w{index}" for index in range(6)]
    again = run(engine, walks(rounds=2))
    assert engine.statistics.rounds > 20
    for name, item in again.items():
        assert np.concatenate(item.value).tobytes() == np.concatenate(reference[name].value).tobytes()


def test_a_process_that_attacks_again_and_again_keeps_no_garbage():
    class Circle:
        def __init__(self):
            self.itself = self

    gc.collect()
    before = weakref.ref(Circle())
    with freeze_garbage():
        within = weakref.ref(Circle())
        lasting = Circle()
        frozen = gc.get_freeze_count()
    assert frozen > 1000
    assert gc.get_freeze_count() == 0
    assert (before(), within()) == (None, None)
    assert lasting.itself is lasting


def test_a_large_request_does_not_hold_up_smaller_ones() -> None:
    """A long text that asks for every word waits for nobody, and the short ones behind it move in the same round."""
    engine = Engine(TextVictim(lambda text: 0.7))
    engine.tokens_at_once = 100
    long = [Walk(f"long{index}", {"text": f"word{index} " * 40}) for index in range(4)]
    short = [Walk(f"short{index}", {"text": f"word{index} two three"}) for index in range(8)]
    ended = [item.program.name for item in engine.run([*long, *short])]  # type: ignore[attr-defined]
    assert engine.statistics.rounds <= 13  # 16 where a request that is too large ends the round.
    assert ended.index("short0") < ended.index("long1")


class Steps:
    """Asks about the words one by one, several spellings each and two words at once, and returns all scores."""

    key, label = 1, 0

    def __init__(self, name: str, texts: Texts, budget: int | None = None) -> None:
        self.name, self.texts, self.budget = name, texts, budget

    def start(self, vocabulary: Vocabulary) -> Generator[Score, Any, list[np.ndarray]]:
        draft = Draft.of(self.texts, vocabulary)
        answers = [(yield Score(draft, at_each(np.arange(len(draft)), UNKNOWN), len(draft)))]
        try:
            for at in range(len(draft)):
                words = vocabulary.ids(["x", "unbelievable"])
                pair = np.array([(2, at, 1, words[0]), (2, len(draft) - 1, 1, words[1])], np.int32)
                edits = np.concatenate([replacing(at, words), pair]) if at < len(draft) - 1 else replacing(at, words)
                answers.append((yield Score(draft, edits, int(edits[-1, 0]) + 1)))
                if at == 30:  # From here on another text, that differs where the victim reads.
                    draft = draft.replace(0, int(words[0]))
        except BudgetSpent:
            pass
        return answers


@pytest.mark.parametrize("tokenizer", [None, roberta_tokenizer()], ids=["wordpiece", "bpe"])
@pytest.mark.parametrize("options", [{}, {"cache_megabytes": 0}], ids=["cache", "none"])
@pytest.mark.parametrize("budget", [None, 150])
def test_words_that_the_victim_does_not_read_are_answered_without_a_round(
    tokenizer: Any, options: Any, budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join([*TEXTS[1].split(), *TEXTS[3].split()] * 5)
    found, rounds = [], []
    for known in (TokenScorer.find_known, lambda self, request: None):
        monkeypatch.setattr(TokenScorer, "find_known", known)
        engine = Engine(BertVictim(tokenizer), EngineSettings(**options))
        (item,) = run(engine, [Steps("one", {"text": text}, budget)]).values()  # type: ignore[list-item]
        found.append((item.logical, item.physical, engine.statistics.scores.logical, item.error))
        found.append([answer.tobytes() for answer in item.value])
        rounds.append(engine.statistics.rounds)
    assert found[:2] == found[2:]
    assert rounds[0] < rounds[1] - 20 if tokenizer is None and budget is None else rounds[0] <= rounds[1]
