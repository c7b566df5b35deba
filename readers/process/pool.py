"""The processes of one reader, started together, and the work shared among them."""

import select
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from offline.errors import EngineError
from readers.engines import EngineStart
from readers.process.guard import Forbidden
from readers.process.parent import Process, start_process
from readers.records import Decoding, JournalEntry


@dataclass(frozen=True)
class Engines:
    """What starts a reader's engine, any number of times."""

    start: EngineStart
    forbidden: Forbidden

    @contextmanager
    def run(self, count: int = 1) -> Iterator[list[Process]]:
        """Start `count` processes, which load in parallel."""
        reader = self.start.settings.reader
        with ExitStack() as stack:
            processes = [stack.enter_context(start_process(reader, number)) for number in range(count)]
            for process in processes:
                process.start(self.start, self.forbidden)
            for process in processes:
                process.ready()
            if any(process.environment != processes[0].environment for process in processes):
                raise EngineError(
                    f"reader {reader.name!r}: its {count} processes do not run on the same kind of device, or not in the same "
                    "environment, and would give outputs that depend on who reads what; lower data_parallel"
                )
            yield processes


@dataclass(frozen=True)
class Job:
    """One batch."""

    name: str  # its name in the journal
    inputs: Sequence[Sequence[int]]
    decoding: Decoding | None = None  # None: by the reader's settings


def share(processes: Sequence[Process], jobs: Sequence[Job]) -> Iterator[JournalEntry]:
    """Hand jobs to free processes; yield entries as they are finished."""
    waiting = deque(jobs)
    busy: dict[Process, tuple[Job, float]] = {}

    def give(process: Process) -> None:
        if waiting:
            job = waiting.popleft()
            process.send(job.inputs, decoding=job.decoding)
            busy[process] = (job, time.monotonic())

    for process in processes:
        give(process)
    while busy:
        for process in _answered(list(busy)):
            job, began = busy.pop(process)
            outputs = process.receive()
            seconds = f"{time.monotonic() - began:.3f}"
            yield JournalEntry(batch=job.name, outputs=outputs, environment=process.environment, seconds=seconds)
            give(process)


def _answered(processes: Sequence[Process]) -> list[Process]:
    """Wait until at least one process has answered, ended or is overdue; return those."""
    nearest = min(process.deadline for process in processes)
    readable, _, _ = select.select(processes, [], [], max(0.0, nearest - time.monotonic()))
    return readable or [process for process in processes if process.deadline <= nearest]
