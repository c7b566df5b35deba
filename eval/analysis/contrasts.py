"""Contrasts over a scored run: two views of a reader, or two readers of a view. Writes nothing; the labels stay closed.

Contrasts declared in the experiment are covered by the seal; all others are exploratory and have no corrected p.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from eval.analysis.evidence import Packets, PairedEvidence, SideEvidence, paired_evidence, shown_packets
from eval.analysis.scored import ScoredRun, Scores, by_hops
from eval.results import Result
from eval.score import sealed_blind
from eval.statistics import (
    REPLICATES,
    SEED,
    bootstrap,
    count_pairs,
    holm,
    interaction,
    interaction_values,
    mcnemar,
    mcnemar_chi_square,
    no_width,
)
from offline.config.analysis import DeclaredContrast, DeclaredInteraction
from offline.errors import CommandError
from offline.records import HopClass

# (reader, None) or (None, view): the declared contrasts that share one Holm correction
Family = tuple[str | None, str | None]


class Contrast(Result, frozen=True):
    """A against B on the questions of one population and hop class: two views of `reader`, or two readers of `view`."""

    a: str
    b: str
    reader: str | None
    view: str | None
    population: str
    hop_class: HopClass  # `all`: pooled
    metric: str
    questions: int
    clusters: int  # distinct question texts
    both: int  # both to neither: questions by who answered them, by `metric`
    only_a: int
    only_b: int
    neither: int
    cut_a: int  # questions with evidence cut to the input cap
    cut_b: int
    failed_a: int  # questions without an answer because of a fault
    failed_b: int
    points: str  # A's percentage less B's; two decimals
    low: str  # low, high: bootstrap 95 % interval of points; two decimals
    high: str
    mcnemar_p: str  # exact; p values have four significant digits
    chi_square: str  # two decimals
    chi_square_p: str
    holm_p: str | None  # corrected over the reader's declared contrasts; None if exploratory
    declared: bool  # in the experiment, before reading
    format: Literal[1] = 1
    fallbacks: tuple[int, ...] | UnsetType = UNSET  # questions with a fallback packet, of A and of B; unset if none
    no_width: Literal[True] | UnsetType = UNSET  # all question texts have the same difference: the interval is uninformative
    evidence: PairedEvidence | UnsetType = UNSET  # set on request

    @property
    def readers(self) -> tuple[str, ...]:
        """The one reader, or the two compared."""
        return (self.a, self.b) if self.reader is None else (self.reader,)


class Interaction(Result, frozen=True):
    """(a - b) - (c - d) of four views of one reader. Shared fields as in `Contrast`."""

    a: str
    b: str
    c: str
    d: str
    reader: str
    population: str
    hop_class: HopClass
    metric: str
    questions: int
    clusters: int
    correct: tuple[int, int, int, int]  # right answers of a, b, c, d
    points: str  # the interaction contrast
    low: str
    high: str
    declared: bool
    format: Literal[1] = 1
    fallbacks: tuple[int, ...] | UnsetType = UNSET  # of a, b, c, d
    no_width: Literal[True] | UnsetType = UNSET


def contrasts(scored: ScoredRun, asked: Sequence[DeclaredContrast], metric: str, *, evidence: bool = False) -> list[Contrast]:
    """One row per hop class that occurs, then a pooled one if there are several.

    A Holm family is every declared contrast of one reader (or, for two readers, of one view) by this metric, requested or not.
    evidence: also explain the requested rows by their evidence, for which no side may be a pipeline. CommandError for a metric
    that is not stored or an unknown population.
    """
    if metric not in scored.metrics:
        raise CommandError(f"--metric {metric}: not stored; there are {', '.join(scored.metrics) or 'none'}")
    declared = {contrast.identity: contrast for contrast in scored.analysis.contrasts}
    families = {_family(contrast) for contrast in asked if contrast.identity in declared}
    needed = {**{c.identity: c for c in declared.values() if _family(c) in families}, **{c.identity: c for c in asked}}
    members = scored.populations(contrast.population for contrast in needed.values())
    shown = shown_packets(scored, asked) if evidence else None
    wanted = {contrast.identity for contrast in asked}
    rows = {
        key: list(_rows(scored, c, members[c.population], metric, key in declared, shown if key in wanted else None))
        for key, c in needed.items()
    }
    for family in families:
        tested = [(key, number) for key in declared if _family(declared[key]) == family for number in range(len(rows[key]))]
        p_values = [mcnemar(row.only_a, row.only_b) for row in (rows[key][number] for key, number in tested)]
        for (key, number), p in zip(tested, holm(p_values), strict=True):
            rows[key][number] = msgspec.structs.replace(rows[key][number], holm_p=_p(p))
    return [row for contrast in asked for row in rows[contrast.identity]]


def _family(contrast: DeclaredContrast) -> Family:
    return contrast.reader, contrast.view


def _rows(
    scored: ScoredRun,
    contrast: DeclaredContrast,
    members: frozenset[str],
    metric: str,
    declared: bool,
    shown: Mapping[str, Packets] | None,
) -> Iterator[Contrast]:
    a, b = scored.sides(contrast)
    of_a, of_b = contrast.views
    for hop_class, questions in by_hops(a, members, contrast.population):
        outcomes = [(a[question].metrics[metric], b[question].metrics[metric]) for question in questions]
        pairs = count_pairs(outcomes)
        texts = [scored.texts[question] for question in questions]
        differences = [one - other for one, other in outcomes]
        low, high = bootstrap(differences, texts)
        statistic, chi_square_p = mcnemar_chi_square(pairs.only_a, pairs.only_b)
        yield Contrast(
            a=contrast.a,
            b=contrast.b,
            reader=contrast.reader,
            view=contrast.view,
            population=contrast.population,
            hop_class=hop_class,
            metric=metric,
            questions=pairs.questions,
            clusters=len(set(texts)),
            both=pairs.both,
            only_a=pairs.only_a,
            only_b=pairs.only_b,
            neither=pairs.neither,
            cut_a=_cut(a, questions),
            cut_b=_cut(b, questions),
            failed_a=_failed(a, questions),
            failed_b=_failed(b, questions),
            points=f"{pairs.points:.2f}",
            low=f"{low:.2f}",
            high=f"{high:.2f}",
            mcnemar_p=_p(pairs.p),
            chi_square=f"{statistic:.2f}",
            chi_square_p=_p(chi_square_p),
            holm_p=None,
            declared=declared,
            fallbacks=scored.fallen_back(contrast.views, questions),
            no_width=True if no_width(differences, texts) else UNSET,
            evidence=UNSET if shown is None else paired_evidence(questions, outcomes, shown[of_a], shown[of_b]),
        )


def _cut(scores: Scores, questions: Sequence[str]) -> int:
    return sum(scores[question].cut > 0 for question in questions)


def _failed(scores: Scores, questions: Sequence[str]) -> int:
    return sum(scores[question].finish_reason == "error" for question in questions)


def _p(p: float) -> str:
    return f"{p:.4g}"


def interactions(scored: ScoredRun, asked: Sequence[DeclaredInteraction], metric: str) -> list[Interaction]:
    """The requested interactions, by hop class as in `contrasts`."""
    members = scored.populations(item.population for item in asked)
    return [row for item in asked for row in _interaction(scored, item, members[item.population], metric)]


def _interaction(scored: ScoredRun, item: DeclaredInteraction, members: frozenset[str], metric: str) -> Iterator[Interaction]:
    reader = item.reader or ""
    a, b, c, d = (scored.scores[reader, view] for view in (item.a, item.b, item.c, item.d))
    for hop_class, questions in by_hops(a, members, item.population):
        outcomes = [
            (a[name].metrics[metric], b[name].metrics[metric], c[name].metrics[metric], d[name].metrics[metric])
            for name in questions
        ]
        texts = [scored.texts[question] for question in questions]
        differences = interaction_values(outcomes)
        low, high = bootstrap(differences, texts)
        first, second, third, fourth = (sum(column) for column in zip(*outcomes, strict=True))
        yield Interaction(
            a=item.a,
            b=item.b,
            c=item.c,
            d=item.d,
            reader=reader,
            population=item.population,
            hop_class=hop_class,
            metric=metric,
            questions=len(questions),
            clusters=len(set(texts)),
            correct=(first, second, third, fourth),
            points=f"{interaction(first, second, third, fourth, len(questions)):.2f}",
            low=f"{low:.2f}",
            high=f"{high:.2f}",
            declared=item in scored.analysis.interactions,
            fallbacks=scored.fallen_back((item.a, item.b, item.c, item.d), questions),
            no_width=True if no_width(differences, texts) else UNSET,
        )


@dataclass(frozen=True)
class ContrastQuery:
    """A request for contrasts; without a and b, for the declared ones."""

    a: str | None = None  # a view; with `view`, a reader of it
    b: str | None = None
    reader: str | None = None  # only this reader's
    view: str | None = None
    population: str | None = None  # None: `all` for a and b, else as declared

    def contrasts(self, scored: ScoredRun) -> list[DeclaredContrast]:
        """The requested contrasts; CommandError for inconsistent options or if no reader reads both views."""
        if (self.a is None) != (self.b is None):
            raise CommandError("--a and --b go together")
        if self.view is not None and self.reader is not None:
            raise CommandError("with --view, --a and --b are readers of it; leave --reader out")
        if self.a is None or self.b is None:
            return self._declared(scored)
        if self.a == self.b:
            raise CommandError(f"--a and --b are both {self.a!r}; name two")
        population = self.population or "all"
        if self.view is not None:
            return [DeclaredContrast(self.a, self.b, population, view=self.view)]
        readers = scored.readers_of(self.a, self.b) if self.reader is None else [self.reader]
        if not readers:
            raise CommandError(f"{scored.run.path}: no reader reads both {self.a!r} and {self.b!r}")
        return [DeclaredContrast(self.a, self.b, population, reader=name) for name in readers]

    def _declared(self, scored: ScoredRun) -> list[DeclaredContrast]:
        found = [c for c in scored.analysis.contrasts if self.reader in (None, c.reader) and self.view in (None, c.view)]
        if not found and not self.interactions(scored):
            raise CommandError(
                f"{scored.run.path}: the experiment declares no such contrast; name two views of a reader, `--a VIEW --b VIEW`"
            )
        over = [msgspec.structs.replace(c, population=self.population or c.population) for c in found]
        return list({contrast.identity: contrast for contrast in over}.values())

    def interactions(self, scored: ScoredRun) -> list[DeclaredInteraction]:
        """The declared interactions, unless two views or readers are named."""
        if self.a is not None or self.view is not None:
            return []
        declared = scored.analysis.interactions
        return [i for i in declared if self.reader in (None, i.reader) and self.population in (None, i.population)]


class Bootstrap(Result, frozen=True):
    """Settings of the interval bootstrap."""

    replicates: int = REPLICATES
    seed: int = SEED


class EvidenceOutcomes(Result, frozen=True):
    """Accuracy given evidence, and evidence by paired outcome, of one contrast."""

    a: str
    b: str
    reader: str | None
    view: str | None
    population: str
    hop_class: HopClass
    metric: str
    questions: int
    of_a: SideEvidence
    of_b: SideEvidence
    format: Literal[1] = 1


class ContrastSummary(Result, frozen=True):
    """The requested contrasts and interactions by one metric."""

    metric: str
    bootstrap: Bootstrap
    sealed_blind: dict[str, bool]  # by reader
    contrasts: tuple[Contrast, ...]
    interactions: tuple[Interaction, ...]
    evidence: tuple[EvidenceOutcomes, ...] | UnsetType = UNSET  # one per contrast; unset unless requested


def summary(scored: ScoredRun, asked: ContrastQuery, metric: str, *, evidence: bool = False) -> ContrastSummary:
    """The requested contrasts and interactions."""
    rows = contrasts(scored, asked.contrasts(scored), metric, evidence=evidence)
    more = interactions(scored, asked.interactions(scored), metric)
    readers = [name for row in rows for name in row.readers] + [row.reader for row in more]
    return ContrastSummary(
        metric=metric,
        bootstrap=Bootstrap(),
        sealed_blind={name: sealed_blind(scored.seals[name]) for name in dict.fromkeys(readers)},
        contrasts=tuple(rows),
        interactions=tuple(more),
        evidence=tuple(_outcomes(row, row.evidence) for row in rows if row.evidence) if evidence else UNSET,
    )


def _outcomes(row: Contrast, evidence: PairedEvidence) -> EvidenceOutcomes:
    return EvidenceOutcomes(
        a=row.a,
        b=row.b,
        reader=row.reader,
        view=row.view,
        population=row.population,
        hop_class=row.hop_class,
        metric=row.metric,
        questions=row.questions,
        of_a=evidence.of_a,
        of_b=evidence.of_b,
    )
