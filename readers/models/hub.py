"""The model hub, through its own client: what a branch points to today, and the files of a commit.

Every failure is a ModelError that says what to do. The client is imported on first use.
"""

from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from offline.errors import ModelError, needs


@dataclass(frozen=True)
class HubFile:
    """A file of a commit."""

    name: str
    size: int
    sha256: str | None  # None for a small file, of which the hub keeps another digest


@dataclass(frozen=True)
class Listing:
    """One commit of a model on the hub."""

    commit: str
    licence: str
    gated: str  # none, auto (asking is enough) or manual (somebody decides)
    files: tuple[HubFile, ...]


def _client(what: str) -> Any:
    with needs("transformers", what):
        import huggingface_hub
    return huggingface_hub


def look_up(repository: str, revision: str) -> Listing:
    """The commit that a branch, tag or commit resolves to, and its files; downloads nothing."""
    api = _client("looking a model up on the hub").HfApi()
    try:
        info = api.model_info(repository, revision=revision, files_metadata=True)
    except Exception as error:  # the hub client raises dozens of classes
        raise ModelError(problem(error, repository, revision)) from error
    files = tuple(
        HubFile(name=file.rfilename, size=int(file.size or 0), sha256=file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or ()
    )
    return Listing(commit=str(info.sha), licence=_licence(info), gated=str(info.gated or "none"), files=files)


def _licence(info: Any) -> str:
    """From the model card, else from the tags; "" if neither names one."""
    card = dict(info.card_data.to_dict()) if info.card_data else {}
    tags = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    return licence_of(card) or ", ".join(tags)


def licence_of(card: dict[str, Any]) -> str:
    """The licence in a model card's front matter; "" if it names none."""
    licence, name = card.get("license"), card.get("license_name")
    return f"{licence} ({name})" if licence and name else str(licence or "")


def card_of(readme: Path) -> dict[str, Any]:
    """The front matter of a local model card; empty if it is missing or unreadable."""
    try:
        return dict(_client("reading a model card").metadata_load(readme) or {})
    except Exception:  # no card, or one whose front matter is no YAML: a licence is shown, never relied on
        return {}


def download(repository: str, revision: str, patterns: list[str], whose: str = "", *, fetch: bool = True) -> Path:
    """The folder of a commit's matching files, downloaded if missing and `fetch`. whose: prefix of an error's message."""
    hub = _client(f"{whose}a model from the hub")
    try:
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=patterns, local_files_only=not fetch))
    except Exception as error:  # the hub client raises dozens of classes
        raise ModelError(whose + problem(error, repository, revision)) from error


def download_small(repository: str, commit: str, names: list[str]) -> Path:
    """The folder of a commit with these files, downloaded without a progress bar."""
    _client("a model from the hub").utils.disable_progress_bars()
    return download(repository, commit, [escape(name) for name in names])


def problem(error: Exception, repository: str, revision: str) -> str:
    """The meaning of the client's error and what to do about it, in one line."""
    from huggingface_hub import constants, errors

    at, said = f"{repository} at {revision}", " ".join(str(error).split())
    # A 403 without the hub's own code arrives wrapped.
    refused = [e for e in (error, error.__cause__) if isinstance(e, errors.HfHubHTTPError) and e.response.status_code == 403]
    if isinstance(error, errors.HFValidationError):
        return f"{repository!r} is neither a folder on this machine nor a repository's name (owner/name); check the spelling"
    if isinstance(error, errors.GatedRepoError) or refused:
        return (
            f"{at} could not be fetched: it is gated; ask for access at {constants.ENDPOINT}/{repository}, then log in with "
            "`hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{at} could not be fetched: the repository has no such branch, tag or commit; check the revision"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{at} could not be fetched: there is no such repository, or it is private; check its name or, for a private one, "
            "log in with `hf auth login` or set HF_TOKEN"
        )
    if constants.HF_HUB_OFFLINE:
        return (
            f"{at} could not be fetched: HF_HUB_OFFLINE is set and it is not in {constants.HF_HUB_CACHE}; unset the variable, "
            "or bring the model's folder here and name it by `folder`"
        )
    return f"{at} could not be fetched: {said}; check the network and, for a gated model, that your account has access"
