"""An embedding model: texts to vectors of length 1, by sentence-transformers. Lives in the model's process."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from offline.config.models import Encoder
from offline.errors import ConfigurationError, ModelError
from offline.vectors import Role
from readers.encoders.loading import environment, libraries, loading, options
from readers.engines.device import torch_device
from readers.models.pins import is_model_file, patterns_of


class EmbeddingModel:
    """One loaded embedding model. window: largest text in tokens, including those that the tokenizer adds."""

    def __init__(self, encoder: Encoder, folder: str) -> None:
        whose = f"encoder {encoder.name!r}"
        if encoder.pooling is UNSET:
            check_modules(Path(folder), encoder, whose)
        self._torch, self._library = libraries(whose)
        self._encoder = encoder
        self._device = torch_device(self._torch, encoder.device)
        with loading(whose, folder):
            self._model = self._load(folder)
        self._tokenizer = self._model.tokenizer
        self.window = min(encoder.max_tokens, self._model.max_seq_length or encoder.max_tokens)
        self._model.max_seq_length = self.window
        self._added = int(self._tokenizer.num_special_tokens_to_add(pair=False))
        own = self._model.prompts or {}
        query, passage = encoder.query_prompt, encoder.passage_prompt
        self._prompts: dict[Role, str] = {
            "query": str(own.get("query") or "") if query is UNSET else query,
            "passage": str(own.get("document") or own.get("passage") or "") if passage is UNSET else passage,
        }
        if self.room() < 1:
            raise ConfigurationError(
                f"{whose}: the prompt {self._prompts['passage'][:60]!r} leaves a passage no room in a window of {self.window} "
                "tokens; set a shorter passage_prompt, or a larger max_tokens"
            )

    def _load(self, folder: str) -> Any:
        shared = options(self._torch, self._encoder.dtype, self._encoder.weights)
        if self._encoder.pooling is UNSET:
            return self._library.SentenceTransformer(folder, device=str(self._device), **shared)
        from sentence_transformers.sentence_transformer import modules

        inside = {"local_files_only": True, "trust_remote_code": False}
        transformer = modules.Transformer(
            folder,
            model_kwargs={**inside, **shared["model_kwargs"]},
            processor_kwargs=inside,
            config_kwargs=inside,
            # Raw texts: by default the library would apply a chat template found in the folder.
            modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            module_output_name="token_embeddings",
        )
        pooling = modules.Pooling(transformer.get_embedding_dimension(), self._encoder.pooling)
        return self._library.SentenceTransformer(modules=[transformer, pooling], device=str(self._device))

    def describe(self) -> dict[str, str]:
        """The environment, and the window, prompts and modules in use."""
        return {
            **environment(self._torch, self._library, self._model, self._device),
            "window": str(self.window),
            "query_prompt": self._prompts["query"],
            "passage_prompt": self._prompts["passage"],
            "modules": " ".join(type(module).__name__ for module in self._model),
            "pooling": next((str(m.pooling_mode) for m in self._model if hasattr(m, "pooling_mode")), "the model's own"),
        }

    def encode(self, role: Role, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
        """float32[texts, dimension], rows of length 1, from batches of exactly these consecutive texts."""
        parts = []
        for at in range(0, len(texts), batch_size):
            # One call per batch, since the library would sort the texts.
            vectors = self._model.encode(
                list(texts[at : at + batch_size]),
                prompt=self._prompts[role],
                batch_size=batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            parts.append(_of_length_one(np.asarray(vectors, dtype=np.float64)))
        return np.concatenate(parts)

    def room(self) -> int:
        """Tokens that the window leaves for a passage, after the prompt and added tokens."""
        return self.window - self._added - len(self._ids([self._prompts["passage"]])[0])

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, without those that the tokenizer adds."""
        return [len(ids) for ids in self._ids(texts)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        found: list[list[int]] = self._tokenizer(list(texts), add_special_tokens=False, truncation=False)["input_ids"]
        return found

    def cut(self, role: Role, texts: Sequence[str]) -> int:
        """How many of these texts exceed the window."""
        prompt = self._prompts[role]
        return sum(len(ids) + self._added > self.window for ids in self._ids([prompt + text for text in texts]))

    def spans(self, text: str, limit: int) -> list[tuple[int, int]]:
        """(begin, end) in characters of consecutive pieces of the text, at most `limit` tokens each."""
        coded = self._tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=True)
        starts = [begin for begin, _ in coded["offset_mapping"]][::limit]
        cuts = [0, *starts[1:], len(text)]
        return [(begin, end) for begin, end in pairwise(cuts) if end > begin] or [(0, len(text))]


def _of_length_one(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows scaled to length 1, zeros unchanged. A model that normalises in bfloat16, say, is off by thousandths."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def check_modules(folder: Path, encoder: Encoder, whose: str) -> None:
    """ModelError unless the folder says how tokens are pooled into a vector; the library would guess."""
    path = folder / "modules.json"
    try:
        modules = json.loads(path.read_bytes())
        parts = [(str(module["path"]), str(module["type"]).rpartition(".")[2]) for module in modules]
    except FileNotFoundError:
        raise ModelError(
            f"{whose}: {folder} has no modules.json, so nothing says how its tokens are pooled into a vector; restore the "
            "file, or set `pooling: cls`, `mean` or `lasttoken` in the encoder's configuration, as the model was trained"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{whose}: {path} cannot be read: {error}; restore the file") from error
    for place, kind in parts:
        if place:
            _check_module(folder / place, kind, encoder, whose)


def _check_module(folder: Path, kind: str, encoder: Encoder, whose: str) -> None:
    """ModelError unless a module is complete and its files are covered by the model's fingerprint."""
    if not is_model_file(f"{folder.name}/config.json", patterns_of(encoder)):
        raise ModelError(
            f"{whose}: modules.json keeps the model's {kind} in {folder.name!r}, which no fingerprint covers; call the folder "
            f"by a number and a name (1_{kind}), there and on disk"
        )
    if kind != "Normalize" and not (folder / "config.json").is_file():
        raise ModelError(
            f"{whose}: {folder / 'config.json'} is missing, which modules.json names as the model's {kind}; "
            "restore it, or set `pooling` in the encoder's configuration, as the model was trained"
        )
    pickled, weights = folder / "pytorch_model.bin", folder / "model.safetensors"
    if pickled.is_file() and not weights.is_file() and encoder.weights != pickled.name:
        raise ModelError(
            f"{whose}: the model's {kind} has pickled weights alone, {pickled}; convert them to {weights.name}, or set "
            f"`weights: {pickled.name}` in the encoder's configuration"
        )
