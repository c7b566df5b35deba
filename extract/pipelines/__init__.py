"""Query-time pipelines: a question to an answer by several calls of one model, with explicit code between them.

A pipeline is a generator: it yields one call at a time, is sent the model's answer, and returns its `Trace`. Its code reads as
if it asked and waited, while a scheduler (schedule.py) asks for all questions at once. Names of built-in pipelines are composed
(compose.py); other packages use the entry point group `coldread.pipelines`.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from extract.pipelines.records import CandidateList, Trace
from offline.canonical import digest_of
from offline.config.calls import PipelineSettings
from offline.config.experiment import Prompt
from offline.memory import Records
from offline.records import Question
from offline.registry import Registry
from offline.render import Rendered, render
from readers.calls.caller import Ask
from readers.records import Prediction

T = TypeVar("T")
Steps = Generator[Ask, Prediction, T]


@dataclass(frozen=True)
class Shown:
    """A call that shows records."""

    ask: Ask
    positions: tuple[int, ...]  # of the records shown, ascending
    dropped: int  # retrieved records left out, oldest first


@dataclass(frozen=True)
class Case:
    """One question, and everything that a pipeline may use for it."""

    pipeline: str  # the name that it was asked for by
    question: Question
    records: Records
    settings: PipelineSettings
    prompt: Prompt  # the reader's own
    fits: Callable[[Ask], bool]  # whether a call's input has room
    lists: dict[str, CandidateList]  # candidate lists kept for the run, by digest

    def keep(self, listed: CandidateList) -> str:
        """Keep a candidate list for the run; its digest, by which a trace names it."""
        name = digest_of(listed)
        self.lists[name] = listed
        return name

    def show(self, query: str, unit: str, ask: Callable[[str], Ask]) -> Shown:
        """The call that `ask` makes of a query's evidence: the `k` best passages by BM25, in position order.

        Evidence is rendered as a view's, under the same budget; the input cap truncates it as a reader's, oldest records first.
        """
        ranked = self.records.corpus(unit).rank("bm25", query, self.settings.k)
        lines = self.records.lines_of(position for passage in ranked for position in passage.positions)
        budget = self.records.settings.budget

        def cut(count: int) -> tuple[Ask, Rendered]:
            rendered = render(lines[count:], (), self.prompt.heading, budget, 0)
            return ask(rendered.text or self.prompt.no_evidence), rendered

        count = 0
        if lines and not self.fits(cut(0)[0]):
            count = bisect_left(range(len(lines)), True, lo=1, key=lambda count: self.fits(cut(count)[0]))
        call, rendered = cut(count)
        return Shown(call, rendered.positions, count + rendered.dropped)


Pipeline = Callable[[Case], Steps[Trace]]


def _composed(name: str) -> Pipeline | None:
    from extract.pipelines.compose import parse

    return parse(name)


PIPELINES: Registry[Pipeline] = Registry(
    "pipeline",
    "coldread.pipelines",
    {},
    _composed,
    "direct with _sampled; sh_conflict and car with _rerun, _llm or a policy, _fallback; all with _chunkN",
)
find_pipeline = PIPELINES.get
