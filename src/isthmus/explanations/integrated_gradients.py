"""Gradients along the path from a baseline to the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from isthmus.core.errors import UsageError
from isthmus.core.types import Example, Victim
from isthmus.explanations.base import Explainer, Explanation
from isthmus.explanations.parts.outputs import OutputKind, check_output


@dataclass(frozen=True, kw_only=True)
class IntegratedGradients(Explainer):
    """Integrate the gradient from the empty embedding to the text's (Sundararajan, Taly and Yan, 2017).

        w_t = (e_t - b_t) · (1/m) Σ_k ∂ F_c(b + α_k (e - b)) / ∂ e_t,     α_k = (k + 1/2) / m
        Σ_t w_t = F_c(e) - F_c(b)        as m grows: completeness

    e are the word-piece embeddings, b is zero at words and keeps special tokens as they are, F_c is the logit (or the
    probability) of class c. Weights are summed over the pieces of a word. `details` has the completeness error, and
    the weight of what is not a word (punctuation).

    References:
        Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks. ICML 2017.

    Where we depart:
        The integral is taken by the midpoint rule, whose error falls with the square of the number of steps.

    Relations:
        `gradient_x_input` is its last point alone. For models that cannot be differentiated: `lime`, `shapley`,
        `occlusion`.

    Example:
        ``isthmus explain runs/demo "a moving, quiet film" --method integrated_gradients -P steps=100``
    """

    needs_gradients: ClassVar[bool] = True

    steps: int = 50
    """Number of points on the path (m)."""
    output: OutputKind = "logit"
    """The explained output: the logit of a class, or its probability."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UsageError(f"the path has at least 1 step, not {self.steps}")
        check_output(self.output)

    def explain(
        self, victim: Victim, examples: Sequence[Example], classes: tuple[int, ...] | None, seed: int
    ) -> Iterator[Explanation]:
        """Explain many texts and steps in one batch."""
        from isthmus.explanations.parts.paths import Path, explain_by_path

        del seed  # Nothing is drawn.
        path = Path(tuple((step + 0.5) / self.steps for step in range(self.steps)))
        return explain_by_path(victim, examples, classes, path, output=self.output, method=self.name, whole_path=True)
