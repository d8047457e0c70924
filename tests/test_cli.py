"""The command line: what is told to whom, with which exit code, and that a mistake costs one line and leaves nothing behind."""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from adiabat import __version__, api, cli
from adiabat.model.encoder import EncoderSettings
from tests.tiny import save_tiny

FAST = ("--set", "tune.max_epochs=2", "--set", "tune.batches_per_epoch=2", "--set", "data.validation_fraction=0.4")
DOCUMENTS = [{"_id": f"d{number}", "text": f"document {number} about {'abcdefgh'[number % 8] * 5}"} for number in range(20)]
PAIRS = [{"query": f"question {number}", "pos": [f"d{number}"], "neg": [f"d{(number + 1) % 20}"]} for number in range(20)]


@dataclass(frozen=True)
class Said:
    """What a verb left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


def lines(path: Path, rows: Sequence[object]) -> None:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")


def run_in_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str]) -> Said:
    monkeypatch.setattr(sys, "argv", ["adiabat", *arguments])
    capsys.readouterr()
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    captured = capsys.readouterr()
    return Said(code, captured.out, captured.err)


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Every path below, with size and time of change of the files."""
    found = [(path, path.stat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), *((state.st_size, state.st_mtime_ns) if path.is_file() else (0, 0))) for path, state in found]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """On matrices this small, threads wait for each other longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its store, a finished job, and all the files that are not as they should be."""
    here = tmp_path_factory.mktemp("world")
    save_tiny(here / "model", settings=EncoderSettings(max_tokens=64))
    save_tiny(here / "other", seed=5, settings=EncoderSettings(max_tokens=64))
    lines(here / "corpus.jsonl", DOCUMENTS)
    lines(here / "pairs.jsonl", PAIRS)
    api.embed(here / "model", here / "corpus.jsonl", here / "store")
    write_faulty_data(here)
    write_faulty_vectors(here)
    write_faulty_places(here)
    return here


def write_faulty_data(here: Path) -> None:
    lines(here / "not_json.jsonl", [PAIRS[0], "this is no JSON", "{'query': 1}"])
    lines(here / "no_keys.jsonl", [PAIRS[0], *([{"query": "a"}] * 12)])
    lines(here / "other_keys.jsonl", [{"query": "a", "reply": "d1"}])
    lines(here / "unknown_doc.jsonl", [*PAIRS, {"query": "x", "pos": ["d999"], "neg": ["d1"]}])
    lines(here / "empty_query.jsonl", [*PAIRS, {"query": "  ", "pos": ["d1"], "neg": ["d2"]}])
    lines(here / "twice.jsonl", [*DOCUMENTS, DOCUMENTS[3]])
    lines(here / "bad.toml", ["[tune", "x"])
    lines(here / "typo.toml", ["[tune]", "learning_rat = 1e-6", "[run]", "sede = 3"])
    (here / "empty.jsonl").touch()
    (here / "binary.jsonl").write_bytes(bytes(range(250, 0, -1)) * 4)
    (here / "control.jsonl").write_bytes(b'{"query": "a\x1b[2J"\n')
    (here / "binary").write_bytes(bytes(range(256)))


def write_faulty_vectors(here: Path) -> None:
    good = np.random.default_rng(0).standard_normal((20, 32)).astype(np.float32)
    bad = good.copy()
    bad[3, 2], bad[7] = np.nan, 0
    for name, vectors in {"good": good, "bad": bad, "short": good[:9], "wide": np.ones((20, 7), dtype=np.float32)}.items():
        np.save(here / f"{name}.npy", vectors)
    (here / "text.npy").write_text("hello")
    lines(here / "ids.txt", [document["_id"] for document in DOCUMENTS])


def write_faulty_places(here: Path) -> None:
    shutil.copytree(here / "model", here / "no_weights", ignore=shutil.ignore_patterns("*.safetensors"))
    shutil.copytree(here / "store", here / "damaged")
    (here / "damaged" / "vectors.npy").write_bytes(b"short")
    (here / "job").mkdir()
    (here / "job" / "config.toml").write_text("[job]\nmodel = 'model'\n")
    (here / "a_file").write_text("x")
    (here / "notes").mkdir()
    (here / "notes" / "todo.txt").write_text("x")
    (here / "foreign").mkdir()
    (here / "foreign" / "result.json").write_text("{}")
    (here / "no_qrels").mkdir()
    lines(here / "no_qrels" / "corpus.jsonl", DOCUMENTS)
    lines(here / "no_qrels" / "queries.jsonl", [{"_id": "q", "text": "a"}])


@pytest.fixture
def run(world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(world)
    monkeypatch.delenv("ADIABAT_DEBUG", raising=False)
    return lambda *arguments: run_in_process(capsys, monkeypatch, arguments)


def embed(corpus: str = "corpus.jsonl", *more: str, model: str = "model", out: str = "new") -> tuple[str, ...]:
    return ("embed", model, corpus, "--out", out, *more)


def tune(data: str = "pairs.jsonl", *more: str, model: str = "model", store: str = "store", out: str = "new") -> tuple[str, ...]:
    return ("tune", model, store, data, "--out", out, *FAST, *more)


def evaluate(data: str = "pairs.jsonl", *more: str, model: str = "model", store: str = "store", out: str = "new") -> tuple[str, ...]:
    return ("evaluate", model, store, data, "--out", out, *more)


def search(query: str = "hello", *more: str, model: str = "model", store: str = "store") -> tuple[str, ...]:
    return ("search", store, query, "--model", model, *more)


def imported(vectors: str, *more: str, out: str = "new") -> tuple[str, ...]:
    return embed("corpus.jsonl", "--import", vectors, *more, out=out)


def setting(*assignments: str) -> tuple[str, ...]:
    return tuple(word for assignment in assignments for word in ("--set", assignment))


IDS = ("--ids", "ids.txt")
# Name of the mistake: the command, and words that its one line must hold.
MISTAKES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "missing corpus": (embed("corpsu.jsonl"), ("corpsu.jsonl must exist", "did you mean corpus.jsonl")),
    "missing data to tune on": (tune("pair.jsonl"), ("pair.jsonl must exist", "pairs.jsonl")),
    "missing data to evaluate on": (evaluate("pair.jsonl"), ("pair.jsonl must exist", "pairs.jsonl")),
    "missing store": (tune(store="stroe"), ("stroe must be a store", "adiabat embed MODEL CORPUS --out stroe")),
    "store named by nothing": (search(store=""), ("must be a store",)),
    "missing settings": (tune("pairs.jsonl", "--config", "none.toml"), ("--config must name a file", "none.toml")),
    "settings that are no TOML": (tune("pairs.jsonl", "--config", "bad.toml"), ("bad.toml must be TOML", "line 1")),
    "settings that are a folder": (tune("pairs.jsonl", "--config", "notes"), ("--config must name a readable TOML file", "notes")),
    "examples not JSON": (tune("not_json.jsonl"), ("2 faults", "not_json.jsonl:2", "this is no JSON", "not_json.jsonl:3")),
    "corpus not JSON": (embed("not_json.jsonl"), ("2 faults", "not_json.jsonl:2", "this is no JSON", "not_json.jsonl:3")),
    "lines without their keys": (tune("no_keys.jsonl"), ("12 faults", "no_keys.jsonl:2:", "no_keys.jsonl:11:", "and 2 more")),
    "lines with other keys": (
        evaluate("other_keys.jsonl"),
        ('other_keys.jsonl:1: expected "query" and "positive"', 'columns.positive = "reply"'),
    ),
    "corpus with other keys": (embed("other_keys.jsonl"), ("other_keys.jsonl:1", "expected")),
    "unknown document while tuning": (tune("unknown_doc.jsonl"), ("unknown_doc.jsonl:21", "d999", "adiabat embed")),
    "unknown document while evaluating": (evaluate("unknown_doc.jsonl"), ("unknown_doc.jsonl:21", "d999", "data.missing = drop")),
    "empty query in the data": (tune("empty_query.jsonl"), ('empty_query.jsonl:21: "query" must not be empty',)),
    "document id twice": (embed("twice.jsonl"), ('twice.jsonl:21: document id must be unique, got "d3" again', "twice.jsonl:4")),
    "store of another encoder, tuning": (tune(model="other"), ("store was built by another encoder", "weights", "rebuild the store")),
    "store of another encoder, evaluating": (evaluate(model="other"), ("store was built by another encoder", "weights")),
    "baseline of another encoder": (evaluate("pairs.jsonl", "--baseline", "other"), ("store was built by another encoder", "weights")),
    "store of another encoder, searching": (search(model="other"), ("store was built by another encoder", "weights")),
    "store of another encoder, appending": (embed("twice.jsonl", "--append", model="other", out="store"), ("built by another encoder",)),
    "store of another encoder, embedding": (embed(model="other", out="store"), ("made otherwise", "weights", "choose another --out")),
    "NaN and zero vectors": (imported("bad.npy", *IDS), ("2 faults", '"d3" holds NaN', '"d7" is zero')),
    "vectors of another encoder": (imported("good.npy", *IDS), ("agree with the encoder's at cosine >= 0.999",)),
    "fewer vectors than ids": (imported("short.npy", *IDS), ("20 ids for 9 vectors",)),
    "vectors of another width": (imported("wide.npy", *IDS), ("encoder's width 32, got 7",)),
    "vectors without ids": (imported("good.npy"), ("must come with ids",)),
    "vectors that are not there": (imported("none.npy", *IDS), ("none.npy", "there is none")),
    "vectors that are text": (imported("text.npy", *IDS), ("text.npy", "npy file", "numpy.save")),
    "ids without vectors": (embed("corpus.jsonl", *IDS), ("ids must name the rows of vectors", "give both, or neither")),
    "ids that are not there": (imported("good.npy", "--ids", "none.txt"), ("none.txt", "there is none")),
    "importing and appending": (imported("good.npy", "--append", out="store"), ("append must add a corpus that is encoded",)),
    "appending what is there": (embed("corpus.jsonl", "--append", out="store"), ("document ids must be new to store", '"d0"')),
    "appending to nothing": (embed("corpus.jsonl", "--append"), ("new must be a store",)),
    "another dtype while appending": (
        embed("twice.jsonl", "--append", *setting("store.dtype=float32"), out="store"),
        ("store.dtype must be left out of an append", "float32"),
    ),
    "texts not kept while importing": (
        imported("good.npy", *IDS, *setting("store.keep_texts=false")),
        ("store.keep_texts must be left out of an import",),
    ),
    "unknown setting": (
        tune("pairs.jsonl", *setting("tune.learning_rat=1")),
        ("unknown key tune.learning_rat", "did you mean tune.learning_rate?"),
    ),
    "unknown settings in a file": (tune("pairs.jsonl", "--config", "typo.toml"), ("2 faults", "tune.learning_rate?", "run.seed?")),
    "learning rate of nothing": (tune("pairs.jsonl", *setting("tune.learning_rate=0")), ("tune.learning_rate must be > 0, got 0",)),
    "negative learning rate": (tune("pairs.jsonl", *setting("tune.learning_rate=-1e-5")), ("tune.learning_rate must be > 0, got -1e-05",)),
    "freezing what is not there": (
        tune("pairs.jsonl", *setting('tune.freeze=["embedings"]')),
        ('"embedings" must match a parameter', "near names: embeddings"),
    ),
    "freezing everything": (
        tune("pairs.jsonl", *setting('tune.freeze=["embeddings", "blocks[0:2]"]')),
        ("freeze must leave something to train",),
    ),
    "tuning into a job": (tune(out="job"), ("job holds a job already", "--resume")),
    "evaluating into a job": (evaluate(out="job"), ("--out must be a directory of its own, job is a job",)),
    "embedding into a job": (embed(out="job"), ("job must be empty or a store, it holds config.toml",)),
    "tuning into a store": (tune(out="store"), ("--out must be a new or empty directory", "store")),
    "evaluating into a store": (evaluate(out="store"), ("--out must be a directory of its own, store is a store",)),
    "tuning into a folder of something else": (tune(out="notes"), ("--out must be a new or empty directory", "notes")),
    "embedding into a folder of something else": (embed(out="notes"), ("notes must be empty or a store, it holds todo.txt",)),
    "evaluating over another program's result": (evaluate(out="foreign"), ("--out must hold no files of another program", "foreign")),
    "tuning into a file": (tune(out="a_file"), ("a_file",)),
    "evaluating into a file": (evaluate(out="a_file"), ("a_file is a file",)),
    "embedding into a file": (embed(out="a_file"), ("a_file must be a directory, it is a file",)),
    "tuning below a file": (tune(out="a_file/x"), ("a_file/x", "choose another")),
    "evaluating below a file": (evaluate(out="a_file/x"), ("a_file/x", "choose another")),
    "embedding below a file": (embed(out="a_file/x"), ("a_file/x", "choose another")),
    "a store that was cut short": (search(store="damaged"), ("damaged/vectors.npy must have", "rebuild the store")),
    "a model without weights": (tune(model="no_weights"), ("no_weights must hold a transformers model", "safetensors")),
    "an unfinished job as model": (search(model="job"), ("job is a job that is not finished", "--resume")),
    "a model that is nowhere": (
        embed(model="no-such/model"),
        ("MODEL must be a directory, a job, `demo` or a hub name, got no-such/model",),
    ),
    "a model named by nothing": (embed(model=""), ("MODEL must be a directory, a job, `demo` or a hub name, got nothing",)),
    "a model that is a file": (embed(model="corpus.jsonl"), ("MODEL must be a directory", "got corpus.jsonl")),
    "a folder that is no model": (embed(model="notes"), ("notes must hold a transformers model",)),
    "an empty query": (search(""), ("QUERY must hold text",)),
    "a blank query": (search(" \t"), ("QUERY must hold text",)),
    "a query of broken bytes": (search("a\udcff"), ("QUERY must be UTF-8 text", "character 2")),
    "a binary file as corpus": (embed("binary.jsonl"), ("binary.jsonl:1 must be UTF-8",)),
    "control characters in what is quoted": (tune("control.jsonl"), ("control.jsonl:1 must be one JSON object",)),
    "a file of unknown kind": (embed("binary"), ("binary must end in .jsonl", "got no ending")),
    "an empty file as corpus": (embed("empty.jsonl"), ("empty.jsonl must hold at least one row",)),
    "an empty file as data": (tune("empty.jsonl"), ("empty.jsonl must hold at least one row",)),
    "a folder of something else as corpus": (embed("notes"), ("notes must hold", "got todo.txt")),
    "a BEIR folder without qrels": (evaluate("no_qrels"), ("no_qrels must hold", "qrels/")),
    "STORE and DATA swapped": (
        ("tune", "model", "pairs.jsonl", "store", "--out", "new"),
        ("pairs.jsonl must be a store", "STORE comes before DATA"),
    ),
    "MODEL and STORE swapped": (("evaluate", "store", "model", "pairs.jsonl", "--out", "new"), ("model must be a store",)),
    "STORE and QUERY swapped": (("search", "hello", "store", "--model", "model"), ("hello must be a store",)),
    "a GPU that is not there": (tune("pairs.jsonl", "--device", "cuda:63"), ("run.device must be a device of this machine", "'cuda:63'")),
    "a device of another name": (evaluate("pairs.jsonl", "--device", "gpu"), ("run.device must be auto, cpu, cuda or cuda:N, got 'gpu'",)),
    "--retain with one word": (
        evaluate("pairs.jsonl", "--retain", "store"),
        ("--retain must be followed by two words, STORE and DATA, got store",),
    ),
    "--retain with none": (evaluate("pairs.jsonl", "--retain"), ("--retain must be followed by two words, STORE and DATA, got nothing",)),
    "--retain= with one word": (evaluate("pairs.jsonl", "--retain=store"), ("--retain must be followed by two words", "got store")),
    "--retain that runs into an option": (
        evaluate("pairs.jsonl", "--retain", "store", "--seed", "3"),
        ("--retain must be followed by two words",),
    ),
    "--retain of a missing store": (evaluate("pairs.jsonl", "--retain", "nowhere", "pairs.jsonl"), ("nowhere must be a store",)),
    "a measure of no meaning": (
        evaluate("pairs.jsonl", *setting('measure.measures=["nGCD@10"]')),
        ("measure must be a complete name", "'nGCD@10'"),
    ),
    "a split where there is none": (evaluate("pairs.jsonl", "--split", "dev"), ("split must be left out for pairs.jsonl",)),
    "validation from too little": (
        tune("pairs.jsonl", *setting("data.validation_fraction=0.0001")),
        ("20 queries are too few", "data.validation_fraction"),
    ),
    "more negatives than documents": (
        tune("pairs.jsonl", *setting("tune.negatives=random", "tune.negatives_per_query=99")),
        ("store must hold at least 100 documents",),
    ),
    "a verb that is none": (("tuen",), ("No such command 'tuen'", "adiabat --help")),
    "an option that is none": (embed("corpus.jsonl", "--ot", "x"), ("No such option: --ot", "adiabat embed --help")),
    "an argument too few": (("embed", "model"), ("Missing", "adiabat embed --help")),
    "an argument too many": (search("hello", "there"), ("unexpected extra argument", "there")),
    "no results wanted": (search("hello", "-k", "0"), ("-k", "must be a whole number >= 1, got 0")),
    "a number of results in words": (search("hello", "-k", "ten"), ("-k", "must be a whole number >= 1, got ten")),
    "a seed in words": (tune("pairs.jsonl", "--seed", "seven"), ("run.seed must be a whole number, got 'seven'",)),
    "a negative seed": (tune("pairs.jsonl", "--seed", "-1"), ("run.seed must be >= 0, got -1",)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_line_and_leaves_nothing_behind(name: str, run: Run, world: Path) -> None:
    command, words = MISTAKES[name]
    before = listing(world)
    said = run(*command)
    assert (said.code, said.out) == (2, ""), said.err
    assert re.fullmatch(r"adiabat: [^\n]+\n", said.err), said.err
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", said.err)
    assert [word for word in words if word not in said.err] == [], said.err
    assert "Input should be" not in said.err
    assert listing(world) == before


def test_a_truncated_checkpoint_is_passed_over_with_a_word_and_the_run_goes_on(run: Run, world: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "job")
    assert run(*tune(out=out)).code == 0
    newest = max((tmp_path / "job" / "checkpoints").iterdir())
    weights = newest / "state.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    shutil.rmtree(tmp_path / "job" / "model")
    said = run(*tune("pairs.jsonl", "--resume", out=out))
    assert said.code == 0
    assert f"checkpoint {newest.name} is damaged" in said.err
    assert "falling back to the one before" in said.err
    assert (tmp_path / "job" / "model" / "modules.json").is_file()


def test_checkpoints_that_are_all_truncated_end_the_run_in_one_line(run: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "job")
    assert run(*tune(out=out)).code == 0
    for weights in (tmp_path / "job" / "checkpoints").glob("*/state.safetensors"):
        weights.write_bytes(b"")
    said = run(*tune("pairs.jsonl", "--resume", out=out))
    assert said.code == 2
    assert "holds no whole checkpoint" in said.err.splitlines()[-1]


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file can grow beyond `limit` bytes: a write past it fails, as on a full disk (Python ignores the signal that comes with it)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("command", "limit", "left"),
    [
        (embed(out="{out}"), 600, ["new.building"]),
        (tune(out="{out}"), 60_000, ["new"]),
        (evaluate(out="{out}"), 3_000, []),
    ],
    ids=["embed", "tune", "evaluate"],
)
def test_a_full_disk_is_one_line(command: tuple[str, ...], limit: int, left: list[str], run: Run, tmp_path: Path) -> None:
    with small_files(limit):
        said = run(*(word.format(out=tmp_path / "new") if word == "{out}" else word for word in command))
    assert said.code == 2, said.err
    assert said.out == ""
    assert re.search(r"^adiabat: .*(space|full|large).*$", said.err.splitlines()[-1])
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert not list(tmp_path.rglob("model/*"))
    assert not (tmp_path / "new" / "result.json").exists()


def test_a_system_error_that_nobody_foresaw_is_told_plainly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "store/vectors.npy")

    monkeypatch.setattr(api, "search", full)
    said = run(*search())
    assert said.code == 2
    assert said.err == (
        "adiabat: store/vectors.npy must be readable or writable, got: No space left on device; "
        "check the path, its permissions and the free space\n"
    )


def test_a_defect_ends_with_1_and_asks_for_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "search", lambda *_, **__: 1 / 0)
    said = run(*search())
    assert said.code == 1
    assert said.err == "adiabat: defect: ZeroDivisionError: division by zero; run with --debug before the verb and report the traceback\n"


def test_debug_shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "search", lambda *_, **__: 1 / 0)
    monkeypatch.setenv("ADIABAT_DEBUG", "")
    with pytest.raises(ZeroDivisionError):
        run("--debug", *search())


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "search", interrupted)
    said = run(*search())
    assert said == Said(130, "", "adiabat: interrupted; long verbs go on where they were when the same command runs again\n")


def test_search_prints_ranks_scores_ids_and_texts(run: Run) -> None:
    said = run(*search("document 3", "-k", "2", "--compare", "model"))
    first, one, two, *rest = said.out.splitlines()
    assert (said.code, said.err, first, rest) == (0, "", "model", [])
    assert re.fullmatch(r"  1  0\.\d{4}  d\d+  document \d+ about \w+", one)
    assert re.fullmatch(r"  2  0\.\d{4}  d\d+  document \d+ about \w+", two)


@pytest.mark.parametrize(
    "query", ["x" * 100_000, "שלום עולם", "🎉👩‍👩‍👧", "--flag", "a\nb"], ids=["long", "RTL", "emoji", "dashes", "lines"]
)
def test_any_text_is_a_query(run: Run, query: str) -> None:
    said = run("search", "store", "--model", "model", "--json", "-k", "3", "--", query)
    assert (said.code, said.err) == (0, "")
    assert len(json.loads(said.out)["model"]) == 3


def test_more_results_than_documents_gives_all_of_them(run: Run) -> None:
    found = json.loads(run(*search("hello", "-k", "1000", "--json")).out)["model"]
    assert sorted(hit["doc_id"] for hit in found) == sorted(document["_id"] for document in DOCUMENTS)
    assert [hit["score"] for hit in found] == sorted((hit["score"] for hit in found), reverse=True)


@pytest.fixture
def new(tmp_path: Path) -> str:
    return str(tmp_path / "new")


def test_embed_answers_programs_on_stdout_and_people_on_stderr(run: Run, new: str) -> None:
    plain, as_json = run(*embed(out=new)), run(*embed("corpus.jsonl", "--json", out=new))
    assert (plain.code, plain.out, plain.err) == (0, f"{new}\n", "20 documents, 32 numbers each, float16\n")
    assert json.loads(as_json.out) == {"store": new, "count": 20, "width": 32, "dtype": "float16"}
    assert "finished before" in as_json.err


def test_tune_answers_programs_on_stdout_and_people_on_stderr(run: Run, new: str) -> None:
    said = run(*tune("pairs.jsonl", "--json", "--seed", "7", out=new))
    assert said.code == 0
    result = json.loads(said.out)
    assert (result["seed"], result["tuning"]["steps"]) == (7, 4)
    assert re.search(r"^tuning [\d,]+ of [\d,]+ parameters on \d+ queries$", said.err, re.MULTILINE)
    assert "4 steps in 2 epochs" in said.err.splitlines()[-1]
    assert result == json.loads((Path(new) / "result.json").read_text(encoding="utf-8"))


def test_evaluate_answers_with_the_report_or_the_whole_result(run: Run, new: str) -> None:
    plain = run(*evaluate("pairs.jsonl", "--baseline", "model", out=new))
    as_json = run(*evaluate("pairs.jsonl", "--baseline", "model", "--json", out=new))
    assert (plain.code, plain.out) == (0, f"{new}/report.html\n")
    assert "no evidence" in plain.err
    assert {change["verdict"] for change in json.loads(as_json.out)["datasets"][0]["changes"]} == {"no evidence"}


def test_retain_takes_two_words_as_often_as_wanted(run: Run, new: str) -> None:
    said = run(*evaluate("pairs.jsonl", "--retain", "store", "pairs.jsonl", "--retain", "store", "pairs.jsonl", "--json", out=new))
    assert [one["role"] for one in json.loads(said.out)["datasets"]] == ["target", "retain", "retain"]


def test_an_evaluation_may_be_repeated_into_its_own_directory(run: Run, new: str) -> None:
    assert [run(*evaluate(out=new)).code for _ in range(2)] == [0, 0]
    assert sorted(path.name for path in Path(new).iterdir()) == ["report.html", "result.json"]


def test_a_warning_is_one_line(run: Run, world: Path, new: str) -> None:
    folder = world / "beir_with_warning"
    (folder / "qrels").mkdir(parents=True)
    lines(folder / "queries.jsonl", [{"_id": "q1", "text": "one"}, {"_id": "q2", "text": "two"}])
    lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q2\td2\t0"])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = run(*evaluate(folder.name, out=new))
    assert said.code == 0
    shown = [line for line in said.err.splitlines() if "no score above 0" in line]
    assert len(shown) == 1
    assert shown[0].startswith("warning: ")
    assert ".py:" not in said.err


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False)


WITHOUT_TORCH = """
import sys
from adiabat.cli import main
try:
    main()
finally:
    slow = {"torch", "transformers", "pyarrow", "datasets", "matplotlib", "scipy", "numpy"} & set(sys.modules)
    print("loaded:", sorted(slow), file=sys.stderr)
"""


@pytest.mark.parametrize("verb", ["", "embed", "tune", "evaluate", "search", "demo"])
def test_help_is_printed_without_loading_anything_heavy(verb: str) -> None:
    done = python(WITHOUT_TORCH, *filter(None, [verb]), "--help")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "loaded: []"
    assert "Usage: adiabat" in done.stdout
    wanted = {
        "": "MODEL is a hub name",
        "embed": "--import",
        "tune": "--resume",
        "evaluate": "--retain",
        "search": "--compare",
        "demo": "--out",
    }
    assert wanted[verb] in done.stdout


def test_a_wrong_setting_is_told_without_loading_anything_heavy() -> None:
    done = python(WITHOUT_TORCH, *tune("pairs.jsonl", *setting("tune.margni=1")))
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["adiabat: unknown key tune.margni; did you mean tune.margin?", "loaded: []"]


def test_no_arguments_show_the_help(run: Run) -> None:
    said = run()
    assert said.code == 0
    assert "evaluate" in said.out


def test_the_version_is_one_line(run: Run) -> None:
    assert run("--version") == Said(0, f"{__version__}\n", "")


def test_python_m_adiabat_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "adiabat", "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")


def test_no_verb_has_more_than_about_eight_options_and_shared_ones_mean_the_same() -> None:
    pages = {verb: python(WITHOUT_TORCH, verb, "--help").stdout for verb in ("embed", "tune", "evaluate", "search")}
    options = {verb: set(re.findall(r"^\W*(--[a-z-]+|-k)\b", page, re.MULTILINE)) - {"--help"} for verb, page in pages.items()}
    assert {verb: len(found) for verb, found in options.items() if len(found) > 9} == {}
    assert set.intersection(*options.values()) == {"--config", "--set", "--device", "--json"}


def test_folding_leaves_everything_else_as_it_stands() -> None:
    words = ["evaluate", "m", "--retain", "s", "d", "x", "--", "--retain", "a"]
    assert cli._folded(words) == ["evaluate", "m", "--retain", "s\0d", "x", "--", "--retain", "a"]
