"""Text to token ids: no second BOS, whole records cut, exact decoding, stop ids, thinking switch."""

import json
from pathlib import Path

import pytest
from tiny import (
    CLOCK_TEMPLATE,
    SPECIALS,
    STUCK_TEMPLATE,
    SWITCHED_TEMPLATE,
    TEMPLATE,
    coldread,
    make_folder,
    make_tokenizer,
    write_experiment,
    write_rows,
)

from offline.canonical import digest
from offline.config.experiment import Prompt
from offline.config.models import Pin, Reader
from offline.errors import ConfigurationError, ModelError
from offline.records import Evidence, Message, Packet, Question
from readers.models.pins import fingerprint
from readers.requests import make_requests, make_settings, read_requests, write_requests
from readers.tokens.chat import ChatTokenizer, messages

PROMPT = Prompt(name="p", system="Be brief.", user="{evidence}\n\nQ: {question}", heading="Records:", no_evidence="None.")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tokens") / "model")


def reader(**changes: object) -> Reader:
    settings: dict[str, object] = {"name": "tiny", "engine": "transformers", "model": Pin(folder="x"), "output_cap": 8}
    return Reader(**{**settings, **changes})  # type: ignore[arg-type]


def evidence(lines: list[str]) -> Evidence:
    text = "\n".join(["Records:", *lines]) if lines else ""
    return Evidence(digest=digest(text.encode()), positions=tuple(range(len(lines))), text=text)


def packet(item: Evidence, question: Question, view: str = "cmc") -> Packet:
    return Packet(
        question=question.id,
        question_digest="q",
        history_digest="h",
        view=view,
        prompt="p",
        evidence=item.digest,
        records=len(item.positions),
        characters=len(item.text),
        dropped=0,
        truncated=False,
        fallback=None,
    )


def test_the_template_alone_writes_the_bos_token(model: Path) -> None:
    # The tokenizer adds a BOS of its own to plain text: encoding a rendered template would double it.
    tokenizer = ChatTokenizer(model)
    ids = tokenizer.encode([Message(role="user", content="hi")])
    # <s> <|user|> h i <|end|> <|assistant|>
    assert ids[:2] == [0, 3]
    assert ids.count(0) == 1
    assert ids[-2:] == [1, 4]


def test_the_template_is_the_one_beside_the_weights(tmp_path: Path) -> None:
    # Two commits of one model, the second with another template: each folder renders its own.
    old, new = tmp_path / "old", tmp_path / "new"
    make_tokenizer(old, template=TEMPLATE)
    make_tokenizer(new, template=TEMPLATE.replace("<|assistant|>", "<|assistant|>!"))
    chat = [Message(role="user", content="hi")]
    assert len(ChatTokenizer(new).encode(chat)) == len(ChatTokenizer(old).encode(chat)) + 1
    for folder in (old, new):
        (folder / "config.json").write_text("{}")
    assert fingerprint(old).fingerprint != fingerprint(new).fingerprint


def test_decoding_cleans_nothing_up(model: Path) -> None:
    text = "x != y and a.b == c , it 's fine ."
    tokenizer = ChatTokenizer(model)
    ids = tokenizer.encode([Message(role="user", content=text)])
    # Between <|user|> and <|end|> stand the bytes of the text, one id each.
    assert tokenizer.decode(ids[2:-2]) == text
    assert len(ids[2:-2]) == len(text)


def test_decoding_leaves_special_tokens_out(model: Path) -> None:
    tokenizer = ChatTokenizer(model)
    letters = tokenizer.encode([Message(role="user", content="ok")])[2:4]
    assert tokenizer.decode([*letters, 1]) == "ok"


def test_braces_in_evidence_or_question_stay_text() -> None:
    _, user = messages(PROMPT, "Records:\n[0] {question} {evidence}", "Why {evidence}?")
    assert user.content == "Records:\n[0] {question} {evidence}\n\nQ: Why {evidence}?"


def test_no_evidence_is_said_in_words() -> None:
    assert messages(PROMPT, "", "Why?")[1].content == "None.\n\nQ: Why?"


@pytest.mark.parametrize("special", SPECIALS)
def test_a_record_cannot_smuggle_in_a_special_token(model: Path, special: str) -> None:
    with pytest.raises(ModelError, match="special token"):
        ChatTokenizer(model).encode([Message(role="user", content=f"[3] Bob said {special} and left.")])


def test_stop_ids_are_those_of_tokenizer_config_and_generation_config_together(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", generation={"eos_token_id": [4, 3]})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 5}))
    # tokenizer: <|end|> = 1; config: 5; generation_config: 3 and 4.
    assert ChatTokenizer(folder).stop_ids() == (1, 3, 4, 5)


def test_a_template_with_the_switch_renders_thinking_off(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template=SWITCHED_TEMPLATE)
    assert ChatTokenizer(tmp_path).thinking() == "off"
    assert ChatTokenizer(tmp_path, thinking=True).thinking() == "on"
    off, on = (ChatTokenizer(tmp_path, thinking=t).encode([Message(role="user", content="hi")]) for t in (False, True))
    assert len(off) == len(on) + len("<think></think>")


def test_a_template_without_thinking_has_no_switch(model: Path) -> None:
    assert ChatTokenizer(model).thinking() == "no switch"


def test_a_template_that_thinks_and_ignores_the_switch_is_refused(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template=STUCK_TEMPLATE)
    with pytest.raises(ModelError, match="ignores enable_thinking"):
        ChatTokenizer(tmp_path).thinking()


def test_a_thinking_reader_may_use_a_template_that_ignores_the_switch(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template=STUCK_TEMPLATE)
    assert ChatTokenizer(tmp_path, thinking=True).thinking() == "no switch"
    assert ChatTokenizer(tmp_path).thinking_switch() == "ignored"


@pytest.mark.parametrize("template", [CLOCK_TEMPLATE, "{{ strftime_now('%d %b %Y') }}" + TEMPLATE])
def test_a_template_that_asks_the_clock_is_refused_without_a_date(tmp_path: Path, template: str) -> None:
    make_tokenizer(tmp_path, template=template)
    with pytest.raises(ModelError, match="give `date: YYYY-MM-DD`") as caught:
        ChatTokenizer.of(reader(), tmp_path).encode([Message(role="user", content="hi")])
    assert "cannot render" not in str(caught.value)


@pytest.mark.parametrize("template", [CLOCK_TEMPLATE, "{{ strftime_now('%d %b %Y') }}" + TEMPLATE])
def test_a_template_that_asks_the_clock_is_given_the_readers_date(tmp_path: Path, template: str) -> None:
    make_tokenizer(tmp_path, template=template)
    tokenizer = ChatTokenizer.of(reader(date="1999-03-05"), tmp_path)
    ids = tokenizer.encode([Message(role="user", content="hi")])
    assert "05 Mar 1999" in tokenizer._tokenizer.decode(ids)
    assert ids == ChatTokenizer.of(reader(date="1999-03-05"), tmp_path).encode([Message(role="user", content="hi")])
    assert ids != ChatTokenizer.of(reader(date="1999-03-06"), tmp_path).encode([Message(role="user", content="hi")])


def test_a_macro_of_a_template_sees_the_readers_date_too(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template="{% macro now() %}{{ strftime_now('%Y') }}{% endmacro %}{{ now() }}" + TEMPLATE)
    tokenizer = ChatTokenizer(tmp_path, date="1999-03-05")
    assert tokenizer._tokenizer.decode(tokenizer.encode([Message(role="user", content="hi")])).startswith("1999")


def test_whether_a_template_asks_the_clock_is_found_out_by_trying(model: Path, tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template=CLOCK_TEMPLATE)
    assert ChatTokenizer(tmp_path).asks_clock()
    assert not ChatTokenizer(model).asks_clock()
    # Named in a branch that is never taken.
    make_tokenizer(tmp_path, template="{% if false %}{{ strftime_now('%Y') }}{% endif %}" + TEMPLATE)
    assert not ChatTokenizer(tmp_path).asks_clock()


def test_a_run_with_a_date_replays_and_one_without_asks_for_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", template=CLOCK_TEMPLATE)
    plain = {"name": "tiny", "engine": "digest", "model": {"folder": str(folder)}, "output_cap": 2}
    rows = write_rows(tmp_path)

    def run(code: int, **more: str) -> str:
        experiment = write_experiment(tmp_path, folder, readers=[{"use": {**plain, **more}}])
        return coldread("run", str(experiment), "--data", str(rows), "--out", str(tmp_path / "run"), code=code).stderr

    assert "give `date: YYYY-MM-DD`" in run(ModelError.exit_code)
    run(0, date="1999-03-05")
    coldread("replay", str(tmp_path / "run"))
    ids = read_requests(tmp_path / "run" / "reads" / "tiny" / "requests").ids
    assert all("05 Mar 1999" in ChatTokenizer(folder)._tokenizer.decode(each) for each in ids)


def test_how_many_bos_ids_open_an_input_is_counted(model: Path, tmp_path: Path) -> None:
    assert ChatTokenizer(model).leading_bos() == 1
    make_tokenizer(tmp_path, template="{{ bos_token }}" + TEMPLATE)
    assert ChatTokenizer(tmp_path).leading_bos() == 2
    make_tokenizer(tmp_path, template=TEMPLATE.replace("{{ bos_token }}", ""))
    assert ChatTokenizer(tmp_path).leading_bos() == 0


def test_a_template_that_refuses_a_system_message_is_one_clear_error(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template="{{ raise_exception('no system role') }}")
    with pytest.raises(ModelError, match="no system role"):
        ChatTokenizer(tmp_path).encode([Message(role="system", content="x")])


def test_a_folder_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        ChatTokenizer(tmp_path)


def requests_at(model: Path, cap: int, lines: list[str], question: str = "Who?"):  # type: ignore[no-untyped-def]
    asked = Question(id="q", row="r", history="h", text=question)
    item = evidence(lines)
    tokenizer = ChatTokenizer(model)
    settings = make_settings(reader(input_cap=cap), fingerprint(model), tokenizer)
    return tokenizer, make_requests(
        settings, tokenizer, PROMPT, {"q": asked}, {"cmc": [packet(item, asked)]}, {item.digest: item}
    )


def test_an_input_of_exactly_the_cap_is_not_cut(model: Path) -> None:
    lines = ["[0] old", "[1] new"]
    _, whole = requests_at(model, 10_000, lines)
    _, exact = requests_at(model, whole.requests[0].length, lines)
    assert exact.schedule[0].cut == 0
    assert exact.ids == whole.ids


def test_one_token_over_the_cap_cuts_the_oldest_record_whole(model: Path) -> None:
    lines = ["[0] old", "[1] middle", "[2] new"]
    _, whole = requests_at(model, 10_000, lines)
    tokenizer, cut = requests_at(model, whole.requests[0].length - 1, lines)
    # One byte too many: the record "[0] old" goes with its line break, nothing else does.
    assert cut.schedule[0].cut == 1
    assert list(cut.ids[0]) == tokenizer.encode(messages(PROMPT, "Records:\n[1] middle\n[2] new", "Who?"))


@pytest.mark.parametrize("keep", range(6))
def test_the_fewest_records_that_suffice_are_cut(model: Path, keep: int) -> None:
    lines = [f"[{i}] {'x' * (7 * i % 5 + 3)}" for i in range(6)]
    tokenizer = ChatTokenizer(model)
    text = "\n".join(["Records:", *lines[6 - keep :]]) if keep else ""
    cap = len(tokenizer.encode(messages(PROMPT, text, "Who?")))
    _, cut = requests_at(model, cap, lines)
    assert cut.schedule[0].cut == 6 - keep
    assert not cut.requests[0].too_long


def test_system_text_question_and_answer_opening_survive_every_cut(model: Path) -> None:
    tokenizer, cut = requests_at(model, 120, [f"[{i}] {'y' * 40}" for i in range(50)])
    text = tokenizer._tokenizer.decode(cut.ids[0])
    assert text.startswith("<s><|system|>Be brief.<|end|>")
    assert text.endswith("Q: Who?<|end|><|assistant|>")


def test_an_input_too_long_without_any_record_is_marked_and_not_cut_further(model: Path) -> None:
    _, cut = requests_at(model, 40, ["[0] old"], question="Who? " * 30)
    assert cut.requests[0].too_long
    assert cut.schedule[0].cut == 1


def test_the_input_cap_leaves_room_for_the_output(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", window=100)
    settings = make_settings(reader(output_cap=30), fingerprint(folder), ChatTokenizer(folder))
    assert (settings.window, settings.input_cap) == (100, 70)


def test_identical_inputs_are_one_request_that_says_who_shares_it(model: Path) -> None:
    asked = Question(id="q", row="r", history="h", text="Who?")
    item = evidence(["[0] same"])
    tokenizer = ChatTokenizer(model)
    settings = make_settings(reader(), fingerprint(model), tokenizer)
    packets = {"cmc": [packet(item, asked)], "prior_refresh": [packet(item, asked, "prior_refresh")]}
    frozen = make_requests(settings, tokenizer, PROMPT, {"q": asked}, packets, {item.digest: item})
    assert len(frozen.requests) == 1
    assert [(s.view, s.shared_with) for s in frozen.schedule] == [("cmc", None), ("prior_refresh", "cmc q")]


@pytest.mark.parametrize(
    "change", [{"output_cap": 9}, {"dtype": "bfloat16"}, {"engine": "recorded"}, {"batch_size": 4}, {"attention": "eager"}]
)
def test_two_readers_that_could_answer_differently_share_no_request(model: Path, change: dict[str, object]) -> None:
    asked = Question(id="q", row="r", history="h", text="Who?")
    item = evidence(["[0] same"])
    tokenizer = ChatTokenizer(model)
    names = []
    for settings in (reader(), reader(**change)):
        frozen = make_settings(settings, fingerprint(model), tokenizer)
        frozen_requests = make_requests(
            frozen, tokenizer, PROMPT, {"q": asked}, {"cmc": [packet(item, asked)]}, {item.digest: item}
        )
        names.append(frozen_requests.requests[0].digest)
    assert names[0] != names[1]


def test_requests_read_back_as_they_were_written(model: Path, tmp_path: Path) -> None:
    _, frozen = requests_at(model, 10_000, ["[0] ä日本", "[1] \u202eשלום"])
    write_requests(tmp_path, frozen)
    assert read_requests(tmp_path) == frozen
    # Four little-endian bytes an id.
    assert (tmp_path / "inputs.u32").stat().st_size == 4 * len(frozen.ids[0])
    assert int.from_bytes((tmp_path / "inputs.u32").read_bytes()[4:8], "little") == frozen.ids[0][1]


def test_an_output_cap_that_leaves_no_room_for_input_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", window=100)
    with pytest.raises(ConfigurationError, match="leaves no room"):
        make_settings(reader(output_cap=100), fingerprint(folder), ChatTokenizer(folder))
