"""The inputs, outputs and stored scores of one reader by question, used to compare readers given the same inputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from eval.records import Score
from eval.score import read_scores, stored_metrics
from extract.pipelines.records import Trace, lists_of
from extract.pipelines.results import Stored, read_stored
from offline.canonical import digest_of
from offline.config.experiment import ReaderPlan
from offline.errors import CommandError, StateError
from offline.run.opened import OpenRun
from readers.records import Seal, Settings
from readers.requests import SETTINGS, read_settings
from readers.seal import read_seal, reads_folder
from readers.sealed import sealed_reader


@dataclass(frozen=True)
class Exchange:
    """One question of one view or pipeline.

    given: everything that determines the input, except the reader. For a view: packet digest, number of evidence records cut,
    and whether the rest was still too long. For a pipeline: digest of its settings, prompts, history and question, then how
    many retrieved records its first call left out and whether it was refused; later calls depend on answers.
    """

    score: Score
    given: tuple[str, int, bool]
    requests: tuple[str, ...]  # digests of the model's inputs
    input_size: int  # tokens of all requests; bytes for a served model
    output_size: int


def read_exchanges(run: OpenRun, plan: ReaderPlan) -> list[Exchange]:
    """Every question of a scored reader, in the order of its scores."""
    scores = read_scores(run, plan.reader.name)
    found = list(_of_views(run, plan.reader.name, scores))
    return found + (_of_pipelines(run, plan.reader.name, scores[len(found) :]) if plan.pipelines else [])


def _of_views(run: OpenRun, reader: str, scores: Sequence[Score]) -> Iterator[Exchange]:
    for answer, score in zip(sealed_reader(run, reader).answers(), scores, strict=False):
        scheduled, request = answer.scheduled, answer.request
        yield Exchange(
            score=score,
            given=(scheduled.packet, scheduled.cut, request.too_long),
            requests=() if request.too_long else (request.digest,),
            input_size=request.length,
            output_size=len(answer.prediction.output_ids),
        )


def _of_pipelines(run: OpenRun, reader: str, scores: Sequence[Score]) -> list[Exchange]:
    """Calls shared between questions or pipelines are counted for each."""
    experiment, data, stored = run.experiment, run.data, read_stored(run, reader)
    # These and the reader's answers determine a pipeline's calls.
    shared = digest_of((experiment.pipelines, experiment.prompt, experiment.settings))
    histories = {history.id: digest_of(history) for history in data.histories}
    about = {q.id: digest_of((shared, histories[q.history], q)) for q in data.questions}
    found = []
    for trace, score in zip(stored.traces, scores, strict=True):
        made = [made for made in stored.made([trace]) if made.call.refused is None]
        about_it = digest_of((about[trace.question], trace.pipeline))
        asked = Exchange(
            score=score,
            given=(about_it, *_first_call(stored, trace)),
            requests=tuple(each.call.digest for each in made),
            input_size=sum(each.call.length for each in made),
            output_size=sum(len(each.prediction.output_ids) for each in made),
        )
        found.append(asked)
    return found


def _first_call(stored: Stored, trace: Trace) -> tuple[int, bool]:
    """How many retrieved records a question's first call left out, and whether the call was refused.

    The first call is a direct answer, a candidate list, or a hop plan (which shows no records). Traces store only a total of
    dropped records, so for any other multi-call pipeline only a refusal is known.
    """
    if not trace.calls:
        return trace.dropped, False
    first = stored.calls[trace.calls[0]].call
    lists = (stored.candidates[name] for name in lists_of(trace))
    listed = next((listed.dropped for listed in lists if listed.call == first.digest), 0)
    return trace.dropped if len(trace.calls) == 1 else listed, first.refused is not None


@dataclass(frozen=True)
class Side:
    """One of two compared readers."""

    run: OpenRun
    plan: ReaderPlan
    settings: Settings
    seal: Seal
    metrics: tuple[str, ...]
    items: Mapping[str, Mapping[str, Exchange]]  # by view, then question

    def __str__(self) -> str:
        return f"{self.plan.reader.name!r} in {self.run.path}"


def sealed_plan(run: OpenRun, reader: str) -> ReaderPlan:
    """The plan of a sealed reader; CommandError for an unknown name, StateError if it is not sealed."""
    plans = {plan.reader.name: plan for plan in run.experiment.readers}
    if reader not in plans:
        raise CommandError(f"{run.path} has no reader {reader!r}; it has {', '.join(plans) or 'none'}")
    read_seal(run, reader)
    return plans[reader]


def read_side(run: OpenRun, plan: ReaderPlan, seal: Seal) -> Side:
    """A reader of a verified run; StateError unless its stored scores match the current seals and labels."""
    metrics = stored_metrics(run)
    name = plan.reader.name
    folder = reads_folder(run, name)
    items: dict[str, dict[str, Exchange]] = {view: {} for view in plan.answered}
    for asked in read_exchanges(run, plan):
        items[asked.score.view][asked.score.question] = asked
    return Side(run, plan, read_settings(folder / "requests" / SETTINGS), seal, metrics, items)


def differing(one: msgspec.Struct, two: msgspec.Struct) -> str:
    """Names of the fields that differ between two records."""
    return ", ".join(name for name in one.__struct_fields__ if getattr(one, name) != getattr(two, name))


def check_same_messages(a: Side, b: Side, view: str) -> None:
    """StateError unless both readers had the same messages and golds on every question of a view.

    Equal packets, equal cuts and equal refusals suffice: messages are a function of prompt, evidence text and question text
    only. A packet digest covers all three, and `_fit` changes only the evidence, by removing its `cut` oldest lines. Freezing
    makes the digests match the stored texts, and `replay` verifies it.

    A pipeline's later calls depend on answers, so its settings, prompts, history, question and first call must agree.
    """
    ours, theirs = a.items[view], b.items[view]
    where = f"view {view!r} of {a} and {b}"
    if lone := sorted(ours.keys() ^ theirs.keys()):
        raise StateError(
            f"{where}: {len(lone)} questions are read by one alone, for example {lone[0]!r}; "
            "compare runs of the same data and --limit"
        )
    for question, item in ours.items():
        other = theirs[question]
        if item.given != other.given:
            raise StateError(f"{where}, question {question!r}: {_why(a, b, view, question)}")
        if item.score.golds != other.score.golds:
            raise StateError(
                f"{where}, question {question!r}: the gold answers differ, {list(item.score.golds)} and "
                f"{list(other.score.golds)}; load and score both runs with the same labels"
            )


def _why(a: Side, b: Side, view: str, question: str) -> str:
    """Why the messages of one question differ, and what to do."""
    (packet, cut, nothing), (other_packet, other_cut, _) = (s.items[view][question].given for s in (a, b))
    short = a if nothing else b
    if view in (a.plan.pipelines or ()):
        if packet != other_packet:
            return "settings, prompts, histories or questions of the pipeline differ; start both runs from the same ones"
        if cut != other_cut:
            return (
                f"the first calls left out {cut} and {other_cut} of the records retrieved, for lack of room, so they differ; "
                "start a run with a lower k or budget, or with one reader that leaves this pipeline out, and read again"
            )
        return (
            f"the first call to {short} could not be made, as `coldread show` says why, so only the other was asked; "
            "start a run in which that reader has a higher input_cap or leaves this pipeline out"
        )
    if packet != other_packet:
        one, two = (next(p for p in s.run.packets([view])[view] if p.question == question) for s in (a, b))
        return f"the packets differ in {differing(one, two)}; freeze both runs from the same data, settings and prompt"
    if cut != other_cut:
        return (
            f"the input caps cut {cut} and {other_cut} evidence records, so the messages differ; "
            "start a run with a lower budget, or with one reader that leaves this view out, and read again"
        )
    return (
        f"too long for {short} even without evidence, so only the other was given it; "
        "start a run in which that reader has a higher input_cap or leaves this view out"
    )
