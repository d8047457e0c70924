"""The mined file and its statistics: a killed run continues hidden files, which get their names at the
end.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int64

from adiabat.config.section import Section
from adiabat.core.disk import appending_to, make_folder, move, new_file, remove, shorten, sync
from adiabat.core.errors import AdiabatError
from adiabat.core.files import (
    MISMATCH,
    is_there,
    read_json,
    reading,
    sole_writer,
    write_json,
    write_text,
    writing_to,
)
from adiabat.core.formats import FORMAT, Format, rebuilt
from adiabat.core.provenance import now, versions
from adiabat.core.text import counted, cut
from adiabat.core.wording import again
from adiabat.mining.candidates import MEANING, PASSED, REASONS, code_of
from adiabat.mining.mine_checks import (
    CODECS,
    bare_path,
    ending_of,
    refuse_existing,
    statistics_path,
    working_folder,
)
from adiabat.mining.miner import MinedQuery, query_number
from adiabat.mining.mining_queries import Documents
from adiabat.store.manifest import COPY_BYTES

EXAMPLES = 10
"""Examples of each outcome, at most one of a query, drawn evenly by a hash."""

CHARACTERS = 400

SHARE_EDGES = tuple(round(0.1 * step, 1) for step in range(16))
"""Edges between the bins of a candidate's score as a share of the lowest positive's; one bin lies below them,
one above."""

COUNTS = ("queries", "written", "too_few", "without", "negatives", "listed", "judged")
OUTCOMES = ("positive", "candidate", "passed", "chosen", *REASONS)


_NO_SHARES = [0] * (len(SHARE_EDGES) + 1)


@dataclass(slots=True)
class ScoreCounts:
    """Scores of one outcome.

    Attributes:
        total: Sum of the scores, in float64.
        shares: Counts of the bins of `SHARE_EDGES`: ``score / lowest positive``, over queries whose lowest
            positive scores above zero.
    """

    count: int = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None
    shares: list[int] = field(default_factory=_NO_SHARES.copy)

    def add(self, scores: Float32[np.ndarray, " n"], lowest_positive: float) -> None:
        """Count the scores of one query."""
        if not len(scores):
            return
        least, greatest = float(scores.min()), float(scores.max())
        self.count += len(scores)
        self.total += float(scores.sum(dtype=np.float64))
        self.least = least if self.least is None else min(least, self.least)
        self.greatest = greatest if self.greatest is None else max(greatest, self.greatest)
        if lowest_positive > 0:
            shares = scores.astype(np.float64) / lowest_positive
            bins = np.searchsorted(np.array(SHARE_EDGES), shares, side="right")
            self.shares = np.add(self.shares, np.bincount(bins, minlength=len(self.shares))).tolist()

    def report(self) -> dict[str, Any]:
        """Count, mean, range and shares of at least one score."""
        return {
            "count": self.count,
            "mean": self.total / self.count,
            "least": self.least,
            "greatest": self.greatest,
            "shares": self.shares,
        }


_NO_COUNTS = dict.fromkeys(COUNTS, 0)


def _no_scores() -> dict[str, ScoreCounts]:
    """Scores of every outcome before the first query."""
    return {name: ScoreCounts() for name in OUTCOMES}


@dataclass(slots=True)
class MiningCounts:
    """Sums over queries, which can be saved and continued.

    Attributes:
        counts: Queries; rows ``written``; queries with ``too_few`` negatives and ``without`` any;
            ``negatives`` written, and those ``listed`` by the data among them; candidates ``judged``; queries
            ``affected`` by a reason.
        examples: By outcome: a key to sort by, and the example.
    """

    counts: dict[str, int] = field(default_factory=_NO_COUNTS.copy)
    scores: dict[str, ScoreCounts] = field(default_factory=_no_scores)
    examples: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)

    def _count(self, name: str, count: int = 1) -> None:
        """Add to a sum; those of reasons are made when they are first needed."""
        # Sums of reasons begin where these first occur.
        self.counts[name] = self.counts.get(name, 0) + count

    def add(self, mined: MinedQuery, *, wanted: int, written: bool) -> None:
        """Count one query; `wanted` is the number of negatives per query, `written` whether its row has
        negatives and is kept.
        """
        self._count("queries")
        self._count("judged", mined.judged)
        self._count("too_few", int(mined.negatives < wanted))
        self._count("without", int(not mined.negatives))
        if written:
            self._count("written")
            self._count("negatives", mined.negatives)
            self._count("listed", len(mined.listed_texts))
        # Margins apply to the lowest positive, and so do the shares.
        lowest = float(mined.positive_scores.min())
        self.scores["positive"].add(mined.positive_scores, lowest)
        self.scores["candidate"].add(mined.scores, lowest)
        self.scores["passed"].add(mined.scores[mined.codes == PASSED], lowest)
        # In the order of the candidates, which decides the last digits of the mean.
        chosen = np.array(sorted(mined.chosen), dtype=np.int64)
        self.scores["chosen"].add(mined.scores[chosen], lowest)
        self._add_example("chosen", mined, chosen)
        for reason in REASONS:
            dropped = np.flatnonzero(mined.codes == code_of(reason))
            self.scores[reason].add(mined.scores[dropped], lowest)
            self._count(f"affected.{reason}", int(len(dropped) > 0))
            self._add_example(reason, mined, dropped)

    def _add_example(self, name: str, mined: MinedQuery, positions: Int64[np.ndarray, " _"]) -> None:
        """Keep an example if its key is among the lowest: an even draw that does not depend on the order of
        queries.
        """
        if not len(positions):
            return
        query = mined.example
        # The name of the outcome is hashed, too, so that outcomes do not all show the same queries.
        key = query_number(f"{name}\0{query.query_id}", query.query)
        examples = self.examples.setdefault(name, [])
        if len(examples) == EXAMPLES and key >= examples[-1][0]:
            return
        # One candidate of the query, drawn by the same number.
        position = int(positions[key % len(positions)])
        lowest = int(mined.positive_scores.argmin())
        example = {
            "query_id": query.query_id,
            "query": cut(query.query, limit=CHARACTERS),
            "positive": cut(mined.positive_texts[lowest], limit=CHARACTERS),
            "positive_score": float(mined.positive_scores[lowest]),
            "candidate": cut(mined.texts[position], limit=CHARACTERS),
            "score": float(mined.scores[position]),
            "rank": position + 1,
        }
        examples.append((key, example))
        examples.sort(key=itemgetter(0))
        del examples[EXAMPLES:]

    def report(self) -> dict[str, Any]:
        """The statistics file."""
        dropped: dict[str, Any] = {}
        for reason in REASONS:
            candidates, queries = self.scores[reason].count, self.counts.get(f"affected.{reason}", 0)
            dropped[reason] = {"candidates": candidates, "queries": queries, "why": MEANING[reason]}
        examples = {}
        for name, entries in self.examples.items():
            examples[name] = [example for _, example in entries]
        return {
            **{name: count for name, count in self.counts.items() if "." not in name},
            "candidates": {name: self.scores[name].count for name in ("candidate", "passed", "chosen")},
            "dropped": dropped,
            "share_edges": list(SHARE_EDGES),
            "scores": {name: scores.report() for name, scores in self.scores.items() if scores.count},
            "examples": examples,
        }


def summary_lines(report: Mapping[str, Any], *, wanted: int) -> Sequence[str]:
    """The statistics file in a few lines; `wanted` is the number of negatives per query."""
    candidates = report["candidates"]
    listed = f", {report['listed']:,} of them from the data" if report["listed"] else ""
    written, negatives = counted(report["queries"], "query"), counted(report["negatives"], "negative")
    lines = [
        f"{report['written']:,} of {written} written with {negatives}{listed}",
        f"{counted(candidates['candidate'], 'candidate')}, {candidates['passed']:,} passed the filters",
    ]
    for entry in report["dropped"].values():
        if entry["candidates"]:
            dropped, queries = counted(entry["candidates"], "candidate"), counted(entry["queries"], "query")
            lines.append(f"  dropped {dropped} of {queries}: {entry['why']}")
    if report["judged"]:
        lines.append(f"the judge scored {counted(report['judged'], 'candidate')}")
    if report["too_few"]:
        bare = f" (in {report['without_negatives']})" if report.get("without_negatives") else ""
        shortage = f"{counted(report['too_few'], 'query')} with fewer than {counted(wanted, 'negative')}"
        lines.append(f"{shortage}, {report['without']:,} with none{bare}")
    means = []
    for name, label in _LABELS.items():
        if name in report["scores"]:
            means.append(f"{label} {report['scores'][name]['mean']:.4g}")
    scores = SCORES[report["settings"]["mine"]["source"]]
    return [*lines, f"mean {scores}: {', '.join(means)}"]


_LABELS = {"positive": "positives", "candidate": "candidates", "chosen": "mined negatives"}
"""Outcomes whose mean score the summary has."""


SCORES: Mapping[str, str] = {
    "bm25": "BM25 scores",
    "dense": "similarities",
    "fused": "scores of both rankings together",
}
"""Source of candidates to the name of their scores."""


ROWS_FILE, BARE_FILE, STATE_FILE = "rows.jsonl", "without-negatives.jsonl", "progress.json"
ROW_FILES = (ROWS_FILE, BARE_FILE)
"""Rows with negatives, and rows without, which a triplet loss would refuse."""


STATE = Format(1, oldest=1)
"""Format of `MiningState`."""


@dataclass(frozen=True, slots=True)
class MiningState:
    """State of an interrupted run, on disk.

    Attributes:
        plan: Everything that decides the rows.
        done: Queries whose rows are on disk.
        sizes: Bytes of these rows in each of `ROW_FILES`.
        sha256: SHA-256 of these bytes.
        counts: Sums over these queries.
    """

    plan: dict[str, Any]
    done: int
    sizes: tuple[int, int]
    sha256: tuple[str, str]
    counts: MiningCounts

    @classmethod
    def read(cls, path: Path, remedy: str) -> "MiningState":
        """Read the file."""
        record = read_json(path, remedy=remedy)
        STATE.require(record.pop(FORMAT, STATE.oldest), path, older=remedy)
        return rebuilt(cls, record, path, remedy=remedy)


STATISTICS_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Statistics:
    """The file of the statistics beside a mined file.

    Attributes:
        path: Its place.
        report: Its content.
        without_negatives: File of the queries without negatives; None if all have some.
    """

    path: Path
    report: dict[str, Any]
    without_negatives: Path | None

    @classmethod
    def of(cls, out: Path, *, remedy: str) -> Self:
        """Those of a finished file."""
        path = statistics_path(out)
        with reading(path, remedy=remedy):
            report = json.loads(path.read_text(encoding="utf-8"))
            bare = report["without_negatives"]
            return cls(path, report, None if bare is None else out.with_name(bare))


@dataclass(slots=True)
class MinedRows:
    """The rows mined so far, in a working folder.

    Attributes:
        folder: Holds the rows, uncompressed, and the state that counts them.
        plan: Everything that decides the rows: equal plans give equal rows.
        done: Queries whose rows are finished.
        hashes: SHA-256 of the finished rows of each file, so far.
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
        if is_there(folder / STATE_FILE):
            remedy = f"remove the folder {folder}, and {again()}"
            state = MiningState.read(folder / STATE_FILE, remedy)
            # With other settings or other data the former rows are void.
            if state.plan == plan:
                hashes = []
                for name, size, digest in zip(ROW_FILES, state.sizes, state.sha256, strict=True):
                    hashes.append(_truncate(folder / name, size, digest, remedy))
                return cls(folder, plan, state.done, list(state.sizes), hashes, state.counts)
        with writing_to(folder):
            remove(folder / STATE_FILE)
            for name in ROW_FILES:
                new_file(folder / name).close()
        return cls(folder, plan, 0, [0, 0], [hashlib.sha256(), hashlib.sha256()], MiningCounts())

    def extend(self, rows: Sequence[Mapping[str, Any]], queries: int) -> None:
        """Write the rows of a block to disk, and then the state that counts them as finished."""
        # A kill between these writes leaves bytes behind those that the state counts; they are cut off.
        self._append(0, [row for row in rows if row["neg"]])
        self._append(1, [row for row in rows if not row["neg"]])
        self.done += queries
        state = {
            "plan": dict(self.plan),
            "done": self.done,
            "sizes": self.sizes,
            "sha256": [digest.hexdigest() for digest in self.hashes],
            "counts": asdict(self.counts),
        }
        write_json({**STATE.stamp(), **state}, self.folder / STATE_FILE)

    def _append(self, index: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows to a file of `ROW_FILES`, through to the disk."""
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        if lines:
            content, path = lines.encode("utf-8", "surrogatepass"), self.folder / ROW_FILES[index]
            with writing_to(path), appending_to(path) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self.sizes[index] += len(content)
            self.hashes[index].update(content)

    def finish(
        self,
        out: Path,
        origin: Mapping[str, Any],
        settings: Section,
        *,
        seconds: float,
        notes: Sequence[str],
        device: str,
    ) -> Statistics:
        """Write the statistics, and move the file of rows to its name.

        Args:
            origin: Fields of the statistics: the call and its inputs.
        """
        bare = bare_path(out) if self.sizes[1] else None
        report = {
            "format": STATISTICS_FORMAT,
            "created": now(),
            "seconds": round(seconds, 3),
            **origin,
            "without_negatives": None if bare is None else bare.name,
            "notes": list(notes),
            **self.counts.report(),
            "settings": settings.recorded(),
            "versions": versions(device),
        }
        written = Statistics(statistics_path(out), report, bare)
        # The statistics are there before the file: a finished file always has some.
        write_text(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n", written.path)
        self.publish(out, bare)
        return written

    def publish(self, out: Path, bare: Path | None) -> None:
        """Compress the files and move them to their names; that of rows without negatives first, if there are
        any (`bare`).
        """
        with writing_to(out):
            compressed = self._compressed(ROWS_FILE, out)
            # Somebody may have made the file since the run began.
            refuse_existing(out)
            if bare is not None:
                move(self._compressed(BARE_FILE, bare), bare)
            move(compressed, out)
            sync(out.parent)

    def _compressed(self, name: str, out: Path) -> Path:
        """A file of rows, compressed as its later name says, through to the disk."""
        path, codec = self.folder / f"packed-{name}", CODECS[ending_of(out)]
        with (
            new_file(path) as target,
            pa.output_stream(target, compression=codec) as sink,
            (self.folder / name).open("rb") as rows,
        ):
            while block := rows.read(COPY_BYTES):
                sink.write(block)
        sync(path)
        return path


@contextmanager
def working_in(out: Path) -> Iterator[Path]:
    """The working folder of a file that is mined, held by this process.

    It is removed at the end, and after an error before the first finished block, without which there is
    nothing to resume.
    """
    folder = working_folder(out)
    with writing_to(folder):
        make_folder(folder)
    with sole_writer(folder):
        try:
            yield folder
        except AdiabatError:
            if not is_there(folder / STATE_FILE):
                remove(folder)
            raise
        remove(folder)


def _truncate(path: Path, size: int, sha256: str, remedy: str) -> "hashlib._Hash":
    """Drop everything written after a killed run's last state; returns the SHA-256 of the rest, to
    continue.
    """
    with reading(path, remedy=remedy):
        shorten(path, size)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        if digest.hexdigest() != sha256:
            raise ValueError(MISMATCH)
        return digest


def row_of(mined: MinedQuery, corpus: Documents, *, ids: bool) -> dict[str, Any]:
    """One row of the mined file, with the columns of FlagEmbedding and the query's id."""
    rows, scores = mined.rows[mined.chosen], mined.scores[mined.chosen]
    if ids:
        positives: Sequence[str] = mined.example.positives
        listed: Sequence[str] = mined.example.negatives[: len(mined.listed_texts)]
        negatives = corpus.doc_ids(rows)
    else:
        positives, listed = mined.positive_texts, mined.listed_texts
        negatives = [mined.texts[position] for position in mined.chosen]
    return {
        "query_id": mined.example.query_id,
        "query": mined.example.query,
        "pos": list(positives),
        "neg": [*listed, *negatives],
        "pos_scores": mined.positive_scores.tolist(),
        "neg_scores": [*mined.listed_scores.tolist(), *scores.tolist()],
    }
