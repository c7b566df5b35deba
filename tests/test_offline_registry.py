import math
import textwrap
from pathlib import Path

import msgspec
import pytest
from installed import Install
from worlds import experiment, memory, question, show, vectors

from eval.labels import LABELS
from eval.metrics import METRICS
from extract.frontends import FRONTENDS
from extract.pipelines.policies import POLICIES
from offline.config.experiment import RetrievalSettings
from offline.config.models import Encoder, Pin
from offline.errors import ConfigurationError
from offline.loaders import LOADERS, Loaded, PluginData, load
from offline.loaders.plain import PlainData
from offline.loaders.raw import RawSource
from offline.records import Question, Statement
from offline.registry import Registry
from offline.retrievers import RETRIEVERS
from offline.run.steps import model_work
from offline.vectors import Retrieval
from offline.views import VIEWS, ModelWork, find_view
from offline.views.retrieval import lexical
from readers.engines import ENGINES

OLDEST = """
from offline.memory import Selection

def oldest(memory, question):
    return Selection((memory.history.statements[0].position,))
"""

RETRIEVER = """
class Oldest:
    def __init__(self, corpus):
        self.size = len(corpus.passages)

    def rank(self, query, k):
        return [self.size - 1 - at for at in range(min(k, self.size))]

    matches = rank

def make(corpus):
    return Oldest(corpus)
"""

LOADER = """
from offline.loaders import Loaded
from offline.records import History, Question, Statement

def build(data, source):
    size = int(data.options["size"])
    statements = tuple(Statement(position=i, text=f"Text {i}.") for i in range(size))
    return Loaded(
        (History(id="mine", length=str(size), statements=statements),),
        (Question(id="mine/0", row="mine", history="mine", text="Which?"),),
    )

def downwards(data, source):
    statements = (Statement(position=1, text="a"), Statement(position=0, text="b"))
    return Loaded(
        (History(id="mine", length="2", statements=statements),),
        (Question(id="mine/0", row="mine", history="mine", text="Which?"),),
    )
"""


CONSTANTS: Registry[float] = Registry("constant", "coldread.test-things", {"e": "math:e", "pi": "math:pi"})


def test_an_implementation_is_found_under_its_name() -> None:
    assert (CONSTANTS.get("e"), CONSTANTS.get("pi"), CONSTANTS.names()) == (math.e, math.pi, ["e", "pi"])
    assert ("e" in CONSTANTS, "c" in CONSTANTS) == (True, False)


def test_an_unknown_name_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"unknown constant 'c'; known: e, pi; if a package adds it \(entry point group 'coldread.test-things'\), that is",
    ):
        CONSTANTS.get("c")


@pytest.mark.parametrize("registry", [ENGINES, FRONTENDS, LABELS, LOADERS, METRICS, POLICIES, RETRIEVERS, VIEWS])
def test_each_implementation_of_ours_is_where_its_registry_says(registry: Registry[object]) -> None:
    assert registry.built_in()
    assert all(callable(registry.get(name)) for name in registry.built_in())


def test_an_installed_package_can_bring_a_view_that_freezes_packets(install: Install) -> None:
    install("acme", "coldread.views", {"oldest": "acme_code:oldest"}, OLDEST)
    packet, evidence = show(["Ada leads to Bo.", "Bo leads to Cy."], "Where does Bo lead to?", "oldest")
    assert (packet.view, evidence.text) == ("oldest", "Records:\n[0] Ada leads to Bo.")
    assert "oldest" in VIEWS.names()


def test_an_installed_package_can_bring_a_loader_with_options(install: Install) -> None:
    install("acme", "coldread.loaders", {"mine": "acme_code:build"}, LOADER)
    loaded = load(PluginData(loader="mine", options={"size": "2"}), None, None)
    assert loaded.histories[0].statements == (Statement(0, "Text 0."), Statement(1, "Text 1."))
    assert loaded.questions == (Question(id="mine/0", row="mine", history="mine", text="Which?"),)


def test_an_installed_loader_is_held_to_rising_positions(install: Install) -> None:
    install("acme", "coldread.loaders", {"mine": "acme_code:downwards"}, LOADER)
    with pytest.raises(Exception, match="position 0 follows 1; positions must go up"):
        load(PluginData(loader="mine"), None, None)


@pytest.mark.parametrize("name", ["cmc", "cmc_h2", "fact_bm25_k10", "chunk4096_dense_matched"])
def test_an_installed_package_cannot_replace_a_view_of_ours(install: Install, name: str) -> None:
    install("acme", "coldread.views", {name: "acme_code:oldest"}, OLDEST)
    with pytest.raises(ConfigurationError, match=f"'{name}' is built in and also declared"):
        find_view(name)


def test_an_installed_package_can_bring_a_retriever_for_every_unit_and_combination(install: Install) -> None:
    install("acme", "coldread.retrievers", {"oldest": "acme_code:make"}, RETRIEVER)
    shown = {
        view: show(["Ada leads to Bo.", "Bo leads to Cy.", "Ada leads to Di."], "Ada?", view)[1].positions
        # Record 2 overwrites record 0, so that the oldest fact is record 1.
        for view in ("fact_oldest_k1", "chunk20_oldest_k1", "window_oldest", "chunk20_oldest_k3_matched_to_cmc_h1")
    }
    assert shown == {
        "fact_oldest_k1": (1,),
        "chunk20_oldest_k1": (0,),
        "window_oldest": (0, 1, 2),
        "chunk20_oldest_k3_matched_to_cmc_h1": (0,),
    }


@pytest.mark.parametrize(("needs", "units"), [("", ()), ("make.needs_vectors = True", ("fact",))])
def test_an_installed_retriever_that_needs_vectors_makes_the_experiment_need_an_encoder(
    install: Install, needs: str, units: tuple[str, ...]
) -> None:
    install("acme", "coldread.retrievers", {"oldest": "acme_code:make"}, f"{RETRIEVER}\n{needs}\n")
    plain = experiment(views=("fact_oldest_matched",))
    encoder = Encoder(name="mine", model=Pin(folder="/mine"))
    assert model_work(msgspec.structs.replace(plain, retrieval=RetrievalSettings(encoder=encoder))).units == units
    if units:
        with pytest.raises(ConfigurationError, match=r"view 'fact_oldest_matched' needs a model: .*encoder"):
            model_work(plain)
    else:
        assert model_work(plain).units == ()


def test_an_installed_view_can_rank_by_frozen_vectors_and_makes_the_experiment_need_an_encoder(install: Install) -> None:
    code = """
from offline.memory import Selection
from offline.views import ModelWork

def nearest(memory, question):
    return Selection(memory.corpus("fact").rank("dense", question.text, 1)[0].positions)

nearest.needs = ModelWork(units=("fact",))
"""
    install("acme", "coldread.views", {"nearest": "acme_code:nearest"}, code)
    plain = experiment(views=("cmc", "fact_bm25_matched_to_nearest"))
    encoder = Encoder(name="mine", model=Pin(folder="/mine"))
    assert model_work(msgspec.structs.replace(plain, retrieval=RetrievalSettings(encoder=encoder))) == ModelWork(("fact",))
    with pytest.raises(ConfigurationError, match=r"view 'fact_bm25_matched_to_nearest' needs a model: .*encoder"):
        model_work(plain)
    stored = vectors({"Ada leads to Bo.": [1.0, 0.0], "Bo leads to Cy.": [0.0, 1.0]}, {"Bo?": [0.0, 1.0]})
    compiled = memory(["Ada leads to Bo.", "Bo leads to Cy."], retrieval=Retrieval(vectors=stored))
    assert find_view("nearest")(compiled, question("Bo?")).positions == (1,)
    assert lexical("nearest", 100) == "raw_history"


@pytest.mark.parametrize("needs", ["('fact',)", "ModelWork(units=('facts',))"])
def test_an_installed_view_that_needs_what_there_is_not_is_one_configuration_error(install: Install, needs: str) -> None:
    code = f"from offline.views import ModelWork\n{OLDEST}\noldest.needs = {needs}\n"
    install("acme", "coldread.views", {"oldest": "acme_code:oldest"}, code)
    with pytest.raises(ConfigurationError, match=r"no offline.views.ModelWork|no unit of passages"):
        model_work(experiment(views=("oldest",)))


def test_an_installed_package_cannot_replace_a_retriever_of_ours(install: Install) -> None:
    install("acme", "coldread.retrievers", {"bm25": "acme_code:make"}, RETRIEVER)
    with pytest.raises(ConfigurationError, match="retriever 'bm25' is built in and also declared by 'acme_code:make'"):
        show(["Ada leads to Bo."], "Ada?", "fact_bm25")


@pytest.mark.parametrize("answer", ["1 // 0", "[1]", "[-1]", "[0, 0]", "['0']", "None"])
def test_an_installed_retriever_that_breaks_its_contract_is_one_error_that_names_it(install: Install, answer: str) -> None:
    # Wherever it ranks: for a view, or for the candidates of a reranker, which no view is asked for.
    code = f"class Mine:\n    def rank(self, query, k):\n        return {answer}\nmake = lambda corpus: Mine()\n"
    install("acme", "coldread.retrievers", {"mine": "acme_code:make"}, code)
    with pytest.raises(ConfigurationError, match=r"retriever 'mine', question 'Ada\?': .*; mend the retriever"):
        memory(["Ada leads to Bo."]).corpus("fact").rank("mine", "Ada?", 5)


def test_the_retriever_of_the_documentation_ranks_histories_of_any_length(install: Install) -> None:
    page = (Path(__file__).parents[1] / "docs" / "retrieval.md").read_text()
    code = textwrap.dedent(page.partition("# my_package.py\n")[2].partition("\n\n")[0])
    install("acme", "coldread.retrievers", {"newest": "acme_code:newest"}, code)
    assert show(["Ada leads to Bo.", "Bo leads to Cy."], "Ada?", "fact_newest_k1")[1].positions == (1,)
    assert show(["Ada leads to Bo.", "Bo leads to Cy."], "Ada?", "chunk4096_newest_k5")[1].positions == (0, 1)
    assert show(["Ada leads to Bo."], "Ada?", "fact_newest_matched")[1].positions == (0,)


def test_two_installed_packages_cannot_share_a_name(install: Install) -> None:
    install("acme", "coldread.views", {"oldest": "acme_code:oldest"}, OLDEST)
    install("bolt", "coldread.views", {"oldest": "bolt_code:oldest"}, OLDEST)
    with pytest.raises(ConfigurationError, match="declared by 'acme_code:oldest' and 'bolt_code:oldest'"):
        find_view("oldest")


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("acme_code:missing", OLDEST, "missing"),
        ("acme_nowhere:oldest", OLDEST, "acme_nowhere"),
        ("acme_code:oldest", "raise RuntimeError('broken on purpose')", "broken on purpose"),
        ("acme_code:oldest", "def broken(:", "invalid syntax"),
    ],
    ids=["no such name", "no such module", "raises", "no Python"],
)
def test_an_installed_package_that_cannot_be_loaded_is_one_configuration_error(
    install: Install, target: str, code: str, why: str
) -> None:
    install("acme", "coldread.views", {"oldest": target}, code)
    with pytest.raises(ConfigurationError, match="could not be loaded") as caught:
        find_view("oldest")
    assert why in str(caught.value)


@pytest.mark.parametrize("name", ["plain", "synthetic", "versions", "factconsolidation"])
def test_a_loader_of_ours_cannot_be_asked_for_as_a_plug_in(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"write `kind: {name}`"):
        load(PluginData(loader=name), None, None)


def test_a_view_at_a_hop_cap_is_one_of_the_traversal_alone() -> None:
    for name in ("cmc_h3", "stale_closure_h1", "prior_refresh_h12"):
        assert callable(find_view(name))
    for name in ("cmc_h0", "cmc_h", "cmc_h100", "raw_history_h2", "cmc_H2", "h2", "_h2"):
        with pytest.raises(ConfigurationError, match="unknown view"):
            find_view(name)


def test_the_loader_that_a_data_section_names_is_the_one_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"history": "h", "statements": ["a"], "questions": [{"id": "0", "text": "Who?"}]}\n')
    loaded = load(PlainData(), RawSource(path=path), None)
    assert isinstance(loaded, Loaded)
    assert loaded.histories[0].id == "h"
    assert find_view("raw_history")(memory(["a"]), question("Who?")).positions == (0,)
