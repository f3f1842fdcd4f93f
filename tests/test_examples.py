"""Every example of the gallery runs in an empty folder, draws what it says, and leaves nothing behind."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")

EXAMPLES = Path(__file__).parents[1] / "examples"


def lines(figure):
    return [line for ax in figure.axes for line in ax.lines if len(line.get_xdata()) > 1]


def bars(figure):
    return [patch.get_width() for ax in figure.axes for patch in ax.patches]


def points(figure):
    return sum(len(collection.get_offsets()) for ax in figure.axes for collection in ax.collections)


def titles(figure):
    return [ax.get_title() for ax in figure.axes]


def few_labels_help_most_where_there_are_fewest(names, figures):
    ours, svm = (names["accuracy"][key].mean(axis=1) for key in ("LDSUClassifier()", "SVM on the labels"))
    drawn = [line.get_ydata() for line in lines(figures[0])]
    assert np.allclose(drawn, [ours, svm])
    assert (ours - svm)[0] > (ours - svm)[-1]


def features_gather_classes_that_pixels_mix(names, figures):
    shares = [int(re.search(r"(\d+)%", title)[1]) for title in titles(figures[0])]
    assert shares[2] == max(shares) > 80
    assert points(figures[0]) == 3 * (len(names["X"]) + 15)


def strength_carries_labels_along_the_moons(names, figures):
    shares = [int(re.search(r"(\d+)%", title)[1]) for title in titles(figures[0])]
    assert shares == sorted(shares)
    assert shares[2] - shares[0] > 20


def doubt_is_deserved(names, figures):
    assert len(figures) == 3
    sure_first = lines(figures[1])[0].get_ydata()
    assert sure_first[-1] == pytest.approx(names["right"].mean())
    assert sure_first[len(sure_first) // 2] > sure_first[-1]
    assert len(figures[2].axes) == 8


def labels_choose_the_strength(names, figures):
    for (name, strength), title in zip(names["chosen"].items(), titles(figures[0]), strict=True):
        assert title == f"{name}: strength {strength:g}"
    assert names["chosen"]["digits"] > names["chosen"]["faces, changing light"]
    assert max(bars(figures[0])) > 0


def sparse_solver_takes_over(names, figures):
    exact, sparse = lines(figures[0])[:2]
    assert list(exact.get_xdata()) == [500, 1000, 2000, 3000]
    assert max(sparse.get_xdata()) == 8000
    assert names["model"].solver_ == "sparse"
    assert min(exact.get_ydata()) > 0


def angles_serve_counts_better_than_distances(names, figures):
    rbf, cosine, chi2 = bars(figures[0])
    assert rbf > 1 / names["TOPICS"]
    assert min(cosine, chi2) > rbf + 0.1


def model_file_gives_the_same_answers(names, figures):
    assert np.array_equal(names["again"].transduction_, names["model"].transduction_)
    assert sum(bars(figures[0])) < names["description"]["bytes"] / 2**20


def asked_labels_beat_random_ones(names, figures):
    curve, mean = (line.get_ydata() for line in lines(figures[0])[:2])
    assert np.allclose(curve, names["accuracy"])
    assert curve[1] > mean[3]
    assert names["classes"][0] == 10 > names["random_classes"][:, 0].max()


def an_encoder_makes_few_labels_enough(names, figures):
    by_pixels, _, ours, theirs = (line.get_ydata() for line in lines(figures[0]))
    assert min(ours - theirs) > 0
    assert ours[0] > by_pixels[-1]


def a_whole_table_is_better_than_its_parts(names, figures):
    heights = np.reshape([patch.get_height() for patch in figures[0].axes[0].patches], (3, -1))
    assert heights[2, -1] == max(heights[:, -1])
    assert {column.kind for column in names["task"].encoder.columns} == {"number", "category"}


def estimated_shares_are_close_to_the_true_ones(names, figures):
    equal, estimated, known = np.reshape([patch.get_height() for patch in figures[0].axes[0].patches], (3, -1))
    true = list(names["true_shares"].values())
    assert np.abs(estimated - true).max() < 0.1 < np.abs(equal - true).max()
    assert np.abs(known - true).max() < 0.1


CLAIMS = {
    "plot_1_few_labels": few_labels_help_most_where_there_are_fewest,
    "plot_2_plane": features_gather_classes_that_pixels_mix,
    "plot_3_strength": strength_carries_labels_along_the_moons,
    "plot_4_confidence": doubt_is_deserved,
    "plot_5_choice": labels_choose_the_strength,
    "plot_6_many_rows": sparse_solver_takes_over,
    "plot_7_words": angles_serve_counts_better_than_distances,
    "plot_8_model_file": model_file_gives_the_same_answers,
    "plot_active": asked_labels_beat_random_ones,
    "plot_encoder": an_encoder_makes_few_labels_enough,
    "plot_table": a_whole_table_is_better_than_its_parts,
    "plot_unequal": estimated_shares_are_close_to_the_true_ones,
}


def test_every_example_has_a_claim_that_is_checked():
    assert sorted(CLAIMS) == sorted(path.stem for path in EXAMPLES.glob("*.py"))
    for name in CLAIMS:
        assert re.search(r"^assert ", (EXAMPLES / f"{name}.py").read_text(), re.MULTILINE), name


@pytest.mark.parametrize("name", CLAIMS)
def test_example_draws_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plt.close("all")
    plt.switch_backend("Agg")
    with plt.rc_context():
        names = runpy.run_path(str(EXAMPLES / f"{name}.py"))
        figures = [plt.figure(number) for number in plt.get_fignums()]
        assert figures
        for figure in figures:
            assert figure.axes
            assert all(ax.has_data() for ax in figure.axes)
        CLAIMS[name](names, figures)
    plt.close("all")
    assert list(tmp_path.iterdir()) == []
