"""Messages and progress on a console: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from offline.observer import Observer, Task

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_INTERVAL = 10  # minimum seconds between two lines of a task


class Lines(Observer):
    """Print a line per message, and regular progress lines for each task."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, step: str, what: str) -> None:
        """Print a message."""
        self.console.print(f"[bold]{step:>8}[/bold]  {escape(what)}", highlight=False, soft_wrap=True)

    def task(self, step: str, name: str, unit: str) -> Task:
        """A task whose progress is printed at most every ten seconds, and at its end."""
        return _Line(self, step, name, unit)

    @contextmanager
    def bars(self) -> Iterator[Observer]:
        """The same messages and, on a terminal, a bar per task until the context ends."""
        if not self.console.is_terminal:
            yield self
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.fields[step]:>8}  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            yield _Bars(self.console, progress)


class _Line(Task):
    def __init__(self, lines: Lines, step: str, name: str, unit: str) -> None:
        self._lines, self._step, self._name, self._unit = lines, step, name, unit
        self._last = 0.0

    def at(self, done: int, total: int, doing: str = "") -> None:
        if doing:
            self._lines.say(self._step, f"{self._name}: {doing}, {done} of {total} {self._unit} done")
        elif time.monotonic() - self._last >= _INTERVAL or done == total:
            self._last = time.monotonic()
            self._lines.say(self._step, f"{self._name}: {done} of {total} {self._unit}")


class _Bars(Lines):
    def __init__(self, console: Console, progress: "Progress") -> None:
        super().__init__(console)
        self._progress = progress

    def task(self, step: str, name: str, unit: str) -> Task:
        return _Bar(self._progress, self._progress.add_task(escape(name), total=None, step=step), name)


class _Bar(Task):
    def __init__(self, progress: "Progress", task: "TaskID", name: str) -> None:
        self._progress, self._task, self._name = progress, task, name

    def at(self, done: int, total: int, doing: str = "") -> None:
        description = escape(f"{self._name}: {doing}" if doing else self._name)
        self._progress.update(self._task, completed=done, total=total, description=description)
