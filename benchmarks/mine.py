"""Mining by BM25: top 100 of 10,000 queries over 100,000 documents, default filters, to a written file; time
and peak memory.

The queries are titles of papers; the documents are their abstracts, each cut in two near its middle, of which
the first half is the answer. For comparison, in turn and in separate processes, bm25s indexes the same words
of the same files in memory and retrieves the same top 100, without filters, choice, file or statistics. A
third process only imports the modules of mining, which gives the memory before any work.

    python benchmarks/mine.py PAPERS.jsonl.gz [--documents 100000] [--queries 10000] [--rounds 3]

PAPERS has rows with ``id``, ``title`` and ``abstract``, as in arXiv's metadata.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bm25s

from adiabat.config.dataset_settings import MineSettings
from adiabat.data.corpora import read_corpus
from adiabat.data.table_rows import read_rows
from adiabat.mining.mine import mine
from adiabat.mining.mining_queries import read_queries
from adiabat.models.towers import DualEncoder
from adiabat.store.analysers import words

OURS, ALONE, NOTHING = "adiabat mine", "bm25s alone", "imports alone"
DEPTH = 100


def halves(abstract: str) -> list[str]:
    """An abstract in two, cut after the sentence that ends nearest to its middle; whole where it has one
    sentence.
    """
    ends = [place + 2 for place in range(len(abstract) - 2) if abstract[place : place + 2] == ". "]
    if not ends:
        return [abstract]
    middle = min(ends, key=lambda end: abs(end - len(abstract) / 2))
    return [abstract[:middle].strip(), abstract[middle:].strip()]


def write_files(papers: str, folder: Path, *, documents: int, queries: int) -> tuple[int, int]:
    """Corpus and questions; how many of each there are."""
    written = asked = 0
    with (folder / "corpus.jsonl").open("w") as corpus, (folder / "data.jsonl").open("w") as data:
        for row in read_rows(papers):
            parts = halves(" ".join(row.values["abstract"].split()))
            if written + len(parts) > documents:
                break
            for place, part in enumerate(parts):
                corpus.write(json.dumps({"doc_id": f"{row.values['id']}-{place}", "text": part}) + "\n")
            written += len(parts)
            if asked < queries:
                asked += 1
                data.write(
                    json.dumps(
                        {"query": " ".join(row.values["title"].split()), "pos": [f"{row.values['id']}-0"]}
                    )
                    + "\n"
                )
    return written, asked


def no_model(name: str, section: object) -> DualEncoder:
    """BM25 loads none."""
    raise AssertionError(f"{name} {section} must not be loaded")


def by_adiabat(folder: Path) -> None:
    """The whole job; its own statistics are checked against the number of queries."""
    mined = mine(
        str(folder / "data.jsonl"),
        str(folder / "corpus.jsonl"),
        folder / f"mined{os.getpid()}.jsonl",
        load=no_model,
    )
    assert mined.report["candidates"]["candidate"] <= DEPTH * mined.report["queries"]


def by_bm25s(folder: Path) -> None:
    """The peer: index and retrieval in memory, of the words that adiabat takes."""
    settings = MineSettings().bm25
    texts: Iterator[str] = (document.text for document in read_corpus(folder / "corpus.jsonl"))
    index = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
    index.index([words(text) for text in texts], show_progress=False)
    asked = read_queries(str(folder / "data.jsonl"), MineSettings().data)
    index.retrieve([words(example.query) for example in asked.examples], k=DEPTH, show_progress=False)


def run(side: str, folder: Path) -> tuple[float, float]:
    """Seconds of the work, and peak resident set in MB, of a process of its own."""
    command = [sys.executable, __file__, "--side", side, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seconds = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{side} ended with {os.waitstatus_to_exitcode(status)}")
    return float(seconds), usage.ru_maxrss / 1024


def one_side(side: str, folder: Path) -> None:
    """What the process of one side does."""
    start = time.perf_counter()
    if side == OURS:
        by_adiabat(folder)
    elif side == ALONE:
        by_bm25s(folder)
    print(time.perf_counter() - start)


def main() -> None:
    """Write the files, let the sides take turns, print medians and ranges."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "papers", help="JSON lines with id, title and abstract; with --side the folder of the files"
    )
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=(OURS, ALONE, NOTHING), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        one_side(options.side, Path(options.papers))
        return
    measured: dict[str, list[tuple[float, float]]] = {OURS: [], ALONE: [], NOTHING: []}
    with tempfile.TemporaryDirectory() as name:
        documents, queries = write_files(
            options.papers, Path(name), documents=options.documents, queries=options.queries
        )
        print(f"{documents:,} documents, {queries:,} queries, bm25s {bm25s.__version__}", flush=True)
        for _ in range(options.rounds):
            for side, rounds in measured.items():
                rounds.append(run(side, Path(name)))
    for side, rounds in measured.items():
        seconds, peaks = zip(*rounds, strict=True)
        print(
            f"{side}: median {statistics.median(seconds):.1f} s, range "
            f"{min(seconds):.1f} to {max(seconds):.1f} s; "
            f"peak {statistics.median(peaks):.0f} MB, range {min(peaks):.0f} to {max(peaks):.0f} MB"
        )
    took, peak = (statistics.median(one[place] for one in measured[OURS]) for place in (0, 1))
    ratios = [ours[0] / alone[0] for ours, alone in zip(measured[OURS], measured[ALONE], strict=True)]
    print(
        f"mine: {took:.0f} s, {peak:.0f} MB; ratio {statistics.median(ratios):.2f} "
        "of the time of bm25s alone (no target)"
    )


if __name__ == "__main__":
    main()
