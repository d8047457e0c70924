"""The mined file: rows gathered block by block in a hidden file, which a killed run goes on with, and moved into place in the end."""

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
from adiabat.mining.miner import Mined
from adiabat.mining.mining_corpus import Documents
from adiabat.mining.mining_counts import Tally
from adiabat.store.manifest import COPY_BYTES, sync_folder

ROWS_FILE, APART_FILE, STATE_FILE = "rows.jsonl", "without-negatives.jsonl", "progress.json"
GROWING = (ROWS_FILE, APART_FILE)
"""Rows of queries with negatives, and of those without any, which a loss over triplets would refuse."""
CODECS: Mapping[str, Literal["gzip", "zstd"] | None] = {".jsonl": None, ".jsonl.gz": "gzip", ".jsonl.zst": "zstd"}


def ending_of(out: Path) -> str:
    """How a file is to be packed."""
    for ending in CODECS:
        if out.name.lower().endswith(ending) and len(out.name) > len(ending):
            return ending
    raise DataError(f"--out must end in .jsonl, .jsonl.gz or .jsonl.zst, got {out}; rename it")


def apart_of(out: Path) -> Path:
    """The file of the queries that have no negative."""
    ending = len(ending_of(out))
    return out.with_name(f"{out.name[:-ending]}.without-negatives{out.name[-ending:]}")


@dataclass(slots=True)
class Partial:
    """The rows so far, and what they add up to.

    Attributes:
        folder: Where they lie.
        plan: What they were mined with; equal plans give equal rows.
        done: Queries that are through.
        sizes: Bytes of their rows in each of `GROWING`; what lies beyond in a file belongs to a block that was cut short.
        hashes: SHA-256 of those bytes.
        tally: Of them.
    """

    folder: Path
    plan: Mapping[str, Any]
    done: int
    sizes: list[int]
    hashes: list["hashlib._Hash"]
    tally: Tally

    @classmethod
    def of(cls, folder: Path, plan: Mapping[str, Any]) -> "Partial":
        """Go on with what lies there, or begin where nothing does, or something mined with another plan."""
        if (folder / STATE_FILE).exists():
            remedy = f"remove the folder {folder}, and run the same command again"
            state = read_json(folder / STATE_FILE, remedy=remedy)
            # One of before there were two files begins anew.
            if state["plan"] == plan and "sha256" in state:
                sums = zip(GROWING, state["sizes"], state["sha256"], strict=True)
                hashes = [_cut_to(folder / name, size, digest, remedy) for name, size, digest in sums]
                return cls(folder, plan, state["done"], state["sizes"], hashes, Tally.from_json(state["tally"]))
        with writing_to(folder):
            (folder / STATE_FILE).unlink(missing_ok=True)
            for name in GROWING:
                (folder / name).write_bytes(b"")
        return cls(folder, plan, 0, [0] * len(GROWING), [hashlib.sha256() for _ in GROWING], Tally())

    def extend(self, rows: Sequence[Mapping[str, Any]], queries: int) -> None:
        """Put the rows of a block on disk, and then say so.

        Args:
            rows: Of the block; those with an empty ``neg`` are kept apart.
        """
        parts = [row for row in rows if row["neg"]], [row for row in rows if not row["neg"]]
        for place, part in enumerate(parts):
            self._append(place, part)
        self.done += queries
        sums = {"sizes": self.sizes, "sha256": [one.hexdigest() for one in self.hashes]}
        state = {"plan": self.plan, "done": self.done, **sums, "tally": self.tally.to_json()}
        write_json(state, self.folder / STATE_FILE)

    def _append(self, place: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows at the end of a file of `GROWING`, through to the disk."""
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "surrogatepass")
        if content:
            path = self.folder / GROWING[place]
            with writing_to(path), path.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self.sizes[place] += len(content)
            self.hashes[place].update(content)

    def publish(self, out: Path, apart: Path | None) -> None:
        """Write the file in its own packing, and move it into place, after the file of what has no negatives, if anything has none.

        Args:
            apart: Where to; None where everything has a negative.
        """
        with writing_to(out):
            packed = self._packed(ROWS_FILE, out)
            refuse_taken(out)
            if apart is not None:
                self._packed(APART_FILE, apart).replace(apart)
            packed.replace(out)
            sync_folder(out.parent)

    def _packed(self, name: str, out: Path) -> Path:
        packed = self.folder / f"packed-{name}"
        with pa.output_stream(str(packed), compression=CODECS[ending_of(out)]) as sink, (self.folder / name).open("rb") as file:
            while block := file.read(COPY_BYTES):
                sink.write(block)
        with packed.open("rb") as file:
            os.fsync(file.fileno())
        return packed


def _cut_to(path: Path, size: int, digest: str, remedy: str) -> "hashlib._Hash":
    """Cut off what a killed run wrote beyond what it noted; the SHA-256 of the rest, to be gone on with."""
    with reading(path, remedy=remedy):
        os.truncate(path, min(size, path.stat().st_size))
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256")
        if found.hexdigest() != digest:
            raise ValueError("its content does not match its checksum")
        return found


def refuse_taken(out: Path) -> None:
    """Refuse to write over a file."""
    if out.exists():
        raise DataError(f"--out must be a new file, {out} exists; remove it, or choose another")


def row_of(one: Mined, corpus: Documents, *, ids: bool) -> dict[str, Any]:
    """One line of the mined file, with the columns of FlagEmbedding and the query's id."""
    rows = one.rows[one.chosen]
    listed = one.example.negatives[: len(one.listed_texts)] if ids else one.listed_texts
    mined = corpus.doc_ids(rows) if ids else [one.texts[place] for place in one.chosen]
    return {
        "query_id": one.example.query_id,
        "query": one.example.query,
        "pos": list(one.example.positives) if ids else one.positive_texts,
        "neg": [*listed, *mined],
        "pos_scores": one.positive_scores.tolist(),
        "neg_scores": [*one.listed_scores.tolist(), *one.scores[one.chosen].tolist()],
    }
