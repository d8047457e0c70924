"""What ``adiabat demo`` does: the three verbs in a row, on the embedded model and the embedded papers."""

from pathlib import Path

import adiabat
from adiabat.config.reader import checked
from adiabat.config.shared import EvaluateSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_RETAIN, DEMO_TEST, DEMO_TRAIN, DEMO_VALIDATION
from adiabat.results.evaluation_result import Result
from adiabat.runs.run_config import is_job

MODEL = "demo"

LEARNING_RATE = 2e-6
"""Far above the regime's 5e-8, which is for 35,000 steps: the demo takes 300. Chosen in LOG.md as a rate at which the field
tuned on gains clearly and the retention sets hold."""


def demo_settings() -> TuneSettings:
    """The demo's regime: the default one, shortened."""
    regime = {"learning_rate": LEARNING_RATE, "negatives": "hardest", "batches_per_epoch": 60, "max_epochs": 5}
    return checked(TuneSettings, {"data": {"validation": str(DEMO_VALIDATION)}, "tune": regime, "run": {"log_every": 20}})


def run_demo(out: Path, *, command: str = "adiabat demo", watch: Watch = SILENT) -> Result:
    """Embed, tune, evaluate; what an earlier, cut-short demo finished is not done again."""
    corpora = dict.fromkeys([DEMO_CORPUS, *(corpus for corpus, _ in DEMO_RETAIN.values())])
    stores = {corpus: out / "stores" / corpus.name.split(".")[0] for corpus in corpora}
    for corpus, store in stores.items():
        watch.note(f"embedding {corpus.name.split('.')[0]}")
        adiabat.embed(MODEL, corpus, store, watch=watch)
    job = out / "job"
    if not ((job / "model").is_dir() and (job / "result.json").is_file()):
        adiabat.tune(
            MODEL, stores[DEMO_CORPUS], DEMO_TRAIN, job, settings=demo_settings(), resume=is_job(job), command=command, watch=watch
        )
    retain = [(stores[corpus], examples) for corpus, examples in DEMO_RETAIN.values()]
    whole_store = checked(EvaluateSettings, {"measure": {"negatives": "store"}})
    return adiabat.evaluate(
        job,
        stores[DEMO_CORPUS],
        DEMO_TEST,
        baseline=MODEL,
        retain=retain,
        out=out,
        settings=whole_store,
        command=command,
        watch=watch,
    )
