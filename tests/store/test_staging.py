"""Folders of cut-short builds that cannot be gone on with: each is refused by name before anything is encoded."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adiabat.core.errors import StoreError
from adiabat.core.files import write_json
from adiabat.data.records import Document
from adiabat.store.build import BuildResult
from tests.fake_encoder import FakeEncoder, fake_store

DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(10)]


def build(out: Path, encoder: FakeEncoder | None = None) -> BuildResult:
    return fake_store(out, DOCUMENTS, encoder)


@pytest.mark.parametrize(("state", "lacking"), [({}, "fingerprint, dtype, chunk_size, corpus"), ({"import": "v.npy"}, "fingerprint")])
def test_a_state_of_something_else_is_refused(tmp_path: Path, state: dict[str, str], lacking: str) -> None:
    (tmp_path / "s.building").mkdir()
    write_json(state, tmp_path / "s.building" / "state.json")
    with pytest.raises(
        StoreError,
        match=rf"s\.building must be empty or an interrupted build, its state\.json lacks {lacking}.*; remove it, or choose another",
    ):
        build(tmp_path / "s")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """From now on this process may write no file beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [600, 2500], ids=["the corpus", "the vectors"])
def test_a_limit_on_the_size_of_files_is_told_with_the_store_and_the_build_goes_on_later(tmp_path: Path, size: int) -> None:
    told = r"s\.building: a file must be allowed to grow as large as the store needs, got: File too large; raise the limit \(ulimit -f\)"
    with files_of_at_most(size), pytest.raises(StoreError, match=told):
        build(tmp_path / "s", FakeEncoder(width=128))
    assert build(tmp_path / "s", FakeEncoder(width=128)).resumed == (0 if size == 600 else 8)
