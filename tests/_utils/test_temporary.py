"""Arrays in temporary files: nothing is left of them, and a full disk is said before the work."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from conftest import few_labels, peak_memory
from ldsu import LDSU, LDSUClassifier
from ldsu._utils import temporary
from ldsu._utils.temporary import DiskError, FileArrays, file_array, is_mapped, require_disk, temporary_folder
from ldsu.kernels import mapped_floats
from ldsu.labels import encode_labels
from ldsu.solvers import arrays_in_files, memory_with_files

N = 700


def ldsu(kernel="rbf"):
    return LDSU(kernel=kernel, strength=10.0, solver="sparse", neighbor_search="cells", n_landmarks=20, min_anchors=20)


@pytest.fixture
def files(monkeypatch, tmp_path):
    """Memory that does not hold the samples, and an empty folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("ldsu.methods.ldsu.available_memory", lambda: 2**20)
    monkeypatch.setattr("ldsu.kernels.available_memory", lambda: 2**20)
    monkeypatch.setattr(temporary, "MIN_FILE_BYTES", 1)
    return tmp_path


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N)
    X = (3 * rng.standard_normal((3, 6))[y] + rng.standard_normal((N, 6))).astype(np.float32)
    return X, few_labels(y, 4)


def test_a_file_array_has_no_name_and_frees_its_space(files):
    array = file_array((1000, 3), np.float32)
    assert is_mapped(array[5:])
    assert not array.any()
    assert list(files.iterdir()) == []


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cosine"])
def test_arrays_in_files_give_the_results_of_arrays_in_memory(files, blobs, kernel, monkeypatch, tmp_path):
    X, y = blobs
    np.save(tmp_path / "x.npy", X)
    with monkeypatch.context() as patch:
        patch.setattr("ldsu.methods.ldsu.available_memory", lambda: 2**40)
        expected = ldsu(kernel).fit(X, y)
        classified = LDSUClassifier(ldsu(kernel)).fit(X, y)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = ldsu(kernel).fit(mapped, y)
    assert is_mapped(model.feature_map_.local)
    assert is_mapped(model.feature_map_.points)
    Z, expected_Z = model.transform(X[:100]), expected.transform(X[:100])
    np.testing.assert_allclose(Z, expected_Z, atol=2e-3 * np.abs(expected_Z).max())
    assert LDSUClassifier(ldsu(kernel)).fit(mapped, y).transduction_.tolist() == classified.transduction_.tolist()


def test_integers_that_do_not_fit_as_floats_are_converted_in_a_file(files, tmp_path):
    X = np.random.default_rng(0).integers(0, 255, (N, 100)).astype(np.uint8)
    np.save(tmp_path / "x.npy", X)
    floats = mapped_floats(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert is_mapped(floats)
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(floats, X)
    assert mapped_floats(X) is X


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_no_file_is_left_by_a_fit_that_ends_in_any_way(files, blobs, error, monkeypatch):
    def fail(*_):
        raise error

    X, y = blobs
    ldsu().fit(X, y)
    assert list(files.iterdir()) == []
    monkeypatch.setattr("ldsu.solvers._sparse.anchored_features", fail)
    with pytest.raises(error):
        ldsu().fit(X, y)
    assert list(files.iterdir()) == []


def test_no_file_is_left_by_a_killed_process(tmp_path):
    program = (
        "import os, signal, numpy as np\n"
        "from ldsu._utils.temporary import file_array\n"
        "a = file_array((2**20,), np.float32); a[:] = 1; os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_the_memory_that_is_planned_suffices(files, blobs):
    X, y = blobs
    model = ldsu()
    plan = model.plan(X, encode_labels(y, N)[0])
    assert isinstance(plan.arrays, FileArrays)
    with peak_memory() as peak:
        model.fit(X, y)
    assert peak() < plan.memory
    stored = model.feature_map_
    files = (stored.points, stored.index.cells.rows, stored.P, stored.local, model.fit_transform(X, y))
    assert all(is_mapped(array) for array in files)
    assert sum(array.nbytes for array in files) < plan.disk


def test_little_memory_lets_fewer_right_hand_sides_be_solved_together(blobs):
    X, y = np.zeros((10**7, 0), dtype=np.float32), np.full(10**7, -1)
    codes, settings = encode_labels(y, len(y))[0], LDSU()._settings(len(y))
    few, many = (arrays_in_files(X, codes, settings, gib * 2**30).columns for gib in (12, 64))
    assert few < many
    assert memory_with_files(X, codes, settings, few) < memory_with_files(X, codes, settings, many) < 64 * 2**30


def test_too_small_a_disk_is_said_before_the_work(files, blobs, monkeypatch):
    X, y = blobs
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(DiskError, match=r"LDSU for 700 samples needs about .* GiB of temporary files, .* set TMPDIR"):
        ldsu().fit(X, y)
    with pytest.raises(DiskError, match=r"free in here\. Do less\."):
        require_disk(2000, "It", "here", "Do less.")


def test_a_disk_that_is_full_is_one_sentence(files, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(DiskError, match=r"A temporary file of .* cannot be written \(No space left on device\)"):
        file_array((1000, 1000), np.float32)


@pytest.mark.parametrize(("kind", "expected"), [("tmpfs", "/var/tmp"), ("ext4", "/tmp")])
def test_a_folder_in_memory_is_not_used(monkeypatch, kind, expected):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    monkeypatch.setattr("os.access", lambda *_: True)
    monkeypatch.setattr("os.path.isdir", lambda _: True)
    parts = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint="/tmp", fstype=kind)]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)
    assert temporary_folder() == expected
