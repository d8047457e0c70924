"""What the trials of kills and of mutations share: a small world, commands in forked processes, and what a folder holds.

Commands run in a fork of a process that has imported everything, since a start of the command line takes seconds and a trial less than one.
"""

import csv
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["XDG_CACHE_HOME"] = "/nonexistent"
os.environ.setdefault("COLUMNS", "200")

import pyarrow.parquet as pq
import tomli_w
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import adiabat
from adiabat import cli
from adiabat.mining import mine as mining
from adiabat.report import pages
from adiabat.store import build

DOCUMENTS, QUERIES = 240, 60
KINDS = ("river", "stone", "cloud", "bread", "light", "glass", "horse", "music")
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "which", "is", "the", "of", "and", "about", "report", *KINDS, *map(str, range(DOCUMENTS)))

TUNE: dict[str, Any] = {
    "tune": {"loss": {"margin": 0.3}, "batch_size": 5, "batches_per_epoch": 8, "max_epochs": 4, "learning_rate": 1e-3, "keep": "last"},
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


def write_world(folder: Path) -> None:
    """Models, texts and settings that every command of the trials reads.

    Args:
        folder: Made anew.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for seed, name in enumerate(("model", "other")):
        _write_model(folder / name, seed)
    texts = [f"{KINDS[n % 8]} {n} and {KINDS[n // 8 % 8]} {n * 7 % DOCUMENTS}" for n in range(DOCUMENTS)]
    _lines(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    asked = [
        {"query": f"which report is about {KINDS[n % 8]} {n}", "pos": [f"d{n}"], "neg": [f"d{n + 1}", f"d{n + 9}"]} for n in range(QUERIES)
    ]
    _lines(folder / "asked.jsonl", asked[:20])
    _lines(folder / "pairs.jsonl", [{**one, "pos": [texts[n]], "neg": [texts[n + 1], texts[n + 9]]} for n, one in enumerate(asked)])
    _lines(folder / "held.jsonl", [{"query": f"which is {text}", "pos": [text], "neg": [texts[0]]} for text in texts[90:100]])
    _lines(folder / "listed.jsonl", [{"query": f"which {text}", "pos": [text], "neg": texts[20:40]} for text in texts[:15]])
    _lines(folder / "alike.jsonl", [{"a": texts[n], "b": texts[n * 7 % 60], "score": n * n % 11} for n in range(40)])
    for name, tables in {"tune": TUNE, "train": TRAIN, "stream": STREAM, "suite": SUITE, "sweep": SWEEP}.items():
        (folder / f"{name}.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")


def _write_model(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    size = len(WORDS)
    BertModel(
        BertConfig(vocab_size=size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, initializer_range=0.2)
    ).save_pretrained(folder)
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_max_length=64, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)


def _lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@dataclass(frozen=True)
class Verb:
    """A command that is tried.

    Attributes:
        name: Of the trial.
        words: Of the command line.
        left: Files and folders that it leaves.
        again: Words that are added where it goes on.
        needs: Verbs whose results it reads.
    """

    name: str
    words: Sequence[str]
    left: Sequence[str]
    again: Sequence[str] = ()
    needs: Sequence[str] = ()


RESUME = ("--resume",)
VERBS = {
    verb.name: verb
    for verb in (
        Verb("embed", ("embed", "model", "corpus.jsonl", "--out", "store"), ("store",)),
        Verb("tune", ("tune", "model", "store", "pairs.jsonl", "--out", "tuned", "--config", "tune.toml"), ("tuned",), RESUME, ("embed",)),
        Verb("train", ("train", "train.toml", "--out", "trained"), ("trained", "cache"), RESUME),
        Verb("stream", ("train", "stream.toml", "--out", "streamed"), ("streamed", "cache"), RESUME),
        Verb(
            "mine",
            ("mine", "pairs.jsonl", "corpus.jsonl", "--out", "mined.jsonl", "--index", "index", "--set", "mine.depth=20"),
            ("mined.jsonl", "mined.jsonl.stats.json", "index"),
        ),
        Verb("suite", ("evaluate", "model", "other", "bm25", "--suite", "suite.toml", "--out", "suite"), ("suite",)),
        Verb("sweep", ("sweep", "sweep.toml", "--out", "sweep"), ("sweep",), RESUME, ("embed",)),
    )
}


FILES = pages.files


def prepare() -> None:
    """Import what commands import when they run, and make blocks so small that a run has many moments."""
    assert build.build_store.__kwdefaults__ is not None
    build.build_store.__kwdefaults__["chunk_size"] = 16
    vars(mining)["BLOCK_QUERIES"] = 4
    vars(pages)["files"] = lambda record: {"report.html": lambda: "page"} if record.kind in ("training", "evaluation") else FILES(record)
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.zeros(1)]).step()
    assert adiabat.__name__


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Exit code; negative where a signal ended it.
        out: Of stdout.
        err: Of stderr.
        seconds: That it took.
    """

    code: int
    out: str
    err: str
    seconds: float


def begin(words: Sequence[str], folder: Path) -> int:
    """Begin a command in a process of its own; what it prints goes to files beside the folder.

    Args:
        words: Of the command line.
        folder: To work in.

    Returns:
        Number of the process.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        for descriptor, ending in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(f"{folder}{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = ["adiabat", *words]
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def wait(child: int, folder: Path, *, begun: float) -> Ended:
    """Wait for a command.

    Args:
        child: From `begin`.
        folder: Likewise.
        begun: By the clock `time.monotonic`.

    Returns:
        How it ended.
    """
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out, err = (Path(f"{folder}{ending}").read_text(encoding="utf-8", errors="replace") for ending in (".out", ".err"))
    return Ended(code, out, err, time.monotonic() - begun)


def run(words: Sequence[str], folder: Path, *, kill_after: float | None = None) -> Ended:
    """Run a command, and end it by SIGKILL where it takes longer than it may.

    Args:
        words: Of the command line.
        folder: To work in.
        kill_after: Seconds; None lets it end.

    Returns:
        How it ended.
    """
    begun = time.monotonic()
    child = begin(words, folder)
    if kill_after is not None:
        time.sleep(kill_after)
        # Not waited for yet: the number is still its own.
        os.kill(child, signal.SIGKILL)
    return wait(child, folder, begun=begun)


def place(world: Path, folder: Path, made: Mapping[str, Path]) -> Path:
    """A folder to work in, with the world's files and copies of what commands made before.

    Args:
        world: Whose files are linked to.
        folder: Made anew.
        made: Name to what is copied there.

    Returns:
        The folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in world.iterdir():
        (folder / path.name).symlink_to(path)
    for name, path in made.items():
        if path.is_dir():
            shutil.copytree(path, folder / name, symlinks=True)
        else:
            shutil.copy2(path, folder / name)
    return folder


VARYING = ("seconds", "created", "command", "checksum", "log", "step_seconds", "memory", "versions")
"""Keys of records that differ between equal runs."""


def contents(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """What a command left, without what differs between equal runs: times of day, seconds, and checksums of those.

    Args:
        folder: It worked in.
        names: Of what it left.

    Returns:
        Path to content.
    """
    files = [path for name in names for path in ([folder / name] if (folder / name).is_file() else sorted((folder / name).rglob("*")))]
    return {str(path.relative_to(folder)): _content(path) for path in files if path.is_file() and path.name not in PASSED_OVER}


PASSED_OVER = (".checked.json", "report.html")
"""What is remembered of checks, and pages, which show times."""


def _content(path: Path) -> Any:
    try:
        return _read(path)
    except (OSError, ValueError):
        # Damaged on purpose, and read by nobody.
        return path.read_bytes()


def _read(path: Path) -> Any:
    if path.suffix == ".parquet":
        rows = pq.ParquetFile(path).read().to_pylist()
        return [plain({**row, **({"record": json.loads(row["record"])} if "record" in row else {})}) for row in rows]
    if path.suffix == ".json" and path.name != "tokenizer.json":
        return plain(json.loads(path.read_text(encoding="utf-8")))
    if path.name == "log.jsonl":
        return [plain(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".csv":
        return [plain(row) for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    if path.suffix in (".md", ".tex"):
        return re.sub(r"[0-9.]+ ?(ms|s|min|h)\b", "", path.read_text(encoding="utf-8"))
    return path.read_bytes()


def plain(value: Any) -> Any:
    """A record without what differs between equal runs.

    Args:
        value: JSON.

    Returns:
        The same without the keys in `VARYING`.
    """
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in VARYING}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Files that are missing, more than wanted, or other ones.

    Args:
        found: From `contents`.
        wanted: Likewise.

    Returns:
        Their paths.
    """
    return sorted(path for path in {*found, *wanted} if found.get(path) != wanted.get(path) or (path in found) != (path in wanted))


def made_whole(world: Path, folder: Path, verbs: Sequence[Verb]) -> Iterator[tuple[Verb, Ended, Mapping[str, Path]]]:
    """Run verbs without interruption, those first that others need.

    Args:
        world: They read.
        folder: Where results are kept.
        verbs: In an order in which each comes after those that it needs.

    Yields:
        The verb, how it ended, and everything made so far by name.
    """
    made: dict[str, Path] = {}
    for verb in verbs:
        needed = {name: path for need in verb.needs for name, path in made.items() if name in VERBS[need].left}
        # Where trials work too: what is cached goes by the paths of files.
        here = place(world, folder.parent / "work", needed)
        ended = run(verb.words, here)
        if ended.code:
            raise SystemExit(f"{verb.name} failed: {ended.err}")
        shutil.rmtree(folder / verb.name, ignore_errors=True)
        shutil.copytree(here, folder / verb.name, symlinks=True)
        made |= {name: folder / verb.name / name for name in verb.left}
        yield verb, ended, made
