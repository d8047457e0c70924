"""Classes and clusters of texts, worked by hand and against scikit-learn."""

from functools import partial

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, v_measure_score

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT
from adiabat.data.labelled import LabelledTexts
from adiabat.evaluation import labels as module
from adiabat.evaluation.labels import score_classification, score_clustering
from adiabat.models.embedding_head import EncoderSettings
from adiabat.stats.samples import TaskScores
from tests.evaluation.given_vectors import give, sentences
from tests.evaluation.scored import figure
from tests.tiny import tiny_dual

RAW = EncoderSettings(max_tokens=64, normalize=False)


classified = partial(score_classification, side="query", name="classes", seed=0, watch=SILENT)
clustered = partial(score_clustering, side="query", name="clusters", seed=0, watch=SILENT)


def topics(count: int, *, seed: int) -> LabelledTexts:
    """Made-up sentences; the label is told by how long they are, and by chance."""
    texts = sentences(count, seed=seed)
    chance = np.random.default_rng(seed + 100).integers(0, 2, size=count)
    labels = [f"label {(len(text) // 8 + extra) % 3}" for text, extra in zip(texts, chance, strict=True)]
    return LabelledTexts("topics", texts, labels)


def renamed(data: LabelledTexts) -> LabelledTexts:
    """With labels of other names, in another order."""
    names = {"label 0": "z", "label 1": "a", "label 2": "m"}
    return LabelledTexts("renamed", data.texts, [names[label] for label in data.labels])


def by_hand(**labels: str) -> LabelledTexts:
    return LabelledTexts("hand", list(labels), list(labels.values()))


PLACES = {"l": -1, "ll": -2, "r": 1, "rr": 2, "a": -3, "b": 3, "c": 4, "d": -4, "e": 5}
HAND = {text: [float(place), 0.0] for text, place in PLACES.items()}
TRAINING = by_hand(l="left", ll="left", r="right", rr="right")


# Classification.


def test_classification_worked_by_hand(monkeypatch):
    asked = give(monkeypatch, HAND)
    # Right of zero is "right": a, b, c are told, d and e are not. Left: 1 of 2; right: 2 of 3.
    test = by_hand(a="left", b="right", c="right", d="right", e="left")
    scores = classified(tiny_dual(), TRAINING, test, side="document")
    assert scores.samples[0].values.tolist() == [1, 1, 1, 0, 0]
    assert figure(scores, "accuracy") == pytest.approx(3 / 5)
    assert figure(scores, "balanced accuracy") == pytest.approx((1 / 2 + 2 / 3) / 2)
    # Of each label precision and recall: left 1/2 and 1/2, right 2/3 and 2/3.
    assert scores.facts == {"macro F1": pytest.approx((1 / 2 + 2 / 3) / 2), "labels": 2, "training texts": 4}
    assert (scores.kind, scores.unit) == ("classification", "text")
    assert (list(scores.units), list(scores.texts)) == (list("01234"), list("abcde"))
    assert (asked[0][0], len(asked), scores.notes) == ("document", 1, ())


@pytest.mark.parametrize("regularization", [1.0, 0.001])
@pytest.mark.parametrize("settings", [EncoderSettings(max_tokens=64), RAW], ids=["unit", "raw"])
def test_classification_equals_scikit_learn_on_the_vectors_as_they_are(settings, regularization):
    # With these seeds no text lies so near to a boundary that rounding, which differs from machine to
    # machine, decides.
    training, test, model = topics(120, seed=3), topics(60, seed=4), tiny_dual(seed=3, settings=settings)
    scores = classified(model, training, test, regularization=regularization)
    known, asked = (model.encode(data.texts, side="query", precision="fp32") for data in (training, test))
    regression = LogisticRegression(C=regularization, max_iter=1000)
    given = regression.fit(known.astype(np.float64), training.labels).predict(asked.astype(np.float64))
    assert figure(scores, "accuracy") == pytest.approx(accuracy_score(test.labels, given))
    assert figure(scores, "balanced accuracy") == pytest.approx(balanced_accuracy_score(test.labels, given))
    assert scores.facts["macro F1"] == pytest.approx(f1_score(test.labels, given, average="macro"))


def test_the_order_of_training_texts_and_the_names_of_labels_do_not_matter():
    training, test, model = topics(90, seed=1), topics(40, seed=2), tiny_dual(seed=3)
    turned = renamed(LabelledTexts("turned", training.texts[::-1], training.labels[::-1]))
    one, two = classified(model, training, test), classified(model, turned, renamed(test))
    np.testing.assert_array_equal(one.samples[0].values, two.samples[0].values)
    assert figure(one, "balanced accuracy") == pytest.approx(figure(two, "balanced accuracy"))


def test_so_many_texts_of_each_label_are_drawn_and_the_seed_decides_which(monkeypatch):
    training = topics(60, seed=1)
    texts = [*training.texts, "new"]
    asked = give(monkeypatch, {text: [len(text), float(number)] for number, text in enumerate(texts)})
    test = LabelledTexts("test", ["new"], ["label 0"])

    def drawn(seed: int, per_label: int | None) -> list[str]:
        scores = classified(tiny_dual(), training, test, per_label=per_label, seed=seed)
        assert scores.facts["training texts"] == len(asked[-1][2]) - 1
        return asked[-1][2][:-1]

    few = drawn(0, 5)
    label_of = dict(zip(training.texts, training.labels, strict=True))
    assert sorted(label_of[text] for text in few) == ["label 0"] * 5 + ["label 1"] * 5 + ["label 2"] * 5
    assert few == [text for text in training.texts if text in few]
    assert drawn(0, 5) == few
    assert drawn(1, 5) != few
    assert drawn(0, None) == drawn(0, 60) == list(training.texts)


def test_a_label_of_few_texts_gives_all_of_them_and_is_noted():
    training = LabelledTexts("uneven", sentences(5, seed=0), ["x", "x", "x", "y", "y"])
    test = LabelledTexts("test", ["one more", "another"], ["x", "y"])
    scores = classified(tiny_dual(), training, test, per_label=3)
    assert scores.notes == ("1 of 2 labels have fewer than 3 training texts and give all of them",)


def test_a_label_without_training_texts_is_refused_before_anything_is_encoded(monkeypatch):
    asked = give(monkeypatch, {})
    with pytest.raises(DataError, match=r'got none for "up" \(1\); leave those out'):
        classified(tiny_dual(), TRAINING, by_hand(a="left", b="up"))
    with pytest.raises(DataError, match="at least two labels"):
        classified(tiny_dual(), by_hand(l="left"), by_hand(a="left"))
    assert asked == []


def test_equal_vectors_let_the_regression_guess_the_most_frequent_label_and_are_noted(monkeypatch):
    training, test = by_hand(l="left", ll="left", r="right"), by_hand(a="left", b="right")
    give(monkeypatch, {text: [1.0, 1.0] for text in HAND})
    scores = classified(tiny_dual(), training, test)
    assert scores.samples[0].values.tolist() == [1, 0]
    assert scores.notes == ("all 3 training texts together have one vector, too few to tell 2 labels apart",)


def test_what_a_reader_should_know_of_the_test_is_noted(monkeypatch):
    training, test = by_hand(l="left", r="right", rr="up"), by_hand(l="left", b="right", r="left")
    give(monkeypatch, HAND)
    monkeypatch.setattr(module, "ITERATIONS", 1)
    scores = classified(tiny_dual(), training, test)
    assert scores.notes == (
        "2 of 3 test texts are training texts too",
        "the regression had not converged after 1 iterations",
        "the test has 2 of 3 labels",
    )


# Clustering.


def test_clustering_worked_by_hand(monkeypatch):
    give(monkeypatch, {"a": [0.0, 0.0], "b": [0.1, 0.0], "c": [9.0, 0.0], "d": [9.1, 0.0]})
    texts = by_hand(a="x", b="x", c="x", d="y")
    scores = clustered(tiny_dual(), texts)
    # Two clusters of two; knowing the cluster leaves half of the second pair's label open: H(label | cluster)
    # = ln 2 / 2.
    label, cluster, open_label = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25)), np.log(2), np.log(2) / 2
    homogeneity = 1 - open_label / label
    completeness = (label - open_label) / cluster
    mean = 2 * homogeneity * completeness / (homogeneity + completeness)
    assert figure(scores, "V-measure") == pytest.approx(mean)
    facts = {"homogeneity": homogeneity, "completeness": completeness, "clusters": 2}
    assert scores.facts == pytest.approx(facts)
    assert (scores.kind, scores.unit) == ("clustering", "text")
    assert (list(scores.units), scores.notes) == (list("0123"), ())


def test_clustering_equals_scikit_learn_on_the_vectors_as_they_are():
    texts, model = topics(80, seed=1), tiny_dual(seed=3, settings=RAW)
    vectors = model.encode(texts.texts, side="document", precision="fp32")
    for restarts, seed in ((1, 0), (1, 1), (10, 0)):
        scores = clustered(model, texts, side="document", restarts=restarts, seed=seed)
        clusters = KMeans(3, n_init=restarts, random_state=seed).fit_predict(vectors)
        np.testing.assert_array_equal(scores.samples[0].values, clusters)
        peer = v_measure_score(texts.labels, clusters)
        assert figure(scores, "V-measure") == pytest.approx(peer, abs=1e-12)


def test_clustering_takes_seeds_beyond_those_of_scikit_learn():
    texts, model = topics(40, seed=1), tiny_dual(seed=3)

    def clusters(seed: int) -> list[float]:
        return clustered(model, texts, restarts=1, seed=seed).samples[0].values.tolist()

    assert clusters(2**32 + 5) == clusters(5)
    assert len(clusters(2**64 - 1)) == 40


def test_the_names_of_labels_do_not_matter_to_clusters():
    texts, model = topics(50, seed=1), tiny_dual(seed=3)
    one, two = (figure(clustered(model, data), "V-measure") for data in (texts, renamed(texts)))
    assert one == pytest.approx(two, abs=1e-12)


def test_the_seed_decides_which_texts_are_drawn_and_all_models_get_the_same():
    texts = topics(50, seed=1)

    def drawn(seed: int, most: int | None, model: int = 0) -> TaskScores:
        return clustered(tiny_dual(seed=model), texts, max_texts=most, seed=seed)

    few = drawn(0, 20)
    assert len(few.units) == 20
    assert few.texts == [texts.texts[int(unit)] for unit in few.units]
    assert few.notes == ("20 of 50 texts were drawn at random",)
    assert drawn(0, 20, model=1).units == few.units
    assert drawn(1, 20).units != few.units
    assert len(drawn(0, 50).units) == len(drawn(0, None).units) == 50


def test_equal_vectors_make_one_cluster_and_are_noted_without_a_warning(monkeypatch):
    give(monkeypatch, {text: [1.0, 1.0] for text in HAND})
    scores = clustered(tiny_dual(), TRAINING)
    assert figure(scores, "V-measure") == 0
    assert scores.notes == ("all 4 texts together have one vector, too few to tell 2 labels apart",)
    give(monkeypatch, {"a": [0.0], "b": [0.0], "c": [1.0], "d": [1.0]})
    scores = clustered(tiny_dual(), by_hand(a="x", b="x", c="y", d="z"))
    assert scores.notes == ("all 4 texts together have 2 different vectors, too few to tell 3 labels apart",)


def test_one_label_alone_is_refused_before_anything_is_encoded(monkeypatch):
    asked = give(monkeypatch, {})
    with pytest.raises(DataError, match='hand must have texts of at least two labels, got only "x"'):
        clustered(tiny_dual(), by_hand(a="x", b="x"))
    assert asked == []
