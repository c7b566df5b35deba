"""What one reader was asked and gave, question by question, through its views and its pipelines, and the stored score."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eval.records import Score
from eval.score import read_scores
from extract.pipelines.records import Trace, lists_of
from extract.pipelines.results import Stored, read_stored
from offline.canonical import digest_of
from offline.config.experiment import ReaderPlan
from offline.run.opened import OpenRun
from readers.sealed import sealed_reader


@dataclass(frozen=True)
class Exchange:
    """One question of one view or pipeline.

    given: all that decided what was asked, but for the reader. Of a view: its packet's digest, how many evidence records were
    cut, and whether even the rest was too long. Of a pipeline: the digest of its settings, prompts, history and question, and
    of its first call, which no answer has touched, how many retrieved records it left out, and whether it was refused. What
    later calls leave out hangs on answers. requests: digests of what the model was given. input_size, output_size: tokens of
    all of it, for a served model bytes.
    """

    score: Score
    given: tuple[str, int, bool]
    requests: tuple[str, ...]
    input_size: int
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
    """Calls that questions or pipelines share are counted for each of them."""
    experiment, data, stored = run.experiment, run.data, read_stored(run, reader)
    # What a pipeline asks follows from these, and from what its reader answers.
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

    It is a direct answer, a candidate list or a plan of hops, which shows no record. A trace counts its calls together, so of
    one that begins otherwise and goes on only a refusal is known.
    """
    if not trace.calls:
        return trace.dropped, False
    first = stored.calls[trace.calls[0]].call
    lists = (stored.candidates[name] for name in lists_of(trace))
    listed = next((listed.dropped for listed in lists if listed.call == first.digest), 0)
    return trace.dropped if len(trace.calls) == 1 else listed, first.refused is not None
