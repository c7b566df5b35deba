"""Populations, on the tiny rows by eye and on FactConsolidation against the published counts.

Ada of the tiny rows moves from Rome to Paris: cmc goes on along the Seine, prior_refresh along the Tiber. Bob never moved.
Carl moved, from Oslo to Bergen, where no river is known.
"""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from tiny import coldread, make_folder, write_experiment, write_rows
from worlds import memory, question, real_golds

from eval.analysis.populations import check_populations, contested, fits, keys_change, population_names, populations
from eval.labels import read_labels
from offline.config.analysis import Analysis
from offline.config.experiment import ResolvedExperiment
from offline.errors import CommandError, ConfigurationError
from offline.run.folder import EXPERIMENT
from offline.run.opened import OpenRun

NONE: Sequence[str] = ()
EVERY = {"ada/0", "ada/1", "ada/2", "carl/0", "carl/1"}


def loaded(folder: Path, model: Path, **changes: object) -> OpenRun:
    """A run of the tiny rows, loaded and extracted."""
    folder.mkdir(exist_ok=True)
    run, experiment = folder / "run", write_experiment(folder, model, **changes)
    coldread("run", str(experiment), "--data", str(write_rows(folder)), "--out", str(run), "--until", "extract")
    return OpenRun(run)


def declaring(run: OpenRun, declared: Mapping[str, Sequence[str]]) -> ResolvedExperiment:
    """The run's experiment with these lists."""
    lists = {name: tuple(ids) for name, ids in declared.items()}
    return msgspec.structs.replace(run.experiment, analysis=Analysis(populations=lists))


def found(run: OpenRun, *names: str, declared: Mapping[str, Sequence[str]] = {}) -> dict[str, frozenset[str]]:
    if not declared:
        return populations(run, read_labels(run), names)
    other = OpenRun(run.path)
    other.once(EXPERIMENT, "experiment", lambda: declaring(run, declared))
    return populations(other, read_labels(other), names)


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    """The tiny rows, loaded and extracted; nothing changes it."""
    return loaded(tmp_path_factory.mktemp("populations"), tiny_model)


# By eye


def test_all_and_the_history_lengths_part_the_questions(run: OpenRun) -> None:
    # Ada's history has five statements, Carl's three.
    assert found(run, "all", "length:5", "length:3") == {
        "all": EVERY,
        "length:5": {"ada/0", "ada/1", "ada/2"},
        "length:3": {"carl/0", "carl/1"},
    }


def test_keys_change_where_an_overwritten_value_leads_on(run: OpenRun) -> None:
    # Carl's one key is the same in both walks, and without an anchor both choose nothing.
    sets = found(run, "key_change", "same_keys")
    assert sets == {"key_change": {"ada/0", "ada/1"}, "same_keys": {"ada/2", "carl/0", "carl/1"}}


def test_contested_is_what_the_questions_own_subject_says_in_two_ways(run: OpenRun) -> None:
    assert found(run, "contested")["contested"] == {"ada/0", "ada/1", "carl/0"}


def test_a_key_that_is_contested_further_on_does_not_count() -> None:
    statements = ("Ada is married to Bob.", "Bob leads to Oslo.", "Bob leads to Rome.")
    assert not contested(question("Where does the spouse of Ada lead to?"), NONE, memory(statements))
    assert contested(question("Where does Bob lead to?"), NONE, memory(statements))
    # Said twice in the same way is not contested.
    assert not contested(question("Where does Bob lead to?"), NONE, memory(statements[:2] + statements[1:2]))


def test_keys_change_by_a_walk_into_nothing_too() -> None:
    # Bob's previous value leads to Oslo, of which nothing is said; the current one to Rome and on.
    statements = ("Bob leads to Oslo.", "Bob leads to Rome.", "Rome leads to Bergen.")
    assert keys_change(question("Where does Bob lead to?"), NONE, memory(statements))
    assert not keys_change(question("Where does Bob lead to?"), NONE, memory(statements, hops=1))


def test_flagged_and_unflagged_part_the_questions(tiny_model: Path, tmp_path: Path) -> None:
    run = loaded(tmp_path, tiny_model)
    golds = {**read_labels(run), "ada/0": ("Rome",), "carl/0": ("Oslo",), "ada/2": ("Paris",)}
    # Ada's and Carl's earlier homes; Paris was never Bob's. A second gold that is current clears ada/0.
    sets = populations(run, golds, ["flagged", "unflagged"])
    assert sets == {"flagged": {"ada/0", "carl/0"}, "unflagged": {"ada/1", "ada/2", "carl/1"}}
    golds["ada/0"] = ("Rome", "Paris")
    assert populations(run, golds, ["flagged"]) == {"flagged": {"carl/0"}}


def test_a_history_fits_to_the_character() -> None:
    # The heading (8), then a line break and "[0] Bob leads to Oslo." (22), twice, the second one longer by two.
    statements = ("Bob leads to Oslo.", "Bob leads to Bergen.")
    assert fits(question("?"), NONE, memory(statements, budget=8 + 23 + 25))
    assert not fits(question("?"), NONE, memory(statements, budget=8 + 23 + 24))
    assert fits(question("?"), NONE, memory(statements, budget=-1))


def test_questions_of_a_history_over_the_budget_overflow_whatever_views_are_frozen(tiny_model: Path, tmp_path: Path) -> None:
    # Carl's three records take 72 characters and their line breaks with the heading of 29, Ada's five take more.
    run = loaded(tmp_path, tiny_model, views=["closed_book"], settings={"budget": 120})
    assert found(run, "non_overflow")["non_overflow"] == {"carl/0", "carl/1"}


def test_a_record_that_a_readers_cap_cut_is_overflow_too(tmp_path: Path) -> None:
    # A byte is a token. The window takes the heading and some of Ada's records, and all of Carl's.
    run = loaded(tmp_path, make_folder(tmp_path / "model", window=500), views=["cmc", "raw_history"])
    assert found(run, "non_overflow")["non_overflow"] == EVERY
    coldread("freeze", str(run.path))
    coldread("read", str(run.path))
    schedule = (run.path / "reads/tiny/requests/schedule.jsonl").read_text().splitlines()
    cut = {name for name in EVERY for line in schedule if f'"{name}"' in line and '"cut":0' not in line}
    assert cut
    assert cut < EVERY
    assert found(run, "non_overflow")["non_overflow"] == EVERY - cut


def test_populations_of_a_run_do_not_depend_on_which_are_asked_for(run: OpenRun) -> None:
    names = population_names(run)
    together = found(run, *names)
    assert list(together) == names
    assert together == {name: found(run, name)[name] for name in names}


# Names


def test_declared_lists_are_populations(run: OpenRun) -> None:
    declared = {"homes": ["ada/2", "ada/0"], "none": []}
    sets = found(run, "homes", "none", "all", declared=declared)
    assert sets == {"homes": {"ada/0", "ada/2"}, "none": set(), "all": EVERY}


def test_an_unknown_name_is_refused_with_those_there_are(run: OpenRun) -> None:
    with pytest.raises(CommandError) as refused:
        found(run, "all", "lenght:5", declared={"homes": ["ada/0"]})
    assert str(refused.value) == (
        "no population 'lenght:5'; did you mean 'length:5'? there are all, length:5, length:3, non_overflow, key_change, "
        "same_keys, flagged, unflagged, contested, homes"
    )


def test_a_declared_list_of_strangers_is_refused(run: OpenRun) -> None:
    with pytest.raises(ConfigurationError, match=r"'homes' lists 'bob/0', which is no question .* \(1 of 2 are not\)"):
        check_populations(declaring(run, {"homes": ["ada/0", "bob/0"]}), run.data)


def test_a_declared_list_cannot_take_a_built_in_name(run: OpenRun) -> None:
    with pytest.raises(ConfigurationError, match="'flagged' is built in"):
        check_populations(declaring(run, {"flagged": ["ada/0"]}))


def test_histories_alone_need_no_extraction(run: OpenRun, tmp_path: Path) -> None:
    bare = OpenRun(Path(shutil.copytree(run.path, tmp_path / "bare")))
    shutil.rmtree(bare.path / "extraction")
    assert found(bare, "all", "length:5", "homes", declared={"homes": ["ada/0"]})["homes"] == {"ada/0"}


# The published benchmark


def real_run(folder: Path, data: Path, **changes: object) -> OpenRun:
    experiment = write_experiment(
        folder,
        folder,
        data={"kind": "factconsolidation"},
        frontend={"kind": "grammar", "grammar": "mquake"},
        views=["cmc"],
        readers=[],
        **changes,
    )
    coldread("run", str(experiment), "--data", str(data), "--out", str(folder / "run"), "--until", "extract")
    return OpenRun(folder / "run")


def sizes(run: OpenRun, *names: str) -> dict[str, tuple[int, int]]:
    """Single-hop and multi-hop questions of each population."""
    sets = populations(run, real_golds(), names)
    hops = {name: Counter("sh" if "_sh_" in asked else "mh" for asked in ids) for name, ids in sets.items()}
    return {name: (count["sh"], count["mh"]) for name, count in hops.items()}


@pytest.mark.real_data
def test_real_populations_have_the_published_sizes(real_data: Path, tmp_path: Path) -> None:
    run = real_run(tmp_path, real_data)
    lengths = [f"length:{length}" for length in ("6k", "32k", "64k", "262k")]
    count = sizes(run, "all", *lengths, "flagged", "unflagged", "key_change", "same_keys", "non_overflow")
    assert count["all"] == (400, 400)
    assert [count[length] for length in lengths] == [(100, 100)] * 4
    # Published: 7 and 26 flagged, 374 multi-hop ones left.
    assert (count["flagged"], count["unflagged"]) == ((7, 26), (393, 374))
    # Published (with an LLM's extraction): keys differ on 290 and 369, agree on 110 and 31.
    assert (count["key_change"], count["same_keys"]) == ((293, 370), (107, 30))
    # The shared window cuts the whole history on all but the 6k ones: 600 of 800, which is what a check value says.
    assert count["non_overflow"] == (100, 100)


@pytest.mark.real_data
def test_the_grid_overflows_on_the_longest_real_history_alone(real_data: Path, tmp_path: Path) -> None:
    # The grid has no budget: what cuts there is its reader's cap of 262,144 tokens, which no model is here to count. The
    # histories have 26,586, 138,849, 278,027 and 1,136,429 characters, so a cap of up to four characters a token parts the
    # last one from the others, as published: 600 questions of 800.
    (tmp_path / "free").mkdir()
    assert sizes(real_run(tmp_path / "free", real_data, regime="grid"), "non_overflow") == {"non_overflow": (400, 400)}
    run = real_run(tmp_path, real_data, regime="grid", settings={"budget": 4 * 262_144})
    assert sizes(run, "non_overflow") == {"non_overflow": (300, 300)}


@pytest.mark.real_data
def test_real_single_hop_questions_are_contested_more_often_than_an_llm_saw(real_data: Path, tmp_path: Path) -> None:
    # Published: 48 / 50 / 48 / 59, of which an LLM (gpt-4o-mini) extracted two candidates from ten retrieved records. The
    # sources contest 77 / 65 / 67 / 81.
    run = real_run(tmp_path, real_data)
    names = [f"length:{length}" for length in ("6k", "32k", "64k", "262k")]
    sets = populations(run, real_golds(), ["contested", *names])
    single = {asked for asked in sets["contested"] if "_sh_" in asked}
    ours = [len(single & sets[name]) for name in names]
    assert ours == [77, 65, 67, 81]
    assert all(count >= published for count, published in zip(ours, (48, 50, 48, 59), strict=True))
