"""A Gaussian density q(t | x) that is fitted while it is used: the auxiliary network of CLUB.

    q(t | x) = N(mean(x), diag exp(log_variance(x))),     log_variance bounded by tanh
    estimate = E[ log q(t | x) ] - E[ log q(t' | x) ]     t' of a random other token

Before every estimate it takes one step of its own Adam on the likelihood of detached samples. The moments of that Adam
are buffers, so that a checkpoint holds them. Processes that train together fit one density.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isthmus.arithmetic.randomness import BatchStream
from isthmus.information.mutual_information import gaussian_log_density, partners

_BETAS = (0.9, 0.999)


class AuxiliaryGaussian(nn.Module):
    """Two small networks for mean and log-variance, with a training of their own."""

    def __init__(self, inputs: int, outputs: int, learning_rate: float = 1e-3) -> None:
        super().__init__()
        width = max(1, outputs // 2)
        self.mean = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))
        self.log_variance = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs), nn.Tanh())
        # The model's optimiser must leave it alone.
        self.requires_grad_(False)
        self.learning_rate = learning_rate
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        for index, parameter in enumerate(self.parameters()):
            self.register_buffer(f"first_{index}", torch.zeros_like(parameter))
            self.register_buffer(f"second_{index}", torch.zeros_like(parameter))

    def forward(self, inputs: Tensor, outputs: Tensor, mask: Tensor, stream: torch.Generator | BatchStream) -> Tensor:
        """Fit to the tokens that the mask selects, then estimate; gradients flow to the inputs and outputs."""
        with torch.autocast(inputs.device.type, enabled=False):
            x, t = (part.float().reshape(-1, part.shape[-1]) for part in (inputs, outputs))
            weight = mask.reshape(-1).float()
            if self.training:
                self._fit(x.detach(), t.detach(), weight)
            mean, log_variance = self.mean(x), self.log_variance(x)
            other = t.index_select(0, partners(weight, stream))
            gap = gaussian_log_density(t, mean, log_variance) - gaussian_log_density(other, mean, log_variance)
            return (gap * weight).sum() / weight.sum().clamp(min=1)

    def _fit(self, x: Tensor, t: Tensor, weight: Tensor) -> None:
        parameters = list(self.parameters())
        with torch.enable_grad():
            for parameter in parameters:
                parameter.requires_grad_()
            likelihood = gaussian_log_density(t, self.mean(x), self.log_variance(x))
            loss = -(likelihood * weight).sum() / weight.sum().clamp(min=1)
            gradients = _mean_over_processes(torch.autograd.grad(loss, parameters))
        with torch.no_grad():
            self.steps += 1
            for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                parameter.requires_grad_(False)
                first, second = self.get_buffer(f"first_{index}"), self.get_buffer(f"second_{index}")
                first.lerp_(gradient, 1 - _BETAS[0])
                second.lerp_(gradient.square(), 1 - _BETAS[1])
                step = first / (1 - _BETAS[0] ** self.steps)
                scale = (second / (1 - _BETAS[1] ** self.steps)).sqrt() + 1e-8
                parameter.sub_(self.learning_rate * step / scale)


def _mean_over_processes(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Average over processes, so that all fit one density and a checkpoint holds it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return gradients
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    torch.distributed.all_reduce(flat)
    parts = torch.split(flat / torch.distributed.get_world_size(), [gradient.numel() for gradient in gradients])
    return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
