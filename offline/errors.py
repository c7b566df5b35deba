"""The exception tree. Every message says what is wrong, where, and what to do; every class has one exit code.

    ColdreadError                 1   anything below, caught at the front door
    ├── CommandError              2   options that do not go together, or an unknown name on the command line
    ├── ConfigurationError        3   an experiment, reader, grammar or prompt file that cannot be used
    ├── DataError                 4   raw rows that do not have the documented shape
    ├── LabelError                5   a missing, empty or meaningless gold answer
    ├── ModelError                6   a model that is missing, unpinned or not what its pin says
    ├── StorageError              7   a full disk, a read-only folder, a file that cannot be written
    ├── EngineError               8   an engine that died or broke its contract; the journal is intact
    ├── GuardError                9   a reader process that tried to open what it must not see
    ├── StateError               10   a step asked for out of order, a sealed run asked to change, a run in use
    ├── AlteredError             20   a file of a run that differs from what was written
    └── ReplayError                   a link that does not replay:
        ├── ExtractionLinkError  21   statements no longer give the frozen extraction
        ├── PacketLinkError      22   history and extraction no longer give the frozen packets
        ├── InputLinkError       23   packets and tokenizer no longer give the frozen input token ids
        ├── OutputLinkError      24   output token ids no longer decode to the sealed text, or answers give other traces
        ├── ScoreLinkError       25   predictions and labels no longer give the stored scores
        └── SealLinkError        26   a seal does not cover what lies upstream of it

Exit code 0 means done, 2 is also typer's own code for a command line that it cannot read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ColdreadError(Exception):
    """Root of the tree; `exit_code` is what the command line returns."""

    exit_code = 1


class CommandError(ColdreadError):
    """The command line is wrong: options that do not go together, or an unknown name."""

    exit_code = 2


class ConfigurationError(ColdreadError):
    """An experiment, reader, grammar or prompt file cannot be used as written."""

    exit_code = 3


class DataError(ColdreadError):
    """Raw rows do not have the documented shape."""

    exit_code = 4


class LabelError(ColdreadError):
    """A gold answer is missing, empty, or normalises to nothing."""

    exit_code = 5


class ModelError(ColdreadError):
    """A model is missing, unpinned, or not what its pin says."""

    exit_code = 6


class StorageError(ColdreadError):
    """A file could not be read or written."""

    exit_code = 7


class EngineError(ColdreadError):
    """An engine died, hung or broke its contract."""

    exit_code = 8


class GuardError(ColdreadError):
    """A reader process tried to open raw rows, labels or another part of the run."""

    exit_code = 9


class StateError(ColdreadError):
    """A step was asked for out of order, or a sealed run was asked to change."""

    exit_code = 10


class AlteredError(ColdreadError):
    """A stored file differs from what was written."""

    exit_code = 20


class ReplayError(ColdreadError):
    """A link of the chain does not replay."""

    exit_code = 29


class ExtractionLinkError(ReplayError):
    """Statements no longer give the frozen extraction."""

    exit_code = 21


class PacketLinkError(ReplayError):
    """History and extraction no longer give the frozen packets."""

    exit_code = 22


class InputLinkError(ReplayError):
    """Packets and tokenizer no longer give the frozen input token ids."""

    exit_code = 23


class OutputLinkError(ReplayError):
    """Output token ids no longer decode to the sealed text, or recorded answers no longer give the sealed traces."""

    exit_code = 24


class ScoreLinkError(ReplayError):
    """Predictions and labels no longer give the stored scores."""

    exit_code = 25


class SealLinkError(ReplayError):
    """A seal does not cover what lies upstream of it."""

    exit_code = 26


@contextmanager
def guarded(
    what: str, kind: type[ColdreadError] = ConfigurationError, cure: Callable[[Exception], str] | str = ""
) -> Iterator[None]:
    """Turn exceptions of third-party code, named by `what`, into a `kind` that ends with `cure`; errors of this tree pass."""
    try:
        yield
    except ColdreadError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:400]
        todo = cure if isinstance(cure, str) else cure(error)
        raise kind(f"{what}: {type(error).__name__}: {said}{todo}") from error


@contextmanager
def needs(extra: str, what: str, otherwise: str = "") -> Iterator[None]:
    """Around imports of an optional dependency: ConfigurationError says what needs it, which extra has it, what else to do."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"{what} needs {error.name or error}, which is not installed; run: pip install 'coldread[{extra}]'{otherwise}"
        ) from error
