"""Frontends: distinct statement texts to a frozen extraction.

A frontend is a function `(texts, experiment) -> Extraction`; `coldread.frontends` is the entry point group. A frontend marked
with `asks_model` is a function `(texts, extractor, caller) -> Extracted`. `extract` holds every frontend to the contract.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from extract.frontends.records import Extracted
from offline.config.calls import Extractor
from offline.config.experiment import ResolvedExperiment
from offline.errors import ConfigurationError, DataError
from offline.records import Extraction, History
from offline.registry import Registry
from readers.calls.caller import Caller

FRONTENDS: Registry[Callable[..., Any]] = Registry(
    "frontend",
    "coldread.frontends",
    {
        "grammar": "extract.frontends.grammar:grammar",
        "llm": "extract.frontends.llm:llm",
        "hybrid": "extract.frontends.llm:hybrid",
    },
)
find_frontend = FRONTENDS.get

Function = TypeVar("Function", bound=Callable[..., Any])


def asks_model(frontend: Function) -> Function:
    """Decorator for frontends that ask a model, the one that the experiment's `extractor` names."""
    frontend.asks_model = True  # type: ignore[attr-defined]
    return frontend


def needs_model(name: str) -> bool:
    """True if a frontend asks a model."""
    return bool(getattr(find_frontend(name), "asks_model", False))


def check_frontend(experiment: ResolvedExperiment) -> None:
    """ConfigurationError for an unknown frontend, unusable forms, or an `extractor` that is missing or superfluous."""
    from extract.frontends.grammar import compile_forms

    kind = experiment.frontend.kind
    if experiment.grammar is not None:
        compile_forms(experiment.grammar)
    if needs_model(kind) and not isinstance(experiment.extractor, Extractor):
        raise ConfigurationError(f"the frontend {kind!r} asks a model; name one: `extractor: {{reader: NAME}}`")
    if isinstance(experiment.extractor, Extractor) and not needs_model(kind):
        raise ConfigurationError(f"the frontend {kind!r} asks no model; remove `extractor`")


def distinct_texts(histories: Sequence[History]) -> list[str]:
    """Every statement text once, in order of first appearance."""
    return list(dict.fromkeys(statement.text for history in histories for statement in history.statements))


def extract(histories: Sequence[History], experiment: ResolvedExperiment) -> Extraction:
    """The extraction of these histories by a frontend that asks no model; DataError if it breaks the contract.

    The contract: each text once, in order; triples exactly with `facts`; literal subjects and objects; relations of the
    catalogue.
    """
    texts = distinct_texts(histories)
    extraction: Extraction = find_frontend(experiment.frontend.kind)(texts, experiment)
    check_extraction(extraction, texts, experiment.frontend.kind)
    return extraction


def extract_by_model(histories: Sequence[History], experiment: ResolvedExperiment, caller: Caller) -> Extracted:
    """As `extract`, by a frontend that asks a model; ConfigurationError if it does not, or if the experiment names none."""
    check_frontend(experiment)
    kind, texts = experiment.frontend.kind, distinct_texts(histories)
    extracted: Extracted = find_frontend(kind)(texts, experiment.extractor, caller)
    check_extraction(extracted.extraction, texts, kind)
    return extracted


def check_extraction(extraction: Extraction, texts: Sequence[str], kind: str) -> None:
    """DataError unless an extraction of these texts keeps the contract."""
    if [statement.text for statement in extraction.statements] != texts:
        raise DataError(f"frontend {kind!r} did not return each text once, in order")
    names = {relation.name for relation in extraction.relations}
    for statement in extraction.statements:
        what = f"frontend {kind!r}, statement {statement.text[:60]!r}"
        if (statement.status == "facts") != bool(statement.triples):
            raise DataError(f"{what}: status {statement.status!r} with {len(statement.triples)} triples")
        for triple in statement.triples:
            for span in (triple.subject, triple.object):
                if not span.strip() or span not in statement.text:
                    raise DataError(f"{what}: {span[:60]!r} does not occur in it")
            if triple.relation not in names:
                raise DataError(f"{what}: relation {triple.relation!r} is not in the catalogue")
