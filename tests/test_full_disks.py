"""Damaged checkpoints, and disks that fill up while a verb writes."""

import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import Run, embed, evaluate, tune, write_world
from tests.commands import run as run
from tests.pages import no_page as no_page


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    return here


def test_a_truncated_checkpoint_is_passed_over_with_a_word_and_the_run_goes_on(
    run: Run, tmp_path: Path
) -> None:
    out = str(tmp_path / "job")
    assert run(*tune("pairs.jsonl", "--set", "run.keep_checkpoints=2", out=out)).code == 0
    newest = max((tmp_path / "job" / "checkpoints").iterdir())
    weights = newest / "state.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    shutil.rmtree(tmp_path / "job" / "model")
    said = run(*tune("pairs.jsonl", "--resume", out=out))
    assert said.code == 0
    assert f"checkpoint {newest.name} is damaged" in said.err
    assert "falling back to the one before" in said.err
    assert (tmp_path / "job" / "model" / "modules.json").is_file()


def test_checkpoints_that_are_all_truncated_end_the_run_in_one_line(run: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "job")
    assert run(*tune(out=out)).code == 0
    for weights in (tmp_path / "job" / "checkpoints").glob("*/state.safetensors"):
        weights.write_bytes(b"")
    said = run(*tune("pairs.jsonl", "--resume", out=out))
    assert said.code == 2
    assert "holds no whole checkpoint" in said.err.splitlines()[-1]


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file can grow beyond `limit` bytes: a write past it fails, as on a full disk (Python ignores the
    signal that comes with it).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("command", "limit", "left"),
    [
        (embed(out="{out}"), 600, ["new.building"]),
        (tune(out="{out}"), 60_000, ["new"]),
        (evaluate(out="{out}"), 3_000, []),
    ],
    ids=["embed", "tune", "evaluate"],
)
def test_a_full_disk_is_one_line(
    command: tuple[str, ...], limit: int, left: list[str], run: Run, tmp_path: Path
) -> None:
    with small_files(limit):
        said = run(*(word.format(out=tmp_path / "new") if word == "{out}" else word for word in command))
    assert said.code == 2, said.err
    assert said.out == ""
    assert re.search(r"^adiabat: .*(space|full|large).*$", said.err.splitlines()[-1])
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert not list(tmp_path.rglob("model/*"))
    assert not (tmp_path / "new" / "result.json").exists()
