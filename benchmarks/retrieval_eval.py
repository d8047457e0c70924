"""Scoring of a model with embedded texts: adiabat against sentence-transformers'
InformationRetrievalEvaluator.

Both sides use the same vectors of the demo's model, queries, documents and cutoffs, in turns in one process.
Both give nDCG@10, MRR@10, MAP@100, and accuracy, precision and recall at 1, 3, 5 and 10; adiabat also counts
the positive-negative discrepancy of all pairs, keeps every query's values, and breaks no tie in a model's
favour. Means are compared before timing starts.

    python benchmarks/retrieval_eval.py [--data ../shared/data] [--rounds 7]
    python benchmarks/retrieval_eval.py --mode memory    peak memory: 1,000,000 stored vectors, and 1,000
    python benchmarks/retrieval_eval.py --mode training  documents that 10 validations of a tuning run encode
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from memory import parts, write_vectors

import adiabat
from adiabat.config.reader import checked
from adiabat.config.shared import EmbedSettings, MeasureSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.ragged import Ragged
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet, Side
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_TRAIN
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import System
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.imports import Incoming, import_vectors
from adiabat.store.vector_store import Store

DATA = ("scifact", "squad_dev")
SIZES = {"scifact": (5_183, 300), "squad_dev": (2_067, 10_570)}
CUTOFFS = (1, 3, 5, 10)
OURS_AND_THEIRS = {"nDCG@10": "ndcg@k", "RR@10": "mrr@k", "AP@100": "map@k"} | {
    f"{ours}@{k}": theirs
    for ours, theirs in (("Success", "accuracy@k"), ("P", "precision@k"), ("R", "recall@k"))
    for k in CUTOFFS
}
SETTINGS = MeasureSection(report=tuple(OURS_AND_THEIRS), negatives="store", drop_same_id=False)
TOLERATED_GAP = 1e-3
LARGE, SMALL, QUERIES, PAIRS = 1_000_000, 1_000, 1_000, 150

Vectors = Float32[np.ndarray, "n e"]


@dataclass(frozen=True)
class Given(DualEncoder):
    """A model whose vectors of queries are there already."""

    row_of: Mapping[str, int] = field(default_factory=dict)
    vectors: Vectors = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))

    @classmethod
    def of(cls, model: DualEncoder, texts: Sequence[str], vectors: Vectors) -> "Given":
        """Vectors of these texts."""
        return cls(
            model.query,
            model.document,
            "given",
            row_of={text: row for row, text in enumerate(texts)},
            vectors=vectors,
        )

    def encode(self, texts: Sequence[str], **_: Any) -> Vectors:
        """Look them up."""
        return self.vectors[[self.row_of[text] for text in texts]]


@dataclass(frozen=True, slots=True)
class Case:
    """One data set, embedded."""

    examples: AddressedSet
    store: Store
    model: Given


def main() -> None:
    """Run one mode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mode",
        choices=("speed", "memory", "training", "scoring"),
        default="speed",
        help="scoring is the child process of memory",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/data"),
        help="folder that holds beir/scifact and beir/squad_dev",
    )
    parser.add_argument("--rounds", type=int, default=7, help="alternating measurements of each side")
    parser.add_argument("--folder", type=Path, help="store to score against")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.mode == "speed":
            speed(options.data, Path(folder), options.rounds)
        elif options.mode == "memory":
            memory(Path(folder))
        elif options.mode == "training":
            training(Path(folder))
        else:
            scoring(options.folder)


def speed(data: Path, folder: Path, rounds: int) -> None:
    """Both sides in turn on both data sets together."""
    cases = [read_case(data / "beir" / name, folder / name) for name in DATA]
    peers = [peer_of(case) for case in cases]
    for case, peer in zip(cases, peers, strict=True):
        require_equal(ours(case), peer())
    seconds = [
        (timed(lambda: [ours(case) for case in cases]), timed(lambda: [peer() for peer in peers]))
        for _ in range(rounds)
    ]
    for name, column in (("adiabat", 0), ("sentence-transformers", 1)):
        taken = [pair[column] for pair in seconds]
        print(
            f"{name}: median {statistics.median(taken):.2f} s, range {min(taken):.2f} "
            f"to {max(taken):.2f} s over {rounds} rounds"
        )
    ratios = [peer / own for own, peer in seconds]
    print(
        f"ratio of each round: {', '.join(f'{ratio:.1f}' for ratio in ratios)}; "
        f"{torch.get_num_threads()} threads"
    )
    print(f"retrieval_eval: ratio {statistics.median(ratios):.1f} (target 5)")


def read_case(path: Path, folder: Path) -> Case:
    """A BEIR folder embedded by the demo's model; random vectors of the same sizes where it is absent."""
    model = adiabat.load("demo")
    if not path.exists():
        documents, queries = SIZES[path.name]
        print(
            f"{path} is absent: {queries:,} queries and {documents:,} documents "
            "of random vectors stand in for it"
        )
        return random_case(model, random_store(folder, documents), queries, name=path.name)
    print(f"embedding {path}", flush=True)
    store = adiabat.embed(model, path, folder)
    found = read_examples(path, split="test")
    assert isinstance(found, ExampleSet)
    examples = address(found, store)
    vectors = model.encode(examples.queries, side="query", precision="fp32")
    return Case(examples, store, Given.of(model, examples.queries, vectors))


def random_store(folder: Path, documents: int) -> Store:
    """Unit vectors in float16."""
    folder.mkdir(exist_ok=True)
    write_vectors(folder, documents)
    vectors, store, ids = parts(folder)
    return import_vectors(Incoming(vectors, ids), store)


def random_case(model: DualEncoder, store: Store, queries: int, *, name: str) -> Case:
    """Random queries, each answered by a random document."""
    generator = np.random.default_rng(0)
    texts = [f"query {number}" for number in range(queries)]
    vectors = generator.standard_normal((queries, store.width), dtype=np.float32)
    rows = Ragged.of(generator.integers(0, store.count, (queries, 1)))
    ones, none = Ragged.of([[1]] * queries), Ragged.of([[]] * queries)
    examples = AddressedSet(name, [f"q{number}" for number in range(queries)], texts, rows, ones, none)
    return Case(examples, store, Given.of(model, texts, vectors))


def ours(case: Case) -> TaskScores:
    """Adiabat's scores, of every query."""
    return score_retrieval(System(case.model, case.store), case.examples, settings=SETTINGS)


def peer_of(case: Case) -> Callable[[], dict[str, dict[int, float]]]:
    """A function that scores by sentence-transformers: vectors in memory, of unit length, so that it may take
    the plain product.
    """
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.util import dot_score

    documents = torch.nn.functional.normalize(torch.from_numpy(case.store.gather(range(case.store.count))))
    queries = torch.nn.functional.normalize(torch.from_numpy(case.model.encode(case.examples.queries)))

    ids = case.store.doc_ids(range(case.store.count))
    evaluator: Any = InformationRetrievalEvaluator(
        dict(zip(case.examples.query_ids, case.examples.queries, strict=True)),
        dict.fromkeys(ids, ""),
        {
            query_id: {ids[row] for row in case.examples.positives[query]}
            for query, query_id in enumerate(case.examples.query_ids)
        },
        accuracy_at_k=list(CUTOFFS),
        precision_recall_at_k=list(CUTOFFS),
        score_functions={"dot": dot_score},
        write_csv=False,
    )

    evaluator.embed_inputs = lambda *_, **__: queries

    def score() -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = evaluator.compute_all_metrics(None, corpus_embeddings=documents)[
            "dot"
        ]
        return found

    return score


def require_equal(scores: TaskScores, peer: Mapping[str, Mapping[int, float]]) -> None:
    """Both must give nearly the same means; where a document comes twice, the peer may break a tie in favour
    of the relevant one.
    """
    gaps: dict[str, float] = {}
    for sample in scores.samples:
        if sample.measure in OURS_AND_THEIRS:
            here, there = (
                float(value_of(sample)[0]),
                peer[OURS_AND_THEIRS[sample.measure]][int(sample.measure.partition("@")[2])],
            )
            gaps[sample.measure] = abs(here - there)
            if gaps[sample.measure] > TOLERATED_GAP:
                raise SystemExit(f"{scores.task}: {sample.measure} is {here:.4f} here and {there:.4f} there")
    widest = max(gaps, key=lambda measure: gaps[measure])
    sizes = f"{len(scores.units):,} queries against {scores.documents:,} documents"
    print(
        f"{scores.task}: {sizes}, largest gap between the means of both sides {gaps[widest]:.1e} ({widest})",
        flush=True,
    )


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def memory(folder: Path) -> None:
    """Peak resident sets of processes that score against a small and a large store."""
    peaks = {}
    for documents in (SMALL, LARGE):
        random_store(folder / str(documents), documents)
        command = [sys.executable, __file__, "--mode", "scoring", "--folder", str(folder / str(documents))]
        # As the process itself sees it: the system's account of a child counts the parent's memory in.
        peaks[documents] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{QUERIES:,} queries against {documents:,} documents: peak {peaks[documents]:.0f} MB", flush=True
        )
    print(f"retrieval_eval memory: peak {peaks[LARGE]:.0f} MB (target <= 1024)")


def scoring(folder: Path) -> None:
    """What the processes of `memory` do: they print their peak resident set, in MB (Linux only)."""
    ours(random_case(adiabat.load("demo"), Store.open(parts(folder)[1]), QUERIES, name="random"))
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    print(next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")))


def training(folder: Path) -> None:
    """Texts that go to either tower while a corpus is embedded, and while a run validates ten times."""
    counts: dict[Side, int] = {"query": 0, "document": 0}
    tokenize = Encoder.tokenize

    def counting(self: Encoder, texts: Sequence[str], *, side: Side) -> Ragged:
        counts[side] += len(texts)
        return tokenize(self, texts, side=side)

    Encoder.tokenize = counting  # type: ignore[method-assign]
    write_pairs(folder / "pairs.jsonl")
    # Where the precision is left to adiabat, some texts are encoded to choose it.
    settings = checked(EmbedSettings, {"store": {"precision": "fp32"}})
    store = adiabat.embed("demo", folder / "pairs.jsonl", folder / "store", settings=settings)
    embedded = dict(counts)
    table = {"recipe": "paper", "batches_per_epoch": 2, "max_epochs": 10, "idle_epochs": 10}
    result = adiabat.tune(
        "demo",
        store.path,
        folder / "pairs.jsonl",
        folder / "job",
        settings=checked(TuneSettings, {"tune": table}),
    )
    assert result.training is not None
    validations = len(result.training.validation_errors) - 1
    after = {side: counts[side] - embedded[side] for side in counts}
    print(f"embedding {store.count:,} documents: {embedded['document']:,} texts through the document tower")
    print(
        f"tuning, {validations} validations: {after['document']:,} texts through the "
        f"document tower, {after['query']:,} through the other"
    )
    cost = (embedded["document"] + after["document"]) / store.count
    print(
        f"retrieval_eval training: {validations} validations cost {cost:.2f} "
        "encodings of the corpus (target 1)"
    )


def write_pairs(path: Path) -> None:
    """The first queries of the demo with the texts of a positive and a negative each."""
    text_of = {document.doc_id: document.text for document in read_corpus(DEMO_CORPUS)}
    examples = read_examples(DEMO_TRAIN)
    assert isinstance(examples, ExampleSet)
    rows = [
        {"query": one.query, "pos": [text_of[one.positives[0]]], "neg": [text_of[one.negatives[0]]]}
        for one in examples.examples[:PAIRS]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
