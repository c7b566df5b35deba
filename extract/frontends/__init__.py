"""Frontends: distinct statement texts to a frozen extraction.

A frontend is a function `(texts, experiment) -> Extraction`, registered by name; `coldread.frontends` is the entry
point group. `extract` holds every frontend to the contract, a third party's too.
"""

from collections.abc import Callable, Sequence

from offline.errors import DataError
from offline.experiment import ResolvedExperiment
from offline.records import Extraction, History
from offline.registry import Registry

FrontendFunction = Callable[[Sequence[str], ResolvedExperiment], Extraction]
FRONTENDS: Registry[FrontendFunction] = Registry("frontend", "coldread.frontends")


def find_frontend(name: str) -> FrontendFunction:
    """The frontend called `name`; ConfigurationError if there is none."""
    from extract.frontends import grammar  # noqa: F401  (it registers itself)

    return FRONTENDS.get(name)


def distinct_texts(histories: Sequence[History]) -> list[str]:
    """Every statement text once, in order of first appearance."""
    return list(dict.fromkeys(statement.text for history in histories for statement in history.statements))


def extract(histories: Sequence[History], experiment: ResolvedExperiment) -> Extraction:
    """The extraction of these histories; DataError if the frontend breaks its contract.

    The contract: every text once and in order, `facts` exactly with triples, every subject and object a literal span of
    its text, every relation in the catalogue.
    """
    texts = distinct_texts(histories)
    extraction = find_frontend(experiment.frontend.kind)(texts, experiment)
    if [statement.text for statement in extraction.statements] != texts:
        raise DataError(f"frontend {experiment.frontend.kind!r} did not return each text once, in order")
    names = {relation.name for relation in extraction.relations}
    for statement in extraction.statements:
        what = f"frontend {experiment.frontend.kind!r}, statement {statement.text[:60]!r}"
        if (statement.status == "facts") != bool(statement.triples):
            raise DataError(f"{what}: status {statement.status!r} with {len(statement.triples)} triples")
        for triple in statement.triples:
            for span in (triple.subject, triple.object):
                if not span.strip() or span not in statement.text:
                    raise DataError(f"{what}: {span[:60]!r} does not occur in it")
            if triple.relation not in names:
                raise DataError(f"{what}: relation {triple.relation!r} is not in the catalogue")
    return extraction
