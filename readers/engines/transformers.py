"""The transformers engine: greedy generation on CPU or GPU, in batches padded on the left.

Calls of algorithms may sample, and may be constrained to a JSON Schema: xgrammar then masks, row by row, the tokens that no
valid answer continues with. After complete JSON only a stop id is left.
"""

import copy
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from offline.canonical import Record
from offline.errors import ModelError, needs
from readers.engines import EngineStart, engine_options, schema_error, seed_of
from readers.engines.device import device_name, torch_device
from readers.records import Decoding, Output, Settings
from readers.tokens.chat import load_tokenizer


class TransformersOptions(Record, frozen=True):
    """Options of the engine."""

    cudnn: bool = True  # off in the compiler paper's reader swap


class TransformersEngine:
    """One causal language model in this process."""

    def __init__(self, start: EngineStart) -> None:
        with needs("transformers", "the transformers engine"):
            import torch
            import transformers
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
        # The model's generation_config.json (penalties, sampling) must not reach a greedy reader.
        self._model.generation_config = transformers.GenerationConfig()
        self._generation = transformers.GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=reader.output_cap,
            eos_token_id=list(settings.stop_ids),
            pad_token_id=settings.pad_id,
            use_cache=True,
        )
        self._versions = {"torch": str(torch.__version__), "transformers": str(transformers.__version__)}
        self._grammars: Grammars | None = None
        if start.structured:
            self._grammars = Grammars(settings, Path(start.model_folder), model.config.get_text_config().vocab_size)
            self._versions["structured_outputs"] = self._grammars.version

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
        """Greedy continuation of every input, a final stop id included."""
        return self._generate(batch, self._settings.reader.output_cap, [])

    def complete(self, batch: Sequence[Sequence[int]], decoding: Decoding) -> list[Output]:
        """One output per input with this decoding; ConfigurationError for a schema that xgrammar rejects."""
        processors = []
        if decoding.schema is not None:
            assert self._grammars is not None, "an engine that holds answers to schemas is started as such"
            processors.append(self._grammars.mask(decoding.schema))
        if decoding.samples:
            seeds = [seed_of(decoding, ids) for ids in batch]
            processors.append(_sampled(self._torch, self._device, float(decoding.temperature), seeds))
        return self._generate(batch, decoding.output_cap, processors)

    def _generate(self, batch: Sequence[Sequence[int]], cap: int, processors: Sequence[Any]) -> list[Output]:
        torch = self._torch
        generation = copy.copy(self._generation)
        generation.max_new_tokens = cap
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
                generation_config=generation,
                logits_processor=[*processors, _first_of_ties(torch)],
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


class Grammars:
    """Compiles each schema once, to a grammar over a model's tokens that is ended by the frozen stop ids."""

    def __init__(self, settings: Settings, folder: Path, vocabulary: int) -> None:
        with needs("structured", f"reader {settings.reader.name!r}: a schema for answers", ", or set constrained: false"):
            import xgrammar
            from xgrammar.contrib.hf import LogitsProcessor
        self.version = f"xgrammar {version('xgrammar')}"
        self._reader = settings.reader
        self._processor = LogitsProcessor
        tokens = xgrammar.TokenizerInfo.from_huggingface(
            load_tokenizer(folder), vocab_size=vocabulary, stop_token_ids=list(settings.stop_ids)
        )
        self._compiler = xgrammar.GrammarCompiler(tokens)

    def mask(self, schema: str) -> Any:
        """A logits processor for one batch whose rows begin their answers; no white space outside strings."""
        try:
            compiled = self._compiler.compile_json_schema(schema, any_whitespace=False, separators=(",", ":"))
        except Exception as error:  # the library raises whatever its parts raise
            raise schema_error(self._reader, schema, error) from error
        return self._processor(compiled)


def _sampled(torch: Any, device: Any, temperature: float, seeds: Sequence[int]) -> Any:
    """A logits processor that adds Gumbel noise, so that each row's largest logit is a sample at this temperature.

    Each row has its own generator, so its sample does not depend on the rest of the batch.
    """
    generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def process(input_ids: Any, scores: Any) -> Any:
        waits = torch.empty(scores.shape, device=device)
        for row, generator in zip(waits, generators, strict=True):
            row.exponential_(generator=generator)
        return scores / temperature - waits.log()

    return process


def _first_of_ties(torch: Any) -> Any:
    """A logits processor that keeps only the first of the largest logits: argmax leaves ties undefined."""

    def process(input_ids: Any, scores: Any) -> Any:
        vocabulary = scores.shape[-1]
        largest = scores == scores.max(dim=-1, keepdim=True).values
        places = torch.arange(vocabulary, device=scores.device)
        first = torch.where(largest, places, vocabulary).min(dim=-1, keepdim=True).values
        return torch.full_like(scores, float("-inf")).scatter(-1, first, 0.0)

    return process
