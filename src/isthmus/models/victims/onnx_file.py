"""An ONNX file with its tokenizer, as a victim that takes token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isthmus.arithmetic.batching import batches_of, columns_of
from isthmus.core.errors import MissingExtra, ModelError, UsageError, VictimError
from isthmus.core.types import Floats, Ints, Pending, Texts, TokenBatch
from isthmus.models._folder_checks import label_names
from isthmus.models.transformers_files import read_tokenizer
from isthmus.models.victims.answer_parsing import AnswerReader, Outputs
from isthmus.models.victims.options import check_whole_number

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxVictim:
    """A sequence classifier exported to ONNX; runs on the CPU.

    The tokenizer and, where there is one, ``config.json`` with the label names lie in the file's folder or in the one
    above it. Fixed lengths and batch sizes of the export are kept to.
    """

    device_type = "cpu"
    stochastic = False

    def __init__(
        self,
        file: str | Path,
        labels: Sequence[str] | None = None,
        *,
        outputs: Outputs = "auto",
        max_tokens: int | None = None,
    ) -> None:
        self.file = Path(file)
        folder = _folder_with_tokenizer(self.file)
        self._session = open_session(self.file)
        self._inputs = {put.name: put for put in self._session.get_inputs()}
        unknown = set(self._inputs) - set(_INPUTS)
        if unknown or "input_ids" not in self._inputs:
            raise ModelError(
                f"{self.file} takes {', '.join(sorted(self._inputs))}; a classifier that isthmus can call takes "
                "input_ids and at most attention_mask and token_type_ids"
            )
        names = [put.name for put in self._session.get_outputs()]
        self._output = "logits" if "logits" in names else names[0]
        self._tokenizer = read_tokenizer(folder)
        rows, length = (*self._inputs["input_ids"].shape, None, None)[:2]
        self._fixed_rows = rows if isinstance(rows, int) else None
        self._fixed_length = length if isinstance(length, int) else None
        if max_tokens is not None:
            check_whole_number("max_tokens", max_tokens)
        self._max_tokens = max_tokens or self._fixed_length or min(self._tokenizer.model_max_length, 512)
        if outputs == "auto" and self._output == "logits":
            outputs = "logits"
        self._reader = AnswerReader(f"the model {self.file.name}", labels or _read_label_names(folder), outputs)

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names: as given, from config.json, or numbered."""
        return self._reader.names(self.scores)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer whose ids `launch` takes."""
        return self._tokenizer

    @property
    def max_tokens(self) -> int:
        """Longest row it reads."""
        return self._max_tokens

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Pending:
        """Score at once; there is nothing to wait for."""
        rows = [self._scores(batch) for batch in batches]
        answer = np.concatenate(rows) if rows else np.empty((0, len(self.labels)), dtype=np.float32)
        return lambda: answer

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities; rows of equal length share a batch."""
        if not texts:
            return np.empty((0, len(self.labels)), dtype=np.float32)
        pairs = list(batches_of(self._tokenizer, columns_of(texts), self._max_tokens))
        rows = self.launch([batch for _, batch in pairs])()
        answer = np.empty_like(rows)
        answer[np.concatenate([positions for positions, _ in pairs])] = rows
        return answer

    def _scores(self, batch: TokenBatch) -> Floats:
        count = len(batch.ids)
        given = {
            "input_ids": batch.ids,
            "attention_mask": np.ones_like(batch.ids) if batch.mask is None else batch.mask,
            "token_type_ids": np.zeros_like(batch.ids) if batch.types is None else batch.types,
        }
        feed = {name: self._shape(given[name], name) for name in self._inputs}
        step = self._fixed_rows or max(count, 1)
        try:
            parts = [
                self._session.run([self._output], {name: array[start : start + step] for name, array in feed.items()})[
                    0
                ]
                for start in range(0, max(count, 1), step)
            ]
        except Exception as error:
            raise VictimError(f"the model {self.file.name} failed: {error}") from error
        return self._reader.read(np.concatenate(parts)[:count], count)

    def _shape(self, array: Ints, name: str) -> NDArray[Any]:
        """Pad to the length and to a multiple of the number of rows that the export is fixed to."""
        rows, length = array.shape
        wanted = self._fixed_length or length
        if length > wanted:
            raise UsageError(f"a row of {length} tokens, but {self.file.name} was exported for {wanted}")
        fill = (self._tokenizer.pad_token_id or 0) if name == "input_ids" else 0
        extra = -rows % (self._fixed_rows or 1)
        padded = np.pad(array, ((0, extra), (0, wanted - length)), constant_values=fill)
        return padded.astype(np.int32 if "int32" in self._inputs[name].type else np.int64)


def open_session(file: Path) -> Any:
    """Open a session on the CPU; a file that cannot be run is an error that names it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "attacking an ONNX file") from error
    if not file.is_file():
        raise ModelError(f"no file {file}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{file} is not an ONNX model that can be run: {first}") from error


def _folder_with_tokenizer(file: Path) -> Path:
    folders = (file.parent, file.parent.parent)
    for folder in folders:
        if any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt")):
            return folder
    raise ModelError(
        f"no tokenizer beside {file}: save it there with "
        f"AutoTokenizer.from_pretrained(...).save_pretrained({str(file.parent)!r})"
    )


def _read_label_names(folder: Path) -> tuple[str, ...] | None:
    if not (folder / "config.json").is_file():
        return None
    names = label_names(folder / "config.json")
    return names if names and len(names) > 1 else None
