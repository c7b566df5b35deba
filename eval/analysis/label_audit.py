"""Label audit: findings of the screens, population sizes, and the sensitivity of headline scores to flagged labels."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import UNSET, UnsetType

from eval.analysis.label_screens import SCREENS
from eval.analysis.populations import populations
from eval.metrics import HEADLINE
from eval.records import Finding, Score
from eval.results import Result
from offline.records import Question
from offline.run.opened import OpenRun


class Sensitivity(Result, frozen=True):
    """One headline (`subem` of a reader, view and hop class) and the questions flagged by one screen.

    A flagged label may be wrong, so flagged questions may be right or wrong whatever their score: accuracy lies between
    `lowest` (all of them wrong) and `highest` (all right), both over all questions.
    """

    questions: int
    correct: int
    flagged: int
    correct_unflagged: int
    unflagged: int
    lowest: int
    highest: int

    @classmethod
    def of(cls, questions: int, correct: int, flagged: int, correct_unflagged: int) -> "Sensitivity":
        """The bounds implied by these counts."""
        unflagged, highest = questions - flagged, correct_unflagged + flagged
        return cls(questions, correct, flagged, correct_unflagged, unflagged, lowest=correct_unflagged, highest=highest)


class Unresolved(Result, frozen=True):
    """Statements of one history, and how many the extraction leaves unresolved."""

    unresolved: int
    statements: int


Sizes = dict[str, int]  # questions by hop class
# By reader, view, hop class and screen.
Sensitivities = dict[str, dict[str, dict[str, dict[str, Sensitivity]]]]


class LabelAudit(Result, frozen=True):
    """Audit of a run's labels."""

    questions: int
    unresolved: dict[str, Unresolved]  # by history; only those with unresolved statements
    screens: dict[str, Sizes]  # flagged questions
    populations: dict[str, Sizes]
    findings: tuple[Finding, ...]
    sensitivity: Sensitivities | None  # None without stored scores
    note: str | UnsetType = UNSET  # why there is no sensitivity


def screen_labels(run: OpenRun, golds: Mapping[str, Sequence[str]]) -> list[Finding]:
    """The findings of all screens, by screen, each in question order."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for memory, about in run.compiled():
        for question in about:
            for name, screen in SCREENS.items():
                found[name, question.id] = list(screen(question, golds[question.id], memory))
    return [finding for name in SCREENS for question in run.data.questions for finding in found[name, question.id]]


def unresolved(run: OpenRun) -> dict[str, Unresolved]:
    """Counts by history, for histories with unresolved statements."""
    texts = {statement.text for statement in run.extraction.statements if statement.status == "unresolved"}
    counts = {
        history.id: Unresolved(sum(s.text in texts for s in history.statements), len(history.statements))
        for history in run.data.histories
    }
    return {name: count for name, count in counts.items() if count.unresolved}


def unresolved_line(found: Mapping[str, Unresolved]) -> str:
    """The effect of `unresolved` on the superseded screen, in a sentence; empty if all statements are resolved."""
    if not found:
        return ""
    left = sum(counts.unresolved for counts in found.values())
    of = sum(counts.statements for counts in found.values())
    where = f"history {next(iter(found))!r}" if len(found) == 1 else f"{len(found)} histories"
    return (
        f"superseded takes the extraction at its word, and that leaves {left} of {of} statements of {where} unresolved: one of "
        "them may state a flagged gold once more, or overwrite one that is not flagged"
    )


def flagged_by(findings: Iterable[Finding]) -> dict[str, set[str]]:
    """Flagged question ids by screen, for every screen."""
    flagged: dict[str, set[str]] = {name: set() for name in SCREENS}
    for finding in findings:
        flagged[finding.screen].add(finding.question)
    return flagged


def sensitivity(scores: Iterable[Score], flagged: Mapping[str, Collection[str]]) -> Sensitivities:
    """How far each headline depends on each screen's flagged questions, from stored scores."""
    groups: dict[tuple[str, str, str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.reader, score.view, score.hop_class), []).append(score)
    tables: Sensitivities = {}
    for (reader, view, hop_class), group in groups.items():
        cells = tables.setdefault(reader, {}).setdefault(view, {})
        cells[hop_class] = {screen: _sensitivity(group, ids) for screen, ids in flagged.items()}
    return tables


def _sensitivity(scores: Sequence[Score], flagged: Collection[str]) -> Sensitivity:
    right = [score.question for score in scores if score.metrics[HEADLINE]]
    return Sensitivity.of(
        questions=len(scores),
        correct=len(right),
        flagged=sum(score.question in flagged for score in scores),
        correct_unflagged=sum(question not in flagged for question in right),
    )


def audit_labels(
    run: OpenRun,
    golds: Mapping[str, Sequence[str]],
    names: Sequence[str],
    scores: Sequence[Score] | str,
) -> LabelAudit:
    """Audit a run's labels. names: the populations to count. scores: stored scores, or the reason there are none."""
    questions = run.data.questions
    findings = screen_labels(run, golds)
    flagged = flagged_by(findings)
    found = populations(run, golds, names)
    return LabelAudit(
        questions=len(questions),
        unresolved=unresolved(run),
        screens={name: _by_hops(questions, ids) for name, ids in flagged.items()},
        populations={name: _by_hops(questions, ids) for name, ids in found.items()},
        findings=tuple(findings),
        sensitivity=None if isinstance(scores, str) else sensitivity(scores, flagged),
        note=scores if isinstance(scores, str) else UNSET,
    )


def _by_hops(questions: Iterable[Question], ids: Collection[str]) -> Sizes:
    """Numbers of these questions by hop class, zeros included."""
    counts: Sizes = {}
    for question in questions:
        counts[question.hop_class] = counts.get(question.hop_class, 0) + (question.id in ids)
    return counts
