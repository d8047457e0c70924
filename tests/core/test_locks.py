"""One writer at a time, also where the file system cannot tell."""

import errno
import fcntl
from pathlib import Path

import pytest

from adiabat.core.errors import InUseError
from adiabat.core.files import sole_writer


def test_a_second_writer_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with sole_writer(tmp_path), pytest.raises(InUseError, match="must have one writer at a time"), sole_writer(tmp_path):
        pass
    with sole_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_unguarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    def refuses(handle: int, operation: int) -> None:
        raise OSError(answer, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuses)
    written = False
    with sole_writer(tmp_path):
        written = True
    assert written


def test_other_faults_of_locking_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(handle: int, operation: int) -> None:
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(OSError, match="a broken disk"), sole_writer(tmp_path):
        pass


def test_an_error_of_the_body_passes_through_untouched(tmp_path: Path) -> None:
    error = BlockingIOError(errno.EAGAIN, "write could not complete")
    with pytest.raises(BlockingIOError) as raised, sole_writer(tmp_path):
        raise error
    assert raised.value is error
