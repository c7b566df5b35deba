"""Loading common to embedding model and reranker."""

from contextlib import AbstractContextManager
from typing import Any

from offline.errors import ModelError, guarded, needs
from readers.engines.device import device_name


def libraries(whose: str) -> tuple[Any, Any]:
    """PyTorch and sentence-transformers, made quiet; ConfigurationError says how to install them."""
    with needs("retrieval", whose):
        import sentence_transformers
        import torch
        import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return torch, sentence_transformers


def options(torch: Any, dtype: str, weights: str) -> dict[str, Any]:
    """Loading options of sentence-transformers: no remote code, and pickled weights only if configured.

    Pickled weights pass through PyTorch's restricted unpickler, which builds only tensors.
    """
    model: dict[str, Any] = {"dtype": getattr(torch, dtype), "use_safetensors": weights == "safetensors"}
    if weights != "safetensors":
        model["weights_only"] = True
    return {"local_files_only": True, "trust_remote_code": False, "model_kwargs": model}


def loading(whose: str, folder: str) -> AbstractContextManager[None]:
    """Turn any exception of the library into one ModelError."""
    return guarded(f"{whose}: the model in {folder} cannot be loaded", ModelError)


def environment(torch: Any, library: Any, model: Any, device: Any) -> dict[str, str]:
    """Versions, device, dtype, attention and threads: all that can change an output. No time, no path."""
    import platform

    import transformers

    inner = model.transformers_model
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": str(transformers.__version__),
        "sentence-transformers": str(library.__version__),
        "device": f"{device.type} {device_name(torch, device)}",
        "dtype": str(inner.dtype).removeprefix("torch."),
        "attention": str(inner.config._attn_implementation),
        "threads": str(torch.get_num_threads()),
    }
