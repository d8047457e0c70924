from io import StringIO

from rich.console import Console

from adiabat.profiling.profile import inspect
from adiabat.profiling.profile_record import Inspection
from adiabat.profiling.profile_view import inspection_panel
from adiabat.profiling.text_lengths import percent, share_of
from tests.profiling.files import Letters, inspected, write


def printed(found: Inspection, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(inspection_panel(found))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_everything_that_was_found_is_on_the_page(tmp_path):
    rows = [{"query": f"question {number}", "pos": ["the [bold]same[/bold] answer"], "kind": number % 2} for number in range(8)]
    page = printed(inspected(write(tmp_path / "pairs.jsonl", *rows, {"query": 3, "pos": ["x"]})))
    for words in ("8\N{NO-BREAK SPACE}rows", "12.5 %", "0 50.0 %, 1 50.0 %", "the [bold]same[/bold] answer", "note: 12.5 %", "fault: "):
        assert words in page, words
    assert page.index("fault: ") < page.index("note: ")


def test_bars_beyond_the_limit_are_marked(tmp_path):
    rows = [{"query": "q q", "pos": ["x" * size]} for size in (10, 20, 40, 100)]
    page = printed(inspect(str(write(tmp_path / "pairs.jsonl", *rows)), tokens=Letters()))
    assert "truncation by letters" in page
    lines = [line for line in page.splitlines() if "beyond 32" in line]
    assert [line.split()[0] for line in lines] == ["33–64", "65–128"]
    assert "2 of 4" in page


def test_a_page_fits_eighty_columns(tmp_path):
    rows = [{"_id": f"d{number}", "title": "T", "text": "words " * (number + 1)} for number in range(200)]
    page = printed(inspected(write(tmp_path / "corpus.jsonl", *rows)), width=80)
    assert max(map(len, page.splitlines())) <= 80
    assert "…" not in "".join(line for line in page.splitlines() if "documents, words" in line)


def test_what_is_not_all_or_nothing_is_shown_as_neither():
    assert [percent(share) for share in (0.0, 0.0004, 0.17, 0.9996, 1.0)] == ["0.0 %", "< 0.1 %", "17.0 %", "> 99.9 %", "100.0 %"]
    assert (share_of(1, 3), share_of(0, 0)) == ("33.3 %", "0.0 %")
