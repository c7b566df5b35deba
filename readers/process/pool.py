"""The processes of one reader, started together, and work shared out among them."""

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
    """What starting a reader's engine takes, as often as it is started."""

    start: EngineStart
    forbidden: Forbidden

    @contextmanager
    def run(self, count: int = 1) -> Iterator[list[Process]]:
        """Start `count` processes, which load side by side."""
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
    """One batch: what it is journalled as, its inputs, and how they are decoded (None: as the reader's settings say)."""

    name: str
    inputs: Sequence[Sequence[int]]
    decoding: Decoding | None = None


def share(processes: Sequence[Process], jobs: Sequence[Job]) -> Iterator[JournalEntry]:
    """Hand jobs to whichever process is free; entries as they are finished."""
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
    """Wait until at least one of these has answered or ended, or is overdue; those."""
    nearest = min(process.deadline for process in processes)
    readable, _, _ = select.select(processes, [], [], max(0.0, nearest - time.monotonic()))
    return readable or [process for process in processes if process.deadline <= nearest]
