import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from worlds import experiment

from offline.canonical import digest_of, encode
from offline.config.analysis import Analysis, DeclaredContrast, DeclaredInteraction
from offline.config.calls import ExtractorUse, PipelineUse
from offline.config.experiment import (
    Experiment,
    Prompt,
    Reader,
    ReaderUse,
    ResolvedExperiment,
    RetrievalSettings,
    RetrievalUse,
    ViewOverrides,
    ViewSettings,
    resolve,
)
from offline.config.frontend import GrammarForms
from offline.config.models import Encoder, Pin, Reranker
from offline.config.yaml import configs_folder, dump_yaml, find_config, load_yaml, parse_yaml
from offline.errors import ConfigurationError
from offline.loaders.factconsolidation import FactConsolidationData
from offline.loaders.plain import PlainData
from offline.loaders.synthetic import SyntheticData
from offline.loaders.versions import VersionsData

MINIMAL = """
name: small
data: {kind: plain, path: my.jsonl}
frontend: {kind: grammar, grammar: synthetic}
views: [cmc, raw_history]
"""

READER = """
readers:
  - use: {name: one, engine: transformers, model: {folder: /models/one}, output_cap: 48}
"""


def _resolve(text: str, limit: int | None = None) -> ResolvedExperiment:
    return resolve(parse_yaml(text, Experiment, "small.yaml"), limit, "small.yaml")


# Reading


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            MINIMAL.replace("kind: plain", "kind: tabs"),
            "'tabs' - at `$.data.kind`; known: factconsolidation, plain, plugin, synthetic, versions; what a package adds is "
            "`kind: plugin, loader: tabs`",
        ),
        (MINIMAL.replace("kind: plain, ", ""), "synthetic, versions; what a package adds is `kind: plugin, loader: NAME`"),
        (MINIMAL + "regime: foo", "'foo' - at `$.regime`; known: grid, shared"),
        (MINIMAL + "settings: {length_unit: words}", "known: characters, tokens"),
        (MINIMAL + READER.replace("output_cap", "dtype: int8, output_cap"), "known: bfloat16, float16, float32"),
        (MINIMAL + "retrieval: {encoder: {name: e, model: {folder: x}, pooling: max}}", "known: cls, lasttoken, mean"),
        (MINIMAL + "pipelines: {missing: guess}", "known: skip, stop"),
    ],
)
def test_a_value_that_is_none_of_a_list_is_answered_with_the_list(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said) + "$"):
        parse_yaml(text, Experiment, "small.yaml")


@pytest.mark.parametrize("text", ["data: 3", "name: [a]", MINIMAL + "readers: [{use: {name: one}}]"])
def test_values_are_listed_only_where_there_is_a_list(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_yaml(text, Experiment, "small.yaml")
    assert "known:" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: a\nname: b\n", 2),
        ("data:\n  kind: plain\n  path: a\n  kind: plain\n", 4),
        ("readers:\n- use: a\n- {use: b,\n   views: [cmc], use: c}\n", 4),
        ("? name\n: a\n? 'name'\n: b\n", 3),
    ],
    ids=["top", "nested", "in a list", "quoted"],
)
def test_a_key_given_twice_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigurationError, match="given twice") as caught:
        parse_yaml(text, Experiment, "twice.yaml")
    assert f"twice.yaml, line {line}:" in str(caught.value)


def test_a_merge_key_which_could_hide_a_repetition_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="only plain keys"):
        parse_yaml("a: &a {name: x}\nb: {<<: *a, name: y}\n", Experiment, "merge.yaml")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("veiws: [cmc]", "did you mean `views`?"),
        ("regmie: grid", "did you mean `regime`?"),
        ("settings: {bugdet: 100}", "did you mean `budget`?"),
        ("viewz: [cmc]", "did you mean `views`?"),  # not `view`, which a contrast has
        ("xyzzy: 1", "remove it"),
    ],
)
def test_an_unknown_key_is_refused_with_a_hint(change: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown field") as caught:
        parse_yaml(MINIMAL + change, Experiment, "small.yaml")
    assert hint in str(caught.value)
    assert str(caught.value).startswith("small.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just a string",
        "- a list",
        "name: [",
        "name: \x00",
        "1: 2",
        "true: 1",
        "when: 2026-13-45",
        "? {a: b}\n: c",
        "? !!set {a, b}\n: c",
        "!!python/object/apply:os.getcwd []",
        "a: &a [*a]",
        "[" * 5000,
        MINIMAL + "regime: other",
        MINIMAL + "settings: {budget: many}",
        MINIMAL + "settings: {hops: 2.5}",
        MINIMAL.replace("kind: plain", "kind: nothing"),
        MINIMAL.replace("name: small\n", ""),
        MINIMAL + 'prompt: "\\ud800"',
    ],
)
def test_a_file_that_is_no_experiment_is_one_configuration_error_that_names_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^bad\.yaml"):
        parse_yaml(text, Experiment, "bad.yaml")


def test_a_file_that_cannot_be_read_as_text_is_a_configuration_error(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for given_path in (path, tmp_path):
        with pytest.raises(ConfigurationError, match="cannot read"):
            load_yaml(given_path, Experiment)
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot read"):
        load_yaml(path, Experiment)


# Finding


def test_a_shipped_configuration_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert find_config("grammars", "mquake") == configs_folder() / "grammars" / "mquake.yaml"
    own = tmp_path / "mine.yaml"
    own.write_text("name: mine\nrelations: {}\n")
    assert find_config("grammars", str(own)) == own


@pytest.mark.parametrize("name", ["nothing", "../grammars/mquake", "missing.yaml", "", "mquake/"])
def test_a_configuration_that_is_not_there_is_refused_and_the_known_ones_are_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match="mquake, synthetic"):
        find_config("grammars", name)


@pytest.mark.parametrize("path", sorted((configs_folder() / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_experiment_resolves_and_is_named_after_its_file(path: Path) -> None:
    assert resolve(load_yaml(path, Experiment), None, str(path)).name == path.stem


# Resolving


def test_a_resolved_experiment_holds_contents_in_place_of_names() -> None:
    resolved = _resolve(MINIMAL + READER)
    assert resolved.grammar == load_yaml(find_config("grammars", "synthetic"), GrammarForms)
    assert resolved.prompt == load_yaml(find_config("prompts", "reader"), Prompt)
    assert resolved.readers[0].reader.name == "one"


def test_a_reader_reads_every_frozen_view_unless_it_names_some() -> None:
    assert _resolve(MINIMAL + READER).readers[0].views == ("cmc", "raw_history")
    assert _resolve(MINIMAL + READER + "    views: [raw_history]").readers[0].views == ("raw_history",)


def test_a_resolved_experiment_does_not_say_where_the_data_lay() -> None:
    assert _resolve(MINIMAL).data == PlainData(path=None)
    other = _resolve(MINIMAL.replace("my.jsonl", "elsewhere/yours.jsonl"))
    assert dump_yaml(other) == dump_yaml(_resolve(MINIMAL))


def test_the_shared_regime_has_the_papers_window() -> None:
    # Spec, section 5: 60,000 characters, five hops, an empty selection falls back to the raw history; top 100 facts.
    settings = _resolve(MINIMAL).settings
    assert (settings.budget, settings.hops, settings.k) == (60_000, 5, 100)
    assert (settings.empty_selection, settings.incomplete_parse) == ("raw_history", "keep")


def test_the_grid_regime_has_no_character_budget_and_other_fallbacks() -> None:
    # Spec, section 5: no budget; incomplete parse to raw history; empty closure to latest state; output cap 32.
    resolved = _resolve(MINIMAL + READER.replace("output_cap: 48", "output_cap: -1") + "regime: grid\n")
    assert resolved.settings.budget == -1
    assert (resolved.settings.empty_selection, resolved.settings.incomplete_parse) == ("latest_state", "raw_history")
    assert resolved.readers[0].reader.output_cap == 32


def test_a_setting_overrides_its_regime_and_leaves_the_others() -> None:
    changed = _resolve(MINIMAL + "regime: grid\nsettings: {hops: 3, incomplete_parse: keep}").settings
    assert changed == msgspec.structs.replace(_resolve(MINIMAL + "regime: grid").settings, hops=3, incomplete_parse="keep")


def test_a_retrieval_section_holds_the_models_files_and_the_papers_numbers_unless_it_says_otherwise() -> None:
    assert _resolve(MINIMAL).retrieval is UNSET
    resolved = _resolve(MINIMAL + "retrieval: {encoder: minilm, windows: 7}").retrieval
    # Compiler paper, appendix C: 512 tokens, top 100, then 10. Appendix I: 64 windows, constant 60.
    assert resolved == RetrievalSettings(
        chunk_tokens=512,
        chunk_k=10,
        candidates=100,
        rrf=60,
        windows=7,
        window_candidates=64,
        encoder=load_yaml(find_config("encoders", "minilm"), Encoder),
    )
    assert (RetrievalSettings().windows, RetrievalSettings().encoder, RetrievalSettings().reranker) == (24, None, None)


def test_a_model_of_the_retrieval_section_may_be_written_out_and_comes_back_from_the_runs_yaml() -> None:
    model = "{name: mine, model: {folder: /models/mine}, max_tokens: 64}"
    resolved = _resolve(MINIMAL + f"retrieval: {{encoder: {model}, reranker: {model}}}")
    assert resolved.retrieval == RetrievalSettings(
        encoder=Encoder(name="mine", model=Pin(folder="/models/mine"), max_tokens=64),
        reranker=Reranker(name="mine", model=Pin(folder="/models/mine"), max_tokens=64),
    )
    assert parse_yaml(dump_yaml(resolved).decode(), ResolvedExperiment, "written") == resolved


def test_a_reader_without_an_output_cap_takes_the_regimes() -> None:
    open_cap = READER.replace("output_cap: 48", "output_cap: -1")
    assert _resolve(MINIMAL + open_cap).readers[0].reader.output_cap == 64
    assert _resolve(MINIMAL + READER + "regime: grid\n").readers[0].reader.output_cap == 48


def test_the_output_cap_of_a_use_overrides_the_readers_and_the_regimes() -> None:
    assert _resolve(MINIMAL + READER).readers[0].reader.output_cap == 48
    assert _resolve(MINIMAL + READER + "    output_cap: 7").readers[0].reader.output_cap == 7
    assert _resolve(MINIMAL + READER + "    output_cap: 7\nregime: grid").readers[0].reader.output_cap == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL + "settings: {budget: 0}", "budget"),
        (MINIMAL + "settings: {budget: -2}", "budget"),
        (MINIMAL + "settings: {hops: 0}", "hops"),
        (MINIMAL + "settings: {k: 0}", "k must"),
        (MINIMAL + "settings: {unresolved_percent: 101}", "unresolved_percent"),
        (MINIMAL.replace("[cmc, raw_history]", "[]"), "views"),
        (MINIMAL.replace("[cmc, raw_history]", "[cmc, cmc]"), "each once"),
        (MINIMAL.replace("[cmc, raw_history]", "[evidence]"), "evidence"),
        (MINIMAL.replace("[cmc, raw_history]", "[../cmc]"), "view name"),
        (MINIMAL.replace("name: small", "name: ../small"), "name"),
        (MINIMAL.replace("name: small", "name: .hidden"), "name"),
        (MINIMAL.replace("name: small", "name: ''"), "name"),
        (MINIMAL.replace(", grammar: synthetic", ""), "needs `grammar`"),
        (MINIMAL.replace("grammar: synthetic", "grammar: nothing"), "no grammars configuration"),
        (MINIMAL + "prompt: nothing", "no prompts configuration"),
        (MINIMAL + READER + "    views: [latest_state]", "not frozen"),
        (MINIMAL + READER + "    views: [cmc, cmc]", "twice|each once"),
        (MINIMAL + READER + "    output_cap: 0", "output_cap"),
        (MINIMAL + READER + "    output_cap: -5", "output_cap"),
        (MINIMAL + READER + "    batch_size: 0", "batch_size"),
        (MINIMAL + READER.replace("output_cap: 48", "input_cap: 0"), "input_cap"),
        (MINIMAL + READER.replace("output_cap: 48", "date: 2026-02-30"), "no day of the calendar"),
        (MINIMAL + READER.replace("output_cap: 48", "date: '20260228'"), "no day of the calendar"),
        (MINIMAL + READER.replace("output_cap: 48", "date: today"), "no day of the calendar"),
        (MINIMAL + READER.replace("name: one", "name: a/b"), "reader name"),
        (MINIMAL + READER + READER.replace("readers:\n", ""), "share a name"),
        (MINIMAL.replace("kind: plain, path: my.jsonl", "kind: synthetic, questions: 0"), "synthetic"),
        (MINIMAL.replace("kind: plain, path: my.jsonl", "kind: synthetic, statements: []"), "synthetic"),
        (MINIMAL + "retrieval: {encoder: nothing}", "no encoders configuration"),
        (MINIMAL + "retrieval: {reranker: nothing}", "no rerankers configuration"),
        (MINIMAL + "retrieval: {candidates: 0}", "candidates must be positive"),
        (MINIMAL + "retrieval: {rrf: -1}", "rrf must be positive"),
        (MINIMAL + "retrieval: {windows: 65}", "65 windows cannot be chosen out of 64 window_candidates"),
        (MINIMAL + "retrieval: {encoder: {name: e, model: {folder: /e}, batch_size: 0}}", "batch_size and max_tokens"),
        (MINIMAL + "retrieval: {reranker: {name: r, model: {folder: /r}, max_tokens: 0}}", "batch_size and max_tokens"),
    ],
)
def test_an_experiment_that_cannot_be_run_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        _resolve(text)
    assert "small.yaml" in str(caught.value) or "configuration" in str(caught.value)


EXTRACTOR = MINIMAL.replace("kind: grammar, grammar: synthetic", "kind: llm")
# Where the whole numbers of each record are written in an experiment: at HERE.
WRITTEN = [
    (Reader, MINIMAL + "readers: [{use: {name: one, engine: e, model: {folder: /m}, HERE}}]"),
    (ReaderUse, MINIMAL + "readers: [{use: {name: one, engine: e, model: {folder: /m}}, HERE}]"),
    (ViewOverrides, MINIMAL + "settings: {HERE}"),
    (RetrievalUse, MINIMAL + "retrieval: {HERE}"),
    (Encoder, MINIMAL + "retrieval: {encoder: {name: e, model: {folder: /m}, HERE}}"),
    (Reranker, MINIMAL + "retrieval: {reranker: {name: e, model: {folder: /m}, HERE}}"),
    (ExtractorUse, EXTRACTOR + "extractor: {reader: {name: e, engine: e, model: {folder: /m}}, HERE}"),
    (PipelineUse, MINIMAL + READER + "    pipelines: [direct]\npipelines: {HERE}"),
    (SyntheticData, MINIMAL.replace("kind: plain, path: my.jsonl", "kind: synthetic, HERE")),
    (VersionsData, MINIMAL.replace("kind: plain, path: my.jsonl", "kind: versions, HERE")),
]


def whole_numbers(record: type[msgspec.Struct]) -> list[str]:
    """The fields of a record that hold whole numbers and are no seed."""
    return [
        f.name
        for f in msgspec.structs.fields(record)
        if "int" in str(f.type) and "bool" not in str(f.type) and f.name != "seed"
    ]


@pytest.mark.parametrize(("record", "text"), WRITTEN, ids=[record.__name__ for record, _ in WRITTEN])
def test_no_number_of_any_section_is_larger_than_what_c_takes(record: type[msgspec.Struct], text: str) -> None:
    fields = whole_numbers(record)
    assert fields
    for field in fields:
        for number in (1 << 31, 1 << 62, (1 << 63) - 1):
            several = (record, field) in ((SyntheticData, "statements"), (VersionsData, "versions"))
            written = text.replace("HERE", f"{field}: {[number] if several else number}")
            with pytest.raises(ConfigurationError, match=rf"{field}.*(too large|up to|must lie)|cannot be chosen") as caught:
                _resolve(written)
            assert "small.yaml" in str(caught.value)


def test_a_seed_may_be_any_number_and_an_engines_option_may_not() -> None:
    assert _resolve(MINIMAL + f"settings: {{seed: {1 << 70}}}").settings.seed == 1 << 70
    for number in (1 << 70, -(1 << 31)):
        with pytest.raises(ConfigurationError, match=r"options: depth: -?[0-9]+ is too large"):
            _resolve(MINIMAL + READER.replace("output_cap: 48", f"options: {{depth: {number}}}"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("batch_size: 0", "batch_size must be positive"),
        ("data_parallel: -1", "data_parallel must be positive"),
        ("data_parallel: 1025", "data_parallel goes up to 1024"),
        ("batch_tokens: 0", "batch_tokens must be positive"),
        ("start_seconds: 0", "start_seconds must be positive"),
        ("date: today", "no day of the calendar"),
    ],
)
def test_a_reader_that_extracts_is_held_to_what_one_that_reads_is(changes: str, message: str) -> None:
    reader = f"{{name: one, engine: e, model: {{folder: /m}}, {changes}}}"
    for text in (MINIMAL + f"readers: [{{use: {reader}}}]", EXTRACTOR + f"extractor: {{reader: {reader}}}"):
        with pytest.raises(ConfigurationError, match=message):
            _resolve(text)


def test_a_call_has_so_many_statements_at_most_that_its_schema_can_name_them() -> None:
    text = EXTRACTOR + "extractor: {reader: {name: one, engine: e, model: {folder: /m}}, statements: 1024}"
    assert _resolve(text).extractor
    with pytest.raises(ConfigurationError, match="statements of one call go up to 1024"):
        _resolve(text.replace("1024", "1025"))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(ConfigurationError, match="limit"):
        _resolve(MINIMAL, limit)


def test_a_prompt_without_its_slots_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    for user in ("{evidence}", "{question}", "nothing"):
        path.write_text(yaml.safe_dump({"name": "p", "system": "s", "user": user, "heading": "h", "no_evidence": "n"}))
        with pytest.raises(ConfigurationError, match="must hold"):
            _resolve(MINIMAL + f"prompt: {path}")


def test_the_hub_data_is_pinned_to_the_commit_of_the_specification() -> None:
    # Spec, section 2.
    data = FactConsolidationData()
    assert (data.repository, data.split) == ("ai-hyz/MemoryAgentBench", "Conflict_Resolution")
    assert data.revision == "7ea066982b140a19337e17e60d45d4076e042faf"


@pytest.mark.parametrize("written", ["2026-02-28", "'2026-02-28'"])
def test_a_readers_date_is_the_text_that_was_written_with_or_without_quotes(written: str) -> None:
    resolved = _resolve(MINIMAL + READER.replace("output_cap: 48", f"date: {written}"))
    assert resolved.readers[0].reader.date == "2026-02-28"
    assert parse_yaml(dump_yaml(resolved).decode(), ResolvedExperiment, "written") == resolved


# Writing

# Any text, and often one of the characters that mean something in YAML or break a line there.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    "a \n\r\t\x85\u2028\u2029\ufeff:#-'\"&*!|>%@`\\?[]{},", max_size=20
)


@given(TEXT, TEXT, TEXT, st.integers(-1, 10**9))
def test_a_resolved_experiment_comes_back_from_its_yaml(system: str, user: str, form: str, budget: int) -> None:
    written = msgspec.structs.replace(
        experiment(view_settings=ViewSettings(budget=budget)),
        prompt=Prompt(name="p", system=system, user=user, heading=form, no_evidence=""),
        grammar=GrammarForms(name="g", relations={form: (user, system)}),
    )
    content = dump_yaml(written)
    assert parse_yaml(content.decode(), ResolvedExperiment, "written") == written


def test_the_written_yaml_lists_keys_in_alphabetical_order() -> None:
    raw = yaml.safe_load(dump_yaml(experiment()))
    assert list(raw) == sorted(raw)
    assert list(raw["settings"]) == sorted(raw["settings"])


def test_the_prompt_digest_depends_on_every_field_of_the_prompt() -> None:
    prompt = load_yaml(find_config("prompts", "reader"), Prompt)
    changed = [msgspec.structs.replace(prompt, **{field: "other"}) for field in Prompt.__struct_fields__]
    assert len({digest_of(each) for each in (prompt, *changed)}) == 1 + len(Prompt.__struct_fields__)


def test_a_readers_default_input_cap_is_the_papers() -> None:
    # Spec, section 7: 262,144 tokens.
    reader = Reader(name="r", engine="transformers", model=parse_yaml("folder: x", Reader.__annotations__["model"], "pin"))
    assert reader.input_cap == 262_144


# What is to be analysed

TWO = """
readers:
  - use: {name: one, engine: transformers, model: {folder: /models/one}}
  - {use: {name: two, engine: transformers, model: {folder: /models/two}}, views: [cmc]}
"""


def test_a_declared_contrast_is_about_each_reader_that_reads_both_views_unless_it_names_one() -> None:
    text = (
        MINIMAL + TWO + "analysis: {contrasts: [{a: cmc, b: raw_history}, {a: one, b: two, view: cmc}], populations: {p: [q]}}"
    )
    resolved = _resolve(text)
    assert resolved.analysis == Analysis(
        contrasts=(DeclaredContrast("cmc", "raw_history", "all", "one"), DeclaredContrast("one", "two", "all", None, "cmc")),
        populations={"p": ("q",)},
    )
    both = MINIMAL + TWO.replace("[cmc]", "[cmc, raw_history]")
    analysis = _resolve(both + "analysis: {contrasts: [{a: cmc, b: raw_history}]}").analysis or Analysis()
    assert [contrast.reader for contrast in analysis.contrasts] == ["one", "two"]
    assert parse_yaml(dump_yaml(resolved).decode(), ResolvedExperiment, "run.yaml") == resolved


def test_a_declared_interaction_is_about_each_reader_that_reads_its_four_views() -> None:
    text = MINIMAL.replace("raw_history", "raw_history, latest_state, stale_closure") + TWO
    item = "{a: cmc, b: latest_state, c: stale_closure, d: raw_history, population: p}"
    analysis = _resolve(text + f"analysis: {{interactions: [{item}]}}").analysis or Analysis()
    assert analysis.interactions == (DeclaredInteraction("cmc", "latest_state", "stale_closure", "raw_history", "p", "one"),)
    assert analysis.asked == ("p",)


def test_a_prompt_of_pipelines_that_shows_no_records_is_refused(tmp_path: Path) -> None:
    shipped = yaml.safe_load(find_config("prompts", "pipelines").read_text())
    reader = "readers:\n  - use: {name: one, engine: transformers, model: {folder: /m}}\n    pipelines: [sh_conflict]\n"
    assert _resolve(f"{MINIMAL}{reader}").pipelines
    for call, slot in (("candidates", "evidence"), ("choose", "candidates"), ("decompose", "question")):
        changed = json.loads(json.dumps(shipped))
        changed[call]["user"] = changed[call]["user"].replace(f"{{{slot}}}", "")
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(ConfigurationError, match=rf"`user` of {call} must hold {{{slot}}}"):
            _resolve(f"{MINIMAL}{reader}pipelines: {{prompt: {tmp_path / 'mine.yaml'}}}\n")


SLOTS = "extract.relations extract.records repair.relations repair.records repair.fault align.relation align.known"


@pytest.mark.parametrize("named", [*SLOTS.split(), "review.records", "review.readings"])
def test_a_prompt_of_extraction_that_shows_no_statement_is_refused(named: str, tmp_path: Path) -> None:
    call, slot = named.split(".")
    text = MINIMAL.replace("kind: grammar, grammar: synthetic", "kind: llm")
    assert text != MINIMAL
    section = "extractor: {reader: {name: one, engine: transformers, model: {folder: /m}}"
    assert _resolve(f"{text}{section}}}\n").extractor
    changed = yaml.safe_load(find_config("prompts", "extract").read_text())
    # A slot that nothing fills stands in the prompt as it is, and one in `system` is filled by nothing.
    changed[call]["user"] = changed[call]["user"].replace(f"{{{slot}}}", f"{{{slot[:-1]}}}")
    changed[call]["system"] += f"{{{slot}}}"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed))
    with pytest.raises(ConfigurationError, match=rf"prompt 'extract': `user` of {call} must hold {{{slot}}}"):
        _resolve(f"{text}{section}, prompt: {tmp_path / 'mine.yaml'}}}\n")


def test_an_experiment_without_the_section_keeps_its_bytes() -> None:
    resolved = _resolve(MINIMAL + TWO)
    assert resolved.analysis is UNSET
    assert b"analysis" not in dump_yaml(resolved) + encode(resolved)


@pytest.mark.parametrize(
    ("analysis", "message"),
    [
        ("{contrasts: [{a: cmc, b: fact_bm25}]}", "the view 'fact_bm25' is not frozen; add it to `views`"),
        ("{contrasts: [{a: cmc, b: cmc}]}", "names a view twice"),
        ("{contrasts: [{a: cmc, b: raw_history, reader: three}]}", "no reader 'three'; there are one, two"),
        ("{contrasts: [{a: cmc, b: raw_history, reader: two}]}", "reader 'two' does not read all of cmc, raw_history"),
        ("{contrasts: [{a: cmc, b: raw_history}, {a: raw_history, b: cmc}]}", "is declared twice"),
        ("{contrasts: [{a: cmc, b: raw_history}, {a: cmc, b: raw_history, reader: one}]}", "is declared twice"),
        ("{contrasts: [{a: one, b: two, view: cmc, reader: one}]}", "`reader` is left out"),
        ("{contrasts: [{a: one, b: one, view: cmc}]}", "a and b are two readers"),
        ("{contrasts: [{a: one, b: two, view: fact_bm25}]}", "the view 'fact_bm25' is not frozen"),
        ("{contrasts: [{a: one, b: two, view: raw_history}]}", "no reader 'two' reads 'raw_history'"),
        ("{contrasts: [{a: one, b: three, view: cmc}]}", "no reader 'three' reads 'cmc'"),
        ("{contrasts: [{a: cmc}]}", "missing required field `b`"),
        ("{interactions: [{a: cmc, b: raw_history, c: cmc, d: raw_history}]}", "names a view twice"),
        ("{populations: {all: [q]}}", "a population cannot be called 'all'"),
        ("{populations: {'length:6k': [q]}}", "a population cannot be called 'length:6k'"),
        ("{populations: {p: []}}", "population 'p' must list question ids, each once"),
        ("{populations: {p: [q, q]}}", "population 'p' must list question ids, each once"),
        ("{populations: {p: [q], p: [r]}}", "given twice"),
    ],
)
def test_an_analysis_that_could_never_be_made_is_refused(analysis: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _resolve(MINIMAL + TWO + f"analysis: {analysis}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_view_that_no_reader_reads_cannot_be_contrasted() -> None:
    only = """
readers:
  - {use: {name: one, engine: transformers, model: {folder: /models/one}}, views: [cmc]}
"""
    with pytest.raises(ConfigurationError, match="no reader reads all of cmc, raw_history; add them to a reader's `views`"):
        _resolve(MINIMAL + only + "analysis: {contrasts: [{a: cmc, b: raw_history}]}")
