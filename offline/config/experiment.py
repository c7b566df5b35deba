"""Experiments as typed configuration; a resolved one holds everything that a run needs.

Resolving replaces the names of grammar, prompt and readers by their content: a run folder explains itself, and no later edit of
configs/ can change what it says.
"""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from offline.canonical import Record
from offline.config.analysis import Analysis, resolve_analysis
from offline.config.calls import Extractor, ExtractorUse, PipelineSettings, PipelineUse, resolve_extractor, resolve_pipelines
from offline.config.data import Data
from offline.config.frontend import Frontend, GrammarForms
from offline.config.models import Encoder, Reader, Reranker, check_reader
from offline.config.yaml import check, check_numbers, find_config, load_yaml


class Prompt(Record, frozen=True):
    """A reader's prompt."""

    name: str
    system: str
    user: str  # holds `{evidence}` and `{question}`
    heading: str  # first line of the evidence text
    no_evidence: str  # in place of an empty evidence text


class ReaderUse(Record, frozen=True):
    """A reader, the views that it reads, and the pipelines that it serves (extract/pipelines)."""

    use: str | Reader  # by name or in full
    views: tuple[str, ...] | UnsetType = UNSET  # all frozen ones if unset; may be empty only where pipelines are named
    output_cap: int | None = None
    batch_size: int | None = None
    pipelines: tuple[str, ...] = ()


class ViewSettings(Record, frozen=True):
    """Settings of the views; a regime gives the defaults (`REGIMES`)."""

    budget: int = 60_000  # characters of evidence, heading included; -1 = no limit
    unresolved_percent: int = 25  # share of the budget for unresolved records when it binds
    hops: int = 5  # subjects at depth 0 to hops-1 are expanded
    k: int = 100  # facts or statements that a retrieval view ranks
    seed: int = 7
    length_unit: Literal["characters", "tokens"] = "characters"  # of random_disjoint; tokens are the first reader's
    tokenizer: Literal["ascii", "unicode"] = "ascii"
    incomplete_parse: Literal["raw_history", "keep"] = "keep"
    empty_selection: Literal["raw_history", "latest_state"] = "raw_history"


# The two regimes of the compiler paper (spec §5). The output cap is a setting of readers.
REGIMES: dict[str, ViewSettings] = {
    "shared": ViewSettings(),
    "grid": ViewSettings(budget=-1, incomplete_parse="raw_history", empty_selection="latest_state"),
}
REGIME_OUTPUT_CAPS = {"shared": 64, "grid": 32}


class ViewOverrides(Record, frozen=True):
    """The settings in which an experiment differs from its regime."""

    budget: int | None = None
    unresolved_percent: int | None = None
    hops: int | None = None
    k: int | None = None
    seed: int | None = None
    length_unit: Literal["characters", "tokens"] | None = None
    tokenizer: Literal["ascii", "unicode"] | None = None
    incomplete_parse: Literal["raw_history", "keep"] | None = None
    empty_selection: Literal["raw_history", "latest_state"] | None = None


class RetrievalNumbers(Record, frozen=True):
    """Numbers of the retrieval views other than fact_bm25: the compiler paper's (appendices C and I)."""

    chunk_tokens: int = 512  # tokens of a chunk, within the encoder's window
    chunk_k: int = 10  # chunks shown
    candidates: int = 100  # passages that a reranker scores, and the depth of fused rankings
    rrf: int = 60  # constant of reciprocal rank fusion
    windows: int = 24  # sliding windows shown
    window_candidates: int = 64  # sliding windows to choose from


class RetrievalUse(RetrievalNumbers, frozen=True):
    """The retrieval section as an experiment gives it: its models by name or in full."""

    encoder: str | Encoder | None = None
    reranker: str | Reranker | None = None


class RetrievalSettings(RetrievalNumbers, frozen=True):
    """The retrieval section with its models resolved."""

    encoder: Encoder | None = None
    reranker: Reranker | None = None


class Experiment(Record, frozen=True):
    """An experiment as the user writes it."""

    name: str
    data: Data
    frontend: Frontend
    views: tuple[str, ...]
    readers: tuple[ReaderUse, ...] = ()
    regime: Literal["shared", "grid"] = "shared"
    settings: ViewOverrides = ViewOverrides()
    prompt: str = "reader"
    retrieval: RetrievalUse | UnsetType = UNSET
    analysis: Analysis | UnsetType = UNSET
    extractor: ExtractorUse | UnsetType = UNSET
    pipelines: PipelineUse | UnsetType = UNSET


class ReaderPlan(Record, frozen=True):
    """A resolved reader, its views and its pipelines."""

    reader: Reader
    views: tuple[str, ...]
    pipelines: tuple[str, ...] | UnsetType = UNSET

    @property
    def answered(self) -> tuple[str, ...]:
        """Everything that it answers questions through: its views, then its pipelines."""
        return (*self.views, *(self.pipelines or ()))


class ResolvedExperiment(Record, frozen=True):
    """An experiment with every name replaced by its content, as a run folder's experiment.yaml stores it."""

    name: str
    data: Data
    limit: int | None
    frontend: Frontend
    grammar: GrammarForms | None
    views: tuple[str, ...]
    settings: ViewSettings
    prompt: Prompt
    readers: tuple[ReaderPlan, ...]
    retrieval: RetrievalSettings | UnsetType = UNSET
    analysis: Analysis | UnsetType = UNSET
    extractor: Extractor | UnsetType = UNSET
    pipelines: PipelineSettings | UnsetType = UNSET
    format: Literal[1] = 1

    @property
    def served(self) -> tuple[str, ...]:
        """The pipelines that any reader serves, in order of first mention."""
        return tuple(dict.fromkeys(name for plan in self.readers for name in plan.pipelines or ()))

    @property
    def answered(self) -> tuple[str, ...]:
        """Everything that questions are answered through: the views, then the pipelines."""
        return (*self.views, *self.served)


def _plan(use: ReaderUse, experiment: Experiment, where: str) -> ReaderPlan:
    reader = use.use if isinstance(use.use, Reader) else load_yaml(find_config("readers", use.use, Path(where).parent), Reader)
    own_cap = REGIME_OUTPUT_CAPS[experiment.regime] if reader.output_cap == -1 else reader.output_cap
    reader = msgspec.structs.replace(
        reader,
        output_cap=own_cap if use.output_cap is None else use.output_cap,
        batch_size=reader.batch_size if use.batch_size is None else use.batch_size,
    )
    # Without pipelines an empty list means all views, as it did before there were any.
    views = () if use.pipelines and use.views == () else use.views or experiment.views
    check_reader(reader, where)
    check(_is_file_name(reader.name), f"{where}: reader name {reader.name!r} must be letters, digits, '.', '_' and '-'")
    check(len(set(views)) == len(views), f"{where}: reader {reader.name!r} names a view twice")
    for view in views:
        check(
            view in experiment.views,
            f"{where}: reader {reader.name!r} reads the view {view!r}, which is not frozen; add it to `views`",
        )
    check(len(set(use.pipelines)) == len(use.pipelines), f"{where}: reader {reader.name!r} names a pipeline twice")
    for name in use.pipelines:
        check(_is_file_name(name), f"{where}: pipeline name {name!r} must be letters, digits, '.', '_' and '-'")
    check(
        not set(use.pipelines) & set(experiment.views),
        f"{where}: reader {reader.name!r}: a pipeline cannot share the name of a view",
    )
    return ReaderPlan(reader=reader, views=views, pipelines=use.pipelines or UNSET)


def _extractor(experiment: Experiment, where: str) -> Extractor | UnsetType:
    """The extractor section, resolved; ConfigurationError if the frontend and the section contradict each other."""
    kind, use = experiment.frontend.kind, experiment.extractor
    if use is UNSET:
        check(kind not in ("llm", "hybrid"), f"{where}: the {kind} frontend needs a model: `extractor: {{reader: NAME}}`")
        return UNSET
    check(kind != "grammar", f"{where}: the grammar frontend asks no model; remove `extractor`")
    return resolve_extractor(use, where)


def _pipelines(experiment: Experiment, where: str) -> PipelineSettings | UnsetType:
    """The pipelines section, resolved; UNSET where no reader serves any."""
    if any(use.pipelines for use in experiment.readers):
        return resolve_pipelines(experiment.pipelines or PipelineUse(), where)
    check(experiment.pipelines is UNSET, f"{where}: no reader names `pipelines`, so this section would set nothing")
    return UNSET


def _retrieval(use: RetrievalUse, where: str) -> RetrievalSettings:
    beside = Path(where).parent
    encoder, reranker = use.encoder, use.reranker
    if isinstance(encoder, str):
        encoder = load_yaml(find_config("encoders", encoder, beside), Encoder)
    if isinstance(reranker, str):
        reranker = load_yaml(find_config("rerankers", reranker, beside), Reranker)
    numbers = {name: getattr(use, name) for name in RetrievalNumbers.__struct_fields__}
    for name, value in numbers.items():
        check(value > 0, f"{where}: retrieval: {name} must be positive")
    check(
        use.windows <= use.window_candidates,
        f"{where}: retrieval: {use.windows} windows cannot be chosen out of {use.window_candidates} window_candidates",
    )
    for model in (encoder, reranker):
        check(
            model is None or (model.batch_size > 0 and model.max_tokens > 0),
            f"{where}: retrieval: batch_size and max_tokens of a model must be positive",
        )
    return RetrievalSettings(encoder=encoder, reranker=reranker, **numbers)


def _is_file_name(name: str) -> bool:
    """True for a usable file and folder name: ASCII letters, digits and ._-, not hidden, unlike a run's own files."""
    plain = all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    return bool(name) and plain and not name.startswith(".") and not name.endswith((".json", ".jsonl"))


def _settings(experiment: Experiment, where: str) -> ViewSettings:
    """The regime's settings, overridden by the experiment's."""
    own = {key: value for key, value in msgspec.structs.asdict(experiment.settings).items() if value is not None}
    settings = msgspec.structs.replace(REGIMES[experiment.regime], **own)
    check(settings.budget == -1 or settings.budget > 0, f"{where}: budget must be positive, or -1 for no limit")
    check(settings.hops >= 1 and settings.k >= 1, f"{where}: hops and k must be at least 1")
    check(0 <= settings.unresolved_percent <= 100, f"{where}: unresolved_percent must lie in 0..100")
    return settings


def _views(experiment: Experiment, where: str) -> tuple[str, ...]:
    check(len(set(experiment.views)) == len(experiment.views) > 0, f"{where}: views must be given, each once")
    for view in experiment.views:
        check(_is_file_name(view), f"{where}: view name {view!r} must be letters, digits, '.', '_' and '-'")
        check(view != "evidence", f"{where}: a view cannot be called 'evidence', the name of the packets' text file")
    return experiment.views


def _data(data: Data, where: str) -> Data:
    """The data section without its path: a run records the source's sha256, not a place on this machine."""
    data.check(where)
    return data if data.drawn else msgspec.structs.replace(data, path=None)


def _grammar(frontend: Frontend, where: str) -> GrammarForms | None:
    """The forms of the grammar frontend; None for another frontend."""
    if frontend.kind != "grammar":
        return None
    check(frontend.grammar is not None, f"{where}: the grammar frontend needs `grammar`, a name in configs/grammars")
    return load_yaml(find_config("grammars", str(frontend.grammar), Path(where).parent), GrammarForms)


def _prompt(name: str, where: str) -> Prompt:
    prompt = load_yaml(find_config("prompts", name, Path(where).parent), Prompt)
    check(
        "{evidence}" in prompt.user and "{question}" in prompt.user,
        f"{where}: prompt {prompt.name!r}: `user` must hold {{evidence}} and {{question}}",
    )
    check(len(prompt.heading.splitlines()) == 1, f"{where}: prompt {prompt.name!r}: `heading` must be one line")
    return prompt


def _plans(experiment: Experiment, where: str) -> tuple[ReaderPlan, ...]:
    plans = tuple(_plan(use, experiment, where) for use in experiment.readers)
    names = [plan.reader.name for plan in plans]
    check(len(set(names)) == len(names), f"{where}: two readers share a name")
    return plans


def _analysis(experiment: Experiment, plans: tuple[ReaderPlan, ...], where: str) -> Analysis | UnsetType:
    """The analysis section, resolved; it can compare whatever readers answer through."""
    if experiment.analysis is UNSET:
        return UNSET
    answered = {plan.reader.name: plan.answered for plan in plans}
    known = (*experiment.views, *(name for plan in plans for name in plan.pipelines or ()))
    return resolve_analysis(experiment.analysis, known, answered, where)


def resolve(experiment: Experiment, limit: int | None, where: str) -> ResolvedExperiment:
    """The experiment with its grammar, prompt and readers filled in; ConfigurationError if that is impossible.

    `where`: the experiment's file, named in errors; the files that it names may lie beside it.
    """
    check(_is_file_name(experiment.name), f"{where}: name {experiment.name!r} must be letters, digits, '.', '_' and '-'")
    check(limit is None or limit > 0, f"{where}: --limit must be at least 1")
    settings, views, data = _settings(experiment, where), _views(experiment, where), _data(experiment.data, where)
    grammar, prompt = _grammar(experiment.frontend, where), _prompt(experiment.prompt, where)
    plans = _plans(experiment, where)
    resolved = ResolvedExperiment(
        name=experiment.name,
        data=data,
        limit=limit,
        frontend=experiment.frontend if grammar is None else msgspec.structs.replace(experiment.frontend, grammar=grammar.name),
        grammar=grammar,
        views=views,
        settings=settings,
        prompt=prompt,
        readers=plans,
        analysis=_analysis(experiment, plans, where),
        retrieval=UNSET if experiment.retrieval is UNSET else _retrieval(experiment.retrieval, where),
        extractor=_extractor(experiment, where),
        pipelines=_pipelines(experiment, where),
    )
    check_numbers(msgspec.to_builtins(resolved), where)
    return resolved
