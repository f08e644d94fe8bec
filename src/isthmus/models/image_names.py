"""Names of image networks, and folders that hold one, without loading any of them."""

from __future__ import annotations

from pathlib import Path

from isthmus.core.files import read_json

IMAGE_BACKBONES = {
    "mlp": "linear layers over pixels: 512 three times, 256 three times (IB-robustness)",
    "cnn_mlp": "two convolutions, then the same linear layers (IB-robustness, CIFAR-10)",
    "vib_mlp": "784-1024-1024, the reference network of VIB",
    "allcnn": "All-CNN-C with half its filters",
    "features": "vectors computed elsewhere, for a head alone (VUB)",
}
LIBRARIES = ("torchvision", "timm")
TASK = "images"
DESCRIPTION = "isthmus.json"


def is_image_model(folder: Path) -> bool:
    """Whether a folder holds an image classifier."""
    if not (folder / DESCRIPTION).is_file():
        return False
    described = read_json(folder / DESCRIPTION)
    return isinstance(described, dict) and described.get("task") == TASK


def is_image_backbone(name: object) -> bool:
    """Whether a name is that of an image network."""
    return isinstance(name, str) and (name in IMAGE_BACKBONES or name.split(":")[0] in LIBRARIES)
