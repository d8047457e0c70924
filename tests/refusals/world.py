"""One world in which every verb finds what it takes, and what it must refuse."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import adiabat
from adiabat.models.embedding_head import EncoderSettings
from tests.commands import DOCUMENTS, PAIRS, lines, other_pairs, write_world
from tests.tiny import save_tiny

GRID = {"label": 0, "premise": {"en": "a b", "de": "c d"}, "hypothesis": {"en": "e f", "de": "g h"}}
ROWS: dict[str, list[object]] = {
    # Data as it should be.
    "train.jsonl": [
        {"query": pair["query"], "positive": document["text"]}
        for pair, document in zip(PAIRS, DOCUMENTS, strict=True)
    ],
    "sts.jsonl": [{"a": row["text"], "b": "a text", "score": number} for number, row in enumerate(DOCUMENTS)],
    "parallel.jsonl": [{"en": f"text {number}", "de": f"Satz {number}"} for number in range(20)],
    "grid.jsonl": [GRID],
    "other.jsonl": [{"_id": "a", "text": "a"}],
    "ids.txt": [document["_id"] for document in DOCUMENTS],
    # Faults of files.
    "not_json.jsonl": [PAIRS[0], "this is no JSON", "{'query': 1}"],
    "control.jsonl": ['{"query": "a\x1b[2J"'],
    "empty.jsonl": [],
    # Faults of rows.
    "no_keys.jsonl": [PAIRS[0], *([{"query": "a"}] * 12)],
    "other_keys.jsonl": [{"query": "a", "reply": "d1"}],
    "strange.jsonl": [{"frage": "how?", "treffer": "so"}],
    "law.csv": ["frage,dokument", *(f"what about law {number},d{number}" for number in range(14))],
    "unknown_doc.jsonl": [*PAIRS, {"query": "x", "pos": ["d999"], "neg": ["d1"]}],
    "absent.jsonl": [{"query": f"question {number}", "pos": [f"d{number + 5}"]} for number in range(20)],
    "empty_query.jsonl": [*PAIRS, {"query": "  ", "pos": ["d1"], "neg": ["d2"]}],
    "twice.jsonl": [*DOCUMENTS, DOCUMENTS[3]],
    # Too few queries or documents, and sets that repeat another.
    "one.jsonl": PAIRS[:1],
    "few.jsonl": other_pairs("few", 9),
    "copy.jsonl": PAIRS,
    "reordered.jsonl": [*({**pair, "neg": []} for pair in reversed(PAIRS[:11])), *other_pairs("other", 10)],
    "two.jsonl": [
        {"en": f"law {number}", "de": f"Gesetz {number}", "pos": f"d{number}"} for number in range(12)
    ],
    # Updates of a store.
    "changed.jsonl": [
        {"_id": f"d{number}", "text": f"document {number} about xyz"} for number in (2, 5, 20, 21)
    ],
    "leaving.txt": ["d1"],
    "unknown.txt": ["d1", "d77"],
}

TASK = '[[tasks]]\nkind = "retrieval"\nname = "test"\ndata = "{data}"\ncorpus = "corpus.jsonl"\n'
STS = '[[tasks]]\nkind = "sts"\nname = "likeness"\ndata = "{data}"\n'
JOB = "[job]\nmodel = 'model'\nstore = 'store'\ndata = 'pairs.jsonl'\n"
SHORT = "[tune]\nmax_epochs = 1\nbatches_per_epoch = 2\n[grid]\ntune.learning_rate = [1e-6, 1e-5]\n"
PROBES = "[probes]\ndata = 'corpus.jsonl'\n"
RUN = "[job]\nmodel = 'model'\ndata = 'train.jsonl'\n[data]\nvalidation_fraction = 0.3\n"
SCALED = "[scaling]\nbudgets = [1e9, 4e9]\n[[models]]\nmodel = '{model}'\npretraining_rate = 1e-3\n"
TRAIN_SWEEP = "[sweep]\nverb = 'train'\n[train]\nsteps = 2\n[grid]\ntrain.learning_rate = [1e-6, 1e-5]\n"
TEXTS: dict[str, str] = {
    "run.toml": RUN,
    "no_model.toml": RUN.replace("model = 'model'\n", ""),
    "typos.toml": RUN.replace("fraction", "frction").replace("[job]", "[jobs]"),
    "typo.toml": "[tune]\nlearning_rat = 1e-6\n[run]\nsede = 3\n",
    "bad.toml": "[train\n",
    "suite.toml": TASK.format(data="pairs.jsonl"),
    "lost.toml": TASK.format(data="gone.jsonl"),
    "of_mteb.toml": '[[tasks]]\nkind = "mteb"\ntask = "STS17"\n',
    "sts.toml": STS.format(data="sts.jsonl"),
    # Of another layout than the task's.
    "faulty.toml": STS.format(data="pairs.jsonl"),
    "sweep.toml": JOB + SHORT + TASK.format(data="pairs.jsonl") + PROBES,
    "lost_sweep.toml": JOB + SHORT + TASK.format(data="gone.jsonl"),
    "train_sweep.toml": TRAIN_SWEEP + TASK.format(data="pairs.jsonl"),
    "scaling.toml": SCALED.format(model="model") + "[job]\ndata = 'train.jsonl'\n",
    "lost_scaling.toml": SCALED.format(model="gone/model") + "[job]\ndata = 'pairs.jsonl'\n",
    # Places that hold something else.
    "a_file": "x",
    "notes/todo": "x",
    "job/config.toml": "[job]\nmodel = 'model'\n",
    "foreign/result.json": "{}",
    "first.parquet": "none",
    "second.parquet": "none",
    "text.npy": "hello",
}


def write_mistakes(here: Path) -> None:
    """Models, stores, data, settings and places, right and wrong."""
    write_world(here)
    save_tiny(here / "other", seed=5, settings=EncoderSettings(max_tokens=64))
    save_tiny(here / "small", seed=3, width=16, settings=EncoderSettings(max_tokens=64))
    adiabat.embed(here / "small", here / "corpus.jsonl", here / "small_store")
    for name, rows in ROWS.items():
        lines(here / name, rows)
    for name, text in TEXTS.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text, encoding="utf-8")
    (here / "binary").write_bytes(bytes(range(256)))
    (here / "binary.jsonl").write_bytes(bytes(range(250, 0, -1)) * 4)
    _write_vectors(here)
    _write_folders(here)
    _write_pipes(here)


def _write_vectors(here: Path) -> None:
    good = np.random.default_rng(0).standard_normal((20, 32)).astype(np.float32)
    bad = good.copy()
    bad[3, 2], bad[7] = np.nan, 0
    vectors = {"vectors": good, "bad": bad, "short": good[:9], "wide": np.ones((20, 7), dtype=np.float32)}
    ids = [document["_id"] for document in DOCUMENTS]
    adiabat.import_vectors(np.ones((20, 9), dtype=np.float32), here / "bare_store", ids=ids)
    for name, array in {**vectors, "codes": np.ones((20, 32), dtype=np.int8)}.items():
        np.save(here / f"{name}.npy", array)


def _write_folders(here: Path) -> None:
    """Folders of data, and damaged ones."""
    shutil.copytree(here / "model", here / "no_weights", ignore=shutil.ignore_patterns("*.safetensors"))
    shutil.copytree(here / "store", here / "damaged")
    (here / "damaged" / "vectors.npy").write_bytes(b"short")
    (here / "split" / "data").mkdir(parents=True)
    for split, rows in (("train", PAIRS[:14]), ("validation", PAIRS[14:])):
        pq.write_table(pa.Table.from_pylist(rows), here / f"split/data/{split}-00000-of-00001.parquet")
    (here / "judged" / "qrels").mkdir(parents=True)
    (here / "no_qrels").mkdir()
    lines(here / "no_qrels" / "corpus.jsonl", DOCUMENTS)
    for name in ("judged", "no_qrels"):
        lines(here / name / "queries.jsonl", [{"_id": "q", "text": "a"}])
    for split in ("dev", "test"):
        lines(here / "judged" / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", "q\td1\t1"])


def _write_pipes(here: Path) -> None:
    """Pipes in the place of files: whoever opens one waits for ever."""
    os.mkfifo(here / "pipe")
    for ending in ("toml", "txt", "npy", "jsonl", "json"):
        (here / f"pipe.{ending}").symlink_to("pipe")
    for source, name in (("model", "config"), ("model", "tokenizer"), ("store", "manifest")):
        piped = Path(shutil.copytree(here / source, here / f"piped_{name}"))
        (piped / f"{name}.json").unlink()
        os.mkfifo(piped / f"{name}.json")
