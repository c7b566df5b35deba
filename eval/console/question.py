"""Output of `coldread show`."""

from collections.abc import Iterator

from rich.console import Console

from eval.analysis.pipeline_story import Candidates, PipelineStory
from eval.analysis.question import QuestionStory
from eval.console.layout import line, more

_LINES = 40  # evidence lines printed; --json prints all


def story(console: Console, result: QuestionStory) -> None:
    """Print one question: each view's evidence and each reader's answer to it."""
    line(console, f"{result.question}  ({result.history}, {result.hop_class})")
    line(console, f"  {result.text}")
    line(console, "  gold: " + (" | ".join(result.golds) if result.golds else "not opened (run `coldread score` first)"))
    for view, shown in result.views.items():
        notes = [f"{shown.records} records"] + ["truncated"] * shown.truncated
        notes += [f"fallback to {shown.fallback}"] if shown.fallback else []
        line(console, "")
        line(console, f"{view}: {', '.join(notes)}")
        lines = shown.evidence.split("\n")
        for record in lines[:_LINES]:
            line(console, f"    {record[:200]}")
        more(console, len(lines) - _LINES, "lines", "    ")
        for reader, answer in shown.answers.items():
            cut = f", {answer.records_cut} oldest records cut" if answer.records_cut else ""
            line(console, f"  {reader}: {answer.text!r} [{answer.finish_reason}{cut}] {_verdicts(answer.metrics)}")
    for pipeline, answers in (result.pipelines or {}).items():
        line(console, "")
        line(console, f"{pipeline} (pipeline)")
        for reader, found in answers.items():
            for text in _trace_lines(reader, found):
                line(console, text)


def _trace_lines(reader: str, found: PipelineStory) -> Iterator[str]:
    """How a pipeline reached its answer: candidates, hops, and each model output."""
    said = ", ".join(filter(None, (found.answered_by, found.fault, found.note)))
    yield f"  {reader}: {found.answer!r} [{said}] {_verdicts(found.metrics or None)}"
    dropped = f", {found.dropped} left out" if found.dropped else ""
    yield f"    retrieved: {' '.join(map(str, found.evidence)) or 'nothing'}{dropped}"
    yield from _candidate_lines(None if found.hops else found.candidates, "    ")
    for hop in found.hops:
        reason = f" ({hop.reason})" if hop.reason else ""
        yield f"    hop {hop.number}: {hop.resolved or hop.query!r} {hop.outcome} {hop.answer or ''}{reason}"
        yield from _candidate_lines(hop.candidates, "      ")
    for call in found.calls:
        yield f"    {call.stage} [{call.finish_reason}]: {(call.error or call.text)[:400]!r}"


def _candidate_lines(candidates: Candidates, indent: str) -> Iterator[str]:
    for each in candidates or ():
        foreign = f" (not given to the policy: {each.foreign})" if each.foreign else ""
        yield f"{indent}candidate [{each.position}] {each.entity!r}: {each.text[:200]}{foreign}"


def _verdicts(metrics: dict[str, bool] | None) -> str:
    return ", ".join(f"{name} {'right' if right else 'wrong'}" for name, right in (metrics or {}).items())
