"""Networks that turn an image, or a vector of features, into one vector.

    mlp        flat pixels -> 512 -> 512 -> 512 -> 256 -> 256 -> 256                    (IB-robustness, N = 3)
    cnn_mlp    3x3 convolutions with 32 and 64 filters, each halving the image -> the same MLP
    vib_mlp    flat pixels -> 1024 -> 1024                                              (the reference net of VIB)
    allcnn     All-CNN-C with half its filters: nine convolutions, two of them halving the image, and a mean over places
    features   vectors that another network computed, as they are                       (the setting of VUB)

Every layer but the last of `features` is followed by a relu. Pixels come in [0, 1] and are rescaled to [-1, 1] here,
so that whoever attacks or certifies a model speaks of pixels alone. ``torchvision:NAME`` and ``timm:NAME`` are the
networks of those libraries, where they are installed, with fresh weights and without their last layer.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from isthmus.core.errors import ModelError, UnknownName, UsageError
from isthmus.models.image_names import LIBRARIES


class ImageBackbone(nn.Module):
    """Base class of image networks; `options` must return the arguments that build it again."""

    form: ClassVar[str]
    pooled_size: int

    def options(self) -> dict[str, Any]:
        """JSON-ready keyword arguments of the constructor, besides the shape."""
        return {}

    def forward(self, pixels: Tensor) -> Tensor:
        """One vector per image [batch, pooled_size]."""
        vectors: Tensor = self.layers(2 * pixels - 1)
        return vectors

    layers: nn.Module


class MLP(ImageBackbone):
    """Linear layers with relus between them."""

    form = "mlp"
    usual: ClassVar[tuple[int, ...]] = (512, 512, 512, 256, 256, 256)

    def __init__(self, shape: Sequence[int], widths: Sequence[int] | None = None) -> None:
        super().__init__()
        self.widths = _sizes("widths", self.usual if widths is None else widths)
        self.pooled_size = self.widths[-1]
        self.layers = nn.Sequential(nn.Flatten(), *_make_linear(math.prod(shape), self.widths))

    def options(self) -> dict[str, Any]:
        """Widths of the layers."""
        return {"widths": list(self.widths)}


class VIBMLP(MLP):
    """The reference net of VIB."""

    form = "vib_mlp"
    usual = (1024, 1024)


class CNNMLP(ImageBackbone):
    """Two convolutions and an MLP."""

    form = "cnn_mlp"

    def __init__(
        self, shape: Sequence[int], filters: Sequence[int] = (32, 64), widths: Sequence[int] = MLP.usual
    ) -> None:
        super().__init__()
        self.filters, self.widths = _sizes("filters", filters), _sizes("widths", widths)
        self.pooled_size = self.widths[-1]
        channels, height, width = _image(shape, self.form)
        parts: list[nn.Module] = []
        for own in self.filters:
            parts += [_make_convolution(channels, own, 3, stride=2), nn.ReLU()]
            channels, height, width = own, -(-height // 2), -(-width // 2)
        self.layers = nn.Sequential(*parts, nn.Flatten(), *_make_linear(channels * height * width, self.widths))

    def options(self) -> dict[str, Any]:
        """Filters and widths of the layers."""
        return {"filters": list(self.filters), "widths": list(self.widths)}


class AllCNN(ImageBackbone):
    """Convolutions only (Springenberg et al., 2015); the mean over places replaces pooling layers."""

    form = "allcnn"

    def __init__(self, shape: Sequence[int], width: int = 48) -> None:
        super().__init__()
        (self.width,) = _sizes("width", (width,))
        channels, wide = _image(shape, self.form)[0], 2 * self.width
        plan = [(self.width, 3, 1), (self.width, 3, 1), (self.width, 3, 2)]
        plan += [(wide, 3, 1), (wide, 3, 1), (wide, 3, 2), (wide, 3, 1), (wide, 1, 1)]
        parts: list[nn.Module] = []
        for filters, size, stride in plan:
            parts += [_make_convolution(channels, filters, size, stride), nn.ReLU()]
            channels = filters
        self.layers = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.pooled_size = wide

    def options(self) -> dict[str, Any]:
        """The number of filters."""
        return {"width": self.width}


class FeatureBackbone(ImageBackbone):
    """Returns vectors unchanged."""

    form = "features"

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        if len(shape) != 1:
            raise UsageError(f"features reads vectors, and these are images of shape {tuple(shape)}: take mlp")
        self.pooled_size = int(shape[0])

    def forward(self, pixels: Tensor) -> Tensor:
        """The input vectors."""
        return pixels


class LibraryNetwork(ImageBackbone):
    """A network of torchvision or timm, without its last layer."""

    form = "library"

    def __init__(self, shape: Sequence[int], name: str) -> None:
        super().__init__()
        self.name = name
        library, _, own = name.partition(":")
        channels = _image(shape, name)[0]
        build = {"torchvision": _torchvision, "timm": _timm}.get(library)
        if build is None:
            raise ModelError(f"a network of a library is named torchvision:NAME or timm:NAME, not {name!r}")
        self.layers, self.pooled_size = build(own, channels)

    def options(self) -> dict[str, Any]:
        """Name of the network."""
        return {"name": self.name}


FORMS: dict[str, type[ImageBackbone]] = {
    kind.form: kind for kind in (MLP, CNNMLP, VIBMLP, AllCNN, FeatureBackbone, LibraryNetwork)
}
NAMES = tuple(name for name in FORMS if name != LibraryNetwork.form)


def create_backbone(name: str, shape: Sequence[int]) -> ImageBackbone:
    """Make an untrained network by its name."""
    if name.split(":")[0] in LIBRARIES:
        return LibraryNetwork(shape, name)
    if name not in NAMES:
        raise UnknownName("network for images", name, (*NAMES, "torchvision:…", "timm:…"))
    return FORMS[name](shape)


def build_backbone(form: str, shape: Sequence[int], options: Mapping[str, Any]) -> ImageBackbone:
    """Make an untrained network from a folder's description."""
    if form not in FORMS:
        raise ModelError(f"this version of isthmus has no network for images called {form!r}")
    try:
        return FORMS[form](shape, **options)
    except TypeError as error:
        raise ModelError(f"the network {form} cannot be built from {dict(options)!r}: {error}") from error


def _make_linear(size: int, widths: Sequence[int]) -> list[nn.Module]:
    parts: list[nn.Module] = []
    for width in widths:
        parts += [initialise(nn.Linear(size, width)), nn.ReLU()]
        size = width
    return parts


def _make_convolution(channels: int, filters: int, size: int, stride: int = 1) -> nn.Module:
    return initialise(nn.Conv2d(channels, filters, size, stride, padding=size // 2))


def initialise(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """Initialise with Xavier's weights and zero bias, as VIB's reference code does."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _image(shape: Sequence[int], name: str) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise UsageError(f"{name} reads images, and these are vectors of {shape[0]} numbers: take mlp or features")
    return int(shape[0]), int(shape[1]), int(shape[2])


def _sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    if not values or any(not isinstance(value, int) or isinstance(value, bool) or value < 1 for value in values):
        raise UsageError(f"{name} are positive whole numbers, not {list(values)}")
    return tuple(values)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"a network of {name} needs {name}: pip install {name}") from error


def _torchvision(name: str, channels: int) -> tuple[nn.Module, int]:
    models = _library("torchvision.models")
    if name not in models.list_models():
        raise UnknownName("network of torchvision", name, models.list_models())
    network: nn.Module = models.get_model(name, weights=None)
    _take_channels(network, channels, name)
    place, last = [(place, part) for place, part in network.named_modules() if isinstance(part, nn.Linear)][-1]
    parent, _, own = place.rpartition(".")
    setattr(network.get_submodule(parent), own, nn.Identity())
    return network, last.in_features


def _take_channels(network: nn.Module, channels: int, name: str) -> None:
    """Replace the first convolution by one with the images' number of channels."""
    place, first = next((item for item in network.named_modules() if isinstance(item[1], nn.Conv2d)), ("", None))
    if first is None:
        raise UsageError(f"{name} does not begin with a convolution: choose another network")
    assert isinstance(first, nn.Conv2d)
    if first.in_channels == channels:
        return
    fresh = nn.Conv2d(
        channels, first.out_channels, first.kernel_size, first.stride, first.padding, first.dilation,  # type: ignore[arg-type]
        bias=first.bias is not None,
    )  # fmt: skip
    parent, _, own = place.rpartition(".")
    setattr(network.get_submodule(parent), own, fresh)


def _timm(name: str, channels: int) -> tuple[nn.Module, int]:
    timm = _library("timm")
    if not timm.is_model(name):
        raise UnknownName("network of timm", name, timm.list_models())
    network = timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels)
    return network, int(network.num_features)
