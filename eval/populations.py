"""Populations: named sets of the questions of a run, over which contrasts are reckoned.

`all`; `length:NAME`, the questions about histories of that length; and the lists of ids that the experiment declares.
"""

from collections.abc import Iterable, Mapping, Sequence

from offline.analysis import Analysis
from offline.errors import ConfigurationError
from offline.experiment import ResolvedExperiment
from offline.run_folder import RunFolder
from offline.steps import Data, read_data

_LENGTH = "length:"


def populations(
    run: RunFolder, experiment: ResolvedExperiment, golds: Mapping[str, Sequence[str]], names: Iterable[str]
) -> dict[str, frozenset[str]]:
    """The question ids of these populations, by name; ConfigurationError for one that is not known or has no question."""
    data = read_data(run)
    return {name: _members(name, experiment, data) for name in names}


def check_populations(experiment: ResolvedExperiment, data: Data | None = None) -> None:
    """ConfigurationError if the experiment declares an analysis over a population that is not known.

    data: once it is loaded, whether it holds the questions and lengths that are named. A limited run may lack some.
    """
    analysis = experiment.analysis or Analysis()
    for name in analysis.asked:
        if name != "all" and not name.startswith(_LENGTH) and name not in analysis.populations:
            raise _unknown(name, analysis)
    if data is None:
        return
    for name in {*analysis.asked, *analysis.populations}:
        _members(name, experiment, data)


def _members(name: str, experiment: ResolvedExperiment, data: Data) -> frozenset[str]:
    analysis = experiment.analysis or Analysis()
    ids = {question.id for question in data.questions}
    if name == "all":
        return frozenset(ids)
    if name in analysis.populations:
        listed = frozenset(analysis.populations[name])
        if (strangers := sorted(listed - ids)) and experiment.limit is None:
            raise ConfigurationError(f"population {name!r} lists the question {strangers[0]!r}, which this run does not have")
        return listed & ids
    if not name.startswith(_LENGTH):
        raise _unknown(name, analysis)
    histories = {history.id for history in data.histories if history.length == name.removeprefix(_LENGTH)}
    if not histories:
        lengths = dict.fromkeys(history.length for history in data.histories)
        raise ConfigurationError(f"population {name!r}: no history has this length; there are {', '.join(lengths)}")
    return frozenset(question.id for question in data.questions if question.history in histories)


def _unknown(name: str, analysis: Analysis) -> ConfigurationError:
    known = ", ".join(("all", f"{_LENGTH}NAME", *analysis.populations))
    return ConfigurationError(f"no population {name!r}; there are {known}")
