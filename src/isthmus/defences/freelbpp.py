"""FreeLB++: more ascent steps, without a norm limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.defences.freelb import FreeLB
from isthmus.defences.parts.perturbation import Lengths


@dataclass(frozen=True)
class FreeLBpp(FreeLB):
    """FreeLB++: FreeLB with ten steps and no limit on the perturbation's norm (Li et al., 2021).

        loss = 1/S Σ_{s=1..S} -log p(y | e + δ_s),     δ_{s+1} = δ_s + a · g_s / ‖g_s‖,   g_s = ∂ loss_s / ∂ δ_s

    References:
        Li, Xu, Zeng, Li, Zheng, Zhang, Chang and Hsieh (2021), Searching for an Effective Defender: Benchmarking
        Defense against Adversarial Word Substitution, https://arxiv.org/abs/2108.12777

    Where we depart:
        The lengths are multiples of the mean norm of the text's word vectors. Ten steps of 0.01 go a little further
        than `freelb` does; ten of 0.03 held MiniLM at one class on SST-2 (three seeds). ``scale=paper`` takes the
        benchmark's 0.03 a step, as a length, from a start of 0.05.

    Relations:
        With the steps and lengths of `freelb` it is `freelb`. One step from a start of magnitude 0 is `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.FreeLBpp(steps=10))``
    """

    steps: int = 10
    """Passes over a batch, each at a higher perturbation."""

    def usual_lengths(self) -> Mapping[str, Lengths]:
        """The usual lengths, without a norm limit on either scale."""
        return {"relative": Lengths(0.01, 0.01, 0.0), "paper": Lengths(0.03, 0.05, 0.0)}
