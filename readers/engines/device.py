"""The PyTorch device of a model, and its name."""

import platform
from typing import Any

from offline.errors import ConfigurationError


def torch_device(torch: Any, wanted: str) -> Any:
    """The device; `auto` prefers a GPU. ConfigurationError if there is no such device."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigurationError(f"device {wanted!r} is not there: PyTorch sees no CUDA; use device: cpu or auto")
    return torch.device(wanted)


def device_name(torch: Any, device: Any) -> str:
    """The GPU's name, or the processor architecture."""
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else platform.machine()
