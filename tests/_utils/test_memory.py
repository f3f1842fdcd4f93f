import numpy as np
import pytest
import scipy.sparse

from conftest import few_labels, peak_memory
from ldsu import LDSU, METHODS
from ldsu._utils.memory import available_memory, require_memory
from ldsu.graphs import clique_laplacian, clique_scatter


def test_available_memory_is_a_sane_number():
    assert 0 < available_memory() < 2**50


def test_the_need_and_the_way_out_are_named():
    with pytest.raises(MemoryError, match=r"The job needs about 1024\.0 GiB, but .* GiB is available\. Do less\."):
        require_memory(2**40, "The job", "Do less.")
    require_memory(1, "The job", "Do less.")


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.__name__ != "EnFS"])
def test_too_many_samples_are_refused_before_anything_is_allocated(monkeypatch, method):
    for name in ("ldsu._utils.memory.available_memory", "ldsu.methods._base.available_memory"):
        monkeypatch.setattr(name, lambda: 10 * 2**20)
    X = np.random.default_rng(0).standard_normal((3000, 2))
    y = np.arange(3000) % 3
    message = rf"{method.__name__} for 3000 samples needs about .*at most \d+ rows"
    with peak_memory() as peak, pytest.raises(MemoryError, match=message):
        method().fit(X, y)
    assert peak() < 2**20


TAKES_KERNEL = [m for m in METHODS.values() if m.__name__ not in ("EnFS", "KDA")]
SETTINGS = [
    *[m() for m in TAKES_KERNEL],
    LDSU(filter="truncate"),
    LDSU(None, filter="truncate"),
    LDSU(filter="heat"),
    LDSU(kernel="cosine"),
]


@pytest.mark.parametrize("labelled", ["few", "all"])
@pytest.mark.parametrize("method", SETTINGS, ids=repr)
def test_the_estimate_covers_what_fit_takes_without_much_to_spare(monkeypatch, method, labelled):
    n = 700
    X = np.random.default_rng(0).standard_normal((n, 5))
    y = few_labels(np.arange(n) % 3, 20) if labelled == "few" else np.arange(n) % 3
    estimates = []
    monkeypatch.setattr("ldsu.methods._base.require_memory", lambda needed, *_: estimates.append(needed))
    with peak_memory() as peak:
        method.set_params(gamma=1.0).fit(X, y)
    estimated, taken = estimates[0] / n**2 / 8, peak() / n**2 / 8
    assert 0.6 * estimated < taken < 1.1 * estimated


def test_the_estimate_covers_word_counts_made_dense(monkeypatch):
    X = scipy.sparse.random(300, 20_000, 1e-2, "csr", random_state=0)
    estimates = []
    monkeypatch.setattr("ldsu.methods._base.require_memory", lambda needed, *_: estimates.append(needed))
    with peak_memory() as peak:
        LDSU(kernel="chi2").fit(X, np.arange(300) % 3)
    assert 0.4 * estimates[0] < peak() < 1.1 * estimates[0]


def test_features_from_neighbors_ask_for_memory_before_they_take_it(monkeypatch):
    X = np.random.default_rng(0).standard_normal((500, 2))
    model = LDSU(solver="sparse", n_conditioning=400, n_landmarks=5, min_anchors=5).fit(X[:450])
    estimates = []
    monkeypatch.setattr("ldsu.solvers._local_expansion.require_memory", lambda needed, *_: estimates.append(needed))
    with peak_memory() as peak:
        model.transform(X[450:])
    assert peak() < 1.1 * estimates[0] < 2 * 50 * 32 * 402**2  # four systems for each row
    monkeypatch.undo()
    monkeypatch.setattr("ldsu._utils.arrays.available_memory", lambda: 2**20)
    with peak_memory() as peak, pytest.raises(MemoryError, match=r"50 row\(s\) from 401 neighbors each needs about"):
        model.transform(X[450:])
    assert peak() < 2**20


def test_file_pages_of_a_container_count_as_room(monkeypatch, tmp_path):
    files = {
        "memory.max": f"{2**30}\n",
        "memory.current": f"{2**30 - 100}\n",
        "memory.stat": "anon 5\ninactive_file 4000\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("ldsu._utils.memory.CGROUP", tmp_path)
    assert available_memory() == 4100
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 4100


def test_cliques_take_no_n_by_n_array():
    n = 6000
    X = np.random.default_rng(0).standard_normal((n, 5)).astype(np.float32)
    with peak_memory() as peak:
        clique_laplacian(*clique_scatter(X, None, 5), theta=0.1, relative=True)
    assert peak() < 0.25 * 8 * n * n


def test_kda_builds_the_kernel_of_the_labelled_points_alone():
    n = 4000
    X = np.random.default_rng(0).standard_normal((n, 5))
    with peak_memory() as peak:
        METHODS["KDA"](gamma=1.0).fit(X, few_labels(np.arange(n) % 3, 20))
    assert peak() < 0.01 * 8 * n * n
