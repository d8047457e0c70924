"""A real server on a free port: what clients get, what they are refused, and what changes under way."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import openai
import pytest
import torch
import uvicorn

import adiabat
from adiabat.config.reader import checked
from adiabat.config.serving import ServeSettings
from adiabat.config.shared import RankingEncoderSection
from adiabat.core.errors import AdiabatError, ConfigError
from adiabat.core.progress import SILENT
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.models.deltas import ChangedLinear, beside, changed
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.saving import save
from adiabat.serving import batching
from adiabat.serving import server as module
from adiabat.serving.batching import Batcher, BusyError
from adiabat.serving.searcher import Searcher
from adiabat.serving.serve_checks import named_towers, require_server
from adiabat.serving.served_towers import Towers
from adiabat.serving.server import serve
from adiabat.store.vector_store import Store
from tests.commands import METHODS, write_tuned
from tests.models.static_models import static_encoder
from tests.refused import one_line
from tests.tiny import save_tiny, tiny_dual, tiny_encoder

QUERY = "hello there"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its store, two jobs of `tune`, and one of them as a delta."""
    folder = tmp_path_factory.mktemp("world")
    write_tuned(folder, "full", "lora")
    for name in METHODS:
        adiabat.export(folder / name, folder / f"{name}-delta", to="delta")
    return folder


@contextmanager
def served(world: Path, towers: dict[str, str], token: str = "", **options: Any) -> Iterator[httpx.Client]:
    """A client of a server in a thread of its own, which ends with the block."""
    started, address, servers = threading.Event(), list[str](), list[uvicorn.Server]()

    def listening(url: str) -> None:
        address.append(url)
        started.set()

    class Noted(module._Listening):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            servers.append(self)

    fuse = options.pop("fuse", None)
    settings = checked(ServeSettings, {"serve": {"port": 0, **options}, "fuse": {"by": fuse} if fuse else {}})
    named = {name: str(world / source) for name, source in towers.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADIABAT_TOKEN", token)
        patch.setattr(module, "_Listening", Noted)
        # Signals are for the main thread.
        patch.setattr(uvicorn.Server, "install_signal_handlers", lambda self: None, raising=False)
        store = Store.open(world / "store")
        thread = threading.Thread(target=serve, args=(store, named, settings, SILENT, listening))
        thread.start()
        assert started.wait(120)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with httpx.Client(base_url=address[0], headers=headers, timeout=30) as client:
                yield client
        finally:
            servers[0].should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def client(world: Path) -> Iterator[httpx.Client]:
    towers = {"tuned": "full", "lora": "lora-delta", "whole": "full-delta", "untuned": "model"}
    with served(world, towers, fuse="bm25", preferences=str(world / "preferences.jsonl")) as client:
        yield client


def fault(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["tuned", "lora", "whole", "untuned"])
def test_vectors_are_those_of_the_tower_by_openais_client(
    world: Path, client: httpx.Client, name: str
) -> None:
    source = {"tuned": "full", "lora": "lora", "whole": "full", "untuned": "model"}[name]
    own = adiabat.load(world / source).encode([QUERY, "a"], side="query", precision="fp32")
    with openai.OpenAI(base_url=f"{str(client.base_url).rstrip(chr(47))}/v1", api_key="none") as peer:
        # Its client asks for base64 where it is not told otherwise.
        answer = peer.embeddings.create(model=name, input=[QUERY, "a"])
        assert [model.id for model in peer.models.list()] == ["tuned", "lora", "whole", "untuned"]
    np.testing.assert_allclose([each.embedding for each in answer.data], own, atol=2e-3)
    tokens = adiabat.load(world / source).query.tokenize([QUERY, "a"], side="query").lengths.sum()
    assert (answer.model, answer.usage.prompt_tokens) == (name, tokens)


def test_both_encodings_and_one_text_give_the_same_numbers(world: Path, client: httpx.Client) -> None:
    asked = {"model": "tuned", "input": QUERY}
    plain, coded = (
        client.post("/v1/embeddings", json={**asked, "encoding_format": form}).json()["data"][0]["embedding"]
        for form in ("float", "base64")
    )
    np.testing.assert_array_equal(np.float32(plain), np.frombuffer(base64.b64decode(coded), dtype="<f4"))
    document = client.post("/v1/embeddings", json={**asked, "input_type": "document"}).json()["data"][0]
    own = adiabat.load(world / "full").encode([QUERY], side="document", precision="fp32")[0]
    np.testing.assert_allclose(document["embedding"], own, atol=1e-5)


@pytest.mark.parametrize("fuse", [False, True])
def test_search_gives_what_the_verb_gives(world: Path, client: httpx.Client, fuse: bool) -> None:
    expected = adiabat.search(
        world / "store", QUERY, model=world / "full", k=3, **({"fuse": "bm25"} if fuse else {})
    )
    asked = {"query": QUERY, "tower": "tuned", "k": 3, "fuse": fuse}
    hits = client.post("/search", json=asked).json()["hits"]
    assert [hit["doc_id"] for hit in hits] == [hit.doc_id for hit in expected]
    np.testing.assert_allclose([hit["score"] for hit in hits], [hit.score for hit in expected], atol=1e-5)
    without = client.post("/search", json={**asked, "exclude": [hits[0]["doc_id"], "unknown"]}).json()["hits"]
    assert hits[0]["doc_id"] not in [hit["doc_id"] for hit in without]
    assert len(without) == 3


REFUSED: dict[str, tuple[str, object, int, str]] = {
    "an unknown tower": ("/v1/embeddings", {"input": "a", "model": "none"}, 404, "tuned, lora"),
    "no tower among several": ("/search", {"query": "a"}, 404, "got none"),
    "no text": ("/v1/embeddings", {"input": [], "model": "tuned"}, 422, "at least one text"),
    "tokens": ("/v1/embeddings", {"input": [[1, 2]], "model": "tuned"}, 422, "input"),
    "an unknown key": ("/v1/embeddings", {"input": "a", "model": "tuned", "x": 1}, 422, "x: "),
    "another width": (
        "/v1/embeddings",
        {"input": "a", "model": "tuned", "dimensions": 8},
        422,
        "must be 32, got 8",
    ),
    "no query": ("/search", {"query": "", "tower": "tuned"}, 422, "query"),
    "too many documents": ("/search", {"query": "a", "tower": "tuned", "k": 10_000}, 422, "k: "),
    "a name of half a pair": ("/search", {"query": "a", "tower": "\ud800"}, 404, "must be one of"),
    "a blank preference": ("/preferences", {"query": " ", "pos": ["a"]}, 422, "query: "),
    "a preference for and against": (
        "/preferences",
        {"query": "a", "pos": ["b"], "neg": ["b"]},
        422,
        "in both",
    ),
    "a preference for nothing": ("/preferences", {"query": "a", "pos": [], "neg": ["b"]}, 422, "pos: "),
    "a list": ("/search", [1], 422, ""),
    "half of a pair": ("/v1/embeddings", {"input": ["a", "\ud800"], "model": "tuned"}, 422, "text 1 must be"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_faulty_request_is_told_what_is_wrong(client: httpx.Client, name: str) -> None:
    path, body, status, fact = REFUSED[name]
    content = json.dumps(body).encode()
    code, message = fault(client.post(path, content=content, headers={"content-type": "application/json"}))
    assert code == status
    assert fact in message


def test_broken_json_and_unknown_paths(client: httpx.Client) -> None:
    broken = client.post("/search", content=b'{"query": ', headers={"content-type": "application/json"})
    assert fault(broken)[0] == 422
    assert fault(client.get("/nothing")) == (404, "Not Found")
    assert client.get("/healthz").json() == {
        "status": "ok",
        "towers": 4,
        "documents": 20,
        "recall": 1.0,
    }


def test_thumbs_are_examples_for_tune(world: Path, client: httpx.Client) -> None:
    hits = client.post("/search", json={"query": QUERY, "tower": "tuned", "k": 2}).json()["hits"]
    answer, other = (hit["text"] for hit in hits)
    asked = {"query": QUERY, "tower": "tuned", "pos": [answer], "neg": [other]}
    assert client.post("/preferences", json=asked).status_code == 204
    with pytest.warns(UserWarning, match="ignored columns"):
        read = read_examples(world / "preferences.jsonl")
    assert isinstance(read, ExampleSet)
    (example,) = read.examples
    assert (example.query, example.positives, example.negatives) == (QUERY, (answer,), (other,))


def test_metrics_count_by_route(client: httpx.Client) -> None:
    before = client.get("/metrics").text
    client.post("/search", json={"query": QUERY, "tower": "lora"})
    client.get("/nothing/42")
    after = client.get("/metrics").text
    assert 'adiabat_requests_total{path="/search",status="200"}' in after
    assert "/nothing" not in after
    assert before != after


def test_the_page_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http-equiv", "")
    script = client.get("/page.js")
    assert "innerHTML" not in script.text
    assert "http" not in script.text


def test_a_token_is_asked_for_and_an_open_address_changes_nothing_without(world: Path) -> None:
    with served(world, {"only": "full"}, token="secret") as client:
        assert client.post("/search", json={"query": QUERY}).status_code == 200
        client.headers["Authorization"] = "Bearer other"
        assert fault(client.post("/search", json={"query": QUERY})) == (401, "a bearer token is needed")
        assert client.get("/healthz").status_code == client.get("/").status_code == 200
    with served(world, {"only": "full"}, host="0.0.0.0") as client:
        client.base_url = httpx.URL(str(client.base_url).replace("0.0.0.0", "127.0.0.1"))
        assert fault(client.put("/towers/new", json={"source": str(world / "model")}))[0] == 403
        assert fault(client.post("/preferences", json={"query": "a", "pos": ["b"]}))[0] == 403


def test_a_busy_server_says_when_to_ask_again(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        served(world, {"only": "full"}, most_texts=1, most_waiting=1) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        entered, going_on = threading.Event(), threading.Event()
        embedded = batching._embedded

        def slow(batch: Any) -> Any:
            entered.set()
            going_on.wait(30)
            return embedded(batch)

        monkeypatch.setattr(batching, "_embedded", slow)
        asked = [pool.submit(client.post, "/v1/embeddings", json={"input": "a"})]
        assert entered.wait(30)
        # One is embedded and one waits: the third is too much.
        asked += [pool.submit(client.post, "/v1/embeddings", json={"input": "a"}) for _ in range(2)]
        first_done = wait(asked[1:], 30, return_when="FIRST_COMPLETED").done.pop().result()
        assert (first_done.status_code, first_done.headers["retry-after"]) == (503, "1")
        going_on.set()
        assert sorted(each.result().status_code for each in asked) == [200, 200, 503]
    with one_line(ConfigError, "serve.most_waiting must be at least serve.most_texts"):
        adiabat.serve(world / "store", [world / "full"], most_waiting=1)


def test_a_search_that_waits_too_long_is_given_up(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, going_on = Searcher.search, threading.Event()

    def blocked(*given: Any, **options: Any) -> Any:
        going_on.wait(30)
        return found(*given, **options)

    monkeypatch.setattr(Searcher, "search", blocked)
    with served(world, {"only": "full"}, timeout_seconds=3.0) as client, ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(client.post, "/search", json={"query": QUERY}) for _ in range(6)]
        assert {each.result().status_code for each in asked} == {504}
        going_on.set()
        assert client.post("/search", json={"query": QUERY}).status_code == 200
        monkeypatch.setattr("adiabat.serving.http_app.SEARCHES", 0)
        assert client.post("/search", json={"query": QUERY}).status_code == 503


def test_changes_of_towers_do_not_queue(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(world, {"only": "full"}) as client, ThreadPoolExecutor(1) as pool:
        entered, going_on = threading.Event(), threading.Event()

        def slow(*given: Any) -> bool:
            entered.set()
            going_on.wait(30)
            return True

        monkeypatch.setattr(Towers, "put", slow)
        body = {"source": str(world / "model")}
        first = pool.submit(client.put, "/towers/only", json=body)
        assert entered.wait(30)
        assert fault(client.put("/towers/other", json=body))[0] == 503
        assert client.get("/healthz").status_code == 200
        going_on.set()
        assert first.result().status_code == 200


def test_a_local_server_answers_to_local_names_alone(world: Path) -> None:
    with served(world, {"only": "full"}) as client:
        for host, status in (
            ("localhost:8000", 200),
            ("127.0.0.1", 200),
            ("[::1]:80", 200),
            ("evil.example", 403),
        ):
            assert client.get("/towers", headers={"host": host}).status_code == status


def test_limits(world: Path) -> None:
    with served(world, {"only": "full"}, most_texts=2, most_bytes=300) as client:
        assert fault(client.post("/v1/embeddings", json={"input": ["a", "b", "c"]}))[0] == 413
        assert fault(client.post("/v1/embeddings", json={"input": "a" * 400}))[0] == 413
        # The size is not believed: chunks have none.
        chunks = client.post("/v1/embeddings", content=(b"a" * 100 for _ in range(5)))
        assert fault(chunks)[0] == 413
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
        assert fault(client.post("/preferences", json={"query": "a", "pos": ["b"]}))[0] == 422
        assert fault(client.post("/search", json={"query": "a", "fuse": True}))[0] == 422


def test_a_tower_is_replaced_while_requests_run_and_none_fails(world: Path) -> None:
    with served(world, {"live": "model"}) as client, ThreadPoolExecutor(4) as pool:
        ended = threading.Event()
        vectors = [
            adiabat.load(world / source).encode_query([QUERY], precision="fp32")[0]
            for source in ("model", "full")
        ]

        def kind() -> int:
            answer = client.post("/v1/embeddings", json={"input": QUERY, "model": "live"})
            assert answer.status_code == 200, answer.text
            given = np.float32(answer.json()["data"][0]["embedding"])
            # Each answer is of one tower or the other, whole.
            return [np.allclose(given, each, atol=1e-4) for each in vectors].index(True)

        def ask() -> list[int]:
            kinds = []
            while not ended.is_set():
                kinds.append(kind())
            return kinds

        assert kind() == 0
        asked = [pool.submit(ask) for _ in range(3)]
        for source in ("full", "model", "full", "model", "full"):
            answer = client.put("/towers/live", json={"source": str(world / source)})
            assert answer.json()["replaced"]
            time.sleep(0.05)
        assert kind() == 1
        ended.set()
        assert {found for each in asked for found in each.result()} <= {0, 1}
        assert (
            client.put("/towers/more", json={"source": str(world / "lora-delta")}).json()["replaced"] is False
        )
        assert fault(client.put("/towers/bad", json={"source": str(world / "nothing")}))[0] == 422
        assert client.delete("/towers/more").status_code == 204
        assert fault(client.delete("/towers/more"))[0] == 404
        assert [tower["name"] for tower in client.get("/towers").json()["towers"]] == ["live"]


def test_a_tower_of_another_store_is_refused(world: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path / "other", seed=9)
    with served(world, {"live": "model"}) as client:
        code, message = fault(client.put("/towers/other", json={"source": str(tmp_path / "other")}))
        assert code == 422
        assert "store" in message


def test_requests_that_wait_are_embedded_together_and_given_up_ones_are_not() -> None:
    sizes: list[int] = []
    first, second = tiny_encoder(seed=1), tiny_encoder(seed=2)
    for encoder in (first, second):
        collate: Callable[..., Any] = encoder.collate

        def noted(tokens: Any, collate: Callable[..., Any] = collate, **options: Any) -> Any:
            sizes.append(len(tokens))
            return collate(tokens, **options)

        object.__setattr__(encoder, "collate", noted)
    batcher = Batcher(most_waiting=8, batch_texts=3)
    answers = [batcher.submit(first, [text], side="query") for text in "abcd"]
    other = batcher.submit(second, ["a", "b"], side="query")
    assert answers[1].cancel()
    with pytest.raises(BusyError, match="6 texts wait already, of at most 8"):
        batcher.submit(first, ["x"] * 3, side="query")
    batcher.start()
    batcher.close()
    assert sizes == [3, 2]
    own = tiny_encoder(seed=1).encode(["a", "c", "d"], side="query", precision="fp32")
    given = [answer.result().vectors[0] for place, answer in enumerate(answers) if place != 1]
    np.testing.assert_allclose(given, own, atol=1e-6)
    assert other.result().vectors.shape == (2, 32)
    # A letter between two special tokens.
    assert (answers[0].result().tokens, other.result().tokens) == (3, 6)
    with pytest.raises(BusyError):
        batcher.submit(first, ["late"], side="query")


@pytest.mark.parametrize("limit", [0, 10_000])
def test_one_batch_and_many_give_the_vectors_of_encode(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(batching, "AT_ONCE", limit)
    settings = EncoderSettings(query_prompt="query: ", pool_prompt=False)
    texts = ["a", "", "שלום עולם", "a longer text " * 9]
    for encoder in (tiny_encoder(settings=settings), static_encoder()):
        batcher = Batcher(8, 8)
        answer = batcher.submit(encoder, texts, side="query")
        batcher.start()
        batcher.close()
        own = encoder.encode(texts, side="query", precision="fp32")
        np.testing.assert_allclose(answer.result().vectors, own, atol=1e-6)


def test_a_fault_answers_those_who_asked_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, faulty = tiny_encoder(seed=1), tiny_encoder(seed=2)

    def fail(*given: Any, **options: Any) -> None:
        raise ValueError("no")

    object.__setattr__(faulty, "tokenize", fail)
    batcher = Batcher(8, 8)
    answers = [batcher.submit(each, ["a"], side="query") for each in (faulty, sound)]
    batcher.start()
    batcher.close()
    assert isinstance(answers[0].exception(), ValueError)
    assert answers[1].result().vectors.shape == (1, 32)


def test_differences_beside_shared_weights_give_the_changed_layer() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    random = torch.Generator().manual_seed(0)
    changes = {
        "0.weight": torch.randn(4, 3, generator=random),
        "0.bias": torch.randn(4, generator=random),
        "1.weight": torch.randn(4, generator=random),
        "2.weight.outer": torch.randn(2, 1, generator=random),
        "2.weight.inner": torch.randn(1, 4, generator=random),
    }
    states = torch.randn(5, 3, generator=random)
    twin = beside(layers, changes)
    with torch.no_grad():
        torch.testing.assert_close(twin(states), changed(layers, changes)(states))
    assert isinstance(twin[0], ChangedLinear)
    assert twin[0].weight is layers[0].weight
    assert twin[2].layer.weight is layers[2].weight


def test_fifty_deltas_share_one_base(world: Path) -> None:
    towers = Towers(Store.open(world / "store"), RankingEncoderSection(), "cpu")
    for number in range(50):
        towers.put(f"tower-{number}", str(world / "lora-delta"))
    distinct = {
        id(weights): weights.nbytes for tower in towers.listed() for weights in tower.model.query.parameters()
    }
    one = sum(each.nbytes for each in adiabat.load(world / "model").query.parameters())
    assert sum(distinct.values()) <= 1.01 * one


def test_a_delta_of_both_towers_is_served_over_its_own_store_with_its_settings(
    world: Path, tmp_path: Path
) -> None:
    """What stores are compared with is the merged document tower."""
    base = tiny_dual()
    save(base, tmp_path / "base")
    save(tiny_dual(seed=3, shared=False), tmp_path / "tuned")
    adiabat.export(tmp_path / "tuned", tmp_path / "delta", to="delta", base=str(tmp_path / "base"))
    store = adiabat.embed(tmp_path / "delta", ["a text", "another"], out=tmp_path / "store")
    prompted = RankingEncoderSection(query_prompt="query: ", similarity="dot")
    towers = Towers(Store.open(store.path), prompted, "cpu")
    towers.put("delta", str(tmp_path / "delta"))
    model, own = towers["delta"].model, adiabat.load(tmp_path / "delta", settings=prompted)
    assert (model.query.settings.query_prompt, model.similarity) == ("query: ", "dot")
    given, expected = (each.encode([QUERY], side="query", precision="fp32") for each in (model, own))
    np.testing.assert_allclose(given, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "fact"),
    [
        ((), "must name a tower"),
        (("a=",), "must be NAME=MODEL"),
        (("=model",), "must be NAME=MODEL"),
        (("a/b=model",), "a name has no slash"),
        (("a=model", "a=other"), "a twice"),
    ],
)
def test_towers_need_names(texts: tuple[str, ...], fact: str) -> None:
    with one_line(ConfigError, "serve.towers", fact):
        named_towers(texts)


def test_a_server_that_cannot_start_says_why(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named_towers(["jobs/one", "two=jobs/2"]) == {"one": "jobs/one", "two": "jobs/2"}
    with one_line(AdiabatError, "serve.towers", "nothing"):
        adiabat.serve(world / "store", {"none": str(tmp_path / "nothing")})
    with one_line(AdiabatError, str(tmp_path / "nowhere")):
        adiabat.serve(tmp_path / "nowhere", {"tuned": world / "full"})
    with served(world, {"only": "full"}) as client, one_line(ConfigError, "serve.port", "choose another"):
        adiabat.serve(world / "store", [world / "full"], port=client.base_url.port)
    monkeypatch.setattr("adiabat.serving.serve_checks.PACKAGES", ("nothing_of_this_name",))
    with one_line(ImportError, "pip install 'adiabat[serve]'"):
        require_server(str(world / "store"), ServeSettings())


def test_an_approximate_server_says_its_recall_and_finds_what_an_exact_one_does(
    world: Path, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adiabat.serving.searcher.FEWEST", 1)
    monkeypatch.setattr("adiabat.store.approximate.POINTS", 1)
    with served(world, {"tuned": "full"}, approximate=True, min_recall=1.0, fuse="bm25") as approximate:
        assert approximate.get("/healthz").json()["recall"] == 1.0
        for asked in ({}, {"fuse": True}, {"exclude": ["d1"]}):
            body = {"query": QUERY, "tower": "tuned", "k": 3, **asked}
            found = [each.post("/search", json=body).json()["hits"] for each in (approximate, client)]
            assert found[0] == found[1]
    assert client.get("/healthz").json()["recall"] == 1.0


def test_a_small_store_is_searched_exactly_and_faiss_must_be_there(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = adiabat.load(world / "model")
    searcher = Searcher.of(Store.open(world / "store"), checked(ServeSettings, {}).fuse, SILENT)
    assert searcher.approximated([model], 0.9, SILENT) is searcher
    settings = checked(ServeSettings, {"serve": {"towers": ["model"], "approximate": True}})
    monkeypatch.setattr("adiabat.core.errors.find_spec", lambda name: None if name == "faiss" else True)
    with pytest.raises(AdiabatError, match=r"adiabat\[faiss\]"):
        require_server(str(world / "store"), settings)
