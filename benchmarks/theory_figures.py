"""Draw the theory of the IB-robustness paper as SVG and PNG: Theorem 1's two Gaussians, and bounds beside the truth.

python benchmarks/theory_figures.py --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from isthmus.measures import Theorems
from isthmus.report.measure.figure import save


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=Path("figures"))
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for plot in Theorems().plots(chosen.seed):
        for path in save(plot, chosen.out / plot.name):
            print(path)
        print(plot.caption)


if __name__ == "__main__":
    main()
