"""The determinism certificate: finds what depends on company, order or a warm cache, and can be counted again."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import ANSWER, coldread, frozen_run, their_reader

from offline.canonical import digest_of, read_lines, read_record, write_lines, write_record
from offline.run.manifest import make_manifest
from readers.certificate import certify, first_difference, foreign_probe
from readers.journal import Journal
from readers.records import JournalEntry, Output, Prediction, Probe, Seal
from readers.requests import batches_of, read_requests
from readers.seal import close

READS = Path("reads") / "tiny"
# Answers that follow from the input alone.
STEADY = "return [Output(ids=(80, 81, 80 + len(ids) % 7), finish_reason='length') for ids in batch]"
# The third id depends on how many inputs share the batch.
CROWDED = "return [Output(ids=(80, 81, 90 + len(batch)), finish_reason='length') for ids in batch]"
# The second id depends on which input comes first.
ORDERED = "return [Output(ids=(80, 90 + len(batch[0]) % 5 + (len(batch) > 1), 81), finish_reason='length') for ids in batch]"
# A cache that changes an answer once it has seen the input.
CACHED = (
    "seen = [tuple(ids) in self.cache for ids in batch]\nself.cache.update(map(tuple, batch))\n"
    "return [Output(ids=(91 if known else 80,), finish_reason='length') for known in seen]"
)
CACHE = "def prepare(self):\n    self.cache = set()\ndef forget(self):\n    self.cache.clear()\n"
MARGIN = "def logprobs(self, ids, tokens):\n    return [-0.5 - 0.125 * i for i, _ in enumerate(tokens)]\n"


def seal_of(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / READS / "seal.json").read_text())
    return content


@pytest.fixture
def read_with(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> Callable[..., dict[str, Any]]:
    """Reads the plain rows with an engine and gives its seal."""

    def read(body: str, more: str = "", **changes: object) -> dict[str, Any]:
        plugin(body, more)
        run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path, **{"batch_size": 4, **changes}))
        coldread("read", str(run))
        return seal_of(run)

    return read


def test_an_engine_whose_answers_follow_from_the_input_matches_everywhere(read_with: Callable[..., dict[str, Any]]) -> None:
    certificate = read_with(STEADY)["certificate"]
    assert certificate["sample"] == 8
    assert certificate["matched"] == {"batch": 8, "shuffled": 8, "run": 8}
    assert certificate["first"] is None
    assert certificate["batch_invariance"] == "not offered by this engine"


def test_an_engine_that_minds_its_company_is_found_with_token_and_margin(read_with: Callable[..., dict[str, Any]]) -> None:
    certificate = read_with(CROWDED, MARGIN)["certificate"]
    # 17 requests in batches of 4: the shortest is read alone in the run, and it is in the sample, as the longest is.
    assert certificate["matched"] == {"batch": 0, "shuffled": 0, "run": 1}
    assert certificate["first"]["token"] == 2
    assert certificate["first"]["margin"] == "0.125000"


def test_without_logprobs_the_margin_is_not_known(read_with: Callable[..., dict[str, Any]]) -> None:
    assert read_with(CROWDED)["certificate"]["first"]["margin"] is None


def test_an_engine_that_minds_order_is_found(read_with: Callable[..., dict[str, Any]]) -> None:
    certificate = read_with(ORDERED)["certificate"]
    assert certificate["first"]["token"] == 1
    assert certificate["matched"]["shuffled"] < 8


def test_a_cache_that_changes_answers_is_found_and_kept_out_of_the_run(read_with: Callable[..., dict[str, Any]]) -> None:
    certificate = read_with(CACHED, CACHE)["certificate"]
    # Every batch of the run starts cold, so the probes before it cannot be seen in it.
    assert certificate["matched"] == {"batch": 8, "shuffled": 8, "warm": 0, "run": 8}
    assert certificate["first"]["condition"] == "warm"


def test_a_batch_of_one_has_no_company_to_probe(read_with: Callable[..., dict[str, Any]]) -> None:
    assert read_with(STEADY, batch_size=1)["certificate"]["probed"] == {"run": 8}


def test_an_input_alone_in_its_batch_is_no_probe_of_company(read_with: Callable[..., dict[str, Any]]) -> None:
    # So few tokens that no two inputs share a batch.
    assert read_with(STEADY, batch_tokens=1)["certificate"]["probed"] == {"run": 8}


def test_an_engine_without_a_cache_to_empty_is_not_probed_warm(read_with: Callable[..., dict[str, Any]]) -> None:
    certificate = read_with(STEADY)["certificate"]
    assert certificate["probed"] == {"batch": 8, "shuffled": 8, "run": 8}


def test_no_probe_no_certificate(read_with: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    assert "certificate" not in read_with(STEADY, probe=0)
    assert not (tmp_path / "run" / READS / "probes.jsonl").exists()
    coldread("score", str(tmp_path / "run"))
    assert "determinism not probed" in coldread("replay", str(tmp_path / "run")).stderr


def test_a_resumed_read_keeps_the_probes_it_has(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    # Dies on its first batch of the run proper; on the second start, the probes would come out differently.
    target = tmp_path / "died"
    dies = "died = Path(self.options['target'])\nif len(batch) == 5 and not died.exists():\n    died.touch()\n    os._exit(1)"
    body = f"{dies}\n{ANSWER}"
    plugin(body)
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, target, batch_size=5, probe=4))
    coldread("read", str(run), code=8)
    probes = (run / READS / "probes.jsonl").read_text()
    engine = tmp_path / "site" / "theirs_engine.py"
    # Of another length, since a file of the same size and second would be taken for the compiled one.
    engine.write_text(engine.read_text().replace("ids=(80,)", "ids=(81, 82)"))
    coldread("read", str(run))
    after = (run / READS / "probes.jsonl").read_text()
    assert after.startswith(probes)
    assert after.removeprefix(probes).count('"condition":"run"') == after.removeprefix(probes).count("\n") == 4
    assert seal_of(run)["certificate"]["matched"] == {"batch": 4, "shuffled": 4, "run": 0}


def test_an_altered_probe_is_named_and_one_under_a_new_manifest_breaks_the_seal(copied_run: Path) -> None:
    folder = copied_run / READS
    probes = list(read_lines(folder / "probes.jsonl", Probe))
    write_lines(folder / "probes.jsonl", [msgspec.structs.replace(probes[0], output_ids=(9,)), *probes[1:]])
    assert "probes.jsonl" in coldread("replay", str(copied_run), code=20).stderr
    root = read_record(folder / "seal.json", Seal).root
    files = ["predictions.jsonl", "probes.jsonl", "seal.json", "timings.json"]
    write_record(folder / "manifest.json", make_manifest(folder, "reads", {"seal": root}, files))
    assert "probes.jsonl" in coldread("replay", str(copied_run), code=26).stderr
    assert "probes.jsonl" in coldread("score", str(copied_run), code=26).stderr


def test_a_certificate_that_its_probes_do_not_give_breaks_the_seal(copied_run: Path) -> None:
    folder = copied_run / READS
    seal = read_record(folder / "seal.json", Seal)
    assert seal.certificate
    better = msgspec.structs.replace(seal.certificate, matched={**seal.certificate.matched, "run": 99})
    seal = close(msgspec.structs.replace(seal, certificate=better))
    write_record(folder / "seal.json", seal)
    files = ["predictions.jsonl", "probes.jsonl", "seal.json", "timings.json"]
    write_record(folder / "manifest.json", make_manifest(folder, "reads", {"seal": seal.root}, files))
    assert "probes" in coldread("replay", str(copied_run), "--no-tokens", code=26).stderr


def test_a_probe_on_demand_reads_a_sealed_run_again_and_changes_nothing(copied_run: Path) -> None:
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in copied_run.rglob("*") if p.is_file()}
    done = json.loads(coldread("probe", str(copied_run), "--sample", "5", "--json").stdout)
    assert done["certificate"]["sample"] == 5
    assert done["certificate"]["matched"]["run"] == 5
    assert done["environment"]["engine"] == "digest"
    assert "sealed predictions" in coldread("probe", str(copied_run), "--sample", "2").stdout
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in copied_run.rglob("*") if p.is_file()} == before


def test_a_probe_of_another_engine_finds_where_sealed_outputs_differ(
    copied_run: Path, tiny_model: Path, tmp_path: Path
) -> None:
    # The sealed outputs of the tiny model, played back: nothing can differ.
    experiment = frozen_run(
        tmp_path,
        tiny_model,
        readers=[
            {
                "use": {
                    "name": "again",
                    "engine": "recorded",
                    "model": {"folder": str(tiny_model)},
                    "output_cap": 12,
                    "options": {"run": str(copied_run)},
                }
            }
        ],
    )
    found = json.loads(coldread("probe", str(experiment), "--sample", "4", "--json").stdout)["certificate"]
    assert found["matched"] == {"batch": 4, "shuffled": 4}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--reader", "nobody"], 2, "its experiment names: tiny"),
        (["--sample", "1"], 2, "at least 2"),
    ],
)
def test_a_probe_that_cannot_be_made_says_why(copied_run: Path, arguments: list[str], code: int, words: str) -> None:
    assert words in coldread("probe", str(copied_run), *arguments, code=code).stderr


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_the_first_difference_is_where_common_beginnings_end(one: list[int], other: list[int]) -> None:
    common = max(n for n in range(min(len(one), len(other)) + 1) if one[:n] == other[:n])
    assert first_difference(one, other) == (-1 if one == other else common)
    assert first_difference(one, other) == first_difference(other, one)


def probed(condition: Any, request: str, ids: Sequence[int], token: int) -> Probe:
    return Probe(request, condition, tuple(ids), "length", token, None if token < 0 else "0.1", "e")


def test_a_certificate_by_hand() -> None:
    probes = [
        probed("alone", "a", (1, 2), -1),
        probed("alone", "b", (3, 4), -1),
        probed("batch", "b", (3, 5), 1),
        probed("shuffled", "a", (9, 2), 0),
        probed("shuffled", "b", (3, 4), -1),
        probed("run", "a", (1, 2), -1),
        probed("run", "b", (7,), 0),
    ]
    found = certify(probes, [{"batch_invariance": "on"}, {"batch_invariance": "off"}])
    assert found.sample == 2
    assert found.probed == {"batch": 1, "shuffled": 2, "run": 2}
    assert found.matched == {"batch": 0, "shuffled": 1, "run": 1}
    assert found.first is not None
    assert (found.first.condition, found.first.request, found.first.token) == ("shuffled", "a", 0)
    assert found.batch_invariance == "off, on"


def test_a_probe_that_denies_its_own_divergence_is_counted_all_the_same_and_named() -> None:
    probes = [probed("alone", "a", (1, 2), -1), probed("batch", "a", (1, 3), -1)]
    assert certify(probes, []).matched == {"batch": 0}
    sealed = [Prediction("a", (1, 2), "", "length", None)]
    assert "line 2" in str(foreign_probe(probes, sealed))
    assert "line 1" in str(foreign_probe(probes, []))
    assert "not the sealed one" in str(foreign_probe([probes[0], probed("run", "a", (1, 3), 1)], sealed))
    assert foreign_probe([probes[0], probed("run", "a", (1, 2), -1)], sealed) is None


def test_a_kill_after_the_last_batch_seals_as_an_undisturbed_run(tiny_model: Path, tmp_path: Path) -> None:
    run = frozen_run(tmp_path, tiny_model)
    whole = Path(shutil.copytree(run, tmp_path / "whole"))
    coldread("read", str(whole))
    folder = run / READS
    # What such a kill leaves: a full journal, and probes without those of the run.
    shutil.copytree(whole / READS / "requests", folder / "requests")
    shutil.copytree(whole / READS / "tokenizer", folder / "tokenizer")
    probes = [p for p in read_lines(whole / READS / "probes.jsonl", Probe) if p.condition != "run"]
    write_lines(folder / "probes.jsonl", probes)
    _journal_of(whole, folder / "journal.jsonl")
    coldread("read", str(run))
    for name in ("predictions.jsonl", "probes.jsonl", "seal.json"):
        assert (folder / name).read_bytes() == (whole / READS / name).read_bytes()


def test_probes_of_a_run_whose_batches_were_planned_anew_are_taken_again(tiny_model: Path, tmp_path: Path) -> None:
    run = frozen_run(tmp_path, tiny_model)
    whole = Path(shutil.copytree(run, tmp_path / "whole"))
    coldread("read", str(whole))
    # Another plan left probes that say what its batches gave; the journal holds none of this plan's.
    folder = run / READS
    folder.mkdir(parents=True)
    probes = list(read_lines(whole / READS / "probes.jsonl", Probe))
    other = [msgspec.structs.replace(p, output_ids=(9,), token=0) if p.condition == "run" else p for p in probes]
    write_lines(folder / "probes.jsonl", other)
    coldread("read", str(run))
    assert (folder / "probes.jsonl").read_bytes() == (whole / READS / "probes.jsonl").read_bytes()
    coldread("score", str(run))
    coldread("replay", str(run))


def _journal_of(sealed: Path, path: Path) -> None:
    """The journal that a sealed reader had before it was sealed."""
    requests = read_requests(sealed / READS / "requests")
    predictions = list(read_lines(sealed / READS / "predictions.jsonl", Prediction))
    (environment,) = read_record(sealed / READS / "seal.json", Seal).environments
    journal = Journal(path)
    for batch in batches_of(requests):
        made = tuple(Output(predictions[i].output_ids, predictions[i].finish_reason) for i in batch)
        name = digest_of([requests.requests[i].digest for i in batch])
        journal.append(JournalEntry(batch=name, outputs=made, environment=environment, seconds="0.1"))


def test_an_unsealed_reader_can_be_probed_before_it_reads(tiny_model: Path, tmp_path: Path) -> None:
    run = frozen_run(tmp_path, tiny_model)
    found = json.loads(coldread("probe", str(run), "--sample", "3", "--json").stdout)["certificate"]
    assert set(found["matched"]) == {"batch", "shuffled"}
    assert not (run / READS / "probes.jsonl").exists()
    whole = Path(shutil.copytree(run, tmp_path / "whole"))
    coldread("read", str(whole))
