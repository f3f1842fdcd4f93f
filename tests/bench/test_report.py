"""The report: what it says is what the rows say, it survives odd inputs, and it works in a browser."""

import csv
import dataclasses
import gzip
import html
import html.parser
import io
import json
import math
import re
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from bench_rows import GRIDS, make_experiment, make_rows, make_store, row
from ldsu.bench import protocol
from ldsu.bench.paper import paper_score
from ldsu.bench.report import charts, figures, formatting, pictures, print_table, style, text_report, write_report
from ldsu.bench.report.page import render_page
from ldsu.bench.report.summary import Summary
from ldsu.bench.selection import Choice, Setting, group_rows, honest, oracle
from ldsu.bench.tasks import canonical

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
HOSTILE = '</script><script>document.title = "taken"</script> ![](a) <!--<script> 50% & a_b | $x$ "quoted"'


def small_experiment(**changes):
    """Digits, which come with scikit-learn and get a picture, and UMIST, which the paper has."""
    experiment = make_experiment(data=("digits", "umist"), labels=(1, 3, 10), figures={"pictures": ["digits"]})
    few = dataclasses.replace(experiment.data[0], rows=240)
    return dataclasses.replace(experiment, data=(few, experiment.data[1]), **changes)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    experiment = small_experiment()
    rows = make_rows(experiment)
    store = make_store(folder / "store.sqlite", experiment, rows)
    reported = []
    paths = write_report(experiment, store, folder / "out", progress=reported.append)
    return {"experiment": experiment, "rows": rows, "store": store, "paths": paths, "reported": reported}


def write(tmp_path, experiment, rows, **options):
    store = make_store(tmp_path / "store.sqlite", experiment, rows)
    return write_report(experiment, store, tmp_path / "out", pictures=False, **options)


class Page(html.parser.HTMLParser):
    def __init__(self, source):
        super().__init__()
        self.addresses, self.ids, self.tags, self.open = [], [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href")]
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in ("meta", "link", "br", "path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in ("path", "rect"):
            return
        assert self.open.pop() == tag


def tips(source):
    return [html.unescape(tip) for tip in re.findall(r'data-tip="([^"]*)"', source)]


# What is written


def test_all_formats_are_written_and_nothing_else(report):
    paths = report["paths"]
    folder = paths["html"].parent
    assert sorted(path.name for path in folder.iterdir()) == [
        "index.html",
        "report.md",
        "settings.csv.gz",
        "table.csv",
        "table.tex",
    ]
    assert set(paths) == {"html", "markdown", "csv", "latex", "settings"}
    assert report["reported"][0] == "reading rows"


def test_page_is_well_formed_and_asks_nothing_of_the_network(report):
    source = report["paths"]["html"].read_text()
    page = Page(source)
    assert not page.open
    assert len(page.ids) == len(set(page.ids))
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert all(address[1:] in page.ids for address in page.addresses if address.startswith("#"))
    assert "http://" not in source
    assert "https://" not in source


def test_a_failed_write_leaves_the_old_report(report, tmp_path, monkeypatch):
    experiment, rows = small_experiment(), report["rows"]
    paths = write(tmp_path, experiment, rows)
    before = paths["html"].read_text()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_report(experiment, report["store"], tmp_path / "out", pictures=False)
    assert paths["html"].read_text() == before
    assert not list((tmp_path / "out").glob("*.part*"))


def test_csv_has_one_row_per_cell_and_agrees_with_selection(report):
    with report["paths"]["csv"].open() as file:
        table = {(r["data"], int(r["labels"]), r["method"], r["selection"]): r for r in csv.DictReader(file)}
    experiment = report["experiment"]
    assert len(table) == 2 * 3 * len(GRIDS) * 2
    defaults = {method.key: method.default for method in experiment.methods}
    for key, group in group_rows(report["rows"]).items():
        for name, select in (("oracle", oracle), ("honest", honest)):
            choice, written = select(group, defaults[key[2]]), table[(*key, name)]
            assert float(written["map_mean"]) == pytest.approx(choice.mean(), abs=1e-5)
            assert float(written["map_std"]) == pytest.approx(choice.std(), abs=1e-5)
            assert float(written["accuracy_mean"]) == pytest.approx(choice.mean("accuracy"), abs=1e-5)
            params = json.loads(written["params"])
            assert (params if isinstance(params, list) else [params] * 3) == [s.values for s in choice.settings]
            paper = paper_score("umist", key[1], key[2]) if key[0] == "umist" else None
            if paper is None:
                assert written["paper_map_mean"] == written["difference"] == written["against_paper"] == ""
            else:
                assert float(written["difference"]) == pytest.approx(choice.mean() - paper.mean, abs=1e-5)
                assert written["against_paper"] in ("ahead", "behind", "no clear difference")
    best = [key[:2] + key[3:] for key, written in table.items() if written["best_of_row"] == "1"]
    assert sorted(best) == sorted({key[:2] + key[3:] for key in table})


def test_page_shows_ours_and_the_papers_figure_in_each_cell(report):
    source = report["paths"]["html"].read_text()
    summary = Summary(report["experiment"], report["store"])
    entry = summary.table("map", "oracle")["umist", 3]["LDSU truncate"]
    (tip,) = [
        t for t in tips(source) if t.startswith("LDSU truncate, UMIST, 3 labels per class\nMAP") and "oracle" in t
    ]
    assert f"MAP {entry.mean:.3f} ± {entry.std:.3f}" in tip
    assert f"paper 0.889 ± 0.001: {entry.difference:+.3f}, {entry.against_paper} (p = " in tip
    assert "clique_size = " in tip
    assert "  ".join(f"{score:.3f}" for score in entry.choice.map) in tip
    assert not any("paper" in t for t in tips(source) if "DIGITS" in t and "per class\nMAP" in t)


def test_chosen_parameters_are_listed_once_if_shared_and_by_split_if_not():
    settings = (Setting('{"k":5,"theta":0.1}', 1.0), Setting('{"k":3,"theta":0.1}', 1.0))
    choice = Choice("umist", 3, "LDSU", "honest", (0, 2), (0.5, 0.6), (0.4, 0.5), settings, ("cross-validation",) * 2)
    assert formatting.chosen_text(choice) == "theta = 0.1, C = 1\nsplit 0: k = 5\nsplit 2: k = 3"
    same = dataclasses.replace(choice, settings=settings[:1] * 2)
    assert formatting.chosen_text(same) == "k = 5, theta = 0.1, C = 1"
    none = dataclasses.replace(choice, settings=(Setting("{}", 0.0),) * 2)
    assert formatting.chosen_text(none) == "no parameters"


def test_markdown_tables_are_even_and_hold_every_method(report):
    markdown = report["paths"]["markdown"].read_text()
    for block in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert all(f"| {method} |" in markdown for method in GRIDS)
    assert "## MAP, honest" in markdown
    assert "## Accuracy, oracle" in markdown


def test_every_setting_has_a_line_and_equal_scores_share_one(report, tmp_path):
    with gzip.open(report["paths"]["settings"], "rt", newline="") as file:
        lines = list(csv.DictReader(file))
    assert sum(len(line["C"].split()) for line in lines) == len(
        {(row["data"], row["labels"], row["method"], row["params"], row["C"]) for row in report["store"].rows()}
    )
    line = next(line for line in lines if line["method"] == "KDA" and line["labels"] == "3")
    same = {"data": line["data"], "labels": 3, "method": "KDA", "params": line["params"], "C": float(line["C"])}
    scores = [row["map"] for row in report["store"].rows(**same, fold=-1)]
    assert float(line["map_mean"]) == pytest.approx(np.mean(scores), abs=1e-4)

    small = make_experiment(data=("umist",), labels=(1,), methods=("KDA",))
    rows = [{**row, "map": 0.5, "accuracy": 0.5} for row in make_rows(small)]
    with make_store(tmp_path / "x.sqlite", small, rows) as store:
        text_lines = text_report.settings_csv(Summary(small, store)).splitlines()
    assert len(text_lines) == 1 + 2  # a line for each delta, its three values of C together


def latex_is_safe(latex):
    assert latex.isascii()
    body = latex.replace("\\\\", "").replace("\\{", "").replace("\\}", "")
    assert body.count("{") == body.count("}")
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    for columns, table in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", latex, re.DOTALL):
        lines = [line for line in table.split(r"\\") if "&" in line]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(columns) - 1}


def test_latex_is_plain_and_even(report):
    latex = report["paths"]["latex"].read_text()
    latex_is_safe(latex)
    assert latex.count(r"\begin{tabular}") == 2
    assert r"\textbf{" in latex


# Odd inputs


def test_hostile_texts_stay_texts(tmp_path):
    experiment = make_experiment(data=("umist",), labels=(3, 5), methods=("KPCA", "LDSU"))
    data = (dataclasses.replace(experiment.data[0], title=HOSTILE),)
    experiment = dataclasses.replace(experiment, title=HOSTILE, description=HOSTILE, data=data)
    rows = make_rows(experiment)
    rows[0] |= {"map": None, "accuracy": None, "error": HOSTILE}
    paths = write(tmp_path, experiment, rows)
    source = paths["html"].read_text()
    assert source.count("</script>") == 2
    assert not Page(source).open
    latex_is_safe(paths["latex"].read_text())
    with paths["csv"].open() as file:
        assert {r["title"] for r in csv.DictReader(file)} == {HOSTILE}
    written = paths["markdown"].read_text()
    assert "a_b \\| $x$" in written
    assert not re.search(r"<[!/a-z]|!\[", written)


def test_texts_of_pictures_do_not_change_where_their_element_ends(report):
    page = render_page(Summary(report["experiment"], report["store"]), [], [{"title": HOSTILE}], [])
    block = re.search(r'id="pictures-data">(.*?)</script>', page, re.DOTALL)[1]
    assert "<" not in block
    assert json.loads(block) == [{"title": HOSTILE}]


def test_an_unfinished_run_is_marked(tmp_path):
    experiment = small_experiment()
    rows = [one for one in make_rows(experiment) if not (one["data"] == "umist" and one["split"] == 2)]
    rows[0] |= {"map": None, "accuracy": None, "error": "too little memory"}
    paths = write(tmp_path, experiment, rows)
    for kind in ("html", "markdown"):
        content = paths[kind].read_text()
        assert f"{len(rows):,} of {len(make_rows(experiment)):,} cells are there" in content
        assert "1 of" in content
        assert "too little memory" in content
        assert "Fewer than 3 repetitions have a score for: UMIST" in content


def test_data_that_only_stand_in_for_the_papers_are_shown_beside_it_and_not_compared(tmp_path):
    experiment = make_experiment(labels=(3,), methods=("KDA", "LDSU"))
    first = dataclasses.replace(experiment.data[0], stand_in=True)
    experiment = dataclasses.replace(experiment, data=(first, *experiment.data[1:]))
    with make_store(tmp_path / "x.sqlite", experiment, make_rows(experiment)) as store:
        summary = Summary(experiment, store)
    entry = summary.table("map", "oracle")[first.key, first.labels[0]]["KDA"]
    assert entry.paper is not None
    assert (entry.against_paper, math.isnan(entry.p_paper)) == ("", True)
    assert all(spec.key != first.key for agreement in summary.agreement("oracle") for spec, _, _ in agreement.cells)
    assert any(f"{first.title} stands in" in sentence for sentence in summary.agreement_sentences("oracle"))


def test_the_better_filter_of_a_cell_is_named_for_the_oracle_alone(report):
    summary = Summary(report["experiment"], report["store"])
    assert summary.image_cells("oracle")[-1][0] == "the better of these"
    assert {name for name, _, _ in summary.image_cells("honest")} == {"LDSU truncate", "LDSU"}


def test_a_finished_run_has_no_warning(report):
    assert 'class="warn"' not in report["paths"]["html"].read_text()


def test_an_empty_store_gives_a_report_that_says_so(tmp_path):
    paths = write(tmp_path, small_experiment(), [])
    assert "There is no result yet" in paths["html"].read_text()
    latex_is_safe(paths["latex"].read_text())


def test_one_repetition_has_no_deviation_and_no_test(tmp_path):
    experiment = make_experiment(data=("umist",), labels=(3,), methods=("KPCA", "LDSU"), repetitions=1)
    paths = write(tmp_path, experiment, make_rows(experiment))
    assert "nan" not in paths["html"].read_text().split("<script", 1)[0].lower()
    with paths["csv"].open() as file:
        assert {r["map_std"] for r in csv.DictReader(file)} == {""}


def test_rows_of_other_experiments_in_the_store_are_left_out(tmp_path):
    experiment = make_experiment(data=("umist",), labels=(3,), methods=("KPCA", "LDSU"))
    rows = make_rows(experiment)
    store = make_store(tmp_path / "store.sqlite", experiment, [*rows, row(data="usps"), row(method="KSDA")])
    summary = Summary(experiment, store)
    assert summary.done == len(rows)
    assert {key[0] for key in summary.groups} == {"umist"}


# Beside the paper


def rows_at(experiment, shift):
    """Rows whose every score is the paper's figure and a shift, with a little scatter."""
    return [
        row(spec.key, split, labels, method.key, canonical({k: v for k, v in method.default.items() if k != "C"}), 1.0,
            -1, paper_score(spec.paper, labels, method.family).mean + shift + 0.001 * (split - 1))
        for spec in experiment.data
        for labels in spec.labels
        for method in experiment.methods
        for split in range(3)
    ]  # fmt: skip


@pytest.mark.parametrize(("shift", "within", "reached"), [(0.0, 8, 8), (0.03, 8, 8), (0.031, 0, 8), (-0.05, 0, 0)])
def test_agreement_counts_cells_within_the_tolerance_and_at_or_above(tmp_path, shift, within, reached):
    experiment = make_experiment(methods=("KPCA", "LDSU truncate", "LDSU"))
    store = make_store(tmp_path / "store.sqlite", experiment, rows_at(experiment, shift))
    summary = Summary(experiment, store)
    assert [(a.method.key, a.same) for a in summary.agreement("oracle")] == [
        ("KPCA", True), ("LDSU truncate", True), ("LDSU", False)]  # fmt: skip
    for agreement in summary.agreement("oracle"):
        assert (agreement.within, len(agreement.cells)) == (within, 8)
        assert agreement.mean_difference == pytest.approx(shift)
        assert (agreement.count("behind") > 0) == (shift < 0)
    assert summary.image_cells("oracle") == [(n, reached, 8) for n in ("LDSU truncate", "LDSU", "the better of these")]


def test_a_data_set_of_the_paper_counts_once(tmp_path):
    experiment = make_experiment(data=("umist",), methods=("LDSU truncate",))
    other = dataclasses.replace(experiment.data[0], key="umist/other", title="Other")
    experiment = dataclasses.replace(experiment, data=(*experiment.data, other))
    store = make_store(tmp_path / "store.sqlite", experiment, rows_at(experiment, 0.0))
    summary = Summary(experiment, store)
    assert [len(agreement.cells) for agreement in summary.agreement("oracle")] == [4]
    assert "not counted: Other" in " ".join(summary.agreement_sentences("oracle"))


def test_a_method_with_fewer_repetitions_is_not_the_best_of_its_row(tmp_path):
    experiment = make_experiment(data=("umist",), labels=(3,), methods=("KPCA", "LDSU"))
    rows = [one for one in rows_at(experiment, 0.0) if one["method"] == "KPCA" or one["split"] == 0]
    summary = Summary(experiment, make_store(tmp_path / "store.sqlite", experiment, rows))
    entries = summary.table("map", "oracle")["umist", 3]
    assert entries["LDSU"].mean > entries["KPCA"].mean
    assert entries["KPCA"].best
    assert not entries["LDSU"].best


# Figures


def test_each_sweep_has_a_panel_a_data_set_and_a_mark_a_value(report):
    summary = Summary(report["experiment"], report["store"])
    drawn = {figure.key: figure for figure in figures.draw_figures(summary)}
    kept = drawn["n_components LDSU truncate"]
    assert [panel.title for panel in kept.panels] == ["DIGITS", "UMIST"]
    assert len(tips(kept.panels[0].svg)) == 3 * 4 * 2  # labels, values, best and default
    weights = drawn["lam LDSU truncate"]
    assert len(tips(weights.panels[0].svg)) == 2 * 3 * 2  # not with one label per class
    assert len(drawn["theta clique_size LDSU truncate"].panels) == 2 * 3
    assert len(tips(drawn["theta clique_size LDSU truncate"].panels[0].svg)) == 4
    assert drawn["strength LDSU"].panels
    assert {panel.view for panel in drawn["labels"].panels} == {"oracle", "honest"}
    assert len(drawn["costs"].panels) == 4
    assert "LDSU truncate" in drawn["stages"].panels[0].svg


def test_without_the_papers_data_nothing_speaks_of_its_figures(tmp_path):
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "LDSU"))
    paths = write(tmp_path, experiment, make_rows(experiment))
    source = paths["html"].read_text()
    assert "Comparison with the paper" not in source
    assert "The paper" not in paths["markdown"].read_text()
    assert "the paper" not in html.unescape(re.sub(r"<style>.*?</style>|<script>.*?</script>", "", source, flags=re.S))
    assert "LDSU against the others" in source
    assert 'data-control="paper"' not in source
    assert "in brackets the paper" not in paths["markdown"].read_text()


def test_with_one_data_set_ldsu_is_compared_with_each_other_method_in_a_table_that_is_open(tmp_path):
    experiment = make_experiment(data=("digits",), labels=(3, 5), methods=("KPCA", "KDA", "LDSU"))
    paths = write(tmp_path, experiment, make_rows(experiment))
    section = re.search(r'<section id="paper".*?</section>', paths["html"].read_text(), re.DOTALL)[0]
    assert "<details" not in section
    summary = Summary(experiment, make_store(tmp_path / "again.sqlite", experiment, make_rows(experiment)))
    (table,) = summary.duel_tables("oracle").values()
    assert [line[0] for line in table] == ["against", "KPCA", "KDA"]
    rows = summary.table("map", "oracle").values()
    for other, difference, *counts in table[1:]:
        expected = np.mean([row["LDSU"].mean - row[other].mean for row in rows])
        assert float(difference) == pytest.approx(expected, abs=1e-3)
        assert sum(map(int, counts)) == 2
        assert f"<td>{other}</td><td class=n>{difference}</td>" in section
        assert f"| {other} | {difference} |" in paths["markdown"].read_text()


def test_without_another_method_the_comparison_says_so(tmp_path):
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "KDA"))
    source = write(tmp_path, experiment, make_rows(experiment))["html"].read_text()
    assert "No row of the results has an LDSU method and another one." in source


def test_text_between_backticks_is_shown_as_code(tmp_path):
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "LDSU"))
    experiment = dataclasses.replace(experiment, description="Read as `ldsu fit` reads a <CSV> file.")
    rows = make_rows(experiment)
    rows[0] |= {"map": None, "accuracy": None, "error": "`delta` must be positive"}
    source = write(tmp_path, experiment, rows)["html"].read_text()
    assert "Read as <code>ldsu fit</code> reads a &lt;CSV&gt; file." in source
    assert "<code>delta</code> must be positive" in source
    assert "`" not in re.sub(r"<script>.*?</script>", "", source, flags=re.DOTALL)


def test_memory_that_was_not_measurable_is_no_zero(tmp_path):
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "KDA", "LDSU"))
    store = make_store(tmp_path / "store.sqlite", experiment, make_rows(experiment))
    peaks = dict(zip(("KPCA", "KDA", "LDSU"), (0.0, 2.4, 50.2), strict=True))
    with sqlite3.connect(tmp_path / "store.sqlite") as direct:
        for method, peak in peaks.items():
            direct.execute("UPDATE costs SET peak_mib = ? WHERE method = ?", (peak, method))
    summary = Summary(experiment, store)
    costs = figures.cost_figure(summary)
    assert [line[-1] for line in costs.panels[0].table[1:]] == ["not measurable", "2.4", "50"]
    assert ">not measurable</text>" in costs.panels[1].svg
    assert "peak memory added: not measurable" in html.unescape(costs.panels[1].svg)
    assert "stays below that peak is not measurable" in costs.caption


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "With 1 repetition there is no deviation"),
        (2, "With 2 repetitions the deviations and tests mean little"),
        (3, None),
    ],
)
def test_deviations_of_few_repetitions_come_with_a_warning(tmp_path, count, sentence):
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "LDSU"), repetitions=count)
    source = write(tmp_path, experiment, make_rows(experiment))["html"].read_text()
    assert ('class="warn"' in source) == (sentence is not None)
    assert sentence is None or sentence in source


@pytest.mark.parametrize(("rows", "held_out"), [(18, 9), (19, 10), (240, 120)])
def test_deviations_of_few_test_rows_come_with_a_warning(tmp_path, rows, held_out):
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "LDSU"))
    few = dataclasses.replace(experiment, data=(dataclasses.replace(experiment.data[0], rows=rows),))
    paths = write(tmp_path, few, make_rows(few))
    for kind in ("html", "markdown"):
        sentence = f"Fewer than 10 rows are held out in each repetition of DIGITS ({held_out})"
        assert (sentence in paths[kind].read_text()) == (held_out < 10)


def test_only_labelled_rows_of_a_file_count_as_test_rows(tmp_path):
    from ldsu.bench.sources import write_data

    y = np.r_[np.arange(16) % 2, np.full(100, -1)]
    write_data(tmp_path / "own.npz", np.zeros((116, 2)), y, ["a", "b"], ())
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "LDSU"))
    own = dataclasses.replace(experiment.data[0], file=tmp_path / "own.npz")
    source = write(tmp_path, dataclasses.replace(experiment, data=(own,)), make_rows(experiment))["html"].read_text()
    assert "of DIGITS (8)" in source


def test_charts_of_one_or_two_panels_fill_a_wide_page_and_have_a_version_for_a_narrow_one(tmp_path):
    experiment = make_experiment(data=("digits",), labels=(3, 5), methods=("KPCA", "LDSU"))
    source = write(tmp_path, experiment, make_rows(experiment))["html"].read_text()
    curves = re.search(r'<section id="figure-labels".*?</section>', source, re.DOTALL)[0]
    assert re.findall(r'<div class="(wide|narrow)"><svg class="chart" viewBox="0 0 (\d+)', curves) == [
        ("wide", "1080"), ("narrow", "420"), ("wide", "1080"), ("narrow", "420")]  # fmt: skip
    costs = re.search(r'<section id="figure-costs".*?</section>', source, re.DOTALL)[0]
    assert re.findall(r'<div class="wide"><svg class="chart" viewBox="0 0 (\d+)', costs) == ["580", "580"]
    three = make_experiment(data=("digits", "umist", "coil20"), labels=(3, 5), methods=("KPCA", "LDSU"))
    (tmp_path / "three").mkdir()
    source = write(tmp_path / "three", three, make_rows(three))["html"].read_text()
    assert '<div class="wide">' not in re.search(r'<section id="figure-labels".*?</section>', source, re.DOTALL)[0]


def test_figures_without_rows_say_so_in_a_sentence(tmp_path):
    experiment = make_experiment(data=("umist",), labels=(3,), methods=("KPCA",))
    source = write(tmp_path, experiment, make_rows(experiment))["html"].read_text()
    assert "No sweep: the rows have fewer than two values of n_components." in source
    assert "No map: the rows do not vary both theta and clique_size." in source
    assert "No curves: there are results for one number of labels only." in source


def test_a_report_of_own_data_shows_first_what_its_user_would_get(tmp_path):
    experiment = make_experiment(data=("digits",), labels=(3,), methods=("KPCA", "LDSU"))
    own = dataclasses.replace(
        experiment, data=tuple(dataclasses.replace(spec, file=tmp_path / "data.npz") for spec in experiment.data)
    )
    source = write(tmp_path, own, make_rows(experiment))["html"].read_text()
    assert 'data-first-metric="accuracy" data-first-selection="honest"' in source
    assert 'data-value="honest" aria-pressed="true"' in source
    assert '<div data-metric="accuracy" data-selection="honest"><p' in source
    assert '<div data-metric="map" data-selection="oracle" hidden><p' in source
    assert "No sweep" not in source


def line_chart(series, **options):
    lines = [charts.Series(name, points, "s1") for name, points in series.items()]
    return charts.line_chart("Title", lines, x_label="x", y_label="y", **options)


def test_axes_keep_order_and_zero_has_a_place_on_a_logarithmic_one():
    def places(values):
        points = [charts.Point(value, 0.5, math.nan, f"{value}") for value in values]
        marks = re.findall(r'data-tip="([^"]*)"|translate\((\S+) \S+\)"(?= data-r)', line_chart({"": points}, log=True))
        return [float(x) for _, x in marks if x]

    steps = np.diff(places([0.0, 0.01, 1.0, 100.0]))
    assert steps.min() > 50
    assert steps == pytest.approx(np.full(3, steps.mean()), abs=0.2)
    assert places([5.0]) == pytest.approx([sum(places([1.0, 2.0])) / 2], abs=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_names_of_lines_stand_apart_inside_the_chart_in_the_order_of_their_ends(seed):
    ends = {f"name {i}": float(end) for i, end in enumerate(np.random.default_rng(seed).random(14) ** 2)}
    drawn = line_chart({name: [charts.Point(x, end * x, 0.01, "") for x in (1, 2)] for name, end in ends.items()})
    found = re.findall(r'<text [^>]*y="([^"]*)">(name \d+)</text>', drawn)
    assert [name for _, name in found] == sorted(ends, key=ends.get, reverse=True)
    heights = [float(y) for y, _ in found]
    assert np.diff(heights).min() >= 11
    assert min(heights) > 11
    assert max(heights) < charts.HEIGHT


def test_charts_have_the_colors_of_the_page_and_leave_the_users_settings_alone(report, monkeypatch):
    mpl = pytest.importorskip("matplotlib")
    monkeypatch.setitem(mpl.rcParams, "lines.linestyle", ":")
    monkeypatch.setitem(mpl.rcParams, "text.color", "red")
    before = dict(mpl.rcParams)
    drawn = figures.draw_figures(Summary(report["experiment"], report["store"]))
    source = "".join(panel.svg for figure in drawn for panel in figure.panels)
    assert dict(mpl.rcParams) == before
    assert not re.search(r"#[0-9a-f]{3}|(fill|stroke)=\"(?!var|none|color-mix)", source)
    assert set(re.findall(r"var\(--([\w-]+)\)", source)) <= set(style.COLORS)


def test_a_chart_has_a_name_a_description_and_texts_without_markup():
    title = f"{HOSTILE} \x00\x1b 文"
    point = charts.Point(1, 0.5, math.nan, HOSTILE)
    drawn = charts.line_chart(title, [charts.Series(title, [point], "s1")], x_label=title, y_label=title)
    bars = charts.bar_chart(title, [charts.Bar(title, [("s1", 0.0)], title, HOSTILE)], unit=title)
    cells = charts.heat_map(title, [title], [title], np.array([[0.5]]), row_label=title, column_label=title)
    for chart in (drawn, bars, cells):
        assert set(Page(chart).tags) <= {"svg", "desc", "g", "path", "text"}
        assert f'role="group" aria-label="{html.escape(title)}"' in chart
        assert f"<desc>{html.escape(title)}: " in chart
        assert HOSTILE in tips(chart)[0]


def test_names_of_bars_are_inside_the_chart():
    name = "LogisticRegression chosen"
    drawn = charts.bar_chart("T", [charts.Bar(name, [("s1", 1.0)], "1", "")], unit="u")
    (end,) = re.findall(rf'text-anchor="end" x="([\d.]+)" [^>]*>{name}<', drawn)
    assert 6.2 * len(name) < float(end) < charts.WIDTH / 2


def test_without_matplotlib_a_sentence_stands_in_for_charts(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    paths = write_report(report["experiment"], report["store"], tmp_path, pictures=False)
    source = paths["html"].read_text()
    assert "Charts need matplotlib. Install it with: pip install &#x27;ldsu[report]&#x27;" in source
    assert "<svg" not in source
    assert paths["markdown"].read_text() == report["paths"]["markdown"].read_text()


# Pictures


def test_picture_has_every_test_point_its_class_and_its_thumbnail(report):
    source = report["paths"]["html"].read_text()
    (picture,) = json.loads(re.search(r'id="pictures-data">(.*?)</script>', source, re.DOTALL)[1])
    split = protocol.load_split(report["experiment"], "digits", 0)
    assert picture["y"] == split.y_test.tolist()
    assert [panel["name"] for panel in picture["panels"]][:2] == ["raw pixels", "KPCA"]
    assert picture["panels"][2]["name"].startswith("LDSU")
    assert all(len(panel["x"]) == len(panel["y"]) == 120 for panel in picture["panels"])
    assert all(0 <= value <= 999 for panel in picture["panels"] for value in panel["x"] + panel["y"])
    assert picture["thumbnails"]["src"].startswith("data:image/png;base64,")
    assert picture["labels"] == "3 labels per class"


def test_pictures_are_kept_until_the_chosen_parameters_change(report, tmp_path, monkeypatch):
    made = []
    embed = pictures.embed
    monkeypatch.setattr(pictures, "embed", lambda features: made.append(features.shape) or embed(features))
    experiment, store = report["experiment"], report["store"]
    again = write_report(experiment, store, tmp_path)
    assert not made
    assert again["html"].read_text() == report["paths"]["html"].read_text()
    # With KPCA's worst setting alone in the store its picture is another; the others stay.
    rows = [one for one in report["rows"] if one["method"] != "KPCA" or '"n_components":0.5' in one["params"]]
    other = make_store(tmp_path / "other.sqlite", experiment, rows)
    for name in ("the points", "raw samples", "KPCA", "LDSU", "LDSU truncate"):
        kept = store.picture("digits", name)
        if kept is not None:
            other.add_picture("digits", name, kept.replace('\\"n_components\\":0.5', '\\"n_components\\":1.0'))
    write_report(experiment, other, tmp_path / "other")
    assert len(made) == 1


def test_data_that_cannot_be_loaded_cost_the_picture_not_the_report(tmp_path, monkeypatch):
    def missing(*_):
        raise OSError("umist.mat is not there; point LDSU_DATA to its folder.")

    monkeypatch.setattr(protocol, "load_split", missing)
    experiment = make_experiment(data=("umist",), labels=(3, 5), methods=("KPCA", "LDSU"))
    store = make_store(tmp_path / "store.sqlite", experiment, make_rows(experiment))
    source = write_report(experiment, store, tmp_path / "out")["html"].read_text()
    assert "No picture of UMIST: umist.mat is not there; point LDSU_DATA to its folder." in source


def test_thumbnails_shrink_until_the_sheet_is_small():
    noise = np.random.default_rng(0).random((600, 32, 24))
    sheet = pictures.sprite(noise)
    assert len(sheet["src"]) < 4 / 3 * pictures.SPRITE_BYTES + 100
    assert sheet["width"] < sheet["height"] < 32
    flat = pictures.sprite(np.zeros((3, 32, 24)))
    assert (flat["width"], flat["height"]) == (24, 32)


def test_points_that_are_all_equal_or_have_one_feature_have_a_picture():
    for features in (np.zeros((20, 3)), np.arange(20.0)[:, None]):
        place = pictures.embed(features)
        assert len(place["x"]) == 20
        assert all(math.isfinite(value) for value in place["x"] + place["y"])


# The terminal


def test_terminal_table_has_every_method_and_label_count(report):
    console = Console(width=110, record=True, file=io.StringIO())
    print_table(report["experiment"], report["store"], console)
    shown = console.export_text()
    entry = Summary(report["experiment"], report["store"]).table("map", "oracle")["umist", 10]["KDA"]
    assert all(method in shown for method in GRIDS)
    assert f"{entry.mean:.3f}±".removeprefix("0") in shown
    assert "UMIST: MAP, oracle" in shown


def test_terminal_table_keeps_the_names_of_the_methods_in_eighty_columns(report):
    console = Console(width=80, record=True, file=io.StringIO())
    print_table(report["experiment"], report["store"], console)
    lines = console.export_text().splitlines()
    assert all(any(line.strip().startswith(f"{method}  ") for line in lines) for method in GRIDS)
    assert not any("…" in line for line in lines)


def test_rows_of_another_grid_in_the_store_do_not_count(tmp_path):
    small = make_experiment(data=("umist",), labels=(3,), methods=("KDA",))
    rows = make_rows(small)
    stranger = {**rows[0], "params": canonical({"delta": 7.0, "gamma_scale": 2.0}), "map": 1.0, "accuracy": 1.0}
    other_C = {**rows[0], "C": 5.0, "map": 1.0, "accuracy": 1.0}
    with make_store(tmp_path / "x.sqlite", small, [*rows, stranger, other_C]) as store:
        summary = Summary(small, store)
    assert summary.done == len(rows)
    assert summary.table("map", "oracle")["umist", 3]["KDA"].mean < 0.99


# The browser

EXERCISE = """
<script>
const seen = {};
const shown = () => [...document.querySelectorAll("table.scores")].find((t) => t.offsetParent !== null);
const click = (selector) => document.querySelector(selector).click();
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const column = (i) => [...shown().tBodies[0].rows].map((row) => Number(row.cells[i].dataset.v));
const tip = document.getElementById("tip");
seen.tables = document.querySelectorAll("table.scores").length;
seen.first = shown().getAttribute("aria-label");
click('[data-value="accuracy"]'); click('[data-value="honest"]');
seen.toggled = shown().getAttribute("aria-label");
seen.pressed = [...document.querySelectorAll('.controls [aria-pressed="true"]')].map((b) => b.dataset.value || "paper");
click('[data-value="map"]'); click('[data-value="oracle"]');
seen.paper = getComputedStyle(shown().querySelector(".paper")).display;
click('[data-control="paper"]');
seen.withoutPaper = getComputedStyle(shown().querySelector(".paper")).display;
const heads = shown().tHead.rows[0].cells;
seen.unsorted = column(3);
heads[3].querySelector("button").click();
seen.sorted = [heads[3].getAttribute("aria-sort"), column(3), heads[0].getAttribute("aria-sort")];
heads[3].querySelector("button").click();
seen.reversed = [heads[3].getAttribute("aria-sort"), column(3)];
heads[0].querySelector("button").click();
seen.restored = column(3);
seen.stops = shown().querySelectorAll('.cell[tabindex="0"]').length;
shown().querySelector('.cell[tabindex="0"]').focus();
press("ArrowDown"); press("ArrowRight");
const cell = document.activeElement;
seen.moved = [cell.closest("tr").rowIndex, cell.closest("td").cellIndex, cell.getAttribute("aria-describedby")];
seen.tip = [tip.hidden, tip.textContent];
seen.stopsAfter = shown().querySelectorAll('.cell[tabindex="0"]').length;
press("Escape");
seen.closed = tip.hidden;
const chart = document.querySelector("svg.chart");
chart.querySelector('[tabindex="0"]').focus();
const before = document.activeElement.dataset.c;
press("ArrowRight");
const mark = document.activeElement;
seen.chart = [before, mark.dataset.c, tip.textContent === mark.getAttribute("aria-label")];
press("ArrowDown");
seen.series = document.activeElement.dataset.r;
const canvas = document.querySelectorAll(".planes canvas")[2];
canvas.focus();
press("ArrowDown"); press("ArrowUp");
seen.picked = document.getElementById("picked").textContent;
seen.card = [document.getElementById("card").hidden, document.getElementById("card").textContent];
seen.inked = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((v) => v > 0);
const light = getComputedStyle(document.body).backgroundColor;
click('[data-value="dark"]');
seen.dark = light !== getComputedStyle(document.body).backgroundColor;
seen.width = [innerWidth, document.documentElement.scrollWidth];
const done = document.createElement("pre");
done.id = "seen";
done.textContent = JSON.stringify(seen);
document.body.append(done);
</script>
"""


def browse(page, tmp_path, *options):
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", *options, page.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@needs_browser
def test_page_answers_to_mouse_and_keyboard(report, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(report["paths"]["html"].read_text().replace("</body>", f"{EXERCISE}</body>"))
    dom = browse(page, tmp_path, "--window-size=1300,1000", "--virtual-time-budget=3000", "--dump-dom")
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    assert found, "the script stopped on the way"
    seen = json.loads(html.unescape(found[1]))
    assert seen["tables"] == 4
    assert (seen["first"], seen["toggled"]) == ("MAP, oracle", "Accuracy, honest")
    assert seen["pressed"] == ["accuracy", "honest", "paper"]
    assert (seen["paper"], seen["withoutPaper"]) == ("block", "none")
    assert seen["sorted"] == ["descending", sorted(seen["unsorted"], reverse=True), "none"]
    assert seen["reversed"] == ["ascending", sorted(seen["unsorted"])]
    assert seen["restored"] == seen["unsorted"] != sorted(seen["unsorted"])
    assert seen["stops"] == seen["stopsAfter"] == 1
    assert seen["moved"] == [2, 3, "tip"]
    assert seen["tip"][0] is False
    assert seen["tip"][1].startswith("KDA, DIGITS, 3 labels per class")
    assert seen["closed"] is True
    assert seen["chart"] == ["0", "1", True]
    assert seen["series"] == "1"
    assert re.fullmatch(r"Point \d+ of 120: \d", seen["picked"])
    assert seen["card"] == [False, seen["picked"][-1]]
    assert seen["inked"]
    assert seen["dark"]
    assert seen["width"][1] <= seen["width"][0]


@needs_browser
def test_page_fits_a_telephone_and_looks_like_something(report, tmp_path):
    picture = tmp_path / "page.png"
    browse(report["paths"]["html"], tmp_path, "--window-size=1300,1500", f"--screenshot={picture}")
    assert picture.stat().st_size > 50_000
    narrow = tmp_path / "narrow.html"
    frame = '<iframe src="page.html" style="width:400px;height:800px;border:0"></iframe>'
    measure = """<script>onload = () => { const d = document.querySelector("iframe").contentDocument.documentElement;
      document.title = d.clientWidth + " " + d.scrollWidth; };</script>"""
    (tmp_path / "page.html").write_text(report["paths"]["html"].read_text())
    narrow.write_text(f"<!doctype html><title></title>{frame}{measure}")
    dom = browse(narrow, tmp_path, "--allow-file-access-from-files", "--virtual-time-budget=3000", "--dump-dom")
    shown, needed = map(int, re.search(r"<title>(\d+) (\d+)</title>", dom).groups())
    assert needed <= shown <= 400
