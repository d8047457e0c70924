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
    documents = [f"{WORDS[number % 5]} {number} and {WORDS[number // 5]}" for number in range(25)]
    lines(
        folder / "corpus.jsonl",
        [{"_id": f"d{number}", "text": text} for number, text in enumerate(documents)],
    )
    lines(
        folder / "asked.jsonl",
        [{"query": f"which {text}", "pos": [f"d{number}"]} for number, text in enumerate(documents[:12])],
    )
    lines(
        folder / "listed.jsonl",
        [{"query": f"q {text}", "pos": [text], "neg": documents[20:]} for text in documents[:10]],
    )
    pairs = [
        {"a": documents[n], "b": documents[n * 7 % 25], "score": n * n % 11, "lang": "en" if n % 2 else "he"}
        for n in range(24)
    ]
    lines(
        folder / "pairs.jsonl",
        [{**pair, "set": f"set {n % 2}", "same": n % 3 == 0} for n, pair in enumerate(pairs)],
    )
    lines(
        folder / "labelled.jsonl",
        [{"text": f"{text} again", "label": WORDS[n % 5]} for n, text in enumerate(documents)],
    )
    lines(
        folder / "test.jsonl",
        [{"text": text, "label": WORDS[n % 5]} for n, text in enumerate(documents[:10])],
    )
    lines(folder / "parallel.jsonl", [{"en": text, "he": f"ה{text}"} for text in documents[:9]])
    grid = [
        {
            "label": LABELS[n % 3],
            "premise": {"en": f"p {n // 3}", "de": f"das {n // 3}"},
            "hypothesis": {"en": f"h {n}", "de": f"ein {n}"},
        }
        for n in range(18)
    ]
    lines(folder / "grid.jsonl", grid)
    lines(
        folder / "paragraphs.jsonl",
        [{"para": f"p{n}", "en": f"paragraph {n}", "de": f"Absatz {n}"} for n in range(4)],
    )
    lines(
        folder / "questions.jsonl",
        [{"id": f"{n}", "para": f"p{n % 4}", "en": f"what is {n}", "de": f"was ist {n}"} for n in range(8)],
    )


def tables(folder: Path) -> list[dict[str, Any]]:
    """A task of every kind."""
    pairs = str(folder / "pairs.jsonl")
    return [
        {"kind": "retrieval", "data": str(folder / "asked.jsonl"), "corpus": str(folder / "corpus.jsonl")},
        {"kind": "triplets", "data": str(folder / "listed.jsonl")},
        {"kind": "sts", "name": "sts en", "data": pairs, "where": {"lang": "en"}},
        {"kind": "words", "name": "words", "data": pairs},
        {"kind": "pair_classification", "name": "same", "data": pairs, "label": "same", "positive": "true"},
        {"kind": "bitext", "data": str(folder / "parallel.jsonl"), "a": "en", "b": "he"},
        {
            "kind": "classification",
            "data": str(folder / "labelled.jsonl"),
            "test": str(folder / "test.jsonl"),
            "name": "classes",
        },
        {"kind": "clustering", "data": str(folder / "labelled.jsonl"), "name": "clusters", "restarts": 2},
        {"kind": "nli_grid", "data": str(folder / "grid.jsonl")},
        {
            "kind": "question_grid",
            "data": str(folder / "questions.jsonl"),
            "corpus": str(folder / "paragraphs.jsonl"),
        },
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
