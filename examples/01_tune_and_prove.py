"""Tune a query tower against stored vectors, and see what that changed: the main job in a few lines of Python.

Run it with a folder for its files: ``python examples/01_tune_and_prove.py runs/example``
"""

import sys
from pathlib import Path

import adiabat
from adiabat.config.reader import read_settings
from adiabat.config.shared import EvaluateSettings
from adiabat.config.tuning import TuneSettings
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_TEST, DEMO_TRAIN

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")

# Embed the corpus once. From here on documents are only read.
store = adiabat.embed("demo", DEMO_CORPUS, out / "store")

# Tune for a minute: 100 steps of 14 queries against the hardest documents of the store. The defaults are a far longer and slower regime.
short = ["tune.negatives=hardest", "tune.learning_rate=2e-6", "tune.batches_per_epoch=50", "tune.max_epochs=2"]
settings = read_settings(TuneSettings, assignments=short)
tuned = adiabat.tune("demo", store.path, DEMO_TRAIN, out / "job", settings=settings, resume=True)
assert tuned.training is not None
print(f"{tuned.training.steps} steps, validation errors by epoch: {tuned.training.validation_errors}")

# Measure before and after, on queries that were not trained on, each against the whole store.
measure = read_settings(EvaluateSettings, assignments=["measure.negatives=store"])
result = adiabat.evaluate(out / "job", store.path, DEMO_TEST, baseline="demo", out=out / "evaluation", settings=measure)
change = result.datasets[0].main_change()
print(f"{change.measure}: {change.before:.4f} -> {change.after:.4f}, paired 95 % interval {change.difference_interval}: {change.verdict}")
