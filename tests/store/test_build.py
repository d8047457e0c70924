"""Building a store: what is written, what is refused, and that a cut-short build ends as if it had not been cut."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.core.errors import DataError, InUseError, StoreError
from adiabat.core.files import sole_writer
from adiabat.data.records import Document, Side
from adiabat.store.build import BuildResult, build_store
from adiabat.store.corpus_files import write_corpus
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, fake_store, files_of_store

DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(25)]


def build(out: Path, encoder: FakeEncoder | None = None, *, documents: Sequence[Document] = DOCUMENTS, **options: Any) -> BuildResult:
    return fake_store(out, documents, encoder, **options)


def test_a_store_holds_ids_texts_and_vectors_in_corpus_order(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    built = build(tmp_path / "s", encoder)
    store = built.store
    assert (built.encoded, built.resumed, built.note) == (25, 0, "")
    assert encoder.calls == [4] * 6 + [1]
    assert store.doc_ids(range(25)) == [document.doc_id for document in DOCUMENTS]
    assert store.texts(range(25)) == [document.text for document in DOCUMENTS]
    assert np.array_equal(
        store.vectors, FakeEncoder().encode([document.text for document in DOCUMENTS], side="document").astype(np.float16)
    )
    store.verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    assert sorted(files_of_store(store.path)) == ["id_index.npy", "ids.arrow", "text_hashes.bin", "texts.arrow", "vectors.npy"]


def test_progress_counts_documents_from_nothing_to_all(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    build(tmp_path / "s", chunk_size=10, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 25), (10, 25), (20, 25), (25, 25)]


@pytest.mark.parametrize("stop_at", [0, 1, 5, 6])
def test_an_interrupted_build_resumes_to_the_same_bytes(tmp_path: Path, stop_at: int) -> None:
    whole = build(tmp_path / "whole").store
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=stop_at))
    with pytest.raises(StoreError, match="was interrupted .*run its command again"):
        Store.open(tmp_path / "s")
    resumed = build(tmp_path / "s")
    assert (resumed.resumed, resumed.encoded) == (4 * stop_at, 25 - 4 * stop_at)
    assert resumed.note == (f"resumed after {4 * stop_at} documents" if stop_at else "")
    assert files_of_store(resumed.store.path) == files_of_store(whole.path)
    assert resumed.store.manifest.sha256 == whole.manifest.sha256


def test_a_resumed_build_keeps_its_chunk_size(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=1))
    encoder = FakeEncoder()
    build(tmp_path / "s", encoder, chunk_size=100)
    assert encoder.calls == [4] * 5 + [1]


KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any
from adiabat.data.records import Document
from adiabat.store.build import build_store
from tests.fake_encoder import FakeEncoder, fake_store, files_of_store
documents = [Document(f"d{number}", f"text {number}") for number in range(25)]
class Killed(FakeEncoder):
    def encode(self, texts, *, side):
        if len(self.calls) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(texts, side=side)
build_store(Killed(), lambda: iter(documents), sys.argv[1], chunk_size=4, source="corpus", encoder_name="fake")
"""


def test_a_killed_build_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    chunk = int(np.random.default_rng().integers(7))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "s"), str(chunk)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed = build(tmp_path / "s")
    assert resumed.resumed == 4 * chunk
    assert files_of_store(resumed.store.path) == files_of_store(build(tmp_path / "whole").store.path)


def test_a_build_cut_before_its_last_rename_is_finished_without_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Path, target: Path) -> Path:
        raise RuntimeError("cut")

    rename = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, target: fails(self, target) if self.name.endswith(".building") else rename(self, target)
    )
    with pytest.raises(RuntimeError, match="cut"):
        build(tmp_path / "s")
    monkeypatch.undo()
    assert (tmp_path / "s.building" / "manifest.json").exists()
    resumed = build(tmp_path / "s")
    assert (resumed.encoded, resumed.resumed) == (0, 25)
    resumed.store.verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"encoder": FakeEncoder(prompt="passage: ")},
            'interrupted build with other settings: prompt "" in the store, "passage: " in the encoder; remove it, or choose',
        ),
        ({"dtype": "float32"}, "interrupted build with other settings: dtype float16 in the store, float32 requested"),
        ({"documents": DOCUMENTS[:-1]}, "interrupted build of another corpus than corpus"),
        ({"documents": [*DOCUMENTS[:-1], Document("d24", "changed")]}, "interrupted build of another corpus than corpus"),
    ],
)
def test_resuming_with_something_else_says_what_differs(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=2))
    with pytest.raises(StoreError, match=message):
        build(tmp_path / "s", **change)  # type: ignore[arg-type]
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
    ("change", "message"),
    [
        ({"encoder": FakeEncoder(width=9)}, "with other settings: width 8 in the store, 9 in the encoder"),
        ({"dtype": "float32"}, "with other settings: dtype float16 in the store, float32 requested"),
        ({"documents": DOCUMENTS[::-1]}, "is a store of another corpus than corpus"),
    ],
)
def test_a_finished_store_of_another_kind_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    before = files_of_store(build(tmp_path / "s").store.path)
    with pytest.raises(StoreError, match=message):
        build(tmp_path / "s", **change)  # type: ignore[arg-type]
    assert files_of_store(tmp_path / "s") == before


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match=r"must be empty or a store, it holds thesis\.txt; choose another --out"):
        build(tmp_path / "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_a_building_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s.building").mkdir()
    (tmp_path / "s.building" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match=r"must be empty or an interrupted build, it holds thesis\.txt"):
        build(tmp_path / "s")
    assert (tmp_path / "s.building" / "thesis.txt").exists()


def test_an_empty_corpus_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="corpus must hold at least one document, got none"):
        build(tmp_path / "s", documents=[])
    assert list(tmp_path.iterdir()) == []


def test_duplicate_ids_are_named_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r'got 2 ids: "d1" 2 times; "d3" 3 times; remove or rename'):
        build(tmp_path / "s", documents=[*DOCUMENTS, Document("d1", "x"), Document("d3", "y"), Document("d3", "z")])
    assert list(tmp_path.iterdir()) == []


def test_half_a_surrogate_pair_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"must be valid Unicode, got half a surrogate pair: document 'bad'"):
        build(tmp_path / "s", documents=[*DOCUMENTS, Document("bad", "cut \ud83d")])
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_the_reader_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Document]:
        yield DOCUMENTS[0]
        raise DataError("corpus.jsonl:2: not JSON")

    with pytest.raises(DataError, match="not JSON"):
        build_store(FakeEncoder(), broken, tmp_path / "s", source="x", encoder_name="x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [(np.nan, "holds NaN"), (np.inf, "holds a number too large"), (0.0, "is zero"), (1e6, "holds a number too large for float16")],
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
def test_a_full_disk_is_one_clear_line_and_the_build_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    pwrite, writes = os.pwrite, iter(range(100))

    def full(handle: int, part: memoryview, offset: int) -> int:
        # Per chunk: vectors, then the header. The disk fills while the vectors of this chunk are half written.
        if next(writes) == 2 * chunk:
            pwrite(handle, part[: len(part) // 2], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(handle, part, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="the disk must have room for the store, it is full; free some and run the same command to resume"):
        build(tmp_path / "s")
    monkeypatch.undo()
    resumed = build(tmp_path / "s")
    assert resumed.resumed == 4 * chunk
    assert files_of_store(resumed.store.path) == files_of_store(build(tmp_path / "whole").store.path)


def test_a_disk_that_fills_while_the_corpus_is_written_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*unused: object, **also_unused: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("adiabat.store.corpus_files.IdIndex.write", full)
    with pytest.raises(StoreError, match="it is full"):
        build(tmp_path / "s")
    monkeypatch.undo()
    assert files_of_store(build(tmp_path / "s").store.path) == files_of_store(build(tmp_path / "whole").store.path)


def test_two_builds_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=1))
    with sole_writer(tmp_path / "s.building"), pytest.raises(InUseError, match="one writer at a time"):
        build(tmp_path / "s")
    assert build(tmp_path / "s").resumed == 4


def test_settings_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="chunk_size must be at least 1, got 0"):
        build(tmp_path / "s", chunk_size=0)


def test_an_encoder_that_gives_another_shape_is_refused(tmp_path: Path) -> None:
    class Short(FakeEncoder):
        def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
            return super().encode(texts, side=side)[:-1]

    with pytest.raises(StoreError, match=r"encoder must give 4 vectors of width 8, got shape \(3, 8\)"):
        build(tmp_path / "s", Short())


def test_ids_and_texts_that_join_to_the_same_string_have_other_digests(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = write_corpus([Document("ab", "c")], tmp_path / "a", source="x")
    other = write_corpus([Document("a", "bc")], tmp_path / "b", source="x")
    assert one.sha256 != other.sha256


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("x")
    with pytest.raises(StoreError, match="it is a file"):
        build(tmp_path / "s")
