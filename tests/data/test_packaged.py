"""Packaged files: where they are, and what is said of damaged ones."""

import hashlib
from pathlib import Path

import pytest

from adiabat.core.errors import DataError, ModelError
from adiabat.core.provenance import packaged_folder, require_published


def test_rooms_have_their_files_beside_them() -> None:
    assert (packaged_folder("datasets") / "manifest.json").is_file()
    assert (packaged_folder("adiabatic") / "README.md").is_file()


def test_a_file_as_it_was_published_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"abc")
    # The digest of "abc" in FIPS 180-4.
    assert require_published(path, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == path


def test_another_or_none_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    with pytest.raises(DataError) as fault:
        require_published(path, "00")
    assert str(fault.value) == f"{path} must exist, got no such file; install adiabat again"
    path.write_bytes(b"abd")
    with pytest.raises(ModelError) as other:
        require_published(path, "00", remedy="fetch it again", error=ModelError)
    assert (
        str(other.value)
        == f"{path} must have the sha256 00, got {hashlib.sha256(b'abd').hexdigest()}; fetch it again"
    )
