"""Populations: named subsets of the questions, defined by sources and labels, never by answers.

- `all`, `length:NAME` for each history length, and the lists of question ids declared in the experiment.
- `non_overflow`: the whole history fits the evidence budget, so no view is truncated, and no sealed reader's input cap cut one
  of its views. Pipelines are not considered: what they leave out depends on answers. Under the shared window's 60,000
  characters these are the 200 questions of the 6k histories. The published 600 are of the grammar grid, which has no budget:
  its reader's cap of 262,144 tokens cuts the raw history of the other 200.
- `key_change`, `same_keys`: whether cmc and prior_refresh choose different keys.
- `flagged`, `unflagged`: whether the superseded-label screen flags the question.
- `contested`: the history states two values of a key of an anchor, so an answer about the question's own subject requires a
  choice. The published 205 are the single-hop questions for which an LLM found two candidates among ten retrieved records;
  that depends on the LLM, this population does not (docs/decisions.md).
"""

import difflib
from collections.abc import Callable, Mapping, Sequence

from eval.analysis.label_screens import superseded
from offline.config.analysis import Analysis
from offline.config.experiment import ResolvedExperiment
from offline.errors import ColdreadError, CommandError, ConfigurationError
from offline.memory import Memory
from offline.records import Question
from offline.run.opened import Data, OpenRun
from readers.sealed import sealed_reader

LENGTH = "length:"

Golds = Sequence[str]
Belongs = Callable[[Question, Golds, Memory], bool]


def fits(question: Question, golds: Golds, memory: Memory) -> bool:
    """The budget does not truncate the raw history, hence no view of it: all others show a subset of its records."""
    return not memory.render(memory.raw_history).truncated


def keys_change(question: Question, golds: Golds, memory: Memory) -> bool:
    """Traversing previous values reaches other keys than traversing current ones."""
    return set(memory.closure(question.text)) != set(memory.closure(question.text, previous=True))


def flagged(question: Question, golds: Golds, memory: Memory) -> bool:
    """The superseded-label screen finds something."""
    return any(superseded(question, golds, memory))


def contested(question: Question, golds: Golds, memory: Memory) -> bool:
    """A key of an anchor has a previous value."""
    graph = memory.graph
    return any(graph.previous[key] != graph.current[key] for key in memory.closure(question.text, 1))


# By name: the predicate, and its value for members.
_DECIDED: dict[str, tuple[Belongs, bool]] = {
    "non_overflow": (fits, True),
    "key_change": (keys_change, True),
    "same_keys": (keys_change, False),
    "flagged": (flagged, True),
    "unflagged": (flagged, False),
    "contested": (contested, True),
}


def population_names(run: OpenRun) -> list[str]:
    """Every population name of this run, in order."""
    analysis = run.experiment.analysis or Analysis()
    return [*_by_history(run.data), *_DECIDED, *analysis.populations]


def populations(run: OpenRun, golds: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, frozenset[str]]:
    """Question ids by population, as requested; CommandError for an unknown name."""
    data, analysis = run.data, run.experiment.analysis or Analysis()
    for name in names:
        _check(name, analysis, data, CommandError)
    found = _by_history(data) | {name: _listed(data, run.experiment, name) for name in names if name in analysis.populations}
    if wanted := [name for name in dict.fromkeys(names) if name in _DECIDED]:
        found |= _by_memory(run, data, golds, wanted)
    return {name: found[name] for name in names}


def check_populations(experiment: ResolvedExperiment, data: Data | None = None) -> None:
    """ConfigurationError if a declared analysis names an unknown population.

    data: once loaded, also check that the named questions and lengths exist; a limited run may lack some.
    """
    analysis = experiment.analysis or Analysis()
    for name in analysis.populations:
        if name == "all" or name in _DECIDED or name.startswith(LENGTH):
            raise ConfigurationError(f"the population {name!r} is built in; give the list of questions another name")
    for name in analysis.asked:
        _check(name, analysis, data)
    if data is not None:
        for name in analysis.populations:
            _listed(data, experiment, name)


def _check(name: str, analysis: Analysis, data: Data | None, error: type[ColdreadError] = ConfigurationError) -> None:
    lengths = [f"{LENGTH}NAME"] if data is None else [known for known in _by_history(data) if known != "all"]
    known = ["all", *lengths, *_DECIDED, *analysis.populations]
    if name not in known and not (data is None and name.startswith(LENGTH)):
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise error(f"no population {name!r}; {hint}there are {', '.join(known)}")


def _by_history(data: Data) -> dict[str, frozenset[str]]:
    """`all` and the lengths, which need no compiled memory."""
    lengths = {history.id: history.length for history in data.histories}
    groups: dict[str, set[str]] = {f"{LENGTH}{length}": set() for length in lengths.values()}
    for question in data.questions:
        groups[f"{LENGTH}{lengths[question.history]}"].add(question.id)
    whole = frozenset(question.id for question in data.questions)
    return {"all": whole, **{name: frozenset(ids) for name, ids in groups.items()}}


def _listed(data: Data, experiment: ResolvedExperiment, name: str) -> frozenset[str]:
    """A declared list; ConfigurationError for a question that an unlimited run lacks."""
    listed, known = frozenset((experiment.analysis or Analysis()).populations[name]), {q.id for q in data.questions}
    if (strangers := sorted(listed - known)) and experiment.limit is None:
        raise ConfigurationError(
            f"population {name!r} lists {strangers[0]!r}, which is no question of this run "
            f"({len(strangers)} of {len(listed)} are not); mend the list"
        )
    return listed & known


def _by_memory(run: OpenRun, data: Data, golds: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, frozenset[str]]:
    """Populations that need compiled histories. Each history is compiled, and each predicate evaluated, once."""
    belong: dict[Belongs, set[str]] = {_DECIDED[name][0]: set() for name in names}
    for memory, about in run.compiled():
        for question in about:
            for decide, ids in belong.items():
                if decide(question, golds[question.id], memory):
                    ids.add(question.id)
    if fits in belong:
        belong[fits] -= _cut_by_a_reader(run)
    whole = {question.id for question in data.questions}
    found = {}
    for name in names:
        decide, answer = _DECIDED[name]
        found[name] = frozenset(belong[decide] if answer else whole - belong[decide])
    return found


def _cut_by_a_reader(run: OpenRun) -> set[str]:
    """Questions with a record cut to a sealed reader's input cap."""
    cut = set()
    for reader in run.sealed_readers():
        cut |= {scheduled.question for scheduled in sealed_reader(run, reader).requests.schedule if scheduled.cut}
    return cut
