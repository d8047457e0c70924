"""Requests a second of `adiabat serve` beside sentence-transformers behind the same FastAPI, from another
process.

Single queries come one after the other; bursts are 64 single queries at once, from 64 threads. Both servers
embed in float32 on the same processor, and one of them runs at a time; five pairs alternate. Vectors of both
are compared first.

    python benchmarks/serve.py [--model demo] [--pairs 5] [--queries 200] [--bursts 5]
"""

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import uvicorn

import adiabat

BURST = 64
SERVE = ("-m", "adiabat", "serve")
TARGET = 2.0


def main() -> None:
    """Start servers in turn, ask them, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer is not None:
        _serve_peer(given.peer)
        return
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "model"
        adiabat.export(given.model, exported, to="sentence-transformers")
        files = adiabat.demo_files()
        store = adiabat.embed(given.model, files["tico19-corpus"], Path(folder) / "store")
        queries = _queries(given.queries)
        rates: dict[str, dict[str, list[float]]] = {"adiabat": {}, "sentence-transformers": {}}
        vectors = {}
        commands = {
            "adiabat": [
                "-m",
                "adiabat",
                "serve",
                str(store.path),
                "--tower",
                f"it={given.model}",
                "--port",
                "0",
            ],
            "sentence-transformers": [__file__, "--peer", str(exported)],
        }
        for pair in range(given.pairs):
            order = list(commands) if pair % 2 == 0 else list(commands)[::-1]
            for name in order:
                with _running(commands[name]) as client:
                    vectors[name] = np.array([_ask(client, query)[0] for query in queries[:20]])
                    measured = {
                        "single": _single(client, queries),
                        "burst": _burst(client, queries, given.bursts),
                    }
                for kind, (rate, slowest) in measured.items():
                    rates[name].setdefault(f"{kind}, requests/s", []).append(rate)
                    rates[name].setdefault(f"{kind}, p99 ms", []).append(1e3 * slowest)
        cosines = (vectors["adiabat"] * vectors["sentence-transformers"]).sum(axis=1)
        print(f"least cosine of both servers' vectors: {cosines.min():.6f}")
        _print(rates)


def _queries(count: int) -> list[str]:
    """Queries of the demo."""
    from adiabat.data.examples import read_examples

    examples = read_examples(adiabat.demo_files()["arxiv-math"])
    texts = [example.query for example in examples.examples]  # type: ignore[union-attr]
    return [texts[number % len(texts)] for number in range(count)]


@contextmanager
def _running(command: Sequence[str]) -> Iterator[httpx2.Client]:
    """A client of a server in a process of its own, which prints its address once it listens."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        limits = httpx2.Limits(max_connections=BURST, max_keepalive_connections=BURST)
        with httpx2.Client(base_url=address, timeout=120, limits=limits) as client:
            # The first requests load what is loaded late.
            for _ in range(10):
                _ask(client, "warm")
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _ask(client: httpx2.Client, query: str) -> tuple[list[float], float]:
    """Vector of a query and the seconds until it came."""
    began = time.perf_counter()
    answer = client.post("/v1/embeddings", json={"input": query, "model": "it"})
    answer.raise_for_status()
    return answer.json()["data"][0]["embedding"], time.perf_counter() - began


def _single(client: httpx2.Client, queries: Sequence[str]) -> tuple[float, float]:
    """Requests a second one after the other, and the 99th percentile of their time."""
    seconds = [_ask(client, query)[1] for query in queries]
    return len(seconds) / sum(seconds), float(np.percentile(seconds, 99))


def _burst(client: httpx2.Client, queries: Sequence[str], bursts: int) -> tuple[float, float]:
    """The same for bursts of requests at once."""
    seconds: list[float] = []
    total = 0.0
    with ThreadPoolExecutor(BURST) as pool:
        for number in range(bursts):
            texts = [queries[(number * BURST + place) % len(queries)] for place in range(BURST)]
            began = time.perf_counter()
            seconds += [taken for _, taken in pool.map(lambda text: _ask(client, text), texts)]
            total += time.perf_counter() - began
    return bursts * BURST / total, float(np.percentile(seconds, 99))


def _serve_peer(model: str) -> None:
    """sentence-transformers behind FastAPI: each request encodes its texts in a thread of the pool."""
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sentence_transformers import SentenceTransformer

    class Asked(BaseModel):
        input: str | list[str]
        model: str = ""

    encoder, app = SentenceTransformer(model, device="cpu"), FastAPI()

    @app.post("/v1/embeddings")
    def embeddings(body: Asked) -> dict[str, object]:
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors = encoder.encode(texts, show_progress_bar=False).tolist()
        return {"data": [{"index": number, "embedding": vector} for number, vector in enumerate(vectors)]}

    class Listening(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(None)
            port = self.servers[0].sockets[0].getsockname()[1]
            print(f"http://127.0.0.1:{port}", flush=True)

    Listening(uvicorn.Config(app, port=0, log_level="warning")).run()


def _print(rates: dict[str, dict[str, list[float]]]) -> None:
    ours, theirs = rates["adiabat"], rates["sentence-transformers"]
    print(
        "| measure | adiabat, median [range] | sentence-transformers | ratio, median [range] |",
        "|---|---|---|---|",
        sep="\n",
    )
    for kind in ours:
        ratios = [mine / other for mine, other in zip(ours[kind], theirs[kind], strict=True)]
        cells = [_range(ours[kind], 1), _range(theirs[kind], 1), _range(ratios, 2)]
        print(f"| {kind} | {' | '.join(cells)} |")
    for kind in ("single", "burst"):
        name = f"{kind}, requests/s"
        ratio = statistics.median(a / b for a, b in zip(ours[name], theirs[name], strict=True))
        print(f"serve, {kind}: ratio {ratio:.2f} (target {TARGET:g})")


def _range(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


if __name__ == "__main__":
    main()
