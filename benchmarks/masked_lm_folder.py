"""Writes the masked language model that isthmus ships (MiniLM and its head) as a transformers folder for others.

python benchmarks/masked_lm_folder.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path


def write(folder: Path) -> Path:
    """A folder that `AutoModelForMaskedLM` loads, with the same weights as `minilm` in isthmus."""
    from isthmus.auxiliary.minilm_mlm import load_minilm_mlm

    if not (folder / "model.safetensors").exists():
        from transformers import AutoTokenizer

        from isthmus import assets

        model = load_minilm_mlm()
        model.config.architectures = ["BertForMaskedLM"]
        AutoTokenizer.from_pretrained(assets.path("minilm")).save_pretrained(folder)
        model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]))
