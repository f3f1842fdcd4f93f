"""What samples look like without labels."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from ldsu import LDSU
from ldsu.methods import embedding_likeness, local_structure, sample_kinds


def embeddings(n=300, d=384, seed=0):
    """Unit rows around centers, as encoders of texts give them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    X = rng.standard_normal((4, d))[y] + 1.5 * rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def test_images_have_local_structure_and_independent_columns_none():
    digits = load_digits().data
    rng = np.random.default_rng(0)
    assert local_structure(digits) > 0.9
    assert local_structure(rng.permuted(digits, axis=0)) < 0.1
    assert local_structure(rng.standard_normal((500, 10))) < 0.1
    assert local_structure(rng.integers(0, 2, (500, 10)).astype(float)) < 0.1
    assert local_structure(scipy.sparse.csr_array(digits)) == 0
    assert local_structure(np.ones((5, 2))) == 0


def test_near_neighbors_make_images_of_many_columns_and_clusters_of_few():
    digits = load_digits().data
    few_columns = np.linalg.svd(digits - digits.mean(axis=0), full_matrices=False)[0][:, :12]
    kinds = [sample_kinds(X) for X in (digits, few_columns, embeddings()[0], load_wine().data)]
    for kind, largest in zip(kinds, ("image", "clustered", "embedding", None), strict=True):
        for name, value in kind._asdict().items():
            assert value > 0.5 if name == largest else value < 0.1, (kind, largest)
    assert all(sum(kind) <= 1 for kind in kinds)


def test_embeddings_have_hundreds_of_continuous_columns_and_little_structure():
    X, _ = embeddings()
    assert embedding_likeness(X) > 0.9
    assert embedding_likeness(1e5 * X + 7) > 0.9
    assert embedding_likeness(np.sign(X)) < 0.1
    assert embedding_likeness(scipy.sparse.csr_array(X)) == 0
    for load in (load_digits, load_wine, load_breast_cancer):
        assert embedding_likeness(load().data) == 0


@pytest.mark.parametrize(("parameters", "expected"), [({}, 10.0), ({"strength": 100.0}, 100.0)])
def test_the_graph_of_embeddings_has_less_weight_unless_it_is_given(parameters, expected):
    X, y = embeddings()
    few = np.where(np.arange(y.size) < np.array([np.flatnonzero(y == t)[1] for t in range(4)])[y], y, -1)
    assert LDSU(**parameters).fit(X, few).strength_ == expected
    several = np.where(np.arange(y.size) < 60, y, -1)
    model = LDSU(**parameters).fit(X, several)
    assert model.selection_ is None or {row["strength"] for row in model.selection_} == {0.0, 10.0, 100.0}
