"""The gradient at the text, times the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from isthmus.core.types import Example, Victim
from isthmus.explanations.base import Explainer, Explanation
from isthmus.explanations.parts.outputs import OutputKind, check_output


@dataclass(frozen=True, kw_only=True)
class GradientXInput(Explainer):
    """Multiply each embedding with the gradient there (Shrikumar et al., 2016).

        w_t = e_t · ∂ F_c(e) / ∂ e_t

    One pass, and exact for linear models; where the model is flat at the text, a word that decides gets no weight.

    References:
        Shrikumar, Greenside, Shcherbina, Kundaje: Not Just a Black Box: Learning Important Features Through Propagating
        Activation Differences. arXiv:1605.01713, 2016.

    Relations:
        `integrated_gradients` averages the gradient over the whole way to the text.

    Example:
        ``isthmus explain runs/demo "a moving, quiet film" --method gradient_x_input``
    """

    needs_gradients: ClassVar[bool] = True

    output: OutputKind = "logit"
    """The explained output: the logit of a class, or its probability."""

    def __post_init__(self) -> None:
        check_output(self.output)

    def explain(
        self, victim: Victim, examples: Sequence[Example], classes: tuple[int, ...] | None, seed: int
    ) -> Iterator[Explanation]:
        """Explain many texts in one batch."""
        from isthmus.explanations.parts.paths import Path, explain_by_path

        del seed  # Nothing is drawn.
        return explain_by_path(
            victim, examples, classes, Path((1.0,)), output=self.output, method=self.name, whole_path=False
        )
