"""Texts with odd gaps and letters, and words to put into them."""

from hypothesis import strategies as st

fragments = st.sampled_from(
    [
        "movie",
        "isn't",
        "well-known",
        " , ",
        " ",
        "  ",
        ", ",
        ".",
        " (",
        ") ",
        "great",
        "zz",
        "😀",
        " é ",
        "'s",
        "and/or",
        "\u2019",
        " \u2013 ",
        "\u201c",
        " ",
    ]
)
texts = st.lists(fragments, min_size=1, max_size=24).map("".join)
new_words = st.sampled_from(["film", "Monday", "x", "terribly", "don't", "q7", "été", "a b"])
