"""Exports of one tower, and of what differs from the base: who loads them gets the model's own vectors."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file

import adiabat
from adiabat.core.errors import AdiabatError, ConfigError, JobError, ModelError
from adiabat.data.records import SIDES, Side
from adiabat.exporting import export as module
from adiabat.exporting import onnx_files
from adiabat.exporting.differences import factors as factors_of
from adiabat.exporting.export_checks import PACKAGES
from adiabat.exporting.one_tower import one_tower
from adiabat.exporting.onnx_files import onnx_run
from adiabat.exporting.openvino_files import openvino_run
from adiabat.exporting.parity import Compared, parity
from adiabat.models.deltas import changed
from adiabat.models.embedding_head import POOLINGS, EncoderSettings
from adiabat.models.graphs import as_graph
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from tests.commands import inputs, write_tuned
from tests.models.peer_directories import peer_of
from tests.models.static_models import static_encoder
from tests.refused import one_line
from tests.tiny import Kind, files_of, save_tiny, tiny_dual, tiny_encoder

TEXTS = ["a", "where does the RIVER rise?", "שלום עולם", "the longest of all these texts, cut " * 6, ""]
PROMPTS = EncoderSettings(
    max_tokens=40, query_prompt="query: ", document_prompt="passage: ", document_max_tokens=50
)


def two_towers(settings: EncoderSettings = PROMPTS, kind: Kind = "bert", **parts: Any) -> DualEncoder:
    """A query tower of its own beside the document tower."""
    return tiny_dual(kind, settings=settings, shared=False, **parts)


def own(model: DualEncoder, side: Side = "query", texts: Sequence[str] = TEXTS) -> Float[np.ndarray, "n e"]:
    return np.asarray(model.encode(texts, side=side, precision="fp32"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its store, data, and jobs of `tune`."""
    folder = tmp_path_factory.mktemp("world")
    write_tuned(folder, "full", "lora")
    return folder


@pytest.mark.parametrize("side", SIDES)
def test_one_tower_is_a_plain_model_with_its_prompt_as_the_default(tmp_path: Path, side: Side) -> None:
    model = two_towers()
    exported = adiabat.export(model, tmp_path / "out", to="sentence-transformers", tower=side)
    peer = peer_of(tmp_path / "out")
    # Whoever calls plain `encode`, as LangChain does, gets the vectors of this tower.
    np.testing.assert_allclose(peer.encode(TEXTS), own(model, side), atol=1e-5)
    assert peer.max_seq_length == model.tower(side).settings.limit(side)
    assert {
        "config.json",
        "model.safetensors",
        "modules.json",
        "tokenizer.json",
        "1_Pooling/config.json",
    } <= set(exported.sizes)
    tokenizer = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert tokenizer["model_max_length"] == model.tower(side).settings.limit(side)
    assert exported.parity[side]["minimum_cosine"] > 0.99999
    assert f"# {side.capitalize()} tower" in (tmp_path / "out" / "README.md").read_text()


def test_half_precision_halves_the_file_and_moves_vectors_little(tmp_path: Path) -> None:
    model = two_towers()
    sizes = {}
    for precision in ("fp32", "fp16"):
        exported = adiabat.export(
            model, tmp_path / precision, to="sentence-transformers", precision=precision
        )
        sizes[precision] = exported.sizes["model.safetensors"]
        assert exported.parity["query"]["minimum_cosine"] > 0.9999
    assert sizes["fp16"] < 0.6 * sizes["fp32"]
    assert {each.dtype for each in load_file(tmp_path / "fp16" / "model.safetensors").values()} == {
        torch.float16
    }
    # The exported model is another object than the model.
    assert {each.dtype for each in model.query.parameters()} == {torch.float32}


@pytest.mark.parametrize("form", ["onnx", "openvino"])
@pytest.mark.parametrize(
    ("kind", "settings", "projection"),
    [
        ("bert", PROMPTS, None),
        ("bert", replace(PROMPTS, pool_prompt=False), 16),
        ("xlm-roberta", replace(PROMPTS, normalize=False, pooling="cls"), None),
        ("llama", replace(PROMPTS, pooling="last"), None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_graph_gives_vectors_of_batches_of_any_length(
    tmp_path: Path, form: str, kind: Kind, settings: EncoderSettings, projection: int | None
) -> None:
    model = two_towers(settings, kind, projection=projection)
    exported = adiabat.export(model, tmp_path / "out", to=form)
    assert exported.parity["query"]["minimum_cosine"] > 0.99999
    # Weights of torch would be loaded by a call that forgot the backend.
    assert "model.safetensors" not in exported.sizes
    run = (onnx_run if form == "onnx" else openvino_run)(tmp_path / "out")
    graph = as_graph(one_tower(model, "query").query, "query")
    np.testing.assert_allclose(graph.vectors(run, TEXTS, "query"), own(model), atol=1e-5)
    for text, vector in zip(TEXTS, own(model), strict=True):
        np.testing.assert_allclose(graph.vectors(run, [text], "query")[0], vector, atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_graph_in_torch_is_the_tower_whatever_side_is_padded(pooling: Any) -> None:
    settings = replace(PROMPTS, pooling=pooling, pool_prompt=False)
    tower = one_tower(two_towers(settings), "query").query
    graph = as_graph(tower, "query")
    (feed,) = graph.feeds(TEXTS[:3], "query")
    ids, mask, segments = (torch.from_numpy(feed[name]) for name in graph.inputs)
    with torch.no_grad():
        states, vectors = graph(ids, mask, segments)
    np.testing.assert_allclose(vectors, own(two_towers(settings))[:3], atol=1e-6)
    assert states.shape == (*ids.shape, tower.width)
    # BERT counts positions from the first column, so padding before the text must not be counted.
    counted = mask * (mask.cumsum(dim=1) > graph.skipped)
    turned = mask.flip(1) * (mask.flip(1).cumsum(dim=1) > graph.skipped)
    assert counted.sum(dim=1).tolist() == turned.sum(dim=1).tolist()


@pytest.mark.parametrize("form", ["onnx", "openvino"])
@pytest.mark.filterwarnings("ignore")
def test_int8_is_compared_by_what_it_ranks_and_is_refused_if_it_moves_too_far(
    world: Path, tmp_path: Path, form: str
) -> None:
    job = world / "full"
    with one_line(ModelError, "must agree with the model at cosine >= 1", "min_cosine="):
        adiabat.export(job, tmp_path / "out", to=form, precision="int8", min_cosine=1.0)
    assert list(tmp_path.iterdir()) == []
    exported = adiabat.export(job, tmp_path / "out", to=form, precision="int8", min_cosine=0.5)
    found = exported.parity["query"]
    assert 0.5 < found["minimum_cosine"] < 1
    assert found["change"]["measure"] == "nDCG@10"
    assert found["change"]["verdict"] in ("undecided", "not worse", "worse", "better")
    assert "nDCG@10" in exported.summary()


def test_a_delta_holds_what_tuning_changed_and_loads_over_the_base(world: Path, tmp_path: Path) -> None:
    job, base = adiabat.load(world / "full"), adiabat.load(world / "model")
    exported = adiabat.export(world / "full", tmp_path / "delta", to="delta")
    loaded = adiabat.load(tmp_path / "delta")
    np.testing.assert_allclose(own(loaded), own(job), atol=2e-4)
    assert np.abs(own(loaded) - own(base)).max() > 1e-2
    # Documents stay those of the store, and unchanged weights are not held twice.
    assert loaded.fingerprint("document") == base.fingerprint("document")
    assert exported.sizes["delta.safetensors"] < 0.6 * (world / "full" / "model").stat().st_size + 60_000
    results = [
        adiabat.search(world / "store", "hello", model=each, k=3)
        for each in (world / "full", tmp_path / "delta")
    ]
    assert [hit.doc_id for hit in results[0]] == [hit.doc_id for hit in results[1]]


def test_adapters_are_found_again_as_a_delta_and_for_peft(world: Path, tmp_path: Path) -> None:
    job = adiabat.load(world / "lora")
    whole = adiabat.export(world / "full", tmp_path / "full", to="delta")
    delta = adiabat.export(world / "lora", tmp_path / "delta", to="delta")
    np.testing.assert_allclose(own(adiabat.load(tmp_path / "delta")), own(job), atol=1e-3)
    assert delta.sizes["delta.safetensors"] < 0.5 * whole.sizes["delta.safetensors"]
    adiabat.export(world / "lora", tmp_path / "half", to="peft", precision="fp16")
    factors = load_file(tmp_path / "half" / "adapter_model.safetensors")
    assert {each.dtype for each in factors.values()} == {torch.float16}
    np.testing.assert_allclose(own(adiabat.load(tmp_path / "half")), own(job), atol=1e-3)
    adiabat.export(world / "lora", tmp_path / "peft", to="peft")
    np.testing.assert_allclose(own(adiabat.load(tmp_path / "peft")), own(job), atol=1e-4)
    # sentence-transformers loads the adapter and its base by itself.
    np.testing.assert_allclose(peer_of(tmp_path / "peft").encode(TEXTS), own(job), atol=1e-4)
    with one_line(ModelError, "not tuned with adapters"):
        adiabat.export(world / "full", tmp_path / "none", to="peft")
    assert not (tmp_path / "none").exists()


def test_factors_give_a_low_rank_difference_and_no_other() -> None:
    random = torch.Generator().manual_seed(0)
    outer, inner = torch.randn(6, 2, generator=random), torch.randn(2, 5, generator=random)
    pair = factors_of(outer @ inner, 2)
    assert pair is not None
    torch.testing.assert_close(pair[0] @ pair[1], outer @ inner)
    assert factors_of(outer @ inner, 1) is None
    assert factors_of(torch.randn(6, 5, generator=random), 2) is None


def test_a_changed_module_shares_what_did_not_change() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    twin = changed(layers, {"0.weight": torch.ones(3, 3)})
    torch.testing.assert_close(twin[0].weight, layers[0].weight + 1)
    assert twin[1].weight is layers[1].weight
    assert twin[0].bias is layers[0].bias


def test_a_delta_is_refused_over_another_base(world: Path, tmp_path: Path) -> None:
    adiabat.export(world / "full", tmp_path / "delta", to="delta")
    save_tiny(tmp_path / "other", seed=5)
    record = json.loads((tmp_path / "delta" / "delta.json").read_text())
    (tmp_path / "delta" / "delta.json").write_text(json.dumps({**record, "base": str(tmp_path / "other")}))
    with one_line(ModelError, "over the base model that it was made from", "delta.json"):
        adiabat.load(tmp_path / "delta")
    (tmp_path / "delta" / "delta.json").write_text(json.dumps({**record, "format": 9}))
    with one_line(ModelError, "delta.json", "format 9"):
        adiabat.load(tmp_path / "delta")
    content = (tmp_path / "delta" / "delta.safetensors").read_bytes()
    (tmp_path / "delta" / "delta.json").write_text(json.dumps(record))
    (tmp_path / "delta" / "delta.safetensors").write_bytes(content[: len(content) // 2])
    with one_line(ModelError, "delta.safetensors"):
        adiabat.load(tmp_path / "delta")


def test_a_delta_has_the_layers_and_prompts_that_the_base_lacks(tmp_path: Path) -> None:
    base = tiny_dual()
    save(base, tmp_path / "base")
    query = tiny_encoder(settings=replace(base.query.settings, query_prompt="q: "), projection=32)
    save(replace(base, query=query), tmp_path / "tuned")
    adiabat.export(tmp_path / "tuned", tmp_path / "delta", to="delta", base=str(tmp_path / "base"))
    loaded = adiabat.load(tmp_path / "delta")
    np.testing.assert_allclose(own(loaded), own(adiabat.load(tmp_path / "tuned")), atol=1e-5)
    with one_line(ModelError, "export.base must name"):
        adiabat.export(tmp_path / "tuned", tmp_path / "none", to="delta")
    save_tiny(tmp_path / "wide", width=64)
    with one_line(ModelError, "must have the weights of its base model"):
        adiabat.export(tmp_path / "wide", tmp_path / "none", to="delta", base=str(tmp_path / "base"))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_static_model_is_one_of_model2vec(tmp_path: Path, precision: str) -> None:
    from model2vec import StaticModel

    encoder = static_encoder()
    model = DualEncoder(encoder, encoder, "static")
    texts = ["cat dog", "the salt on the moon"]
    rows = [json.dumps({"query": text, "pos": ["bank"]}) for text in texts]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    data = str(tmp_path / "data.jsonl")
    exported = adiabat.export(model, tmp_path / "out", to="model2vec", precision=precision, data=data)
    assert exported.parity["query"]["texts"] == f"2\N{NO-BREAK SPACE}texts (queries of {data})"
    theirs = StaticModel.from_pretrained(tmp_path / "out").encode(texts)
    np.testing.assert_allclose(theirs, own(model, texts=texts), atol=2e-3)
    np.testing.assert_allclose(peer_of(tmp_path / "out").encode(texts), own(model, texts=texts), atol=2e-3)


def test_parity_is_the_cosine_of_each_text() -> None:
    compared = Compared(["a", "b"], "two", [])
    own = np.eye(2, dtype=np.float32)
    exact = parity(compared, own, np.array([[2, 0], [3, 4]], dtype=np.float32), ranked=False)
    assert (exact.minimum, exact.mean, exact.worst) == (pytest.approx(0.8), pytest.approx(0.9), "b")
    # No vector equals one of zeros but another such one, and none equals NaN.
    zeros, nan = np.zeros((2, 2), dtype=np.float32), np.full((2, 2), np.nan, dtype=np.float32)
    assert parity(compared, own, zeros, ranked=False).minimum == 0
    assert parity(compared, zeros, zeros, ranked=False).minimum == 1
    assert np.isnan(parity(compared, own, nan, ranked=False).minimum)


def test_vectors_that_differ_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "save", lambda model, folder: save(tiny_dual(seed=7, settings=PROMPTS), folder)
    )
    with one_line(ModelError, "the exported query tower must agree", "cosine >= 0.9999"):
        adiabat.export(two_towers(), tmp_path / "out", to="sentence-transformers")
    assert list(tmp_path.iterdir()) == []


def test_a_card_shows_what_was_measured(world: Path, tmp_path: Path) -> None:
    store, data = inputs(world)[1:]
    adiabat.evaluate(
        world / "full", store, data, baseline=world / "model", out=tmp_path / "evaluation", resamples=100
    )
    adiabat.export(
        world / "full",
        tmp_path / "out",
        to="sentence-transformers",
        evaluations=[str(tmp_path / "evaluation")],
    )
    card = (tmp_path / "out" / "README.md").read_text()
    front, body = card.split("---\n")[1:]
    # A path of this machine is no name of the hub.
    assert "base_model" not in front
    (row,) = [line for line in body.splitlines() if re.match(r"\| pairs", line)]
    assert row.count("|") == 6
    assert "PND" in row


def test_a_card_shows_a_prompt_of_any_letters(tmp_path: Path) -> None:
    prompt = "Instruct: find `it` | here\nQuery: "
    adiabat.export(
        two_towers(replace(PROMPTS, query_prompt=prompt)), tmp_path / "out", to="sentence-transformers"
    )
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"prompt = {json.dumps(prompt)}" in card
    assert all(line.count("|") == 4 for line in card.splitlines() if line.startswith("|"))


@pytest.mark.filterwarnings("ignore")
def test_a_graph_that_is_too_large_for_one_file_keeps_its_weights_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_files, "LARGEST", 0)
    exported = adiabat.export(two_towers(), tmp_path / "out", to="onnx")
    assert exported.parity["query"]["minimum_cosine"] > 0.99999
    assert "onnx/model.onnx.data" in exported.sizes
    with one_line(ModelError, "export.precision must be fp32", "export to openvino"):
        adiabat.export(two_towers(), tmp_path / "half", to="onnx", precision="fp16")


DAMAGES: dict[str, Any] = {
    "another file of weights": lambda folder, record: save_file({}, folder / "delta.safetensors"),
    "an unknown setting": lambda folder, record: record["towers"]["query"]["settings"].update(x=1),
    "no settings": lambda folder, record: record["towers"]["query"].pop("settings"),
    "towers that are none": lambda folder, record: record.update(towers=[1]),
    "no digests": lambda folder, record: record.update(base_weights={}),
    "a base that is none": lambda folder, record: record.update(base=3),
    "itself as its base": lambda folder, record: record.update(base=str(folder)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_delta_is_one_line(world: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "delta"
    adiabat.export(world / "full", folder, to="delta")
    record = json.loads((folder / "delta.json").read_text())
    DAMAGES[name](folder, record)
    (folder / "delta.json").write_text(json.dumps(record))
    with one_line(ModelError, str(folder), "get the delta again"):
        adiabat.load(folder)


def test_a_repeated_call_is_taken_up_and_another_one_refused(world: Path, tmp_path: Path) -> None:
    for _ in range(2):
        adiabat.export(world / "full", tmp_path / "out", to="delta", exist_ok=True)
        written = files_of(tmp_path / "out")
    assert files_of(tmp_path / "out") == written
    with one_line(JobError, "holds the result of another call", "export.to was 'delta'"):
        adiabat.export(world / "full", tmp_path / "out", to="sentence-transformers", exist_ok=True)
    with one_line(JobError, "must be a new or empty directory"):
        adiabat.export(world / "full", tmp_path / "out", to="delta")


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no format": ({}, ConfigError, "export.to must be given"),
    "unknown format": ({"to": "gguf"}, ConfigError, "export.to"),
    "int8 of torch": (
        {"to": "delta", "precision": "int8"},
        ConfigError,
        "export.precision must be fp32",
    ),
    "static from a transformer": ({"to": "model2vec"}, ModelError, "which holds static models"),
    "data that are not there": ({"to": "onnx", "data": "none.jsonl", "store": "none"}, AdiabatError, "none"),
    "no evaluation": ({"to": "onnx", "evaluations": ["none"]}, AdiabatError, "none"),
    "a tower of a delta": (
        {"to": "delta", "tower": "document"},
        ConfigError,
        "export.tower must be left out",
    ),
    "cosine out of range": ({"to": "onnx", "min_cosine": 2}, ConfigError, "export.min_cosine"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, name: str) -> None:
    options, error, fact = REFUSED[name]
    save_tiny(tmp_path / "model")
    with one_line(error, fact):
        adiabat.export(tmp_path / "model", tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "onnx", ("nothing_of_this_name",))
    save_tiny(tmp_path / "model")
    with one_line(ImportError, "pip install 'adiabat[onnx]'"):
        adiabat.export(tmp_path / "model", tmp_path / "out", to="onnx")
