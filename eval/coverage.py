"""Coverage: does the evidence that a view shows hold a gold answer? The first question to ask of a view, before any model.

`gold_in_evidence`: a normalised gold is a substring of the normalised evidence text. `gold_as_value`: it equals the
object of a shown edge, which chance does not hit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.metrics.normalise import normalise_answer
from offline.experiment import ResolvedExperiment
from offline.records import Extraction, History
from offline.run_folder import RunFolder
from offline.steps import read_data, read_evidence, read_extraction, read_packets


class _Values:
    """Normalised objects of the assertions that a set of records states, by history."""

    def __init__(self, histories: Sequence[History], extraction: Extraction) -> None:
        objects = {s.text: tuple(normalise_answer(t.object) for t in s.triples) for s in extraction.statements}
        self._objects = {h.id: {s.position: objects[s.text] for s in h.statements} for h in histories}

    def shown(self, history: str, positions: Sequence[int]) -> frozenset[str]:
        objects = self._objects[history]
        return frozenset(value for position in positions for value in objects[position])


def coverage(run: RunFolder, experiment: ResolvedExperiment, golds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Counts by view and hop class, as `coldread coverage --json` prints them."""
    data = read_data(run)
    evidence = read_evidence(run)
    texts = {name: normalise_answer(item.text) for name, item in evidence.items()}
    values = _Values(data.histories, read_extraction(run))
    shown: dict[tuple[str, str], frozenset[str]] = {}
    views: dict[str, Any] = {}
    for view, packets in read_packets(run, experiment.views).items():
        table: dict[str, Any] = {}
        for question, packet in zip(data.questions, packets, strict=True):
            cell = table.setdefault(
                question.hop_class,
                {"questions": 0, "gold_in_evidence": 0, "gold_as_value": 0, "records": 0, "characters": 0},
            )
            key = (question.history, packet.evidence)
            if key not in shown:
                shown[key] = values.shown(question.history, evidence[packet.evidence].positions)
            wanted = [normalise_answer(gold) for gold in golds[question.id]]
            cell["questions"] += 1
            cell["gold_in_evidence"] += any(gold in texts[packet.evidence] for gold in wanted)
            cell["gold_as_value"] += any(gold in shown[key] for gold in wanted)
            cell["records"] += packet.records
            cell["characters"] += packet.characters
        table["truncated"] = sum(packet.truncated for packet in packets)
        table["fallbacks"] = sum(packet.fallback is not None for packet in packets)
        views[view] = table
    return {"views": views}
