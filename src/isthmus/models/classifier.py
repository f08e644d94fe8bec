"""One classifier class over any transformers encoder, a recurrent or a convolutional network, with slots for defences.

    ids -> word embeddings -> [word mask] -> encoder blocks, each -> [noise] -> pooled -> [bottleneck] -> head -> logits

With no slot filled and a stock sequence classifier inside, the logits are that classifier's own to the last bit, and
so is the folder it is saved to. For question answering the head reads every token's last hidden state and there is
nothing pooled to squeeze:

    ... -> last hidden states -> head -> logits of the answer's first and last token [batch, 2, length]
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from isthmus.arithmetic.batching import columns_of
from isthmus.arithmetic.randomness import seed_initialisation, use_keys
from isthmus.core.errors import ModelError, UsageError
from isthmus.core.types import OUTSIDE, Output, QuestionAnswering, Task, Texts
from isthmus.models.backbones import Backbone
from isthmus.models.copying import Copies, Watch, are_several, number_of, repeat_rows
from isthmus.models.slots import EMBEDDINGS, Bottleneck, Noise, Slots, WordMask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from isthmus.models.deployment import Deployment


class Classifier(nn.Module):
    """A text classifier with slots for defences.

    Attributes:
        tokenizer: turns texts into ids.
        task: label names and field names, or question answering.
        max_tokens: longest input it reads, special tokens included; longer ones are truncated.
        slots: which of the three slots are filled.
        companions: what a defence keeps beside the model while it trains (a critic, a teacher): checkpoints hold it,
            a saved classifier does not.
        deployment: how it answers when it is put to work, if not by a single pass (voting, smoothing); saved with it.
    """

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: PreTrainedTokenizerBase,
        task: Task,
        *,
        max_tokens: int,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.task = task
        self.max_tokens = max_tokens
        self.seed = seed
        self.slots = Slots()
        self.companions = nn.ModuleDict()
        self.deployment: Deployment | None = None
        self.head: nn.Linear | None = None
        if not backbone.has_head:
            with seed_initialisation(seed, "head"):
                self.head = nn.Linear(backbone.pooled_size, 2 if self.answers_questions else len(task.labels))
        self._entrances = backbone.entrances()
        self._parts_early = False
        self.special_ids: Tensor
        self.register_buffer("special_ids", _special_ids(tokenizer, backbone.table.num_embeddings), persistent=False)

    @staticmethod
    def create(
        backbone: str | Path,
        labels: Sequence[str] = (),
        fields: Sequence[str] = ("text",),
        *,
        task: Task | None = None,
        seed: int = 0,
        max_tokens: int | None = None,
        texts: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Classifier:
        """Make a new, untrained classifier for `labels`, or for a `task` such as ``QuestionAnswering()``.

        `backbone` is ``minilm``, ``mpnet``, ``lstm``, ``cnn``, a folder of an encoder, or a hub name. ``lstm`` and
        ``cnn`` build their vocabulary from `texts` and take `options` (see `isthmus.models.words`).
        """
        from isthmus.core.types import Classification
        from isthmus.models.pretrained import find_parts

        task = Classification(tuple(labels), tuple(fields)) if task is None else task
        parts = find_parts(backbone, task, seed=seed, max_tokens=max_tokens, texts=texts, options=options)
        return Classifier(parts.backbone, parts.tokenizer, task, max_tokens=parts.max_tokens, seed=seed).eval()

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names, in the order of the logits."""
        return self.task.labels

    @property
    def answers_questions(self) -> bool:
        """Whether it finds answers in a context instead of choosing a class."""
        return isinstance(self.task, QuestionAnswering)

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""
        return self.table.weight.device

    @property
    def table(self) -> nn.Embedding:
        """The word embeddings."""
        return self.backbone.table

    @property
    def hidden_size(self) -> int:
        """Width of the encoder's hidden states."""
        return self.backbone.hidden_size

    @property
    def pooled_size(self) -> int:
        """Width of the vector that a bottleneck reads."""
        return self.backbone.pooled_size

    @property
    def is_stock(self) -> bool:
        """Whether it equals a stock transformers classifier or question answerer."""
        return self.backbone.has_head and not self.slots.by_name()

    @property
    def stochastic(self) -> bool:
        """Whether the same input may get different scores outside training."""
        return self.slots.stochastic

    def fill(
        self,
        *,
        word_mask: WordMask | None = None,
        noise: Noise | None = None,
        bottleneck: Bottleneck | None = None,
    ) -> Classifier:
        """Fill slots; a bottleneck gets a new head of its width, and is refused if the model pools nothing."""
        if bottleneck is not None and self.answers_questions:
            raise UsageError(
                f"{type(bottleneck).__name__} squeezes one vector per text, but a model that answers questions reads a "
                "vector of every token: leave the bottleneck out, or train a classifier"
            )
        for name, slot in (("word_mask", word_mask), ("noise", noise), ("bottleneck", bottleneck)):
            if slot is not None:
                self.slots.put(name, slot.to(self.device).train(self.training), self.seed)
        if noise is not None:
            self._check_layers(noise)
        if word_mask is not None:
            word_mask.attach(self.backbone)
        if bottleneck is not None:
            if self.backbone.has_head:
                self.backbone.take_head_away()
            with seed_initialisation(self.seed, "head", "bottleneck"):
                self.head = nn.Linear(bottleneck.latent_size, len(self.labels)).to(self.device)
        return self

    def _check_layers(self, noise: Noise) -> None:
        depth = self.backbone.depth
        if any(not EMBEDDINGS <= layer < depth for layer in noise.layers):
            raise UsageError(
                f"noise on blocks {list(noise.layers)}, but this encoder has blocks 0 to {depth - 1} "
                f"({EMBEDDINGS}: the word embeddings)"
            )
        if self.backbone.tokens_first and set(noise.layers) - {EMBEDDINGS}:
            raise ModelError(
                f"noise cannot be put on the blocks of {type(self.backbone.encoder()[0]).__name__}: they hand on "  # type: ignore[index]
                "[token, text] and not [text, token]. Choose another encoder, or a defence without noise inside it"
            )

    def embed(self, input_ids: Tensor) -> Tensor:
        """Word embeddings, before positions and normalisation."""
        embeddings: Tensor = self.table(input_ids)
        return embeddings

    def read_table(self) -> Tensor:
        """The word embeddings as the encoder reads them outside training; a word mask may scale them."""
        weight, mask = self.table.weight.detach(), self.slots.word_mask
        if mask is None or not mask.scales_words:
            return weight
        factors = mask.factors().masked_fill(self.special_ids, 1.0)
        return weight * factors.unsqueeze(-1).to(weight.dtype)

    def special_mask(self, input_ids: Tensor) -> Tensor:
        """True where a token is a special one (separators, padding), unknown and mask tokens excepted."""
        return self.special_ids[input_ids]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        *,
        hidden: bool = False,
        copies: Copies = 1,
    ) -> Output:
        """Logits and intermediate results. `inputs_embeds` replaces the table's rows for `input_ids`.

        `Output.embeddings` is the tensor that entered (before noise and word mask); `Output.hidden` is there if asked
        for. With `copies` every row is drawn `copies` times (copy j of row r is row r * copies + j and has a key of its
        own), or as many times as a tensor of row numbers names it; what precedes the first draw is computed once.
        """
        several = are_several(copies)
        if several and not self._share(copies, input_ids if inputs_embeds is None else inputs_embeds, attention_mask):
            given = (input_ids, attention_mask, token_type_ids, inputs_embeds)
            whole: Output = self(*(repeat_rows(value, copies) for value in given), hidden=hidden)
            return whole
        entered, embeddings = self._enter(input_ids, attention_mask, inputs_embeds)
        with self._watch(input_ids, attention_mask, copies) as watch:
            encoded = self.backbone(input_ids, embeddings, attention_mask, token_type_ids, hidden)
        if several:
            rows = encoded.vector if watch.split else repeat_rows(encoded.vector, copies)
            if len(rows) != number_of(copies, len(watch.entered if entered is None else entered)):
                self._parts_early = True
                again: Output = self(
                    input_ids, attention_mask, token_type_ids, inputs_embeds, hidden=hidden, copies=copies
                )
                return again
            encoded = encoded._replace(vector=rows)
        vector, latent = encoded.vector, None
        if self.slots.bottleneck is not None:
            latent = self.slots.bottleneck(vector)
            vector = latent.sample.to(vector.dtype)
        logits = vector if self.head is None else self.head(vector)
        if self.answers_questions:
            logits = logits if self.head is None else logits.transpose(1, 2)
            if attention_mask is not None:
                own = repeat_rows(attention_mask, copies) if several else attention_mask
                logits = logits.masked_fill(own.unsqueeze(1) == 0, OUTSIDE)
        return Output(logits, watch.entered if entered is None else entered, encoded.hidden, latent)

    def _enter(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, given: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """The input word embeddings, before and after noise and word mask; None leaves them to the backbone."""
        noise, word_mask = self.slots.noise, self.slots.word_mask
        on_words = noise is not None and EMBEDDINGS in noise.layers
        if word_mask is not None and word_mask.after_block:
            word_mask = None
        if word_mask is None and not on_words:
            return given, given
        entered = self.embed(_require_ids(input_ids)) if given is None else given
        embeddings = entered
        if on_words and noise is not None:
            embeddings = noise(EMBEDDINGS, embeddings, attention_mask)
        if word_mask is not None:
            ids = _require_ids(input_ids)
            embeddings = word_mask(embeddings, attention_mask, self.special_mask(ids), ids)
        return entered, embeddings

    def _share(self, copies: Copies, given: Tensor | None, attention_mask: Tensor | None) -> bool:
        """Whether these copies can share the layers before the first noisy block."""
        if isinstance(copies, int) or given is None:
            return self._copies_share
        # With as many copies as rows nobody could tell which of the two he is handed; and where the backbone itself
        # pools what is not padding, it can only count on as many copies of every row.
        told_apart = len(given) < len(copies) and (attention_mask is None or self.backbone.form == "stock")
        return told_apart and self._copies_share

    @property
    def _copies_share(self) -> bool:
        """Whether copies of a row may share the layers before the first noisy block."""
        noise, word_mask = self.slots.noise, self.slots.word_mask
        on_words = noise is not None and noise.stochastic and EMBEDDINGS in noise.layers
        early = on_words or (word_mask is not None and word_mask.stochastic)
        return not (early or self._parts_early or self.training)

    @contextlib.contextmanager
    def _watch(self, input_ids: Tensor | None, attention_mask: Tensor | None, copies: Copies = 1) -> Iterator[Watch]:
        """Inside, record the output of the embedding table, and add noise to the outputs of the chosen blocks."""
        watch = Watch(self.slots.noise, attention_mask, copies)
        hooks = self.on_embeddings(watch.enter)
        word_mask, block = self.slots.word_mask, self.backbone.embedding_block()
        if word_mask is not None and word_mask.after_block and block is not None:
            ids = _require_ids(input_ids)
            hooks.append(block.register_forward_hook(word_mask.behind(attention_mask, self.special_mask(ids), ids)))
        if watch.noise is not None and set(watch.noise.layers) - {EMBEDDINGS}:
            # First in line, so that recorded hidden states contain the noise.
            hooks += [block.register_forward_hook(watch.after, prepend=True) for block in self.backbone.blocks()]
            if are_several(copies):
                blocks = self.backbone.blocks()
                hooks += [block.register_forward_pre_hook(watch.before, with_kwargs=True) for block in blocks]
        try:
            yield watch
        finally:
            for handle in hooks:
                handle.remove()

    def on_embeddings(self, hook: Callable[[Any, Any, Any], Any], **how: Any) -> list[RemovableHandle]:
        """Call `hook` with the word embeddings at every look-up, until the handles are removed."""
        return [module.register_forward_hook(hook, **how) for module in self._entrances]

    @contextlib.contextmanager
    def use_keys(self, keys: Tensor | None) -> Iterator[None]:
        """Inside, each row's randomness comes from its own key (see `isthmus.arithmetic.randomness`)."""
        with use_keys(self, keys):
            yield

    def encode(self, texts: Sequence[Texts]) -> dict[str, Tensor]:
        """Token ids and masks of a batch, truncated to `max_tokens` and padded to the longest; on the CPU.

        A deployment with a front end (a normaliser) reads the texts first, so that training sees what use will see.
        """
        return self.tokenise(texts if self.deployment is None else self.deployment.read(texts))

    def tokenise(self, texts: Sequence[Texts]) -> dict[str, Tensor]:
        """Token ids and masks of texts that went through the front end already."""
        encoded = self.tokenizer(
            *columns_of(texts, self.task.fields),
            truncation="longest_first",
            max_length=self.max_tokens,
            padding=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        wanted = ("input_ids", "attention_mask", "token_type_ids")
        return {name: encoded[name] for name in wanted if name in encoded}

    def save(self, folder: str | Path) -> None:
        """Save the classifier to `folder`; `load_model` reads it back bit for bit."""
        from isthmus.models.saving import save

        save(self, Path(folder))


def _require_ids(input_ids: Tensor | None) -> Tensor:
    if input_ids is None:
        raise UsageError(
            "the word mask must know which tokens are special: pass input_ids, also where inputs_embeds are given"
        )
    return input_ids


def _special_ids(tokenizer: PreTrainedTokenizerBase, size: int) -> Tensor:
    table = torch.zeros(size, dtype=torch.bool)
    kept = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    ids = [index for index in tokenizer.all_special_ids if index not in kept]
    if any(index >= size for index in ids):
        raise ModelError(f"the tokenizer has token {max(ids)}, but the model has only {size} word embeddings")
    table[ids] = True
    return table
