"""A reranker: scores queries with passages, by sentence-transformers' CrossEncoder. Lives in the model's process.

A sequence classifier scores by its one logit; a causal model by the log-odds of `yes` against `no` as the next token.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from offline.config.models import Reranker
from offline.errors import ModelError
from readers.encoders.loading import environment, libraries, loading, options
from readers.engines.device import torch_device


class RerankingModel:
    """One loaded reranker. window: largest pair in tokens."""

    def __init__(self, reranker: Reranker, folder: str) -> None:
        whose = f"reranker {reranker.name!r}"
        self._torch, self._library = libraries(whose)
        self._reranker = reranker
        self._device = torch_device(self._torch, reranker.device)
        shared = options(self._torch, reranker.dtype, reranker.weights)
        if reranker.template is not UNSET:
            shared["processor_kwargs"] = {"chat_template": reranker.template}
        with loading(whose, folder):
            check_head(Path(folder), whose)
            self._model: Any = self._library.CrossEncoder(folder, device=str(self._device), **shared)
            if self._model.num_labels != 1:
                raise ModelError(f"{whose}: a reranker gives one score, this model gives {self._model.num_labels}")
            self.window = min(reranker.max_tokens, self._model.max_seq_length or reranker.max_tokens)
            self._model.max_seq_length = self.window
            self._check_question(whose)

    def _check_question(self, whose: str) -> None:
        """ModelError, before any work, unless query and document reach the model and `yes` and `no` are tokens."""
        cure = "give `template` in the reranker's configuration, a chat template with the roles `query` and `document`"
        answer = next((module for module in self._model if hasattr(module, "true_token_id")), None)
        if answer is not None:
            words = {answer.true_token_id, answer.false_token_id}
            if len(words) < 2 or self._model.tokenizer.unk_token_id in words - {None}:
                raise ModelError(
                    f"{whose}: its tokenizer has no tokens `yes` and `no`, so it cannot answer; choose another model"
                )
            if "message" not in self._model.modalities:
                raise ModelError(f"{whose}: its tokenizer has no chat template, so nothing says how it is asked; {cure}")
        try:
            self._features([("a", "b")])
        except ValueError as error:
            raise ModelError(f"{whose}: {str(error).partition('. ')[0]}; {cure}") from error

    def _features(self, pairs: list[tuple[str, str]]) -> Any:
        return self._model.preprocess(pairs, prompt=self._instruction())

    def _instruction(self) -> str | None:
        return None if self._reranker.instruction is UNSET else self._reranker.instruction

    def describe(self) -> dict[str, str]:
        """The environment, and the window and modules in use."""
        return {
            **environment(self._torch, self._library, self._model, self._device),
            "window": str(self.window),
            "modules": " ".join(type(module).__name__ for module in self._model),
        }

    def score(self, pairs: Sequence[tuple[str, str]], batch_size: int) -> tuple[NDArray[np.float32], int]:
        """float32[pairs] logits (probabilities would tie near 1), and how many pairs filled the window."""
        scores, full = [], 0
        for at in range(0, len(pairs), batch_size):
            batch = [(query, passage) for query, passage in pairs[at : at + batch_size]]
            full += int((self._features(batch)["attention_mask"].sum(dim=1) >= self.window).sum())
            made = self._model.predict(
                batch,
                prompt=self._instruction(),
                batch_size=batch_size,
                activation_fn=self._torch.nn.Identity(),
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            scores.append(np.asarray(made, dtype=np.float32).reshape(len(batch)))
        return np.concatenate(scores), full


def check_head(folder: Path, whose: str) -> None:
    """ModelError unless the weights are a reranker's: to other models the library adds a random head."""
    saved = folder / "config_sentence_transformers.json"
    if saved.is_file() and json.loads(saved.read_bytes()).get("model_type") == "CrossEncoder":
        return
    names = json.loads((folder / "config.json").read_bytes()).get("architectures") or []
    if not any(name.endswith(("ForSequenceClassification", "ForCausalLM")) for name in names):
        raise ModelError(
            f"{whose}: {folder} is no reranker but {', '.join(names) or 'of no stated architecture'}; choose a "
            "…ForSequenceClassification with one label, or a …ForCausalLM that answers yes or no"
        )
