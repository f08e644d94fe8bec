"""What the RSMI paper reports: BERT-base on IMDB and AG News, RoBERTa-base on QNLI and in its ablations.

Its tables give the best of three runs; the standard deviations are those of its own table of stability.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A row in percent: accuracy, accuracy left by TextFooler / PWWS / BAE, and mean queries of each."""

    accuracy: float
    left: tuple[float | None, ...]
    queries: tuple[int, ...] = ()


ROWS: dict[str, dict[str, Published]] = {
    "imdb": {
        "standard": Published(90.6, (5.9, 0.6, 27.3), (440, 1227, 377)),
        "freelb": Published(92.9, (10.5, 14.2, 45.3), (909, 1400, 442)),
        "infobert": Published(92.9, (26.4, 26.8, 50.0), (1079, 1477, 458)),
        "safer": Published(91.8, (23.8, 30.9, 38.2), (1090, 1504, 618)),
        "advaug": Published(92.6, (32.0, 36.6, 52.1), (1291, 1569, 478)),
        "rsmi, nothing masked": Published(91.0, (34.9, 57.0, 58.4), (1395, 1733, 817)),
        "rsmi, average": Published(92.2, (56.4, 58.7, 80.2), (1651, 1764, 1287)),
        "rsmi, vote": Published(91.7, (77.2, 77.8, None)),
    },
    "ag_news": {
        "standard": Published(93.9, (16.8, 34.0, 81.0), (330, 352, 124)),
        "freelb": Published(95.0, (24.4, 48.2, 84.1), (383, 367, 131)),
        "infobert": Published(94.8, (19.9, 40.9, 84.9), (371, 365, 126)),
        "safer": Published(93.7, (46.3, 64.0, 80.0), (447, 379, 170)),
        "advaug": Published(93.9, (54.9, 66.0, 80.1), (465, 386, 129)),
        "rsmi, nothing masked": Published(92.6, (60.4, 75.3, 77.9), (497, 395, 203)),
        "rsmi, average": Published(92.7, (63.2, 76.1, 86.1), (503, 397, 573)),
        "rsmi, vote": Published(92.9, (85.4, 87.2, None)),
    },
    "qnli": {
        "standard": Published(91.9, (19.8, 34.0, 51.2)),
        "freelb": Published(92.1, (27.3, 37.7, 55.7)),
        "infobert": Published(91.6, (23.0, 36.5, 53.8)),
        "safer": Published(90.8, (33.8, 45.5, 49.7)),
        "rsmi, nothing masked": Published(91.5, (34.1, 46.8, 50.5)),
        "rsmi, average": Published(91.8, (49.0, 60.1, 60.6)),
        "rsmi, vote": Published(91.9, (68.0, 76.4, None)),
    },
}

RATIOS = {
    "imdb": "1.8 (BERT), 2.3 (RoBERTa)",
    "ag_news": "1.15 (BERT), 1.21 (RoBERTa)",
    "qnli": "1.45 (RoBERTa)",
}
"""RSMI's accuracy under TextFooler over that of the best baseline."""

STABILITY = {"imdb": {"freelb": "4.1 (5.6)", "infobert": "12.0 (13.2)", "rsmi, average": "55.7 (0.8)"}}
"""Accuracy left by TextFooler: mean (standard deviation) of three seeds of BERT."""

_MASKS = {
    1: ((86.65, 97.95, 99.68, 100.0), 96.55),
    2: ((76.57, 90.84, 93.11, 96.27), 83.12),
    3: ((70.05, 86.34, 90.08, 92.76), 90.81),
    4: ((65.34, 78.86, 79.74, 82.64), 81.34),
}
"""Success against random masks at k = 1, 5, 10, 50 and against gradient masks, by M."""


def random_masks(masked: int) -> tuple[float, ...]:
    """Success against random masks at k = 1, 5, 10, 50, where M words are masked."""
    return _MASKS[masked][0] if masked in _MASKS else ()


def ablations(masked: int) -> dict[str, str]:
    """What the paper has beside the rows of the ablation tables, where M words are masked."""
    random, gradient = _MASKS.get(masked, ((), None))
    return {
        **{f"sigma = {sigma}": f"success {value}" for sigma, value in ((0.2, 35.3), (0.3, 26.1), (0.4, 24.2))},
        **{f"M = {count}": f"success {value}" for count, value in ((2, 24.2), (3, 22.4), (4, 21.0))},
        **{f"random masks, k = {k}": f"success {value}" for k, value in zip((1, 5, 10, 50), random, strict=False)},
        "two steps = off": "robust accuracy 64 (AG News)" + ("" if gradient is None else f", success {gradient}"),
        "two steps = on": "robust accuracy 74.1 (AG News)",
    }
