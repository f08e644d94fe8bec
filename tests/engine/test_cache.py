import numpy as np

from isthmus.engine.cache import ScoreCache


def test_what_was_put_in_is_found() -> None:
    cache = ScoreCache(2, 1.0)
    keys = np.random.default_rng(0).integers(1, 2**63, 1000, np.uint64)
    scores = np.random.default_rng(1).random((1000, 2)).astype(np.float32)
    held, _ = cache.find(keys)
    assert not held.any()
    cache.put(keys, scores)
    held, found = cache.find(keys)
    assert held.mean() > 0.99  # a set that overflows forgets its oldest
    assert (found[held] == scores[held]).all()


def test_it_never_grows_past_its_limit_and_never_lies() -> None:
    cache = ScoreCache(1, 0.01)
    size = cache.keys.nbytes + cache.scores.nbytes
    assert size <= 0.01 * 2**20
    generator = np.random.default_rng(2)
    for _ in range(50):
        keys = np.unique(generator.integers(1, 2**63, 500, np.uint64))
        held, _ = cache.find(keys)
        cache.put(keys[~held], keys[~held, None].astype(np.float32))
        held, found = cache.find(keys)
        assert (found[held, 0] == keys[held].astype(np.float32)).all()
    assert cache.keys.nbytes + cache.scores.nbytes == size


def test_many_new_keys_of_one_set_keep_the_last_four() -> None:
    cache = ScoreCache(1, 0.0001)
    assert cache.sets <= 2
    keys = (np.arange(1, 9, dtype=np.uint64) << np.uint64(20)) + np.uint64(1)
    cache.put(keys, np.arange(8, dtype=np.float32)[:, None])
    held, found = cache.find(keys)
    assert held.tolist() == [False] * 4 + [True] * 4  # all eight belong to one set
    assert (found[held, 0] == np.flatnonzero(held)).all()


def test_what_is_held_stays_while_it_grows() -> None:
    cache, draw = ScoreCache(2, 64.0), np.random.default_rng(3)
    first, known = cache.sets, np.zeros(0, np.uint64)
    for _ in range(40):
        keys = np.unique(draw.integers(1, 2**63, 1000, np.uint64))
        cache.put(keys, np.stack([keys, ~keys], axis=1).astype(np.float32))
        known = np.concatenate([known, keys])
    held, found = cache.find(known)
    assert held.mean() > 0.99
    assert (found[held, 0] == known[held].astype(np.float32)).all()
    assert first < cache.sets < cache.most
