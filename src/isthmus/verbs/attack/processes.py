"""`--processes`: a command's attack in several processes, with one journal written by this one."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from isthmus.attacks.processes import AT_ONCE, AttackWatch, Job, Workers, cohorts_of
from isthmus.verbs.attack.auxiliary_models import Companions, Names
from isthmus.verbs.model_loading import VERSION, open_victim, suit_fields
from isthmus.verbs.observer import Observer
from isthmus.verbs.sources import ModelSource

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Example, Victim
    from isthmus.verbs.attack.prepared_attacks import PreparedAttacks


@dataclass
class CommandSource:
    """The models of a command, opened in another process."""

    model: str
    data_labels: tuple[str, ...]
    fields: tuple[str, ...]
    labels: tuple[str, ...] | None
    options: dict[str, Any]
    device: str | None
    precision: str
    _companions: Companions | None = field(default=None, repr=False)

    @classmethod
    def of(cls, ready: PreparedAttacks) -> CommandSource:
        """The models that a command names."""
        request = ready.request
        return cls(
            request.model,
            tuple(ready.data.labels),
            tuple(ready.data.fields),
            request.labels,
            {key: value for key, value in request.victim.items() if key != VERSION},
            request.device,
            request.precision,
        )

    def victim(self) -> Victim:
        """The victim, loaded as the command loads it."""
        source = ModelSource.of(self.model)
        victim = open_victim(
            source, self.data_labels, labels=self.labels, options=self.options, device=self.device,
            precision=self.precision,
        )  # fmt: skip
        suit_fields(victim, source, self.fields)
        return victim

    def models(self, names: Names) -> Mapping[str, Any]:
        """The auxiliary models."""
        if self._companions is None:
            self._companions = Companions(self.device, Observer())
        return self._companions.of(names)


def start_workers(ready: PreparedAttacks) -> Workers:
    """The processes of a command; each starts when it has work."""
    assert ready.request.processes is not None
    return Workers(CommandSource.of(ready), ready.request.processes)


def attack_by_workers(
    ready: PreparedAttacks,
    name: str,
    search_draws: int,
    examples: Sequence[Example],
    watch: AttackWatch,
) -> Generator[AttackResult, None, None]:
    """Attack `examples` and yield every result as it comes; `watch` receives the cost."""
    request, wanted = ready.request, {example.id for example in examples}
    assert request.processes is not None
    on_gpu = getattr(ready.victim, "device_type", None) == "cuda"
    # On a GPU an example is packed with the same others whatever has a row already.
    together = list(ready.sample.align_labels(ready.victim.labels)) if on_gpu else examples
    settings = ready.attack_settings(name, search_draws)
    settings = replace(settings, engine=replace(settings.engine, trace=None))
    job = Job(ready.methods[name], settings, ready.model_names(name), traced=request.trace)
    cohorts = cohorts_of(together, request.processes, on_gpu=on_gpu)
    yield from ready.workers.attack(job, cohorts, wanted, watch, at_once=AT_ONCE if on_gpu else 1)
