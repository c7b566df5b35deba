"""Observers of long work. The classes here do nothing: a library call is silent unless given another observer."""


class Task:
    """Progress of one long piece of work."""

    def at(self, done: int, total: int, doing: str = "") -> None:
        """`done` of `total` units are done; `doing` names what precedes the next one, where that may take minutes."""


class Observer:
    """Messages and progress of a run's steps; override what is to be shown."""

    def say(self, step: str, what: str) -> None:
        """One message about a step."""

    def task(self, step: str, name: str, unit: str) -> Task:
        """The progress of work on many units (calls, texts, requests) by the model called `name`."""
        return Task()


SILENT = Observer()
