"""Files of users, made up or damaged: a table that can be used, or a sentence that says what is wrong with the file."""

import csv
import io
import string
import warnings
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fuzz.files import (
    IMAGES,
    MODELS,
    REFUSALS,
    WRITERS,
    check_sentence,
    check_table,
    damaged,
    own_sentence,
    sound,
    try_file,
)
from fuzz.profile import inputs
from ldsu.tables import Table, TableError, read_table
from ldsu.tables.model import fit_task, prepare

FILES = sorted(set(WRITERS) - MODELS)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(("flip", "flip", "overwrite", "overwrite", "insert", "delete", "repeat", "cut")),
        st.integers(0, 2**16),
        st.binary(min_size=1, max_size=8)
        | st.sampled_from((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 8, b'"', b"\r", b",", b"\n\n", b"1e999", b"nan")),
    ),
    min_size=1,
    max_size=6,
)
# Pieces of which tables of text are made: what exports hold, and what they should not.
CELLS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(width=32).map(str),
    st.sampled_from(
        (
            "",
            "NA",
            "nan",
            "None",
            "?",
            "1,5",
            "1.234,5",
            "1e400",
            "-1e-400",
            "0x1F",
            "1_000",
            "\uff11\uff12",
            "\u0663",
            "inf",
            "-inf",
            "TRUE",
        )
    ),
    st.sampled_from(("2024-01-31", "2024-13-31", "31.12.2024 10:00", "0001-01-01", "99999-01-01", "12:30")),
    st.sampled_from(
        ("cat", "dog", "bird", "a long text with words in it", "köln", "猫", "\u200b", "\ufeff", "\x00", "\x1c")
    ),
    st.text(alphabet=string.printable, max_size=6),
    st.text(max_size=5),
    st.sampled_from(('"', '""', '"a', 'a"b', '"x""y"', "'", "\\", " ", "\t", "=1+1", "-", "?")),
)
PLAIN = st.text(alphabet=string.ascii_letters + string.digits + " ,;|\t\"'._-", min_size=1, max_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose files are written again and again."""
    return tmp_path_factory.mktemp("tables")


@st.composite
def texts(draw):
    """A table as text: separator, line ends, quotation marks, ragged rows and encodings as exports have them."""
    separator = draw(st.sampled_from((",", ";", "\t", "|", " ", ",,")))
    end = draw(st.sampled_from(("\n", "\r\n", "\r", "\n\n")))
    width = draw(st.integers(1, 5))
    header = [draw(CELLS) for _ in range(width)] if draw(st.booleans()) else list("abcde"[:width])
    columns = [draw(st.lists(CELLS, min_size=1, max_size=4)) for _ in range(width)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = [[column[rng.integers(len(column))] for column in columns] for _ in range(draw(st.integers(0, 30)))]
    if rows and draw(st.integers(0, 4)) == 0:
        rows[rng.integers(len(rows))].append("more")
    text = draw(st.sampled_from(("", "", "", "\ufeff", "\n", "# note\n"))) + end.join(
        map(separator.join, [header, *rows])
    )
    text += draw(st.sampled_from((end, "", end * 3, '"')))
    return text.encode(draw(st.sampled_from(("utf-8", "utf-8", "utf-8", "latin-1", "utf-16", "cp1252"))), "replace")


def used(table, label):
    """Fit a model to a table and ask it of the same table: finite numbers, or a sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            task = prepare(table, label)
            assert np.isfinite(task.X).all()
            model = fit_task(task)[0]
            found = model.predict(table)
            features = model.transform(table)
    except REFUSALS as error:
        check_sentence(error)
        return
    except (ValueError, TypeError) as error:
        if not own_sentence(error):
            raise
        check_sentence(error)
        return
    assert features.shape[0] == table.n_rows
    assert np.isfinite(features).all()
    assert np.isin(found.label, model.classifier.classes_).all()
    assert np.isin(found.runner_up, model.classifier.classes_).all()
    for values in (found.probability, found.confidence, found.familiarity):
        assert ((values >= 0) & (values <= 1)).all()


@given(text=texts(), suffix=st.sampled_from(("csv", "tsv", "txt", "data", "libsvm")))
@inputs(default=50, full=1200)
def test_text_is_a_table_or_refused_in_a_sentence(text, suffix, folder):
    path = folder / f"text.{suffix}"
    path.write_bytes(text)
    table = try_file(path, path.name)
    if table is not None and table.frame is not None:
        used(table, table.label_name or table.frame.column_names[-1])


@given(data=st.binary(max_size=200) | st.text(max_size=100).map(str.encode), name=st.sampled_from(FILES))
@inputs(default=30, full=500)
def test_any_bytes_under_any_name_are_a_table_or_refused_in_a_sentence(data, name, folder):
    read = written(folder, name, data)  # raises unless it is refused in a sentence
    assert read is None or isinstance(read, Table)


@pytest.mark.parametrize("name", FILES)
@given(edits=EDITS)
@inputs(default=3, full=60)
def test_a_damaged_file_is_a_table_or_refused_in_a_sentence(name, edits, folder):
    data = damaged(sound(name), edits)
    table = written(folder, name, data)
    if table is not None and table.frame is not None and table.label_name:
        used(table, table.label_name)


def written(folder, name, data):
    """Write bytes under a name, an image alone in a folder, and read them."""
    place = folder / "images" if name in IMAGES else folder
    place.mkdir(exist_ok=True)
    path = place / name
    path.write_bytes(data)
    try:
        return try_file(path, name)
    finally:
        path.unlink()


@given(
    columns=st.lists(st.lists(PLAIN, min_size=6, max_size=6), min_size=2, max_size=4),
    separator=st.sampled_from((",", ";", "\t", "|")),
    end=st.sampled_from(("\n", "\r\n")),
)
@inputs(default=25, full=400)
def test_what_a_writer_of_csv_quotes_comes_back_as_it_was(columns, separator, end, folder):
    names = [f"column {place}" for place in range(len(columns))]
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([names, *zip(*columns, strict=True)])
    path = folder / "quoted.csv"
    path.write_bytes(text.getvalue().encode())
    table = read_table(path)
    assert table.frame.column_names == names
    for name, values in zip(names, columns, strict=True):
        assert table.frame[name].to_pylist() == [cleaned(value) for value in values]


def cleaned(value):
    """A value as the reader documents it: without blanks around it, and missing where nothing is left."""
    return value.strip() or None


@st.composite
def frames(draw):
    """Columns of the types that Arrow knows, with missing values, and a column of labels."""
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = {
        "float": st.floats(allow_nan=True, allow_infinity=True),
        "tiny": st.sampled_from((0.0, 1e-310, 5e-324, 1.0)),
        "huge": st.sampled_from((1e308, -1e308, 1e160, 0.0)),
        "int": st.integers(-(2**63), 2**63 - 1),
        "bool": st.booleans(),
        "text": st.text(max_size=4),
        "time": st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2200, 1, 1)),
        "date": st.dates(),
        "decimal": st.decimals(-(10**6), 10**6, places=2),
        "bytes": st.binary(max_size=3),
        "list": st.lists(st.integers(0, 3), max_size=2),
        "span": st.timedeltas(),
    }
    columns = {}
    for place in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(values)))
        some = [*draw(st.lists(values[kind], min_size=1, max_size=4)), *([None] if draw(st.booleans()) else [])]
        try:
            column = pa.array([some[rng.integers(len(some))] for _ in range(n)])
        except (pa.ArrowInvalid, OverflowError):  # a span of time that Arrow cannot hold
            assume(False)
        columns[f"{kind} {place}"] = (
            # Parquet has no dictionaries of nothing but nulls.
            column.dictionary_encode()
            if draw(st.integers(0, 4)) == 0 and kind == "text" and column.null_count < n
            else column
        )
    columns["label"] = pa.array([(None, "a", "b")[rng.integers(3)] for _ in range(n)], pa.string())
    return pa.table(columns)


@given(frame=frames(), form=st.sampled_from(("parquet", "feather", "arrow")))
@inputs(default=30, full=700)
def test_typed_columns_come_back_as_they_were_and_can_be_learned_from(frame, form, folder):
    path = folder / f"typed.{form}"
    if form == "parquet":
        parquet.write_table(frame, path)
    else:
        feather.write_feather(frame, str(path), compression="lz4" if form == "feather" else "uncompressed")
    try:
        table = read_table(path)
    except REFUSALS as error:
        check_sentence(error)
        return
    check_table(table)
    for name in table.frame.column_names:
        if name.startswith(("float", "tiny", "huge", "int", "bool", "text")):
            before, after = frame[name].to_pylist(), table.frame[name].to_pylist()
            assert all(a == b or (a != a and b != b) for a, b in zip(before, after, strict=True)), name
    used(table, "label")


@given(
    X=st.lists(st.lists(st.floats(allow_nan=False), min_size=3, max_size=3), min_size=1, max_size=8),
    dtype=st.sampled_from(("f8", "f4", "f2", "i8", "u1", "?", "c16", "S3", "U3", "M8[s]", ">f8", "f16")),
    form=st.sampled_from(("npy", "npz")),
)
@inputs(default=25, full=300)
def test_arrays_of_any_type_are_read_or_refused_in_a_sentence(X, dtype, form, folder):
    path = folder / f"array.{form}"
    with np.errstate(all="ignore"):
        values = np.array(X)
        values = values.astype("i8").astype(dtype) if dtype == "M8[s]" else values.astype(dtype)
    np.save(path, values) if form == "npy" else np.savez(path, X=values, y=np.arange(len(X)) % 2)
    table = try_file(path, path.name)
    if table is not None and dtype in ("f8", ">f8"):
        assert np.array_equal(table.matrix, X)
    if table is not None and table.label_name:
        used(table, table.label_name)


def test_numbers_too_large_for_a_double_are_not_read_as_infinity(folder):
    path = folder / "large.csv"
    path.write_text("a,k\n" + "".join(f"1e{300 + row},{row % 2}\n" for row in range(20)))
    with pytest.raises(TableError, match=r"large.csv, line 11, column 'a': '1e309' is not a valid number"):
        prepare(read_table(path), "k", kinds={"a": "number"})


# ---------------------------------------------------------------- found by the above, and kept


def test_dates_that_stand_for_never_are_dates(folder):
    path = folder / "never.csv"
    path.write_text(
        "a,until,k\n" + "".join(f"{r}.5,{'9999-12-31' if r % 3 else '2026-01-31'},{r % 2}\n" for r in range(30))
    )
    task = prepare(read_table(path), "k")
    assert "time" in {column.kind for column in task.encoder.columns}
    assert np.isfinite(task.X).all()


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", "\u3000"])
def test_a_blank_of_any_kind_around_a_value_is_not_part_of_it(folder, blank):
    path = folder / "blanks.csv"
    path.write_text(f'a,k\n1,"cat{blank}"\n2,"{blank}cat"\n3,cat\n', encoding="utf-8")
    assert read_table(path).frame["k"].to_pylist() == ["cat", "cat", "cat"]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_numbers_near_the_largest_are_refused_with_their_place_or_used(folder, dtype):
    values = np.random.default_rng(0).standard_normal((12, 3)).astype(dtype)
    values[3, 1], values[4, 1] = np.finfo(dtype).max, np.finfo(dtype).min
    np.savez(folder / "large.npz", X=values, y=np.arange(12) % 2)
    table = read_table(folder / "large.npz")
    if dtype == "f4":
        assert np.isfinite(prepare(table, table.label_name).X).all()
        return
    with pytest.raises(TableError, match=r"large\.npz, row 4, column 2 is 1\.8e\+308, which is too large"):
        prepare(table, table.label_name)
