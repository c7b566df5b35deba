"""Fixtures that several test files share."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from extract.frontends import extract
from offline.experiment import FactConsolidationData, GrammarForms, ViewSettings, find_config, load_yaml
from offline.loaders import load
from offline.loaders.raw import RawSource
from offline.memory import Memory
from offline.records import Extraction, History, Question
from worlds import HEADING, experiment, real_file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `real_data` are skipped only where COLDREAD_DATA is unset; a missing file makes them fail."""
    if "COLDREAD_DATA" not in os.environ:
        skip = pytest.mark.skip(reason="COLDREAD_DATA is not set")
        for item in items:
            if item.get_closest_marker("real_data"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The file factconsolidation.json of the folder that COLDREAD_DATA names."""
    return real_file("factconsolidation.json")


@dataclass(frozen=True)
class RealWorld:
    """FactConsolidation, loaded, parsed and compiled once for all tests."""

    histories: tuple[History, ...]
    questions: tuple[Question, ...]
    extraction: Extraction
    memories: dict[str, Memory]

    def memory(self, question: Question) -> Memory:
        """The memory that a question asks about."""
        return self.memories[question.history]


@pytest.fixture(scope="session")
def real_world(real_data: Path) -> RealWorld:
    """All eight rows in the shared regime, with the shipped MQuAKE grammar."""
    loaded = load(FactConsolidationData(), RawSource(path=real_data), None)
    grammar = load_yaml(find_config("grammars", "mquake"), GrammarForms)
    extraction = extract(loaded.histories, experiment(grammar=grammar))
    memories = {h.id: Memory(h, extraction, ViewSettings(), HEADING) for h in loaded.histories}
    return RealWorld(loaded.histories, loaded.questions, extraction, memories)
