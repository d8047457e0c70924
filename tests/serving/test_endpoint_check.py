"""What `check` finds at endpoints that do one thing otherwise: real servers, each of one kind of fault."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.core.errors import ConfigError
from adiabat.data.records import SIDES
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.serving.endpoint import EndpointError
from tests.commands import Run, inputs, own_world, write_tuned, write_world
from tests.commands import here as here
from tests.commands import run as run
from tests.refused import one_line
from tests.serving.test_serve import served
from tests.tiny import tiny_dual, tiny_encoder

world = own_world

PROMPTS = EncoderSettings(max_tokens=64, query_prompt="query: ", document_prompt="passage: ")

Embed = Callable[[list[str]], Any]


@contextmanager
def endpoint(embed: Embed, *, names: Sequence[str] = ("served",), token: str = "") -> Iterator[str]:
    """The address of a server whose vectors are those of a function; what else it returns is its answer."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *given: object) -> None:
            pass

        def answer(self, status: int, content: object) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.answer(200, {"data": [{"id": name} for name in names]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if token and self.headers["Authorization"] != f"Bearer {token}":
                self.answer(401, {})
                return
            given = embed(asked["input"])
            if not isinstance(given, np.ndarray):
                self.answer(*given)
                return
            rows = [{"index": place, "embedding": row.tolist()} for place, row in enumerate(given)]
            # The order of an answer is that of its numbers.
            self.answer(200, {"data": rows[::-1]})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(settings=PROMPTS, shared=False)


def by(tower: Encoder, side: Any = "query", *, before: str = "") -> Embed:
    return lambda texts: np.asarray(
        tower.encode([before + text for text in texts], side=side, precision="fp32")
    )


def with_settings(model: DualEncoder, **changes: Any) -> Encoder:
    return model.query.with_settings(replace(model.query.settings, **changes))


FAULTS: dict[str, tuple[Callable[[DualEncoder], Embed], str]] = {
    "no prompt": (
        lambda model: by(with_settings(model, query_prompt="")),
        "does not put `query: ` before texts",
    ),
    "the prompt twice": (lambda model: by(model.query, before="query: "), "that have it already"),
    "another prompt": (
        lambda model: by(with_settings(model, query_prompt="passage: ")),
        "puts `passage: ` before texts",
    ),
    "the documents' route": (
        lambda model: by(model.document, "document"),
        "embeds by the document tower",
    ),
    "the documents' route without its prompt": (
        lambda model: by(model.document.with_settings(replace(PROMPTS, document_prompt="")), "document"),
        "embeds by the document tower, without a prompt",
    ),
    "another pooling": (
        lambda model: by(with_settings(model, pooling="cls")),
        "pools by cls in place of mean",
    ),
    "another limit": (
        lambda model: by(with_settings(model, max_tokens=128)),
        "cuts texts at 128 tokens in place of 64",
    ),
    "lower case": (
        lambda model: lambda texts: by(model.query)([text.lower() for text in texts]),
        "lower-cases texts",
    ),
    "fewer dimensions": (
        lambda model: lambda texts: by(model.query)(texts)[:, :16],
        "gives 16 dimensions, the model 32",
    ),
    "another model of another width": (
        lambda model: by(tiny_encoder(seed=8, width=16)),
        "no usual cause explains the first of them",
    ),
    "fewer dimensions and no prompt": (
        lambda model: lambda texts: by(with_settings(model, query_prompt=""))(texts)[:, :16],
        "gives 16 dimensions, the model 32, and the endpoint does not put `query: `",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_usual_cause_is_named(model: DualEncoder, name: str) -> None:
    embed, fact = FAULTS[name]
    with endpoint(embed(model)) as url:
        found = adiabat.check(url, model)
    assert not found.agrees
    assert fact in found.cause
    assert found.cause in found.summary()


def test_an_endpoint_of_the_same_vectors_agrees(model: DualEncoder) -> None:
    with endpoint(by(model.query), names=("one", "two")) as url:
        found = adiabat.check(f"{url}/v1/", model, served="two")
        assert (found.agrees, found.cause, found.notes) == (True, "", ())
        assert found.minimum_cosine > 0.99999
        with one_line(EndpointError, "got one, two", "served="):
            adiabat.check(url, model)
    with endpoint(by(model.document, "document")) as url:
        assert adiabat.check(url, model, tower="document").agrees
    with endpoint(lambda texts: 3 * by(model.query)(texts)) as url:
        found = adiabat.check(url, model)
    assert found.agrees
    assert found.notes == ("vectors have 3.000 to 3.000 times the length of the model's",)


def test_lengths_count_where_vectors_have_any(model: DualEncoder) -> None:
    loose = tiny_dual(settings=replace(PROMPTS, normalize=False), shared=False)
    with endpoint(by(loose.query)) as url:
        assert adiabat.check(url, loose).agrees
    with endpoint(lambda texts: 2 * by(loose.query)(texts)) as url:
        found = adiabat.check(url, loose)
    assert (found.agrees, found.cause) == (
        False,
        "vectors have 2.000 to 2.000 times the length of the model's",
    )


def test_servers_take_few_texts_and_may_refuse_long_ones(model: DualEncoder) -> None:
    sizes = []

    def few(texts: list[str]) -> Any:
        sizes.append(len(texts))
        return by(model.query)(texts) if len(texts) <= 20 else (422, {"error": "batch size"})

    with endpoint(few) as url:
        assert adiabat.check(url, model).agrees
    assert max(sizes) == 32

    def short(texts: list[str]) -> Any:
        if max(map(len, texts)) > 2_000:
            return 400, {"error": "too long"}
        return by(model.query)(texts)

    with endpoint(short) as url:
        found = adiabat.check(url, model)
    assert found.agrees
    assert found.notes[0].startswith("texts beyond the limit are refused, not cut")


def test_the_document_tower_of_a_server_is_asked_for_by_its_field(tmp_path: Path) -> None:
    model = tiny_dual(settings=PROMPTS, shared=False)
    save(model, tmp_path / "model")
    adiabat.embed(tmp_path / "model", ["a text", "another"], out=tmp_path / "store")
    with served(tmp_path, {"only": "model"}) as client:
        for side in SIDES:
            assert adiabat.check(str(client.base_url), tmp_path / "model", tower=side).agrees


def test_what_nothing_explains_is_said_so(model: DualEncoder) -> None:
    with endpoint(by(tiny_encoder(seed=9))) as url:
        found = adiabat.check(url, model)
    assert (found.agrees, found.cause) == (False, "")
    assert "no usual cause explains it" in found.summary()
    assert any("comes nearest" in note for note in found.notes)


ANSWERS: dict[str, tuple[Any, str]] = {
    "an error": ((500, {"error": "out of order"}), "got 500: "),
    "no JSON": ((200, b"<html>"), "a JSON object"),
    "no vectors": ((200, {"data": [{"index": 0}]}), "data, index and embedding"),
    "too few": ((200, {"data": []}), "a vector for each of"),
    "two widths": (
        (200, {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}),
        "of one width",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_none_is_told(model: DualEncoder, name: str) -> None:
    answer, fact = ANSWERS[name]
    with endpoint(lambda texts: answer) as url, one_line(EndpointError, fact):
        adiabat.check(url, model)


def test_an_endpoint_that_cannot_be_reached(model: DualEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(by(model.query)) as url:
        pass
    with one_line(EndpointError, url, "check the address"):
        adiabat.check(url, model)
    for address, fact in (("nowhere", "http:// or https://"), ("http://a..b", "check the address")):
        with one_line(EndpointError, fact):
            adiabat.check(address, model, served="a")
    with one_line(ConfigError, "check.min_cosine"):
        adiabat.check(url, model, min_cosine=2)
    with endpoint(by(model.query), token="secret") as url:
        with one_line(EndpointError, "set ADIABAT_TOKEN"):
            adiabat.check(url, model)
        monkeypatch.setenv("ADIABAT_TOKEN", "secret")
        assert adiabat.check(url, model).agrees


def test_the_base_model_in_place_of_a_job_is_named_and_its_ranking_compared(tmp_path: Path) -> None:
    write_tuned(tmp_path, "full")
    with endpoint(by(adiabat.load(tmp_path / "model").query)) as url:
        found = adiabat.check(url, tmp_path / "full")
    told = f"embeds by the document tower, or serves the base model, {tmp_path / 'model'}"
    assert found.cause == f"the endpoint {told}"
    assert "nDCG@10" in found.notes[-1]


def test_a_base_model_that_is_gone_leaves_the_other_causes(tmp_path: Path) -> None:
    write_world(tmp_path)
    settings = {"tune": {"recipe": "paper", "max_epochs": 1, "batches_per_epoch": 2}}
    adiabat.tune(*inputs(tmp_path), tmp_path / "job", settings=settings, validation_fraction=0.4)
    job = adiabat.load(tmp_path / "job")
    (tmp_path / "model").rename(tmp_path / "gone")
    with endpoint(by(job.query.with_settings(replace(job.query.settings, pooling="max")))) as url:
        found = adiabat.check(url, tmp_path / "job")
    assert found.cause == "the endpoint pools by max in place of mean"


def test_the_verb_ends_with_3_where_they_differ(here: Path, run: Run) -> None:
    model = adiabat.load(here / "model")
    for embed, code in ((by(model.query), 0), (by(tiny_encoder(seed=9)), 3)):
        with endpoint(embed) as url:
            said = run("check", url, str(here / "model"), "--json")
        assert said.code == code
        assert json.loads(said.out)["agrees"] is (code == 0)
