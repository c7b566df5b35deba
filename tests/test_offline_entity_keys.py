import string
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offline.entity_keys import entity_key, entity_words


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Ada Lovelace", "ada lovelace"),
        ("  Ada\t LOVELACE \n", "ada lovelace"),
        # The full stop that an abbreviation brings and the one that ends the sentence are both separators.
        ("Apple Inc..", "apple inc"),
        ("Apple Inc.", "apple inc"),
        ("AC/DC", "ac dc"),
        ("snake_case", "snake case"),
        # A possessive goes, in either apostrophe and either case; the apostrophe inside a word does not.
        ("France's capital", "france capital"),
        ("France’s capital", "france capital"),
        ("FRANCE'S", "france"),
        ("O'Neill", "o neill"),
        ("the boss' car", "the boss car"),
        ("It'sy", "it sy"),
        # Accents stay, however they are encoded; ligatures, full-width forms and sharp s are compatibility forms.
        ("Caf\u00e9", "caf\u00e9"),
        ("Cafe\u0301", "caf\u00e9"),
        ("\ufb01n", "fin"),
        ("ＡＢＣ", "abc"),
        ("Straße", "strasse"),
        # Casefolding takes this letter apart (iota, diaeresis, acute); it is put together again.
        ("\u0390", "\u0390"),
        # Capital dotted I casefolds to i and a combining dot, which no character composes.
        ("İzmir", "i\u0307zmir"),
        # Right-to-left text stays in logical order; its vowel points are marks and stay; the mark U+200F separates.
        ("שָׁלוֹם", unicodedata.normalize("NFKC", "שָׁלוֹם")),
        ("محمد علي", "محمد علي"),
        ("محمد\u200fعلي", "محمد علي"),
        ("हिन्दी", "हिन्दी"),
        ("東京・大阪", "東京 大阪"),
        ("x²", "x2"),
        ("", ""),
        ("...", ""),
        ("_", ""),
        ("😀", ""),
    ],
)
def test_an_entity_key_is_what_the_rule_gives_by_hand(text: str, key: str) -> None:
    assert entity_key(text) == key


@pytest.mark.parametrize("end", ["हिन्दी", "x\u0330"])
def test_a_possessive_is_dropped_after_a_combining_mark_too(end: str) -> None:
    assert entity_key(f"{end}'s book") == f"{end} book"


def test_an_s_that_carries_a_mark_is_no_possessive() -> None:
    # s with a tilde below: no composed character, so the mark stays a character of its own.
    assert entity_key("a's\u0330") == "a s\u0330"


def _by_hand(text: str) -> str:
    """The rule for ASCII, character by character."""
    text = text.lower()
    kept = []
    index = 0
    while index < len(text):
        word_before = index > 0 and (text[index - 1].isalnum() or text[index - 1] == "_")
        after = text[index + 2 : index + 3]
        word_after = after.isalnum() or after == "_"
        if text[index : index + 2] == "'s" and word_before and not word_after:
            index += 2
            continue
        kept.append(text[index] if text[index] in string.ascii_lowercase + string.digits else " ")
        index += 1
    return " ".join("".join(kept).split())


@given(st.text("ab's_ .S9-", max_size=30))
def test_ascii_keys_equal_a_character_by_character_reading_of_the_rule(text: str) -> None:
    assert entity_key(text) == _by_hand(text)


@given(st.text())
@example("ΐ")
@example("a's\u0328")
@example("\u0345b")
@example("ǰ's")
def test_a_key_is_its_own_key(text: str) -> None:
    assert entity_key(entity_key(text)) == entity_key(text)


@given(st.text())
def test_a_key_holds_letters_digits_marks_and_single_spaces_alone(text: str) -> None:
    key = entity_key(text)
    assert all(c.isalnum() or unicodedata.category(c)[0] == "M" or c == " " for c in key)
    assert key == key.strip()
    assert "  " not in key


@given(st.text())
def test_composed_and_decomposed_text_have_one_key(text: str) -> None:
    assert entity_key(unicodedata.normalize("NFD", text)) == entity_key(unicodedata.normalize("NFC", text))


@given(st.text())
def test_the_words_are_those_of_the_key(text: str) -> None:
    assert " ".join(entity_words(text)) == entity_key(text)


def test_ten_megabytes_are_normalised_whole() -> None:
    assert entity_key("Ab, " * 2_500_000) == "ab " * 2_499_999 + "ab"
