"""Comparison of two sealed and scored readers that were given the same messages. Writes nothing; the labels stay closed."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from eval.analysis.accuracy import accuracy
from eval.analysis.exchanges import Exchange, Side, check_same_messages, differing, read_side, sealed_plan
from eval.results import Result
from eval.score import sealed_blind
from eval.statistics import Pairs, count_pairs
from eval.verify import verify_run
from offline.config.experiment import ReaderPlan
from offline.config.models import pin_text
from offline.errors import CommandError, ConfigurationError, ModelError, StateError
from offline.records import Message
from offline.run.opened import OpenRun
from readers.engines import asks_server
from readers.records import Seal, Settings
from readers.seal import read_seal
from readers.tokens.chat import ChatTokenizer

PLACEHOLDERS = (Message(role="system", content="SYSTEM MESSAGE"), Message(role="user", content="USER MESSAGE"))
# A mark such as <|user|> or [INST], a word, white space, or one other character.
_PIECE = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|\w+|\s+|.")


class Spread(Result, frozen=True):
    """Input or output sizes of questions."""

    mean: float  # one decimal
    max: int


class Lost(Result, frozen=True):
    """Questions of one view or pipeline that lost evidence or an answer."""

    cut: int  # questions whose evidence was cut to the input cap
    failed: int


class ComparedReader(Result, frozen=True, kw_only=True):
    """A reader and its costs over the scheduled questions of the shared views."""

    run: str
    reader: str
    sealed_blind: bool
    root: str  # seal root
    model: str
    fingerprint: str
    engine: str
    dtype: str
    device: str
    thinking: str
    input_tokens: Spread | UnsetType = UNSET  # sizes in tokens: unset for a served model
    output_tokens: Spread | UnsetType = UNSET
    input_bytes: Spread | UnsetType = UNSET  # sizes in bytes: a served model's only
    output_bytes: Spread | UnsetType = UNSET
    output_cap: int  # tokens, of every model
    views: dict[str, Lost]


class SideAccuracy(Result, frozen=True):
    """Right answers of one side."""

    correct: int
    low: float  # Wilson 95 % interval, percent, two decimals
    high: float


class PairedCell(Result, frozen=True):
    """Paired outcomes of one view and hop class."""

    questions: int
    a: SideAccuracy
    b: SideAccuracy
    both: int
    only_a: int
    only_b: int
    neither: int
    win_tie_loss: tuple[int, int, int]
    points: float  # A's percentage less B's
    mcnemar_p: float  # exact


class Templates(Result, frozen=True):
    """Placeholder messages rendered by both chat templates, and how the renderings differ."""

    a: str | None  # None if it cannot be rendered
    b: str | None
    only_a: tuple[str, ...]  # pieces that B's rendering lacks
    only_b: tuple[str, ...]
    notes: tuple[str, ...]  # why a rendering is None


class Comparison(Result, frozen=True):
    """Two readers compared by one metric."""

    metric: str
    a: ComparedReader
    b: ComparedReader
    views: dict[str, dict[str, PairedCell]]  # by view or pipeline, then hop class
    only_a_reads: tuple[str, ...]
    only_b_reads: tuple[str, ...]
    templates: Templates


def compare(run: OpenRun, a: str, other: OpenRun, b: str, metric: str) -> Comparison:
    """Compare reader `a` of `run` with reader `b` of `other`, from stored scores; all files are verified before use.

    CommandError for an unknown reader or metric. StateError unless both readers are sealed, scored, and were given the same
    messages in every view and pipeline they share.
    """
    plans = sealed_plan(run, a), sealed_plan(other, b)
    if read_seal(run, a).root == read_seal(other, b).root:
        raise CommandError(f"{run.path}: {a!r} and {b!r} are the same sealed reader; name two")
    seals = verify_run(run)
    other_seals = seals if other is run else verify_run(other)
    one, two = read_side(run, plans[0], seals[a]), read_side(other, plans[1], other_seals[b])
    common = [name for name in one.metrics if name in two.metrics]
    if metric not in common:
        raise CommandError(f"--metric {metric}: not stored for both readers; there are {', '.join(common) or 'none'}")
    views = _shared_views(one, two)
    _check_prompts(run, other)
    for view in views:
        check_same_messages(one, two, view)
    return Comparison(
        metric=metric,
        a=_reader(one, views),
        b=_reader(two, views),
        views={view: paired_cells(one.items[view], two.items[view], metric) for view in views},
        only_a_reads=tuple(view for view in one.plan.answered if view not in views),
        only_b_reads=tuple(view for view in two.plan.answered if view not in views),
        templates=templates((run, plans[0]), (other, plans[1])),
    )


def _shared_views(a: Side, b: Side) -> list[str]:
    """The views and pipelines that both readers answered, in A's order; StateError without any."""
    views = [view for view in a.plan.answered if view in b.plan.answered]
    if not views:
        raise StateError(
            f"{a} reads {', '.join(a.plan.answered)} and {b} reads {', '.join(b.plan.answered)}: no view is "
            "read by both; compare readers of the same views"
        )
    return views


def _check_prompts(a: OpenRun, b: OpenRun) -> None:
    one, two = a.experiment.prompt, b.experiment.prompt
    if fields := differing(one, two):
        raise StateError(
            f"the prompts of {a.path} and {b.path} differ in {fields}, so their readers were told different things; "
            "start a run with the prompt of the other and read again"
        )


def paired_cells(ours: Mapping[str, Exchange], theirs: Mapping[str, Exchange], metric: str) -> dict[str, PairedCell]:
    """Cells by hop class, in order of first appearance, and pooled under `all`."""
    groups: dict[str, list[tuple[bool, bool]]] = {}
    pooled = []
    for question, item in ours.items():
        outcome = (item.score.metrics[metric], theirs[question].score.metrics[metric])
        pooled.append(outcome)
        groups.setdefault(item.score.hop_class, []).append(outcome)
    # Questions without a hop class are already under `all`.
    return {hop_class: _cell(count_pairs(found)) for hop_class, found in {**groups, "all": pooled}.items()}


def _cell(pairs: Pairs) -> PairedCell:
    return PairedCell(
        questions=pairs.questions,
        a=_accuracy(pairs.correct_a, pairs.questions),
        b=_accuracy(pairs.correct_b, pairs.questions),
        both=pairs.both,
        only_a=pairs.only_a,
        only_b=pairs.only_b,
        neither=pairs.neither,
        win_tie_loss=(pairs.only_a, pairs.ties, pairs.only_b),
        points=round(pairs.points, 2),
        mcnemar_p=pairs.p,
    )


def _accuracy(correct: int, questions: int) -> SideAccuracy:
    found = accuracy(correct, questions)
    return SideAccuracy(correct, float(found.low), float(found.high))


def _reader(side: Side, views: Sequence[str]) -> ComparedReader:
    reader = side.plan.reader
    items = [item for view in views for item in side.items[view].values()]
    given, made = _spread(item.input_size for item in items), _spread(item.output_size for item in items)
    tokens = side.settings.unit == "tokens"
    return ComparedReader(
        run=str(side.run.path),
        reader=reader.name,
        sealed_blind=sealed_blind(side.seal),
        root=side.seal.root,
        model=pin_text(reader.model),
        fingerprint=side.settings.model.fingerprint,
        engine=reader.engine,
        dtype=stated(side.seal, side.settings, "dtype"),
        device=stated(side.seal, side.settings, "device"),
        thinking=side.settings.thinking,
        input_tokens=given if tokens else UNSET,
        output_tokens=made if tokens else UNSET,
        input_bytes=UNSET if tokens else given,
        output_bytes=UNSET if tokens else made,
        output_cap=reader.output_cap,
        views={view: _lost(side.items[view].values()) for view in views},
    )


def _spread(counts: Iterable[int]) -> Spread:
    values = list(counts)
    return Spread(round(sum(values) / len(values), 1) if values else 0.0, max(values, default=0))


def _lost(items: Iterable[Exchange]) -> Lost:
    scores = [item.score for item in items]
    return Lost(sum(score.cut > 0 for score in scores), sum(score.finish_reason == "error" for score in scores))


def stated(seal: Seal, settings: Settings, name: Literal["dtype", "device"]) -> str:
    """The value recorded in the seal, else the one the reader asked for; "not known" for a server, which takes neither."""
    seen = sorted({environment[name] for environment in seal.environments if name in environment})
    asked: str = getattr(settings.reader, name)
    return ", ".join(seen) or ("not known" if asks_server(settings.reader) else asked)


def templates(a: tuple[OpenRun, ReaderPlan], b: tuple[OpenRun, ReaderPlan]) -> Templates:
    """Both chat templates side by side.

    The readers are sealed, so a template that cannot be rendered on this machine becomes a note, not an error.
    """
    texts: list[str | None] = []
    notes: list[str] = []
    for run, plan in (a, b):
        try:
            text = chat_text(run, plan)
            notes += [f"{run.path} keeps no tokenizer of {plan.reader.name!r}"] if text is None else []
        except (ConfigurationError, ModelError) as error:
            text = None
            notes += [str(error)] if str(error) not in notes else []
        texts.append(text)
    one, two = texts
    only_a, only_b = ((), ()) if one is None or two is None else lacking(one, two)
    return Templates(one, two, only_a, only_b, tuple(notes))


def chat_text(run: OpenRun, plan: ReaderPlan) -> str | None:
    """The placeholder messages rendered by a reader's chat template; None if the run does not hold its tokenizer."""
    kept = f"reads/{plan.reader.name}/tokenizer"
    if plan.reader.model.served is not UNSET or not run.has(kept) or run.lacks(kept):
        return None
    return ChatTokenizer.of(plan.reader, run.files_of(kept)).render(PLACEHOLDERS)


def lacking(one: str, two: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The runs of pieces that only the first, and only the second, of two texts contains, in order."""
    a, b = _PIECE.findall(one), _PIECE.findall(two)
    changes = [change for change in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes() if change[0] != "equal"]
    return (
        tuple("".join(a[start:end]) for _, start, end, _, _ in changes if start < end),
        tuple("".join(b[start:end]) for _, _, _, start, end in changes if start < end),
    )
