"""Calls of an algorithm to a model: waves, the cache, the transcript, and playing it back; real engine processes throughout."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tiny import naive_greedy
from watcher import Watcher

from offline.canonical import digest_of, encode, self_digest, write_record
from offline.config.models import Pin, Reader
from offline.errors import AlteredError, ConfigurationError, EngineError, InputLinkError, OutputLinkError, StorageError
from offline.observer import Task
from offline.records import Message
from readers.calls.caller import Ask, Caller, Prepared, Recorded, check_transcript
from readers.calls.engine_source import batches, live_caller
from readers.process.guard import Forbidden
from readers.records import Call, Decoding, JournalEntry, Prediction
from readers.tokens.chat import ChatTokenizer
from readers.transcript import Transcript, read_transcript, write_transcript

GREEDY = Decoding(output_cap=6)
# Notes the batch, and answers each input with a token that depends on its length.
LOGGED = """
    target = Path(self.options['target'])
    with target.open('a') as log:
        log.write(f'{[len(ids) for ids in batch]} {decoding.output_cap}\\n')
    %s
    return [Output(ids=(70 + len(ids) %% 40, 1), finish_reason='stop') for ids in batch]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path / "cache"))
    return tmp_path / "cache"


def reader(model: Path, **changes: Any) -> Reader:
    plain = Reader(name="asked", engine="digest", model=Pin(folder=str(model)), batch_size=2, output_cap=24)
    return msgspec.structs.replace(plain, **changes)


def asking(asked: Reader, *, structured: bool = False, watcher: Watcher | None = None) -> Any:
    """A caller of this reader's model and its source; `watcher` is told of progress."""
    assert asked.model.folder is not None
    folder = Path(asked.model.folder)
    return live_caller(asked, folder, Forbidden(folders=()), watcher or Task(), structured=structured)


def ask(text: str, decoding: Decoding = GREEDY, stage: str = "first") -> Ask:
    return Ask(stage=stage, chat=(Message(role="system", content="s"), Message(role="user", content=text)), decoding=decoding)


@pytest.fixture
def logged(plugin: Callable[..., Path], tmp_path: Path) -> Callable[..., None]:
    """Installs an engine that notes the batches it is given; `more` runs before it answers."""

    def install(more: str = "pass") -> None:
        plugin("return []", "def complete(self, batch, decoding):" + LOGGED % more.replace("\n", "\n    "))

    return install


def their(model: Path, tmp_path: Path, **changes: Any) -> Reader:
    """A reader with that engine, which notes into the file `log`."""
    return reader(model, engine="theirs", options={"target": str(tmp_path / "log")}, **changes)


def log(tmp_path: Path) -> list[str]:
    return (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []


@contextmanager
def no_engine() -> Iterator[None]:
    """Whatever starts an engine process fails."""

    def refuse(*arguments: Any) -> AbstractContextManager[Any]:
        raise AssertionError("an engine was started")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("readers.process.pool.start_process", refuse)
        yield


# Waves


def test_every_distinct_call_is_made_once_and_answered_as_a_naive_loop_answers(tiny_llama: Path) -> None:
    watcher = Watcher()
    a, b, c = (ask(text) for text in ("Who?", "Where is it?", "When, and why then?"))
    with asking(reader(tiny_llama, engine="transformers"), watcher=watcher) as (caller, live):
        first = caller.ask([a, b, a, c])
        assert (live.generated, live.cached) == (3, 0)
        # Asked again in another stage it is the same call; with another cap it is not.
        second = caller.ask([ask("Where is it?", stage="second"), ask("Who?", Decoding(output_cap=3), "second")])
        assert live.generated == 4
        transcript = caller.transcript
    assert first[0] == first[2]
    assert second[0] == first[1]
    assert second[1].output_ids == first[0].output_ids[:3]
    tokenizer = ChatTokenizer(tiny_llama)
    inputs = [tokenizer.encode(one.chat) for one in (a, b, c)]
    for prediction, ids in zip([first[0], first[1], first[3]], inputs, strict=True):
        assert list(prediction.output_ids) == naive_greedy(tiny_llama, ids, 6, {1})
        assert prediction.text == tokenizer.decode(prediction.output_ids)
    assert list(map(tuple, transcript.ids)) == [tuple(ids) for ids in [*inputs, inputs[0]]]
    assert [call.stage for call in transcript.calls] == ["first"] * 3 + ["second"]
    assert transcript.decodings == {digest_of(d): d for d in (GREEDY, Decoding(output_cap=3))}
    counts = transcript.counts()
    assert (counts["first"].calls, counts["second"].calls) == (3, 1)
    assert counts["first"].input_tokens == sum(map(len, inputs))
    assert counts["second"].output_tokens == 3
    # Three calls in batches of two.
    assert watcher.told[:3] == [(0, 3, ""), (2, 3, ""), (3, 3, "")]
    assert set(live.seconds) == {"first", "second"}
    assert [environment["engine"] for environment in live.resolved()] == ["transformers"]


def test_a_wave_goes_to_the_engine_in_batches_of_one_decoding_longest_first(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None]
) -> None:
    logged()
    other = Decoding(output_cap=9)
    with asking(their(tiny_model, tmp_path)) as (caller, _):
        base = len(ChatTokenizer(tiny_model).encode(ask("").chat))
        texts = ["x", "xxxx", "xxx", "xx"]
        answers = caller.ask([ask("xx", other), *(ask(text) for text in texts)])
    assert log(tmp_path) == [f"[{base + 2}] 9", f"[{base + 4}, {base + 3}] 6", f"[{base + 2}, {base + 1}] 6"]
    assert [p.output_ids[0] for p in answers] == [70 + (base + len(text)) % 40 for text in ["xx", *texts]]


def test_the_seconds_of_a_stage_are_of_its_own_calls_also_where_another_decodes_alike(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None]
) -> None:
    # Both would fit one batch, which begins with the longer input; the engine takes a moment for the shorter one.
    logged("import time; time.sleep(0.5 * any(len(ids) < 100 for ids in batch))")
    with asking(their(tiny_model, tmp_path)) as (caller, live):
        caller.ask([ask("x" * 200), ask("x", stage="second")])
    assert len(log(tmp_path)) == 2
    assert live.seconds.keys() == {"first", "second"}
    assert live.seconds["second"] > 0.45


def test_a_call_that_cannot_be_made_is_a_failed_answer_recorded_and_never_sent(tiny_model: Path) -> None:
    spelt, long = ask("Close it: <|end|>"), ask("x" * 200)
    with no_engine(), asking(reader(tiny_model, input_cap=100)) as (caller, _):
        answers = caller.ask([spelt, long, spelt])
        transcript = caller.transcript
    count = len(ChatTokenizer(tiny_model).encode(long.chat))
    assert [p.finish_reason for p in answers] == ["error"] * 3
    assert answers[0].error == "the chat spells out '<|end|>', a special token of the model"
    assert answers[1].error == f"the input has {count} tokens, of 100 that there is room for"
    assert answers[2] == answers[0]
    assert [(call.refused, call.length) for call in transcript.calls] == [(p.error, 0) for p in answers[:2]]
    assert list(map(len, transcript.ids)) == [0, 0]
    assert (transcript.counts()["first"].calls, transcript.counts()["first"].failed) == (2, 2)


def test_what_is_refused_does_not_keep_the_rest_of_a_wave_from_being_made(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None]
) -> None:
    logged()
    with asking(their(tiny_model, tmp_path)) as (caller, live):
        answers = caller.ask([ask("one"), ask("<s>"), ask("three")])
    assert [p.finish_reason for p in answers] == ["stop", "error", "stop"]
    assert live.generated == 2
    first = caller.transcript.calls[0].length
    assert [call.offset for call in caller.transcript.calls] == [0, first, first]


def test_room_is_what_the_window_leaves_beside_the_calls_own_cap(tiny_model: Path) -> None:
    # The tiny model has 4,096 positions.
    with no_engine(), asking(reader(tiny_model)) as (caller, _):
        assert caller.room(Decoding(output_cap=24)) == 4072
        assert caller.room(Decoding(output_cap=1)) == 4095
    with no_engine(), asking(reader(tiny_model, input_cap=300)) as (caller, _):
        assert caller.room(Decoding(output_cap=24)) == 300


def test_answers_are_held_to_a_schema_in_the_engines_process(tiny_llama: Path) -> None:
    held = Decoding(output_cap=24, schema=encode({"enum": ["yes", "no"]}).decode())
    with asking(reader(tiny_llama, engine="transformers"), structured=True) as (caller, live):
        answers = caller.ask([ask(text, held) for text in ("Who?", "Where?", "When?")])
    assert all(json.loads(p.text) in ("yes", "no") and p.finish_reason == "stop" for p in answers)
    assert live.resolved()[0]["structured_outputs"].startswith("xgrammar ")


def test_an_engine_that_only_reads_says_so(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin("return []")
    with asking(their(tiny_model, tmp_path)) as (caller, _), pytest.raises(ConfigurationError, match="no `complete`"):
        caller.ask([ask("Who?")])


# The cache


def test_what_was_answered_once_is_answered_again_without_an_engine(tiny_model: Path, tmp_path: Path) -> None:
    asks = [ask(text) for text in ("Who?", "Where is it?", "When?")]
    with asking(reader(tiny_model)) as (caller, live):
        caller.ask(asks)
    # The reader's name and where its model lies make no difference.
    moved = Path(shutil.copytree(tiny_model, tmp_path / "moved"))
    with no_engine(), asking(reader(moved, name="another")) as (again, kept):
        again.ask(asks)
    assert replace(again.transcript, settings=caller.settings) == caller.transcript
    assert (kept.cached, kept.generated) == (3, 0)
    assert (kept.resolved(), kept.seconds) == (live.resolved(), live.seconds)


CHANGED = [
    ("prompt", {"text": "Who else?"}),
    ("output cap", {"decoding": Decoding(output_cap=7)}),
    ("schema", {"decoding": Decoding(output_cap=6, schema='{"type":"string"}')}),
    ("temperature", {"decoding": Decoding(output_cap=6, temperature="0.7")}),
    ("seed", {"decoding": Decoding(output_cap=6, seed=1)}),
    ("again", {"decoding": Decoding(output_cap=6, again=1)}),
    ("dtype", {"reader": {"dtype": "bfloat16"}}),
    ("batch size", {"reader": {"batch_size": 3}}),
    ("options", {"reader": {"options": {"target": "elsewhere"}}}),
    ("thinking", {"reader": {"thinking": True}}),
]


@pytest.mark.parametrize("changes", [changes for _, changes in CHANGED], ids=[name for name, _ in CHANGED])
def test_another_prompt_decoding_or_setting_never_meets_a_kept_answer(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logged()
    with asking(their(tiny_model, tmp_path)) as (caller, _):
        caller.ask([ask("Who?")])
    changed = msgspec.structs.replace(their(tiny_model, tmp_path), **changes.get("reader", {}))
    with asking(changed) as (other, live):
        other.ask([ask(changes.get("text", "Who?"), changes.get("decoding", GREEDY))])
    assert (live.cached, live.generated) == (0, 1)
    assert other.transcript.calls[0].digest != caller.transcript.calls[0].digest


def test_an_answer_that_was_sampled_with_the_seed_of_all_is_never_taken_for_one_that_was_sampled_with_its_own(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None]
) -> None:
    logged()
    asks = [ask("Who?"), ask("Who?", Decoding(output_cap=6, temperature="0.7", seed=3))]
    with asking(their(tiny_model, tmp_path)) as (caller, live):
        # As runs from before call.
        before = Caller(caller.settings, ChatTokenizer(tiny_model), live, UNSET)
        before.ask(asks)
        assert (live.cached, live.generated) == (0, 2)
        caller.ask(asks)
        assert (live.cached, live.generated) == (1, 3), "the greedy call alone is known"
    old, new = ([call.digest for call in made.transcript.calls] for made in (before, caller))
    assert (old[0], old[1] != new[1]) == (new[0], True)
    assert before.transcript.decodings == {digest_of(one.decoding): one.decoding for one in asks}
    assert [(d.seed, d.seeds) for d in caller.transcript.decodings.values()] == [(0, UNSET), (3, "input")]


@pytest.mark.parametrize("seeds", ["input", UNSET])
def test_a_transcript_replays_by_the_rule_that_its_samples_were_drawn_by(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None], seeds: Any
) -> None:
    logged()
    asks = [ask("Who?"), ask("Who?", Decoding(output_cap=6, temperature="0.7", seed=3))]
    with asking(their(tiny_model, tmp_path)) as (caller, live):
        made = Caller(caller.settings, ChatTokenizer(tiny_model), live, seeds)
        made.ask(asks)
    (tmp_path / "calls").mkdir()
    write_transcript(tmp_path / "calls", made.transcript)
    recorded = Recorded(tmp_path / "calls")
    again = Caller(caller.settings, ChatTokenizer(tiny_model), recorded, recorded.seeds)
    again.ask(asks)
    assert check_transcript(recorded, again.transcript) == 2
    other = Caller(caller.settings, ChatTokenizer(tiny_model), recorded, UNSET if seeds == "input" else "input")
    with pytest.raises(InputLinkError):
        other.ask(asks)


def test_another_model_never_meets_a_kept_answer(tiny_model: Path, tmp_path: Path, logged: Callable[..., None]) -> None:
    logged()
    other = Path(shutil.copytree(tiny_model, tmp_path / "other"))
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    for model in (tiny_model, other):
        with asking(their(model, tmp_path)) as (caller, live):
            caller.ask([ask("Who?")])
        assert (live.cached, live.generated) == (0, 1)


def test_a_kept_answer_that_was_altered_is_refused(
    tiny_model: Path, tmp_path: Path, cache: Path, logged: Callable[..., None]
) -> None:
    logged()
    with asking(their(tiny_model, tmp_path, batch_size=1)) as (caller, _):
        caller.ask([ask("Who?"), ask("Where?")])
    one, two = sorted(cache.rglob("*.json"))
    whole = one.read_bytes()
    token = json.loads(whole)["outputs"][0]["ids"][0]
    for altered in (whole.replace(b"[%d," % token, b"[%d," % (token + 1)), whole[:-2], two.read_bytes(), b""):
        assert altered != whole
        one.write_bytes(altered)
        refused = pytest.raises(AlteredError, match=f"{one.name}.*remove it, then go on")
        with no_engine(), asking(their(tiny_model, tmp_path, batch_size=1)) as (again, _), refused:
            again.ask([ask("Who?"), ask("Where?")])
    one.write_bytes(whole)
    with no_engine(), asking(their(tiny_model, tmp_path, batch_size=1)) as (again, _):
        assert again.ask([ask("Who?"), ask("Where?")]) == caller.transcript.predictions


@pytest.mark.parametrize("change", [lambda outputs: outputs[:1], lambda outputs: [*outputs, outputs[0]], lambda outputs: []])
def test_a_kept_batch_with_another_number_of_outputs_is_refused_though_its_check_fits(
    change: Callable[[Any], Any], tiny_model: Path, tmp_path: Path, cache: Path, logged: Callable[..., None]
) -> None:
    logged()
    with asking(their(tiny_model, tmp_path)) as (caller, _):
        caller.ask([ask("Who?"), ask("Where?")])
    (path,) = cache.rglob("*.json")
    entry = msgspec.json.decode(path.read_bytes(), type=JournalEntry)
    entry = msgspec.structs.replace(entry, outputs=tuple(change(entry.outputs)), check="")
    write_record(path, msgspec.structs.replace(entry, check=self_digest(entry, "check")))
    with no_engine(), asking(their(tiny_model, tmp_path)) as (again, _), pytest.raises(AlteredError, match=path.name):
        again.ask([ask("Who?"), ask("Where?")])


def test_a_cache_that_cannot_be_written_is_refused_before_an_engine_starts(
    tiny_model: Path, tmp_path: Path, cache: Path, logged: Callable[..., None]
) -> None:
    logged()
    cache.write_text("in its place")
    with no_engine(), asking(their(tiny_model, tmp_path)) as (caller, _), pytest.raises(StorageError, match="COLDREAD_CALLS"):
        caller.ask([ask("Who?")])
    assert caller.transcript.calls == []


def test_a_folder_in_the_place_of_a_kept_answer_is_to_be_removed_before_anything_is_asked(
    tiny_model: Path, tmp_path: Path, cache: Path, logged: Callable[..., None]
) -> None:
    logged()
    with asking(their(tiny_model, tmp_path)) as (caller, _):
        caller.ask([ask("Who?")])
    (kept,) = cache.rglob("*.json")
    kept.unlink()
    kept.mkdir()
    refused = pytest.raises(StorageError, match=f"{kept.name}: Is a directory: remove it, then go on")
    with no_engine(), asking(their(tiny_model, tmp_path)) as (again, _), refused:
        again.ask([ask("Who?")])


def test_an_answer_that_cannot_be_kept_names_the_variable_of_the_cache_and_not_the_runs_folder(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    logged()
    monkeypatch.setattr("offline.canonical.tempfile.mkstemp", full)
    with asking(their(tiny_model, tmp_path)) as (caller, _), pytest.raises(StorageError) as raised:
        caller.ask([ask("Who?")])
    assert "No space left on device; answers are kept there: let COLDREAD_CALLS name" in str(raised.value)
    assert "--out" not in str(raised.value)


KILL = """if len(target.read_text().splitlines()) == 2:
    import signal
    os.kill(os.getpid(), signal.SIGKILL)"""


def test_an_engine_killed_in_the_middle_of_a_wave_costs_nothing_that_was_finished(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(KILL)
    asks = [ask("x" * count) for count in range(5)]
    with asking(their(tiny_model, tmp_path)) as (caller, _):
        with pytest.raises(EngineError, match=r"killed by signal 9.*finished batches are kept, the same command resumes"):
            caller.ask(asks)
        assert caller.transcript.calls == []
    first, second = log(tmp_path)
    with asking(their(tiny_model, tmp_path)) as (resumed, live):
        resumed.ask(asks)
    assert (live.cached, live.generated) == (2, 3)
    assert log(tmp_path)[2:] == [second, log(tmp_path)[-1]], "the first batch is not made again"
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path / "undisturbed"))
    with asking(their(tiny_model, tmp_path)) as (whole, _):
        whole.ask(asks)
    assert log(tmp_path)[4] == first
    assert resumed.transcript == whole.transcript


def test_a_batch_in_which_something_failed_is_asked_for_again(
    tiny_model: Path, tmp_path: Path, logged: Callable[..., None]
) -> None:
    logged(
        "if len(target.read_text().splitlines()) == 1:\n"
        "    return [Output(ids=(), finish_reason='error', error='busy') for _ in batch]"
    )
    for reasons in (["error"] * 2, ["stop"] * 2):
        with asking(their(tiny_model, tmp_path)) as (caller, _):
            assert [p.finish_reason for p in caller.ask([ask("Who?"), ask("Where?")])] == reasons
    with no_engine(), asking(their(tiny_model, tmp_path)) as (caller, _):
        assert [p.finish_reason for p in caller.ask([ask("Who?"), ask("Where?")])] == reasons


def prepared(length: int, cap: int) -> Prepared:
    decoding = Decoding(output_cap=cap)
    name = digest_of((length, cap))
    return Prepared(
        Call(digest=name, stage="s", decoding=digest_of(decoding), offset=0, length=length), (0,) * length, decoding
    )


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), unique=True, max_size=24),
    st.integers(1, 5),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_batches_hold_every_call_once_and_do_not_depend_on_the_order_of_the_wave(
    wave: list[tuple[int, int]], size: int, tokens: int, shuffler: Any
) -> None:
    asked = Reader(name="r", engine="e", model=Pin(folder="x"), batch_size=size, batch_tokens=tokens)

    def planned(of: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        return [[of[i] for i in batch] for batch in batches([prepared(*call) for call in of], asked)]

    found = planned(wave)
    assert sorted(call for batch in found for call in batch) == sorted(wave)
    for batch in found:
        assert len({cap for _, cap in batch}) == 1
        assert len(batch) <= size
        assert len(batch) == 1 or batch[0][0] * len(batch) <= tokens
        assert [length for length, _ in batch] == sorted((length for length, _ in batch), reverse=True)
    shuffled = list(wave)
    shuffler.shuffle(shuffled)
    assert sorted(planned(shuffled)) == sorted(found)


# The transcript


def algorithm(caller: Caller, *, followed: str = "And {}?", order: int = 1, spelt: str = "<|pad|>") -> None:
    """Two waves, the second of which depends on what the first was answered."""
    answers = caller.ask([ask(text) for text in ("Who?", "Where is it?", "A <pad> " + spelt)])
    caller.ask([ask(followed.format(answer.output_ids), stage="second") for answer in answers[:2][::order]])


@pytest.fixture(scope="module")
def kept(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The transcript of that algorithm; tests work on copies."""
    folder = tmp_path_factory.mktemp("transcript")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLDREAD_CALLS", str(folder / "cache"))
        with asking(reader(tiny_model)) as (caller, _):
            algorithm(caller)
    (folder / "kept").mkdir()
    write_transcript(folder / "kept", caller.transcript)
    assert read_transcript(folder / "kept") == caller.transcript
    assert [call.refused is None for call in caller.transcript.calls] == [True, True, False, True, True]
    return folder / "kept"


@pytest.fixture
def copied(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "kept"))


def run_again(folder: Path, model: Path, **changes: Any) -> tuple[Recorded, Transcript]:
    recorded = Recorded(folder)
    caller = Caller(recorded.transcript.settings, ChatTokenizer(model), recorded)
    algorithm(caller, **changes)
    return recorded, caller.transcript


def test_the_same_algorithm_on_the_recorded_answers_makes_the_same_calls(kept: Path, tiny_model: Path) -> None:
    recorded, again = run_again(kept, tiny_model)
    assert check_transcript(recorded, again) == 5
    assert again == read_transcript(kept)


def test_an_algorithm_that_asks_otherwise_is_named_by_its_first_call_that_was_never_made(kept: Path, tiny_model: Path) -> None:
    with pytest.raises(InputLinkError, match=r"stage 'second' makes the call [0-9a-f]{12}…, which is not among those"):
        run_again(kept, tiny_model, followed="But {}?")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"order": -1}, "line 4, stage 'second': this call comes out differently"),
        # A call that was refused is made of its chat alone.
        ({"spelt": "<pad>"}, "line 3, stage 'first': this call comes out differently"),
        ({"followed": "Who?"}, "5 calls; run again, the algorithm makes 3"),
    ],
)
def test_the_first_call_that_comes_out_differently_is_named(
    kept: Path, tiny_model: Path, changes: dict[str, Any], words: str
) -> None:
    recorded, again = run_again(kept, tiny_model, **changes)
    with pytest.raises(InputLinkError, match=words):
        check_transcript(recorded, again)


def test_an_answer_whose_ids_do_not_say_its_text_is_named(copied: Path, tiny_model: Path) -> None:
    lines = (copied / "answers.jsonl").read_bytes().splitlines()
    forged = msgspec.structs.replace(msgspec.json.decode(lines[4], type=Prediction), text="forged")
    (copied / "answers.jsonl").write_bytes(b"".join(line + b"\n" for line in [*lines[:4], encode(forged)]))
    recorded, again = run_again(copied, tiny_model)
    with pytest.raises(OutputLinkError, match="line 5, stage 'second': its output ids do not decode to the stored text"):
        check_transcript(recorded, again)


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_an_answer_that_names_another_end_than_its_ids_have_is_named(copied: Path, tiny_model: Path, number: int) -> None:
    lines = (copied / "answers.jsonl").read_bytes().splitlines()
    true = msgspec.json.decode(lines[number], type=Prediction)
    settings = read_transcript(copied).settings
    assert true.finish_reason == ("stop" if true.output_ids[-1] in settings.stop_ids else "length")
    forged = msgspec.structs.replace(true, finish_reason="length" if true.finish_reason == "stop" else "stop")
    lines[number] = encode(forged)
    (copied / "answers.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    recorded, again = run_again(copied, tiny_model)
    with pytest.raises(OutputLinkError, match=f"line {number + 1}, .*: it says '{forged.finish_reason}'"):
        check_transcript(recorded, again)


def test_an_answer_that_ended_by_a_rule_of_its_engine_is_taken_as_it_is(copied: Path, tiny_model: Path) -> None:
    # Neither at a stop id nor at the cap: its ids tell nothing.
    lines = (copied / "answers.jsonl").read_bytes().splitlines()
    true = msgspec.json.decode(lines[4], type=Prediction)
    ids = tuple(i for i in true.output_ids if i not in read_transcript(copied).settings.stop_ids)[:1]
    said = msgspec.structs.replace(true, output_ids=ids, text=ChatTokenizer(tiny_model).decode(ids), finish_reason="stop")
    lines[4] = encode(said)
    (copied / "answers.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    assert check_transcript(*run_again(copied, tiny_model)) == 5


def test_input_ids_that_were_altered_are_named(copied: Path, tiny_model: Path) -> None:
    data = bytearray((copied / "inputs.u32").read_bytes())
    data[-4] ^= 1
    (copied / "inputs.u32").write_bytes(data)
    recorded, again = run_again(copied, tiny_model)
    with pytest.raises(InputLinkError, match="line 5, stage 'second': this call comes out differently"):
        check_transcript(recorded, again)


def test_parts_of_a_transcript_that_do_not_fit_each_other_are_refused(copied: Path) -> None:
    answers, ids = (copied / "answers.jsonl").read_bytes(), (copied / "inputs.u32").read_bytes()
    (copied / "inputs.u32").write_bytes(ids[:-4])
    with pytest.raises(AlteredError, match=r"inputs.u32: \d+ bytes do not fit"):
        read_transcript(copied)
    (copied / "inputs.u32").write_bytes(ids)
    (copied / "answers.jsonl").write_bytes(b"".join(answers.splitlines(keepends=True)[::-1]))
    with pytest.raises(AlteredError, match="not the answers to the calls"):
        read_transcript(copied)


# The recorded engine


def played(folder: Path, model: Path) -> Any:
    """A caller whose engine plays a transcript back."""
    return asking(reader(model, engine="recorded", options={"calls": str(folder)}))


def outputs(transcript: Transcript) -> list[tuple[tuple[int, ...], str]]:
    return [(p.output_ids, p.finish_reason) for p in transcript.predictions]


def test_the_recorded_engine_plays_a_transcript_back(kept: Path, tiny_model: Path) -> None:
    with played(kept, tiny_model) as (caller, live):
        algorithm(caller)
    assert outputs(caller.transcript) == outputs(read_transcript(kept))
    assert live.resolved()[0]["calls"] == _sha256(kept / "answers.jsonl")


def _sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_call_that_the_transcript_does_not_hold_fails_and_is_never_guessed(kept: Path, tiny_model: Path) -> None:
    with played(kept, tiny_model) as (caller, _):
        answers = caller.ask([ask("Who?"), ask("Who?", Decoding(output_cap=5)), ask("Who else?")])
    assert [p.finish_reason for p in answers] == ["length", "error", "error"]
    assert answers[1].error == "the recorded run holds no such input"


def test_reads_cannot_be_played_from_a_transcript_nor_calls_from_a_run(kept: Path, tiny_model: Path, scored_run: Path) -> None:
    needs_a_run = pytest.raises(ConfigurationError, match=r"options: \{run: FOLDER\}")
    with played(kept, tiny_model) as (_, live), live.engines.run() as (process,), needs_a_run:
        process.generate([(1, 2)])
    plays_a_run = reader(tiny_model, engine="recorded", options={"run": str(scored_run)})
    with asking(plays_a_run) as (caller, _), pytest.raises(ConfigurationError, match=r"options: \{calls: FOLDER\}"):
        caller.ask([ask("Who?")])
