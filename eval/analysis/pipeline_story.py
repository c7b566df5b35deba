"""How a pipeline came to its answer to one question, in words and numbers for `show` and the report."""

from typing import Any

from extract.pipelines.records import Hop, Trace
from extract.pipelines.results import Made, Stored, failed


def told(stored: Stored, trace: Trace) -> dict[str, Any]:
    """Answer, retrieved positions, candidates, hops, and what the model said in each call, as it said it."""
    return {
        "answer": trace.answer,
        "answered_by": trace.answered_by,
        "finish_reason": "error" if failed(trace) else "stop",
        "fault": trace.fault,
        "note": trace.note or None,
        "evidence": list(trace.evidence),
        "dropped": trace.dropped,
        "chosen": trace.chosen,
        "candidates": _candidates(stored, trace.candidates),
        "hops": [_hop(stored, hop) for hop in trace.hops],
        "calls": [_call(made) for made in stored.made([trace])],
    }


def _candidates(stored: Stored, name: str | None) -> list[dict[str, Any]] | None:
    """Of one list; None if there is none."""
    if name is None:
        return None
    return [
        {"position": found.position, "entity": found.entity, "text": found.text, "foreign": found.foreign}
        for found in stored.candidates[name].candidates
    ]


def _hop(stored: Stored, hop: Hop) -> dict[str, Any]:
    return {
        "number": hop.number,
        "query": hop.query,
        "resolved": hop.resolved,
        "candidates": _candidates(stored, hop.candidates),
        "chosen": hop.chosen,
        "answer": hop.answer,
        "outcome": hop.outcome,
        "reason": hop.reason,
    }


def _call(made: Made) -> dict[str, Any]:
    call, prediction = made.call, made.prediction
    return {
        "stage": call.stage,
        "input": call.length,
        "output": len(prediction.output_ids),
        "text": prediction.text,
        "finish_reason": prediction.finish_reason,
        "error": prediction.error,
    }
