"""On a GPU rows of similar length share a batch, few shapes occur, and no batch is too large."""

import numpy as np
from engine_toys import BertVictim
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine import token_scoring
from isthmus.engine.requests import Score
from isthmus.engine.scoring import Asked
from isthmus.engine.token_scoring import TokenScorer, _in_pieces
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary


@given(st.lists(st.integers(1, 50), max_size=8), st.integers(1, 40))
def test_pieces_hold_everything_in_order(sizes: list[int], most: int) -> None:
    groups = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]) if sizes else []
    pieces = [np.concatenate(piece).tolist() for piece in _in_pieces(groups, most)]
    assert [row for piece in pieces for row in piece] == list(range(sum(sizes)))
    assert all(len(piece) == most for piece in pieces[:-1])


class PretendedGpu(BertVictim):
    """Packs as on a GPU, computes on the CPU, row by row."""

    device_type = "cuda"

    def launch(self, batches, *, exact=False):  # type: ignore[no-untyped-def]
        self.batches += batches
        rows = [row[mask == 1] for batch in batches for row, mask in zip(batch.ids, batch.mask, strict=True)]
        alone = [super(PretendedGpu, self).launch([token_scoring.TokenBatch(row[None])])() for row in rows]
        return lambda: np.concatenate(alone)


def test_rows_find_their_answers_again(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(token_scoring, "_MOST_TOKENS", 64)
    texts = ["movie " * count for count in (1, 3, 9, 12, 2, 30, 11, 7, 8)] * 2
    answers = []
    for victim in (BertVictim(), PretendedGpu()):
        vocabulary = Vocabulary()
        scorer = TokenScorer(victim, vocabulary, None)
        asked = [Asked(Score(Draft.of({"text": text}, vocabulary))) for text in texts]
        answers.append(np.concatenate(scorer.start(asked)()))
        packed = [batch for batch in victim.batches if batch.mask is not None]
        assert all(batch.ids.shape[1] % 8 == 0 for batch in packed)
        assert all(batch.ids.size <= 64 or len(batch.ids) <= 4 for batch in packed)
    assert np.allclose(answers[0], answers[1], atol=1e-6)
