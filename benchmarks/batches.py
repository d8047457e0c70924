"""Feeding batches without duplicate texts: adiabat's planned passes against the loader of the
sentence-transformers trainer.

Both sides read the same pairs and return the same tensors: 256 pairs a batch, both columns truncated at 256
tokens by MiniLM's tokenizer, padded to the longest, on the CPU. adiabat plans the whole pass, and reads
tokens cached on disk; the peer tokenises in its collator, with its plain sampler and its hashed one (which
keeps hashes on disk), in the process itself and in two workers. Each side reuses what its own first run,
timed separately, left on disk. The script measures the time to the first batch (without imports), the batches
after it, and the peak resident set of the process (without the peer's workers). adiabat builds no model (a
stand-in backbone of width four), the peer has MiniLM loaded. The peer slows down during a pass as pairs that
fit nowhere accumulate; only its first batches are measured.

    python benchmarks/batches.py [--data FOLDER] [--pairs 1000000] [--batches 300] [--rounds 5]

FOLDER holds sets as `batches_pairs.py` names them; without it the demo's pairs are repeated with numbers.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

TOKENS = 256
TARGET, TARGET_MB = 3.0, 500
OURS = "adiabat"
PEERS = {
    f"{sampler}, {workers} workers": (sampler, workers)
    for sampler in ("no_duplicates", "no_duplicates_hashed")
    for workers in (0, 2)
}

IMPORTS = (
    ("datasets", "sentence_transformers", "sentence_transformers.sentence_transformer.losses"),
    (
        "transformers.models.bert.modeling_bert",
        "adiabat.dual_encoder.batches",
        "adiabat.dual_encoder.pair_data",
        "adiabat.models.bulk",
    ),
)
"""Loaded before the clock starts, by the peer and by us."""

Found = dict[str, float]
Batches = Iterator[tuple[int, int]]
"""Pairs and tokens of one batch after another."""
TextsOf = Callable[[int], Iterable[list[tuple[str, str]]]]
"""The pairs of the first so many batches, as texts."""


def our_batches(options: argparse.Namespace) -> tuple[Batches, TextsOf, int]:
    """What a run of training does up to the towers: read or open, plan the pass, and draw, look up and pad
    each batch.
    """
    from adiabat.config.dual_training import TrainSettings
    from adiabat.config.reader import checked
    from adiabat.data.records import Side
    from adiabat.dual_encoder.batches import draw_batch, sampler_of
    from adiabat.dual_encoder.pair_data import read_pairs
    from adiabat.models.bulk import TokenTable

    encoder = tokenizing_encoder()
    tables = {
        "job": {"data": options.file},
        "train": {"batch_size": options.batch},
        "batches": {"no_duplicates": True},
    }
    settings = checked(TrainSettings, tables)
    pairs, _ = read_pairs(options.file, settings.data, cache=Path(options.work))
    assert pairs.texts.folder is not None
    sides: dict[Side, Any] = {"query": pairs.texts.queries, "document": pairs.texts.documents}
    tokens = {
        side: TokenTable.of(encoder, texts, side=side, folder=pairs.texts.folder)
        for side, texts in sides.items()
    }
    sampler = sampler_of(settings, pairs)

    def batches() -> Batches:
        for step in range(sampler.pairs):
            batch = draw_batch(pairs, sampler.rows(step), settings.train, seed=settings.run.seed, step=step)
            rows: dict[Side, np.ndarray] = {
                "query": np.unique(batch.query),
                "document": np.unique(batch.documents),
            }
            padded = [encoder.collate(tokens[side].take(rows[side]), side=side) for side in rows]
            yield (
                min(len(one.input_ids) for one in padded),
                sum(int(one.attention_mask.sum()) for one in padded),
            )

    def texts_of(count: int) -> Iterator[list[tuple[str, str]]]:
        for picked in map(sampler.rows, range(count)):
            queries, documents = (
                pairs.texts.queries.take(pairs.query[picked]),
                pairs.texts.documents.take(pairs.positive[picked]),
            )
            yield list(zip(queries, documents, strict=True))

    return batches(), texts_of, sampler.pairs


def tokenizing_encoder() -> Any:
    """An encoder with the embedded model's tokenizer and limit, and next to no weights."""
    from transformers import BertConfig, BertModel

    from adiabat.models.backbone import Trust, load_tokenizer
    from adiabat.models.embedding_head import EncoderSettings
    from adiabat.models.encoder import Encoder
    from adiabat.models.model_paths import demo_model_folder

    backbone = BertModel(
        BertConfig(
            vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4
        )
    )
    return Encoder(backbone, load_tokenizer(demo_model_folder(), Trust()), EncoderSettings(max_tokens=TOKENS))


def peer_batches(options: argparse.Namespace) -> tuple[Batches, TextsOf, int]:
    """The dataloader that the trainer would take."""
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from adiabat.models.model_paths import demo_model_folder

    disable_progress_bars()
    sampler, workers = PEERS[options.side]
    data = Dataset.from_json(options.file, cache_dir=options.work)
    model = SentenceTransformer(str(demo_model_folder()), device="cpu")
    model.max_seq_length = TOKENS
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(Path(options.work, "trainer")),
        per_device_train_batch_size=options.batch,
        batch_sampler=sampler,
        dataloader_num_workers=workers,
        dataloader_drop_last=True,
        report_to="none",
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=MultipleNegativesRankingLoss(model)
    )
    loader = trainer.get_train_dataloader()

    def batches() -> Batches:
        for batch in loader:
            masks = [values for name, values in batch.items() if name.endswith("attention_mask")]
            yield min(map(len, masks)), sum(int(mask.sum()) for mask in masks)

    def texts_of(count: int) -> Iterator[list[tuple[str, str]]]:
        # The sampler begins from its seed whenever it is asked anew.
        again: Any = loader.batch_sampler
        for picked in islice(again, count):
            rows = data[picked]
            yield list(zip(rows["query"], rows["positive"], strict=True))

    return batches(), texts_of, len(data)


def measure(options: argparse.Namespace) -> Found:
    """Seconds to the first batch and of those after it, pairs and tokens, texts that stand twice, and the
    peak in MB.
    """
    for module in IMPORTS[options.side == OURS]:
        import_module(module)
    start = time.perf_counter()
    batches, texts_of, pairs = our_batches(options) if options.side == OURS else peer_batches(options)
    sizes = [next(batches)]
    first = time.perf_counter()
    sizes += islice(batches, options.batches)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fed = sum(size for size, _ in sizes[1:])
    if any(size != options.batch for size, _ in sizes):
        raise SystemExit(
            f"{options.side}: a batch must hold {options.batch} pairs, got "
            f"{sorted({size for size, _ in sizes})}"
        )
    return {
        "first": first - start,
        "speed": fed / (end - first),
        "tokens": sum(tokens for _, tokens in sizes[1:]) / fed,
        "twice": sum(map(repeats, texts_of(len(sizes)))),
        "pairs": pairs,
        "peak": peak,
    }


def repeats(batch: list[tuple[str, str]]) -> int:
    """Texts of a batch that stand in more than one of its pairs."""
    counts = Counter(text for pair in batch for text in set(pair))
    return sum(count > 1 for count in counts.values())


def run(side: str, options: argparse.Namespace) -> Found:
    """Measure one side in a process of its own."""
    # A side shares nothing with another, or its first run would not be its first.
    where = ["--side", side, "--file", options.file, "--work", str(Path(options.work, side))]
    command = [sys.executable, __file__, *sys.argv[1:], *where]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{side}: {process.stderr[-2_000:]}")
    found: Found = json.loads(process.stdout.splitlines()[-1])
    return found


def report(first: dict[str, Found], rounds: list[dict[str, Found]], options: argparse.Namespace) -> None:
    """Print what was found."""
    medians = {
        side: {key: statistics.median(one[side][key] for one in rounds) for key in first[OURS]}
        for side in first
    }
    for side, found in medians.items():
        speeds = [one[side]["speed"] for one in rounds]
        print(
            f"{side}: {found['speed']:,.0f} pairs/s ({min(speeds):,.0f} to {max(speeds):,.0f}), "
            f"first batch after {found['first']:.1f} s, "
            f"in the very first run after {first[side]['first']:.1f} s; {found['tokens']:.1f} "
            f"tokens a pair, peak {found['peak']:.0f} MB "
            f"(first run {first[side]['peak']:.0f} MB), {found['twice']:.0f} texts "
            f"twice in a batch, {found['pairs']:,.0f} pairs"
        )
    print(
        f"{options.pairs:,} pairs, {options.batches} batches of {options.batch} "
        f"after the first, {options.rounds} rounds"
    )
    fastest = max(PEERS, key=lambda side: medians[side]["speed"])
    for side in PEERS:
        print(
            f"against {side}: "
            + ", ".join(f"{name} {ratio(rounds, side, of)}" for name, of in shares(first).items())
        )
    print(
        f"batches, memory: peak {medians[OURS]['peak']:.0f} MB, in the first run "
        f"{first[OURS]['peak']:.0f} MB (target <= {TARGET_MB})"
    )
    print(f"batches: ratio {ratio(rounds, fastest, shares(first)['feeding'])} (target {TARGET:g})")


Cost = Callable[[str, Found], float]


def shares(first: dict[str, Found]) -> dict[str, Cost]:
    """Seconds for each pair of a pass: of feeding alone, with a later run's beginning, and with a first
    run's.
    """
    return {
        "feeding": lambda side, found: 1 / found["speed"],
        "a pass of a later run": lambda side, found: 1 / found["speed"] + found["first"] / found["pairs"],
        "a pass of the first run": lambda side, found: (
            1 / found["speed"] + first[side]["first"] / found["pairs"]
        ),
    }


def ratio(rounds: list[dict[str, Found]], side: str, cost: Cost) -> str:
    """How many times as long the peer takes, round by round."""
    ratios = [cost(side, one[side]) / cost(OURS, one[OURS]) for one in rounds]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Write the pairs, let each side prepare, let the sides take turns, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of public sets")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=("write", OURS, *PEERS), help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side == "write":
        from batches_pairs import write_pairs

        write_pairs(options.data, options.pairs, Path(options.file))
        print("{}")
    elif options.side:
        print(json.dumps(measure(options)))
    else:
        with tempfile.TemporaryDirectory() as work:
            options.work, options.file = work, str(Path(work) / "pairs.jsonl")
            run("write", options)
            first = {side: run(side, options) for side in (OURS, *PEERS)}
            rounds = [{side: run(side, options) for side in first} for _ in range(options.rounds)]
            report(first, rounds, options)


if __name__ == "__main__":
    main()
