"""``adiabat demo``: embed, tune and evaluate, on the embedded model and the embedded papers."""

from pathlib import Path

import adiabat
from adiabat.api.call import Progress, called
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_RETAIN, DEMO_TEST, DEMO_TRAIN, DEMO_VALIDATION
from adiabat.results.evaluation_result import Result
from adiabat.runs.run_config import is_job

MODEL = "demo"

LEARNING_RATE = 2e-6
"""Far above the regime's 5e-8, which is for 35,000 steps: the demo takes 300. LOG.md has the runs that chose it: the field tuned on gains
clearly, and the retention sets hold."""


def demo_files() -> dict[str, Path]:
    """Paths of the embedded demo data: 5,600 arXiv papers, queries on them, and sentences in three languages.

    Returns:
        ``corpus``, ``train``, ``validation`` and ``test`` (computer science), ``arxiv-math`` and ``arxiv-physics`` (retention sets of the
        corpus), ``tico19-corpus`` and ``tico19`` (Spanish and French questions for English sentences).

    Example:
        >>> sorted(adiabat.demo_files())
        ['arxiv-math', 'arxiv-physics', 'corpus', 'test', 'tico19', 'tico19-corpus', 'train', 'validation']
    """
    files = {"corpus": DEMO_CORPUS, "train": DEMO_TRAIN, "validation": DEMO_VALIDATION, "test": DEMO_TEST}
    retention = {name: examples for name, (_, examples) in DEMO_RETAIN.items()}
    return {**files, **retention, "tico19-corpus": DEMO_RETAIN["tico19"][0]}


def run_demo(out: Path, *, progress: Progress = None) -> Result:
    """Embed, tune, evaluate; steps that an interrupted demo finished are not repeated."""
    corpora = dict.fromkeys([DEMO_CORPUS, *(corpus for corpus, _ in DEMO_RETAIN.values())])
    stores = {corpus: out / "stores" / corpus.name.split(".")[0] for corpus in corpora}
    retain = [(stores[corpus], examples) for corpus, examples in DEMO_RETAIN.values()]
    job = out / "job"
    with called("demo", progress) as call:
        for corpus, store in stores.items():
            call.watch.note(f"embedding {store.name}")
            adiabat.embed(MODEL, corpus, store, progress=call.watch)
        if not ((job / "model").is_dir() and (job / "result.json").is_file()):
            adiabat.tune(
                MODEL,
                stores[DEMO_CORPUS],
                DEMO_TRAIN,
                job,
                resume=is_job(job),
                progress=call.watch,
                validation=DEMO_VALIDATION,
                learning_rate=LEARNING_RATE,
                negatives="hardest",
                batches_per_epoch=60,
                max_epochs=5,
                log_every=20,
            )
        return adiabat.evaluate(
            job, stores[DEMO_CORPUS], DEMO_TEST, baseline=MODEL, retain=retain, out=out, progress=call.watch, negatives="store"
        )
