"""The two sides that a benchmark of calls compares, with an engine that writes down what it is asked."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import compare_decodings, compare_widths, make_extractor, make_work, running

from offline.config.models import Pin, Reader

# Held to the schema of extraction, the engine answers for the first record alone. Else it plans two hops and lists nothing.
_PLAN = '{"hops": ["Who is A?", "Who is B?"]}'
_FIRST = '{"records": [{"id": 1, "status": "no_fact", "facts": []}]}'
_MORE = f"""
def prepare(self):
    self.log('started')
def log(self, *line):
    import json
    with open(self.options['target'], 'a') as file:
        file.write(json.dumps(line) + '\\n')
def complete(self, batch, decoding):
    self.log(len(batch), decoding.output_cap, decoding.schema is not None)
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(self.options['tokenizer'])
    text = {_FIRST!r} if '"records"' in (decoding.schema or '') else {_PLAN!r}
    ids = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
    return [Output(ids=(ids + (1,))[: decoding.output_cap], finish_reason='stop') for _ in batch]
"""


@pytest.fixture
def asked(plugin: Callable[..., Path], tiny_model: Path, tmp_path: Path) -> tuple[Reader, Callable[[], list[list[object]]]]:
    """A reader with that engine, and what the engine wrote down."""
    plugin("raise AssertionError('only asked')", _MORE)
    log = tmp_path / "log"
    options = {"target": str(log), "tokenizer": str(tiny_model / "tokenizer.json")}
    reader = Reader(name="t", engine="theirs", model=Pin(folder=str(tiny_model)), batch_size=64, options=options)
    return reader, lambda: [json.loads(line) for line in log.read_text().splitlines()]


def test_both_widths_ask_one_engine_the_same_calls_and_neither_is_answered_from_a_cache(
    asked: tuple[Reader, Callable[[], list[list[object]]]],
) -> None:
    reader, log = asked
    work = make_work(None, 4, reader, output_cap=64)
    assert len(work.chosen.questions) == 4
    with running(work.reader) as engine:
        found = compare_widths(engine, work)
    (start, *batches) = log()
    assert (start, ["started"] in batches) == (["started"], False)
    # Two calls of both decodings (lists and plans), eight tokens each, are all that comes before.
    assert batches[:2] == [[2, 8, True]] * 2
    # Four lists and four plans, then the two hops of each plan, whose queries are the same for all questions.
    one, every = found["serving"]
    assert (every["waves"], every["calls"]) == (3, 10)
    assert (one["waves"], one["calls"]) == (6, 10)
    # The second half of the log: a batch for each decoding of a wave.
    assert batches[-4:] == [[4, 64, True], [4, 64, True], [1, 64, True], [1, 64, True]]
    assert sum(size for size, cap, _ in batches[2:] if cap == 64) == 20  # type: ignore[misc]
    assert (found["traces"], found["trace_differences"]) == (8, 0)
    assert one["output_tokens"] == every["output_tokens"] == 10 * (len(_PLAN) + 1)
    assert every["ratio"] == pytest.approx(one["seconds"] / every["seconds"])


def test_both_decodings_ask_about_the_same_statements_and_only_one_is_held_to_a_schema(
    asked: tuple[Reader, Callable[[], list[list[object]]]],
) -> None:
    reader, log = asked
    extractor = make_extractor(reader)
    texts = [f"The river of town {number} is stream {number}." for number in range(9)]
    with running(extractor.reader) as engine:
        found = compare_decodings(engine, extractor, texts)
    free, held = found["extraction"]
    assert free["calls"] == held["calls"] == 3
    # Nine statements, four a call: two calls of four and one of one, whose cap is its share and an eighth.
    counted = Counter((size, cap, schema) for size, cap, schema in log()[1:] if cap != 8)
    assert counted == {(2, 512, False): 1, (2, 512, True): 1, (1, 192, False): 1, (1, 192, True): 1}
    assert (free["valid"], held["valid"], found["statements"]) == (0, 3, 9)
    assert (free["output_tokens"], held["output_tokens"]) == (3 * (len(_PLAN) + 1), 3 * (len(_FIRST) + 1))
    each = [side["seconds"] / side["output_tokens"] for side in (free, held)]
    assert held["ratio_per_token"] == pytest.approx(each[1] / each[0])
