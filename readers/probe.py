"""The determinism certificate: do this engine's greedy outputs depend on what shares a batch, on order, on a warm cache?

A sample of the frozen requests is read alone (the reference), in batches, in shuffled batches and, where the engine keeps a
prefix cache, once more while it is warm. After the run the sealed outputs of the sample are compared as well. Every sequence
is kept (probes.jsonl), so the counts in a seal can be counted again.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from offline.canonical import digest_of, read_lines
from readers.process import Process
from readers.records import Certificate, Condition, Divergence, Output, Prediction, Probe
from readers.requests import Requests, batches_of

# Requests sampled where the reader does not say.
SAMPLE = 8
_SEED = 7


def sample(requests: Requests, size: int) -> list[int]:
    """Indices of `size` requests to probe (or all), spread evenly over the lengths, longest first."""
    wanted = [i for batch in batches_of(requests) for i in batch]
    if len(wanted) <= size:
        return wanted
    return [wanted[round(place * (len(wanted) - 1) / max(1, size - 1))] for place in range(size)]


def is_probed(path: Path, requests: Requests) -> bool:
    """Whether the probes of these requests are there: kept by an earlier, interrupted read of the same requests."""
    known = {request.digest for request in requests.requests}
    return path.is_file() and {probe.request for probe in read_lines(path, Probe)} <= known


def probe(process: Process, requests: Requests, size: int) -> list[Probe]:
    """Read a sample under every condition; one probe for each condition and request."""
    chosen = sample(requests, size)
    ids = requests.ids
    alone = {i: process.generate([ids[i]])[0] for i in chosen}
    shuffled = random.Random(_SEED).sample(chosen, len(chosen))
    found: dict[Condition, dict[int, Output]] = {"alone": alone}
    together = batches_of(requests, chosen)
    if any(len(batch) > 1 for batch in together):
        found["batch"] = _read(process, requests, together, warm=False)
    found["shuffled"] = _read(process, requests, batches_of(requests, shuffled, longest_first=False), warm=False)
    if process.forgets:
        # Twice the same batches: the first leaves the cache full of just these inputs.
        _read(process, requests, together, warm=False)
        found["warm"] = _read(process, requests, together, warm=True)
    return [
        _compare(process, requests, condition, i, alone[i], outputs[i]) for condition, outputs in found.items() for i in chosen
    ]


def _read(process: Process, requests: Requests, batches: Sequence[Sequence[int]], *, warm: bool) -> dict[int, Output]:
    outputs: dict[int, Output] = {}
    for number, batch in enumerate(batches):
        # Of several cold batches only the first empties the cache, so that a warm pass finds all of them.
        made = process.generate([requests.ids[i] for i in batch], warm=warm or number > 0)
        outputs.update(zip(batch, made, strict=True))
    return outputs


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """Index of the first token in which two sequences differ (a missing token differs), -1 if they are equal."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return -1 if len(one) == len(other) else min(len(one), len(other))


def _compare(process: Process, requests: Requests, condition: Condition, index: int, alone: Output, output: Output) -> Probe:
    token = first_difference(alone.ids, output.ids)
    margin = None
    if -1 < token < min(len(alone.ids), len(output.ids)):
        rivals = (alone.ids[token], output.ids[token])
        found = process.logprobs([*requests.ids[index], *alone.ids[:token]], rivals)
        margin = None if found is None else f"{abs(found[0] - found[1]):.6f}"
    return Probe(
        request=requests.requests[index].digest,
        condition=condition,
        output_ids=output.ids,
        finish_reason=output.finish_reason,
        token=token,
        margin=margin,
        environment=digest_of(process.environment),
    )


def certify(
    probes: Sequence[Probe], predictions: Sequence[Prediction], environments: Sequence[Mapping[str, str]]
) -> Certificate:
    """Count the probes; the predictions of the sample, where there are some, count as the condition `run`."""
    alone = {p.request: p for p in probes if p.condition == "alone"}
    matched: dict[str, int] = {}
    divergences = []
    for p in probes:
        if p.condition != "alone":
            matched[p.condition] = matched.get(p.condition, 0) + (p.token == -1)
            divergences += [] if p.token == -1 else [Divergence(p.condition, p.request, p.token, p.margin)]
    for prediction in predictions:
        if prediction.request in alone:
            token = first_difference(alone[prediction.request].output_ids, prediction.output_ids)
            matched["run"] = matched.get("run", 0) + (token == -1)
            divergences += [] if token == -1 else [Divergence("run", prediction.request, token, None)]
    invariance = {environment.get("batch_invariance", "not offered by this engine") for environment in environments}
    return Certificate(
        sample=len(alone),
        matched=matched,
        first=min(divergences, key=lambda d: (d.token, d.request, d.condition), default=None),
        batch_invariance=", ".join(sorted(invariance)),
        environment=probes[0].environment,
        probes=digest_of(list(probes)),
    )


def certificate_line(certificate: Certificate | UnsetType) -> str:
    """A certificate in one line."""
    if certificate is UNSET:
        return "determinism not probed"
    counts = ", ".join(f"{count} {condition}" for condition, count in certificate.matched.items())
    line = f"of {certificate.sample} probed alone, the same: {counts}; batch invariance {certificate.batch_invariance}"
    if certificate.first:
        first = certificate.first
        line += f"; first divergence ({first.condition}) at output token {first.token}, margin {first.margin or 'not known'}"
    return line
