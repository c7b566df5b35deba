"""The report in a real Chromium: the browser of questions by keyboard, hostile text, a phone's width, dark mode, no request."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import HOSTILE, hostile_run
from installed import chromium
from tiny import coldread

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=chromium(), args=options)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(scored_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("report") / "page.html"
    coldread("report", str(scored_run), "--out", str(page))
    return page


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file; the test fails if a page reports an error, or asks for anything but that file."""
    contexts, troubles = [], []

    def go(file: Path, width: int = 1400, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        address = file.as_uri()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url.split("#")[0] == address else troubles.append(request.url))
        page.goto(address)
        page.wait_for_selector(".row")
        return page

    yield go
    for context in contexts:
        context.close()
    assert not troubles


def test_questions_are_filtered_searched_and_read_by_keyboard_alone(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report)
    assert page.locator("#count").inner_text() == "5 of 5 questions"
    page.keyboard.press("/")
    page.keyboard.type("nothing of the kind")
    assert page.locator("#count").inner_text() == "0 of 5 questions"
    for key in ("ArrowDown", "ArrowDown", "Enter", "End", "/"):
        page.keyboard.press(key)
    page.keyboard.press("Control+A")
    page.keyboard.type("river ada")
    assert page.locator("#count").inner_text() == "1 of 5 questions"
    page.keyboard.press("ArrowDown")
    assert page.locator("#list").evaluate("list => document.activeElement === list")
    assert page.locator("#list").get_attribute("aria-activedescendant") == page.locator(".row").get_attribute("id")
    page.keyboard.press("Enter")
    page.wait_for_selector("#evidence .records")
    assert page.locator("#detail").evaluate("detail => document.activeElement === detail")
    assert page.locator("#detail h3").inner_text() == "On which river is the home of Ada?"
    assert page.locator(".golds strong").inner_text() == "Seine | La Seine"
    assert [" ".join(text.split()) for text in page.locator(".chain li").all_inner_texts()] == [
        "Ada — lives in → Paris [4] Rome [0]",
        "Paris — lies on the river → Seine [2]",
    ]
    page.keyboard.press("Escape")
    assert page.locator("#list").evaluate("list => document.activeElement === list")


def test_going_through_the_list_reads_and_superseded_records_are_told_apart(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report)
    page.select_option("#view", "raw_history")
    page.locator("#list").focus()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.wait_for_selector("#evidence .records")
    assert page.locator("#evidence h4").inner_text() == "Evidence of raw_history"
    assert page.locator(".records li").count() == 5
    assert page.locator(".records .stale").all_inner_texts() == ["[0] Ada lives in Rome. superseded by [4]"]
    page.select_option("#records", "stale")
    assert page.locator(".records li").count() == 1
    # Another cell of the table of answers shows another view's evidence.
    page.locator("[data-cell='0 0']").click()
    page.wait_for_function("document.querySelector('#evidence h4').textContent === 'Evidence of cmc'")
    assert page.locator(".records .stale").count() == 0


def test_outcomes_hops_and_lengths_filter_as_the_scores_say(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report)
    for outcome, questions in (("right", 0), ("wrong", 5), ("views", 0), ("view+1", 0), ("", 5)):
        page.select_option("#outcome", outcome)  # the tiny reader knows nothing
        assert page.locator("#count").inner_text() == f"{questions} of 5 questions"
    page.select_option("#hops", "mh")
    assert page.locator("#count").inner_text() == "1 of 5 questions"
    page.select_option("#hops", "sh")
    page.select_option("#length", "3")
    assert page.locator("#count").inner_text() == "2 of 5 questions"


def test_markup_in_answers_questions_golds_and_records_stays_text(
    tmp_path: Path, tiny_model: Path, plugin: Callable[..., Path], visit: Callable[..., Any]
) -> None:
    run = hostile_run(tmp_path, tiny_model, plugin)
    coldread("report", str(run))
    page = visit(run / "report.html")
    page.locator("#list").focus()
    shown: set[str] = set()
    for key in ("Home", *["ArrowDown"] * 4):
        before = page.locator("#detail h3").inner_text() if page.locator("#detail h3").count() else ""
        page.keyboard.press(key)
        page.wait_for_function(
            "before => document.querySelector('#evidence h4') && document.querySelector('#detail h3').textContent !== before",
            arg=before,
        )
        shown |= set(page.locator(".said").all_inner_texts())
        assert page.locator("#detail img, #detail script, #detail b, #detail [onmouseover]").count() == 0
    assert shown == set(HOSTILE)
    page.keyboard.press("Home")
    page.wait_for_selector("text=<b>Paris</b>")
    assert page.locator("#detail h3").inner_text() == "Where does Ada live?</script><script>alert(1)</script>"
    coldread("replay", str(run))


@pytest.fixture(scope="module")
def served_report(served_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("served-report") / "page.html"
    coldread("report", str(served_run), "--out", str(page))
    return page


def test_a_pipelines_hops_candidates_and_raw_answers_are_shown(served_report: Path, visit: Callable[..., Any]) -> None:
    page = visit(served_report)
    page.select_option("#view", "car")
    page.locator("#search").fill("river")
    page.locator(".row").first.click()
    page.wait_for_selector("#evidence .hops")
    hops = page.locator(".hops > li")
    assert hops.count() == 2
    assert "On which river lies Paris? Seine" in hops.nth(1).inner_text()
    assert hops.nth(0).locator(".candidates li").count() == 2
    assert "Paris" in hops.nth(0).locator(".candidates .walked").inner_text()
    assert page.locator("#evidence .output").all_inner_texts()[0].startswith('{"hops": ["Where does Ada live?"')
    assert page.locator("#evidence .output").count() == 3
    # Back to a view: its packet's records.
    page.select_option("#view", "cmc")
    page.wait_for_selector("#evidence #records")
    assert page.locator("#evidence .hops").count() == 0


@pytest.mark.parametrize("view", ["direct", "sh_conflict_llm", "car"])
def test_markup_in_what_a_pipeline_did_stays_text(
    tmp_path: Path, tiny_model: Path, plugin: Callable[..., Path], visit: Callable[..., Any], view: str
) -> None:
    run = hostile_run(tmp_path, tiny_model, plugin, views=["cmc"], pipelines=[view])
    coldread("report", str(run))
    page = visit(run / "report.html")
    page.select_option("#view", view)
    page.locator(".row").first.click()
    page.wait_for_selector("#evidence .output")
    assert any(text in page.locator("#evidence").inner_text() for text in HOSTILE)
    assert page.locator("#detail img, #detail script, #detail b, #detail [onmouseover]").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_a_pipeline_fits_and_its_text_stands_out(
    served_report: Path, visit: Callable[..., Any], scheme: str
) -> None:
    page = visit(served_report, 390, scheme)
    page.select_option("#view", "car")
    page.locator(".row").first.click()
    page.wait_for_selector("#evidence .candidates")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for name in (".candidates .quiet", ".hops > li", "#evidence .output", "#evidence .note"):
        assert page.locator(name).first.evaluate(CONTRAST) >= 4.5, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_off_and_the_list_gives_way_to_the_question(
    report: Path, visit: Callable[..., Any], scheme: str
) -> None:
    page = visit(report, 390, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator(".row").first.click()
    page.wait_for_selector("#evidence h4")
    assert not page.locator("#list").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("button", name="Back to the list").click()
    assert page.locator("#list").is_visible()
    assert not page.locator("#detail").is_visible()


# Contrast of WCAG 2.2: 4.5 for text. Colours are read as the browser computes them.
CONTRAST = """element => {
  const light = (text) => {
    const parts = text.match(/[\\d.]+/g).map((part) => Number(part) / 255);
    const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let under = element;
  while (/rgba\\(.*, 0\\)/.test(getComputedStyle(under).backgroundColor)) under = under.parentElement;
  const [a, b] = [light(getComputedStyle(element).color), light(getComputedStyle(under).backgroundColor)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_under_it(report: Path, visit: Callable[..., Any], scheme: str) -> None:
    page = visit(report, scheme=scheme)
    page.select_option("#view", "raw_history")
    page.locator(".row").first.click()
    page.wait_for_selector(".records .stale")
    for name in (
        ".note",
        ".badge",
        "a",
        ".row small",
        ".verdict",
        ".chain del",
        ".records .stale",
        ".records small",
        "th",
        "button",
    ):
        assert page.locator(name).first.evaluate(CONTRAST) >= 4.5, name


def test_a_question_can_be_linked_to(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report)
    page.goto(report.as_uri() + "#q=carl%2F0")
    page.reload()
    page.wait_for_selector("#detail h3")
    assert page.locator("#detail h3").inner_text() == "Where does Carl live?"
