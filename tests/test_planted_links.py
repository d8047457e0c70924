"""Links that lie under the names that verbs write: what they lead to stays as it is.

`scripts/link_trials.py` tries every name.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.commands import (
    Run,
    Said,
    assert_refused,
    embed,
    evaluate,
    lines,
    search,
    setting,
    tune,
    write_world,
)
from tests.commands import here as here
from tests.commands import run as run
from tests.pages import no_page as no_page
from tests.tiny import files_of

MORE = [{"_id": f"m{number}", "text": f"another document {number}"} for number in range(3)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a store and data."""
    folder = tmp_path_factory.mktemp("made")
    write_world(folder)
    lines(folder / "more.jsonl", MORE)
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    """A copy of them, and things that nobody but the user may change."""
    for path in made.iterdir():
        if path.name == "store":
            shutil.copytree(path, tmp_path / "store")
        else:
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "home" / "album").mkdir(parents=True)
    for name in ("home/letter", "home/album/photo"):
        (tmp_path / name).write_text("precious", encoding="utf-8")
    return tmp_path


def plant(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(os.path.relpath(Path("home") / target, path.parent))


def require_precious(said: Said, *, codes: tuple[int, ...] = (0, 2)) -> None:
    assert said.code in codes, said.err
    if said.code:
        assert_refused(said)
    assert files_of(Path("home")) == {"letter": b"precious", "album/photo": b"precious"}


TARGETS = ("letter", "album", "free")
"""Of a link: a file, a folder, and a place where nothing is."""


@pytest.mark.parametrize("target", TARGETS)
def test_a_search_writes_through_no_link_in_the_store(
    run: Run, here: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The copies of a moment ago count as unchanged files.
    monkeypatch.setattr("adiabat.core.provenance.TICK_NS", 0)
    # A store that was made a moment ago has no record of its files yet.
    (here / "store" / ".checked.json").unlink(missing_ok=True)
    for name in (".checked.json", "..checked.json.part0", "..checked.json.part-0123456789ab"):
        plant(here / "store" / name, target)
    require_precious(run(*search()), codes=(0,))
    assert (here / "store" / ".checked.json").is_file() or target == "album"


APPEND = ("embed", "model", "more.jsonl", "--out", "store", "--append")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name",
    ["store/appending", "store/appending/state.json", "store/appending/merged", "store/manifest.json.part0"],
)
def test_an_append_neither_clears_nor_fills_what_a_link_leads_to(run: Run, name: str, target: str) -> None:
    plant(Path(name), target)
    require_precious(run(*APPEND))


def test_an_append_writes_into_no_vectors_of_another_place(run: Run, here: Path) -> None:
    vectors = here / "store" / "vectors.npy"
    before = vectors.read_bytes()
    vectors.rename(here / "elsewhere.npy")
    vectors.symlink_to("../elsewhere.npy")
    said = run(*APPEND)
    assert said.code == 2
    assert "vectors.npy must be a file or folder of its own" in said.err
    vectors.unlink()
    vectors.hardlink_to(here / "elsewhere.npy")
    said = run(*APPEND)
    assert said.code == 2
    assert "vectors.npy must have one name, since adiabat writes into it, got 2 hard links" in said.err
    assert (here / "elsewhere.npy").read_bytes() == before
    assert run(*search()).code == 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name", ["new.building", "new.building/state.json", "new.building/ids.arrow", "new.building/vectors.npy"]
)
def test_a_build_is_not_begun_in_another_place(run: Run, name: str, target: str) -> None:
    plant(Path(name), target)
    require_precious(run(*embed()))


SHORT = tune("pairs.jsonl", *setting("tune.max_epochs=1", "tune.batches_per_epoch=1"), out="job")


@pytest.mark.usefixtures("no_page")
def test_a_resumed_job_stays_in_its_own_folder(run: Run, here: Path) -> None:
    assert run(*SHORT).code == 0
    checkpoints = here / "job" / "checkpoints"
    kept = files_of(checkpoints)
    checkpoints.rename(here / "kept")
    checkpoints.symlink_to("../kept")
    more = (*SHORT, "--resume", *setting("tune.max_epochs=2"))
    said = run(*more)
    assert said.code == 2
    assert (
        "job/checkpoints must be a file or folder of its own, which adiabat "
        "writes, got a symbolic link to ../kept" in said.err
    )
    assert files_of(here / "kept") == kept
    checkpoints.unlink()
    (here / "kept").rename(checkpoints)
    for name, target in (
        (".model", "album"),
        (".former-model", "album"),
        (".log.jsonl.partial", "letter"),
        (".result.json.part0", "letter"),
    ):
        plant(here / "job" / name, target)
    require_precious(run(*more), codes=(0,))
    for path in (here / "job").rglob("*.safetensors"):
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    before = os.umask(0o077)
    os.umask(before)
    return before


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize(
    "name", ["new/.scores", "new/.former-scores", "new/.result.json.part0", "new/.report.html.part0"]
)
def test_an_evaluation_replaces_links_and_leaves_their_targets(run: Run, name: str) -> None:
    plant(Path(name), "album")
    require_precious(run(*evaluate(), *setting("measure.resamples=100")), codes=(0,))


@pytest.mark.usefixtures("no_page")
def test_directories_that_a_user_names_may_be_links(run: Run, here: Path) -> None:
    for name in ("disk/store", "disk/job", "disk/measured"):
        (here / name).mkdir(parents=True)
    (here / "disk" / "store").rmdir()
    (here / "store").rename(here / "disk" / "store")
    for name, place in (("store", "disk/store"), ("job", "disk/job"), ("new", "disk/measured")):
        (here / name).symlink_to(place)
    (here / "fresh").symlink_to("disk/fresh")
    assert run(*embed(out="fresh")).code == 0
    assert run(*search(store="fresh")).code == 0
    assert run(*search()).code == 0
    assert run(*APPEND).code == 0
    assert run(*SHORT).code == 0
    assert run(*SHORT, "--resume").code == 0
    assert run(*evaluate("pairs.jsonl", *setting("measure.resamples=100"), model="job")).code == 0
    assert all((here / name).is_symlink() for name in ("store", "job", "new"))
    assert (here / "disk" / "measured" / "result.json").is_file()
