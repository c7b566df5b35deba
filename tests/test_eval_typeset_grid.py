"""One grid in Markdown, LaTeX and CSV: small tables as text, and cells that stay data whatever they hold."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.typeset.grid import Grid, comma_separated, latex, markdown

SMALL = Grid(
    headings=("view", "sh %", "cost"),
    groups=((("cmc", "79.00", 157.6),), (("fact_bm25", None, -3),)),
    words=1,
    notes=("A note of 5 %.",),
)


def one(entry: str) -> Grid:
    return Grid(headings=("name",), groups=(((entry,),),), words=1)


def test_markdown_is_aligned_and_numbers_stand_to_the_right() -> None:
    assert markdown(SMALL) == (
        "| view      |  sh % |  cost |\n"
        "| --------- | ----: | ----: |\n"
        "| cmc       | 79.00 | 157.6 |\n"
        "| fact_bm25 |       |    -3 |\n"
        "\n"
        "A note of 5 %.\n"
    )


def test_latex_has_booktabs_rules_between_groups() -> None:
    assert latex(SMALL) == (
        "% needs \\usepackage{booktabs}\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "view & sh \\% & cost \\\\\n"
        "\\midrule\n"
        "cmc & 79.00 & 157.6 \\\\\n"
        "\\midrule\n"
        "fact\\_bm25 &  & -3 \\\\\n"
        "\\bottomrule\n"
        "\\multicolumn{3}{p{0.95\\linewidth}}{\\footnotesize A note of 5 \\%.} \\\\\n"
        "\\end{tabular}\n"
    )


def test_csv_lines_end_as_rfc_4180_says_and_a_negative_number_stays_a_number() -> None:
    assert comma_separated(SMALL) == "view,sh %,cost\r\ncmc,79.00,157.6\r\nfact_bm25,,-3\r\n"


@pytest.mark.parametrize(
    ("name", "in_markdown", "in_latex", "in_csv"),
    [
        ("a|b", r"a\|b", r"a\textbar{}b", "a|b"),
        ("R&D_50%#1", r"R\&D_50%\#1", r"R\&D\_50\%\#1", "R&D_50%#1"),
        ("_x_", r"\_x\_", r"\_x\_", "_x_"),
        ("<b>", r"\<b\>", r"\textless{}b\textgreater{}", "<b>"),
        ("[a](b)", r"\[a\](b)", "{[}a](b)", "[a](b)"),
        ("*`$", r"\*\`\$", r"{*}`\$", "*`$"),
        (r"\input{x}", r"\\input{x}", r"\textbackslash{}input\{x\}", r"\input{x}"),
        ("~^", r"\~^", r"\textasciitilde{}\textasciicircum{}", "~^"),
        ('say "a, b"', 'say "a, b"', 'say "a, b"', '"say ""a, b"""'),
        ("=1+1", "=1+1", "=1+1", "'=1+1"),
        ("+x", "+x", "+x", "'+x"),
        ("-x", "-x", "-x", "'-x"),
        ("@SUM(A1)", "@SUM(A1)", "@SUM(A1)", "'@SUM(A1)"),
        ("a\nb", r"a\\nb", r"a\textbackslash{}nb", r"a\nb"),
        ("\x1b[2J", r"\\x1b\[2J", r"\textbackslash{}x1b{[}2J", r"\x1b[2J"),
    ],
)
def test_a_name_stays_a_name_in_every_form(name: str, in_markdown: str, in_latex: str, in_csv: str) -> None:
    assert markdown(one(name)).splitlines()[2].removeprefix("| ").removesuffix(" |").rstrip() == in_markdown
    assert latex(one(name)).splitlines()[5].removesuffix(" \\\\") == in_latex
    assert comma_separated(one(name)).split("\r\n")[1] == in_csv


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2))
def test_any_text_makes_one_row_of_two_cells(cells: list[str]) -> None:
    grid = Grid(("a", "b"), ((tuple(cells),),), 2)
    assert markdown(grid).count("\n") == 3
    (head, row) = csv.reader(io.StringIO(comma_separated(grid), newline=""))
    assert len(head) == len(row) == 2
    assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for cell in row)
    assert latex(grid).count("\n") == 8
