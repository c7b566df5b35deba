"""The label audit: what the screens flag, how large each population is, and how far the headlines depend on it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from eval.analysis.label_screens import SCREENS
from eval.analysis.populations import populations
from eval.metrics import HEADLINE
from eval.records import Finding, Score
from offline.records import Question
from offline.run.opened import OpenRun


class Sensitivity(msgspec.Struct, frozen=True):
    """One headline (`subem` of a reader, view and hop class) and the questions of it that one screen flags.

    A flagged label may be wrong, so a flagged question may be right or wrong whatever was scored: the accuracy lies between
    `lowest` (each of them wrong) and `highest` (each of them right), both over all questions.
    """

    questions: int
    correct: int
    flagged: int
    correct_unflagged: int

    @property
    def unflagged(self) -> int:
        """Questions that the screen leaves."""
        return self.questions - self.flagged

    @property
    def lowest(self) -> int:
        """Questions right if every flagged one is scored against the reader."""
        return self.correct_unflagged

    @property
    def highest(self) -> int:
        """Questions right if every flagged one is scored in its favour."""
        return self.correct_unflagged + self.flagged


def least_favourable(a: Sensitivity, b: Sensitivity) -> int:
    """Questions by which A is ahead of B if every flagged one is won by B: what the labels cannot take from A."""
    return a.lowest - b.highest


def screen_labels(run: OpenRun, golds: Mapping[str, Sequence[str]]) -> list[Finding]:
    """The findings of all screens, screen after screen, each in question order."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for memory, about in run.compiled():
        for question in about:
            for name, screen in SCREENS.items():
                found[name, question.id] = list(screen(question, golds[question.id], memory))
    return [finding for name in SCREENS for question in run.data.questions for finding in found[name, question.id]]


def unresolved(run: OpenRun) -> dict[str, dict[str, int]]:
    """Histories of which the extraction leaves statements unresolved, and how many of how many."""
    texts = {statement.text for statement in run.extraction.statements if statement.status == "unresolved"}
    counts = {
        history.id: {"unresolved": sum(s.text in texts for s in history.statements), "statements": len(history.statements)}
        for history in run.data.histories
    }
    return {name: count for name, count in counts.items() if count["unresolved"]}


def unresolved_line(found: Mapping[str, Mapping[str, int]]) -> str:
    """What `unresolved` means for the superseded screen, in a sentence; empty if every statement is resolved."""
    if not found:
        return ""
    left, of = (sum(counts[name] for counts in found.values()) for name in ("unresolved", "statements"))
    where = f"history {next(iter(found))!r}" if len(found) == 1 else f"{len(found)} histories"
    return (
        f"superseded takes the extraction at its word, and that leaves {left} of {of} statements of {where} unresolved: one of "
        "them may state a flagged gold once more, or overwrite one that is not flagged"
    )


def flagged_by(findings: Iterable[Finding]) -> dict[str, set[str]]:
    """Question ids by screen, of every screen there is."""
    flagged: dict[str, set[str]] = {name: set() for name in SCREENS}
    for finding in findings:
        flagged[finding.screen].add(finding.question)
    return flagged


def sensitivity(scores: Iterable[Score], flagged: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """By reader, view, hop class and screen: counts of `subem`, from stored scores."""
    groups: dict[tuple[str, str, str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.reader, score.view, score.hop_class), []).append(score)
    tables: dict[str, Any] = {}
    for (reader, view, hop_class), group in groups.items():
        cells = tables.setdefault(reader, {}).setdefault(view, {})
        cells[hop_class] = {screen: _counts(_sensitivity(group, ids)) for screen, ids in flagged.items()}
    return tables


def _sensitivity(scores: Sequence[Score], flagged: Collection[str]) -> Sensitivity:
    right = [score.question for score in scores if score.metrics[HEADLINE]]
    return Sensitivity(
        questions=len(scores),
        correct=len(right),
        flagged=sum(score.question in flagged for score in scores),
        correct_unflagged=sum(question not in flagged for question in right),
    )


def _counts(found: Sensitivity) -> dict[str, int]:
    return {**msgspec.structs.asdict(found), "unflagged": found.unflagged, "lowest": found.lowest, "highest": found.highest}


def audit_labels(
    run: OpenRun,
    golds: Mapping[str, Sequence[str]],
    names: Sequence[str],
    scores: Sequence[Score] | None,
) -> dict[str, Any]:
    """The audit as `coldread labels --json` prints it. `names`: the populations to size; scores: None if none are stored."""
    questions = run.data.questions
    findings = screen_labels(run, golds)
    flagged = flagged_by(findings)
    found = populations(run, golds, names)
    return {
        "questions": len(questions),
        "unresolved": unresolved(run),
        "screens": {name: _by_hops(questions, ids) for name, ids in flagged.items()},
        "populations": {name: _by_hops(questions, ids) for name, ids in found.items()},
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "sensitivity": None if scores is None else sensitivity(scores, flagged),
    }


def _by_hops(questions: Iterable[Question], ids: Collection[str]) -> dict[str, int]:
    """How many of these questions, by hop class; zeros too."""
    counts: dict[str, int] = {}
    for question in questions:
        counts[question.hop_class] = counts.get(question.hop_class, 0) + (question.id in ids)
    return counts
