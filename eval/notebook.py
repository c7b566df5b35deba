"""Runs in Python: their contents as records, each collection of which is also a pandas table. Opens no label."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from eval.analysis.contrasts import Contrast, ContrastQuery, contrasts
from eval.analysis.main_table import TableRow, main_table
from eval.analysis.question import QuestionStory, show
from eval.analysis.scored import ScoredRun, open_scored
from eval.metrics import HEADLINE
from eval.records import Score
from eval.results import Result
from eval.score import ReaderAnswer, answers
from offline.config.experiment import ResolvedExperiment
from offline.errors import CommandError, needs
from offline.records import Fallback, History, Question
from offline.run.folder import TOKENIZERS
from offline.run.opened import Data, OpenRun

if TYPE_CHECKING:
    import pandas

R = TypeVar("R", bound=msgspec.Struct)

# Decimal fields. Records hold them as strings, a table as numbers.
DECIMALS = frozenset({"percent", "low", "high", "points", "mcnemar_p", "chi_square", "chi_square_p", "holm_p"})


class Records(tuple[R, ...]):
    """Records in their stored order."""

    def frame(self) -> "pandas.DataFrame":
        """One row a record, one column a field; a field of a nested record is a column `outer.inner`."""
        with needs("notebook", "frame()"):
            import pandas
        table = pandas.json_normalize([msgspec.to_builtins(record) for record in self])
        for column in table.columns:
            if column.rpartition(".")[2] in DECIMALS:
                table[column] = pandas.to_numeric(table[column], errors="coerce")
        return table.drop(columns="format", errors="ignore")


@dataclass(frozen=True)
class LoadedData(Data):
    """The histories and questions of a run."""

    histories: Records[History]
    questions: Records[Question]


class ShownPacket(Result, frozen=True):
    """The packet of one view and question, with its text."""

    view: str
    question: str
    text: str  # the evidence
    records: int  # in the evidence
    characters: int  # of the evidence
    dropped: int  # chosen records that the budget cut
    fallback: Fallback | None  # what is shown because the view chose nothing


class Run:
    """A run folder, read only. Each step is verified when it is first used; open the run again after it has changed."""

    def __init__(self, opened: OpenRun) -> None:
        self._run = opened
        self.path = opened.path
        self.experiment: ResolvedExperiment = opened.experiment

    def __repr__(self) -> str:
        return f"<coldread run {self.path}: {', '.join(self.views)}; readers: {', '.join(self.readers) or 'none'}>"

    @property
    def views(self) -> tuple[str, ...]:
        """The views that were frozen."""
        return self.experiment.views

    @property
    def readers(self) -> tuple[str, ...]:
        """The readers that the experiment names."""
        return tuple(plan.reader.name for plan in self.experiment.readers)

    @property
    def data(self) -> LoadedData:
        """Histories and questions."""
        return LoadedData(Records(self._run.data.histories), Records(self._run.data.questions))

    def packets(self, views: Iterable[str] | None = None) -> Records[ShownPacket]:
        """The packets of these views (default: all); CommandError for a view that the run lacks."""
        wanted = self.views if views is None else _known("view", views, self.views)
        evidence = self._run.evidence
        return Records(
            ShownPacket(
                packet.view,
                packet.question,
                evidence[packet.evidence].text,
                packet.records,
                packet.characters,
                packet.dropped,
                packet.fallback,
            )
            for packets in self._run.packets(wanted).values()
            for packet in packets
        )

    def predictions(self, reader: str | None = None) -> Records[ReaderAnswer]:
        """Answers of this reader (default: all) through its views and pipelines; StateError if it is not sealed."""
        wanted = self.readers if reader is None else _known("reader", [reader], self.readers)
        return Records(answer for name in wanted for answer in answers(self._run, name))

    @property
    def _scored(self) -> ScoredRun:
        return open_scored(self._run)

    def scores(self) -> Records[Score]:
        """The stored scores, which repeat the gold answers; StateError unless they are up to date."""
        return Records(score for scores in self._scored.scores.values() for score in scores.values())

    def table(self, metric: str = HEADLINE, *, by_length: bool = False) -> Records[TableRow]:
        """The rows of `coldread table`: accuracy with its interval, and costs."""
        return Records(main_table(self._scored, metric, by_length=by_length).rows)

    def contrasts(
        self,
        a: str | None = None,
        b: str | None = None,
        *,
        reader: str | None = None,
        view: str | None = None,
        population: str | None = None,
        metric: str = HEADLINE,
    ) -> Records[Contrast]:
        """Two views, or two readers of `view`, compared question by question (default: what the experiment declares)."""
        query = ContrastQuery(a, b, reader, view, population)
        return Records(contrasts(self._scored, query.contrasts(self._scored), metric))

    def question(self, question: str) -> QuestionStory:
        """One question: what each view shows, what each reader said, and the scores, once they are stored."""
        return show(self._run, question)


def _known(kind: str, asked: Iterable[str], known: Sequence[str]) -> list[str]:
    names = list(asked)
    if unknown := [name for name in names if name not in known]:
        raise CommandError(f"the run has no {kind} {unknown[0]!r}; there are {', '.join(known) or 'none'}")
    return names


def open_run(folder: str | Path) -> Run:
    """Open a run for reading. It may lack the tokenizers' files; errors are those of the command line."""
    return Run(OpenRun(Path(folder), may_lack=TOKENIZERS))
