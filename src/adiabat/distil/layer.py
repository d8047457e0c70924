"""Where a student starts: a linear layer on top of it that brings its vectors as near to its teachers' as a layer can (mission D6)."""

import hashlib
import json
from heapq import nsmallest
from operator import attrgetter
from pathlib import Path

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import RidgeCV

from adiabat.data.corpora import read_corpus
from adiabat.data.examples import stream_examples
from adiabat.distil.lessons import VALIDATION, Lessons
from adiabat.distil.targets import kept_matrix, require_texts, unit
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store
from adiabat.watch import SILENT, Watch

SAMPLE = 8_192
"""Texts that a layer is fitted to: four times as many brought a student no nearer."""

STRENGTHS = tuple(np.logspace(-4, 4, 17).tolist())
"""Of the ridge penalty, from next to none to all."""


def fitted_layer(rows: Float[np.ndarray, "n d"], towards: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "d e"]:
    """The linear map from a student's vectors to its teachers' that predicts texts left out best.

    A ridge regression without intercept, in closed form. What it shrinks towards are zeros, or, where both widths are one, the vectors as
    they are: a student that starts in its teachers' space should stay there, and few texts say nothing about most directions.
    """
    (count, width), wide = rows.shape, towards.shape[1]
    origins = [np.eye(width)] if width == wide else []
    if count > width or not origins:
        origins.append(np.zeros((width, wide)))
    exact, wanted = rows.astype(np.float64), towards.astype(np.float64)
    # Strengths are of rows whose length is 1 in the quadratic mean.
    unit_of = np.sqrt(np.square(exact).sum(axis=1).mean()) or 1.0
    fits = [(RidgeCV(alphas=STRENGTHS, fit_intercept=False).fit(exact / unit_of, wanted - exact @ origin), origin) for origin in origins]
    best, origin = max(fits, key=lambda one: float(one[0].best_score_))
    weights: Float[np.ndarray, "d e"] = (origin + best.coef_.T / unit_of).astype(np.float32)
    return weights


def write_layer(student: DualEncoder, targets: Store, lessons: Lessons, folder: Path, *, watch: Watch = SILENT) -> Path:
    """Fit a layer to texts of the teachers that are not held out, once."""
    made_of = targets.manifest.sha256 + json.dumps(student.fingerprint("query").to_json())
    path = folder / f"layer-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.npy"
    kept_matrix(path, lambda: _layer(student, targets, lessons, watch))
    return path


def _layer(student: DualEncoder, targets: Store, lessons: Lessons, watch: Watch) -> Float[np.ndarray, "d e"]:
    held_out = {positive for example in stream_examples(lessons.path(VALIDATION)).examples for positive in example.positives}
    documents = (document for document in read_corpus(lessons.folder) if document.doc_id not in held_out)
    # Ids are digests of texts: the smallest are drawn from all files alike, and the same in every run.
    sample = nsmallest(SAMPLE, documents, key=attrgetter("doc_id"))
    if student.width != targets.width:
        require_texts(len(sample), student.width, left_out=" beside those held out")
    label = "embedding texts by the student"
    rows = student.encode(
        [document.text for document in sample], side="query", on_progress=lambda now: watch.progress(label, now.done, now.total)
    )
    towards = targets.gather(targets.rows([document.doc_id for document in sample])).astype(np.float32)
    watch.note(f"the student starts with a layer that {len(sample):,} texts bring nearest to its teachers' vectors")
    return fitted_layer(rows, unit(towards) if student.query.settings.unit_length else towards)
