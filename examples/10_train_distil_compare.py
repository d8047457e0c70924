"""Train both towers of a dual encoder, distil the result into a static model, and compare all of them.

Run it with a folder for its files: ``python examples/10_train_distil_compare.py runs/trained``
"""

import sys
from pathlib import Path

import adiabat

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/trained")
start = sys.argv[2] if len(sys.argv) > 2 else "demo"
files = adiabat.demo_files()

# Train both towers on queries and the documents that answer them. Gradient caching lets memory depend on the
# chunk, not on the batch. Twenty steps on short texts take a minute; a real run takes thousands.
adiabat.train(
    start,
    files["train"],
    out / "job",
    resume=True,
    corpus=files["corpus"],
    loss="samtone",
    learning_rate=2e-5,
    max_tokens=64,
    batch_size=32,
    steps=20,
    cached=True,
)

# Distil the trained encoder into one vector for each token: hundreds of times faster, and a little worse.
adiabat.distill_static(out / "job", out / "static", exist_ok=True)

# Measure both on test queries, beside the model that training started from and BM25.
task = {"kind": "retrieval", "name": "arxiv-cs", "data": files["test"], "corpus": files["corpus"]}
models = [
    {"name": "start", "model": start},
    {"name": "trained", "model": out / "job"},
    {"name": "static", "model": out / "static"},
]
suite = {"models": models, "tasks": [task]}
result = adiabat.evaluate_suite(["bm25"], suite, out / "suite", baseline="start")
print(result.summary())

# The scores of every query are saved: two models are compared again without loading either.
scores = out / "suite" / "scores"
comparison = adiabat.compare(scores / "bm25", scores / "static", out=out / "compared")
print(comparison.summary())
print(result.page, comparison.page)
