"""Tune a query tower against stored vectors, and see what that changed: the main job in a few lines of
Python.

Run it with a folder for its files: ``python examples/01_tune_and_prove.py runs/example``
"""

import sys
from pathlib import Path

import adiabat

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
files = adiabat.demo_files()

# Embed the corpus once. From here on documents are only read.
store = adiabat.embed("demo", files["corpus"], out / "store")

# Tune for a minute: 100 steps of 14 queries against the hardest documents of the store. Without settings, a
# job measures first what tuning can gain, chooses its result among candidates, and takes about ten minutes.
job = adiabat.tune(
    "demo",
    store,
    files["train"],
    out / "job",
    resume=True,
    negatives="hardest",
    learning_rate=2e-6,
    batches_per_epoch=50,
    max_epochs=2,
)
print(job.summary())

# Measure before and after, on queries that were not trained on, each against the whole store.
evaluation = adiabat.evaluate(
    job, store, files["test"], baseline="demo", out=out / "evaluation", negatives="store"
)
print(evaluation.summary())
print(evaluation.page)
