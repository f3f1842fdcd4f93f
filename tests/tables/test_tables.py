"""From a user's table to points, labels and a model: what is decided, and that it is done again the same way."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


from pyarrow import feather, parquet  # noqa: E402

from ldsu._utils.temporary import is_mapped  # noqa: E402
from ldsu.io import describe_model, load_model, save_model  # noqa: E402
from ldsu.tables import columns as table_columns  # noqa: E402
from ldsu.tables.columns import detect_columns, labels_of  # noqa: E402
from ldsu.tables.encoder import Numbers, TableEncoder  # noqa: E402
from ldsu.tables.estimate import estimate  # noqa: E402
from ldsu.tables.model import fit_task, prepare  # noqa: E402
from ldsu.tables.readers import read_table  # noqa: E402
from ldsu.tables.table import Table, TableError  # noqa: E402
from ldsu.tables.text_features import Words  # noqa: E402
from ldsu.tables.writers import write_columns  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import made_tables  # noqa: E402

N = 40


def table_of(**columns):
    """A table as CSV gives it: every value a text, None where it is empty."""
    texts = {name: [None if v is None else str(v) for v in values] for name, values in columns.items()}
    n = len(next(iter(texts.values())))
    return Table(
        Path("things.csv"),
        pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()}),
        is_text=True,
        lines=range(2, n + 2),
    )


def kinds(table, **options):
    return {column.name: column.kind for column in detect_columns(table, label=None, **options)}


def numbers_of(table, column):
    return table_columns.numbers_of(table, [column])[:, 0]


def test_columns_are_read_as_what_they_look_like():
    rng = np.random.default_rng(0)
    words = ["the cat sat on a mat", "dogs bark at night", "a bird sings in spring", "fish swim very deep down"]
    table = table_of(
        id=[f"K{i:04d}" for i in range(N)],
        row=range(7, N + 7),
        height=rng.normal(size=N).round(3),
        code=rng.integers(0, 3, N),
        town=rng.choice(["Ulm", "Bonn", "Kiel"], N),
        day=[f"2026-01-{1 + i % 28:02d}" for i in range(N)],
        story=[f"{words[i % 4]} number {i} of {i * i}" for i in range(N)],
        nothing=[None] * N,
        same=["x"] * N,
    )
    assert kinds(table) == {
        "id": "ignored",
        "row": "ignored",
        "height": "number",
        "code": "number",
        "town": "category",
        "day": "time",
        "story": "text",
        "nothing": "ignored",
        "same": "ignored",
    }
    notes = {column.name: column.note for column in detect_columns(table, label=None)}
    assert notes["row"] == "row numbers from 7 to 46"
    assert notes["same"] == "constant"
    assert notes["town"] == "3 levels"


def test_what_the_user_says_of_a_column_counts():
    table = table_of(code=[i % 3 for i in range(N)], town=["Ulm", "Bonn"] * (N // 2), row=range(N))
    said = {"code": "category", "town": "ignored", "row": "number"}
    assert kinds(table, kinds=said) == said
    with pytest.raises(TableError, match=r"has no column 'towm'. Did you mean 'town'\?"):
        detect_columns(table, label=None, kinds={"towm": "text"})


def test_a_few_values_that_are_no_numbers_count_as_missing_and_are_named():
    values = [str(i * 1.5) for i in range(100)]
    values[41] = "broken"
    table = table_of(size=values)
    (column,) = detect_columns(table, label=None)
    assert (column.kind, column.stray) == ("number", ("broken",))
    assert column.note == "'broken' treated as missing (1 row: things.csv, line 43)"
    numbers = numbers_of(table, column)
    assert np.isnan(numbers[41])
    assert numbers[40] == 60
    # The same value is missing in new data; another one is not known, and is refused with its place.
    assert np.isnan(numbers_of(table_of(size=["1", "broken"]), column)[1])
    with pytest.raises(TableError, match=r"things.csv, line 3, column 'size': 'faulty' is not a valid number"):
        numbers_of(table_of(size=["1", "faulty"]), column)


@pytest.mark.parametrize("value", ["inf", "1e999", "-inf"])
def test_an_infinite_number_is_refused_with_its_place(value):
    table = table_of(size=["1", value, "3"])
    with pytest.raises(TableError, match=r"things.csv, line 3, column 'size'"):
        detect_columns(table, label=None, kinds={"size": "number"})


def test_decimal_commas_are_read_where_the_reader_found_them():
    table = replace(table_of(size=["1,5", "2,25", "1e3"]), decimal=",")
    (column,) = detect_columns(table, label=None)
    np.testing.assert_array_equal(numbers_of(table, column), [1.5, 2.25, 1000])


def test_whole_number_labels_read_minus_one_as_none_unless_it_is_one_of_two_classes():
    def labels(values):
        table = Table(Path("y.npz"), pa.table({"y": pa.array(values)}))
        found, _ = labels_of(table, "y")
        return found.tolist()

    assert labels([0, 1, -1, 2]) == ["0", "1", None, "2"]
    assert labels([1, -1, 1, -1]) == ["1", "-1", "1", "-1"]
    assert labels([0.0, 2.0, float("nan")]) == ["0", "2", None]
    text, _ = labels_of(table_of(y=["a", " ", None, "b", "?"]), "y", unlabelled=["?"])
    assert text.tolist() == ["a", None, None, "b", None]


def test_labels_of_text_follow_the_same_rule_and_empty_cells_make_minus_one_a_label():
    def labels(*values, **options):
        found, none = labels_of(table_of(y=values), "y", **options)
        return found.tolist(), none

    assert labels("0", "1", "-1", "2") == (["0", "1", None, "2"], ("-1",))
    assert labels("0", "1", "-1", None) == (["0", "1", "-1", None], ())
    assert labels("-1", "0", "-1", "0") == (["-1", "0", "-1", "0"], ())
    assert labels("-1", "-2", "0", "1") == (["-1", "-2", "0", "1"], ())
    assert labels("0", "1", "-1", unlabelled=[""]) == (["0", "1", "-1"], ())
    assert labels("1.0", "2.0", "NA") == (["1", "2", None], ("NA",))
    assert labels("+", "-", "None", None) == (["+", "-", "None", None], ())


@pytest.mark.parametrize(
    ("decimal", "values", "expected"),
    [
        (".", ["1,234.56", "2,000", "-3.5"], [1234.56, 2000, -3.5]),
        (".", ["12.3%", "4%", "100 %"], [12.3, 4, 100]),
        (".", ["$386.79", "-$1.50", "$1,000"], [386.79, -1.5, 1000]),
        (".", ["(1.23)", "4", "(5,000)"], [-1.23, 4, -5000]),
        (",", ["762", "1.399", "862,5"], [762, 1399, 862.5]),
        (",", ["1.234,56", "386,79 €", "7"], [1234.56, 386.79, 7]),
        (".", ["?", "-", "5"], [np.nan, np.nan, 5]),
    ],
)
def test_numbers_as_people_write_them_are_read(decimal, values, expected):
    table = replace(table_of(size=values), decimal=decimal)
    (column,) = detect_columns(table, label=None)
    assert column.kind == "number"
    np.testing.assert_array_equal(numbers_of(table, column), expected)


def test_a_point_that_parts_no_thousands_is_refused_where_the_comma_is_decimal():
    table = replace(table_of(size=["1,5", "1.5", "2,5"]), decimal=",")
    with pytest.raises(TableError, match=r"line 3, column 'size': '1\.5' is not a valid number"):
        detect_columns(table, label=None, kinds={"size": "number"})


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (["2026-01-31", "1970-01-02"], [20484, 1]),
        (["2026-01-31 12:00", "1970-01-02 06:00"], [20484.5, 1.25]),
        (["2026-01-31T12:00:00Z", "1970-01-02T06:00:00+01:00"], [20484.5, 1 + 5 / 24]),
        (["31.01.2026", "02.01.1970"], [20484, 1]),
        (["01/31/2026", "01/02/1970"], [20484, 1]),
        (["31/01/2026 12:00", "02/01/1970 00:00"], [20484.5, 1]),
    ],
)
def test_dates_are_read_in_the_usual_forms(values, days):
    table = table_of(day=values)
    (column,) = detect_columns(table, label=None)
    assert column.kind == "time"
    np.testing.assert_allclose(numbers_of(table, column), days, rtol=1e-12)
    with pytest.raises(TableError, match=r"line 2, column 'day': 'tomorrow' is not a date"):
        numbers_of(table_of(day=["tomorrow"]), column)


def test_a_few_dates_that_are_none_count_as_missing():
    values = [f"2026-01-{1 + i % 28:02d}" for i in range(100)]
    values[7] = "0000-00-00"
    (column,) = detect_columns(table_of(day=values), label=None)
    assert (column.kind, column.stray) == ("time", ("0000-00-00",))
    assert np.isnan(numbers_of(table_of(day=values), column)[7])


def test_times_of_parquet_are_the_same_whatever_their_unit_and_zone():
    moments = np.array(["2026-01-31T12:00:00.123456789", "1970-01-02"], dtype="datetime64[ns]")
    found = []
    for kind in (pa.timestamp("ns"), pa.timestamp("us"), pa.timestamp("ns", "UTC")):
        table = Table(Path("t.parquet"), pa.table({"t": pa.array(moments).cast(kind, safe=False)}))
        (column,) = detect_columns(table, label=None)
        found.append(numbers_of(table, column))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=1e-12)
    spans = np.array([1500, 250], dtype="timedelta64[ms]")
    for unit in ("ms", "us", "ns"):
        table = Table(Path("t.parquet"), pa.table({"t": pa.array(spans.astype(f"timedelta64[{unit}]"))}))
        np.testing.assert_allclose(numbers_of(table, detect_columns(table, label=None)[0]), [1.5, 0.25])


@pytest.mark.parametrize("kind", ["number", "time"])
def test_a_column_without_any_value_of_its_kind_is_ignored(kind):
    (column,) = detect_columns(table_of(size=["?", "-"] * 20), label=None, kinds={"size": kind})
    assert (column.kind, column.note) == ("ignored", "empty")
    (column,) = detect_columns(Table(Path("t.parquet"), pa.table({"x": [np.nan, None] * 20})), label=None)
    assert (column.kind, column.note) == ("ignored", "empty")


def test_numbers_are_not_read_as_dates():
    table = Table(Path("t.parquet"), pa.table({"x": [0.5, 1.5, 2.5]}))
    with pytest.raises(TableError, match=r"t.parquet: column 'x' has type double, not a date"):
        detect_columns(table, label=None, kinds={"x": "time"})


def test_truth_values_are_the_same_levels_in_every_format():
    typed = Table(Path("t.parquet"), pa.table({"b": pa.array([True, False, None] * 10)}))
    encoder = TableEncoder.learn(typed)
    text = table_of(b=["True", "FALSE", None])
    np.testing.assert_array_equal(encoder.transform(text), encoder.transform(typed)[:3])
    assert encoder.unknown_levels(text) == {}


def test_identifiers_are_left_out_in_whatever_order_they_stand():
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(np.arange(100, 100 + N))
    sparse = rng.permutation(np.arange(0, 17 * N, 17))
    found = kinds(table_of(n=shuffled, customer_id=sparse, weight=sparse, x=np.arange(N) + 0.5))
    assert found == {"n": "ignored", "customer_id": "ignored", "weight": "number", "x": "number"}


def test_one_large_column_among_columns_alike_is_scaled_apart():
    rng = np.random.default_rng(0)
    columns = {f"c{j}": rng.normal(size=60) for j in range(6)}
    table = table_of(**columns, income=np.exp(10 + rng.normal(size=60)))
    encoder = TableEncoder.learn(table)
    assert encoder.scaling == "common"
    assert "income: larger ranges, scaled separately." in encoder.notes
    deviations = encoder.transform(table).std(axis=0)
    np.testing.assert_allclose(deviations[-1], 1)
    np.testing.assert_allclose(np.sqrt(np.mean(deviations[:6] ** 2)), 1)


def test_a_category_without_repeats_is_refused_by_name():
    with pytest.raises(TableError, match="none of the 40 levels of column 'k' occurs in two rows"):
        detect_columns(table_of(k=[f"K{i}" for i in range(N)]), label=None, kinds={"k": "category"})


def test_many_classes_with_one_label_each_are_a_task():
    table = table_of(
        a=range(0, 200, 2), b=[i * i for i in range(100)], y=[f"c{i}" if i < 40 else None for i in range(100)]
    )
    assert len(prepare(table, "y").counts) == 40


def test_a_model_reads_frames_and_the_given_missing_labels(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)) + np.repeat([[0, 0], [5, 5], [0, 9]], 20, axis=0), np.repeat(["a", "b", "c"], 20)
    labels = [label if i % 20 < 4 else "none yet" for i, label in enumerate(y)]
    table = table_of(u=X[:, 0], v=X[:, 1], y=labels)
    model, _ = fit_task(prepare(table, "y", unlabelled=["none yet"]))
    assert model.classifier.classes_.tolist() == ["a", "b", "c"]
    save_model(model, tmp_path / "m.ldsu")
    assert load_model(tmp_path / "m.ldsu").unlabelled == ("none yet",)
    frame = pandas.DataFrame({"v": X[:, 1], "u": X[:, 0]})
    np.testing.assert_array_equal(model.predict(frame).label, model.predict(table).label)


def test_libsvm_columns_keep_their_numbers_from_fit_to_predict(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat([1, 2], 15)
    X = rng.normal(size=(30, 4)) + y[:, None]
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v:.4f}" for j, v in enumerate(row)) for row, label in zip(X, y, strict=True)
    ]
    (tmp_path / "fit.libsvm").write_text("\n".join(lines))
    model, _ = fit_task(prepare(read_table(tmp_path / "fit.libsvm"), None))
    # A file whose last column is empty everywhere is as wide as the model.
    (tmp_path / "new.libsvm").write_text("\n".join(line.rpartition(" ")[0] for line in lines))
    assert model.transform(tmp_path / "new.libsvm").shape[0] == 30
    (tmp_path / "zero.libsvm").write_text("1 0:1 3:2\n2 1:1\n")
    with pytest.raises(TableError, match="has an index 0, but the model was fitted to indices starting at 1"):
        model.predict(tmp_path / "zero.libsvm")


def test_numbers_are_scaled_as_the_formula_says():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)) * [1, 10, 100] + 5
    own = np.zeros(3, dtype=bool)
    each = Numbers.learn([X], "each", own, flag=True)(X)
    np.testing.assert_allclose(each, (X - X.mean(axis=0)) / X.std(axis=0), rtol=1e-12)
    common = Numbers.learn([X], "common", own, flag=True)(X)
    np.testing.assert_allclose(common, (X - X.mean(axis=0)) / np.sqrt((X.std(axis=0) ** 2).mean()), rtol=1e-12)
    np.testing.assert_array_equal(Numbers.learn([X], "none", own, flag=True)(X), X)


def test_missing_numbers_are_the_median_and_are_flagged_where_many():
    X = np.array([[1.0, 1], [2, np.nan], [9, np.nan], [np.nan, 4], [3, 5], [4, 6], [5, 6]])
    own = np.zeros(2, dtype=bool)
    learned = Numbers.learn([X], "none", own, flag=True)
    np.testing.assert_array_equal(learned.fill, [3.5, 5])
    np.testing.assert_array_equal(learned(X)[:, 2], [0, 1, 1, 0, 0, 0, 0])  # the second misses 2 of 7
    assert learned(X).shape == (7, 3)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": [1, 3, 5, 2], "b": [2, 4, 1, 7]}, "common"),
        ({"a": [1, 3, 5, 2], "b": [2000, 4000, 1000, 7000]}, "each"),
    ],
)
def test_columns_with_ranges_alike_share_a_scale(columns, expected):
    assert TableEncoder.learn(table_of(**columns)).scaling == expected


def test_wide_and_nearly_empty_whole_numbers_are_counts():
    counts = scipy.sparse.random_array((60, 300), density=0.02, random_state=np.random.default_rng(0), format="csr")
    counts.data = np.ceil(counts.data * 3)
    sparse, dense = (TableEncoder.learn(Table(Path("w.npz"), matrix=m)) for m in (counts, counts.toarray()))
    assert (sparse.scaling, dense.scaling) == ("counts", "counts")
    points = sparse.transform(Table(Path("w.npz"), matrix=counts))
    np.testing.assert_allclose(points, dense.transform(Table(Path("w.npz"), matrix=counts.toarray())), atol=1e-6)
    lengths = np.linalg.norm(points, axis=1)
    np.testing.assert_allclose(lengths[lengths > 0.5], 1, rtol=1e-6)
    minus = counts.copy()
    minus.data[0] = -1
    with pytest.raises(TableError, match=r"w.npz, row \d+, column \d+ is -1. Counts must be non-negative integers"):
        TableEncoder.learn(Table(Path("w.npz"), matrix=minus), scaling="counts")


def test_words_are_weighted_by_the_formula():
    texts = np.array(["red red blue", "blue green", "green red", None], dtype=object)
    words = Words.learn(texts)
    assert words.vocabulary == ("blue", "green", "red")
    np.testing.assert_allclose(words.idf, np.log(5 / 3) + 1)  # each stands in two of four
    # Along all directions nothing is lost: products of rows are the cosines of the weighted counts.
    counts = np.array([[1, 0, 1 + np.log(2)], [1, 1, 0], [0, 1, 1], [0, 0, 0]])
    unit = counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)
    full = Words(words.vocabulary, words.idf, np.eye(3, dtype=np.float32))
    np.testing.assert_allclose(full(texts), np.where(counts.any(axis=1)[:, None], unit, 0), atol=1e-7)
    assert np.all(words(np.array(["purple", None], dtype=object)) == 0)


def test_categories_are_a_column_a_level_and_unknown_ones_are_counted():
    table = table_of(town=["Ulm", "Bonn", "Ulm", None] * 5, size=range(0, 40, 2))
    encoder = TableEncoder.learn(table, scaling="none")
    new = table_of(town=["Bonn", "Rome", None], size=["1", "2", None])
    np.testing.assert_array_equal(encoder.transform(new)[:, -2:], [[1, 0], [0, 0], [0, 0]])
    assert encoder.unknown_levels(new) == {"town": 1}
    assert encoder.missing_values(new) == 1


def test_a_table_without_a_needed_column_is_refused():
    encoder = TableEncoder.learn(table_of(a=[1, 4, 2], b=[3, 5, 9]))
    with pytest.raises(TableError, match=r"things.csv lacks 'b', which the model needs"):
        encoder.transform(table_of(a=[1, 2]))
    images = TableEncoder.learn(Table(Path("i"), matrix=np.eye(4, dtype=np.uint8), image_shape=(2, 2)))
    with pytest.raises(TableError, match="has no images, but the model was fitted to gray images of 2 x 2 pixels"):
        images.transform(Table(Path("m.npy"), matrix=np.eye(4)))
    with pytest.raises(TableError, match="has 3 unnamed columns, but the model was fitted with 4"):
        TableEncoder.learn(Table(Path("m.npy"), matrix=np.eye(4))).transform(Table(Path("m.npy"), matrix=np.eye(3)))


@pytest.mark.parametrize(
    ("columns", "label", "said"),
    [
        ({"a": [1, 2, 3]}, None, "does not name a label column"),
        ({"a": [1, 2, 3]}, "b", "has no column 'b'"),
        ({"a": [1, 2, 3], "y": [None] * 3}, "y", "is empty in every row"),
        ({"a": [1, 2, 3], "y": ["x", None, "x"]}, "y", "has only 'x'"),
        ({"a": ["same"] * 3, "y": ["x", "y", None]}, "y", "has no usable column"),
        ({"a": range(50), "b": [0, 5] * 25, "y": [f"v{i}" for i in range(50)]}, "y", "Is it the label column"),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_refused_in_a_sentence(columns, label, said):
    with pytest.raises(TableError, match=said) as caught:
        prepare(table_of(**columns), label)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two classes told apart by a number, a town and words; some of everything is missing."""
    rng = np.random.default_rng(0)
    n = 120
    y = rng.integers(0, 2, n)
    topic = np.array([["sun", "beach", "sea"], ["snow", "ski", "ice"]])
    frame = pa.table(
        {
            "size": pa.array([None if rng.random() < 0.1 else float(v) for v in rng.normal(3 * y)]),
            "town": pa.array([None if rng.random() < 0.1 else ["Nice", "Davos"][c ^ (rng.random() < 0.2)] for c in y]),
            "note": pa.array([" ".join([*rng.choice(topic[c], 2), "we went there", str(i)]) for i, c in enumerate(y)]),
            "when": pa.array(np.datetime64("2026-01-01") + rng.integers(0, 300, n)),
            "season": pa.array([["summer", "winter"][c] if i < 20 else None for i, c in enumerate(y)]),
        }
    )
    path = tmp_path_factory.mktemp("mixed") / "trips.parquet"
    write_columns({name: frame[name] for name in frame.column_names}, path)
    return path, np.array(["summer", "winter"])[y]


def test_a_model_of_mixed_columns_is_right_and_the_same_after_saving(mixed, tmp_path):
    path, truth = mixed
    task = prepare(read_table(path), "season")
    assert {row[0]: row[1] for row in task.encoder.decisions()} == {
        "size": "number",
        "town": "category",
        "note": "text",
        "when": "time",
    }
    model, _ = fit_task(task)
    predictions = model.predict(path)
    assert np.mean(predictions.label == truth) > 0.9
    assert np.all(predictions.probability >= 0.5)
    np.testing.assert_allclose(predictions.confidence, 2 * predictions.probability - 1, atol=1e-9)
    save_model(model, tmp_path / "trips.ldsu", about=model.about)
    again = load_model(tmp_path / "trips.ldsu")
    for before, after in zip(predictions, again.predict(path), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(again.transform(path), model.transform(path))
    assert again.about == model.about
    assert again.encoder.decisions() == model.encoder.decisions()


def test_names_of_columns_come_back_whatever_they_hold(tmp_path):
    names = ("a\nb", "a\\nb", "\\", "\\\\n\n", "", "é\r\t", "a b")
    rng = np.random.default_rng(0)
    table = Table(Path("x"), pa.table({**{name: rng.normal(size=30) for name in names}, "y": ["u", "v"] * 15}))
    model, _ = fit_task(prepare(table, "y"))
    save_model(model, tmp_path / "m.ldsu")
    assert load_model(tmp_path / "m.ldsu").encoder.columns == model.encoder.columns
    assert tuple(column.name for column in model.encoder.columns) == names
    described = describe_model(tmp_path / "m.ldsu")["model"]["fields"]["encoder"]["fields"]["columns"]
    assert tuple(column["fields"]["name"] for column in described) == names


def test_a_model_reads_the_same_rows_from_another_format(mixed, tmp_path):
    path, _ = mixed
    model, _ = fit_task(prepare(read_table(path), "season"))
    frame = read_table(path).frame
    with (tmp_path / "trips.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(frame.column_names)
        writer.writerows(["" if v is None else v for v in row.values()] for row in frame.to_pylist())
    np.testing.assert_allclose(model.transform(tmp_path / "trips.csv"), model.transform(path), atol=1e-12)


def wide(n, p, decimal=".", seed=0):
    """A table of text with p columns of numbers, some of them missing, and a label."""
    values = np.random.default_rng(seed).normal(size=(n, p)).round(4)
    rows = [[str(value).replace(".", decimal) for value in row] for row in values]
    rows[1][3], rows[2][5], rows[0][7] = "", " NA", "?"
    header = [*(f"c{j}" for j in range(p)), "y"]
    return "\n".join(";".join(row) for row in [header, *([*row, "ab"[i % 2]] for i, row in enumerate(rows))]) + "\n"


def test_calls_for_a_wide_table_do_not_grow_with_its_columns(tmp_path, monkeypatch):
    (tmp_path / "wide.csv").write_text(wide(4, 5000))
    calls = []
    import pyarrow.compute

    for name in ("cast", "utf8_trim_whitespace", "is_in"):
        real = getattr(pyarrow.compute, name)
        monkeypatch.setattr(pyarrow.compute, name, lambda *a, real=real, **k: calls.append(real) or real(*a, **k))
    task = prepare(read_table(tmp_path / "wide.csv"), "y")
    assert task.X.shape == (4, 5003)  # three are missing often enough to be flagged
    assert len(calls) < 300


@pytest.mark.parametrize("decimal", [".", ","])
def test_columns_read_together_and_one_by_one_are_the_same(decimal, tmp_path, monkeypatch):
    odd = {
        "town": ["Ulm", "Kiel"] * 15,
        "price": ["€ 5", *map(str, range(29))],
        "when": [f"2026-01-{i + 1:02d}" for i in range(30)],
        "same": ["7"] * 30,
        "number": [*map(str, range(3, 33))],
        "flag": ["true", "false"] * 15,
        "most": ["-", *(f"{i}{decimal}5" for i in range(29))],
        "huge": ["1e999", *map(str, range(29))],
    }
    (tmp_path / "wide.csv").write_text(wide(30, 40, decimal))
    table = read_table(tmp_path / "wide.csv")
    assert table.decimal == decimal
    frame = table.frame
    for place, (name, values) in enumerate(odd.items()):
        frame = frame.add_column(5 * place, name, pa.array(values, pa.string()))
    frame = frame.append_column("typed", pa.array([None, *range(29)], pa.int16()))
    frame = frame.append_column("nan", pa.array([np.nan, *range(29)], pa.float32()))
    table = replace(table, frame=frame)
    together = prepare(table, "y")
    monkeypatch.setattr("ldsu.tables.columns.BLOCK_VALUES", 1)
    one_by_one = prepare(table, "y")
    assert together.encoder.columns == one_by_one.encoder.columns
    assert together.encoder.notes == one_by_one.encoder.notes
    np.testing.assert_array_equal(together.X, one_by_one.X)


def test_a_matrix_that_does_not_fit_into_memory_is_refused_before_it_is_built(tmp_path, monkeypatch):
    (tmp_path / "wide.csv").write_text(wide(50, 1000))
    table = read_table(tmp_path / "wide.csv")
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**20)
    with pytest.raises(MemoryError, match=r"wide\.csv with 50 rows and 1,000 number columns needs about"):
        prepare(table, "y")


def large_table(folder, kind, n=900):
    """Numbers with missing values, a category, and a few labels, as a file of a kind; what else `read_table` needs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)) * [1, 10, 100, 1]
    X[::7, 1] = np.nan
    label = np.array(["a" if x > 0 else "b" for x in X[:, 0]], dtype=object)
    label[30:] = None
    path = folder / f"large.{kind}"
    if kind == "npy":
        np.save(path, X)
        np.save(folder / "labels.npy", np.array([name or "" for name in label]))
        return path, {"labels": folder / "labels.npy"}
    table = pa.table(
        {
            **{f"x{j}": pa.array(X[:, j], from_pandas=True) for j in range(4)},
            "town": pa.array([None if i % 11 == 0 else ("Bonn", "Kiel")[i % 2] for i in range(n)]).dictionary_encode(),
            "number": np.arange(n),
            "list": pa.array([[1]] * n),
            "label": pa.array(label, pa.string()),
        }
    )
    if kind == "parquet":
        parquet.write_table(table.drop_columns("list"), path, row_group_size=250)
    else:
        feather.write_feather(table, path, chunksize=250)
    return path, {}


@pytest.mark.parametrize("kind", ["parquet", "feather", "npy"])
def test_a_large_file_is_read_in_parts_with_the_same_result(kind, tmp_path, monkeypatch):
    path, options = large_table(tmp_path, kind)
    label = None if kind == "npy" else "label"
    whole = read_table(path, **options)
    expected = prepare(whole, label)
    monkeypatch.setattr("ldsu.tables.formats.limits.available_memory", lambda: 2**10)
    monkeypatch.setattr("ldsu.tables.encoder.available_memory", lambda: 2**10)
    monkeypatch.setattr("ldsu._utils.temporary.MIN_FILE_BYTES", 1)
    for module in ("formats.arrow", "table"):
        monkeypatch.setattr(f"ldsu.tables.{module}.BLOCK_ROWS", 100)
    table = read_table(path, **options)
    assert table.is_large
    assert not whole.is_large
    assert sum(part.n_rows for part in table.row_blocks()) == 900
    assert [part.place(1) for part in table.row_blocks()][1] == whole.place(101)
    task = prepare(table, label)
    assert is_mapped(task.X)
    assert task.X.dtype == np.float32
    np.testing.assert_allclose(task.X, expected.X, atol=1e-5)
    assert task.labels.tolist() == expected.labels.tolist()
    assert task.encoder.decisions() == expected.encoder.decisions()
    assert (task.notes, task.encoder.notes, task.table.notes) == (
        expected.notes,
        expected.encoder.notes,
        expected.table.notes,
    )
    assert task.encoder.missing_values(table) == expected.encoder.missing_values(whole)
    model, _ = fit_task(task)
    assert model.predict(table).label.tolist() == fit_task(expected)[0].predict(whole).label.tolist()


def test_a_large_file_with_nested_columns_or_too_large_counts_is_still_read(tmp_path, monkeypatch):
    path = tmp_path / "nested.parquet"
    parquet.write_table(pa.table({"x": [1.0, 2.0], "deep": [{"a": 1}, {"a": 2}]}), path)
    monkeypatch.setattr("ldsu.tables.formats.limits.available_memory", lambda: 2**5)
    table = read_table(path)
    assert not table.is_large
    assert table.column_names == ["x"]


def test_many_sparse_integers_in_a_large_file_are_counts(tmp_path, monkeypatch):
    counts = (np.random.default_rng(0).random((300, 250)) < 0.02).astype(np.int16)
    np.save(tmp_path / "x.npy", counts)
    np.save(tmp_path / "y.npy", np.array(["a", "b"] * 5 + [""] * 290))
    expected = prepare(read_table(tmp_path / "x.npy", labels=tmp_path / "y.npy"), None)
    monkeypatch.setattr("ldsu.tables.formats.limits.available_memory", lambda: 2**10)
    task = prepare(read_table(tmp_path / "x.npy", labels=tmp_path / "y.npy"), None)
    assert task.encoder.scaling == expected.encoder.scaling == "counts"
    np.testing.assert_allclose(np.abs(task.X @ task.X.T), np.abs(expected.X @ expected.X.T), atol=1e-4)


@pytest.mark.parametrize("make", [made_tables.digits_csv, made_tables.digits_images, made_tables.tickets_csv])
def test_five_labels_per_class_are_enough_for_tables_such_as_users_have(make, tmp_path):
    accuracies = []
    for draw in (0, 1):
        (folder := tmp_path / str(draw)).mkdir()
        path, truth = make(folder, 5, draw)
        label = {"digits.csv": "digit", "tickets.csv": "topic"}.get(path.name)
        model, warnings = fit_task(prepare(read_table(path), label, encoder="none"))
        assert warnings == []
        accuracies.append(np.mean(model.predict(path).label == truth))
    assert np.mean(accuracies) >= 0.95


def test_memory_and_time_are_estimated_before_a_fit(tmp_path):
    path, _ = made_tables.digits_csv(tmp_path, 5, 0)
    task = prepare(read_table(path), "digit")
    expected = estimate(task)
    assert expected.solver == "exact"
    assert 3 * 8 * 1797**2 <= expected.memory <= 10 * 8 * 1797**2
    assert 0.3 < expected.seconds < 120


def test_the_time_of_many_rows_is_measured_on_some_of_them(tmp_path, monkeypatch):
    path, options = large_table(tmp_path, "npy")
    monkeypatch.setattr("ldsu.tables.estimate.MEASURED_SECONDS", 0)
    task = prepare(read_table(path, **options), None)
    fitted = []
    for rows, name in ((200, "few"), (400, "many")):
        monkeypatch.setattr("ldsu.tables.estimate.MEASURED_ROWS", rows)
        monkeypatch.setattr(
            "ldsu.methods.LDSU.fit_transform", lambda self, X, y: fitted.append((len(X), int(np.sum(y >= 0))))
        )
        expected = estimate(task, solver="sparse")
        assert expected.seconds >= 0, name
    assert fitted == [(200, 30), (400, 30)]
    assert expected.model > 900 * 4


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather", ".npz"])
def test_columns_written_are_read_back(suffix, tmp_path):
    columns = {"label": np.array(["a", 'b "c", d', "é"], dtype=object), "probability": np.array([0.5, 1.0, 0.25])}
    path = tmp_path / f"out{suffix}"
    write_columns(columns, path)
    table = read_table(path)
    assert labels_of(table, "label")[0].tolist() == columns["label"].tolist()
    column = next(c for c in detect_columns(table, label=None) if c.name == "probability")
    np.testing.assert_array_equal(numbers_of(table, column), columns["probability"])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_line_ends_within_values_and_names_add_no_rows(suffix, tmp_path):
    columns = {"a\rb": ["x\ry", "x\ny", "x\r\ny", "x"], "c": [1, 2, 3, 4]}
    path = tmp_path / f"out{suffix}"
    write_columns(columns, path)
    assert path.read_bytes().endswith(b"x" + (b"," if suffix == ".csv" else b"\t") + b"4\n")
    table = read_table(path)
    assert table.frame.to_pydict() == {"a\rb": columns["a\rb"], "c": ["1", "2", "3", "4"]}


def test_npz_holds_the_columns_and_nothing_else_whatever_their_names(tmp_path):
    columns = {"file": ["a", None], "allow_pickle": [1, 2], "kwds": np.array([0.5, 1.5]), "größe (m)": [True, False]}
    write_columns(columns, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        assert arrays.files == list(columns)
        assert {name: arrays[name].tolist() for name in columns} == {
            "file": ["a", ""],
            "allow_pickle": [1, 2],
            "kwds": [0.5, 1.5],
            "größe (m)": [True, False],
        }


def test_members_of_an_npz_file_are_no_paths(tmp_path):
    columns = ["../../evil", "/etc/x", "C:\\x", "a/b", "a_b", "a:b", "nul\0x"]
    write_columns({name: [number] for number, name in enumerate(columns)}, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        assert arrays.files == [".._.._evil", "_etc_x", "C__x", "a_b", "a_b_", "a_b__", "nul_x"]
        assert [int(arrays[name][0]) for name in arrays.files] == list(range(7))
