"""Requests: packets turned into frozen token ids, each distinct input once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from offline.canonical import digest_of, file_digest, read_lines, read_record, write_lines, write_record
from offline.config.experiment import Prompt
from offline.config.models import Reader
from offline.errors import AlteredError, ConfigurationError, InputLinkError
from offline.records import Evidence, Packet, Question
from readers.models.pins import WEIGHTS, served_model
from readers.models.served import CODEC, Tokenizer
from readers.records import Call, Model, Request, Scheduled, Settings
from readers.tokens.chat import messages
from readers.tokens.id_arrays import INPUTS, packed, read_ids, write_ids

# Reader fields that cannot change an answer, or that the request digests cover themselves.
_INDECISIVE = {
    *("name", "model", "output_cap", "input_cap", "input_rate", "output_rate"),
    *("probe", "data_parallel", "start_seconds", "batch_seconds"),
}


@dataclass(frozen=True)
class Requests:
    """A reader's frozen requests: `ids[i]` are the token ids of `requests[i]`."""

    settings: Settings
    requests: tuple[Request, ...]
    schedule: tuple[Scheduled, ...]
    ids: tuple[Sequence[int], ...]


def make_settings(reader: Reader, model: Model, tokenizer: Tokenizer) -> Settings:
    """Freeze what decides a reader's outputs, without its name and the model's location."""
    window = tokenizer.window()
    cap = min(reader.input_cap, window - reader.output_cap) if window > 0 else reader.input_cap
    if cap <= 0:
        raise ConfigurationError(
            f"reader {reader.name!r}: an output cap of {reader.output_cap} leaves no room for an input in the model's window "
            f"of {window} tokens; lower output_cap"
        )
    stop_ids, thinking = tokenizer.stop_ids(), tokenizer.thinking()
    # Unset fields are left out, so settings frozen by an earlier version keep their fingerprint.
    decisive = {name: value for name, value in msgspec.structs.asdict(reader).items() if name not in _INDECISIVE}
    decisive = {name: value for name, value in decisive.items() if value is not msgspec.UNSET}
    return Settings(
        reader=reader,
        model=model,
        window=window,
        input_cap=cap,
        stop_ids=stop_ids,
        pad_id=tokenizer.pad_id(),
        thinking=thinking,
        fingerprint=digest_of({**decisive, "weights": model.fingerprint}),
        transport=msgspec.UNSET if reader.model.served is msgspec.UNSET else "messages",
    )


def read_settings(path: Path) -> Settings:
    """Read frozen settings; AlteredError if the model's fingerprint is not that of its files, or served name."""
    settings = read_record(path, Settings)
    model, pin = settings.model, settings.reader.model
    if model != (Model(digest_of(model.files), model.files) if pin.served is msgspec.UNSET else served_model(pin.served)):
        raise AlteredError(f"{path}: the model's fingerprint is not that of the files that are listed; the file was altered")
    return settings


def tokenizer_names(settings: Settings) -> tuple[str, ...]:
    """Names of the tokenizer files that a run keeps for a reader."""
    if settings.reader.model.served is not msgspec.UNSET:
        return (CODEC,)
    return tuple(file.name for file in settings.model.files if not file.name.endswith(WEIGHTS))


def check_settings(path: Path, reader: Reader, stored: Settings, tokenizer: Tokenizer) -> None:
    """InputLinkError unless reader and kept tokenizer give the settings of `path`; repeats no check of `read_settings`."""
    if make_settings(reader, stored.model, tokenizer) != stored:
        raise InputLinkError(f"{path}: the settings of reader {reader.name!r} come out differently when derived again")
    if reader.model.fingerprint not in (msgspec.UNSET, stored.model.fingerprint):
        raise InputLinkError(f"{path}: not the model whose fingerprint the reader {reader.name!r} pins")
    known = {file.name: file.sha256 for file in stored.model.files}
    for name in tokenizer_names(stored):
        file = tokenizer.folder / name
        if not file.is_file() or (name in known and file_digest(file) != known[name]):
            raise InputLinkError(f"{file}: not the file of the model that {path.name} names")


def _fit(tokenizer: Tokenizer, prompt: Prompt, evidence: Evidence, question: str, cap: int) -> tuple[list[int], int]:
    """Token ids of one input, and how many of the oldest records were cut to meet the cap.

    Whole records are cut, the fewest that suffice (by bisection: cutting a record never lengthens an input); system text,
    question and generation prompt stay.
    """
    ids = tokenizer.encode(messages(prompt, evidence.text, question))
    if len(ids) <= cap:
        return ids, 0
    heading, *lines = evidence.text.split("\n") if evidence.text else [""]

    def without(count: int) -> list[int]:
        text = "\n".join([heading, *lines[count:]]) if count < len(lines) else ""
        return tokenizer.encode(messages(prompt, text, question))

    too_few, enough = 0, len(lines)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if len(without(middle)) <= cap:
            enough = middle
        else:
            too_few = middle
    return without(enough), enough


def make_requests(
    settings: Settings,
    tokenizer: Tokenizer,
    prompt: Prompt,
    questions: Mapping[str, Question],
    packets: Mapping[str, Sequence[Packet]],
    evidence: Mapping[str, Evidence],
) -> Requests:
    """Freeze a reader's requests for these views' packets, in view and question order."""
    by_input: dict[tuple[str, str], tuple[str, int]] = {}
    requests: dict[str, Request] = {}
    ids_of: list[Sequence[int]] = []
    first: dict[str, str] = {}
    schedule: list[Scheduled] = []
    offset = 0
    for view, frozen in packets.items():
        for packet in frozen:
            key = (packet.evidence, questions[packet.question].text)
            if key not in by_input:
                ids, cut = _fit(tokenizer, prompt, evidence[packet.evidence], key[1], settings.input_cap)
                name = digest_of((ids, settings.reader.output_cap, settings.stop_ids, settings.fingerprint))
                by_input[key] = (name, cut)
                if name not in requests:
                    requests[name] = Request(
                        digest=name, offset=offset, length=len(ids), too_long=len(ids) > settings.input_cap
                    )
                    ids_of.append(packed(ids))
                    offset += len(ids)
            name, cut = by_input[key]
            shared = first.get(name)
            first.setdefault(name, f"{view} {packet.question}")
            schedule.append(
                Scheduled(
                    view=view,
                    question=packet.question,
                    packet=digest_of(packet),
                    request=name,
                    cut=cut,
                    shared_with=shared,
                )
            )
    return Requests(settings, tuple(requests.values()), tuple(schedule), tuple(ids_of))


def batches_of(requests: Requests, indices: Sequence[int] | None = None, *, longest_first: bool = True) -> list[list[int]]:
    """Indices of all (or these) requests to generate, in batches: longest first, ties by digest.

    A batch holds `batch_size` requests, or fewer to keep its padded length within `batch_tokens`, at least one. Greedy output
    can depend on the batch, so batches follow from the frozen requests alone: a resumed read makes the same ones.
    """
    reader, of = requests.settings.reader, requests.requests
    wanted = [i for i in (range(len(of)) if indices is None else indices) if not of[i].too_long]
    if longest_first:
        wanted.sort(key=lambda i: (-of[i].length, of[i].digest))
    return in_batches(wanted, of, reader)


def in_batches(order: Iterable[int], of: Sequence[Request | Call], reader: Reader) -> list[list[int]]:
    """Split `order`, indices into `of`, into batches of `batch_size` or of what `batch_tokens` padded tokens hold."""
    batches: list[list[int]] = []
    longest = 0
    for i in order:
        longest = max(longest, of[i].length)
        full = not batches or len(batches[-1]) == reader.batch_size
        if full or (reader.batch_tokens and longest * (len(batches[-1]) + 1) > reader.batch_tokens):
            batches.append([])
            longest = of[i].length
        batches[-1].append(i)
    return batches


# Files of `write_requests`.
SETTINGS = "settings.json"
REQUESTS, SCHEDULE = "requests.jsonl", "schedule.jsonl"
REQUEST_FILES = (SETTINGS, REQUESTS, SCHEDULE, INPUTS)


def write_requests(folder: Path, frozen: Requests) -> None:
    """Store requests: settings, distinct requests, schedule, and all ids as little-endian uint32 in one file."""
    write_record(folder / SETTINGS, frozen.settings)
    write_lines(folder / REQUESTS, frozen.requests)
    write_lines(folder / SCHEDULE, frozen.schedule)
    write_ids(folder, frozen.ids)


def read_requests(folder: Path) -> Requests:
    """Read stored requests; AlteredError if the index does not fit the array."""
    requests = tuple(read_lines(folder / REQUESTS, Request))
    return Requests(
        settings=read_settings(folder / SETTINGS),
        requests=requests,
        schedule=tuple(read_lines(folder / SCHEDULE, Scheduled)),
        ids=tuple(read_ids(folder, requests, "requests.jsonl")),
    )
