from hypothesis import given
from hypothesis import strategies as st

from isthmus.text.words import _WORD, Words, split

texts = st.text(max_size=60) | st.text(alphabet="ab'-_*@ .,!\t\n\u00a0\u0301\U0001f600é中", max_size=40)


@given(texts)
def test_round_trip(text: str) -> None:
    assert str(Words.of(text)) == text


@given(texts)
def test_offsets_point_at_the_words(text: str) -> None:
    words = Words.of(text)
    assert [text[start:end] for start, end in words.offsets()] == list(words)
    assert len(words.gaps) == len(words) + 1


@given(texts, st.data())
def test_replacing_a_word_keeps_everything_else(text: str, data: st.DataObject) -> None:
    words = Words.of(text)
    if not len(words):
        return
    position = data.draw(st.integers(0, len(words) - 1))
    start, end = words.offsets()[position]
    assert str(words.replace({position: "X"})) == text[:start] + "X" + text[end:]


@given(st.text(alphabet=[chr(code) for code in range(128)], max_size=60))
def test_plain_text_is_split_as_any_other(text: str) -> None:
    assert Words.of(text).words == tuple(word for word in Words.of(text + " \u00e9").words if word != "\u00e9")


def test_words_are_the_standard_toolkits_words() -> None:
    assert Words.of("moore 's _don't_ well-known, 3.5% e-mail me@x.com n't --ok").words == (
        "moore", "s", "don't", "well-known", "3", "5", "e-mail", "me@x", "com", "n't", "ok",
    )  # fmt: skip


def test_scripts_with_combining_marks_keep_their_words() -> None:
    assert Words.of("हिन्दी भाषा।").words == ("हिन्दी", "भाषा")
    assert Words.of("e\u0301te\u0301 ok").words == ("e\u0301te\u0301", "ok")


def test_structural_edits() -> None:
    words = Words.of("A fine, quiet film.")
    assert str(words.delete(0)) == "fine, quiet film."
    assert str(words.delete(1)) == "A, quiet film."
    assert str(words.delete(3)) == "A fine, quiet."
    assert str(Words.of("polanski 's best").delete(1)) == "polanski ' best"
    assert str(words.insert(1, "very")) == "A very fine, quiet film."
    assert str(words.insert(0, "Such")) == "Such A fine, quiet film."
    assert str(words.merge(2, "movie")) == "A fine, movie."
    assert str(words.merge(1, "good")) == "A good, film."


@given(st.text(alphabet="ab1_'-*@ .,\n", max_size=30))
def test_plain_text_is_split_like_any_other(text: str) -> None:
    assert split(text) == _WORD.split(text)


@given(texts)
def test_words_at_either_end_leave_the_text_whole(text: str) -> None:
    words = Words.of(text)
    behind, before = str(words.append("X")), str(words.prepend("X"))
    assert behind.startswith(text)
    assert behind.removeprefix(text) in ("X", " X")
    assert before.endswith(text)
    assert before.removesuffix(text) in ("X", "X ")
