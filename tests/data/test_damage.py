"""What is damaged, endless or strange ends in one line that names it, never in a traceback."""

import gzip
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.adiabatic.probes import read_probes
from adiabat.config.reader import read_settings
from adiabat.config.shared import EvaluateSettings
from adiabat.core.errors import AdiabatError, ConfigError, DataError
from adiabat.core.files import read_json
from adiabat.data import table_formats as hub
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.folders import Place
from adiabat.data.judgements import read_qrels, read_run
from adiabat.data.lines import LONGEST_LINE
from adiabat.data.parallel import ParallelSource, read_parallel
from adiabat.data.table_rows import read_rows
from adiabat.datasets.json_streams import tab_rows
from adiabat.distillation.vocabulary import read_words
from adiabat.store.vector_sources import open_vectors, read_ids
from tests.data.files import jsonl, write, zstd
from tests.refused import refused

ROWS = [{"query": f"q{n} " * 5, "positive": [f"p{n} é"], "n": n / 3} for n in range(60)]

ROWS = [{"query": f"q{n} " * 5, "positive": [f"p{n} é"], "n": n / 3} for n in range(60)]
CSV = ("query,positive\n" + "".join(f'"q, {n}","p ""{n}"""\n' for n in range(60))).encode()


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=20)
    return bytes(sink.getvalue())


FORMS: dict[str, bytes] = {
    "t.jsonl": jsonl(ROWS),
    "t.csv": CSV,
    "t.tsv": CSV.replace(b",", b"\t"),
    "t.jsonl.gz": gzip.compress(jsonl(ROWS), mtime=0),
    "t.jsonl.zst": zstd(jsonl(ROWS)),
    "t.parquet": parquet(),
}


def damaged(content: bytes, drawn: random.Random) -> bytes:
    how, place = drawn.choice(["flip", "cut", "zero", "repeat", "drop"]), drawn.randrange(len(content))
    if how == "flip":
        return content[:place] + bytes([content[place] ^ (1 << drawn.randrange(8))]) + content[place + 1 :]
    if how == "cut":
        return content[:place]
    if how == "zero":
        return content[:place] + bytes(min(64, len(content) - place)) + content[place + 64 :]
    again = content[place : place + 40] * 2 if how == "repeat" else b""
    return content[:place] + again + content[place + 40 :]


def fault_of(source: Path) -> str | None:
    """What is said of a source, if it is refused; any other error goes on."""
    try:
        read_examples(source)
    except DataError as fault:
        return str(fault)
    return None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FORMS)
def test_a_damaged_file_is_read_or_refused_by_name(tmp_path: Path, name: str) -> None:
    content, count = FORMS[name], 0
    for seed in range(150):
        path = tmp_path / name
        path.write_bytes(damaged(content, random.Random(seed)))
        fault = fault_of(path)
        count += fault is not None
        assert fault is None or (str(path) in fault and len(fault) < 4_000)
    assert count > 50


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_damaged_data_set_of_the_library_is_read_or_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    datasets.Dataset.from_list(ROWS).save_to_disk(folder)
    count = 0
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        for seed in range(40):
            file.write_bytes(damaged(content, random.Random(seed)))
            fault = fault_of(folder)
            count += fault is not None
            assert fault is None or str(folder) in fault
        file.write_bytes(content)
    assert count > 20


def test_whatever_the_hub_fails_with_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def scripts(*_: object, **__: object) -> None:
        raise RuntimeError("Dataset scripts are no longer supported, but found set.py")

    monkeypatch.setattr(datasets, "load_dataset", scripts)
    with refused(DataError, "hf:some/set must be a readable data set, got: Dataset scripts are no longer"):
        list(hub.dataset_rows(Place("hub", "hf:some/set")))


def test_a_fault_that_no_reader_foresaw_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.jsonl", jsonl(ROWS))

    def broken(_: str) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(json, "loads", broken)
    with refused(DataError, f"{path} must be undamaged, got KeyError: 'surprise'; "):
        list(read_rows(path))


@pytest.mark.parametrize(
    "row",
    [
        '{"query": "a", "positive": Infinity}',
        '{"query": "a", "positive": [NaN]}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_values_that_are_no_texts_are_told_by_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"query": "a", "positive": "b"}\n' + row + "\n")
    with refused(DataError, f"{path}:2"):
        read_examples(path)


def test_devices_pipes_and_sockets_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s.jsonl"))
        for name in ("pipe.jsonl", "zero.jsonl", "s.jsonl"):
            with refused(DataError, f"{tmp_path / name} must be a file or a folder, got a device, pipe or "):
                list(read_corpus(tmp_path / name))


def test_a_name_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    path.write_bytes(jsonl(ROWS))
    with refused(DataError, "xff.jsonl' must have a name in UTF-8"):
        read_examples(path)


@pytest.mark.parametrize(("name", "number"), [("t.jsonl", 2), ("t.jsonl.gz", 2), ("t.csv", 3)])
def test_a_line_that_is_too_long_is_told(
    tmp_path: Path, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LONGEST_LINE, "100")
    line, header = b'{"query": "a", "positive": "b"}', b"a,b\n" if name == "t.csv" else b""
    path = write(tmp_path / name, header, line.ljust(99) + b"\n" + line + b" " * 70 + b"\n")
    with refused(DataError, f"{path}:{number} must have at most 100 bytes", "ADIABAT_LONGEST_LINE"):
        list(read_rows(path))
    monkeypatch.setenv(LONGEST_LINE, "-1")
    with refused(ConfigError, "ADIABAT_LONGEST_LINE must be a whole number of bytes > 0"):
        list(read_rows(path))
    monkeypatch.setenv(LONGEST_LINE, "102")
    if name != "t.csv":
        assert len(list(read_rows(path))) == 2


def test_makers_keep_to_the_longest_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "collection.tsv", b"0\t" + b"x" * 200)
    monkeypatch.setenv(LONGEST_LINE, "100")
    with refused(DataError, "collection.tsv:1 must have at most 100 bytes"):
        list(tab_rows(path, 2, []))  # type: ignore[arg-type]


def test_a_line_without_end_takes_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(bytes(10_000_000))
    code = f"""
import resource
from adiabat.data.table_rows import read_rows
from adiabat.core.errors import DataError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(read_rows({str(path)!r}))
except DataError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    environment = {**os.environ, LONGEST_LINE: "32000000"}
    assert int(subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)) < 160


TEXT_READERS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "t.jsonl": (b'{"query": "a", "pos": "b"}\n', lambda path: list(read_rows(path))),
    "t.csv": (b"id,text\n", lambda path: list(read_corpus(path))),
    "t.csv.gz": (b"id,text\n", lambda path: list(read_corpus(path))),
    "t.tsv": (b"id\ttext\n", lambda path: list(read_corpus(path))),
    "run.txt": (b"q Q0 d 1 0.5 name\n", read_run),
    "qrels.txt": (b"q 0 d 1\n", read_qrels),
    "probes.txt": (b"one\n", read_probes),
    "words.txt": (b"one\n", read_words),
    "ids.txt": (b"one\n", lambda path: list(read_ids(path))),
    "sentences.de": (b"eins\n", lambda path: list(read_parallel(ParallelSource(str(path), str(path))))),
    "settings.toml": (b"[run]\n", lambda path: read_settings(EvaluateSettings, path)),
}


@pytest.mark.parametrize("name", TEXT_READERS)
def test_a_block_of_zero_bytes_is_refused_with_file_and_line_in_every_text_format(
    tmp_path: Path, name: str
) -> None:
    beginning, read = TEXT_READERS[name]
    content = beginning + b"x" + b"\0" * 30 + b"\n" + beginning
    path = write(tmp_path / name, content)
    place = (
        "line 2, column 2" if path.suffix == ".toml" else f"{path}:2 must be text, got a zero byte at byte 2"
    )
    with refused(AdiabatError, str(path), place):
        read(path)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
OTHER_READERS: dict[str, Callable[[Path], object]] = {
    "t.parquet": lambda path: list(read_rows(path)),
    "t.jsonl.zst": lambda path: list(read_rows(path)),
    "v.npy": lambda path: open_vectors(path, block_rows=8),
    "v.parquet": lambda path: open_vectors(path, block_rows=8),
    "v.faiss": lambda path: open_vectors(path, block_rows=8),
    "ids.json": read_ids,
    "ids.npy": read_ids,
    "record.json": lambda path: read_json(path, remedy="write it again"),
}


@pytest.mark.parametrize("name", [*TEXT_READERS, *OTHER_READERS])
@pytest.mark.parametrize(
    ("content", "facts"),
    [
        (POINTER, ["Git LFS pointer", "git lfs pull"]),
        (b"\n<!DOCTYPE html>\n<p>404</p>\n", ["HTML page", "download"]),
    ],
    ids=["pointer", "page"],
)
def test_a_file_that_stands_in_place_of_its_content_is_named_with_the_remedy(
    tmp_path: Path, name: str, content: bytes, facts: list[str]
) -> None:
    read = OTHER_READERS[name] if name in OTHER_READERS else TEXT_READERS[name][1]
    path = tmp_path / name
    path.write_bytes(content)
    with refused(AdiabatError, str(path), *facts):
        read(path)
