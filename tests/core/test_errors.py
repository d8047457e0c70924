"""Faults are counted, and only the first ten quoted; what goes from process to process arrives whole; a lack
is no damage.
"""

import errno
import os
import pickle
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from safetensors import SafetensorError

from adiabat.core.errors import (
    DESCRIPTORS,
    DISK,
    MEMORY,
    THREADS,
    DataError,
    DivergedError,
    Faults,
    Resource,
    disk_error_of,
    first_line,
    several,
    shortage_of,
)
from adiabat.core.files import reading


def test_faults_are_told_as_if_all_had_been_kept() -> None:
    every = [f"d{number}" for number in range(23)]
    faults = Faults()
    faults.extend(every[:1])
    assert faults.told("ids") == "d0"
    faults = Faults()
    for start in range(0, 23, 4):
        faults.extend(every[start : start + 4])
    assert faults.count == 23
    assert faults.told("ids") == several(every, of="ids")
    assert faults.told("ids").startswith("23 ids: d0; d1; ")
    assert faults.told("ids").endswith("; d9; and 13 more")


def test_a_run_that_diverged_says_what_was_found_and_what_to_do_in_another_process_too() -> None:
    fault = pickle.loads(pickle.dumps(DivergedError("the loss is nan", "lower the rate")))
    assert (str(fault), fault.what) == ("the loss is nan; lower the rate", "the loss is nan")


class PanicException(BaseException):
    """Named as Rust's libraries name it."""


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def raised_for(cause: BaseException, outer: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


SHORTAGES = {
    "Python's memory": (MemoryError(), MEMORY),
    "Arrow's memory": (pa.lib.ArrowMemoryError("malloc of size 64 failed"), MEMORY),
    "memory of the system": (error_of(errno.ENOMEM), MEMORY),
    "memory for a library": (
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        MEMORY,
    ),
    "memory of torch": (
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        MEMORY,
    ),
    "memory of C++": (RuntimeError("std::bad_alloc"), MEMORY),
    "memory of Rust": (SafetensorError("I/O error: Cannot allocate memory (os error 12)"), MEMORY),
    "a thread of Python": (RuntimeError("can't start new thread"), THREADS),
    "a thread of Arrow": (
        pa.lib.ArrowException(
            "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
        ),
        THREADS,
    ),
    "a thread of Rust": (
        PanicException(
            'ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "" }) }'
        ),
        THREADS,
    ),
    "a process": (error_of(errno.EAGAIN), THREADS),
    "descriptors": (error_of(errno.EMFILE), DESCRIPTORS),
    "descriptors of the system": (error_of(errno.ENFILE), DESCRIPTORS),
    "descriptors for a library": (
        ImportError("libm.so: cannot open shared object file: Too many open files"),
        DESCRIPTORS,
    ),
    "descriptors of tokenizers": (Exception("Too many open files (os error 24)"), DESCRIPTORS),
    "the disk": (error_of(errno.ENOSPC), DISK),
    "a quota": (error_of(errno.EDQUOT), DISK),
    "the limit on file size": (error_of(errno.EFBIG), DISK),
    "the disk of tokenizers": (Exception("No space left on device (os error 28)"), DISK),
    "the disk of safetensors": (
        SafetensorError("Error while serializing: I/O error: File too large (os error 27)"),
        DISK,
    ),
    "the disk of numpy": (OSError("1000000 requested and 131056 written"), DISK),
    "the disk of SQLite": (sqlite3.OperationalError("database or disk is full"), DISK),
    "a cause below": (
        raised_for(error_of(errno.EMFILE), ValueError("Couldn't instantiate the tokenizer")),
        DESCRIPTORS,
    ),
}


@pytest.mark.parametrize(("fault", "resource"), SHORTAGES.values(), ids=SHORTAGES)
def test_a_resource_that_is_wanting_is_known_in_whatever_class_a_library_reports_it(
    fault: BaseException, resource: Resource
) -> None:
    shortage = shortage_of(fault)
    assert shortage is not None
    assert shortage.resource is resource
    with pytest.raises(type(fault)) as raised, reading(Path("store/ids.arrow"), remedy="rebuild the store"):
        raise fault
    assert raised.value is fault


@pytest.mark.parametrize(
    "fault",
    [
        ValueError("could not read 'No space left on device (os error 28)'"),
        KeyError("std::bad_alloc"),
        DataError("pairs.jsonl:1 must be one JSON object, got out of memory"),
        raised_for(MemoryError(), DataError("pairs.jsonl must be readable")),
        BlockingIOError(errno.EAGAIN, "write could not complete without blocking"),
        error_of(errno.ENOENT),
        RuntimeError("shape mismatch"),
    ],
)
def test_other_faults_are_no_shortage_and_texts_of_users_are_not_taken_for_one(fault: BaseException) -> None:
    assert shortage_of(fault) is None


@pytest.mark.parametrize(
    "fault",
    [
        pa.lib.ArrowMemoryError("malloc of size 4611686018427387904 failed"),
        MemoryError("Unable to allocate 7.11 PiB for an array"),
    ],
)
def test_a_file_whose_header_asks_for_more_than_any_machine_has_is_damaged(fault: Exception) -> None:
    with (
        pytest.raises(DataError, match="vectors.npy must be undamaged"),
        reading(Path("vectors.npy"), remedy="write it again"),
    ):
        raise fault


def test_a_panic_of_a_rust_library_is_damage_and_a_request_to_stop_is_not() -> None:
    damage = r"tokenizer.json must be undamaged, got PanicException: index out of bounds; get it again"
    with pytest.raises(DataError, match=damage), reading(Path("tokenizer.json"), remedy="get it again"):
        raise PanicException("index out of bounds")
    with pytest.raises(KeyboardInterrupt), reading(Path("tokenizer.json"), remedy="get it again"):
        raise KeyboardInterrupt


def test_the_error_of_the_disk_is_found_below_a_statement_and_in_the_words_of_a_library() -> None:
    found = {
        errno.EACCES: Exception("Permission denied (os error 13)"),
        errno.EROFS: raised_for(error_of(errno.EROFS), DataError("page must be writable")),
        errno.ENOSPC: SafetensorError("I/O error: No space left on device"),
        errno.EFBIG: error_of(errno.EFBIG),
    }
    for number, fault in found.items():
        error = disk_error_of(fault)
        assert error is not None
        assert error.errno == number
    for other in (
        error_of(errno.EMFILE),
        MemoryError(),
        RuntimeError("shape mismatch"),
        DataError("page must be new"),
    ):
        assert disk_error_of(other) is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("one\ntwo", "one"),
        ("Error(s) in loading:\n\tsize mismatch\nmore", "Error(s) in loading: size mismatch"),
        ("\n  ", "ValueError"),
        ("alone:", "alone:"),
    ],
)
def test_the_first_line_of_a_message_has_what_it_announces(message: str, told: str) -> None:
    assert first_line(ValueError(message)) == told
