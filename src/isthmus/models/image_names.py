"""Names of the networks for images, known without loading any of them."""

from __future__ import annotations

IMAGE_BACKBONES = {
    "mlp": "linear layers over pixels: 512 three times, 256 three times (IB-robustness)",
    "cnn_mlp": "two convolutions, then the same linear layers (IB-robustness, CIFAR-10)",
    "vib_mlp": "784-1024-1024, the reference network of VIB",
    "allcnn": "All-CNN-C with half its filters",
    "features": "vectors computed elsewhere, for a head alone (VUB)",
}
LIBRARIES = ("torchvision", "timm")


def is_image_backbone(name: object) -> bool:
    """Whether a name is that of a network for images."""
    return isinstance(name, str) and (name in IMAGE_BACKBONES or name.split(":")[0] in LIBRARIES)
