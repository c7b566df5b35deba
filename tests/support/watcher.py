"""An observer that keeps what it is told."""

from offline.observer import Observer, Task


class Watcher(Observer, Task):
    """said: messages as (step, what). told: progress of all tasks as (done, total, doing)."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.told: list[tuple[int, int, str]] = []

    def say(self, step: str, what: str) -> None:
        self.said.append((step, what))

    def task(self, step: str, name: str, unit: str) -> Task:
        return self

    def at(self, done: int, total: int, doing: str = "") -> None:
        self.told.append((done, total, doing))
