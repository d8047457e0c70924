"""A small world for trials: tiny random models, texts, and settings of every verb."""

import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tomli_w
import torch
from pyarrow import feather, parquet
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    PreTrainedTokenizerFast,
)

from adiabat.models.model_names import load
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder

DOCUMENTS, QUERIES = 240, 60
FORMER = Path(__file__).resolve().parents[1] / "tests" / "upgrading" / "former.tar.xz"
"""Stores, jobs and results of former formats."""
KINDS = ("river", "stone", "cloud", "bread", "light", "glass", "horse", "music")
WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "which",
    "is",
    "the",
    "of",
    "and",
    "about",
    "report",
    *KINDS,
    *map(str, range(DOCUMENTS)),
)

TUNE: dict[str, Any] = {
    "tune": {
        "loss": {"margin": 0.3},
        "batch_size": 5,
        "batches_per_epoch": 8,
        "max_epochs": 4,
        "learning_rate": 1e-3,
        "keep": "last",
    },
    "data": {"validation_fraction": 0.3},
    "run": {"checkpoint_seconds": 1e-6, "log_every": 2},
}
TRAIN: dict[str, Any] = {
    "job": {"model": "model", "data": "pairs.jsonl"},
    "data": {"cache": "cache", "validation_fraction": 0.2},
    "train": {"batch_size": 4, "steps": 24, "validate_every": 8, "learning_rate": 1e-3},
    "run": {"checkpoint_seconds": 1e-6, "log_every": 2},
}
STREAM: dict[str, Any] = {
    **TRAIN,
    "data": {"cache": "cache", "validation": "held.jsonl", "stream": {"shard_size": 20}},
    "train": {**TRAIN["train"], "dropout": True},
}
SUITE: dict[str, Any] = {
    "measure": {"resamples": 100},
    "tasks": [
        {"kind": "retrieval", "name": "asked", "data": "asked.jsonl", "corpus": "corpus.jsonl"},
        {"kind": "triplets", "name": "listed", "data": "listed.jsonl"},
        {"kind": "sts", "name": "alike", "data": "alike.jsonl"},
    ],
}
SWEEP: dict[str, Any] = {
    "sweep": {"seeds": [0, 1]},
    "job": {"model": "model", "store": "store", "data": "pairs.jsonl"},
    **TUNE,
    "tune": {key: value for key, value in TUNE["tune"].items() if key != "learning_rate"},
    "grid": {"tune": {"learning_rate": [1e-4, 1e-3]}},
    "tasks": SUITE["tasks"][:1],
    "measure": {"resamples": 100},
    "probes": False,
}
SEARCHED = {key: value for key, value in TUNE["tune"].items() if key != "learning_rate"}
SEARCH: dict[str, Any] = {
    **TUNE,
    "tune": {**SEARCHED, "max_epochs": 2, "batches_per_epoch": 4},
    "rate_search": {"kind": "range", "count": 2, "steps": 4},
    "guard": {"probes": "probes.txt", "depth": 10},
}
SAFE: dict[str, Any] = {
    "tune": {"batch_size": 5, "loss": {"margin": 0.3}},
    "data": TUNE["data"],
    "run": TUNE["run"],
    "rate_search": {"count": 2, "steps": 4, "checks": 2},
    "guard": {"probes": "probes.txt", "depth": 10},
}
SCALING: dict[str, Any] = {
    "scaling": {"budgets": [2e6, 4e6], "least_steps": 1, "resamples": 8},
    "models": [{"model": "model", "name": "tiny", "blocks": [1], "pretraining_rate": 0.03}],
    "job": {"data": "pairs.jsonl"},
    "data": {"validation_fraction": 0.3, "cache": "cache"},
    "train": {"batch_size": 12, "validate_every": 100},
    "tasks": SUITE["tasks"][1:2],
    "measure": {"resamples": 100},
}
SETTINGS = {
    "tune": TUNE,
    "train": TRAIN,
    "stream": STREAM,
    "suite": SUITE,
    "sweep": SWEEP,
    "search": SEARCH,
    "safe": SAFE,
    "scaling": SCALING,
}
"""Name of a TOML file to its content."""


def write_world(folder: Path) -> None:
    """Models, texts and settings that every command of the trials reads.

    Args:
        folder: Made anew.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for seed, name in enumerate(("model", "other")):
        _write_model(folder / name, seed)
    _write_model(folder / "reranker", 2, BertForSequenceClassification, num_labels=1)
    texts = [f"{KINDS[n % 8]} {n} and {KINDS[n // 8 % 8]} {n * 7 % DOCUMENTS}" for n in range(DOCUMENTS)]
    _lines(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    asked = [
        {
            "query": f"which report is about {KINDS[n % 8]} {n}",
            "pos": [f"d{n}"],
            "neg": [f"d{n + 1}", f"d{n + 9}"],
        }
        for n in range(QUERIES)
    ]
    _lines(folder / "asked.jsonl", asked[:20])
    _lines(
        folder / "pairs.jsonl",
        [{**one, "pos": [texts[n]], "neg": [texts[n + 1], texts[n + 9]]} for n, one in enumerate(asked)],
    )
    _lines(
        folder / "held.jsonl",
        [{"query": f"which is {text}", "pos": [text], "neg": [texts[0]]} for text in texts[90:100]],
    )
    _lines(
        folder / "listed.jsonl",
        [{"query": f"which {text}", "pos": [text], "neg": texts[20:40]} for text in texts[:15]],
    )
    _lines(
        folder / "alike.jsonl",
        [{"a": texts[n], "b": texts[n * 7 % 60], "score": n * n % 11} for n in range(40)],
    )
    _lines(
        folder / "more.jsonl",
        [{"_id": f"m{n}", "text": f"the {text} of {n}"} for n, text in enumerate(texts[:40])],
    )
    _lines(
        folder / "changed.jsonl",
        [{"_id": f"d{n}", "text": f"another {text}"} for n, text in enumerate(texts[:30])],
    )
    turned = [f"d{(n + 7) % DOCUMENTS}" for n in range(DOCUMENTS)]
    _lines(
        folder / "turned.jsonl",
        [{"_id": name, "text": text} for name, text in zip(turned, texts, strict=True)],
    )
    (folder / "turned.txt").write_text("".join(f"{name}\n" for name in turned), encoding="utf-8")
    (folder / "gone.txt").write_text("".join(f"d{n}\n" for n in range(100, 130)), encoding="utf-8")
    _write_tables(folder, texts, asked[:20])
    _write_saved(folder / "saved")
    _write_spelt(folder / "spelt")
    _write_former(folder)
    _write_vectors(folder, texts)
    (folder / "probes.txt").write_text("".join(f"which {text}\n" for text in texts[:20]), encoding="utf-8")
    (folder / "squad-train-v1.1.json").write_text(json.dumps(_squad()), encoding="utf-8")
    for name, tables in SETTINGS.items():
        (folder / f"{name}.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")


def _write_model(
    folder: Path, seed: int, kind: type[BertPreTrainedModel] = BertModel, **options: Any
) -> None:
    torch.manual_seed(seed)
    size = len(WORDS)
    kind(
        BertConfig(
            vocab_size=size,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            initializer_range=0.2,
            **options,
        )
    ).save_pretrained(folder)
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)


def _write_saved(folder: Path) -> None:
    """A model whose every file counts: of the layout of sentence-transformers, with prompts, a limit, and no
    mean pooling.
    """
    tower = load(folder.parent / "model").document
    changed: dict[str, Any] = {
        "pooling": "cls",
        "query_prompt": "which report",
        "document_prompt": "the report",
        "normalize": True,
        "max_tokens": 12,
    }
    tower = tower.with_settings(replace(tower.settings, **changed))
    save(DualEncoder(tower, tower, "saved"), folder)


def _write_spelt(folder: Path) -> None:
    """A model whose words are a list in a text file."""
    shutil.copytree(folder.parent / "model", folder)
    (folder / "tokenizer.json").unlink()
    # A mask takes the place of a word: transformers would add one to the list.
    words = [*WORDS[:4], "[MASK]", *WORDS[5:]]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 64}), encoding="utf-8"
    )


def _write_former(folder: Path) -> None:
    """What adiabat 0.1 wrote without checksums, what a later version wrote with them, and settings of 0.1
    with a comment.
    """
    with tarfile.open(FORMER) as archive:
        members = [member for member in archive if member.name.startswith(("result-3/", "store-2/"))]
        archive.extractall(folder / "former", members, filter="data")
    (folder / "former.toml").write_text(
        '[tune]\nloss = "triplet"  # as in the paper\nmargin = 0.3\npull = 0.1\n', encoding="utf-8"
    )


def _write_tables(folder: Path, texts: Sequence[str], asked: Sequence[Mapping[str, Any]]) -> None:
    """The corpus and the queries in other formats, and words."""
    documents = [("_id", "text"), *((f"d{n}", text) for n, text in enumerate(texts))]
    queries = [("query", "positive"), *((row["query"], row["pos"][0]) for row in asked)]
    for name, rows in (("corpus", documents), ("asked", queries)):
        for ending, separator in (("csv", ","), ("tsv", "\t")):
            (folder / f"{name}.{ending}").write_text(
                "".join(f"{separator.join(row)}\n" for row in rows), encoding="utf-8"
            )
        columns = {column: [row[place] for row in rows[1:]] for place, column in enumerate(rows[0])}
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    content = (folder / "corpus.jsonl").read_bytes()
    for ending, codec in (("gz", "gzip"), ("zst", "zstd")):
        (folder / f"corpus.jsonl.{ending}").write_bytes(pa.Codec(codec).compress(content, asbytes=True))
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    _lines(beir / "corpus.jsonl", [{"_id": name, "text": text} for name, text in documents[1:]])
    _lines(beir / "queries.jsonl", [{"_id": f"q{n}", "text": row["query"]} for n, row in enumerate(asked)])
    judged = "".join(f"q{n}\t{row['pos'][0]}\t1\n" for n, row in enumerate(asked))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    (folder / "words.txt").write_text("".join(f"{word} report\n" for word in KINDS), encoding="utf-8")


def _write_vectors(folder: Path, texts: Sequence[str]) -> None:
    """Vectors made elsewhere, and their ids, in each format."""
    names, vectors = (
        [f"d{n}" for n in range(DOCUMENTS)],
        load(folder / "model").document.encode(list(texts), side="document"),
    )
    table = pa.table({"id": names, "vector": vectors.tolist()})
    parquet.write_table(table, folder / "vectors.parquet")
    feather.write_feather(table, folder / "vectors.arrow")
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "ids.npy", names)
    (folder / "ids.json").write_text(json.dumps(names), encoding="utf-8")
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def _lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _squad() -> dict[str, Any]:
    context = (
        "The mill was built by Ada Moor in 1801. It burnt down in 1850. Moor had left. The river is quiet."
    )
    asked = [("q1", "When did it burn?", "1850"), ("q2", "Who built it?", "Ada Moor")]
    questions = [
        {"id": name, "question": text, "answers": [{"text": one, "answer_start": context.find(one)}]}
        for name, text, one in asked
    ]
    return {
        "version": "1.1",
        "data": [{"title": "Mill", "paragraphs": [{"context": context, "qas": questions}]}],
    }
