"""The determinism certificate: do greedy outputs depend on batch composition, on order, or on a warm prefix cache?

A sample of the frozen requests is read alone (the reference), in batches, in shuffled batches, and again with a warm prefix
cache where the engine keeps one. The run's own outputs are compared too. Every output is stored (probes.jsonl), so the counts
in a seal can be recomputed.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from offline.canonical import digest_of, read_lines
from readers.process.parent import Process
from readers.records import Certificate, Condition, Divergence, Output, Prediction, Probe
from readers.requests import Requests, batches_of

SAMPLE = 8  # requests sampled by default
_SEED = 7


def sample(requests: Requests, size: int) -> list[int]:
    """Indices of up to `size` requests to probe, spread evenly over the lengths, longest first."""
    return spread([i for batch in batches_of(requests) for i in batch], size)


def spread(ordered: Sequence[int], size: int) -> list[int]:
    """Up to `size` items, spread evenly from first to last."""
    if len(ordered) <= size:
        return list(ordered)
    return [ordered[round(place * (len(ordered) - 1) / max(1, size - 1))] for place in range(size)]


def kept_probes(path: Path, requests: Requests) -> list[Probe]:
    """Probes that an interrupted read of the same requests stored; empty if they belong to other requests."""
    known = {request.digest for request in requests.requests}
    probes = list(read_lines(path, Probe)) if path.is_file() else []
    return probes if {probe.request for probe in probes} <= known else []


def probe(process: Process, requests: Requests, size: int) -> list[Probe]:
    """Read a sample under every condition that this reader can meet; `batch` and `shuffled` skip batches of one request."""
    chosen = sample(requests, size)
    alone = {i: process.generate([requests.ids[i]])[0] for i in chosen}
    together = batches_of(requests, chosen)
    shuffled = batches_of(requests, random.Random(_SEED).sample(chosen, len(chosen)), longest_first=False)
    found: list[tuple[Condition, dict[int, Output]]] = [
        ("alone", alone),
        ("batch", _read(process, requests, [batch for batch in together if len(batch) > 1], warm=False)),
        ("shuffled", _read(process, requests, [batch for batch in shuffled if len(batch) > 1], warm=False)),
    ]
    if process.forgets:
        # The first pass leaves exactly these inputs in the cache.
        _read(process, requests, together, warm=False)
        found.append(("warm", _read(process, requests, together, warm=True)))
    return [
        _compare(process, requests, condition, i, alone[i].ids, outputs[i])
        for condition, outputs in found
        for i in chosen
        if i in outputs
    ]


def probe_run(process: Process, requests: Requests, probes: Sequence[Probe], outputs: Mapping[int, Output]) -> list[Probe]:
    """The sample's outputs in the run itself, as one more condition. outputs: by request index."""
    alone = _read_alone(probes)
    index = {request.digest: i for i, request in enumerate(requests.requests)}
    return [_compare(process, requests, "run", index[name], ids, outputs[index[name]]) for name, ids in alone.items()]


def _read_alone(probes: Sequence[Probe]) -> dict[str, tuple[int, ...]]:
    """Output ids of each sampled request read alone, by request digest."""
    return {p.request: p.output_ids for p in probes if p.condition == "alone"}


def _read(process: Process, requests: Requests, batches: Sequence[Sequence[int]], *, warm: bool) -> dict[int, Output]:
    outputs: dict[int, Output] = {}
    for number, batch in enumerate(batches):
        # Only the first cold batch empties the cache, so that a warm pass finds all of them.
        made = process.generate([requests.ids[i] for i in batch], warm=warm or number > 0)
        outputs.update(zip(batch, made, strict=True))
    return outputs


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """Index of the first token that differs (a missing one does); -1 if the sequences are equal."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return -1 if len(one) == len(other) else min(len(one), len(other))


def _compare(
    process: Process, requests: Requests, condition: Condition, index: int, alone: Sequence[int], output: Output
) -> Probe:
    token = first_difference(alone, output.ids)
    margin = None
    if -1 < token < min(len(alone), len(output.ids)):
        found = process.logprobs([*requests.ids[index], *alone[:token]], (alone[token], output.ids[token]))
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


def certify(probes: Sequence[Probe], environments: Sequence[Mapping[str, str]]) -> Certificate:
    """Count matches and divergences, recomputed from the output ids."""
    alone = _read_alone(probes)
    probed: dict[str, int] = {}
    matched: dict[str, int] = {}
    divergences = []
    for p in probes:
        if p.condition != "alone":
            token = first_difference(alone[p.request], p.output_ids)
            probed[p.condition] = probed.get(p.condition, 0) + 1
            matched[p.condition] = matched.get(p.condition, 0) + (token == -1)
            divergences += [] if token == -1 else [Divergence(p.condition, p.request, token, p.margin)]
    invariance = {environment.get("batch_invariance", "not offered by this engine") for environment in environments}
    return Certificate(
        sample=len(alone),
        probed=probed,
        matched=matched,
        first=min(divergences, key=lambda d: (d.token, d.margin is None, d.request, d.condition), default=None),
        batch_invariance=", ".join(sorted(invariance)),
        environment=probes[0].environment,
        probes=digest_of(list(probes)),
    )


def foreign_probe(probes: Sequence[Probe], predictions: Sequence[Prediction]) -> str | None:
    """Describe the first probe that contradicts the predictions or its own sample; None if there is none."""
    sealed = {prediction.request: prediction.output_ids for prediction in predictions}
    alone = _read_alone(probes)
    for number, p in enumerate(probes, 1):
        if p.request not in sealed or p.request not in alone:
            return f"line {number}: no request of this reader's sample"
        if p.token != first_difference(alone[p.request], p.output_ids):
            return f"line {number}: token {p.token} is not where its output leaves the one read alone"
        if p.condition == "run" and p.output_ids != sealed[p.request]:
            return f"line {number}: its output is not the sealed one"
    return None


def certificate_line(certificate: Certificate | UnsetType) -> str:
    """The certificate in one line."""
    if certificate is UNSET:
        return "determinism not probed"
    found = certificate.matched.items()
    counts = ", ".join(f"{condition} {same} of {certificate.probed[condition]}" for condition, same in found)
    line = f"the same as alone: {counts or 'nothing to compare'}; batch invariance {certificate.batch_invariance}"
    if certificate.first:
        first = certificate.first
        line += f"; first divergence ({first.condition}) at output token {first.token}, margin {first.margin or 'not known'}"
    return line
