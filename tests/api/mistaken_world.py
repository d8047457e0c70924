"""Files for the mistakes of `refusals.py`."""

from pathlib import Path

import numpy as np

from tests.commands import write_world

TASK = '[[tasks]]\nkind = "retrieval"\ndata = "{data}"\ncorpus = "corpus.jsonl"\n'
GRID = "[tune]\nmax_epochs = 1\nbatches_per_epoch = 2\n[grid]\ntune.learning_rate = [1e-6, 1e-5]\n"
SCALED = "[scaling]\nbudgets = [1e9, 4e9]\n[[models]]\nmodel = '{model}'\npretraining_rate = 1e-3\n"


def write_mistakes(here: Path) -> None:
    write_world(here)
    np.save(here / "vectors.npy", np.ones((20, 32), dtype=np.float32))
    np.save(here / "codes.npy", np.ones((20, 32), dtype=np.int8))
    for name in ("first.parquet", "second.parquet"):
        (here / name).write_bytes(b"none")
    (here / "job").mkdir()
    (here / "job" / "config.toml").write_text("[job]\nmodel = 'model'\n")
    (here / "notes").mkdir()
    (here / "notes" / "todo").write_text("x")
    (here / "a_file").write_text("x")
    (here / "strange.jsonl").write_text('{"frage": "how?", "treffer": "so"}\n')
    (here / "run.toml").write_text("[job]\nmodel = 'model'\ndata = 'pairs.jsonl'\n")
    tasks = {data: TASK.format(data=data) for data in ("pairs.jsonl", "gone.jsonl")}
    (here / "suite.toml").write_text(tasks["pairs.jsonl"])
    (here / "lost.toml").write_text(tasks["gone.jsonl"])
    (here / "of_mteb.toml").write_text('[[tasks]]\nkind = "mteb"\ntask = "STS17"\n')
    job = "[job]\nmodel = 'model'\nstore = 'store'\ndata = 'pairs.jsonl'\n"
    (here / "sweep.toml").write_text(job + GRID + tasks["pairs.jsonl"])
    (here / "lost_sweep.toml").write_text(job + GRID + tasks["gone.jsonl"])
    (here / "train_sweep.toml").write_text(
        '[sweep]\nverb = "train"\n[train]\nsteps = 2\n[grid]\ntrain.learning_rate = [1e-6, 1e-5]\n'
        + tasks["pairs.jsonl"]
    )
    (here / "scaling.toml").write_text(SCALED.format(model="model"))
    (here / "lost_scaling.toml").write_text(
        SCALED.format(model="gone/model") + "[job]\ndata = 'pairs.jsonl'\n"
    )
