"""A suite in a second: tiny models, and a task of every kind that needs no library of its own."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import SuiteSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.evaluation.measured_models import resolve_models
from adiabat.evaluation.suite import evaluate_suite
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.results.suite_result import SuiteResult
from tests.tiny import tiny_dual

WORDS = ("river", "stone", "cloud", "bread", "light")
LABELS = ("entailment", "neutral", "contradiction")


def lines(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_world(folder: Path) -> None:
    """Data of every kind."""
    documents = [f"{WORDS[n % 5]} {n} and {WORDS[n // 5]}" for n in range(25)]
    pairs, grid = [], []
    for n in range(24):
        pair = {"a": documents[n], "b": documents[n * 7 % 25], "score": n * n % 11, "set": f"set {n % 2}"}
        pairs.append({**pair, "lang": "en" if n % 2 else "he", "same": n % 3 == 0})
    for n in range(18):
        premise, hypothesis = {"en": f"p {n // 3}", "de": f"das {n // 3}"}, {"en": f"h {n}", "de": f"ein {n}"}
        grid.append({"label": LABELS[n % 3], "premise": premise, "hypothesis": hypothesis})
    files: dict[str, list[dict[str, Any]]] = {
        "corpus": [{"_id": f"d{n}", "text": text} for n, text in enumerate(documents)],
        "asked": [{"query": f"which {text}", "pos": [f"d{n}"]} for n, text in enumerate(documents[:12])],
        "listed": [{"query": f"q {text}", "pos": [text], "neg": documents[20:]} for text in documents[:10]],
        "pairs": pairs,
        "labelled": [{"text": f"{text} again", "label": WORDS[n % 5]} for n, text in enumerate(documents)],
        "test": [{"text": text, "label": WORDS[n % 5]} for n, text in enumerate(documents[:10])],
        "parallel": [{"en": text, "he": f"ה{text}"} for text in documents[:9]],
        "grid": grid,
        "paragraphs": [{"para": f"p{n}", "en": f"paragraph {n}", "de": f"Absatz {n}"} for n in range(4)],
        "questions": [
            {"id": f"{n}", "para": f"p{n % 4}", "en": f"what is {n}", "de": f"was ist {n}"} for n in range(8)
        ],
    }
    for name, rows in files.items():
        lines(folder / f"{name}.jsonl", rows)


def tables(folder: Path) -> list[dict[str, Any]]:
    """A task of every kind."""

    def table(kind: str, data: str, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "data": str(folder / f"{data}.jsonl"), **more}

    classes = {"name": "classes", "test": str(folder / "test.jsonl")}
    return [
        table("retrieval", "asked", corpus=str(folder / "corpus.jsonl")),
        table("triplets", "listed"),
        table("sts", "pairs", name="sts en", where={"lang": "en"}),
        table("words", "pairs", name="words"),
        table("pair_classification", "pairs", name="same", label="same", positive="true"),
        table("bitext", "parallel", a="en", b="he"),
        table("classification", "labelled", **classes),
        table("clustering", "labelled", name="clusters", restarts=2),
        table("nli_grid", "grid"),
        table("question_grid", "questions", corpus=str(folder / "paragraphs.jsonl")),
    ]


def tiny(name: str, section: EncoderSection) -> DualEncoder:
    """A loader: a model whose weights follow from its name."""
    settings = EncoderSettings(max_tokens=48, query_prompt=section.query_prompt or "")
    return tiny_dual(width=16, seed=sum(map(ord, name)), settings=settings)


def suite(tasks: Sequence[dict[str, Any]], **more: Any) -> SuiteSettings:
    measure = {"resamples": 100, "report": ["nDCG@10", "RR"]}
    return checked(
        SuiteSettings, {"tasks": list(tasks), "measure": measure, "run": {"device": "cpu"}, **more}
    )


def run(
    settings: SuiteSettings, out: Path, *names: str, watch: Watch = SILENT, loader: Any = tiny
) -> SuiteResult:
    out.mkdir(exist_ok=True)
    subjects = resolve_models(settings.models, names, settings.encoder, loader)
    return evaluate_suite(subjects, settings, out, command="adiabat evaluate", watch=watch)
