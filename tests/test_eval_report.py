"""The report's page: what it holds, that it holds it safely, the same bytes twice, and what stays true of the run beside it."""

import base64
import builtins
import json
import re
import shutil
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hostile import HOSTILE, hostile_run
from tiny import VIEWS, coldread, write_experiment, write_rows
from tiny_pipelines import PIPELINES

from eval.report.drawing import ticks
from eval.report.figures import by_number
from eval.report.islands import Step, chain, pack, statuses
from eval.report.label_placement import Place, place
from eval.report.page import make_page
from eval.report.source import read_source
from offline.memory import Memory
from offline.run.opened import OpenRun

GOLDEN = Path(__file__).parent / "golden" / "format-1"


class Elements(HTMLParser):
    """Every element's name and attributes, and the text of scripts by their id."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            name = self.found[-1][1].get("id") or "code"
            self.scripts.setdefault(name, data)


def unpack(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text), -15))


def page_of(run: Path) -> tuple[str, dict[str, Any]]:
    page = make_page(read_source(OpenRun(run))).decode()
    islands = {name.removeprefix("island-"): text for name, text in Elements(page).scripts.items() if name != "code"}
    return page, {name: unpack(text) for name, text in islands.items()}


@pytest.fixture(scope="module")
def scored_page(scored_run: Path) -> tuple[str, dict[str, Any]]:
    """The page and islands of the scored run."""
    return page_of(scored_run)


def test_a_report_goes_into_the_run_which_still_replays_and_the_same_bytes_come_out_again(copied_run: Path) -> None:
    told = json.loads(coldread("report", str(copied_run), "--json").stdout)
    page = (copied_run / "report.html").read_bytes()
    assert told == {
        "run": str(copied_run),
        "report": str(copied_run / "report.html"),
        "bytes": len(page),
        "questions": 5,
        "views": 4,
        "readers": 1,
        "answers": 20,
    }
    links = json.loads(coldread("replay", str(copied_run), "--json").stdout)["links"]
    assert [link["detail"] for link in links if link["link"] == "report"] == [
        "report.html: not checked, no seal covers it; `coldread report` makes it again"
    ]
    (copied_run / "report.html").write_text("altered")
    coldread("report", str(copied_run))
    assert (copied_run / "report.html").read_bytes() == page
    # Neither the run's place nor the report's own presence is in it.
    moved = shutil.copytree(copied_run, copied_run.parent / "moved")
    assert make_page(read_source(OpenRun(moved))) == page


def test_only_a_file_of_that_name_may_stand_in_the_run(copied_run: Path) -> None:
    coldread("report", str(copied_run), "--out", str(copied_run / "other.html"), code=3)
    (copied_run / "report.html").mkdir()
    assert "not part of a run" in coldread("replay", str(copied_run), "--no-tokens", code=20).stderr
    (copied_run / "report.html").rmdir()
    (copied_run / "Report.html").write_text("")
    coldread("replay", str(copied_run), "--no-tokens", code=20)


def test_a_report_elsewhere_writes_nothing_into_the_run_and_opens_no_label(copied_run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()}
    stdout = coldread("report", str(copied_run), "--out", str(tmp_path / "page.html")).stdout
    assert {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()} == before
    assert (tmp_path / "page.html").is_file()
    assert "tiny: sealed blind" in stdout
    assert max(map(len, stdout.splitlines())) <= 100


def test_a_run_without_scores_or_with_an_altered_file_has_no_report(copied_run: Path) -> None:
    timings = copied_run / "reads" / "tiny" / "timings.json"
    kept = timings.read_bytes()
    timings.write_bytes(kept.replace(b'"batches":', b'"batches":1'))
    coldread("report", str(copied_run), code=20)
    timings.write_bytes(kept)
    shutil.rmtree(copied_run / "scores")
    assert "run `coldread score" in coldread("report", str(copied_run), code=10).stderr
    assert not (copied_run / "report.html").exists()


@pytest.mark.parametrize("library", ["jinja2", "altair", "vl_convert"])
def test_without_a_library_the_error_says_what_to_install(
    copied_run: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    real = builtins.__import__

    def absent(name: str, *more: Any, **others: Any) -> Any:
        if name == library:
            raise ImportError(f"No module named {name!r}", name=name)
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert "pip install 'coldread[report]'" in coldread("report", str(copied_run), code=3).stderr


def test_the_page_is_one_file_that_names_nothing_outside_itself(scored_page: tuple[str, dict[str, Any]]) -> None:
    page, _ = scored_page
    elements = Elements(page).found
    assert {tag for tag, _ in elements}.isdisjoint(
        {"link", "img", "iframe", "object", "embed", "base", "audio", "video", "source"}
    )
    for tag, attributes in elements:
        assert attributes.keys().isdisjoint({"src", "srcset", "style", "action", "data", "xlink:href"}), tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert (attributes.get("href") or "#").startswith("#"), tag
    assert "sourceMappingURL" not in page
    assert "@import" not in page
    assert "url(" not in page
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names of XML, never fetched
    (policy,) = [a["content"] or "" for tag, a in elements if tag == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_the_tables_numbers_stand_in_the_page(scored_run: Path, scored_page: tuple[str, dict[str, Any]]) -> None:
    page, _ = scored_page
    rows = json.loads(coldread("table", str(scored_run), "--json").stdout)["rows"]
    for row in rows:
        for accuracy in row["accuracy"].values():
            assert f"{accuracy['percent']} ({accuracy['low']}-{accuracy['high']})" in page
        assert f">{row['input_mean']}</td>" in page
    root = json.loads((scored_run / "reads" / "tiny" / "seal.json").read_text())["root"]
    assert root in page
    assert "sealed blind" in page
    assert ">exploratory</td>" in page


def test_declared_contrasts_come_first_and_carry_holms_p(tmp_path: Path, tiny_model: Path) -> None:
    declared = {"contrasts": [{"a": "closed_book", "b": "cmc"}], "interactions": [dict(zip("abcd", VIEWS, strict=True))]}
    path = write_experiment(tmp_path, tiny_model, analysis=declared)
    coldread("run", str(path), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"))
    page, _ = page_of(tmp_path / "run")
    assert page.index("declared before reading</td>") < page.index(">exploratory</td>")
    # B against A is the declared one, so it is not told a second time.
    assert page.count(">exploratory</td>") == 2 * 3
    assert "(cmc - stale_closure) - (raw_history - closed_book)" in page


def test_the_islands_hold_every_answer_and_give_every_evidence_text_back(
    scored_run: Path, scored_page: tuple[str, dict[str, Any]]
) -> None:
    _, islands = scored_page
    index, run = islands["index"], OpenRun(scored_run)
    scores = [json.loads(line) for line in (scored_run / "scores/tiny/scores.jsonl").read_text().splitlines()]
    numbers = {question[0]: number for number, question in enumerate(index["questions"])}
    packets, evidence = run.packets(VIEWS), run.evidence
    for score in scores:
        number, view = numbers[score["question"]], index["views"].index(score["view"])
        told = islands[f"answers-{number // index['block']}"][number % index["block"]]
        assert told["answers"][0][view][:2] == [score["prediction"], score["finish_reason"]]
        assert index["verdicts"]["subem"][0][view][number] == str(int(score["metrics"]["subem"]))
        history = islands[f"history-{index['questions'][number][4]}"]
        (packet,) = [packet for packet in packets[score["view"]] if packet.question == score["question"]]
        lines = [history["records"][at][1] for at in expand(history["evidence"][told["packets"][view][0]])]
        assert ("\n".join([index["heading"], *lines]) if lines else "") == evidence[packet.evidence].text


def expand(runs: list[int]) -> list[int]:
    numbers: list[int] = []
    end = 0
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        numbers += range(end + start, end + start + length)
        end += start + length
    return numbers


def memory_of(run: Path, history: str) -> Memory:
    folder = OpenRun(run)
    experiment, data = folder.experiment, folder.data
    (found,) = [h for h in data.histories if h.id == history]
    return Memory(found, folder.extraction, experiment.settings, experiment.prompt.heading)


def test_the_chain_and_superseded_records_by_hand(copied_run: Path) -> None:
    memory = memory_of(copied_run, "ada")
    # Ada in Rome, Rome on the Tiber, Paris on the Seine, Bob in Rome, Ada in Paris: only the first is overwritten.
    first = memory.history.statements[0].position
    assert statuses(memory) == {first: first + 4, **dict.fromkeys(range(first + 1, first + 5))}
    (question,) = [q for q in OpenRun(copied_run).data.questions if q.id == "ada/1"]
    assert list(chain(memory, question)) == [
        Step(0, "Ada", "home", "Paris", first + 4, ((first, "Rome"),)),
        Step(1, "Paris", "river", "Seine", first + 2, ()),
    ]
    # A line without a fact has no status.
    carl = memory_of(copied_run, "carl")
    assert carl.history.statements[-1].position not in statuses(carl)


def test_a_released_run_has_a_report() -> None:
    page, islands = page_of(GOLDEN)
    assert len(islands["index"]["questions"]) == 5
    assert "Accuracy by history length" in page  # of lengths 5 and 3


def test_history_lengths_are_drawn_by_the_number_that_they_begin_with() -> None:
    lengths = ["16 versions", "long", "1m", "8 versions", "455", "32k", "2 versions", ""]
    expected = ["2 versions", "8 versions", "16 versions", "455", "32k", "1m", "", "long"]
    assert sorted(lengths, key=by_number) == expected


def test_hostile_answers_are_text_in_the_islands_and_nowhere_else(
    tmp_path: Path, tiny_model: Path, plugin: Callable[..., Path]
) -> None:
    run = hostile_run(tmp_path, tiny_model, plugin)
    page, islands = page_of(run)
    assert {answer[0] for told in islands["answers-0"] for answer in told["answers"][0]} == set(HOSTILE)
    assert not any(text in page for text in HOSTILE if text != "<!--")
    assert [tag for tag, _ in Elements(page).found].count("script") == len(islands) + 1


def test_the_islands_hold_how_each_pipeline_went(served_run: Path) -> None:
    page, islands = page_of(served_run)
    index = islands["index"]
    assert (index["views"], index["pipelines"]) == (["cmc", *PIPELINES], PIPELINES)
    assert "direct_sampled</dd>" in page  # named as the one that sampled
    stored = [json.loads(line) for line in (served_run / "reads/tiny/pipelines/traces.jsonl").read_text().splitlines()]
    numbers = {question[0]: number for number, question in enumerate(index["questions"])}
    for trace in stored:
        told = islands["answers-0"][numbers[trace["question"]]]
        shown = told["traces"][0][PIPELINES.index(trace["pipeline"])]
        assert (shown["answer"], shown["evidence"], len(shown["calls"])) == (
            trace["answer"],
            trace["evidence"],
            len(trace["calls"]),
        )
        records = {
            position for position, *_ in islands[f"history-{index['questions'][numbers[trace['question']]][4]}"]["records"]
        }
        assert records >= set(trace["evidence"])
    # What no packet shows has no point among what evidence holds.
    assert page.count("gold in the evidence, %") == 2


def test_what_pipelines_of_a_hostile_model_did_is_text_in_the_islands_and_nowhere_else(
    tmp_path: Path, tiny_model: Path, plugin: Callable[..., Path]
) -> None:
    run = hostile_run(tmp_path, tiny_model, plugin, views=["cmc"], pipelines=["direct", "sh_conflict_llm", "car"])
    page, islands = page_of(run)
    direct, chosen, chain = islands["answers-0"][0]["traces"][0]
    assert direct["answer"] in HOSTILE
    assert {each["entity"] for each in chosen["candidates"]} == {"</script>", *HOSTILE}
    assert {each["foreign"] is None for each in chosen["candidates"]} == {True, False}
    assert [hop["query"] for hop in chain["hops"]] == [HOSTILE[0], "{hop_1} " + HOSTILE[1], HOSTILE[3]]
    assert not any(text in page for text in HOSTILE if text != "<!--")
    assert [tag for tag, _ in Elements(page).found].count("script") == len(islands) + 1
    coldread("replay", str(run))


def test_packing_has_no_character_that_html_knows() -> None:
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", pack({"text": "</script>" * 99}))
    assert unpack(pack({"text": "</script>é"})) == {"text": "</script>é"}


def test_a_label_stands_beside_its_point_or_on_the_nearest_free_line() -> None:
    # Right of its point; left of one at the right edge; and three points at one place take the lines above and below, since
    # the first label lies to the right and the left side would leave the panel.
    points = [(20.0, 20.0, "cmc"), (290.0, 60.0, "raw"), *((20.0, 150.0, name) for name in ("one", "two", "three"))]
    assert place(points, 300, 200) == [
        Place(False, 20.0),
        Place(True, 60.0),
        Place(False, 150.0),
        Place(False, 162.0),
        Place(False, 138.0),
    ]


def test_ticks_of_a_logarithmic_axis_are_few() -> None:
    assert ticks(100, 2500) == [100, 200, 500, 1000, 2000]
    assert ticks(30, 200_000) == [100, 1000, 10000, 100000]
