"""The live source of calls: answers come from the user's cache, or else from a reader's engine.

For a server the cache key also includes the server's identity (`Engine.served_by`: its process and the model's origin), since a
fingerprint covers only a name, or files not compared with the server's. So the engine is started first. A server that reports
no identity is never cached.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from offline.canonical import digest_of, encode, read_record
from offline.config.models import Reader
from offline.errors import AlteredError, EngineError, StorageError
from offline.observer import Task
from offline.run.manifest import SIDE
from readers.calls.cache import Cache, cache_folder
from readers.calls.caller import Caller, Prepared
from readers.engines import EngineStart, asks_server
from readers.models.pins import identify
from readers.process.guard import Forbidden
from readers.process.parent import Process
from readers.process.pool import Engines, Job, share
from readers.records import JournalEntry, Output, Spent
from readers.requests import in_batches, make_settings
from readers.tokens.chat import ChatTokenizer


def batches(calls: Sequence[Prepared], reader: Reader) -> list[list[int]]:
    """Indices of calls in batches of one stage and decoding, longest first, ties by digest.

    A batch's seconds count for its stage; without schemas two stages may share a decoding.
    """
    of = [prepared.call for prepared in calls]
    alike: dict[tuple[str, str], list[int]] = {(call.stage, call.decoding): [] for call in of}
    for i in sorted(range(len(of)), key=lambda i: (-of[i].length, of[i].digest)):
        alike[of[i].stage, of[i].decoding].append(i)
    return [batch for indices in alike.values() for batch in in_batches(indices, of, reader)]


_RESUMES = "finished batches are kept, the same command resumes after them"
_STARTS_ANEW = "no answer was kept, since the server does not say enough of itself to be known again"


@dataclass(frozen=True)
class _Source:
    """What answers a wave."""

    name: str | None  # of a server; None for a model on this machine
    lasts: bool  # whether its answers may be cached


@dataclass
class Live:
    """A source with an engine, started when the cache lacks an answer, or first of all for a server."""

    engines: Engines
    cache: Cache
    task: Task  # told how many calls of a wave are answered
    environments: set[bytes] = field(default_factory=set)  # of the engines that answered
    seconds: dict[str, float] = field(default_factory=dict)  # by stage, cached batches included
    cached: int = 0  # calls
    generated: int = 0  # calls
    _stack: ExitStack = field(default_factory=ExitStack)
    _processes: list[Process] = field(default_factory=list)

    def __call__(self, calls: Sequence[Prepared]) -> list[Output]:
        """Outputs of one wave of calls."""
        found: dict[int, Output] = {}
        jobs: dict[str, tuple[Job, list[int]]] = {}
        source = self._source()
        for batch in batches(calls, self._reader):
            digests = [calls[i].call.digest for i in batch]
            name = digest_of(digests if source.name is None else (digests, source.name))
            kept = self.cache.get(name, len(batch)) if source.lasts else None
            if kept is None:
                jobs[name] = (Job(name, [calls[i].ids for i in batch], calls[batch[0]].decoding), batch)
            else:
                self.cached += len(batch)
                self._take(kept, batch, calls, found)
        self.task.at(len(found), len(calls))
        if jobs:
            try:
                for entry in share(self._started(), [job for job, _ in jobs.values()]):
                    if source.lasts and all(output.finish_reason != "error" for output in entry.outputs):
                        self.cache.put(entry)
                    self.generated += len(entry.outputs)
                    self._take(entry, jobs[entry.batch][1], calls, found)
                    self.task.at(len(found), len(calls))
            except EngineError as error:
                raise EngineError(f"{error}; {_RESUMES if source.lasts else _STARTS_ANEW}") from error
        return [found[i] for i in range(len(calls))]

    def _take(self, entry: JournalEntry, batch: list[int], calls: Sequence[Prepared], found: dict[int, Output]) -> None:
        found.update(zip(batch, entry.outputs, strict=True))
        self.environments.add(encode(entry.environment))
        stage = calls[batch[0]].call.stage
        self.seconds[stage] = self.seconds.get(stage, 0.0) + float(entry.seconds)

    @property
    def _reader(self) -> Reader:
        return self.engines.start.settings.reader

    def _source(self) -> "_Source":
        """What answers: a server is identified through a started engine."""
        if not asks_server(self._reader):
            return _Source(None, lasts=True)
        said = [process.served_by for process in self._started()]
        alike = said[0] is not None and all(one == said[0] for one in said)
        return _Source(digest_of(said[0]), lasts=True) if alike else _Source(None, lasts=False)

    def _started(self) -> list[Process]:
        if not self._processes:
            # Fails before an engine takes minutes to start.
            self.cache.open()
            count = self._reader.data_parallel or 1
            self._processes = self._stack.enter_context(self.engines.run(count))
        return self._processes

    def close(self) -> None:
        """End the engine."""
        self._processes = []
        self._stack.close()

    def spent(self) -> Spent:
        """Cost of all calls so far."""
        return Spent({stage: f"{seconds:.3f}" for stage, seconds in self.seconds.items()}, self.cached, self.generated)

    def resolved(self) -> tuple[dict[str, str], ...]:
        """The distinct environments, in canonical order."""
        return tuple(msgspec.json.decode(line) for line in sorted(self.environments))


def spent_on(folder: Path) -> Spent | None:
    """Cost of a step's calls; None if the file beside its manifest, which nothing covers, is missing or unreadable."""
    try:
        return read_record(folder / SIDE, Spent)
    except (AlteredError, StorageError):
        return None


@contextmanager
def live_caller(
    reader: Reader, model_folder: Path, forbidden: Forbidden, task: Task, *, structured: bool = True
) -> Iterator[tuple[Caller, Live]]:
    """A caller of the pinned model in `model_folder`, and its source; the engine ends with the context.

    `reader.output_cap` and `reader.input_cap` are the largest of any call; together they bound the engine's window. structured:
    answers will be constrained to schemas.
    """
    tokenizer = ChatTokenizer.of(reader, model_folder)
    settings = make_settings(reader, identify(reader, model_folder), tokenizer)
    start = EngineStart(settings=settings, model_folder=str(model_folder), longest=settings.input_cap, structured=structured)
    source = Live(Engines(start, forbidden), Cache(cache_folder()), task)
    try:
        yield Caller(settings, tokenizer, source), source
    finally:
        source.close()
