"""Texts with labels: classification and clustering on frozen vectors."""

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float32, Int

from adiabat.core.progress import Watch
from adiabat.data.labelled import LabelledTexts, require_separable
from adiabat.data.records import Side
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import SHARE, Sample, TaskScores
from adiabat.stats.unit_arrays import Numbers
from adiabat.store.text_vectors import embed_texts

ITERATIONS = 1_000
"""Maximum steps of the logistic regression: ten times the default of scikit-learn and mteb, for many labels
and unit vectors."""

Vectors = Float32[np.ndarray, "n e"]


def score_classification(
    model: DualEncoder,
    training: LabelledTexts,
    test: LabelledTexts,
    *,
    side: Side,
    name: str,
    per_label: int | None = None,
    regularization: float = 1.0,
    seed: int,
    watch: Watch,
) -> TaskScores:
    """Accuracy of logistic regression on frozen vectors, of unit length or not, trained on some texts and
    tested on others.

    `per_label` training texts of each label are drawn at random; None takes all.
    """
    from sklearn.metrics import f1_score

    require_separable(training, test)
    # Labels are numbered in sorted order, which no order of rows changes.
    labels = training.distinct
    rows = _drawn(_numbers(training, labels), per_label, seed=seed)
    texts = [training.texts[row] for row in rows]
    # One call, so that texts in both sets are embedded once.
    vectors = embed_texts(model, [*texts, *test.texts], side=side, name=name, watch=watch)
    training_labels, test_labels = _numbers(training, labels)[rows], _numbers(test, labels)
    predicted, converged = _predicted(
        vectors[: len(texts)], training_labels, vectors[len(texts) :], regularization=regularization
    )
    correct = (predicted == test_labels).astype(np.float64)
    present, groups = np.unique(test_labels, return_inverse=True)
    facts = {
        "macro F1": float(f1_score(test_labels, predicted, average="macro")),
        "labels": float(len(labels)),
        "training texts": float(len(texts)),
    }
    notes = [
        *_training_notes(np.bincount(training_labels), per_label, texts, test.texts),
        *_distinct_notes(vectors[: len(texts)], "training texts", labels=len(labels)),
    ]
    if not converged:
        notes.append(f"the regression had not converged after {ITERATIONS:,} iterations")
    if len(present) < len(labels):
        notes.append(f"the test has {len(present):,} of {len(labels):,} labels")
    samples = [
        Sample("accuracy", correct, bounds=SHARE),
        # The mean over labels of the share that is right.
        Sample("balanced accuracy", correct, groups=groups, bounds=SHARE),
    ]
    units = list(map(str, range(len(test))))
    return TaskScores(
        name, "classification", "text", units, samples, texts=test.texts, facts=facts, notes=tuple(notes)
    )


def score_clustering(
    model: DualEncoder,
    texts: LabelledTexts,
    *,
    side: Side,
    name: str,
    restarts: int = 10,
    max_texts: int | None = None,
    seed: int,
    watch: Watch,
) -> TaskScores:
    """V-measure of k-means on the vectors, of unit length or not, with as many clusters as labels.

    `max_texts` texts are drawn at random; None takes all.
    """
    from sklearn.metrics import completeness_score, homogeneity_score

    rows: list[int] = list(range(len(texts)))
    if max_texts is not None and max_texts < len(texts):
        rows = np.sort(np.random.default_rng(seed).choice(len(texts), size=max_texts, replace=False)).tolist()
    chosen = LabelledTexts(
        texts.name, [texts.texts[row] for row in rows], [texts.labels[row] for row in rows]
    )
    require_separable(chosen)
    labels = chosen.distinct
    truth = _numbers(chosen, labels)
    vectors = embed_texts(model, chosen.texts, side=side, name=name, watch=watch)
    clusters = _clusters(vectors, len(labels), restarts=restarts, seed=seed)
    values, reference = clusters.astype(np.float64), truth.astype(np.float64)
    sample = Sample("V-measure", values, "", reference, "v-measure", bounds=SHARE)
    facts = {
        "homogeneity": float(homogeneity_score(truth, clusters)),
        "completeness": float(completeness_score(truth, clusters)),
        "clusters": float(len(labels)),
    }
    notes = _distinct_notes(vectors, "texts", labels=len(labels))
    if len(chosen) < len(texts):
        notes.append(f"{len(chosen):,} of {len(texts):,} texts were drawn at random")
    units = list(map(str, rows))
    return TaskScores(
        name, "clustering", "text", units, [sample], texts=chosen.texts, facts=facts, notes=tuple(notes)
    )


def _numbers(texts: LabelledTexts, labels: Sequence[str]) -> Numbers:
    """Number of each text's label among all labels."""
    number_of = {label: number for number, label in enumerate(labels)}
    return np.array([number_of[label] for label in texts.labels], dtype=np.int64)


def _drawn(numbers: Numbers, per_label: int | None, *, seed: int) -> Int[np.ndarray, " m"]:
    """Training rows, in file order."""
    if per_label is None:
        return np.arange(numbers.size)
    # One permutation for all labels: another `per_label` draws a longer or shorter part of the same.
    shuffled = np.random.default_rng(seed).permutation(numbers.size)
    rows = [shuffled[numbers[shuffled] == number][:per_label] for number in np.unique(numbers)]
    return np.sort(np.concatenate(rows))


def _predicted(
    training: Vectors,
    known: Numbers,
    test: Float32[np.ndarray, "m e"],
    *,
    regularization: float,
) -> tuple[Int[np.ndarray, " m"], bool]:
    """Predicted labels, and whether the regression converged."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classifier = LogisticRegression(C=regularization, max_iter=ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # 64 bits: 32 bits would round away the differences that the optimiser follows.
        classifier.fit(training.astype(np.float64), known)
    return classifier.predict(test.astype(np.float64)), bool((classifier.n_iter_ < ITERATIONS).all())


def _clusters(vectors: Vectors, count: int, *, restarts: int, seed: int) -> Numbers:
    """The cluster of each vector."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # It warns of fewer distinct vectors than clusters; a note says so.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # scikit-learn takes seeds of 32 bits.
        means = KMeans(n_clusters=count, n_init=restarts, random_state=seed % 2**32)
        clusters: Numbers = means.fit_predict(vectors)
    return clusters


def _training_notes(
    counts: Int[np.ndarray, " k"], per_label: int | None, training: Sequence[str], test: Sequence[str]
) -> Iterator[str]:
    """Notes on labels with few training texts, and on test texts that are also training texts."""
    few = 0 if per_label is None else int((counts < per_label).sum())
    if few:
        yield (
            f"{few:,} of {counts.size:,} labels have fewer than {per_label:,} "
            "training texts and give all of them"
        )
    known = set(training)
    if both := sum(text in known for text in test):
        yield f"{both:,} of {len(test):,} test texts are training texts too"


def _distinct_notes(vectors: Vectors, texts: str, *, labels: int) -> list[str]:
    """A note on fewer distinct vectors than labels."""
    distinct = len(np.unique(vectors, axis=0))
    if distinct >= labels:
        return []
    had = "one vector" if distinct == 1 else f"{distinct:,} different vectors"
    return [f"all {len(vectors):,} {texts} together have {had}, too few to tell {labels:,} labels apart"]
