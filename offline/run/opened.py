"""An opened run: what a command reads of a run, each folder verified once."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from offline.canonical import read_lines
from offline.config.experiment import ResolvedExperiment, RetrievalSettings
from offline.errors import StateError
from offline.freeze import memories
from offline.memory import Memory
from offline.records import Evidence, Extraction, History, Packet, Question, Relation, StatementExtraction
from offline.run.folder import COMMANDS, EXPERIMENT, STEP_FOLDERS, RunFolder
from offline.run.manifest import Manifest
from offline.run.steps import configuration_of, model_work, steps_before
from offline.vectors import Retrieval, read_scores, read_vectors

T = TypeVar("T")

# Every step may depend on those before it.
_ORDER = (EXPERIMENT, *STEP_FOLDERS)


@dataclass(frozen=True)
class Data:
    """The loaded data of a run, in the order of its rows."""

    histories: tuple[History, ...]
    questions: tuple[Question, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Question]:
        """Questions by id."""
        return {question.id: question for question in self.questions}

    @cached_property
    def lengths(self) -> Mapping[str, str]:
        """The length class of each history, by history id."""
        return {history.id: history.length for history in self.histories}


class OpenRun(RunFolder):
    """A run folder with its typed contents, read on demand.

    Each folder is verified and read once. Both are forgotten when that step or one before it is written, and when the lock is
    taken, since another process may have written. A command may miss a change made on disk while it runs; the next command
    finds it.
    """

    def __init__(
        self, path: Path, elsewhere: Mapping[str, Path] | None = None, *, may_lack: Collection[str] = frozenset()
    ) -> None:
        super().__init__(path, elsewhere, may_lack=may_lack)
        self._kept: dict[tuple[str, str], object] = {}

    def once(self, step: str, name: str, make: Callable[[], T]) -> T:
        """The value of `make`, called once and again only after `step`, or a step before it, was written."""
        key = (step, name)
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[return-value]

    def forget(self, written: str) -> None:
        """Drop what was kept of a written step and of all steps after it. Readers do not depend on each other."""
        self._kept = {key: value for key, value in self._kept.items() if not _rests_on(key[0], written)}

    @contextmanager
    def lock(self) -> Iterator[None]:
        """As `RunFolder.lock`; what was kept before is forgotten."""
        with super().lock():
            self._kept.clear()
            yield

    def verify(self, folder: str, *, beside: tuple[str, ...] = ()) -> Manifest:
        """As `RunFolder.verify`, once."""
        return self.once(folder, "manifest", lambda: RunFolder.verify(self, folder, beside=beside))

    def step(
        self,
        step: str,
        inputs: Mapping[str, str],
        write: Callable[[Path], None],
        *,
        keep: tuple[str, ...] = (),
        downstream: bool = False,
    ) -> bool:
        """As `RunFolder.step`."""
        written = super().step(step, inputs, write, keep=keep, downstream=downstream)
        if written:
            self.forget(step)
        return written

    def create(self, experiment: ResolvedExperiment) -> None:
        """As `RunFolder.create`."""
        super().create(experiment)
        self._kept.clear()

    @property
    def experiment(self) -> ResolvedExperiment:
        """The run's resolved experiment; AlteredError if the file is not exactly what was written."""
        return self.once(EXPERIMENT, "experiment", self.read_experiment)

    def upstream(self, step: str) -> dict[str, str]:
        """The inputs that a step's manifest must name: the steps before it, its configuration. StateError for a stale one."""
        before = {name: self.fresh(name).digest for name in steps_before(self.experiment, step)}
        return {**before, "configuration": configuration_of(self.experiment, step)}

    def foreign_input(self, step: str) -> str | None:
        """The first input of a step that differs from what the run now holds; None if there is none."""
        made_from = self.need(step).inputs
        return next((name for name, digest in self.upstream(step).items() if made_from.get(name) != digest), None)

    def fresh(self, step: str) -> Manifest:
        """The verified manifest of a step; StateError unless it was made from what the run now holds."""

        def check() -> Manifest:
            manifest = self.need(step)
            if name := self.foreign_input(step):
                raise StateError(
                    f"{self.step_folder(step)} was made from another {name} than the run holds now; "
                    f"run `coldread {COMMANDS[step]} {self.path}` first"
                )
            return manifest

        return self.once(step, "fresh", check)

    def _read(self, step: str, name: str, read: Callable[[Path], T]) -> T:
        """The content of a fresh step's folder, read once."""
        self.fresh(step)
        return self.once(step, name, lambda: read(self.step_folder(step)))

    @property
    def data(self) -> Data:
        """The histories and questions."""
        return self._read("data", "data", _read_data)

    @property
    def extraction(self) -> Extraction:
        """The triples of every distinct statement."""
        return self._read("extraction", "extraction", _read_extraction)

    def packets(self, views: Iterable[str]) -> dict[str, tuple[Packet, ...]]:
        """The packets of these views, each in the order of the questions."""

        def read(view: str) -> Callable[[Path], tuple[Packet, ...]]:
            return lambda folder: tuple(read_lines(folder / f"{view}.jsonl", Packet))

        return {view: self._read("packets", f"packets of {view}", read(view)) for view in views}

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        """The evidence texts that packets name, by digest."""
        return self._read(
            "packets", "evidence", lambda folder: {e.digest: e for e in read_lines(folder / "evidence.jsonl", Evidence)}
        )

    @property
    def retrieval(self) -> Retrieval:
        """The vectors and rerank scores that the views rank by."""
        work = model_work(self.experiment)
        return Retrieval(
            settings=self.experiment.retrieval or RetrievalSettings(),
            vectors=self._read("vectors", "vectors", read_vectors) if work.units else None,
            scores=self._read("reranked", "scores", read_scores) if work.stages else None,
        )

    def compiled(self, retrieval: Retrieval | None = None) -> Iterator[tuple[Memory, list[Question]]]:
        """Each compiled history, one at a time, with the questions about it, in order."""
        data, experiment = self.data, self.experiment
        heading = experiment.prompt.heading
        return memories(data.histories, data.questions, self.extraction, experiment.settings, heading, retrieval=retrieval)


def _rests_on(kept: str, written: str) -> bool:
    here, there = kept.split("/"), written.split("/")
    if here[0] == there[0]:
        return here[1:2] == there[1:2] or not there[1:]
    return _ORDER.index(here[0]) > _ORDER.index(there[0])


def _read_data(folder: Path) -> Data:
    return Data(tuple(read_lines(folder / "histories.jsonl", History)), tuple(read_lines(folder / "questions.jsonl", Question)))


def _read_extraction(folder: Path) -> Extraction:
    return Extraction(
        statements=tuple(read_lines(folder / "statements.jsonl", StatementExtraction)),
        relations=tuple(read_lines(folder / "relations.jsonl", Relation)),
    )
