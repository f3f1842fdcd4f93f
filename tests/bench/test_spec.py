"""An experiment file is read whole or refused with file, place and value."""

import re
from pathlib import Path

import pytest

from ldsu.bench.experiment_file import load_experiment
from ldsu.bench.families import FAMILIES

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
GOOD = """
title = "small"
[protocol]
repetitions = 2
labels = [3, 1]
C = [1, 0.01]
[[data]]
name = "digits"
[[data]]
name = "umist"
preprocessing = "distinct"
kernel = "linear"
labels = [2]
[[method]]
name = "LDSU truncate"
[[method.grid]]
lam = [1, 100]
n_components = [0.5, 1.0]
[[method.grid]]
labels = [3]
data = ["digits"]
clique_size = [5]
[method.honest]
n_components = [0.1]
[[method]]
name = "mine"
family = "KPCA"
default = { gamma_scale = 1 }
only = ["digits"]
"""


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "small.toml"
        path.write_text(text)
        return path

    return make


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_of_the_project_is_valid(path):
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert all(method.settings(labels) for method in experiment.methods for labels in experiment.data[0].labels)


def test_a_file_is_read_as_it_stands(write):
    experiment = load_experiment(write(GOOD))
    assert experiment.C == (0.01, 1.0)
    assert [(spec.key, spec.labels) for spec in experiment.data] == [("digits", (1, 3)), ("umist/distinct", (2,))]
    assert [method.key for method in experiment.methods_for("umist/distinct")] == ["LDSU truncate"]
    assert experiment.methods[1].default == {**FAMILIES["KPCA"].defaults, "gamma_scale": 1}


def test_tables_and_both_ways_of_drawing_labels_have_keys_of_their_own(write, tmp_path, monkeypatch):
    monkeypatch.setenv("LDSU_DATA", str(tmp_path))
    entries = """[[data]]
table = ["a", "b"]
[[data]]
table = "a"
draw = "rows"
labels = [20, 10]
rows = 100
[[data]]
name = "digits"
draw = "rows"
[[method]]
name = "KNN"
"""
    data = load_experiment(write(entries)).data
    assert [spec.key for spec in data] == ["a", "b", "a/rows", "digits/rows"]
    assert [spec.title for spec in data[1:3]] == ["b", "a as the rows come"]
    assert [(spec.labels, spec.rows, spec.drawn) for spec in data[1:3]] == [
        ((1, 3, 5, 10), None, "per class"),
        ((10, 20), 100, "in all"),
    ]
    assert data[2].file == tmp_path / "tables" / "a.csv"


def test_the_tables_of_the_project_are_halved_and_drawn_both_ways():
    experiment = load_experiment(EXPERIMENTS[0].with_name("tables.toml"))
    ways = {draw: [spec.name for spec in experiment.data if spec.draw == draw] for draw in ("class", "rows")}
    assert ways["class"] == ways["rows"]
    assert len(set(ways["class"])) == 27
    assert {spec.labels for spec in experiment.data if spec.draw == "rows"} == {(10, 20, 50, 100)}
    peers = {method.family for method in experiment.methods} - {"LDSU auto"}
    for family in peers:
        fixed, chosen = (method for method in experiment.methods if method.family == family)
        assert not fixed.honest
        assert len(chosen.honest_settings(3)) > 1
    assert len(peers) == 7


def test_settings_are_the_products_of_the_grids_with_the_default_and_the_honest_ones(write):
    method = load_experiment(write(GOOD)).methods[0]
    lam_and_r = {(s["lam"], s["n_components"], s["clique_size"]) for s in method.settings(3, "digits")}
    grid = {(1.0, 0.5, 3), (1.0, 1.0, 3), (100.0, 0.5, 3), (100.0, 1.0, 3)}
    assert lam_and_r == {*grid, (1.0, 0.5, 5), (1.0, 0.1, 3)}
    assert {(s["lam"], s["n_components"]) for s in method.honest_settings(3)} == {(1.0, 0.1), (1.0, 0.5)}


def test_a_grid_is_run_only_where_it_says(write):
    method = load_experiment(write(GOOD)).methods[0]
    sizes = {
        (labels, data): {setting["clique_size"] for setting in method.settings(labels, data)}
        for labels in (2, 3)
        for data in ("digits", "umist/distinct")
    }
    assert sizes == {(2, "digits"): {3}, (3, "digits"): {3, 5}, (2, "umist/distinct"): {3}, (3, "umist/distinct"): {3}}


def test_with_one_label_per_class_lam_is_not_varied(write):
    method = load_experiment(write(GOOD)).methods[0]
    assert {s["lam"] for s in method.settings(1)} == {1.0}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "digits"', 'name = "didgits"', r"didgits.*one of.*digits"),
        ('preprocessing = "distinct"', 'preprocessing = "blur"', r"preprocessing = 'blur'.*distinct"),
        ('kernel = "linear"', 'kernel = "sigmoid"', r"kernel = 'sigmoid'.*rbf"),
        ("repetitions = 2", "repetitions = 0", r"repetitions = 0.*between 1"),
        ("repetitions = 2", "repetitions = 2.5", r"repetitions = 2.5.*an integer"),
        ("labels = [3, 1]", "labels = []", r"labels = \[\].*list of numbers"),
        ("C = [1, 0.01]", 'C = ["a"]', r"C = 'a'.*number"),
        ("C = [1, 0.01]", "C = [0]", r"C = 0"),
        ("lam = [1, 100]", "lamda = [1]", r"lamda.*parameters are.*lam"),  # codespell:ignore lamda
        ("lam = [1, 100]", "lam = []", r"no value for 'lam'"),
        ("lam = [1, 100]", 'lam = ["x"]', r"lam = 'x'.*number"),
        ("n_components = [0.5, 1.0]", "n_components = [1.5]", r"n_components = 1.5.*between 0 and 1"),
        ("clique_size = [5]", "clique_size = [2.5]", r"clique_size = 2.5.*an integer"),
        ("gamma_scale = 1 }", 'gamma_scale = "wide" }', r"gamma_scale = 'wide'.*number"),
        ('data = ["digits"]', 'data = ["usps"]', r"data = 'usps'.*digits"),
        ('family = "KPCA"', 'family = "PCA"', r"family = 'PCA'.*KPCA"),
        ("gamma_scale = 1 }", "gama = 1 }", r"default has an unknown parameter 'gama'.*gamma_scale"),
        ("default = { gamma_scale = 1 }", "default = 3", r"default must be a table, not 3"),
        ('only = ["digits"]', 'only = ["mnist"]', r"only = 'mnist'"),
        ('only = ["digits"]', "only = 3", r"only = 3, but it must be one of"),
        ('name = "mine"', 'name = "LDSU truncate"', r"'LDSU truncate' twice"),
        ('title = "small"', 'titel = "small"', r"unknown key 'titel'.*title"),
        ('title = "small"', "title = ", r"not valid TOML"),
        ("[protocol]", "[protokol]", r"unknown key 'protokol'"),
        ('name = "digits"', 'name = "digits"\ndraw = "labels"', r"draw = 'labels'.*class, rows"),
        ('name = "digits"', "table = []", r"table = \[\].*list of names"),
        (
            'name = "digits"',
            'table = ["a", "b"]\ntitle = "both"',
            r"unknown key 'title'.*draw, kernel, labels, rows, table",
        ),
        ('name = "digits"', 'table = ["a", "a"]', r"'a' twice"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(old, new, says, write):
    assert old in GOOD
    path = write(GOOD.replace(old, new, 1))
    with pytest.raises(ValueError, match=says) as caught:
        load_experiment(path)
    assert re.search(r"small\.toml", str(caught.value))


def test_a_file_without_data_or_methods_or_that_is_not_there_is_refused(write, tmp_path):
    with pytest.raises(ValueError, match=r"at least one \[\[data\]\]"):
        load_experiment(write('title = "x"'))
    with pytest.raises(ValueError, match=r"at least one \[\[method\]\]"):
        load_experiment(write('[[data]]\nname = "digits"'))
    with pytest.raises(ValueError, match=r"Experiment file .* not found"):
        load_experiment(tmp_path / "none.toml")
