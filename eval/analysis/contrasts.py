"""Contrasts over a scored run: of two views of a reader, or of two readers of a view. Writes nothing; the labels stay closed.

Declared are those that the experiment declared, which the seal covers; any other is exploratory and has no corrected p.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from eval.analysis.evidence import evidence_outcomes
from eval.analysis.scored import ScoredRun, Scores, by_hops
from eval.records import Contrast, Interaction
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

# reader, or None and a view: the declared contrasts that Holm's correction takes together
Family = tuple[str | None, str | None]


def contrasts(scored: ScoredRun, asked: Sequence[DeclaredContrast], metric: str) -> list[Contrast]:
    """A row for each hop class that occurs, then one that pools them if there are several.

    Holm's family is all rows of the declared contrasts of one reader (of two readers: of one view) by one metric, asked for or
    not. CommandError for a metric that is not stored, or an unknown population.
    """
    if metric not in scored.metrics:
        raise CommandError(f"--metric {metric}: not stored; there are {', '.join(scored.metrics) or 'none'}")
    declared = {contrast.identity: contrast for contrast in scored.analysis.contrasts}
    families = {_family(contrast) for contrast in asked if contrast.identity in declared}
    needed = {**{c.identity: c for c in declared.values() if _family(c) in families}, **{c.identity: c for c in asked}}
    members = scored.populations(contrast.population for contrast in needed.values())
    rows = {key: list(_rows(scored, c, members[c.population], metric, key in declared)) for key, c in needed.items()}
    for family in families:
        tested = [(key, number) for key in declared if _family(declared[key]) == family for number in range(len(rows[key]))]
        p_values = [mcnemar(row.only_a, row.only_b) for row in (rows[key][number] for key, number in tested)]
        for (key, number), p in zip(tested, holm(p_values), strict=True):
            rows[key][number] = msgspec.structs.replace(rows[key][number], holm_p=_p(p))
    return [row for contrast in asked for row in rows[contrast.identity]]


def _family(contrast: DeclaredContrast) -> Family:
    return contrast.reader, contrast.view


def _rows(
    scored: ScoredRun, contrast: DeclaredContrast, members: frozenset[str], metric: str, declared: bool
) -> Iterator[Contrast]:
    a, b = scored.sides(contrast)
    views = (contrast.a, contrast.b) if contrast.view is None else (contrast.view, contrast.view)
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
            fallbacks=scored.fallen_back(views, questions),
            no_width=True if no_width(differences, texts) else UNSET,
        )


def _cut(scores: Scores, questions: Sequence[str]) -> int:
    return sum(scores[question].cut > 0 for question in questions)


def _failed(scores: Scores, questions: Sequence[str]) -> int:
    return sum(scores[question].finish_reason == "error" for question in questions)


def _p(p: float) -> str:
    return f"{p:.4g}"


def interactions(scored: ScoredRun, asked: Sequence[DeclaredInteraction], metric: str) -> list[Interaction]:
    """Interactions, by hop class as `contrasts`."""
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
    """What a person asks for. a, b: two views; with `view`, two readers of it; None: what the experiment declares.

    reader: only this one's. population: None stands for `all` of a and b, for its own of what is declared.
    """

    a: str | None = None
    b: str | None = None
    reader: str | None = None
    view: str | None = None
    population: str | None = None

    def contrasts(self, scored: ScoredRun) -> list[DeclaredContrast]:
        """The contrasts; CommandError where the question makes no sense, or no reader reads both views."""
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


def summary(scored: ScoredRun, asked: ContrastQuery, metric: str, *, evidence: bool = False) -> dict[str, Any]:
    """What `coldread contrast --json` prints. evidence: with `evidence_outcomes`."""
    wanted = asked.contrasts(scored)
    rows, more = contrasts(scored, wanted, metric), interactions(scored, asked.interactions(scored), metric)
    readers = [name for row in rows for name in ((row.a, row.b) if row.reader is None else (row.reader,))]
    return {
        "metric": metric,
        "bootstrap": {"replicates": REPLICATES, "seed": SEED},
        "sealed_blind": {
            name: sealed_blind(scored.seals[name]) for name in dict.fromkeys((*readers, *(row.reader for row in more)))
        },
        "contrasts": msgspec.to_builtins(rows),
        "interactions": msgspec.to_builtins(more),
        **({"evidence": msgspec.to_builtins(evidence_outcomes(scored, wanted, metric))} if evidence else {}),
    }
