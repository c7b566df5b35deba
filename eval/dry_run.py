"""Estimated costs of a run before reading: requests, tokens, bytes, downloads, minutes.

All steps before reading run in a temporary folder, deleted afterwards. Weights are never downloaded; a tokenizer is, if the hub
is reachable, so that tokens are counted rather than estimated.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eval.extraction.against import with_grammar
from eval.results import Result
from eval.run import Plan, run_all
from extract.frontends import check_frontend, distinct_texts
from extract.frontends.llm import plan as plan_calls
from extract.pipelines.schedule import run_pipelines
from offline.config.calls import Extractor
from offline.config.experiment import ReaderPlan, ResolvedExperiment, RetrievalSettings
from offline.config.frontend import GrammarForms
from offline.config.models import Encoder, Reader, Reranker
from offline.config.yaml import find_config, load_yaml
from offline.errors import ModelError
from offline.observer import SILENT, Observer
from offline.run.opened import OpenRun
from offline.run.steps import model_work
from offline.views import ModelWork
from offline.views.retrieval import lexical
from readers.calls.caller import Caller, Prepared
from readers.certificate import SAMPLE, spread
from readers.engines import keeps_prefix_cache
from readers.models.pins import Missing, find_tokenizer, fingerprint, identify, locate, missing
from readers.models.served import CODEC_FOLDER, MessageBytes
from readers.read import freeze_requests
from readers.records import Model, Output, StageCounts
from readers.requests import make_settings
from readers.tokens.chat import ChatTokenizer, messages

ANSWER_TOKENS = 24  # of a typical answer, to estimate minutes: the embedded reader averages 22 on the demo


class Rates(Result, frozen=True):
    """Tokens per second, to estimate minutes; 0: use the reader file's."""

    input: int = 0
    output: int = 0


class Download(Result, frozen=True):
    """A model to download."""

    model: str
    bytes: int | None  # None if the hub is unreachable


class CertificateCost(Result, frozen=True):
    """Costs of the determinism certificate."""

    sample: int  # requests
    readings: int  # of each request
    input_tokens: int  # of all readings


class PipelineCost(Result, frozen=True):
    """The part of a reader's pipeline costs known before any answer."""

    pipelines: int
    questions: int
    calls_at_least: int  # the first wave


class ReaderCost(Result, frozen=True):
    """Costs of one reader; tokens and minutes include the certificate's readings."""

    scheduled: int
    requests: int
    input_tokens: int
    tokens_counted: bool  # by its tokenizer; else estimated from characters, see `note`
    output_tokens_at_most: int
    certificate: CertificateCost | None  # None if nothing is probed
    rate: Rates | None  # None if either is unknown
    minutes: float | None  # None without a rate
    download: Download | None
    note: str | UnsetType = UNSET
    pipelines: PipelineCost | UnsetType = UNSET


class ExtractionCost(Result, frozen=True):
    """Costs of extraction by a model: one request per distinct text, without repairs or mapping."""

    model: str
    statements: int
    at_most: bool  # not the `llm` frontend: what it learns from answers saves calls
    calls: int
    input_tokens: int | UnsetType = UNSET  # unset without a tokenizer, as are the next three; see `note`
    output_tokens_about: int | UnsetType = UNSET
    minutes: float | UnsetType | None = UNSET  # None if a rate is unknown
    download: Download | UnsetType | None = UNSET
    note: str | UnsetType = UNSET


class EncoderCost(Result, frozen=True):
    """Distinct texts to encode."""

    passages: int
    questions: int
    download: Download | None


class RerankerCost(Result, frozen=True):
    """Pairs to score."""

    pairs: int
    download: Download | None


class DryRun(Result, frozen=True):
    """Costs of a run."""

    views: tuple[str, ...]
    readers: dict[str, ReaderCost]
    bytes: int  # of the run folder before predictions
    disk_free: int  # bytes
    extract: ExtractionCost | UnsetType = UNSET
    encode: dict[str, EncoderCost | RerankerCost] | UnsetType = UNSET  # by model
    stand_ins: dict[str, str] | UnsetType = UNSET  # for each view that needs a model, the view used to estimate its length


def dry_run(plan: Plan, rates: Rates, observer: Observer = SILENT) -> DryRun:
    """Estimate a run's costs by reader, without the pipeline calls that depend on answers.

    A view that ranks by a model is replaced by its BM25 equivalent, of about the same length.
    """
    wanted = plan.experiment
    check_frontend(wanted)
    numbers, work = wanted.retrieval or RetrievalSettings(), model_work(wanted)
    # Four characters per token, as throughout this module.
    stand_ins = {view: lexical(view, 4 * numbers.chunk_tokens) for view in wanted.views}
    experiment = replace(
        _without_model(wanted, observer),
        views=tuple(dict.fromkeys(stand_ins.values())),
        readers=tuple(replace(p, views=tuple(dict.fromkeys(stand_ins[view] for view in p.views))) for p in wanted.readers),
    )
    with tempfile.TemporaryDirectory(prefix="coldread-dry-run-") as name:
        run = OpenRun(Path(name) / "run")
        run_all(run, Plan(experiment, plan.data), "freeze", observer)
        extraction = _extraction(run, wanted, rates)
        readers = {}
        for given, plain in zip(wanted.readers, experiment.readers, strict=True):
            cost = _estimate(run, plain, [stand_ins[view] for view in given.views], rates)
            readers[given.reader.name] = replace(
                cost,
                tokens_counted=cost.tokens_counted and all(stand_ins[view] == view for view in given.views),
                pipelines=_pipelines(run, wanted, given) if given.pipelines else UNSET,
            )
        encoding = _encoding(run, numbers, work)
        size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
        free = shutil.disk_usage(name).free
    return DryRun(
        views=wanted.views,
        readers=readers,
        bytes=size,
        disk_free=free,
        extract=extraction,
        encode=encoding or UNSET,
        stand_ins={view: other for view, other in stand_ins.items() if view != other} if encoding else UNSET,
    )


def _without_model(experiment: ResolvedExperiment, observer: Observer) -> ResolvedExperiment:
    """The experiment with a grammar replacing a model frontend: its data kind's, else one without forms.

    Without forms every record stays unresolved, and structured views are estimated at the length of the whole history.
    """
    if experiment.extractor is UNSET:
        return experiment
    name = experiment.data.grammar
    grammar = load_yaml(find_config("grammars", name), GrammarForms) if name else GrammarForms(name="none", relations={})
    stand_in = f"the grammar {name}" if name else "every record unresolved"
    observer.say("extract", f"estimated with {stand_in} in place of the model")
    return with_grammar(experiment, grammar)


def _extraction(run: OpenRun, experiment: ResolvedExperiment, rates: Rates) -> ExtractionCost | UnsetType:
    extractor = experiment.extractor
    if not isinstance(extractor, Extractor):
        return UNSET
    reader = extractor.reader
    found, texts = find_tokenizer(reader), distinct_texts(run.data.histories)
    at_most = experiment.frontend.kind != "llm"
    if found.folder is None:
        calls = -(-len(texts) // extractor.statements)
        return ExtractionCost(reader.name, len(texts), at_most, calls, note=found.note)
    tokenizer = ChatTokenizer.of(reader, found.folder)
    model = fingerprint(found.folder) if reader.model.served is UNSET else identify(reader, found.folder)
    caller = Caller(make_settings(reader, model, tokenizer), tokenizer, _unanswered)
    out = plan_calls(texts, extractor, caller)
    counts = caller.transcript.counts().get("extract", StageCounts(0, 0, 0, 0))
    return ExtractionCost(
        model=reader.name,
        statements=len(texts),
        at_most=at_most,
        calls=counts.calls,
        input_tokens=counts.input_tokens,
        output_tokens_about=out,
        minutes=_minutes(_rates(rates, reader), counts.input_tokens, out),
        download=_of(found.lacking),
    )


def _rates(given: Rates, reader: Reader) -> Rates | None:
    """The given rates, else the reader's; None if either is unknown."""
    into, out = given.input or reader.input_rate, given.output or reader.output_rate
    return Rates(into, out) if into and out else None


def _minutes(rates: Rates | None, input_tokens: int, output_tokens: int) -> float | None:
    return None if rates is None else round((input_tokens / rates.input + output_tokens / rates.output) / 60, 1)


def _of(lacking: Missing | None) -> Download | None:
    return None if lacking is None else Download(lacking.model, lacking.size)


def _unanswered(calls: Sequence[Prepared]) -> list[Output]:
    return [Output(ids=(), finish_reason="error", error="planned, not made") for _ in calls]


def _encoding(run: OpenRun, numbers: RetrievalSettings, work: ModelWork) -> dict[str, EncoderCost | RerankerCost]:
    """Work of retrieval models: texts to encode, pairs to score (approximate where a tokenizer splits chunks), downloads."""
    texts, pairs = set(), 0
    lengths = 4 * numbers.chunk_tokens
    for memory, about in run.compiled():
        sizes = {}
        for unit in {*work.units, *(unit for unit, _ in work.stages)}:
            found = memory.corpus(f"chunk{lengths}" if unit == "chunk" else unit).passages
            sizes[unit] = len(found)
            texts |= {passage.text for passage in found} if unit in work.units else set()
        asked = len({question.text for question in about})
        pairs += sum(asked * min(numbers.candidates, sizes[unit]) for unit, _ in work.stages)
    questions = len({question.text for question in run.data.questions})
    costs: dict[str, EncoderCost | RerankerCost] = {}
    if work.units and numbers.encoder is not None:
        costs[numbers.encoder.name] = EncoderCost(len(texts), questions, _download(numbers.encoder))
    if work.stages and numbers.reranker is not None:
        costs[numbers.reranker.name] = RerankerCost(pairs, _download(numbers.reranker))
    return costs


def _download(model: Encoder | Reranker) -> Download | None:
    try:
        locate(model, fetch=False)
        return None
    except ModelError:
        return _of(missing(model))


def _estimate(run: OpenRun, plan: ReaderPlan, views: Sequence[str], rates: Rates) -> ReaderCost:
    """Requests and tokens of one reader, counted with its tokenizer if available, else estimated from characters.

    views: the view that stands in for each of its views, repeated if it stands in for several.
    """
    reader = plan.reader
    found = find_tokenizer(reader)
    lacking, folder, note = found.lacking, found.folder, found.note
    counted = folder is not None
    inputs: Mapping[str, Mapping[Any, int]]
    if folder is not None:
        requests = freeze_requests(run, plan, folder, whole=lacking is None)
        of = {request.digest: request.length for request in requests.requests}
        inputs = {view: {s.request: of[s.request] for s in requests.schedule if s.view == view} for view in plan.views}
        if requests.settings.transport is not UNSET:
            counted, note = False, "its tokenizer is the server's: four bytes are taken for a token"
            inputs = {view: {name: size // 4 for name, size in each.items()} for view, each in inputs.items()}
    else:
        inputs = _guess(run, plan)
    # A request shared by views is read once; views estimated by a stand-in share none with it.
    again = [inputs[view] for number, view in enumerate(views) if view in views[:number]]
    shared = {name: size for each in inputs.values() for name, size in each.items()}
    sizes = [size for each in (shared, *again) for size in each.values()]
    probed, readings = spread(sorted(sizes, reverse=True), SAMPLE if reader.probe is UNSET else reader.probe), _readings(reader)
    certificate = CertificateCost(len(probed), readings, readings * sum(probed))
    tokens, answers = sum(sizes) + certificate.input_tokens, len(sizes) + readings * len(probed)
    rate = _rates(rates, reader)
    return ReaderCost(
        scheduled=len(views) * len(run.data.questions),
        requests=len(sizes),
        input_tokens=tokens,
        tokens_counted=counted,
        output_tokens_at_most=answers * reader.output_cap,
        certificate=certificate if probed else None,
        rate=rate,
        minutes=_minutes(rate, tokens, answers * min(ANSWER_TOKENS, reader.output_cap)),
        download=_of(lacking),
        note=note or UNSET,
    )


def _readings(reader: Reader) -> int:
    """Readings of the certificate's sample: alone, in two orders of batches, and twice through a prefix cache."""
    in_batches = 2 if reader.batch_size > 1 else 0
    return 1 + in_batches + (2 if keeps_prefix_cache(reader) else 0)


def _pipelines(run: OpenRun, experiment: ResolvedExperiment, plan: ReaderPlan) -> PipelineCost:
    waves: list[int] = []

    def nothing(calls: Sequence[Prepared]) -> list[Output]:
        waves.append(len(calls))
        return [Output(ids=(), finish_reason="stop")] * len(calls)

    # Which calls are distinct does not depend on the tokenizer; this one needs no model files.
    tokenizer = MessageBytes(CODEC_FOLDER)
    settings = make_settings(replace(plan.reader, input_cap=1 << 40), Model(fingerprint="", files=()), tokenizer)
    data = run.data
    caller = Caller(settings, tokenizer, nothing)
    run_pipelines(plan.pipelines or (), data.histories, data.questions, experiment, caller)
    return PipelineCost(len(plan.pipelines or ()), len(data.questions), next(iter(waves), 0))


def _guess(run: OpenRun, plan: ReaderPlan) -> dict[str, dict[tuple[str, str], int]]:
    """The distinct inputs of each view with estimated tokens: four characters each, as English under the usual vocabularies."""
    evidence = run.evidence
    texts = {question.id: question.text for question in run.data.questions}

    def tokens(shown: str, question: str) -> int:
        return sum(len(message.content) for message in messages(run.experiment.prompt, evidence[shown].text, question)) // 4

    inputs = {
        view: {(packet.evidence, texts[packet.question]) for packet in packets}
        for view, packets in run.packets(plan.views).items()
    }
    return {view: {each: tokens(*each) for each in found} for view, found in inputs.items()}
