"""What evidence explains of a contrast: accuracy given evidence, and evidence by paired outcome. The labels stay closed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from eval.analysis.coverage import Judge
from eval.analysis.scored import ScoredRun, by_hops
from eval.records import EvidenceOutcomes, SideEvidence
from offline.config.analysis import DeclaredContrast
from offline.errors import ConfigurationError
from offline.records import Extraction


def evidence_outcomes(scored: ScoredRun, asked: Sequence[DeclaredContrast], metric: str) -> list[EvidenceOutcomes]:
    """Of each contrast, how many questions whose packet holds the gold are answered, and what the losing side's packets lacked.

    Rows are those of `contrasts`. What an input cap cut from a packet afterwards counts as shown.
    """
    members = scored.populations(contrast.population for contrast in asked)
    views = dict.fromkeys(view for c in asked for view in ((c.a, c.b) if c.view is None else (c.view,)))
    if pipelines := [view for view in views if view in scored.experiment.served]:
        raise ConfigurationError(
            f"--evidence tells what packets held, and {pipelines[0]!r} is a pipeline, which has none: it retrieves while it "
            "asks; leave --evidence out, or contrast two views"
        )
    shown = _shown(scored, list(views))
    found = []
    for contrast in asked:
        a, b = scored.sides(contrast)
        of_a, of_b = (shown[contrast.view or name] for name in (contrast.a, contrast.b))
        for hop_class, questions in by_hops(a, members[contrast.population], contrast.population):
            right_a, right_b = ({name for name in questions if side[name].metrics[metric]} for side in (a, b))
            found.append(
                EvidenceOutcomes(
                    a=contrast.a,
                    b=contrast.b,
                    reader=contrast.reader,
                    view=contrast.view,
                    population=contrast.population,
                    hop_class=hop_class,
                    metric=metric,
                    questions=len(questions),
                    of_a=_side_evidence(questions, of_a, of_b, right_a, right_b),
                    of_b=_side_evidence(questions, of_b, of_a, right_b, right_a),
                )
            )
    return found


@dataclass(frozen=True)
class Held:
    """What one packet shows: record positions, and whether the gold."""

    records: frozenset[int]
    gold: bool


def _side_evidence(
    questions: Sequence[str], ours: Mapping[str, Held], theirs: Mapping[str, Held], right: set[str], others: set[str]
) -> SideEvidence:
    held = [name for name in questions if ours[name].gold]
    lost = [name for name in questions if name in others - right]
    return SideEvidence(
        held=len(held),
        answered=sum(name in right for name in held),
        lost=len(lost),
        lacking_record=sum(not theirs[name].records <= ours[name].records for name in lost),
        lacking_gold=sum(not ours[name].gold for name in lost),
    )


def _shown(scored: ScoredRun, views: Sequence[str]) -> dict[str, dict[str, Held]]:
    """What packets show, by view and question."""
    evidence = scored.run.evidence
    judge = Judge(Extraction((), ()), scored.golds)

    @cache
    def records(digest: str) -> frozenset[int]:
        return frozenset(evidence[digest].positions)

    return {
        view: {
            packet.question: Held(
                records=records(packet.evidence),
                gold=judge.holds_gold(packet.question, evidence[packet.evidence].text),
            )
            for packet in packets
        }
        for view, packets in scored.run.packets(views).items()
    }
