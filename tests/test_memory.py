import tracemalloc

import numpy as np
import pytest

from conftest import few_labels
from ldsu import LDSU, METHODS
from ldsu.graphs import local_discriminant_graph
from ldsu.memory import available_memory, require_memory


def test_available_memory_is_a_sane_number():
    assert 0 < available_memory() < 2**50


def test_the_need_and_the_way_out_are_named():
    with pytest.raises(MemoryError, match=r"The job needs about 1024\.0 GiB, but .* GiB is available\. Do less\."):
        require_memory(2**40, "The job", "Do less.")
    require_memory(1, "The job", "Do less.")


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.__name__ != "EnFS"])
def test_too_many_samples_are_refused_before_anything_is_allocated(monkeypatch, method):
    monkeypatch.setattr("ldsu.memory.available_memory", lambda: 10 * 2**20)
    monkeypatch.setattr("ldsu.methods._base.available_memory", lambda: 10 * 2**20)
    X = np.random.default_rng(0).standard_normal((3000, 2))
    y = np.arange(3000) % 3
    with pytest.raises(MemoryError, match=r"dense kernel matrix of 3000 samples needs about .*at most \d+ rows"):
        method(gamma=1.0).fit(X, y)


@pytest.mark.parametrize(
    "method",
    [
        *[m() for m in METHODS.values() if m.__name__ not in ("EnFS", "KDA")],
        LDSU(filter="truncate"),
        LDSU(filter="heat"),
    ],
    ids=repr,
)
def test_the_estimate_covers_what_fit_takes_without_much_to_spare(monkeypatch, method):
    n = 700
    X = np.random.default_rng(0).standard_normal((n, 5))
    y = few_labels(np.arange(n) % 3, 20)
    estimates = []
    monkeypatch.setattr("ldsu.methods._base.require_memory", lambda needed, *_: estimates.append(needed))
    tracemalloc.start()
    try:
        method.set_params(gamma=1.0).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.6 * estimates[0] < peak < 1.1 * estimates[0], f"estimated {estimates[0]}, took {peak}"


def test_cliques_take_no_n_by_n_array():
    n = 6000
    X = np.random.default_rng(0).standard_normal((n, 5)).astype(np.float32)
    tracemalloc.start()
    try:
        local_discriminant_graph(X, None, clique_size=5, theta=0.1, relative=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.25 * 8 * n * n


def test_kda_builds_the_kernel_of_the_labelled_points_alone():
    n = 4000
    X = np.random.default_rng(0).standard_normal((n, 5))
    tracemalloc.start()
    try:
        METHODS["KDA"](gamma=1.0).fit(X, few_labels(np.arange(n) % 3, 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.01 * 8 * n * n
