"""How evidence explains a contrast: accuracy given evidence, and evidence by paired outcome. The labels stay closed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from eval.analysis.coverage import Judge
from eval.analysis.scored import ScoredRun
from eval.results import Result
from offline.config.analysis import DeclaredContrast
from offline.errors import ConfigurationError
from offline.records import Extraction


class SideEvidence(Result, frozen=True):
    """How evidence explains the outcomes of one side of a contrast, in questions."""

    held: int  # packet contains the gold, as `coverage.Counts.gold_in_evidence`
    answered: int  # of these, answered
    lost: int  # answered only by the other side
    lacking_record: int  # of these, the packet lacks a record that the other side's shows
    lacking_gold: int  # of the lost, the packet lacks the gold


class PairedEvidence(Result, frozen=True):
    """How evidence explains the outcomes of both sides."""

    of_a: SideEvidence
    of_b: SideEvidence


@dataclass(frozen=True)
class Held:
    """The contents of one packet."""

    records: frozenset[int]  # positions
    gold: bool  # whether it contains the gold


Packets = Mapping[str, Held]  # by question


def paired_evidence(questions: Sequence[str], outcomes: Sequence[tuple[bool, bool]], a: Packets, b: Packets) -> PairedEvidence:
    """Count questions whose packet contains the gold and is answered, and what the losing side's packets lacked.

    outcomes: (A right, B right) per question. Records later cut to an input cap count as shown.
    """
    right_a, right_b = ({name for name, right in zip(questions, outcomes, strict=True) if right[side]} for side in (0, 1))
    return PairedEvidence(_side_evidence(questions, a, b, right_a, right_b), _side_evidence(questions, b, a, right_b, right_a))


def _side_evidence(questions: Sequence[str], ours: Packets, theirs: Packets, right: set[str], others: set[str]) -> SideEvidence:
    held = [name for name in questions if ours[name].gold]
    lost = [name for name in questions if name in others - right]
    return SideEvidence(
        held=len(held),
        answered=sum(name in right for name in held),
        lost=len(lost),
        lacking_record=sum(not theirs[name].records <= ours[name].records for name in lost),
        lacking_gold=sum(not ours[name].gold for name in lost),
    )


def shown_packets(scored: ScoredRun, asked: Sequence[DeclaredContrast]) -> dict[str, Packets]:
    """Packet contents for these contrasts, by view; ConfigurationError for a pipeline, which has no packets."""
    views = dict.fromkeys(view for contrast in asked for view in contrast.views)
    if pipelines := [view for view in views if view in scored.experiment.served]:
        raise ConfigurationError(
            f"--evidence tells what packets held, and {pipelines[0]!r} is a pipeline, which has none: it retrieves while it "
            "asks; leave --evidence out, or contrast two views"
        )
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
