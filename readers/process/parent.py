"""The parent's end of a reader process: its own process group, time limits, killed with all that it started."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec

from offline.canonical import encode
from offline.config.models import Reader
from offline.errors import AlteredError, ConfigurationError, EngineError, GuardError, ModelError, StateError
from offline.packages import FILE as LAUNCHER
from offline.run.opened import OpenRun
from readers.engines import EngineStart, gpus_of_process
from readers.process import worker
from readers.process.guard import Forbidden
from readers.records import MOST_ID, Decoding, Output

START_SECONDS = 1_800  # to load, if the reader sets no limit; suits a large model on a slow disk
BATCH_SECONDS = 3_600  # likewise for a batch; suits full windows

Answer = TypeVar("Answer", worker.Ready, worker.Done, worker.Weighed)


class Process:
    """One reader process. environment, forgets, served_by: as in `worker.Ready`."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: Any, reader: Reader) -> None:
        self._process = process
        self._errors = errors
        self._reader = reader
        self._deadline = 0.0
        self._limit = "batch_seconds"
        self._sent = 0
        self._cap = reader.output_cap
        self.environment: dict[str, str] = {}
        self.forgets = False
        self.served_by: dict[str, str] | None = None
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        os.set_blocking(self._input.fileno(), False)

    def fileno(self) -> int:
        """For `select`: readable when the process has answered or ended."""
        return self._output.fileno()

    @property
    def deadline(self) -> float:
        """When the pending answer is overdue, on the monotonic clock."""
        return self._deadline

    def start(self, start: EngineStart, forbidden: Forbidden) -> None:
        """Make it load the engine; `ready` waits for that."""
        seconds = self._reader.start_seconds
        self._send(worker.Start(engine=start, forbidden=forbidden), seconds or START_SECONDS, "start_seconds")

    def ready(self) -> None:
        """Wait for the engine."""
        ready = self._receive(worker.Ready)
        self.environment, self.forgets, self.served_by = ready.environment, ready.forgets, ready.served_by

    def send(self, inputs: Sequence[Sequence[int]], *, warm: bool = False, decoding: Decoding | None = None) -> None:
        """Send a batch; warm, decoding: as in `worker.Batch`."""
        self._sent = len(inputs)
        self._cap = self._reader.output_cap if decoding is None else decoding.output_cap
        message = worker.Batch(inputs=tuple(tuple(ids) for ids in inputs), warm=warm, decoding=decoding)
        self._send(message, self._reader.batch_seconds or BATCH_SECONDS, "batch_seconds")

    def receive(self) -> tuple[Output, ...]:
        """The outputs of the batch; EngineError if they are invalid, or the error that the process reports."""
        outputs = self._receive(worker.Done).outputs
        name, cap = self._reader.name, self._cap
        if len(outputs) != self._sent:
            raise EngineError(f"reader {name!r}: the engine gave {len(outputs)} outputs for {self._sent} inputs")
        # A served model's ids are bytes; only the server can count its tokens.
        if self._reader.model.served is msgspec.UNSET and any(len(output.ids) > cap for output in outputs):
            raise EngineError(f"reader {name!r}: the engine exceeded the output cap of {cap} tokens")
        if wrong := [i for output in outputs for i in output.ids if not 0 <= i <= MOST_ID]:
            raise EngineError(f"reader {name!r}: the engine gave {wrong[0]}, which is no token id")
        return outputs

    def generate(self, inputs: Sequence[Sequence[int]], *, warm: bool = False) -> tuple[Output, ...]:
        """Send a batch and wait for its outputs."""
        self.send(inputs, warm=warm)
        return self.receive()

    def logprobs(self, ids: Sequence[int], tokens: Sequence[int]) -> tuple[float, ...] | None:
        """Log probabilities of tokens after ids; None if the engine does not report them."""
        message = worker.Weigh(ids=tuple(ids), tokens=tuple(tokens))
        self._send(message, self._reader.batch_seconds or BATCH_SECONDS, "batch_seconds")
        found = self._receive(worker.Weighed).logprobs
        return None if found is None else tuple(map(float, found))

    def _send(self, message: worker.ToWorker, seconds: int, limit: str) -> None:
        """Write a message; a dead process is reported by `receive`."""
        self._deadline, self._limit = time.monotonic() + seconds, limit
        rest = memoryview(encode(message) + b"\n")
        while rest:
            _, writable, _ = select.select([], [self._input], [], max(0.0, self._deadline - time.monotonic()))
            if not writable:
                raise self._overdue()
            try:
                rest = rest[os.write(self._input.fileno(), rest) :]
            except BrokenPipeError:
                return

    def _receive(self, kind: type[Answer]) -> Answer:
        readable, _, _ = select.select([self], [], [], max(0.0, self._deadline - time.monotonic()))
        if not readable:
            raise self._overdue()
        line = self._output.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        answer = self._decoded(line)
        if isinstance(answer, worker.Failed):
            for error in (ConfigurationError, ModelError, StateError, AlteredError, GuardError):
                if error.exit_code == answer.exit_code:
                    raise error(answer.message)
            raise EngineError(f"reader {self._reader.name!r}: {answer.message}")
        assert isinstance(answer, kind)
        return answer

    def _decoded(self, line: bytes) -> worker.FromWorker:
        """Decode a message of the process; EngineError if it does not fit the protocol."""
        try:
            found: worker.FromWorker = msgspec.json.decode(line, type=worker.FromWorker)
        except msgspec.DecodeError as error:
            whose = f"reader {self._reader.name!r}: the engine {self._reader.engine!r}"
            raise EngineError(f"{whose} gave something else than documented: {error}") from error
        return found

    def _overdue(self) -> EngineError:
        what = "load its model" if self._limit == "start_seconds" else "answer a batch"
        return EngineError(
            f"reader {self._reader.name!r}: the engine process did not {what} in time and was killed; if it only needs longer, "
            f"set {self._limit} in its configuration"
        )

    def _ended(self) -> EngineError:
        try:
            code = self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:  # its pipe is closed, but it does not end
            return self._overdue()
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            ended += " (by hand, or because memory ran out)"
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        last = f", its last words: {lines[-1][:300]}" if lines else ""
        return EngineError(f"reader {self._reader.name!r}: the engine process {ended}{last}")

    def end(self) -> None:
        """Close its input and give it a minute to end; everything is journalled."""
        self._input.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=60)

    def kill(self) -> None:
        """Kill the process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def start_process(reader: Reader, number: int = 0) -> Iterator[Process]:
    """Start the reader's process `number`; on exit, end it and all that it started."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **_devices(reader, number),
    }
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", str(LAUNCHER), "readers.process.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        handle = Process(process, errors, reader)
        try:
            yield handle
            handle.end()
        finally:
            handle.kill()


def _devices(reader: Reader, number: int) -> dict[str, str]:
    """The GPUs of one of several processes: as many as its engine takes, from the visible ones."""
    if (reader.data_parallel or 1) == 1:
        return {}
    each = gpus_of_process(reader)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    wanted = range(number * each, (number + 1) * each)
    if visible is None:
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, wanted))}
    names = visible.split(",")
    if visible and len(names) < wanted.stop:
        raise ConfigurationError(
            f"reader {reader.name!r}: data_parallel x tensor_parallel_size needs {wanted.stop} GPUs or more; "
            f"CUDA_VISIBLE_DEVICES names {len(names)}"
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[i] for i in wanted)} if visible else {}


def forbidden_paths(run: OpenRun) -> Forbidden:
    """What this run's reader processes must not open: its folder and the raw rows."""
    inputs = run.need("data").inputs
    hub = run.experiment.data.hub()
    names = () if hub is None else hub.cache_folders()
    files = ((int(inputs["source_size"]), inputs["source_sha256"]),) if "source_sha256" in inputs else ()
    return Forbidden(folders=(str(run.path.resolve()),), files=files, names=names)
