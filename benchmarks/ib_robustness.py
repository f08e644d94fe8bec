"""The bottleneck on images: the figures of docs/results/ib-robustness.md and of the image half of docs/results/vub.md.

    python benchmarks/ib_robustness.py pack --out PACK --mnist MNIST                 data that travels in 60 MiB
    python benchmarks/ib_robustness.py --data PACK --list                            the plan, and what is done
    python benchmarks/ib_robustness.py --data PACK --runs RUNS --results RESULTS --workers 12 --deadline 500 --stop 560
    python benchmarks/ib_robustness.py --data PACK --runs RUNS --only table1 "masking mnist*"   stages, or titles
    python benchmarks/ib_robustness.py draw --out FIGURES                            Figures 1 to 4 from results/figures

PACK holds mnist and cifar10: folders with train.npz and test.npz, or what `pack` wrote of them. A unit is one training
with one seed and what one stage asks of the model (`proof/image_plan.py`). Each figure is a cell of
`RESULTS/ib_robustness.jsonl` or `RESULTS/vub_images.jsonl`, with the outcome of every image. A cell that is there is
not run again; one that is finished is on the disk at once. After --deadline nothing new is begun, after --stop what
still runs is ended; trainings go on in RUNS from their last epoch with the same command.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from isthmus.core.errors import IsthmusError
from ledger import Ledger
from proof.image_pack import pack_folder
from proof.image_plan import SEEDS, STAGES, ImageUnit, plan, wanted
from proof.image_units import ImagePlace, asked, do, is_done, loaded, size_of
from proof.workers import Ended, work_off

REPOSITORY = Path(__file__).resolve().parents[1]
_MOST = 60 * 2**20


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("work", nargs="?", choices=("run", "pack", "draw"), default="run")
    options.add_argument("--data", type=Path, help="folder with mnist and cifar10")
    options.add_argument("--runs", type=Path, default=Path("runs/ib_robustness"), help="folder of the trained models")
    options.add_argument("--results", type=Path, default=REPOSITORY / "results", help="folder of the ledger's files")
    options.add_argument(
        "--only", nargs="+", default=[], metavar="STAGE|TITLE", help=f"{', '.join(STAGES)}, or patterns"
    )
    options.add_argument("--list", action="store_true", help="print the plan instead of running it")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--workers", type=int, default=1, help="processes beside each other, on one GPU")
    options.add_argument("--deadline", type=float, help="seconds after which nothing new is begun")
    options.add_argument("--stop", type=float, help="seconds after which what still runs is ended")
    options.add_argument("--n", type=int, help="attack N images, for a quick look")
    options.add_argument("--limit", type=int, help="train on N images, for a quick look")
    options.add_argument("--epochs", type=int, help="train for N epochs, for a quick look")
    options.add_argument("--device", help="cuda or cpu")
    options.add_argument("--out", type=Path, help="pack, draw: where to write")
    options.add_argument("--mnist", type=Path, help="pack: folder with MNIST; by default the asset")
    options.add_argument("--cifar10", type=Path, help="pack: folder with CIFAR-10; by default the asset")
    options.add_argument("--train", type=int, default=20_000, help="pack: training images of CIFAR-10")
    options.add_argument("--test", type=int, default=2_000, help="pack: test images of CIFAR-10")
    return options.parse_args(words)


def main() -> None:
    began = time.monotonic()
    options = arguments()
    try:
        if options.work == "pack":
            packed(options)
            return
        if options.work == "draw":
            drawn(options)
            return
        place = place_of(options)
        units = [place.fitted(unit) for unit in wanted(plan(options.seeds), options.only)]
        if not units:
            sys.exit(f"nothing of the plan is called {', '.join(options.only)}")
        names = {"mnist" if unit.data == "mnist-whole" else unit.data for unit in units}
        if missing := sorted(name for name in names if not (place.data / name).is_dir()):
            sys.exit(f"--data {place.data} lacks {', '.join(missing)}")
        there = {page: Ledger(place.results / f"{page}.jsonl").cells() for page in {unit.page for unit in units}}
        todo = [unit for unit in units if not is_done(unit, place, there[unit.page])]
        if options.list:
            listed(units, todo, place)
            return
    except IsthmusError as error:
        sys.exit(str(error))
    print(f"{len(todo)} of {len(units)} units have something to run", flush=True)
    ended = run(todo, place, began, options)
    print(f"{len(ended.done)} done, {len(ended.failed)} failed, {len(ended.left)} left", flush=True)
    if ended.failed:
        sys.exit("failed: " + ", ".join(todo[number].title for number in ended.failed))


def place_of(options: argparse.Namespace) -> ImagePlace:
    import torch

    if options.data is None:
        sys.exit("give --data: a folder with mnist and cifar10")
    device = options.device
    if device is None:  # Asked without touching the GPU: worker processes are forked from this one.
        device = "cuda" if torch.version.cuda and Path("/dev/nvidia0").exists() else "cpu"
    return ImagePlace(
        options.data, options.runs.resolve(), options.results, options.limit, options.epochs, options.n, device
    )


def packed(options: argparse.Namespace) -> None:
    """Write MNIST as it is, and part of CIFAR-10 in few bytes."""
    if options.out is None:
        sys.exit("pack needs --out: the folder to write")
    mnist, cifar = options.mnist or asset("mnist"), options.cifar10 or asset("cifar10")
    (options.out / "mnist").mkdir(parents=True, exist_ok=True)
    for name in ("train.npz", "test.npz", "meta.json"):
        shutil.copyfile(mnist / name, options.out / "mnist" / name)
    pack_folder(cifar, options.out / "cifar10", {"train": options.train, "test": options.test})
    size = size_of(options.out)
    print(f"{options.out}: {size / 2**20:.1f} MiB")
    if size > _MOST:
        sys.exit(f"more than {_MOST >> 20} MiB: take fewer images by --train")


def drawn(options: argparse.Namespace) -> None:
    """Draw the figures of the page from what the ledger keeps."""
    from proof.image_figures import draw_figures

    if options.out is None:
        sys.exit("draw needs --out: the folder to write")
    for line in draw_figures(options.results, options.out):
        print(line)


def asset(name: str) -> Path:
    """The folder of a fetched data set."""
    from isthmus.assets import cache_folder

    folder = cache_folder() / name
    if not (folder / "train.npz").is_file():
        sys.exit(f"{name} is not here: isthmus assets fetch {name}, or say where it is by --{name}")
    return folder


def listed(units: list[ImageUnit], todo: list[ImageUnit], place: ImagePlace) -> None:
    """The plan: what is done, and an estimate of the seconds for what is not."""
    total: dict[str, float] = {}
    for unit in units:
        seconds = 0.0
        if unit in todo:
            images = place.limit or len(loaded(place.folder(unit.data), "train"))
            seconds = unit.estimate(images)
            if unit.others:
                seconds = sum(other.estimate(images) for other in unit.others)
        total[unit.stage] = total.get(unit.stage, 0.0) + seconds
        cells = len(asked(unit, place))
        print(f"{unit.title:50} {'done' if not seconds else f'about {seconds:.0f} s'} ({cells} cells)")
    for stage, seconds in total.items():
        print(f"{stage:10} about {seconds:.0f} worker-seconds")


def run(todo: list[ImageUnit], place: ImagePlace, began: float, options: argparse.Namespace) -> Ended:
    """The units beside each other."""
    deadline, stop = (None if seconds is None else began + seconds for seconds in (options.deadline, options.stop))

    def work(number: int) -> str:
        return do(todo[number], place, lambda: deadline is None or time.monotonic() < deadline)

    titles = [unit.title for unit in todo]
    return work_off(titles, work, workers=options.workers, deadline=deadline, stop=stop)


if __name__ == "__main__":
    main()
