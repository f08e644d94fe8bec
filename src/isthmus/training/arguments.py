"""Arguments of the Hugging Face Trainer, and what it must not print.

This module is imported only to train: the Trainer takes seconds to load.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import TrainingArguments

from isthmus.core.errors import UsageError
from isthmus.training import processes
from isthmus.training.settings import TrainingSettings


def make_arguments(
    settings: TrainingSettings, folder: Path, device: str | None, *, epochs: int = 1, seed: int = 0
) -> TrainingArguments:
    """Make the Trainer's arguments; this joins the process group if there is one."""
    present = torch.accelerator.current_accelerator(check_available=True)
    offered = ["cpu"] if present is None else ["cpu", present.type]
    if device is not None and device.split(":")[0] not in offered:
        raise UsageError(f"no {device} here: this machine offers {' and '.join(offered)}")
    cpu = device == "cpu" or present is None
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        seed=seed,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        max_grad_norm=settings.max_grad_norm,
        train_sampling_strategy="group_by_length" if settings.group_by_length else "random",
        logging_strategy="no",
        eval_strategy="no",
        save_strategy="no",
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        dataloader_pin_memory=not cpu,
        disable_tqdm=True,
        report_to="none",
        log_level="error",
        log_level_replica="error",
        use_cpu=cpu,
        ddp_backend="gloo" if cpu and processes.count() > 1 else None,
        # Losses do not pass through the wrapper, so it must not wonder which parameters they used.
        ddp_find_unused_parameters=False,
    )
    if arguments.mixed_precision == "fp16":
        raise UsageError("mixed precision fp16 (asked for by accelerate's configuration) is refused: use bf16 or no")
    # Autocast is the walk's business: it must cover what a defence computes around the model as well.
    arguments.mixed_precision = "no"
    if arguments.n_gpu > 1:
        # One process trains on one device; several devices take several processes (accelerate launch, torchrun).
        arguments._n_gpu = 1
    return arguments


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Inside, messages of the libraries are hidden; transformers' verbosity is restored afterwards."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="OMP_NUM_THREADS")
        try:
            yield
        finally:
            logging.set_verbosity(level)
