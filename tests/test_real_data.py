"""Real images, where they are found: the method's promise holds on data nobody made for a test."""

import numpy as np
import pytest

from ldsu import KDA, KPCA, LDSU, LDSUClassifier, mean_average_precision

pytestmark = pytest.mark.slow


def images(real_data, name):
    X, y = real_data(f"{name}.npz")
    X = X.astype(np.float64)
    if name == "umist":  # exact copies of other images would leak from one half to the other
        _, first = np.unique(X, axis=0, return_index=True)
        return X[first], y[first]
    if name == "usps":
        rows = np.random.default_rng(0).permutation(len(X))[:4000]
        return X[rows], y[rows]
    if name == "yaleb":
        X = np.log1p(X)
        X -= X.mean(axis=1, keepdims=True)
        return X / np.linalg.norm(X, axis=1, keepdims=True), y
    return X, y


def held_out_map(method, X, y, labels, splits=3):
    scores = []
    for seed in range(splits):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(y))
        train, test = order[: len(y) // 2], order[len(y) // 2 :]
        few = np.full(len(train), -1)
        for label in np.unique(y):
            rows = np.flatnonzero(y[train] == label)[:labels]
            few[rows] = label
        model = LDSUClassifier(method).fit(X[train], few)
        scores.append(mean_average_precision(y[test], model.decision_function(X[test]), classes=model.classes_))
    return np.mean(scores)


@pytest.mark.parametrize("filter", ["tikhonov", "heat", "truncate"])
@pytest.mark.parametrize(("name", "gain"), [("umist", 0.08), ("coil20", 0.05), ("usps", 0.05)])
def test_from_one_label_per_class_ldsu_is_far_ahead_of_kernel_pca(real_data, name, filter, gain):
    X, y = images(real_data, name)
    ldsu = held_out_map(LDSU(filter=filter, strength=100.0 if filter == "tikhonov" else 10.0), X, y, 1)
    assert ldsu > held_out_map(KPCA(), X, y, 1) + gain


@pytest.mark.parametrize(
    ("name", "labels", "paper"),
    [("umist", 1, 0.654), ("umist", 3, 0.889), ("coil20", 3, 0.850), ("coil20", 5, 0.897), ("coil20", 10, 0.957)],
)
def test_untuned_default_reaches_the_papers_tuned_figure(real_data, name, labels, paper):
    assert held_out_map(LDSU(), *images(real_data, name), labels) > paper


def test_nine_labels_per_class_solve_umist(real_data):
    X, y = images(real_data, "umist")
    assert held_out_map(LDSU(), X, y, 9) > 0.985


def test_where_neighbors_share_light_and_not_the_person_a_weaker_filter_is_better(real_data):
    """The graph misleads on Yale B: documented, so that nobody trusts the default there."""
    X, y = images(real_data, "yaleb")
    strong, weak = (held_out_map(LDSU(strength=s), X, y, 10, splits=1) for s in (100.0, 1.0))
    assert weak > strong
    assert held_out_map(KDA(), X, y, 10, splits=1) > strong


def test_digits_of_the_postal_service_from_three_labels(real_data):
    X, y = images(real_data, "usps")
    assert held_out_map(LDSU(), X, y, 3) > 0.86
