"""Bad input, one command each: one line, exit code 2, and nothing left behind."""

import os
import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from adiabat.models.embedding_head import EncoderSettings
from tests.commands import (
    DOCUMENTS,
    PAIRS,
    Mistake,
    Run,
    assert_refused,
    embed,
    evaluate,
    imported,
    lines,
    listing,
    other_pairs,
    search,
    setting,
    tune,
    write_world,
)
from tests.commands import run as run
from tests.pages import no_page as no_page
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    save_tiny(here / "other", seed=5, settings=EncoderSettings(max_tokens=64))
    write_faulty_data(here)
    write_faulty_vectors(here)
    write_faulty_places(here)
    return here


def write_faulty_data(here: Path) -> None:
    lines(here / "not_json.jsonl", [PAIRS[0], "this is no JSON", "{'query': 1}"])
    lines(
        here / "reordered.jsonl",
        [*({**pair, "neg": []} for pair in reversed(PAIRS[:11])), *other_pairs("other", 10)],
    )
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
    for name, vectors in {
        "good": good,
        "bad": bad,
        "short": good[:9],
        "wide": np.ones((20, 7), dtype=np.float32),
    }.items():
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
    (here / "judged" / "qrels").mkdir(parents=True)
    lines(here / "judged" / "queries.jsonl", [{"_id": "q", "text": "a"}])
    for split in ("dev", "test"):
        (here / "judged" / "qrels" / f"{split}.tsv").write_text(
            "query-id\tcorpus-id\tscore\nq\td1\t1\n", encoding="utf-8"
        )
    os.mkfifo(here / "pipe")
    for name in ("pipe.toml", "pipe.txt", "pipe.npy", "pipe.jsonl", "pipe.json"):
        (here / name).symlink_to("pipe")
    for name, inside in (("model", "config.json"), ("model", "tokenizer.json"), ("store", "manifest.json")):
        piped = here / f"piped_{inside.removesuffix('.json')}"
        shutil.copytree(here / name, piped)
        (piped / inside).unlink()
        os.mkfifo(piped / inside)
    (here / "no_qrels").mkdir()
    lines(here / "no_qrels" / "corpus.jsonl", DOCUMENTS)
    lines(here / "no_qrels" / "queries.jsonl", [{"_id": "q", "text": "a"}])


IDS = ("--ids", "ids.txt")
MISTAKES: list[Mistake] = [
    (embed("corpsu.jsonl"), "corpsu.jsonl must exist", "did you mean corpus.jsonl"),
    (tune("pair.jsonl"), "pair.jsonl must exist", "pairs.jsonl"),
    (tune(store="stroe"), "stroe must be a store", "adiabat embed MODEL CORPUS --out stroe"),
    (
        tune("pairs.jsonl", "--config", "none.toml"),
        "none.toml must be a TOML file of settings",
        "no such file",
    ),
    (tune("not_json.jsonl"), "2 faults", "not_json.jsonl:2", "this is no JSON", "not_json.jsonl:3"),
    (embed("not_json.jsonl"), "2 faults", "not_json.jsonl:2", "this is no JSON", "not_json.jsonl:3"),
    (tune("no_keys.jsonl"), "12 faults", "no_keys.jsonl:2:", "no_keys.jsonl:11:", "and 2 more"),
    (evaluate("other_keys.jsonl"), "other_keys.jsonl:1: must have", '"positive" (an example)'),
    (tune("unknown_doc.jsonl"), "unknown_doc.jsonl:21", "d999", "adiabat embed"),
    (evaluate("unknown_doc.jsonl"), "unknown_doc.jsonl:21", "d999", "data.missing = drop"),
    (tune("empty_query.jsonl"), 'empty_query.jsonl:21: "query" must not be empty'),
    (embed("twice.jsonl"), 'twice.jsonl:21: document id must be unique, got "d3" again', "twice.jsonl:4"),
    (tune(model="other"), "store was built by another encoder", "weights", "rebuild the store"),
    (
        evaluate("pairs.jsonl", "--baseline", "other"),
        "stored by the baseline other too",
        "--baseline-store DIR",
    ),
    (evaluate("pairs.jsonl", "--baseline-store", "store"), "got store alone"),
    (evaluate("pairs.jsonl", "--baseline", "model", "--baseline-store", "store"), "must serve a data set"),
    (search(model="other"), "store was built by another encoder", "weights"),
    (embed(model="other", out="store"), "with other settings", "weights", "choose another --out"),
    (imported("bad.npy", *IDS), "2 vectors", '"d3" holds NaN', '"d7" is zero'),
    (imported("good.npy", *IDS), "agree with the encoder's at cosine >= 0.999"),
    (imported("short.npy", *IDS), "20 ids for 9 vectors"),
    (imported("wide.npy", *IDS), "encoder's width 32, got 7"),
    (imported("good.npy"), "must come with ids"),
    (imported("none.npy", *IDS), "none.npy", "there is none"),
    (imported("text.npy", *IDS), "text.npy", "npy file", "numpy.save"),
    (embed("corpus.jsonl", *IDS), "--ids names the rows of --import", "give both, or neither"),
    (imported("good.npy", "--append", out="store"), "--append encodes a corpus, and --import takes vectors"),
    (embed("corpus.jsonl", "--append", out="store"), "document ids must be new to store", '"d0"'),
    (embed("corpus.jsonl", "--append"), "new must be a store"),
    (
        embed("twice.jsonl", "--append", *setting("store.dtype=float32"), out="store"),
        "store.dtype must",
        "float32",
    ),
    (imported("good.npy", *IDS, *setting("store.keep_texts=false")), "store.keep_texts must"),
    (tune("pairs.jsonl", "--config", "typo.toml"), "2 faults", "tune.learning_rate?", "run.seed?"),
    (
        tune("pairs.jsonl", *setting('tune.freeze=["embedings"]')),
        '"embedings" must',
        "near names: embeddings",
    ),
    (tune("pairs.jsonl", *setting('tune.freeze=["embeddings", "blocks[0:1]"]')), "freeze must leave"),
    (tune(out="job"), "job holds a job already", "--resume"),
    (evaluate(out="job"), "--out must be a directory of its own, job is a job"),
    (embed(out="job"), "job must be empty or a store, it holds config.toml"),
    (tune(out="store"), "--out must be a new or empty directory", "store"),
    (evaluate(out="store"), "--out must be a directory of its own, store is a store"),
    (evaluate(out="foreign"), "--out must be new or hold an undamaged evaluation", "foreign"),
    (
        evaluate(out="notes"),
        "--out must be a new or empty directory, notes holds other files; choose another",
    ),
    (
        ("advise", "model", "store", "pairs.jsonl", "--out", "notes"),
        "--out must be a new or empty directory, notes holds other files",
    ),
    (evaluate(out="model"), "--out must be a directory of its own, model is a model"),
    (tune(out="a_file"), "a_file"),
    (embed(out="a_file"), "a_file must be a directory, it is a file"),
    (tune(out="a_file/x"), "a_file/x", "choose another"),
    (search(store="damaged"), "damaged/vectors.npy must be undamaged", "rebuild the store"),
    (tune(model="no_weights"), "no_weights must hold a transformers model", "safetensors"),
    (search(model="job"), "job is a job that is not finished", "--resume"),
    (embed(model="no-such/model"), "MODEL must be a directory", "got no-such/model"),
    (embed(model=""), "MODEL must be a directory", "got an empty text"),
    (embed(model="corpus.jsonl"), "MODEL must be a directory", "got corpus.jsonl"),
    (embed(model="notes"), "notes must be the directory of a model"),
    (search(""), "QUERY must not be empty"),
    (search("a\udcff"), "QUERY must be UTF-8 text", "character 2"),
    (embed("binary.jsonl"), "binary.jsonl:1 must be UTF-8"),
    (tune("control.jsonl"), "control.jsonl:1 must be one JSON object"),
    (embed("binary"), "binary must end in .jsonl", "got no ending"),
    (embed("empty.jsonl"), "empty.jsonl must hold at least one row"),
    (evaluate("no_qrels"), "no_qrels must hold", "qrels/"),
    (("tune", "model", "pairs.jsonl", "store", "--out", "new"), "the order is MODEL STORE DATA"),
    (("evaluate", "store", "model", "pairs.jsonl", "--out", "new"), "the order is MODEL STORE DATA"),
    (("search", "hello", "store", "--model", "model"), "the order is STORE QUERY"),
    (("embed", "corpus.jsonl", "model", "--out", "new"), "model is a model; the order is MODEL CORPUS"),
    (tune("pairs.jsonl", "--device", "cuda:63"), "run.device must be a device of this machine", "'cuda:63'"),
    (evaluate("pairs.jsonl", "--device", "gpu"), "run.device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    (evaluate("pairs.jsonl", "--retain", "store"), "--retain takes two words, STORE and DATA, got store"),
    (
        evaluate("pairs.jsonl", "--retain", "store", "pairs.jsonl"),
        "--retain must be another data set than the target",
        "pairs.jsonl",
    ),
    (
        evaluate("pairs.jsonl", "--retain", "store", "reordered.jsonl", "--baseline", "model"),
        "--retain must be another data set than pairs.jsonl, which has 11 of the "
        "21 rows of reordered.jsonl; leave it out",
    ),
    (
        evaluate("pairs.jsonl", *("--retain", "store", "corpus.jsonl") * 2),
        "--retain must name each data set once, got corpus.jsonl twice",
        "leave one out",
    ),
    (
        evaluate("judged", "--split", "test", "--retain", "store", "judged"),
        "--retain must be another data set than the target, got judged for both",
    ),
    (evaluate("pairs.jsonl", "--fail-on", "worse"), "--fail-on worse needs a baseline", "--baseline MODEL"),
    (evaluate("pairs.jsonl", "--fail-on", "better"), "--fail-on"),
    (evaluate("pairs.jsonl", "--retain=store"), "--retain takes two words", "got store"),
    (evaluate("pairs.jsonl", "--retain", "nowhere", "pairs.jsonl"), "nowhere must be a store"),
    (
        evaluate("pairs.jsonl", *setting('measure.report=["nGCD@10"]')),
        "measure.report must hold complete names",
        "'nGCD@10'",
    ),
    (evaluate("pairs.jsonl", "--split", "dev"), "split must be left out for pairs.jsonl"),
    (tune("pairs.jsonl", *setting("data.validation_fraction=0.0001")), "0 of 20 held out"),
    (
        tune("pairs.jsonl", *setting("tune.negatives=random", "tune.negatives.per_query=99")),
        "at least 100 documents",
    ),
    (("tuen",), "No such command 'tuen'", "adiabat --help"),
    (embed("corpus.jsonl", "--ot", "x"), "No such option: --ot", "adiabat embed --help"),
    (("embed", "model"), "Missing", "adiabat embed --help"),
    (search("hello", "there"), "unexpected extra argument", "there"),
    (search("hello", "-k", "0"), "-k", "must be a whole number >= 1, got 0"),
    (embed(out=""), "--out must have a value, got an empty text"),
    (embed(out="new\udcff"), "new", "must have a name in UTF-8", "rename it"),
    (embed("corpus.jsonl", "--config", ""), "--config must have a value"),
    (embed("corpus.jsonl", "--import="), "--import must have a value"),
    (embed(""), "CORPUS must not be empty"),
    (tune(""), "DATA must not be empty"),
    (tune(store=""), "STORE must not be empty"),
    (evaluate("pairs.jsonl", "--retain", "store", ""), "--retain takes two words", "got store ''"),
    (("train", "", "--out", "new"), "RUN.toml must not be empty"),
    (("distill", "static", "model", "--out", ""), "--out must have a value"),
    (
        tune("pairs.jsonl", "--config", "pipe.toml"),
        "pipe.toml must be a file or a folder, got a device, pipe or socket",
    ),
    (("train", "pipe.toml", "--out", "new"), "pipe.toml must be a file or a folder"),
    (("evaluate", "model", "--suite", "pipe.toml", "--out", "new"), "pipe.toml must be a file or a folder"),
    (imported("good.npy", "--ids", "pipe.txt"), "pipe.txt must be a file or a folder"),
    (imported("good.npy", "--ids", "pipe.npy"), "pipe.npy must be a file or a folder"),
    (imported("good.npy", "--ids", "pipe.json"), "pipe.json must be a file or a folder"),
    (imported("pipe.npy", *IDS), "pipe.npy must be a file or a folder"),
    (evaluate("pairs.jsonl", "--retain", "store", "pipe.jsonl"), "pipe.jsonl must be a file or a folder"),
    (tune("pairs.jsonl", *setting("guard.probes=pipe.jsonl")), "pipe.jsonl must be a file or a folder"),
    (tune("pairs\new.jsonl"), r"'pairs\new.jsonl' must exist", "single quotes"),
    (tune(model="piped_config"), "piped_config/config.json must be a file or a folder"),
    (search(model="piped_tokenizer"), "piped_tokenizer/tokenizer.json must be a file or a folder"),
    (search(store="piped_manifest"), "piped_manifest/manifest.json must be a file or a folder"),
    (("compare", "pipe.json", "store"), "pipe.json"),
    (
        ("distill", "static", "model", "--out", "new", "--vocabulary", "pipe.txt"),
        "pipe.txt must be a file or a folder",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[" ".join(command) for command, *_ in MISTAKES])
def test_a_mistake_gets_one_line_and_leaves_nothing_behind(mistake: Mistake, run: Run, world: Path) -> None:
    command, *facts = mistake
    before = listing(world)
    assert_refused(run(*command), *facts)
    assert listing(world) == before


def test_a_truncated_checkpoint_is_passed_over_with_a_word_and_the_run_goes_on(
    run: Run, world: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "job")
    assert run(*tune("pairs.jsonl", "--set", "run.keep_checkpoints=2", out=out)).code == 0
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
    """No file can grow beyond `limit` bytes: a write past it fails, as on a full disk (Python ignores the
    signal that comes with it).
    """
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
def test_a_full_disk_is_one_line(
    command: tuple[str, ...], limit: int, left: list[str], run: Run, tmp_path: Path
) -> None:
    with small_files(limit):
        said = run(*(word.format(out=tmp_path / "new") if word == "{out}" else word for word in command))
    assert said.code == 2, said.err
    assert said.out == ""
    assert re.search(r"^adiabat: .*(space|full|large).*$", said.err.splitlines()[-1])
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert not list(tmp_path.rglob("model/*"))
    assert not (tmp_path / "new" / "result.json").exists()
