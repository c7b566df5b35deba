"""A scored run opened for analysis: verified, with scores by reader, view and question. The labels stay closed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec import UNSET, UnsetType

from eval.analysis.exchanges import check_same_messages, read_side, sealed_plan
from eval.analysis.fallbacks import fallbacks
from eval.analysis.populations import populations
from eval.records import Score
from eval.score import read_scores, stored_metrics
from eval.verify import verify_run
from offline.config.analysis import Analysis, DeclaredContrast
from offline.config.experiment import ResolvedExperiment
from offline.errors import CommandError, ConfigurationError
from offline.records import HopClass
from offline.run.opened import OpenRun
from readers.records import Seal

Scores = Mapping[str, Score]


@dataclass(frozen=True)
class ScoredRun:
    """A verified, scored run."""

    run: OpenRun
    seals: Mapping[str, Seal]  # by reader
    metrics: tuple[str, ...]
    scores: Mapping[tuple[str, str], Scores]  # by (reader, view), then question, in schedule order
    texts: Mapping[str, str]  # question texts by id

    @property
    def experiment(self) -> ResolvedExperiment:
        """The run's experiment."""
        return self.run.experiment

    @property
    def analysis(self) -> Analysis:
        """The declared analysis; empty if the experiment has no such section."""
        return self.experiment.analysis or Analysis()

    @property
    def golds(self) -> dict[str, tuple[str, ...]]:
        """Gold answers by question, from the stored scores."""
        return {name: score.golds for scores in self.scores.values() for name, score in scores.items()}

    @cached_property
    def _fallbacks(self) -> Mapping[str, Collection[str]]:
        return fallbacks(self.run, self.experiment.views)

    def fallen_back(self, views: Sequence[str], questions: Sequence[str]) -> tuple[int, ...] | UnsetType:
        """Number of these questions with a fallback packet, by view; unset if none. Pipelines have none."""
        counts = tuple(sum(name in self._fallbacks.get(view, ()) for name in questions) for view in views)
        return counts if any(counts) else UNSET

    def populations(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Question ids by population."""
        return populations(self.run, self.golds, list(dict.fromkeys(names)))

    def readers_of(self, *views: str) -> list[str]:
        """The readers that answered all of these views and pipelines."""
        return [plan.reader.name for plan in self.experiment.readers if {*views} <= {*plan.answered}]

    def sides(self, contrast: DeclaredContrast) -> tuple[Scores, Scores]:
        """The scores of A and B; CommandError if the run lacks one, StateError if two readers' messages differ."""
        if contrast.view is None:
            keys = [(contrast.reader or "", contrast.a), (contrast.reader or "", contrast.b)]
        else:
            keys = [(contrast.a, contrast.view), (contrast.b, contrast.view)]
        for reader, view in keys:
            if (reader, view) not in self.scores:
                known = ", ".join(f"{name}: {', '.join(self._views(name))}" for name in self.seals)
                raise CommandError(f"{self.run.path}: reader {reader!r} has no view {view!r}; there are {known}")
        if contrast.view is not None:
            one, two = (read_side(self.run, sealed_plan(self.run, name), self.seals[name]) for name in (contrast.a, contrast.b))
            check_same_messages(one, two, contrast.view)
        return self.scores[keys[0]], self.scores[keys[1]]

    def _views(self, reader: str) -> list[str]:
        return [view for name, view in self.scores if name == reader]


def open_scored(run: OpenRun) -> ScoredRun:
    """Verify and open a run; StateError unless it is sealed and its scores are up to date."""
    return run.once("scores", "scored", lambda: _open(run))


def _open(run: OpenRun) -> ScoredRun:
    seals = verify_run(run)
    metrics = stored_metrics(run)
    scores: dict[tuple[str, str], dict[str, Score]] = {}
    for plan in run.experiment.readers:
        for score in read_scores(run, plan.reader.name):
            scores.setdefault((plan.reader.name, score.view), {})[score.question] = score
    texts = {question.id: question.text for question in run.data.questions}
    return ScoredRun(run, seals, metrics, scores, texts)


def by_hops(scores: Scores, members: frozenset[str], population: str) -> Iterator[tuple[HopClass, list[str]]]:
    """Questions of a population by hop class, in order of first appearance; then pooled if there are several classes."""
    groups: dict[HopClass, list[str]] = {}
    for question, score in scores.items():
        if question in members:
            groups.setdefault(score.hop_class, []).append(question)
    if not groups:
        raise ConfigurationError(f"population {population!r} holds no question of this run, so there is nothing to contrast")
    yield from groups.items()
    if len(groups) > 1:
        yield "all", [question for question in scores if question in members]
