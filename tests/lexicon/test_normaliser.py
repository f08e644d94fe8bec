"""What a normaliser undoes, what it must leave alone, and that doing it twice changes nothing."""

from __future__ import annotations

import random
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.errors import UnknownName
from isthmus.lexicon.confusables import DELETION, DIRECTION_MARKS, HOMOGLYPHS, INVISIBLE, LEET, swap
from isthmus.lexicon.normaliser import Normaliser, NormaliserSteps, find_known_words
from isthmus.lexicon.spelling import SHORTEST, Speller, one_edit_apart

WORDS = ("the", "free", "great", "movie", "password", "elite", "sale", "money", "site", "mp3", "don't", "well", "known")
READ = Normaliser(words=WORDS)
SPELLED = Normaliser(NormaliserSteps(spelling=True), WORDS)
NOTHING = NormaliserSteps(form="none", deletion="keep", invisible=False, confusables=False, leet=False)

HOSTILE = st.text(
    st.sampled_from(
        [
            *"greatmovi fr33 $a1e T H.,!@'",
            *"éßñЖЯюλωह्निسل中ไ",
            *INVISIBLE,
            *DIRECTION_MARKS,
            DELETION,
            *"𝟕ⅼｍﬁ²½…\u0301\u0336\ufe0f\U0001f469\U0001f4bb\U000e0041\u3164\n\t\x00",
            *(look for looks in HOMOGLYPHS.values() for look in looks),
        ]
    ),
    max_size=30,
)


@given(HOSTILE)
def test_twice_is_once(text: str) -> None:
    for reader in (READ, SPELLED):
        once = reader(text)
        assert reader(once) == once


@given(st.text(string.printable, max_size=40))
def test_printable_ascii_is_not_touched_by_the_steps_of_unicode(text: str) -> None:
    text = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
    assert Normaliser(NormaliserSteps(leet=False))(text) == text
    assert Normaliser(NormaliserSteps(leet=True))(text) == text  # knows no word, so none can come out


@given(HOSTILE)
def test_without_steps_nothing_happens(text: str) -> None:
    assert Normaliser(NOTHING, WORDS)(text) == text


@pytest.mark.parametrize("word", ["great", "movie", "Password"])
def test_every_disguise_of_a_word_is_undone(word: str) -> None:
    for at in range(len(word)):
        for mark in (*INVISIBLE, *DIRECTION_MARKS):
            assert READ(f"a {word[:at]}{mark}{word[at:]}") == f"a {word}"
        for look in HOMOGLYPHS.get(word[at], ()):
            assert READ(f"a {word[:at]}{look}{word[at + 1 :]}") == f"a {word}"
        assert READ(f"a {word[:at]}x{DELETION}{word[at:]}") == f"a {word}"
        if at + 1 < len(word):
            assert READ(f"a {word[:at]}{swap(word[at], word[at + 1])}{word[at + 2 :]}") == f"a {word}"
    whole = "".join(HOMOGLYPHS[letter][0] for letter in word)
    assert READ(f"this is a {whole} thing") == f"this is a {word} thing"


def test_deletions_three_ways() -> None:
    text = f"a grx{DELETION}eat"
    assert Normaliser(NormaliserSteps())(text) == "a great"
    assert Normaliser(NormaliserSteps(deletion="strip"))(text) == "a grxeat"
    assert Normaliser(NormaliserSteps(deletion="keep"))(text) == text
    assert Normaliser(NormaliserSteps())(f"{DELETION}{DELETION}a") == "a"


@pytest.mark.parametrize(
    "text",
    [
        "Москва и рост",  # Russian, of which one word is all look-alikes
        "ορος και νερο",  # Greek
        "হিন্দি",
        "क्\u200dष और नहीं",  # a joiner that Devanagari needs
        "می\u200cخواهم",  # a non-joiner that Persian needs
        "\U0001f469\u200d\U0001f4bb wrote it",  # one emoji of two, joined
        "❤\ufe0f",
        "中文 and English",
        "naïve café Škoda Þór",
        "a μ of 3 and Δν",
    ],
)
def test_other_scripts_stay_what_they_are(text: str) -> None:
    assert READ(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ﬁne ｇｒｅａｔ 𝐠𝐫𝐞𝐚𝐭", "fine great great"),
        ("d̶e̶a̶d̶", "dead"),
        ("don’t", "don't"),
        ("\u200b\u2060\ufeff", ""),
        ("a\U000e0068\U000e0069b", "ab"),
        ("g\u200dr\u200ceat", "great"),
        ("", ""),
    ],
)
def test_what_unicode_hides(text: str, read: str) -> None:
    assert READ(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("fr33 m0n3y!", "free money!"),
        ("Gr3@t, $ale", "Great, sale"),
        ("FR33", "FREE"),
        ("p4$$w0rd?", "password?"),
        ("311te", "elite"),
        ("f.r.e.e (m-o-v-i-e)", "free (movie)"),
        ("t#e m0v1e", "the movie"),
        ("|ree fre3 $ite sa|e,", "|ree free site sale,"),
        ("!te +he 'm0ney+ #igh well-kn0wn", "!te the 'money+ #igh well-known"),
        ("e|ite! (m0vie) @movie", "elite! (movie) @movie"),
        ("si+e s!te grea+ mov!e!", "site site great movie!"),
        ("#is h1s", "#is h1s"),
        ("d0n't", "don't"),
    ],
)
def test_leet_is_undone_where_it_gives_a_known_word(text: str, read: str) -> None:
    assert READ(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "2020 3.5 100% $5 10:30 1/2 (555) 1234",
        "1st 2nd 10th 90s 10k 5pm 3d 20gb",
        "mp3 Mp3!",
        "http://fr33-m0v1e.com www.s1te.org fr33@site.com s1te.com/m0v1e",
        "@m0v1e #gr3at",
        "b4 x9z h3zz0",
        "great! (great) $great",
        "U.S.A and N.A.S.A",
        "covid-19 e=mc2",
    ],
)
def test_leet_leaves_numbers_addresses_and_the_rest_alone(text: str) -> None:
    assert READ(text) == text
    assert SPELLED(text) == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a graet movei", "a great movie"),
        ("a gret moviee", "a great movie"),
        ("a grXat Mpvie.", "a great Movie."),
        ("passwrd", "password"),
        ("MOVEI GRAET", "MOVEI GRAET"),
        ("frre", "free"),
        ("teh fre", "teh fre"),
        ("www.graet.com #graet", "www.graet.com #graet"),
        ("well-knwon", "well-known"),
        ("gr3eat", "gr3eat"),
    ],
)
def test_spelling(text: str, read: str) -> None:
    assert SPELLED(text) == read
    assert READ(text) == text


@given(st.text("abcd", max_size=6), st.text("abcd", max_size=6))
def test_one_edit_is_one_edit(a: str, b: str) -> None:
    edits = {a[:at] + a[at + 1 :] for at in range(len(a))}
    edits |= {a[:at] + letter + a[at + cut :] for at in range(len(a) + 1) for letter in "abcd" for cut in (0, 1)}
    edits |= {a[:at] + a[at + 1] + a[at] + a[at + 2 :] for at in range(len(a) - 1)}
    assert one_edit_apart(a, b) == (b in edits - {a})
    assert one_edit_apart(a, b) == one_edit_apart(b, a)


def test_the_filing_finds_what_a_search_through_all_words_finds() -> None:
    stream = random.Random(0)
    words = list(dict.fromkeys("".join(stream.choices("abcde", k=stream.randint(3, 7))) for _ in range(300)))
    speller = Speller(words)
    for _ in range(300):
        word = "".join(stream.choices("abcde", k=stream.randint(2, 8)))
        wanted = next((known for known in words if one_edit_apart(word, known)), None)
        if word in words or len(word) < SHORTEST:
            wanted = None
        assert speller.nearest(word) == wanted


def test_known_words_are_counted_in_texts_as_they_are_shown() -> None:
    texts = ["The gr\u200beat movie", "a great mp3, a movie", "the mp3 2020 2020"]
    assert find_known_words(texts, NormaliserSteps(), most=10, min_count=2) == ("a", "great", "movie", "mp3", "the")
    assert find_known_words(texts, NormaliserSteps(), most=2, min_count=1) == ("a", "great")


def test_signs_stand_for_every_letter_they_are_written_for() -> None:
    letters = "".join(letter for letter, signs in LEET.items() if "1" in signs)
    assert letters == "il"
    assert Normaliser(words=("lit",))("11t") == "lit"
    assert Normaliser(words=("lit", "iit"))("1it") == "lit"


@pytest.mark.parametrize("wrong", [{"form": "NFKD"}, {"deletion": "undo"}])
def test_unknown_steps(wrong: dict[str, str]) -> None:
    with pytest.raises(UnknownName):
        NormaliserSteps(**wrong)  # type: ignore[arg-type]
