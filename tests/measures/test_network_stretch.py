"""Lipschitz constants: products above local norms above slopes, equal where they must be, refused where unknown."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from isthmus.core.errors import UsageError
from isthmus.measures._layer_stretch import convolution_stretch
from isthmus.measures._network_stretch import (
    bottleneck_constants,
    jacobian_norms,
    lipschitz_constant,
    log_density_constant,
    log_printed_density_constant,
)
from isthmus.models.bottleneck import GaussianBottleneck


@pytest.fixture(autouse=True)
def fixed_weights():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def largest_slope(function, x: Tensor, step: float = 1e-4, directions: int = 32) -> Tensor:
    """Of finite differences in random directions at every input."""
    found = torch.zeros(len(x), dtype=x.dtype)
    for _ in range(directions):
        move = torch.randn_like(x)
        move = step * move / move.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))
        with torch.no_grad():
            found = torch.maximum(found, (function(x + move) - function(x)).flatten(1).norm(dim=1) / step)
    return found


NETWORKS = {
    "linear": (lambda: [nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 5)], (12,)),
    "convolutions": (
        lambda: [
            nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(3, 4), nn.Tanh(),
        ],
        (2, 6, 6),
    ),
    "normalised": (
        lambda: [
            nn.Conv1d(3, 4, 3, dilation=2), nn.BatchNorm1d(4), nn.ELU(), nn.AvgPool1d(2), nn.Flatten(), nn.Dropout(),
            nn.Linear(8, 3), nn.Softplus(), nn.LeakyReLU(1.5),
        ],
        (3, 8),
    ),
    "pooled": (
        lambda: [nn.Conv2d(4, 6, 3, padding="same", groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Sigmoid()],
        (4, 5, 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_the_product_is_above_local_norms_and_these_above_slopes(name):
    layers, shape = NETWORKS[name]
    network = nn.Sequential(*layers()).double().eval()
    x = torch.randn(16, *shape, dtype=torch.float64)
    found = lipschitz_constant(network, x[:1])
    local, slopes = jacobian_norms(network, x), largest_slope(network, x)
    assert found.estimate <= found.bound * (1 + 1e-9)
    assert float(local.max()) <= found.estimate * (1 + 1e-9)
    assert bool((slopes <= local * (1 + 1e-3) + 1e-9).all())
    assert float(slopes.max()) > 0.1 * float(local.max())  # Or nothing was compared.


def test_for_one_linear_layer_all_of_them_are_its_norm():
    layer = nn.Linear(7, 4).double()
    norm = float(torch.linalg.svdvals(layer.weight.detach()).max())
    x = torch.randn(5, 7, dtype=torch.float64)
    assert lipschitz_constant(layer, x).bound == pytest.approx(norm)
    assert jacobian_norms(layer, x).tolist() == pytest.approx([norm] * 5)
    direction = torch.linalg.svd(layer.weight.detach()).Vh[0]
    slope = (layer(x + 1e-3 * direction) - layer(x)).norm(dim=1) / 1e-3
    assert slope.tolist() == pytest.approx([norm] * 5)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 3, "padding": 2, "dilation": 2},
        {"kernel_size": (1, 3), "stride": (1, 2)},
        {"kernel_size": 5, "padding": "same"},
        {"kernel_size": 3, "groups": 2, "padding": "valid"},
    ],
)
def test_a_convolution_has_the_norm_of_its_operator_and_not_of_its_kernel(options):
    layer = nn.Conv2d(2, 4, **options, bias=True).double()
    shape = torch.Size((1, 2, 6, 5))
    units = torch.eye(60, dtype=torch.float64).view(60, 2, 6, 5)
    with torch.no_grad():
        matrix = (layer(units) - layer(torch.zeros_like(units))).flatten(1)
    truth = float(torch.linalg.matrix_norm(matrix, 2))
    found = convolution_stretch(layer, shape)
    assert found.estimate == pytest.approx(truth, rel=1e-4)
    assert truth <= found.bound * (1 + 1e-12)
    assert found.bound < 2.5 * truth


def test_the_reshaped_kernel_would_be_too_small():
    layer = nn.Conv2d(1, 1, 3, padding=1, bias=False).double()
    nn.init.constant_(layer.weight, 1.0)  # A blur: its kernel as a matrix has norm 3, smooth images grow ninefold.
    found = convolution_stretch(layer, torch.Size((1, 1, 20, 20)))
    assert float(layer.weight.detach().flatten(1).norm()) == pytest.approx(3.0)
    assert 8.5 < found.estimate <= found.bound == pytest.approx(9.0)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x + torch.relu(self.inner(2 * x - 1)), x.tanh()], dim=1)


def test_branches_add_up():
    network = Residual().double()
    x = torch.randn(9, 4, dtype=torch.float64)
    norm = float(torch.linalg.matrix_norm(network.inner.weight.detach(), 2))
    found = lipschitz_constant(network, x)
    assert found.bound == pytest.approx(math.hypot(1 + 2 * norm, 1))
    assert float(jacobian_norms(network, x).max()) <= found.bound
    assert [layer.name for layer in found.layers] == ["inner"]


@pytest.mark.parametrize(
    ("network", "named"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), "LayerNorm"),
        (nn.Sequential(nn.Linear(4, 4), nn.GELU()), "GELU"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train(), "Dropout in training"),
        (nn.MultiheadAttention(4, 2), "MultiheadAttention"),
    ],
)
def test_what_has_no_known_constant_is_refused_by_name(network, named):
    with pytest.raises(UsageError, match=named):
        lipschitz_constant(network, torch.zeros(2, 4))


class Applied(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: x * x, "mul"),
        (lambda x: 1.0 / x, "truediv"),
        (torch.exp, "exp"),
        (lambda x: x.mean(dim=0, keepdim=True), "mean over the batch"),
        (lambda x: x if x.sum() > 0 else -x, "cannot be followed"),
    ],
)
def test_functions_without_a_constant_are_refused(function, named):
    with pytest.raises(UsageError, match=named):
        lipschitz_constant(Applied(function), torch.zeros(2, 4))


# ---------------------------------------------------------------------- densities (Theorem 3)


@pytest.mark.parametrize("s", [0.3, 1.0, 2.5])
def test_the_largest_slopes_of_a_gaussian_density_in_one_dimension(s):
    t = torch.linspace(-12 * s, 12 * s, 100001, dtype=torch.float64)
    mean, deviation = torch.zeros((), dtype=torch.float64), torch.tensor(s, dtype=torch.float64)

    def density(mean: Tensor, deviation: Tensor) -> Tensor:
        return torch.distributions.Normal(mean, deviation).log_prob(t).exp()

    one, none = torch.ones_like(mean), torch.zeros_like(mean)
    by_mean, by_deviation = (
        torch.func.jvp(density, (mean, deviation), moved)[1] for moved in ((one, none), (none, one))
    )
    root = math.sqrt(2 * math.pi)
    assert float(by_mean.abs().max()) == pytest.approx(math.exp(-0.5) / (root * s**2), rel=1e-5)
    assert float(by_deviation.abs().max()) == pytest.approx(1 / (root * s**2), rel=1e-5)
    # In one dimension these are what the sound constant is made of.
    assert math.exp(log_density_constant(1, s, 1.0, 0.0)) == pytest.approx(math.exp(-0.5) / (root * s**2))
    assert math.exp(log_density_constant(1, s, 0.0, 1.0)) == pytest.approx(1 / (root * s**2))


def slope_of_equal_means(latent: int, s: float) -> float:
    """Largest slope of N(t; (x, …, x), s² I) as x moves, at the best t on the diagonal."""
    x = torch.linspace(-8 * s, 8 * s, 40001, dtype=torch.float64)
    density = (torch.distributions.Normal(0.0, s).log_prob(x) * latent).exp()
    return float((density.diff() / x.diff()).abs().max())


def test_theorem_3_as_printed_is_no_bound_where_deviations_are_small():
    """Four means that move together: the mean as a vector moves twice as fast as each."""
    slope = slope_of_equal_means(4, 0.3)
    printed = math.exp(log_printed_density_constant(4, 0.3, 2.0, 0.0))
    sound = math.exp(log_density_constant(4, 0.3, 2.0, 0.0))
    assert slope == pytest.approx(12.6, abs=0.05)
    assert printed == pytest.approx(3.4, abs=0.05)
    assert printed < slope < sound


@pytest.mark.parametrize(("latent", "s"), [(1, 0.2), (4, 1.0), (6, 1.7)])
def test_it_does_bound_in_one_dimension_or_for_deviations_above_one(latent, s):
    slope = slope_of_equal_means(latent, s)
    assert slope <= math.exp(log_printed_density_constant(latent, s, latent**0.5, 0.0)) * (1 + 1e-6)
    assert slope <= math.exp(log_density_constant(latent, s, latent**0.5, 0.0)) * (1 + 1e-6)


@pytest.mark.parametrize("last_relu", [True, False])
def test_the_sound_constant_holds_for_a_bottleneck(last_relu):
    bottleneck = GaussianBottleneck(6, 3, shift=-0.5, last_relu=last_relu).double().eval().requires_grad_(False)
    found = bottleneck_constants(bottleneck)
    x = torch.randn(200, 6, dtype=torch.float64)
    assert (found.least is not None) == last_relu
    assert found.whole >= max(found.mean, found.deviation)
    assert bottleneck.first is not None
    network = nn.Sequential(bottleneck.first, nn.ReLU(), bottleneck.second)
    assert found.whole == pytest.approx(lipschitz_constant(network, x).bound)

    def told(part: str, vectors: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = getattr(bottleneck(vectors), part)
        return value

    for part, constant in (("mean", found.mean), ("deviation", found.deviation)):
        local = jacobian_norms(partial(told, part), x)
        assert 0 < float(local.max()) <= constant * (1 + 1e-6)
    if found.least is None:
        return
    assert float(bottleneck(x).deviation.min()) >= found.least - 1e-6
    limit = math.exp(log_density_constant(found.latent, found.least, found.mean, found.deviation))
    t = torch.randn(60, 1, 3, dtype=torch.float64)

    def densities(each: Tensor) -> Tensor:
        code = bottleneck(each)
        return torch.distributions.Normal(code.mean, code.deviation).log_prob(t).sum(-1).exp().T

    assert 0 < float(largest_slope(densities, x, step=1e-3).max()) / math.sqrt(60) <= limit


def test_a_deviation_that_may_be_zero_has_no_constant():
    with pytest.raises(UsageError, match="only above 0"):
        log_density_constant(3, 0.0, 1.0, 1.0)
