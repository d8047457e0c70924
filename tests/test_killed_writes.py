"""Commands that are killed at one of their writes: the same command takes up what it left, or replaces it.

`scripts/kill_trials.py --every-write` kills every command before each of its writes; these are moments that
went wrong.
"""

from pathlib import Path

import pytest

from adiabat.api.repeated import RECORD
from adiabat.core.provenance import CHECKED
from tests.commands import DOCUMENTS, Run, evaluate, lines, own_world, setting
from tests.commands import here as here
from tests.commands import run as run
from tests.pages import no_page as no_page
from tests.tiny import files_of

world = own_world

RESAMPLES = setting("measure.resamples=100")


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("leaving", ["scores", ".scores", ".former-scores", "parts", "figures"])
def test_an_evaluation_takes_the_place_of_one_that_was_killed(run: Run, here: Path, leaving: str) -> None:
    command = evaluate("pairs.jsonl", *RESAMPLES)
    assert run(*command).code == 0
    out = here / "new"
    for path in out.iterdir():
        if path.name != "scores":
            path.unlink()
    if leaving.startswith("."):
        (out / "scores").rename(out / leaving)
    if leaving == "parts":
        (out / ".result.json.part-0123456789ab").write_text("half", encoding="utf-8")
    if leaving == "figures":
        (out / "figures").mkdir()
        (out / "figures" / ".gain.svg.part-0123456789ab").write_text("half", encoding="utf-8")
    said = run(*command)
    assert said.code == 0, said.err
    assert {path.name for path in out.iterdir()} - {"figures", "report.html", RECORD} == {
        "result.json",
        "scores",
    }


def test_a_job_is_begun_where_its_settings_were_half_written(run: Run, here: Path) -> None:
    (here / "job").mkdir()
    (here / "job" / ".config.toml.part-0123456789ab").write_text("half", encoding="utf-8")
    short = setting("tune.max_epochs=1", "tune.batches_per_epoch=1")
    said = run("tune", "model", "store", "pairs.jsonl", "--out", "job", "--recipe", "paper", *short)
    assert said.code == 0, said.err
    assert [path.name for path in (here / "job").glob(".*")] == [RECORD]


def _files(store: Path) -> dict[str, bytes]:
    return {name: content for name, content in files_of(store).items() if name not in (CHECKED, RECORD)}


@pytest.fixture
def imported(here: Path) -> str:
    lines(here / "ids.txt", [document["_id"] for document in DOCUMENTS])
    return "embed model corpus.jsonl --import store/vectors.npy --ids ids.txt --out imported"


@pytest.mark.parametrize("leaving", ["part", "manifest"])
def test_an_import_begins_again_after_a_kill(run: Run, here: Path, imported: str, leaving: str) -> None:
    building = here / "imported.building"
    building.mkdir()
    if leaving == "part":
        (building / ".manifest.json.part-0123456789ab").write_text("half", encoding="utf-8")
    else:
        for path in (path for path in (here / "store").iterdir() if path.name not in (CHECKED, RECORD)):
            (building / path.name).write_bytes(path.read_bytes())
    said = run(imported)
    assert said.code == 0, said.err
    assert _files(here / "imported").keys() == _files(here / "store").keys()
    assert not building.exists()


@pytest.mark.parametrize("left", [("vectors.npy", "merged"), ("merged",), ()])
def test_an_append_that_was_killed_after_its_commit_is_done(
    run: Run, here: Path, left: tuple[str, ...]
) -> None:
    lines(
        here / "more.jsonl",
        [{"_id": f"m{number}", "text": f"another document {number}"} for number in range(3)],
    )
    append = ("embed", "model", "more.jsonl", "--out", "store", "--append")
    assert run(*append).code == 0
    before = _files(here / "store")
    (here / "store" / "appending").mkdir()
    for name in left:
        (here / "store" / "appending" / name).write_bytes(b"left")
    said = run(*append)
    assert said.code == 0, said.err
    assert _files(here / "store") == before
    # Once it is told that it is done, the same documents are documents that the store has.
    assert run(*append).code == 2


def test_a_pair_is_made_where_another_call_was_killed(run: Run, here: Path) -> None:
    (here / ".pair.making").mkdir()
    (here / ".pair.making" / "half").write_text("half", encoding="utf-8")
    said = run("distill", "pair", "model", "model", "--out", "pair")
    assert said.code == 0, said.err
    assert "half" not in files_of(here / "pair")
    assert not list(here.glob(".pair*"))


def test_a_static_model_whose_teacher_vectors_were_not_removed_is_tidied(run: Run, here: Path) -> None:
    command = ("distill", "static", "model", "--out", "static", "--dims", "4")
    assert run(*command).code == 0
    whole = _tables(here / "static")
    (here / "static" / ".passed").mkdir()
    said = run(*command)
    assert said.code == 0, said.err
    assert _tables(here / "static") == whole
    assert run(*command).code == 2


def _tables(model: Path) -> dict[str, bytes]:
    return {name: content for name, content in files_of(model).items() if name not in ("result.json", RECORD)}
