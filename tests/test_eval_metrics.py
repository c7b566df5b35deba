"""The scorer: hand-worked cases, the released rules, published verdicts of others, and golds that cannot be scored."""

import gzip
import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import real_file

from eval.metrics import find_metrics
from eval.metrics.normalise import normalise_answer, parse_answer
from eval.score import substring_exact_match
from offline.errors import LabelError

METRICS = find_metrics()


def released_normalisation(text: str) -> str:
    """The benchmark's rule, step by step: lower, delete punctuation, articles to a space, collapse white space."""
    lowered = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", lowered).split())


@given(st.text())
def test_normalisation_is_the_released_one(text: str) -> None:
    assert normalise_answer(text) == released_normalisation(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("banana", "banana"),  # the letter a is not the word a
        ("The U.S.A.", "usa"),  # nothing is put in a full stop's place
        ("An  apple\ta day\n", "apple day"),
        ("théâtre", "théâtre"),
        ("rock-and-roll", "rockandroll"),
    ],
)
def test_normalisation_by_hand(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


@pytest.mark.parametrize(
    ("output", "parsed"),
    [
        ("Paris", "Paris"),
        ("Paris\nis the capital", "Paris"),
        ("I think.\nanswer: Paris \nmore", "Paris"),
        ("ANSWER:Answer: Paris", "Paris"),
        ("Answer: answer: answer: Paris", "answer: Paris"),  # one more leading mark is removed, not all
        ("Answer:\nParis", ""),
        ("  Paris  ", "Paris"),
        ("\n\nParis\n", "Paris"),
        ("", ""),
    ],
)
def test_parsing_by_hand(output: str, parsed: str) -> None:
    assert parse_answer(output) == parsed


@pytest.mark.parametrize(
    ("prediction", "golds", "subem", "strict", "words"),
    [
        ("Paris", ["Paris"], True, True, True),
        ("The answer is Paris.", ["Paris"], True, False, True),
        ("Answer: Paris", ["Paris"], True, True, True),
        ("She will go", ["Wil"], True, False, False),
        ("CNBC", ["NBC"], True, False, False),
        ("Par is", ["Paris"], False, False, False),
        ("Lyon", ["Paris", "Lyon"], True, True, True),  # any gold counts, not the first alone
        ("Paris  \n", ["Paris"], True, True, True),
        ("\nParis", ["Paris"], True, True, True),
        ("Ｐａｒｉｓ", ["Paris"], False, False, True),  # NFKC belongs to subem_words alone
        ("", ["Paris"], False, False, False),
        ("a banana", ["banana"], True, True, True),
    ],
)
def test_the_three_metrics_by_hand(prediction: str, golds: list[str], subem: bool, strict: bool, words: bool) -> None:
    found = {name: metric(prediction, golds) for name, metric in METRICS.items()}
    assert found == {"subem": subem, "strict_em": strict, "subem_words": words}


@pytest.mark.parametrize("gold", ["A", "The", "...", "", "  ", "an", "¿" if not normalise_answer("¿") else "!"])
@pytest.mark.parametrize("name", METRICS)
def test_a_gold_that_normalises_to_nothing_is_an_error_never_a_match(gold: str, name: str) -> None:
    with pytest.raises(LabelError, match="normalises to nothing"):
        METRICS[name]("anything", ["Paris", gold])


@pytest.mark.parametrize("name", METRICS)
def test_a_question_without_gold_is_an_error(name: str) -> None:
    with pytest.raises(LabelError, match="without a gold"):
        METRICS[name]("anything", [])


@pytest.mark.parametrize("name", METRICS)
def test_a_bare_string_is_not_taken_for_a_list_of_letters(name: str) -> None:
    with pytest.raises(LabelError, match="list"):
        METRICS[name]("x", "Paris")


@given(st.text(), st.text(alphabet="bcdxyz ", min_size=1).filter(lambda t: t.strip()), st.text())
def test_an_output_that_contains_the_gold_as_words_is_right(before: str, gold: str, after: str) -> None:
    assert substring_exact_match(f"{before} {gold} {after}", [gold])


@given(st.text(max_size=30), st.lists(st.text(alphabet="bcdxyz", min_size=1), min_size=1, max_size=3))
def test_strict_match_implies_substring_match(prediction: str, golds: list[str]) -> None:
    assert not METRICS["strict_em"](prediction, golds) or METRICS["subem"](prediction, golds)


@pytest.mark.real_data
def test_published_verdicts_of_an_unrelated_system_agree_4800_of_4800() -> None:
    with gzip.open(real_file("external_predictions.jsonl.gz"), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    agreeing = sum(substring_exact_match(row["prediction"], row["golds"]) == row["substring_exact_match"] for row in rows)
    assert (agreeing, len(rows)) == (4800, 4800)
