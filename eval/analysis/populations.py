"""Populations: named sets of questions that a statistic is restricted to, from sources and labels, never from answers.

`all`, and `length:NAME` for each history length; lists of question ids that the experiment declares.
`non_overflow`: the whole history fits the evidence budget, so that no view of it is cut, and no sealed reader's input cap cut
a view that it was given. It says nothing about pipelines: what those retrieve, and so what is left out, hangs on answers.
Under the shared window's 60,000 characters those are the 200 questions of the 6k histories. The published 600 are of the
grammar grid, which has no budget: its reader's cap of 262,144 tokens cuts the raw history of the other 200.
`key_change`, `same_keys`: cmc and prior_refresh choose different keys, or the same ones.
`flagged`, `unflagged`: the superseded-label screen flags the question, or does not.
`contested`: the history states two values of a key of an anchor, so that an answer taken from the question's own subject has to
be chosen. The published 205 are those single-hop questions of which an LLM found two candidates among ten retrieved records;
that depends on the LLM. This is what there was to be found, whoever looks (docs/decisions.md).
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
    """The raw history is not cut by the budget. Every other view shows some of its records, so none of them is cut either."""
    return not memory.render(memory.raw_history).truncated


def keys_change(question: Question, golds: Golds, memory: Memory) -> bool:
    """Walking previous values reaches other keys than walking current ones."""
    return set(memory.closure(question.text)) != set(memory.closure(question.text, previous=True))


def flagged(question: Question, golds: Golds, memory: Memory) -> bool:
    """The superseded-label screen finds something."""
    return any(superseded(question, golds, memory))


def contested(question: Question, golds: Golds, memory: Memory) -> bool:
    """A key of an anchor has a previous value, which differs from its current one."""
    graph = memory.graph
    return any(graph.previous[key] != graph.current[key] for key in memory.closure(question.text, 1))


# By name: what decides, and the answer that belongs.
_DECIDED: dict[str, tuple[Belongs, bool]] = {
    "non_overflow": (fits, True),
    "key_change": (keys_change, True),
    "same_keys": (keys_change, False),
    "flagged": (flagged, True),
    "unflagged": (flagged, False),
    "contested": (contested, True),
}


def population_names(run: OpenRun) -> list[str]:
    """Every name that `populations` knows of this run, in order."""
    analysis = run.experiment.analysis or Analysis()
    return [*_by_history(run.data), *_DECIDED, *analysis.populations]


def populations(run: OpenRun, golds: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, frozenset[str]]:
    """Question ids by population, as asked for; CommandError for a name that there is not."""
    data, analysis = run.data, run.experiment.analysis or Analysis()
    for name in names:
        _check(name, analysis, data, CommandError)
    found = _by_history(data) | {name: _listed(data, run.experiment, name) for name in names if name in analysis.populations}
    if wanted := [name for name in dict.fromkeys(names) if name in _DECIDED]:
        found |= _by_memory(run, data, golds, wanted)
    return {name: found[name] for name in names}


def check_populations(experiment: ResolvedExperiment, data: Data | None = None) -> None:
    """ConfigurationError if the experiment declares an analysis over a population that is not known.

    data: once it is loaded, whether it holds the questions and lengths that are named. A limited run may lack some.
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
    """`all` and the lengths, which need no memory."""
    lengths = {history.id: history.length for history in data.histories}
    groups: dict[str, set[str]] = {f"{LENGTH}{length}": set() for length in lengths.values()}
    for question in data.questions:
        groups[f"{LENGTH}{lengths[question.history]}"].add(question.id)
    whole = frozenset(question.id for question in data.questions)
    return {"all": whole, **{name: frozenset(ids) for name, ids in groups.items()}}


def _listed(data: Data, experiment: ResolvedExperiment, name: str) -> frozenset[str]:
    """A declared list; ConfigurationError for a question that a run without a limit does not have."""
    listed, known = frozenset((experiment.analysis or Analysis()).populations[name]), {q.id for q in data.questions}
    if (strangers := sorted(listed - known)) and experiment.limit is None:
        raise ConfigurationError(
            f"population {name!r} lists {strangers[0]!r}, which is no question of this run "
            f"({len(strangers)} of {len(listed)} are not); mend the list"
        )
    return listed & known


def _by_memory(run: OpenRun, data: Data, golds: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, frozenset[str]]:
    """What only a compiled history can tell. Each is compiled once, and what two names ask alike is asked once."""
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
    """Questions of which a sealed reader's input cap cut a record."""
    cut = set()
    for reader in run.sealed_readers():
        cut |= {scheduled.question for scheduled in sealed_reader(run, reader).requests.schedule if scheduled.cut}
    return cut
