"""Every file of a store, damaged in every way, finished or half-built: each is refused by name, and no vector
comes of it.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.core import provenance as seals
from adiabat.core.errors import StoreError
from adiabat.data.records import Document, Side
from adiabat.store import commit as commit_module
from adiabat.store.append import add_documents
from adiabat.store.build import BuildResult
from adiabat.store.commit import finish_change
from adiabat.store.manifest import HEADER_BYTES, Manifest
from adiabat.store.vector_store import Store
from tests.commands import assert_refused, run_in_process
from tests.fake_encoder import FakeEncoder, fake_store, files_of_store
from tests.refused import refused
from tests.store.worlds import numbered

DOCUMENTS = numbered(10)
FILES = ["manifest.json", "vectors.npy", "ids.arrow", "id_index.npy", "text_hashes.bin", "texts.arrow"]


def build(out: Path, encoder: FakeEncoder | None = None) -> BuildResult:
    return fake_store(out, DOCUMENTS, encoder)


def append(out: Path, *documents: Document) -> Store:
    return add_documents(FakeEncoder(), lambda: iter(documents), out, source="more").store


def flipped(place: float) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        at = int(place * (len(content) - 1))
        return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]

    return flip


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    **{f"a byte flipped at {place}": flipped(place) for place in (0.0, 0.4, 0.7, 1.0)},
    "empty": lambda content: b"",
    "cut": lambda content: content[:-9],
    "half": lambda content: content[: len(content) // 2],
    "longer": lambda content: content + b"x",
    "zeros": lambda content: bytes(len(content)),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("store") / "s").store.path


@pytest.fixture
def folder(tmp_path: Path, finished: Path) -> Path:
    """A copy of the finished store."""
    return Path(shutil.copytree(finished, tmp_path / "s"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_damaged_file_is_refused_by_name(
    tmp_path: Path, folder: Path, name: str, damage: str, in_place: bool
) -> None:
    path = folder / name
    Store.open(folder)
    before, damaged = path.stat(), DAMAGES[damage](path.read_bytes())
    if in_place:
        path.write_bytes(damaged)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        (tmp_path / "other").write_bytes(damaged)
        (tmp_path / "other").replace(path)
    for _ in range(2):
        with refused(StoreError, f"/s/{name} must be ", "rebuild the store"):
            Store.open(folder)
        with refused(StoreError, f"/s/{name} must be ", "rebuild the store"):
            append(folder, Document("new", "new"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_store_of_the_same_shape_is_refused(
    tmp_path: Path, folder: Path, name: str
) -> None:
    other = fake_store(tmp_path / "o", numbered(10, "e", "other")).store
    shutil.copy(other.path / name, folder / name)
    with refused(StoreError, "must be undamaged"):
        Store.open(folder)


def remembered(folder: Path) -> dict[str, object]:
    """As if each file had been compared as it is: what a disk changes by itself changes no date."""
    states = {
        name: (digest.sha256, (folder / name).stat())
        for name, digest in Manifest.read(folder).digests.items()
    }
    return {
        name: [sha256, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
        for name, (sha256, status) in states.items()
    }


@pytest.fixture
def with_silent_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose vectors changed, and no date with them."""
    path = folder / "vectors.npy"
    path.write_bytes(flipped(0.7)(path.read_bytes()))
    monkeypatch.setattr(seals, "_checked", remembered)
    return folder


def test_what_no_date_betrays_is_found_when_it_is_asked_for(
    with_silent_damage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(with_silent_damage)
    monkeypatch.undo()
    with refused(StoreError, "vectors.npy must be undamaged"):
        store.verify()


@pytest.mark.parametrize("asked", [("--verify", "search"), ("search",)])
def test_verify_stands_before_a_verb_or_after_it_and_compares_what_has_not_changed(
    with_silent_damage: Path,
    asked: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(seals.VERIFY, "")
    words = (str(with_silent_damage), "what", "--model", "demo")
    assert "was built by another encoder" in run_in_process(capsys, monkeypatch, ["search", *words]).err
    behind = [] if "--verify" in asked else ["--verify"]
    said = run_in_process(capsys, monkeypatch, [*asked, *words, *behind])
    assert_refused(said, "s/vectors.npy must be undamaged", "SHA-256", "rebuild")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["state.json", *FILES[1:]])
def test_a_half_built_store_that_was_damaged_is_refused_or_ends_as_it_would_have(
    tmp_path: Path, finished: Path, name: str, damage: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=2))
    path = tmp_path / "s.building" / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    # The header of half a file is written anew, and what follows the rows that were noted is cut off.
    if name == "vectors.npy" and damage in {"a byte flipped at 0.0", "a byte flipped at 0.4", "longer"}:
        build(tmp_path / "s")
        assert files_of_store(tmp_path / "s") == files_of_store(finished)
        return
    with refused(StoreError, f"s.building/{name} must ", "; remove"):
        build(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_byte_that_flips_on_disk_while_the_store_is_built_is_not_sealed(tmp_path: Path) -> None:
    class Flipping(FakeEncoder):
        def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
            if len(self.calls) == 2:
                with (tmp_path / "s.building" / "vectors.npy").open("r+b") as file:
                    file.seek(HEADER_BYTES + 3)
                    file.write(b"x")
            return super().encode(texts, side=side)

    with refused(StoreError, "s/vectors.npy must be undamaged", "SHA-256"):
        build(tmp_path / "s", Flipping())


@pytest.mark.parametrize("damage", ["a byte flipped at 1.0", "empty", "cut", "longer"])
@pytest.mark.parametrize(
    ("name", "moved"),
    [
        *((name, moved) for name in ("state.json", "vectors.npy") for moved in (0, 2)),
        *((f"merged/{name}", 0) for name in FILES if name != "vectors.npy"),
        *((f"merged/{name}", 2) for name in ("manifest.json", "text_hashes.bin", "texts.arrow")),
    ],
)
def test_an_append_damaged_before_its_commit_is_through_is_undone_or_refused(
    folder: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: str, moved: int
) -> None:
    moves: list[Path] = []
    move = commit_module._move

    def cut(source: Path, target: Path) -> None:
        if len(moves) == moved:
            raise KeyboardInterrupt
        moves.append(source)
        move(source, target)

    new = [Document("new", "new"), Document("again", "text 3")]
    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_move", cut)
        with pytest.raises(KeyboardInterrupt):
            append(folder, *new)
    path = folder / "appending" / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with refused(StoreError, path.name if not moved else "must be undamaged"):
        finish_change(folder)
    if not moved:
        assert files_of_store(folder) == files_of_store(finished)
        assert append(folder, *new).count == 12
