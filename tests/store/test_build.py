"""Building a store: what is written, what is refused, where it may be put, and that an interrupted build ends
as an unbroken one.
"""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.core.errors import DataError, InUseError, StoreError
from adiabat.core.files import sole_writer, write_json
from adiabat.data.records import Document, Side
from adiabat.store.build import BuildResult, build_store
from adiabat.store.corpus_files import write_corpus
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, fake_store, files_of_store
from tests.forks import exit_code
from tests.imported import import_vectors
from tests.refused import refused
from tests.store.crashes import DISK_IS_FULL, CutError, files_of_at_most, on_full_disk, raising
from tests.store.worlds import names, numbered, vectors_of

DOCUMENTS = numbered(25)
FILES = ["id_index.npy", "ids.arrow", "manifest.json", "text_hashes.bin", "texts.arrow", "vectors.npy"]
BARE = [name for name in FILES if name != "texts.arrow"]


def build(
    out: Path | str,
    encoder: FakeEncoder | None = None,
    *,
    documents: Sequence[Document] = DOCUMENTS,
    **options: Any,
) -> BuildResult:
    return fake_store(out, documents, encoder, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a build without an interruption."""
    return files_of_store(build(tmp_path_factory.mktemp("whole") / "s").store.path)


def test_a_store_holds_ids_texts_and_vectors_in_corpus_order(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    built = build(tmp_path / "s", encoder)
    store = built.store
    assert (built.encoded, built.resumed, built.note) == (25, 0, "")
    assert encoder.calls == [4] * 6 + [1]
    assert store.doc_ids(range(25)) == [document.doc_id for document in DOCUMENTS]
    assert store.texts(range(25)) == [document.text for document in DOCUMENTS]
    assert np.array_equal(store.vectors, vectors_of(DOCUMENTS).astype(np.float16))
    store.verify()
    assert (names(tmp_path), names(store.path)) == (["s"], FILES)


def test_progress_counts_documents_from_nothing_to_all(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    build(tmp_path / "s", chunk_size=10, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 25), (10, 25), (20, 25), (25, 25)]


@pytest.mark.parametrize("stop_at", [0, 1, 5, 6])
def test_an_interrupted_build_resumes_to_the_same_bytes_in_its_first_chunk_size(
    tmp_path: Path, stop_at: int, whole: dict[str, bytes]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=stop_at))
    with refused(StoreError, "was interrupted", "run its command again"):
        Store.open(tmp_path / "s")
    resumed = build(tmp_path / "s", encoder := FakeEncoder(), chunk_size=100)
    assert encoder.calls == [4] * (6 - stop_at) + [1]
    assert (resumed.resumed, resumed.encoded) == (4 * stop_at, 25 - 4 * stop_at)
    assert resumed.note == (f"resumed after {4 * stop_at} documents" if stop_at else "")
    assert files_of_store(resumed.store.path) == whole
    resumed.store.verify()


def test_a_killed_build_resumes_to_the_same_bytes(tmp_path: Path, whole: dict[str, bytes]) -> None:
    chunk = int(np.random.default_rng().integers(7))

    class Killed(FakeEncoder):
        def encode(self, texts: Sequence[str], *, side: Side) -> np.ndarray:
            if len(self.calls) == chunk:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().encode(texts, side=side)

    assert exit_code(lambda: build(tmp_path / "s", Killed())) == -signal.SIGKILL
    resumed = build(tmp_path / "s")
    assert resumed.resumed == 4 * chunk
    assert files_of_store(resumed.store.path) == whole


def at_last_rename(does: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens in place of the rename that gives a store its name."""
    rename = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, target: does() if self.suffix == ".building" else rename(self, target)
    )


def test_a_build_cut_before_its_last_rename_is_finished_without_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        at_last_rename(raising, patch)
        with pytest.raises(CutError):
            build(tmp_path / "s")
    assert (tmp_path / "s.building" / "manifest.json").exists()
    resumed = build(tmp_path / "s")
    assert (resumed.encoded, resumed.resumed) == (0, 25)
    resumed.store.verify()


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (
            {"encoder": FakeEncoder(prompt="passage: ")},
            'other settings: prompt "" in the store, "passage: " in the encoder; ',
        ),
        ({"dtype": "float32"}, "other settings: dtype float16 in the store, float32 requested"),
        ({"documents": DOCUMENTS[:-1]}, "another corpus than corpus"),
        ({"documents": [*DOCUMENTS[:-1], Document("d24", "changed")]}, "another corpus than corpus"),
    ],
)
def test_resuming_with_something_else_says_what_differs(
    tmp_path: Path, change: dict[str, Any], differs: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=2))
    with refused(StoreError, "interrupted build", differs):
        build(tmp_path / "s", **change)
    assert build(tmp_path / "s").resumed == 8


def test_a_finished_store_of_the_same_kind_is_returned_as_it_is(tmp_path: Path) -> None:
    first = build(tmp_path / "s")
    encoder = FakeEncoder()
    again = build(tmp_path / "s", encoder)
    assert encoder.calls == []
    assert again.encoded == 0
    assert "was finished before" in again.note
    assert again.store.manifest == first.store.manifest


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"encoder": FakeEncoder(width=9)}, "other settings: width 8 in the store, 9 in the encoder"),
        ({"dtype": "float32"}, "other settings: dtype float16 in the store, float32 requested"),
        ({"keep_texts": False}, "other settings: texts kept: True in the store, False requested"),
        ({"documents": DOCUMENTS[::-1]}, "a store of another corpus than corpus; "),
    ],
)
def test_a_finished_store_of_another_kind_is_refused(
    tmp_path: Path, change: dict[str, Any], differs: str
) -> None:
    before = files_of_store(build(tmp_path / "s").store.path)
    with refused(StoreError, differs):
        build(tmp_path / "s", **change)
    assert files_of_store(tmp_path / "s") == before


@pytest.mark.parametrize(
    ("folder", "kind"), [("s", "empty or a store"), ("s.building", "empty or an interrupted build")]
)
def test_a_directory_with_other_files_is_left_alone(tmp_path: Path, folder: str, kind: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "thesis.txt").write_text("x")
    with refused(StoreError, f"{folder} must be {kind}, it holds thesis.txt"):
        build(tmp_path / "s")
    assert (names(tmp_path), names(tmp_path / folder)) == ([folder], ["thesis.txt"])


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("x")
    with refused(StoreError, "it is a file"):
        build(tmp_path / "s")


@pytest.mark.parametrize(
    ("documents", "faults"),
    [
        ([], "at least one document, got none"),
        (
            [*DOCUMENTS, Document("d1", "x"), Document("d3", "y"), Document("d3", "z")],
            'got 2 ids: "d1" 2 times; "d3" 3 times; ',
        ),
        ([*DOCUMENTS, Document("bad", "cut \ud83d")], "half a surrogate pair: document 'bad'"),
    ],
)
def test_a_faulty_corpus_is_refused_and_leaves_nothing(
    tmp_path: Path, documents: list[Document], faults: str
) -> None:
    with refused(StoreError, "corpus", faults):
        build(tmp_path / "s", documents=documents)
    assert names(tmp_path) == []


def test_a_fault_of_the_reader_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Document]:
        yield DOCUMENTS[0]
        raise DataError("corpus.jsonl:2: not JSON")

    with refused(DataError, "corpus.jsonl:2"):
        build_store(FakeEncoder(), broken, tmp_path / "s", source="x", encoder_name="x")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.nan, "holds NaN"),
        (np.inf, "holds a number too large"),
        (0.0, "is zero"),
        (1e6, "holds a number too large for float16"),
    ],
)
def test_unusable_vectors_are_named(tmp_path: Path, value: float, kind: str) -> None:
    with pytest.raises(StoreError, match=rf'"d6" {kind}.*; "d7" {kind}'):
        build(tmp_path / "s", FakeEncoder(faults={"text 6": value, "text 7": value}))


def test_float32_keeps_what_float16_cannot(tmp_path: Path) -> None:
    store = build(tmp_path / "s", FakeEncoder(faults={"text 6": 1e6}), dtype="float32").store
    assert store.gather([6]).tolist() == [[1e6] * 8]
    with pytest.raises(StoreError, match='"d6" has length'):
        build(tmp_path / "t", FakeEncoder(faults={"text 6": 1e20}), dtype="float32")


@pytest.mark.parametrize("chunk", [0, 1, 3, 6])
def test_a_build_on_a_full_disk_is_resumed(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    pwrite, writes = os.pwrite, iter(range(100))

    def full(handle: int, part: memoryview, offset: int) -> int:
        # Per chunk: vectors, then the header. The disk fills while the vectors of this chunk are half
        # written.
        if next(writes) == 2 * chunk:
            pwrite(handle, part[: len(part) // 2], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(handle, part, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with refused(StoreError, DISK_IS_FULL):
        build(tmp_path / "s")
    monkeypatch.undo()
    resumed = build(tmp_path / "s")
    assert resumed.resumed == 4 * chunk
    assert files_of_store(resumed.store.path) == whole


@pytest.mark.parametrize("at", ["the index of ids", "the last rename"])
def test_a_store_whose_disk_fills_beside_the_vectors_is_resumed(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with monkeypatch.context() as patch:
        if at == "the last rename":
            at_last_rename(on_full_disk, patch)
        else:
            patch.setattr("adiabat.store.corpus_files.IdIndex.write", on_full_disk)
        with refused(StoreError, DISK_IS_FULL):
            build(tmp_path / "s")
    assert files_of_store(build(tmp_path / "s").store.path) == whole


def test_two_builds_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=1))
    with sole_writer(tmp_path / "s.building"), pytest.raises(InUseError, match="one writer at a time"):
        build(tmp_path / "s")
    assert build(tmp_path / "s").resumed == 4


def test_an_encoder_that_gives_another_shape_is_refused(tmp_path: Path) -> None:
    class Short(FakeEncoder):
        def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
            return super().encode(texts, side=side)[:-1]

    with refused(StoreError, "encoder must give 4 vectors of width 8, got shape (3, 8)"):
        build(tmp_path / "s", Short())


def test_ids_and_texts_that_join_to_the_same_string_have_other_digests(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = write_corpus([Document("ab", "c")], tmp_path / "a", source="x")
    other = write_corpus([Document("a", "bc")], tmp_path / "b", source="x")
    assert one.sha256 != other.sha256


@pytest.mark.parametrize(
    ("state", "lacking"),
    [({}, "fingerprint, dtype, chunk_size, corpus"), ({"import": "v.npy"}, "fingerprint")],
)
def test_a_state_of_something_else_is_refused(tmp_path: Path, state: dict[str, str], lacking: str) -> None:
    (tmp_path / "s.building").mkdir()
    write_json(state, tmp_path / "s.building" / "state.json")
    with refused(StoreError, "s.building must be ", f"an interrupted build, its state.json lacks {lacking}"):
        build(tmp_path / "s")


@pytest.mark.parametrize(("size", "resumed"), [(600, 0), (2500, 8)], ids=["the corpus", "the vectors"])
def test_a_limit_on_the_size_of_files_is_told_with_the_store_and_the_build_goes_on_later(
    tmp_path: Path, size: int, resumed: int
) -> None:
    wide, ten = FakeEncoder(width=128), DOCUMENTS[:10]
    with files_of_at_most(size), refused(StoreError, "s.building: ", "file size", "ulimit -f"):
        build(tmp_path / "s", wide, documents=ten)
    assert build(tmp_path / "s", wide, documents=ten).resumed == resumed


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_leads_to_where_the_store_is_put(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "disk").mkdir()
    if exists:
        (tmp_path / "disk" / "big").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "disk" / "big")
    store = build(tmp_path / "s").store
    assert (store.path, store.count) == (tmp_path / "s", 25)
    assert (tmp_path / "s").is_symlink()
    assert names(tmp_path / "disk") == ["big"]
    assert names(tmp_path / "disk" / "big") == FILES


@pytest.mark.parametrize("kind", ["the current directory", "a mount point"])
def test_a_folder_that_cannot_be_replaced_is_refused_before_anything_is_encoded(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, encoder = tmp_path / "disk", FakeEncoder()
    folder.mkdir()
    if kind == "a mount point":
        monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == folder)
    else:
        monkeypatch.chdir(folder)
    for out in (folder, *(["."] if kind == "the current directory" else [])):
        with refused(StoreError, kind, "choose one within it", "out=", "store"):
            build(out, encoder)
    assert (encoder.calls, names(tmp_path)) == ([], ["disk"])
    assert build(folder / "store").encoded == 25


def occupy(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "notes.txt").write_text("x")


@pytest.mark.parametrize("keep_texts", [True, False])
def test_work_is_kept_when_something_appears_in_the_place_of_the_store(
    tmp_path: Path, keep_texts: bool
) -> None:
    with refused(StoreError, "s must be missing or empty ", "the work is kept in ", "s.building"):
        build(tmp_path / "s", keep_texts=keep_texts, on_progress=lambda done, total: occupy(tmp_path / "s"))
    assert names(tmp_path / "s") == ["notes.txt"]
    (tmp_path / "s" / "notes.txt").unlink()
    encoder = FakeEncoder()
    again = build(tmp_path / "s", encoder, keep_texts=keep_texts)
    assert (again.encoded, again.resumed, encoder.calls) == (0, 25, [])
    assert names(tmp_path / "s") == (FILES if keep_texts else BARE)


def test_an_import_whose_place_was_taken_says_so_and_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "v.npy", np.eye(8, dtype=np.float32))
    monkeypatch.setattr(
        "adiabat.store.imports.now", lambda: [occupy(tmp_path / "s"), "2020-01-01T00:00:00+00:00"][1]
    )
    with refused(StoreError, "the work is kept in ", "s.building"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=list("abcdefgh"))
    assert names(tmp_path / "s.building") == [name for name in BARE if name != "text_hashes.bin"]
    monkeypatch.undo()
    (tmp_path / "s" / "notes.txt").unlink()
    assert import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=list("abcdefgh")).count == 8
    assert names(tmp_path) == ["s", "v.npy"]


def test_texts_that_a_crash_left_in_a_store_without_are_removed_when_it_is_met(tmp_path: Path) -> None:
    build(tmp_path / "s", keep_texts=False)
    (tmp_path / "s" / "texts.arrow").write_bytes(b"left behind")
    (tmp_path / "s" / "state.json").write_text("{}")
    assert build(tmp_path / "s", keep_texts=False).encoded == 0
    assert names(tmp_path / "s") == BARE
