"""Stores whose documents OpenVINO encodes: the graph in int8 stays with its vectors, and what was begun goes
on as it began.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.core.errors import AdiabatError, ConfigError, StoreError
from adiabat.data.records import Side
from adiabat.models.backend_choice import Candidate
from adiabat.models.device import minimum_cosine
from adiabat.models.encoder import Encoder
from adiabat.models.model_names import load
from adiabat.models.openvino_graphs import OpenVinoRuntime, runtimes_of
from adiabat.store import ingestion
from adiabat.store.manifest import GRAPH_FILE, GRAPH_WEIGHTS_FILE, Manifest, VectorFile
from adiabat.store.quantisation import by_graph, effect_of, known_item_gains, parted
from adiabat.store.vector_store import Store
from tests.commands import run_in_process
from tests.refused import one_line
from tests.store.crashes import CutError
from tests.tiny import save_tiny, tiny_dual

pytest.importorskip("openvino")
pytest.importorskip("nncf")

WORDS = ["river", "railway", "committee", "cost", "שלום", "supply", "theorem", "noise"]
CORPUS = [
    {"_id": f"d{number}", "text": f"The {WORDS[number % 8]} of {number}. It is {WORDS[number % 5]} {number}."}
    for number in range(30)
]
NEW = [{"_id": f"n{number}", "text": f"new {WORDS[number % 8]} number {number}"} for number in range(9)]
CHUNK = 8


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion, "CHUNK_SIZE", CHUNK)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a store of it in int8 whose build was interrupted after two chunks."""
    folder = tmp_path_factory.mktemp("quantised")
    save_tiny(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, after=2)
        with pytest.raises(CutError):
            embed(folder / "half")
    shutil.copytree(folder / "half.building", folder / "int8.building")
    embed(folder / "int8")
    return folder


@pytest.fixture
def once_converted(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is converted once for all tests: that takes most of their time."""

    def converted(tower: Encoder, side: Side, precisions: Sequence[str]) -> list[OpenVinoRuntime]:
        assert list(precisions) == ["fp32"]
        return [_converted(world / "model")]

    monkeypatch.setattr("adiabat.models.openvino_graphs.runtimes_of", converted)


@cache
def _converted(folder: Path) -> OpenVinoRuntime:
    # Without prompts, one graph serves both sides.
    return runtimes_of(load(folder).document, "document", ["fp32"])[0]


def embed(out: Path, corpus: Any = CORPUS, **options: Any) -> Store:
    return adiabat.embed(out.parent / "model", corpus, out, **{"precision": "int8", **options})


def interrupt(patch: pytest.MonkeyPatch, *, after: int) -> None:
    """Let the process end while a later chunk is written."""
    append, written = VectorFile.append, list[int]()

    def cut(file: VectorFile, vectors: np.ndarray) -> None:
        if len(written) == after:
            raise CutError
        written.append(len(vectors))
        append(file, vectors)

    patch.setattr(VectorFile, "append", cut)


def by_its_graph(world: Path, texts: list[str], store: Path | None = None) -> np.ndarray:
    """Vectors of texts by the graph of a store, chunk by chunk, as it has them."""
    model = by_graph(load(world / "model"), store or world / "int8")
    chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
    return np.concatenate([model.encode(chunk, side="document") for chunk in chunks]).astype(np.float16)


def copied(world: Path, folder: Path, *names: str) -> None:
    for name in ("model", *names):
        shutil.copytree(world / name, folder / name)


# --- Building ---


def test_a_resumed_build_has_the_vectors_of_one_graph(world: Path) -> None:
    state = json.loads((world / "half.building" / "state.json").read_text())
    assert (state["encoding"], state["encoded"]) == ("openvino int8", 2 * CHUNK)
    store = Store.open(world / "int8")
    for name in (GRAPH_FILE, GRAPH_WEIGHTS_FILE):
        assert (store.path / name).read_bytes() == (world / "half.building" / name).read_bytes()
    texts = [row["text"] for row in CORPUS]
    assert np.array_equal(store.vectors, by_its_graph(world, texts))
    exact = load(world / "model").encode(texts, side="document", precision="fp32")
    assert 0.9 < minimum_cosine(exact, store.gather(range(store.count))) < 0.99999


def test_a_resumed_build_is_not_quantised_again(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, tmp_path, "half.building")
    monkeypatch.setattr("adiabat.store.quantisation.write_quantised", None)
    store = embed(tmp_path / "half")
    assert np.array_equal(store.vectors, Store.open(world / "int8").vectors)


def test_the_manifest_says_what_int8_changes(world: Path) -> None:
    manifest = Manifest.read(world / "int8")
    assert manifest.fingerprint is not None
    weights = manifest.files[GRAPH_WEIGHTS_FILE].sha256
    assert manifest.fingerprint.quantised == f"int8 {weights}"
    effect = manifest.quantisation
    assert effect is not None
    assert (effect.calibrated, effect.compared, effect.queries) == (30, 30, 30)
    assert 0.9 < effect.minimum_cosine <= effect.mean_cosine < 1
    assert effect.before is not None
    assert effect.difference is not None
    for fact in (
        f"{effect.minimum_cosine:.4f}",
        "nDCG@10",
        f"{effect.before:.4f}",
        "30\N{NO-BREAK SPACE}documents",
    ):
        assert fact in effect.told


def test_the_same_call_opens_the_finished_store_and_another_precision_is_refused(world: Path) -> None:
    assert embed(world / "int8").count == 30
    for precision in ("auto", "fp32"):
        with one_line(StoreError, "quantisation int8 in the store, none requested"):
            embed(world / "int8", precision=precision)


@pytest.mark.parametrize("options", [{"precision": "auto"}, {"precision": "fp32", "backend": "openvino"}])
def test_an_interrupted_build_goes_on_only_as_it_began(
    world: Path, tmp_path: Path, options: dict[str, str]
) -> None:
    copied(world, tmp_path, "half.building")
    with one_line(StoreError, "openvino int8", options["precision"], "remove the folder"):
        embed(tmp_path / "half", **options)


def test_a_build_by_torch_does_not_go_on_in_int8(world: Path, tmp_path: Path) -> None:
    copied(world, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, after=1)
        with pytest.raises(CutError):
            embed(tmp_path / "store", precision="fp32")
    with one_line(StoreError, "interrupted build by torch", "int8"):
        embed(tmp_path / "store")
    with one_line(StoreError, "interrupted build by torch", "openvino"):
        embed(tmp_path / "store", precision="fp32", backend="openvino")
    assert embed(tmp_path / "store", precision="fp32").count == 30


@pytest.mark.usefixtures("once_converted")
def test_a_build_by_openvino_goes_on_by_it(world: Path, tmp_path: Path) -> None:
    copied(world, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, after=1)
        with pytest.raises(CutError):
            embed(tmp_path / "store", precision="fp32", backend="openvino")
    state = json.loads((tmp_path / "store.building" / "state.json").read_text())
    assert state["encoding"] == "openvino fp32"
    with one_line(StoreError, "openvino fp32", "torch"):
        embed(tmp_path / "store", precision="fp32", backend="torch")
    # Nothing chooses anew: the corpus is far too small for OpenVINO to pay.
    store = embed(tmp_path / "store", precision="auto")
    model = load(world / "model")
    exact = model.encode([row["text"] for row in CORPUS], side="document", precision="fp32")
    assert minimum_cosine(exact, store.gather(range(store.count))) >= 0.99999
    assert GRAPH_FILE not in store.manifest.files
    assert store.fingerprint == model.fingerprint("document")


@pytest.mark.usefixtures("once_converted")
def test_auto_measures_a_large_corpus_once(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, tmp_path)
    monkeypatch.setattr("adiabat.models.backend_choice.WORTH_MEASURING", len(CORPUS))
    asked: list[Sequence[str]] = []

    def second(found: Sequence[Candidate], texts: Sequence[str], note: Callable[[str], None]) -> Candidate:
        asked.append(texts)
        return found[1]

    monkeypatch.setattr(ingestion, "fastest", second)
    few = embed(tmp_path / "few", CORPUS[:-1], precision="fp32")
    assert not asked
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, after=1)
        with pytest.raises(CutError):
            embed(tmp_path / "store", precision="fp32")
    state = json.loads((tmp_path / "store.building" / "state.json").read_text())
    assert state["encoding"] == "openvino fp32"
    store = embed(tmp_path / "store", precision="fp32")
    (texts,) = asked
    assert set(texts) <= {row["text"] for row in CORPUS}
    assert minimum_cosine(few.gather(range(29)), store.gather(range(29))) >= 0.99999


def test_a_graph_of_a_build_that_was_given_up_goes(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, tmp_path)

    def write(tower: Encoder, side: Side, texts: Sequence[str], path: Path) -> None:
        path.write_text("half a graph")
        raise CutError

    monkeypatch.setattr("adiabat.store.quantisation.write_quantised", write)
    with pytest.raises(CutError):
        embed(tmp_path / "store")
    assert (tmp_path / "store.building" / GRAPH_FILE).exists()
    assert not (embed(tmp_path / "store", precision="fp32").path / GRAPH_FILE).exists()


@pytest.mark.parametrize("name", [GRAPH_FILE, GRAPH_WEIGHTS_FILE])
def test_a_damaged_graph_is_refused_with_its_file(world: Path, tmp_path: Path, name: str) -> None:
    copied(world, tmp_path, "half.building", "int8")
    for folder in ("half.building", "int8"):
        content = bytearray((tmp_path / folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / folder / name).write_bytes(content)
    with one_line(StoreError, name, "half.building", "remove the folder"):
        embed(tmp_path / "half")
    with one_line(StoreError, name, "rebuild the store"):
        embed(tmp_path / "int8", NEW, append=True)


# --- A finished store ---


def test_new_documents_are_encoded_by_the_graph_of_the_store(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(world, tmp_path, "int8")
    before = Manifest.read(tmp_path / "int8")
    store = embed(tmp_path / "int8", NEW, append=True, precision="auto", progress=True)
    assert "in int8, so its quantised graph encodes" in capsys.readouterr().err
    texts = [row["text"] for row in NEW]
    assert np.array_equal(store.vectors[30:], by_its_graph(world, texts))
    changed = [{**CORPUS[3], "text": "another text"}]
    embed(tmp_path / "int8", changed, update=True)
    adiabat.delete(tmp_path / "int8", ["d1"])
    after = adiabat.compact(tmp_path / "int8").manifest
    assert after.quantisation == before.quantisation
    assert after.fingerprint == before.fingerprint
    assert after.files.keys() == before.files.keys()
    Store.open(tmp_path / "int8").verify()


def test_its_own_tower_reads_it_and_others_do_not(world: Path) -> None:
    store, model = Store.open(world / "int8"), load(world / "model")
    store.require_encoder(model.fingerprint("document"))
    hit = next(iter(adiabat.search(store, CORPUS[4]["text"], model=model, k=3)))
    assert hit.doc_id == "d4"
    with one_line(StoreError, "built by another encoder", "weights"):
        store.require_encoder(tiny_dual(seed=7).fingerprint("document"))


@pytest.mark.usefixtures("once_converted")
def test_queries_are_encoded_by_openvino_too(world: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"query": row["text"][:14], "pos": [row["_id"]]}) + "\n" for row in CORPUS)
    )
    model = load(world / "model")
    found = [
        adiabat.search(world / "int8", "The river", model=model, settings={"run": {"backend": backend}})
        for backend in ("torch", "openvino")
    ]
    assert [hit.doc_id for hit in found[0]] == [hit.doc_id for hit in found[1]]
    assert [hit.score for hit in found[0]] == pytest.approx([hit.score for hit in found[1]], abs=1e-5)
    measured = [
        adiabat.evaluate(
            model, world / "int8", tmp_path / "pairs.jsonl", backend=backend, negatives="store", resamples=100
        )
        for backend in ("torch", "openvino")
    ]
    values = [result.datasets[0].main_change().after for result in measured]
    assert values[0] == pytest.approx(values[1], abs=1e-6)
    # The model of the caller stays with torch.
    assert not model.query.runtimes


def test_a_store_of_torch_has_the_keys_of_earlier_versions(world: Path, tmp_path: Path) -> None:
    copied(world, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, after=1)
        with pytest.raises(CutError):
            embed(tmp_path / "store", precision="fp32")
    state = json.loads((tmp_path / "store.building" / "state.json").read_text())
    prints = {
        *("backbone", "max_tokens", "normalize", "pooling", "prompt", "tokenizer", "weights", "width"),
    }
    assert state.keys() == {
        *("checksum", "chunk_size", "corpus", "count", "dtype", "encoded", "files", "fingerprint", "format"),
        *("sha256", "written_by"),
    }
    assert state["fingerprint"].keys() == prints
    embed(tmp_path / "store", precision="fp32")
    record = json.loads((tmp_path / "store" / "manifest.json").read_text())
    assert record.keys() == {
        *("checksum", "corpus", "count", "created", "dtype", "encoder", "files", "fingerprint", "format"),
        *("sha256", "source", "version", "width"),
    }
    assert record["fingerprint"].keys() == prints


# --- What is measured ---


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two. Three", ("One.", "Two. Three")),
        ("Is it? Yes.", ("Is it?", "Yes.")),
        ("title\nbody", ("title", "body")),
        ("no end", ("", "no end")),
        ("one only. ", ("", "one only. ")),
        ("", ("", "")),
        ("句子。第二句", ("句子。", "第二句")),
        ("v1.2 is out", ("", "v1.2 is out")),
    ],
)
def test_the_first_sentence_asks_for_the_rest(text: str, parts: tuple[str, str]) -> None:
    assert parted(text) == parts


def test_known_item_gains_by_hand() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [5.0, 5.0, 1.0]])
    # First, third, and behind one of an equal score.
    found = known_item_gains(scores, np.array([0, 1, 0]))
    np.testing.assert_allclose(found, [1.0, 0.5, 1 / np.log2(3)])
    assert known_item_gains(np.arange(11.0)[None], np.array([0])).tolist() == [0.0]


def test_a_model_compared_with_itself_loses_nothing() -> None:
    model = tiny_dual()
    effect = effect_of(model, model, [row["text"] for row in CORPUS], 5)
    assert effect.minimum_cosine > 0.999
    assert effect.before == pytest.approx(effect.after)
    assert effect_of(model, model, ["no end"], 1).before is None


# --- Refusals ---


def of_int8_store(world: Path, folder: Path, **options: Any) -> object:
    return embed(world / "int8", NEW, **options)


def of_new_store(world: Path, folder: Path, **options: Any) -> object:
    return adiabat.embed(world / "model", CORPUS, folder / "store", **options)


def of_torch_store(world: Path, folder: Path, **options: Any) -> object:
    store = adiabat.embed(world / "model", CORPUS, folder / "torch", backend="torch")
    return adiabat.embed(world / "model", NEW, store, **options)


def of_import(world: Path, folder: Path, **options: Any) -> object:
    return adiabat.import_vectors(np.eye(4), folder / "store", ids=list("abcd"), **options)


REFUSED: dict[str, tuple[Callable[..., object], dict[str, Any], type[AdiabatError], str]] = {
    "int8 by torch": (of_new_store, {"backend": "torch", "precision": "int8"}, ConfigError, "torch"),
    "int8 on a GPU": (of_new_store, {"precision": "int8", "device": "cuda"}, ConfigError, "cuda"),
    "compiled": (of_new_store, {"backend": "openvino", "compile": True}, ConfigError, "run.compile"),
    "int8 beside others": (of_torch_store, {"precision": "int8", "append": True}, ConfigError, "int8"),
    "torch beside int8": (
        of_int8_store,
        {"precision": "auto", "backend": "torch", "append": True},
        ConfigError,
        "store.backend",
    ),
    "import in int8": (of_import, {"precision": "int8"}, ConfigError, "store.precision"),
    "import by OpenVINO": (of_import, {"backend": "openvino"}, ConfigError, "store.backend"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(world: Path, tmp_path: Path, name: str) -> None:
    call, options, error, fact = REFUSED[name]
    with one_line(error, fact):
        call(world, tmp_path, **options)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("--backend torch --precision int8", ["store.precision", "int8"]),
        ("--backend openvino", ["pip install 'adiabat[openvino]'", "store.backend"]),
        ("--precision int8", ["pip install 'adiabat[openvino]'", "store.precision"]),
    ],
)
def test_a_command_is_refused_in_one_line(
    options: str,
    facts: list[str],
    world: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adiabat.models.backend_checks.PACKAGES", ("nothing_of_this_name",))
    (tmp_path / "corpus.jsonl").write_text(json.dumps(CORPUS[0]))
    command = f"embed {world / 'model'} {tmp_path / 'corpus.jsonl'} --out {tmp_path / 'store'} {options}"
    said = run_in_process(capsys, monkeypatch, [command])
    assert said.code == 2
    assert len(said.err.strip().splitlines()) == 1
    assert [fact for fact in facts if fact not in said.err] == []
