"""The transformers engine: greedy generation on CPU or GPU, in batches padded on the left."""

import platform
from collections.abc import Sequence
from typing import Any

from offline.canonical import Record
from offline.errors import ConfigurationError, ModelError
from readers.devices import device_name, torch_device
from readers.engines import ENGINES, LOCAL, OPTIONS, EngineStart, engine_options
from readers.records import Output


class TransformersOptions(Record, frozen=True):
    """`cudnn: false` keeps cuDNN out of it, as the compiler paper's reader swap did."""

    cudnn: bool = True


OPTIONS["transformers"] = TransformersOptions
LOCAL.add("transformers")


class TransformersEngine:
    """One causal language model in this process."""

    def __init__(self, start: EngineStart) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise ConfigurationError(
                f"the transformers engine needs {error.name}; run: pip install 'coldread[transformers]'"
            ) from error
        settings, reader = start.settings, start.settings.reader
        if not any(file.name.endswith(".safetensors") for file in settings.model.files):
            raise ModelError(f"reader {reader.name!r}: the model folder holds no .safetensors weights")
        options = engine_options(reader, TransformersOptions)
        torch.backends.cudnn.enabled = options.cudnn
        self._cudnn = options.cudnn
        self._torch: Any = torch
        self._settings = settings
        self._device = torch_device(torch, reader.device)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            model: Any = transformers.AutoModelForCausalLM.from_pretrained(
                start.model_folder,
                dtype=getattr(torch, reader.dtype),
                attn_implementation=None if reader.attention == "auto" else reader.attention,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
        except Exception as error:  # transformers raises whatever its readers raise
            raise ModelError(f"reader {reader.name!r}: the model cannot be loaded: {error}") from error
        self._model = model.to(self._device).eval()
        # What the model's generation_config.json says (penalties, sampling) must not reach a greedy reader.
        self._model.generation_config = transformers.GenerationConfig()
        self._generation = transformers.GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=reader.output_cap,
            eos_token_id=list(settings.stop_ids),
            pad_token_id=settings.pad_id,
            use_cache=True,
        )
        self._processors = transformers.LogitsProcessorList([_first_of_ties(torch)])
        self._versions = {"torch": str(torch.__version__), "transformers": str(transformers.__version__)}

    def environment(self) -> dict[str, str]:
        """Versions, device, dtype, attention and threads: what can change an output."""
        torch = self._torch
        return {
            "engine": "transformers",
            "python": platform.python_version(),
            **self._versions,
            "device": f"{self._device.type} {device_name(torch, self._device)}",
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "attention": str(self._model.config._attn_implementation),
            **({} if self._cudnn else {"cudnn": "off"}),
            "threads": str(torch.get_num_threads()),
        }

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """Greedy continuation of every input; a stop id is the last of its ids."""
        torch = self._torch
        longest = max(map(len, batch))
        inputs = torch.full((len(batch), longest), self._settings.pad_id, dtype=torch.long)
        mask = torch.zeros((len(batch), longest), dtype=torch.long)
        for row, ids in enumerate(batch):
            inputs[row, longest - len(ids) :] = torch.tensor(list(ids), dtype=torch.long)
            mask[row, longest - len(ids) :] = 1
        with torch.inference_mode():
            generated = self._model.generate(
                input_ids=inputs.to(self._device),
                attention_mask=mask.to(self._device),
                generation_config=self._generation,
                logits_processor=self._processors,
            )
        return [self._output(row) for row in generated[:, longest:].tolist()]

    def logprobs(self, ids: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log probabilities of these tokens after these ids."""
        torch = self._torch
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([list(ids)], device=self._device)).logits[0, -1]
            return [float(value) for value in torch.log_softmax(logits.float(), dim=-1)[list(tokens)]]

    def _output(self, ids: list[int]) -> Output:
        for index, token in enumerate(ids):
            if token in self._settings.stop_ids:
                return Output(ids=tuple(ids[: index + 1]), finish_reason="stop")
        return Output(ids=tuple(ids), finish_reason="length")


def _first_of_ties(torch: Any) -> Any:
    """A logits processor that leaves only the first of the largest logits: argmax promises nothing about ties."""

    def process(input_ids: Any, scores: Any) -> Any:
        vocabulary = scores.shape[-1]
        largest = scores == scores.max(dim=-1, keepdim=True).values
        places = torch.arange(vocabulary, device=scores.device)
        first = torch.where(largest, places, vocabulary).min(dim=-1, keepdim=True).values
        return torch.full_like(scores, float("-inf")).scatter(-1, first, 0.0)

    return process


@ENGINES.register("transformers")
def transformers_engine(start: EngineStart) -> TransformersEngine:
    """Load the model named by the settings."""
    return TransformersEngine(start)
