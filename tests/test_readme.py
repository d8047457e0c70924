"""The README's quickstart runs and prints what it shows; its commands, links and figures are those of the
project.
"""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

import adiabat
from adiabat.cli.app import PANELS
from adiabat.data.table_rows import read_rows
from adiabat.models import model_paths
from tests.tiny import save_tiny

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = DOCUMENTS[0].read_text(encoding="utf-8")
QUERIES = 12


def blocks(text: str, language: str = "") -> list[str]:
    return [
        body
        for kind, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if kind == language
    ]


def rows_of(text: str) -> list[str]:
    """The rows of the table of an evaluation, with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines() if re.match(r" (target|retain): ", line)]


@pytest.fixture
def small_files(tmp_path: Path) -> dict[str, Path]:
    """The first queries of each file of the demo, and a corpus of their documents."""
    files, wanted = dict(adiabat.demo_files()), set[str]()
    for name in ("train", "validation", "test", "arxiv-math", "arxiv-physics"):
        rows = [dict(row.values) for _, row in zip(range(QUERIES), read_rows(files[name]), strict=False)]
        wanted |= {doc_id for row in rows for key in ("pos", "neg") for doc_id in row.get(key, ())}
        files[name] = tmp_path / files[name].name.removesuffix(".zst")
        files[name].write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    documents = [dict(row.values) for row in read_rows(files["corpus"])]
    files["corpus"] = tmp_path / "corpus.jsonl"
    files["corpus"].write_text(
        "".join(f"{json.dumps(row)}\n" for row in documents if row["doc_id"] in wanted), encoding="utf-8"
    )
    return files


@pytest.fixture
def quickstart(small_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The blocks of Python, on a small part of the data and a tiny model named `demo`."""
    save_tiny(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_paths, "demo_model_folder", lambda: tmp_path / "model")
    monkeypatch.setattr(adiabat, "demo_files", lambda: small_files, raising=False)
    few = "max_epochs=1, batches_per_epoch=2"
    short = [block.replace("max_epochs=6", few) for block in blocks(README, "python")]
    assert few in short[0]
    return short


def test_the_quickstart_prints_the_lines_that_the_readme_shows(quickstart: list[str]) -> None:
    """Figures differ on a part of the data: `test_the_figures_of_the_quickstart_are_those_of_the_demo`
    compares those.
    """
    printed, names = io.StringIO(), dict[str, object]()
    with contextlib.redirect_stdout(printed):
        exec(quickstart[0], names)
    shown = blocks(README)[1]
    for text in (printed.getvalue(), shown):
        lines = text.strip().splitlines()
        assert lines[0] == "job on arxiv-cs-test"
        assert lines[2].split() == [
            "data",
            "set",
            "measure",
            "before",
            "after",
            "change",
            "[paired",
            "95",
            "%]",
            "verdict",
        ]
        assert [row.split()[:3] for row in rows_of(text)] == [
            ["target:", "arxiv-cs-test", "nDCG@10"],
            ["retain:", "arxiv-math", "nDCG@10"],
            ["retain:", "arxiv-physics", "nDCG@10"],
        ]
        # Two epochs of a tiny model may leave its weights as they were, which a note of its own says.
        (note,) = (line for line in lines if line.startswith("note: ") and "same query tower" not in line)
        assert note.startswith("note: All data sets: ")
        assert note.endswith("on none of the queries and relevant documents.")
    exec(quickstart[1], names)
    vectors, model = names["vectors"], adiabat.load("job")
    assert (vectors.shape, str(vectors.dtype)) == ((1, model.width), "float32")  # type: ignore[attr-defined]
    assert Path("evaluation/report.html").is_file()


def test_the_figures_of_the_quickstart_are_those_of_the_demo() -> None:
    """`scripts/golden.py check --demo` runs the demo, which tunes as the quickstart does."""
    demo = json.loads((ROOT / "tests" / "golden.json").read_text(encoding="utf-8"))["demo"]
    assert rows_of(blocks(README)[1]) == demo[:3]


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_verbs_and_links_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    verbs = {verb for panel in PANELS.values() for verb in panel}
    commands = re.findall(
        r"(?:^|&& |`)adiabat ([a-z][a-z-]*)", "".join(blocks(text)), re.MULTILINE
    ) + re.findall(r"`adiabat ([a-z][a-z-]*) ", text)
    assert set(commands) <= verbs
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (document.parent / link).exists(), link
    for link, heading in re.findall(r"\]\(([^)#]*)#([^)]+)\)", text):
        target = (document.parent / link) if link else document
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}, (
            heading
        )
