"""Progress on a console."""

import io

import pytest
from rich.console import Console

from eval.console import progress
from eval.console.progress import Lines


def test_lines_come_at_most_every_ten_seconds_and_always_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    with Lines(Console(file=out, width=20)).bars() as observer:
        observer.say("read", "sealed [x]")
        task = observer.task("read", "tiny", "requests")
        task.at(0, 9, "probing its engine")
        for clock[0], done in ((100.0, 1), (109.0, 2), (111.0, 3), (112.0, 9)):
            task.at(done, 9)
    assert out.getvalue().splitlines() == [
        "    read  sealed [x]",
        "    read  tiny: probing its engine, 0 of 9 requests done",
        *(f"    read  tiny: {done} of 9 requests" for done in (1, 3, 9)),
    ]


def test_a_terminal_shows_a_bar_for_each_task_and_messages_above_them() -> None:
    out = io.StringIO()
    with Lines(Console(file=out, force_terminal=True, width=100, color_system=None)).bars() as observer:
        encoding, reading = observer.task("encode", "mini [lm]", "texts"), observer.task("read", "tiny", "requests")
        encoding.at(7, 7)
        observer.say("encode", "written")
        reading.at(2, 5, "starting its engine")
    shown = out.getvalue()
    assert "  encode  written\n" in shown
    first, second = shown[shown.rindex("  encode  mini [lm]") :].splitlines()[:2]
    assert "7/7" in first
    assert second.startswith("    read  tiny: starting its engine")
    assert "2/5" in second
