"""Comparison of a run's extraction with a reference: a grammar on the same statements, or another run's extraction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from eval.extraction.alignment import Alignment, in_common, map_relations
from eval.extraction.downstream import Downstream, LeftOut, downstream
from eval.extraction.quality import (
    Errors,
    Linking,
    RelationComparison,
    StatusCell,
    TripleAgreement,
    errors,
    linking,
    relations,
    statuses,
    triples,
)
from eval.results import Result
from extract.frontends import extract
from offline.config.experiment import ResolvedExperiment
from offline.config.frontend import Frontend, GrammarForms
from offline.config.yaml import find_config, load_yaml
from offline.errors import ConfigurationError, DataError
from offline.loaders import kind_of
from offline.records import Extraction
from offline.run.opened import OpenRun


def with_grammar(experiment: ResolvedExperiment, grammar: GrammarForms) -> ResolvedExperiment:
    """The experiment with a grammar frontend with these forms as its frontend."""
    frontend = Frontend(kind="grammar", grammar=grammar.name)
    return msgspec.structs.replace(experiment, frontend=frontend, grammar=grammar, extractor=UNSET)


@dataclass(frozen=True)
class Reference:
    """The reference of a comparison."""

    name: str  # as printed
    extraction: Extraction


class Texts(Result, frozen=True):
    """Distinct texts: in both extractions, or in only one."""

    compared: int
    only_extraction: int
    only_reference: int


class ExtractionComparison(Result, frozen=True):
    """The extraction of a run compared with a reference."""

    run: str
    reference: str
    texts: Texts
    statuses: tuple[StatusCell, ...]
    relations: RelationComparison
    agreement: TripleAgreement
    errors: Errors
    linking: Linking
    downstream: Downstream | LeftOut  # only `LeftOut` if no history is complete in the reference


def find_reference(run: OpenRun, given: str) -> Reference:
    """The reference `grammar`, `grammar:NAME`, or another run's folder; ConfigurationError for anything else.

    DataError if it shares no statement with the run.
    """
    reference = _find(run, given)
    if not in_common(run.extraction, reference.extraction):
        raise DataError(f"{run.path} and {reference.name} have no statement in common; compare runs of the same data")
    return reference


def _find(run: OpenRun, given: str) -> Reference:
    kind, colon, name = given.partition(":")
    if kind != "grammar":
        if not Path(given).is_dir():
            raise ConfigurationError(f"--against {given}: no such folder; give grammar, grammar:NAME or a run")
        return Reference(given, OpenRun(Path(given)).extraction)
    if not colon:
        data = run.experiment.data
        if data.grammar is None:
            raise ConfigurationError(f"--against grammar: no grammar is known to fit {kind_of(data)} data; give grammar:NAME")
        name = data.grammar
    grammar = load_yaml(find_config("grammars", name), GrammarForms)
    return Reference(f"grammar:{grammar.name}", extract(run.data.histories, with_grammar(run.experiment, grammar)))


def compare_extractions(run: OpenRun, reference: Reference, golds: Mapping[str, Sequence[str]] | None) -> ExtractionComparison:
    """Compare a run's extraction with a reference; golds None: count no gold answers.

    Only shared texts are compared. Linking ignores the other texts; downstream excludes histories that contain any of them,
    with their questions.
    """
    data, extraction = run.data, run.extraction
    pairs = in_common(extraction, reference.extraction)
    common = {ours.text for ours, _ in pairs}
    whole = [history for history in data.histories if all(s.text in common for s in history.statements)]
    held = {history.id for history in whole}
    about = [question for question in data.questions if question.history in held]
    cut = [
        msgspec.structs.replace(history, statements=tuple(s for s in history.statements if s.text in common))
        for history in data.histories
    ]
    ours, theirs = (
        Extraction(tuple(pair[side] for pair in pairs), whose.relations)
        for side, whose in enumerate((extraction, reference.extraction))
    )
    mapping = map_relations(pairs)
    alignment = Alignment(pairs, mapping)
    left_out = len(data.questions) - len(about)
    return ExtractionComparison(
        run=str(run.path),
        reference=reference.name,
        texts=Texts(
            compared=len(pairs),
            only_extraction=len(extraction.statements) - len(pairs),
            only_reference=len(reference.extraction.statements) - len(pairs),
        ),
        statuses=statuses(pairs),
        relations=relations(alignment, mapping),
        agreement=triples(pairs, mapping),
        errors=errors(alignment),
        linking=linking(cut, ours, theirs, alignment),
        downstream=downstream(whole, about, ours, theirs, alignment, run.experiment, golds, left_out)
        if about
        else LeftOut(left_out),
    )
