"""The mined file: rows appended block by block to a hidden file, which a killed run continues, and moved to its name at the end."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from adiabat.core.errors import DataError
from adiabat.core.files import read_json, reading, write_json, writing_to
from adiabat.mining.miner import MinedQuery
from adiabat.mining.mining_corpus import Documents
from adiabat.mining.mining_counts import MiningCounts
from adiabat.store.manifest import COPY_BYTES, sync_folder

ROWS_FILE, BARE_FILE, STATE_FILE = "rows.jsonl", "without-negatives.jsonl", "progress.json"
ROW_FILES = (ROWS_FILE, BARE_FILE)
"""Rows with negatives, and rows without, which a triplet loss would refuse."""
CODECS: Mapping[str, Literal["gzip", "zstd"] | None] = {".jsonl": None, ".jsonl.gz": "gzip", ".jsonl.zst": "zstd"}


def ending_of(out: Path) -> str:
    """The ending of a mined file, which tells its compression."""
    for ending in CODECS:
        if out.name.lower().endswith(ending) and len(out.name) > len(ending):
            return ending
    raise DataError(f"--out must end in .jsonl, .jsonl.gz or .jsonl.zst, got {out}; rename it")


def bare_path(out: Path) -> Path:
    """The file of the queries without negatives."""
    ending = len(ending_of(out))
    return out.with_name(f"{out.name[:-ending]}.without-negatives{out.name[-ending:]}")


def refuse_existing(out: Path) -> None:
    """Refuse to overwrite a file."""
    if out.exists():
        raise DataError(f"--out must be a new file, {out} exists; remove it, or choose another")


@dataclass(slots=True)
class MinedRows:
    """The rows mined so far, in a working folder.

    Attributes:
        plan: Everything that decides the rows: equal plans give equal rows.
        sizes: Bytes of finished rows in each of `ROW_FILES`; bytes beyond belong to an interrupted block.
    """

    folder: Path
    plan: Mapping[str, Any]
    done: int
    sizes: list[int]
    hashes: list["hashlib._Hash"]
    counts: MiningCounts

    @classmethod
    def open(cls, folder: Path, plan: Mapping[str, Any]) -> "MinedRows":
        """Continue the rows of an interrupted run with the same plan, or begin."""
        if (folder / STATE_FILE).exists():
            remedy = f"remove the folder {folder}, and run the same command again"
            state = read_json(folder / STATE_FILE, remedy=remedy)
            if state["plan"] == plan:
                sums = zip(ROW_FILES, state["sizes"], state["sha256"], strict=True)
                hashes = [_truncate(folder / name, size, digest, remedy) for name, size, digest in sums]
                return cls(folder, plan, state["done"], state["sizes"], hashes, MiningCounts.from_json(state["counts"]))
        with writing_to(folder):
            (folder / STATE_FILE).unlink(missing_ok=True)
            for name in ROW_FILES:
                (folder / name).write_bytes(b"")
        return cls(folder, plan, 0, [0] * len(ROW_FILES), [hashlib.sha256() for _ in ROW_FILES], MiningCounts())

    def extend(self, rows: Sequence[Mapping[str, Any]], queries: int) -> None:
        """Write the rows of a block to disk, and then the state that counts them as finished."""
        self._append(0, [row for row in rows if row["neg"]])
        self._append(1, [row for row in rows if not row["neg"]])
        self.done += queries
        sums = {"sizes": self.sizes, "sha256": [digest.hexdigest() for digest in self.hashes]}
        state = {"plan": self.plan, "done": self.done, **sums, "counts": self.counts.to_json()}
        write_json(state, self.folder / STATE_FILE)

    def _append(self, index: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows to a file of `ROW_FILES`, through to the disk."""
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "surrogatepass")
        if content:
            path = self.folder / ROW_FILES[index]
            with writing_to(path), path.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self.sizes[index] += len(content)
            self.hashes[index].update(content)

    def publish(self, out: Path, bare: Path | None) -> None:
        """Compress the files and move them to their names; that of rows without negatives first, if there are any (`bare`)."""
        with writing_to(out):
            compressed = self._compressed(ROWS_FILE, out)
            refuse_existing(out)
            if bare is not None:
                self._compressed(BARE_FILE, bare).replace(bare)
            compressed.replace(out)
            sync_folder(out.parent)

    def _compressed(self, name: str, out: Path) -> Path:
        path = self.folder / f"packed-{name}"
        with pa.output_stream(str(path), compression=CODECS[ending_of(out)]) as sink, (self.folder / name).open("rb") as file:
            while block := file.read(COPY_BYTES):
                sink.write(block)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return path


def _truncate(path: Path, size: int, sha256: str, remedy: str) -> "hashlib._Hash":
    """Drop what a killed run wrote beyond its last state; returns the SHA-256 of the rest, to continue."""
    with reading(path, remedy=remedy):
        os.truncate(path, min(size, path.stat().st_size))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        if digest.hexdigest() != sha256:
            raise ValueError("its content does not match its checksum")
        return digest


def row_of(mined: MinedQuery, corpus: Documents, *, ids: bool) -> dict[str, Any]:
    """One row of the mined file, with the columns of FlagEmbedding and the query's id."""
    listed = mined.example.negatives[: len(mined.listed_texts)] if ids else mined.listed_texts
    negatives = corpus.doc_ids(mined.rows[mined.chosen]) if ids else [mined.texts[position] for position in mined.chosen]
    return {
        "query_id": mined.example.query_id,
        "query": mined.example.query,
        "pos": list(mined.example.positives) if ids else mined.positive_texts,
        "neg": [*listed, *negatives],
        "pos_scores": mined.positive_scores.tolist(),
        "neg_scores": [*mined.listed_scores.tolist(), *mined.scores[mined.chosen].tolist()],
    }
