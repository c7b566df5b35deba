"""Replay: derive every link of a sealed run again, without GPU, network or engine.

files -> extraction -> packets -> input token ids -> output text -> scores. The first difference ends the replay with an error
whose class (and exit code) names the broken link. Nothing is written, not even the ledger, so a read-only copy suffices.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET

from eval.labels import read_labels
from eval.metrics import find_metrics
from eval.score import score_files, score_inputs
from eval.verify import verify_run
from extract.frontends import extract, needs_model
from extract.frontends.records import Extracted
from extract.pipelines.results import read_stored
from extract.pipelines.step import TRANSCRIPT, check_inputs, replay_pipelines
from extract.step import CALLS, ENVIRONMENTS, TOKENIZER, extract_again, extracted_files, files_by_model, read_environments
from offline.canonical import compare_lines, read_record
from offline.config.calls import Extractor
from offline.config.experiment import ReaderPlan, ResolvedExperiment, RetrievalSettings
from offline.config.models import Encoder, Reranker
from offline.errors import (
    AlteredError,
    ExtractionLinkError,
    InputLinkError,
    OutputLinkError,
    PacketLinkError,
    ScoreLinkError,
    SealLinkError,
)
from offline.memory import Measure
from offline.observer import SILENT, Observer
from offline.records import Packet
from offline.run.folder import REPORT, TOKENIZERS
from offline.run.manifest import check_files, read_manifest
from offline.run.opened import OpenRun
from offline.run.steps import EXTRACTION_FILES, model_work
from offline.run.writing import freeze_run, packet_files
from readers.certificate import certificate_line, certify, foreign_probe
from readers.encoders.encode import ENCODER, RERANKER
from readers.read import make_measure
from readers.records import Encoded, RerankedBy
from readers.requests import REQUEST_FILES, REQUESTS, SCHEDULE, SETTINGS, check_settings, make_requests, tokenizer_names
from readers.seal import (
    PIPELINES,
    PREDICTIONS,
    PROBES,
    SEAL,
    TIMINGS,
    count,
    pipelines_line,
    reads_folder,
)
from readers.sealed import sealed_reader
from readers.tokens.chat import ChatTokenizer, tokenizer_at
from readers.transcript import check_environments, read_transcript

SKIPPED = "skipped"  # prefix of an unchecked link's detail
# The built-in frontends, run again in a replay, with recorded model answers.
REPLAYED_FRONTENDS = ("grammar", "llm", "hybrid")


@dataclass(frozen=True)
class Link:
    """One visited link of the chain."""

    link: str
    detail: str  # how many items were checked, or why none

    @property
    def skipped(self) -> bool:
        """Whether the caller asked not to check it."""
        return self.detail.startswith(SKIPPED)


class _Links(Observer):
    """Collects every link, and forwards it."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.found: list[Link] = []

    def say(self, step: str, what: str) -> None:
        self.found.append(Link(step, what))
        self._observer.say(step, what)


def check_packets(run: OpenRun, measure: Measure) -> int:
    """Derive all packets again, compare byte for byte and return their number; PacketLinkError at the first difference."""
    run.fresh("packets")
    frozen = freeze_run(run, measure)
    folder = run.step_folder("packets")

    def name(record: Any) -> str:
        return (
            f"the packet of view {record.view!r}, question {record.question!r}"
            if isinstance(record, Packet)
            else f"the evidence {record.digest[:12]}…"
        )

    check_files(folder, packet_files(frozen))
    for file, records in packet_files(frozen).items():
        compare_lines(folder / file, records, PacketLinkError, name)
    return sum(map(len, frozen.packets.values()))


def replay(
    run: OpenRun, *, tokens: bool = True, tokenizers: Path | None = None, observer: Observer = SILENT
) -> tuple[Link, ...]:
    """Replay a run and return its links in order; ReplayError, AlteredError or StateError on failure.

    tokens: False skips token ids and needs no tokenizer. tokenizers: folder of tokenizer files, for a run published without.
    """
    links = _Links(observer)
    experiment = run.experiment
    kept = _tokenizers(experiment)
    elsewhere = {} if tokenizers is None else {folder: tokenizer_at(name, tokenizers) for folder, name in kept.items()}
    run = OpenRun(run.path, elsewhere, may_lack=TOKENIZERS)
    seals = verify_run(run)
    if tokens and (lacking := [path for folder in kept for path in run.lacks(folder)]):
        raise AlteredError(
            f"{lacking[0]} is missing, and token ids need the tokenizer: give a folder that holds it, `--tokenizer FOLDER`, "
            "or leave them out, `--no-tokens`"
        )
    files = sum(len(read_manifest(path.parent).files) for path in run.path.rglob("manifest.json"))
    links.say("files", f"{files} files, {len(seals)} seals")
    _replay_extraction(run, links, tokens=tokens)
    _replay_models(run, links)
    needs_tokens = experiment.settings.length_unit == "tokens"
    if needs_tokens and not tokens:
        links.say("packets", "skipped: random_disjoint matches tokens, and --no-tokens was given")
    else:
        measure, _ = make_measure(run)
        links.say("packets", f"{check_packets(run, measure)} packets")
    for plan in experiment.readers:
        if tokens:
            at = run.files_of(f"reads/{plan.reader.name}/tokenizer")
            _replay_tokens(run, plan, at, links)
            _replay_pipelines(run, plan, at, links)
        else:
            links.say("tokens", f"{SKIPPED} for {plan.reader.name}: --no-tokens was given")
            if plan.pipelines:
                links.say(
                    "pipelines", f"{SKIPPED} for {plan.reader.name}: their calls are token ids, and --no-tokens was given"
                )
        _replay_seal(run, plan, links)
    if run.has("scores"):
        _replay_scores(run, links)
    else:
        links.say("scores", "none stored; run `coldread score` to make them")
    if (run.path / REPORT).exists():
        links.say("report", f"{REPORT}: not checked, no seal covers it; `coldread report` makes it again")
    return tuple(links.found)


def _tokenizers(experiment: ResolvedExperiment) -> dict[str, str]:
    """The models whose tokenizers a run of this experiment holds, by folder."""
    extractor = experiment.extractor
    extracting = {f"extraction/{TOKENIZER}": extractor.reader.name} if isinstance(extractor, Extractor) else {}
    return extracting | {f"reads/{plan.reader.name}/tokenizer": plan.reader.name for plan in experiment.readers}


def _replay_extraction(run: OpenRun, links: _Links, *, tokens: bool) -> None:
    kind = run.experiment.frontend.kind
    if kind not in REPLAYED_FRONTENDS:
        links.say("extraction", f"kept as frozen: the frontend {kind!r} is not run again")
        return
    folder = run.step_folder("extraction")
    if not needs_model(kind):
        check_files(folder, EXTRACTION_FILES)
        again = extract(run.data.histories, run.experiment)
        calls = ""
    elif not tokens:
        links.say("extraction", "skipped: its calls are token ids, and --no-tokens was given")
        return
    else:
        extracted, made = _extract_again(run)
        again, calls = extracted.extraction, f", {made} calls"
    statements, relations = (folder / name for name in EXTRACTION_FILES)
    compare_lines(statements, again.statements, ExtractionLinkError, lambda s: f"the statement {s.text[:60]!r}")
    compare_lines(relations, again.relations, ExtractionLinkError, lambda r: f"the relation {r.name!r}")
    links.say("extraction", f"{len(again.statements)} statements{calls}")


def _extract_again(run: OpenRun) -> tuple[Extracted, int]:
    """Rerun a model frontend on its recorded answers; the extraction and its number of calls."""
    folder = run.step_folder("extraction")
    extractor = run.experiment.extractor
    if not isinstance(extractor, Extractor):
        raise ExtractionLinkError(f"{folder}: the experiment names no extractor")
    transcript = read_transcript(folder / CALLS)
    check_files(folder, files_by_model(transcript.settings))
    check_environments(folder / ENVIRONMENTS, read_environments(folder), transcript)
    extracted, made = extract_again(run, extractor)
    for name, records in extracted_files(extracted).items():
        compare_lines(folder / name, records, ExtractionLinkError, lambda record: f"a {type(record).__name__}")
    return extracted, made


def _replay_models(run: OpenRun, links: _Links) -> None:
    """Accept the stored outputs of retrieval models; PacketLinkError if other models than the experiment's made them."""
    work, retrieval = model_work(run.experiment), run.experiment.retrieval or RetrievalSettings()
    if work.units:
        vectors = read_record(run.step_folder("vectors") / ENCODER, Encoded)
        _same_model(run.step_folder("vectors") / ENCODER, vectors.encoder, retrieval.encoder)
        made = f"{vectors.passages} passages, {vectors.queries} questions"
        links.say("vectors", f"kept as frozen: {made}, {vectors.encoder.name} on {vectors.environment['device']}")
    if work.stages:
        scores = read_record(run.step_folder("reranked") / RERANKER, RerankedBy)
        _same_model(run.step_folder("reranked") / RERANKER, scores.reranker, retrieval.reranker)
        links.say("reranked", f"kept as frozen: {scores.pairs} pairs, {scores.reranker.name} on {scores.environment['device']}")


def _same_model(path: Path, stored: Encoder | Reranker, configured: Encoder | Reranker | None) -> None:
    if stored != configured:
        raise PacketLinkError(f"{path}: made by {stored.name!r} as it was then configured, not by what the experiment names")


def _replay_tokens(run: OpenRun, plan: ReaderPlan, at: Path, links: _Links) -> None:
    name = plan.reader.name
    folder = reads_folder(run, name)
    reader = sealed_reader(run, name)
    stored = reader.requests
    tokenizer = ChatTokenizer.of(plan.reader, at)
    check_files(folder / "requests", REQUEST_FILES)
    check_files(folder / "tokenizer", tokenizer_names(stored.settings))
    check_settings(folder / "requests" / SETTINGS, plan.reader, stored.settings, tokenizer)
    again = make_requests(
        stored.settings, tokenizer, run.experiment.prompt, run.data.by_id, run.packets(plan.views), run.evidence
    )
    compare_lines(
        folder / "requests" / SCHEDULE,
        again.schedule,
        InputLinkError,
        lambda s: f"the request of view {s.view!r}, question {s.question!r}",
    )
    compare_lines(folder / "requests" / REQUESTS, again.requests, InputLinkError, lambda r: f"request {r.digest[:12]}…")
    for request, ids, expected in zip(stored.requests, stored.ids, again.ids, strict=True):
        if ids != expected:
            place = next(s for s in stored.schedule if s.request == request.digest)
            raise InputLinkError(
                f"{folder / 'requests' / 'inputs.u32'}: the token ids of view {place.view!r}, question {place.question!r} come "
                "out differently when derived again"
            )
    kind = "token id sequences" if stored.settings.transport is UNSET else "chats as bytes"
    links.say("inputs", f"{name}: {len(again.requests)} {kind}, {sum(map(len, again.ids))} ids")
    predictions, cap = reader.predictions, plan.reader.output_cap
    for number, prediction in enumerate(predictions, 1):
        if tokenizer.decode(prediction.output_ids) != prediction.text:
            raise OutputLinkError(
                f"{folder / 'predictions.jsonl'}, line {number}: the output ids decode to "
                f"{tokenizer.decode(prediction.output_ids)[:60]!r}, the stored text is {prediction.text[:60]!r}"
            )
        if stored.settings.exceeds(prediction.output_ids, cap):
            raise OutputLinkError(f"{folder / 'predictions.jsonl'}, line {number}: more output ids than its cap of {cap}")
    links.say("outputs", f"{name}: {len(predictions)} predictions")


def _replay_pipelines(run: OpenRun, plan: ReaderPlan, at: Path, links: _Links) -> None:
    """Rerun a reader's pipelines on the recorded answers; InputLinkError if another model gave them."""
    if plan.pipelines:
        traces, lists, transcript = replay_pipelines(run, plan, ChatTokenizer.of(plan.reader, at))
        folder = reads_folder(run, plan.reader.name)
        if transcript.settings.model != sealed_reader(run, plan.reader.name).requests.settings.model:
            raise InputLinkError(f"{folder / PIPELINES / TRANSCRIPT / SETTINGS}: not the model that reads the views")
        made = f"{len(traces)} traces, {len(lists)} candidate lists, {len(transcript.calls)} calls"
        links.say("pipelines", f"{plan.reader.name}: {made}")


def _replay_seal(run: OpenRun, plan: ReaderPlan, links: _Links) -> None:
    """SealLinkError unless the sealed files yield the seal's counts, certificate and environments."""
    name = plan.reader.name
    reader = sealed_reader(run, name)
    path, seal, predictions, probes = reader.folder / SEAL, reader.seal, reader.predictions, reader.probes
    check_files(path.parent, [PREDICTIONS, SEAL, TIMINGS, *([PROBES] if path.with_name(PROBES).is_file() else [])])
    requests, facts = reader.requests, None
    if plan.pipelines:
        stored = read_stored(run, name)
        check_inputs(run, plan, stored.transcript.settings.model)
        facts = stored.facts()
    counted = count(requests, predictions, facts)
    if seal.counts != counted:
        raise SealLinkError(f"{path}: it states {seal.counts}; what it covers gives {counted}")
    if facts is not None and (seal.sampled or ()) != facts.sampled:
        raise SealLinkError(f"{path}: it says that {seal.sampled or 'none'} sampled; the calls beside it give {facts.sampled}")
    if unknown := [found for found in (facts.environments if facts else ()) if found not in seal.environments]:
        raise SealLinkError(f"{path}: it does not state {unknown[0]}, which answered calls of pipelines")
    if facts is not None and not requests.requests and seal.environments != facts.environments:
        raise SealLinkError(
            f"{path}: it states environments that answered nothing; the calls of pipelines have {facts.environments}"
        )
    if untrue := foreign_probe(probes, predictions):
        raise SealLinkError(f"{path.with_name(PROBES)}, {untrue}")
    certificate = certify(probes, seal.environments) if probes else UNSET
    if seal.certificate != certificate:
        raise SealLinkError(f"{path}: it states {seal.certificate}; the probes beside it give {certificate}")
    served = f"; {pipelines_line(counted.pipelines, seal.sampled or ())}" if counted.pipelines else ""
    questions = f"{counted.scheduled} questions, {counted.failed} failed"
    links.say("seal", f"{name}: {questions}; {certificate_line(certificate)}{served}")


def _replay_scores(run: OpenRun, links: _Links) -> None:
    readers = [plan.reader.name for plan in run.experiment.readers]
    folder = run.step_folder("scores")
    # The metrics of the stored scores, not those installed now.
    stored = read_manifest(folder).inputs
    metrics = find_metrics(stored.get("metrics", "").split())
    if stored != score_inputs(run, readers, metrics):
        raise ScoreLinkError(f"{folder / 'manifest.json'}: not made from this run's labels and seals")

    def name(record: Any) -> str:
        return f"the score of reader {record.reader!r}, view {record.view!r}, {getattr(record, 'question', record.view)!r}"

    checked = 0
    made = score_files(run, readers, read_labels(run), metrics)
    check_files(folder, made)
    for file, records in made.items():
        compare_lines(folder / file, records, ScoreLinkError, name)
        checked += len(records)
    links.say("scores", f"{checked} records")
