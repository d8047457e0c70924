"""What the help of the measuring verbs says of files and suites."""

from importlib import resources

import pytest

from tests.commands import run_in_process


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Help of a verb in one line, rid of its frame."""
    monkeypatch.setenv("COLUMNS", "200")

    def told(verb: str) -> str:
        done = run_in_process(capsys, monkeypatch, [verb, "--help"])
        assert done.code == 0
        return " ".join(word for word in done.out.split() if word != "│")

    return told


def test_the_help_names_every_suite_that_comes_with_adiabat(help_of) -> None:
    said = help_of("evaluate")
    suites = [place.name.removesuffix(".toml") for place in (resources.files("adiabat.config") / "suites").iterdir()]
    assert suites == ["mteb-eight"]
    assert "mteb-eight (extra mteb)" in said


@pytest.mark.parametrize(
    ("verb", "files"),
    [
        ("space", "Directory for result.json, report.html, table.csv and table.md."),
        ("compare", "Directory for result.json, page and tables; left out, the table is printed alone."),
    ],
)
def test_the_help_says_what_is_written(help_of, verb: str, files: str) -> None:
    assert files in help_of(verb)
