"""Files of users: every format is read as it was written, and every damaged one is refused in a sentence."""

import bz2
import gzip
import lzma
import struct
import sys
import zipfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from conftest import refusal
from ldsu.tables import Table, TableError, read_table

pa = pytest.importorskip("pyarrow")
arrow_csv = pytest.importorskip("pyarrow.csv")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 4))
Y = np.arange(20) % 3
WORDS = [f"word {row % 5}" for row in range(20)]
SPARSE = scipy.sparse.random_array((20, 30), density=0.2, format="csr", random_state=np.random.default_rng(0))
FRAME = pa.table({"x": X[:, 0], "k": Y, "w": WORDS, "c": pa.array(WORDS).dictionary_encode(), "b": Y > 1})
CSV = ("a,b,k,w\n" + "".join(f'{x[0]:.3f},{x[1]:.3f},{k},"w, {k}"\n' for x, k in zip(X, Y, strict=True))).encode()
LIBSVM = "".join(f"{k} {' '.join(f'{j + 1}:{v:.2f}' for j, v in enumerate(x))}\n" for x, k in zip(X, Y, strict=True))


def write_stream(path, frame=FRAME):
    with pa.ipc.new_stream(str(path), frame.schema) as writer:
        writer.write_table(frame)


def write_excel(path, sheets):
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    workbook = openpyxl.Workbook()
    workbook.remove(workbook.active)
    for name, rows in sheets.items():
        sheet = workbook.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    workbook.save(path)


WRITERS = {
    "comma.csv": lambda path: path.write_bytes(CSV),
    "gzip.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV)),
    "bzip2.csv.bz2": lambda path: path.write_bytes(bz2.compress(CSV)),
    "xz.csv.xz": lambda path: path.write_bytes(lzma.compress(CSV)),
    "utf16.csv": lambda path: path.write_bytes(CSV.decode().encode("utf-16")),
    "pairs.libsvm": lambda path: path.write_text(LIBSVM),
    "plain.npy": lambda path: np.save(path, X),
    "fields.npy": lambda path: np.save(path, np.rec.fromarrays([X[:, 0], Y, WORDS], names="x,y,w")),
    "stored.npz": lambda path: np.savez(path, X=X, y=Y, w=WORDS),
    "deflated.npz": lambda path: np.savez_compressed(path, X=X, y=Y),
    "columns.npz": lambda path: np.savez(path, x=X[:, 0], y=Y, w=WORDS),
    "csr.npz": lambda path: scipy.sparse.save_npz(path, SPARSE),
    "csc.npz": lambda path: scipy.sparse.save_npz(path, SPARSE.tocsc(), compressed=False),
    "plain.mat": lambda path: scipy.io.savemat(path, {"fea": X, "gnd": Y, "w": np.array(WORDS, dtype=object)}),
    "deflated.mat": lambda path: scipy.io.savemat(path, {"fea": X, "gnd": Y}, do_compression=True),
    "sparse.mat": lambda path: scipy.io.savemat(path, {"fea": SPARSE.tocsc(), "gnd": Y}),
    "snappy.parquet": lambda path: parquet.write_table(FRAME, path),
    "lz4.feather": lambda path: feather.write_feather(FRAME, str(path)),
    "plain.arrow": lambda path: feather.write_feather(FRAME, str(path), compression="uncompressed"),
    "stream.arrows": write_stream,
    "sheet.xlsx": lambda path: write_excel(
        path, {"Sheet": [["x", "k", "w"], *zip(X[:, 0].tolist(), Y.tolist(), WORDS, strict=True)]}
    ),
}


@pytest.fixture
def read(tmp_path):
    """A function that writes a file and reads it."""

    def write_and_read(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path, **options)

    return write_and_read


@pytest.fixture
def written(tmp_path):
    """A function that writes one of the files of `WRITERS`."""

    def write(name):
        WRITERS[name](tmp_path / name)
        return tmp_path / name

    return write


def columns(table):
    return table.frame.to_pydict()


# ---------------------------------------------------------------- Excel


def test_first_sheet_is_read_as_the_same_table_in_csv(tmp_path, read):
    rows = [
        ["when", "size", "n", "flag", "word", "text"],
        [datetime(2026, 1, 31), 0.1, 5, True, "a", "one\r\ntwo"],
        [],
        [datetime(2026, 2, 1, 17, 5), 1e-300, -7, False, None, 'say "so", she'],
        [None, "#DIV/0!", None, None, " b ", None, None],
    ]
    write_excel(tmp_path / "t.xlsx", {"first": rows, "second": [["other"], [1]]})
    table = read_table(tmp_path / "t.xlsx")
    text = (
        'when,size,n,flag,word,text\n2026-01-31,0.1,5,true,a,"one\ntwo"\n'
        '2026-02-01 17:05:00,1e-300,-7,false,,"say ""so"", she"\n,,,,b,\n'
    )
    assert columns(table) == columns(read("t.csv", text))
    assert list(table.lines) == [2, 4, 5]
    assert table.notes == ("Read the first of 2 sheets, 'first'.",)
    assert table.place(1, "n") == "t.xlsx, line 4, column 'n'"


def test_workbook_is_known_by_its_content_too(written, tmp_path):
    path = written("sheet.xlsx").rename(tmp_path / "sheet.zip")
    assert columns(read_table(path))["k"] == [str(k) for k in Y]


def test_without_openpyxl_the_message_names_the_extra_and_another_way(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"pip install 'ldsu\[excel\]', or save the sheet as CSV"):
        read_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("old.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "Save its sheet as .xlsx without a password"),
        ("locked.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "Save its sheet as .xlsx without a password"),
        ("text.xlsx", b"a,b\n1,2\n", "named like an Excel file"),
    ],
)
def test_spreadsheets_that_are_not_read_say_how_to_save_them(read, name, content, part):
    assert part in refusal(read, name, content)


def hostile_workbook(path, rows, **parts):
    """A sound workbook whose rows, and other parts, are replaced."""
    write_excel(path, {"Sheet": [["a", "b"], [1, 2]]})
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    sheet = found["xl/worksheets/sheet1.xml"]
    start, end = sheet.index(b"<sheetData>") + 11, sheet.index(b"</sheetData>")
    found["xl/worksheets/sheet1.xml"] = sheet[:start] + rows.encode() + sheet[end:]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (found | parts).items():
            archive.writestr(name, content)
    return path


def test_rows_without_end_are_not_waited_for(tmp_path):
    row = '<row r="{}"><c t="inlineStr"><is><t>x</t></is></c></row>'
    path = hostile_workbook(tmp_path / "t.xlsx", row.format(1) + row.format(2) + row.format(10**15))
    assert columns(read_table(path)) == {"x": ["x"]}


def test_rows_that_unpack_into_very_many_cells_stop_before_they_fill_the_memory(tmp_path, monkeypatch):
    path = hostile_workbook(tmp_path / "t.xlsx", "<row><c r='XFD1'><v>1</v></c></row>" * 500)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**28)
    with pytest.raises(MemoryError, match=r"Reading t\.xlsx"):
        read_table(path)


def test_parts_that_unpack_into_more_than_the_memory_are_refused_before(tmp_path, monkeypatch):
    path = hostile_workbook(tmp_path / "t.xlsx", "<row/>", **{"xl/styles.xml": bytes(2**22)})
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**28)
    with pytest.raises(MemoryError, match=r"Reading t\.xlsx"):
        read_table(path)


def test_entities_of_entities_are_refused(tmp_path):
    path = hostile_workbook(tmp_path / "t.xlsx", "<row><c t='inlineStr'><is><t>&a9;</t></is></c></row>")
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    entities = "".join(f'<!ENTITY a{n} "{10 * f"&a{n - 1};"}">' for n in range(1, 10))
    head = f'<!DOCTYPE x [<!ENTITY a0 "lol">{entities}]>'.encode()
    found["xl/worksheets/sheet1.xml"] = head + found["xl/worksheets/sheet1.xml"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    assert "cannot be read as an Excel file" in refusal(read_table, path)


# ---------------------------------------------------------------- separated text


@pytest.mark.parametrize("first", ["sep=;\n", "sep=;\r\n", "SEP=;\n", '"sep=;"\r\n', "\ufeffsep=;\n"])
def test_first_line_of_excel_names_the_separator_and_is_no_row(read, first):
    table = read("t.csv", f"{first}a, b;c\n1, 2;3,5\n4, 5;6,5\n")
    assert columns(table) == {"a, b": ["1, 2", "4, 5"], "c": ["3,5", "6,5"]}
    assert list(table.lines) == [3, 4]
    assert table.decimal == ","


def test_first_line_of_excel_before_rows_without_names(read):
    table = read("t.csv", "sep=;\n1;2\n3;4\n")
    assert columns(table) == {"0": ["1", "3"], "1": ["2", "4"]}
    assert list(table.lines) == [2, 3]
    assert columns(read("one.csv", "sep=;\n1\n\n3\n")) == {"0": ["1", None, "3"]}
    assert "t.csv, line 3 has 3 values" in refusal(read, "t.csv", "sep=;\na;b\n1;2;3\n")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_separator_and_line_ends_are_found(read, separator, end):
    rows = [["name", "size"], ["a", "1"], ["b", "2.5"]]
    table = read("t.csv", end.join(separator.join(row) for row in rows) + end)
    assert columns(table) == {"name": ["a", "b"], "size": ["1", "2.5"]}
    assert table.is_text
    assert list(table.lines) == [2, 3]


def test_last_line_needs_no_end(read):
    assert columns(read("t.csv", "a,b\n1,2\n3,4")) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_separators_within_quotation_marks_do_not_count(read):
    table = read("t.csv", 'a;b\n"1,2,3";x\n"4,5,6";"y;z"\n')
    assert columns(table) == {"a": ["1,2,3", "4,5,6"], "b": ["x", "y;z"]}


def test_decimal_comma_is_found_behind_the_first_lines_too(read):
    whole = "".join(f"{row};{row}\n" for row in range(5000))
    assert read("t.csv", "a;b\n" + whole).decimal == "."
    table = read("t.csv", "a;b\n" + whole + "1,5;2\n")
    assert table.decimal == ","
    assert "decimal separator ','" in " ".join(table.notes)


def test_header_with_commas_does_not_hide_the_semicolon(read):
    table = read("t.csv", "size, cm;weight, kg\n1,5;2,5\n2,5;3,5\n")
    assert columns(table) == {"size, cm": ["1,5", "2,5"], "weight, kg": ["2,5", "3,5"]}
    assert table.decimal == ","


def test_text_with_commas_between_tabs_has_decimal_points(read):
    assert read("t.tsv", "a\tb\n1.5\tyes, indeed\n2.5\tno\n").decimal == "."


def test_empty_values_are_null_with_blanks_in_them_or_not(read):
    assert columns(read("t.csv", "a,b\n,x\n  ,y\n1,z\n"))["a"] == [None, None, "1"]


@pytest.mark.parametrize("marker", ["NA", "nan", "null", "None", "?", "-", "#N/A"])
def test_markers_of_missing_values_stay_texts_until_their_column_is_understood(read, marker):
    assert columns(read("t.csv", f"a,b\n{marker},x\n {marker} ,y\n1,z\n"))["a"] == [marker, marker, "1"]


def test_marker_in_quotation_marks_is_a_word_and_nothing_in_them_is_missing(read):
    assert columns(read("t.csv", 'a,b\n"NA",1\n"",2\n'))["a"] == ["NA", None]


def test_blanks_around_names_and_values_are_taken_away(read):
    assert columns(read("t.csv", "a , b\n 1, x y \n2 ,z\n")) == {"a": ["1", "2"], "b": ["x y", "z"]}


@pytest.mark.parametrize(
    ("encoding", "note", "value"),
    [
        ("utf-8", None, "ä €"),
        ("utf-8-sig", None, "ä €"),
        ("utf-16", "UTF-16", "ä €"),
        ("cp1252", "Windows-1252", "ä €"),
        ("latin-1", "latin-1", "ä \x81"),
    ],
)
def test_encodings_are_detected(read, encoding, note, value):
    table = read("t.csv", f"größe,wert\nklein,{value}\n".encode(encoding))
    assert columns(table) == {"größe": ["klein"], "wert": [value]}
    assert [note in text for text in table.notes] == ([] if note is None else [True])


def test_lines_are_those_of_an_editor_where_records_span_them_and_some_are_empty(read):
    table = read("t.csv", '\na,b\n"x\ny",1\n\n"5"" wide",2\nz,3\n')
    assert columns(table)["a"] == ["x\ny", '5" wide', "z"]
    assert list(table.lines) == [3, 6, 7]
    assert table.lines[0] == 3
    assert table.place(1, "b") == "t.csv, line 6, column 'b'"


def test_quotation_mark_within_a_value_is_no_other_than_a_letter(read):
    assert columns(read("t.csv", 'a,b\n5" pipe,1\nx,2\n')) == {"a": ['5" pipe', "x"], "b": ["1", "2"]}


def test_empty_lines_of_a_single_column_are_missing_values(read):
    assert columns(read("t.csv", "y\n1\n\n2\n")) == {"y": ["1", None, "2"]}


@pytest.mark.parametrize("first", ["5.1,3.5,0", "1,2", "-1e3,7"])
def test_first_line_of_numbers_is_a_row(read, first):
    table = read("t.csv", f"{first}\n{first}\n")
    assert table.frame.column_names == [str(place) for place in range(first.count(",") + 1)]
    assert table.n_rows == 2
    assert table.lines[0] == 1
    assert "first line is data" in table.notes[0]


def test_numbers_in_sequence_are_names_of_columns(read):
    assert columns(read("t.csv", "0,1,2\n7,8,9\n")) == {"0": ["7"], "1": ["8"], "2": ["9"]}


def test_first_line_with_numbers_among_words_is_a_header_with_a_note(read):
    table = read("iris.data", "5.1,3.5,setosa\n4.9,3.0,setosa\n")
    assert table.n_rows == 1
    assert "although it contains numbers" in table.notes[0]


def test_column_without_a_name_gets_one(read):
    table = read("t.csv", ",a,\n0,1,2\n")
    assert table.frame.column_names == ["column 1", "a", "column 3"]
    assert "'column 1', 'column 3'" in table.notes[0]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("a,b\n1,2\n3\n", ["t.csv, line 3", "1 value,", "has 2"]),
        ('a,b\n"1\n1",2\n\n3,4,5\n', ["t.csv, line 5", "3 values", "has 2"]),
        ("a,b,a\n1,2,3\n", ["two columns named 'a'", "1st", "3rd"]),
        ("", ["t.csv is empty"]),
        ("a,b\n", ["header, but no rows"]),
        ("a,b\n\n\n", ["header, but no rows"]),
        ("\n\n", ["no header"]),
        ("a,b\n1,\0\n", ["line 2", "NUL"]),
        ("a,b\n1,2\n".encode("utf-16-le"), ["NUL", "UTF-16"]),
        (bytes(range(1, 256)), ["binary"]),
        ('a,b\n1,"2\n3,4\n', ["line 2", "quotation mark"]),
        ('a,b\n1,2\n3,"4', ["line 3", "quotation mark"]),
        ("1 2 3\n4 5 6\n", ["blanks", "1 2 3"]),
    ],
)
def test_what_must_be_fixed_in_a_text_is_named(read, content, parts):
    message = refusal(read, "t.csv", content)
    assert all(part in message for part in parts), message


def test_ragged_row_is_found_behind_many_blocks(read):
    message = refusal(read, "t.csv", "a,b\n" + "10000000,20000000\n" * 300_000 + "3,4,5\n")
    assert "line 300002 has 3 values" in message


def test_line_of_a_hundred_megabytes_is_refused_and_one_of_ten_is_read(read):
    assert "line 2 is longer than 64 MiB" in refusal(read, "t.csv", b"a,b\n" + b"x" * 10**8 + b",1\n")
    assert "line 1 is longer than 64 MiB" in refusal(read, "t.csv", b"x" * 10**8)
    table = read("t.csv", b"a,b\n\n" + b"x" * 10**7 + b",1\n")
    assert len(columns(table)["a"][0]) == 10**7
    assert list(table.lines) == [3]


def wide_text(rows, end="\n"):
    """Lines of 5,000 values behind those of `rows`, whose first one names the columns."""
    header, *rows = rows
    names = [*header, *(f"c{place}" for place in range(5000))]
    return end.join([";".join(names), *(";".join([*row, *["7"] * 5000]) for row in rows)]) + end


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_wide_text_is_read_as_any_other(read, end, chunks, monkeypatch):
    rows = [["a", "b b ", "c"], ["1", "2,5", "x"], ["3", "", " y "], ['" 2 "', '"x;\n""y"""', '""'], ["é", "NA", "?"]]
    text = wide_text([*rows, ["5", "6", '"a\rb"']], end).replace(f"3;;{' y '}", f"{end}3;; y ")
    separated = "ldsu.tables.formats.separated"
    if chunks > 1:
        monkeypatch.setattr(f"{separated}.WIDE_ROWS", 2)
        monkeypatch.setattr(f"{separated}.WIDE_VALUES", 0)
    wide = read("t.csv", text)
    assert {column.num_chunks for column in wide.frame.columns} == {chunks}
    monkeypatch.setattr(f"{separated}.WIDE", 10**6)
    other = read("t.csv", text)
    assert columns(wide) == columns(other)
    assert list(wide.lines) == list(other.lines)
    assert (wide.decimal, wide.notes) == (other.decimal, other.notes)


def test_what_must_be_fixed_in_wide_text_is_named(read):
    header = ["a", "b"]
    assert "line 3 has 5,003 values, but the first line has 5,002" in refusal(
        read, "t.csv", wide_text([header, ["1", "2"], ["1", "2", "3"]])
    )
    assert "line 2: a quotation mark is not closed" in refusal(
        read, "t.csv", wide_text([header, ['"1', "2"], ["1", "2"]])
    )


def test_memory_for_very_many_columns_is_asked_for_before_they_are_read(read, monkeypatch):
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**26)
    text = ",".join(f"c{place}" for place in range(10**5)) + "\n" + ",".join(["7"] * 10**5) + "\n"
    with pytest.raises(
        MemoryError, match=r"Reading t\.csv with its 100,000 columns needs about 0\.1 GiB, but 0\.1 GiB"
    ):
        read("t.csv", text)


def test_reading_leaves_the_limit_of_the_csv_module_as_it_was(read):
    import csv

    before = csv.field_size_limit()
    read("t.csv", b"a,b\n" + b"x" * 10**6 + b",1\n")
    assert csv.field_size_limit() == before


# ---------------------------------------------------------------- LIBSVM


@pytest.mark.parametrize("name", ["t.libsvm", "t.svm", "t.svmlight", "t.txt", "t", "t.scale"])
def test_libsvm_is_known_by_its_name_or_its_lines(read, name):
    table = read(name, LIBSVM)
    assert columns(table) == {"label": Y.tolist()}
    assert table.label_name == "label"
    assert isinstance(table.matrix, scipy.sparse.csr_array)
    np.testing.assert_allclose(table.matrix.toarray(), X.round(2))


def test_libsvm_indices_start_at_0_where_one_is_0(read):
    assert read("t.libsvm", "1 1:5 2:6\n").matrix.toarray().tolist() == [[5, 6]]
    assert read("t.libsvm", "1 0:5 2:6\n").matrix.toarray().tolist() == [[5, 0, 6]]


def test_libsvm_comments_and_empty_lines_are_no_rows(read):
    table = read("t.libsvm", "# made by hand\n1.5 1:1\n\n2 1:2 # two\n")
    assert columns(table) == {"label": [1.5, 2.0]}
    assert table.place(1) == "t.libsvm, line 4"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("1 1:2\n1 1:2 3:x\n", ["line 2", "'3:x'"]),
        ("1,2 1:2\n", ["line 1", "'1,2'", "number"]),
        ("1 3:1 2:1\n", ["line 1", "index 2", "follows 3"]),
        ("1 99999999999:1\n", ["99999999999", "too large"]),
        ("1\n2\n", ["no index:value pair"]),
        ("# nothing\n", ["no rows"]),
    ],
)
def test_what_must_be_fixed_in_libsvm_text_is_named(read, content, parts):
    message = refusal(read, "t.libsvm", content)
    assert all(part in message for part in parts), message


# ---------------------------------------------------------------- Parquet, Feather, Arrow


@pytest.mark.parametrize("name", ["snappy.parquet", "lz4.feather", "plain.arrow", "stream.arrows"])
def test_typed_columns_keep_their_types_and_dictionaries_are_decoded(written, name):
    table = read_table(written(name))
    assert columns(table) == columns(Table(Path(), frame=FRAME))
    assert [str(field.type) for field in table.frame.schema] == ["double", "int64", "string", "string", "bool"]
    assert not table.is_text
    assert table.place(0, "x") == f"{name}, row 1, column 'x'"


def test_content_decides_against_the_name(tmp_path):
    parquet.write_table(FRAME, tmp_path / "wrong.csv")
    assert read_table(tmp_path / "wrong.csv").n_rows == 20


def test_columns_of_no_plain_values_are_left_out_with_a_note(tmp_path):
    frame = pa.table(
        {"x": [1], "list": [[1]], "struct": [{"a": 1}], "bytes": [b"\0"], "nothing": [None], "__index_level_0__": [7]}
    )
    parquet.write_table(frame, tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert columns(table) == {"x": [1], "nothing": [None]}
    assert all(repr(name) in table.notes[0] for name in ("list", "struct", "bytes", "__index_level_0__"))
    parquet.write_table(frame.select(["list"]), tmp_path / "t.parquet")
    assert "no column of numbers or text" in refusal(read_table, tmp_path / "t.parquet")


def test_arrow_table_without_rows_or_with_a_name_twice_is_refused(tmp_path):
    write_stream(tmp_path / "t.arrows", FRAME.slice(0, 0))
    assert "no rows" in refusal(read_table, tmp_path / "t.arrows")
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), FRAME.schema):
        pass
    assert "no rows" in refusal(read_table, tmp_path / "t.arrow")
    write_stream(tmp_path / "t.arrows", pa.table([[1], [2]], names=["a", "a"]))
    assert "two columns named 'a'" in refusal(read_table, tmp_path / "t.arrows")


def test_frames_of_pandas_and_polars_are_read(tmp_path):
    values = {"x": [1.5, 2.5], "w": ["a", None]}
    pytest.importorskip("pandas").DataFrame(values).to_parquet(tmp_path / "pandas.parquet")
    pytest.importorskip("polars").DataFrame(values).write_ipc(tmp_path / "polars.arrow")
    for name in ("pandas.parquet", "polars.arrow"):
        assert columns(read_table(tmp_path / name)) == values


# ---------------------------------------------------------------- NumPy


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("f8", "f8"), ("f4", "f4"), ("f2", "f4"), ("u1", "u1"), ("?", "u1"), ("i4", "f8"), (">f8", "f8"), ("i1", "f8")],
)
def test_matrices_become_float64_float32_or_uint8(tmp_path, dtype, kept):
    values = np.arange(6).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "t.npy", np.asfortranarray(values))
    matrix = read_table(tmp_path / "t.npy").matrix
    assert matrix.dtype == np.dtype(kept)
    np.testing.assert_array_equal(matrix, values)


def test_structured_array_is_a_frame(tmp_path):
    values = np.array([(1, 0.5, "a", [1, 2]), (2, np.nan, "", [3, 4])], dtype="i4,f8,U3,(2,)f8")
    values.dtype.names = ("y", "x", "größe", "pair")
    np.save(tmp_path / "t.npy", values)
    table = read_table(tmp_path / "t.npy")
    assert columns(table) == {"y": [1, 2], "x": [0.5, None], "größe": ["a", None]}
    assert table.label_name == "y"
    assert "pair" in table.notes[0]
    np.save(tmp_path / "t.npy", values[["pair"]])
    assert "no column of numbers or text. Use" in refusal(read_table, tmp_path / "t.npy")


@pytest.mark.parametrize("name", ["X", "x", "data", "fea", "anything"])
def test_npz_matrix_is_the_one_of_a_usual_name_or_the_only_one(tmp_path, name):
    np.savez(tmp_path / "t.npz", **{"y": Y, "w": WORDS, "scalar": 3, name: X})
    table = read_table(tmp_path / "t.npz")
    np.testing.assert_array_equal(table.matrix, X)
    assert columns(table) == {"y": Y.tolist(), "w": WORDS}
    assert table.label_name == "y"
    assert "scalar" in table.notes[0]


def test_npz_with_several_matrices_names_them_unless_one_is_x(tmp_path):
    np.savez(tmp_path / "t.npz", left=X, right=X)
    message = refusal(read_table, tmp_path / "t.npz")
    assert "'left' (20 x 4)" in message
    assert "'right' (20 x 4)" in message
    np.savez(tmp_path / "t.npz", left=X, X=2 * X)
    np.testing.assert_array_equal(read_table(tmp_path / "t.npz").matrix, 2 * X)


def test_npz_of_columns_alone_is_a_frame(tmp_path):
    content = {
        "x": np.array([0.5, np.nan, 2]),
        "y": np.array([1.0, 0.0, np.nan]),
        "größe": np.array(["a", "", "é"]),
        "b": np.array([True, False, True]),
        "day": np.array(["2026-01-01", "NaT", "2026-01-03"], dtype="M8[s]"),
        "z": np.ones(3) * 1j,
        "scalar": 3,
    }
    np.savez(tmp_path / "t.npz", **content)
    table = read_table(tmp_path / "t.npz")
    assert table.matrix is None
    assert columns(table) == {
        "x": [0.5, None, 2],
        "y": [1, 0, None],
        "größe": ["a", None, "é"],
        "b": [True, False, True],
        "day": [datetime(2026, 1, 1), None, datetime(2026, 1, 3)],
    }
    assert [str(field.type) for field in table.frame.schema][:4] == ["double", "int64", "string", "bool"]
    assert (table.n_rows, table.label_name, table.is_text) == (3, "y", False)
    assert [note.endswith(": z, scalar.") for note in table.notes] == [True]


def test_npz_of_columns_named_as_the_parts_of_a_sparse_matrix_is_a_frame(tmp_path):
    np.savez(tmp_path / "t.npz", format=WORDS, shape=Y, data=X[:, 0])
    assert columns(read_table(tmp_path / "t.npz")) == {"format": WORDS, "shape": Y.tolist(), "data": X[:, 0].tolist()}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ({"a": X[:, 0], "b": Y[:7]}, ["different lengths", "'a' (20)", "'b' (7)"]),
        ({"a": X[:, 0]}, ["no matrix", "'a' (20)"]),
        ({"a": X[:, 0] * 1j, "b": Y * 1j}, ["no column of numbers or text", "'a' (20)"]),
        ({"a": np.zeros(0), "b": np.zeros(0)}, ["no rows", "'a' (0)"]),
        # What has more dimensions may be the samples: it is not left out in silence.
        ({"a": np.zeros((20, 2, 2)), "b": Y, "c": Y}, ["no matrix", "'a' (20 x 2 x 2)"]),
        ({"a": np.full((20, 2), "x"), "b": Y, "c": Y}, ["no matrix", "'a' (20 x 2)"]),
    ],
)
def test_npz_without_a_matrix_that_is_no_table_is_refused(tmp_path, content, parts):
    np.savez(tmp_path / "t.npz", **content)
    message = refusal(read_table, tmp_path / "t.npz")
    assert all(part in message for part in parts), message


def test_names_of_columns_do_not_transpose_a_matrix_but_labels_do(tmp_path):
    np.savez(tmp_path / "t.npz", X=X, names=np.array(list("abcd")))
    assert read_table(tmp_path / "t.npz").matrix.shape == (20, 4)
    np.savez(tmp_path / "t.npz", X=X.T, y=Y)
    table = read_table(tmp_path / "t.npz")
    np.testing.assert_array_equal(table.matrix, X)
    assert "transposed" in table.notes[0]


def test_labels_of_another_number_are_refused(tmp_path):
    np.savez(tmp_path / "t.npz", X=X, y=Y[:7])
    message = refusal(read_table, tmp_path / "t.npz")
    assert "y has 7 entries" in message
    assert "20 rows" in message


def test_image_shape_of_an_npz_is_kept_where_it_fits(tmp_path):
    np.savez(tmp_path / "t.npz", X=X, image_shape=[2, 2])
    assert read_table(tmp_path / "t.npz").image_shape == (2, 2)
    np.savez(tmp_path / "t.npz", X=X, image_shape=[3, 2])
    assert read_table(tmp_path / "t.npz").image_shape is None


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_npz_becomes_csr(tmp_path, form):
    scipy.sparse.save_npz(tmp_path / "t.npz", SPARSE.asformat(form))
    matrix = read_table(tmp_path / "t.npz").matrix
    assert isinstance(matrix, scipy.sparse.csr_array)
    np.testing.assert_array_equal(matrix.toarray(), SPARSE.toarray())


def test_sparse_npz_with_indices_outside_of_it_is_refused(tmp_path):
    damaged = SPARSE.copy()
    damaged.indices[3] = 10**6
    scipy.sparse.save_npz(tmp_path / "t.npz", damaged)
    assert "must be <" in refusal(read_table, tmp_path / "t.npz")


@pytest.mark.parametrize("name", ["t.npy", "t.npz"])
def test_pickles_are_not_opened(tmp_path, name):
    save = np.save if name == "t.npy" else np.savez
    save(tmp_path / name, np.array([[Trap()]], dtype=object), allow_pickle=True)
    assert "pickle" in refusal(read_table, tmp_path / name)
    assert not Trap.sprung


class Trap:
    sprung = False

    def __reduce__(self):
        return (setattr, (Trap, "sprung", True))


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((0, 3)), np.ones((2, 2)) * 1j])
def test_arrays_that_are_no_table_are_refused(tmp_path, values):
    np.save(tmp_path / "t.npy", values)
    refusal(read_table, tmp_path / "t.npy")


# ---------------------------------------------------------------- MATLAB


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i1", "u2", "i2", "u4", "i4", "?"])
def test_matlab_matrix_agrees_with_scipy(tmp_path, dtype, compressed):
    values = (10 * X).astype(dtype) if dtype != "?" else X > 0
    scipy.io.savemat(tmp_path / "t.mat", {"anything": values, "gnd": Y[:, None]}, do_compression=compressed)
    table = read_table(tmp_path / "t.mat")
    np.testing.assert_array_equal(table.matrix, scipy.io.loadmat(tmp_path / "t.mat")["anything"])
    assert columns(table) == {"gnd": Y.tolist()}
    assert str(table.frame.schema.field("gnd").type) == "int64"
    assert table.label_name == "gnd"


def test_matlab_labels_may_be_numbers_with_missing_ones_or_text(tmp_path):
    content = {
        "X": X,
        "y": np.where(Y == 2, np.nan, Y),
        "cells": np.array([*WORDS[:-1], ""], dtype=object),
        "rows": np.array(WORDS),
        "mixed": np.array([1, "a"] * 10, dtype=object),
        "record": {"a": 1},
    }
    scipy.io.savemat(tmp_path / "t.mat", content)
    table = read_table(tmp_path / "t.mat")
    assert columns(table) == {
        "y": [None if label == 2 else label for label in Y],
        "cells": [*WORDS[:-1], None],
        "rows": WORDS,
    }
    assert "mixed, record" in table.notes[0]


def test_matlab_matrix_with_samples_in_columns_is_transposed(tmp_path):
    scipy.io.savemat(tmp_path / "t.mat", {"X": X.T, "Y": Y})
    np.testing.assert_array_equal(read_table(tmp_path / "t.mat").matrix, X)


@pytest.mark.parametrize("values", [SPARSE, SPARSE.astype(bool)])
def test_matlab_sparse_matrix_becomes_csr(tmp_path, values):
    scipy.io.savemat(tmp_path / "t.mat", {"fea": values.tocsc()})
    matrix = read_table(tmp_path / "t.mat").matrix
    assert isinstance(matrix, scipy.sparse.csr_array)
    np.testing.assert_array_equal(matrix.toarray(), values.toarray())


def test_matlab_file_of_a_big_endian_machine_is_read(tmp_path):
    def element(kind, content):
        return struct.pack(">II", kind, len(content)) + content + b"\0" * (-len(content) % 8)

    head = (
        element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">ii", 2, 3)) + struct.pack(">HH4s", 1, 1, b"X")
    )
    matrix = element(14, head + element(9, np.arange(6.0).astype(">f8").tobytes()))
    (tmp_path / "t.mat").write_bytes(b"MATLAB 5.0".ljust(124) + b"\x01\x00MI" + matrix)
    assert read_table(tmp_path / "t.mat").matrix.tolist() == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("head", [b"MATLAB 7.3 MAT-file, Platform: GLNXA64", b"\x89HDF\r\n\x1a\n"])
def test_matlab_7_3_says_how_to_save(read, head):
    assert "-v7" in refusal(read, "t.mat", head.ljust(600))


def test_matlab_4_says_how_to_save(tmp_path):
    scipy.io.savemat(tmp_path / "t.mat", {"X": X}, format="4")
    assert "-v7" in refusal(read_table, tmp_path / "t.mat")


# ---------------------------------------------------------------- labels in a file of their own


@pytest.mark.parametrize("form", ["csv", "headerless", "npy", "npz", "two columns"])
@pytest.mark.parametrize("name", ["plain.npy", "comma.csv", "snappy.parquet", "pairs.libsvm"])
def test_labels_of_another_file_become_the_column_label(written, tmp_path, name, form):
    path = tmp_path / f"labels.{'csv' if form in ('headerless', 'two columns') else form}"
    lines = [str(label) for label in Y]
    if form == "npy":
        np.save(path, Y)
    elif form == "npz":
        np.savez(path, labels=Y.astype(float))
    elif form == "two columns":
        path.write_text("id,Label\n" + "".join(f"{row},{label}\n" for row, label in enumerate(Y)))
    else:
        path.write_text("\n".join(["kind", *lines] if form == "csv" else lines) + "\n")
    table = read_table(written(name), labels=path)
    assert [str(label) for label in columns(table)["label"]] == lines
    assert table.label_name == "label"
    assert not table.is_text or str(table.frame.schema.field("label").type) == "string"


def test_labels_of_another_number_or_of_an_unknown_column_are_refused(written, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("y\n1\n2\n")
    message = refusal(read_table, written("plain.npy"), labels=path)
    assert "2 labels" in message
    assert "20 rows" in message
    path.write_text("a,b\n" + "1,2\n" * 20)
    assert "none is named label" in refusal(read_table, written("plain.npy"), labels=path)
    np.save(tmp_path / "labels.npy", X)
    assert "(20, 4)" in refusal(read_table, written("plain.npy"), labels=tmp_path / "labels.npy")


def test_labels_do_not_replace_a_column_of_the_user(read, tmp_path):
    (tmp_path / "labels.csv").write_text("y\n1\n")
    assert "'label'" in refusal(read, "t.csv", "label,a\n1,2\n", labels=tmp_path / "labels.csv")


# ---------------------------------------------------------------- what cannot be read


def test_missing_path_is_named_with_its_nearest_neighbor(written):
    path = written("comma.csv")
    with pytest.raises(FileNotFoundError, match=r"There is no file or folder .*coma\.csv.* Did you mean .*comma\.csv"):
        read_table(path.with_name("coma.csv"))
    with pytest.raises(FileNotFoundError, match="labels"):
        read_table(path, labels=path.with_name("labels"))


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("t.json", b"{}", "LIBSVM text"),
        ("t.pkl", b"\x80\x04N.", "Parquet"),
        ("t", b"hello", "CSV"),
        ("t.parquet", b"hello", "Parquet"),
        ("t.npz", b"hello", ".npz"),
        ("t.png", b"\x89PNG", "folder"),
        ("t.csv.gz", gzip.compress(b"PAR1 and so on", mtime=0), "Unpack"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "empty"),
    ],
)
def test_unknown_file_says_what_can_be_read(read, name, content, part):
    message = refusal(read, name, content)
    assert name in message
    assert part in message


def test_office_document_and_other_archives_are_detected(tmp_path):
    for name, member, part in (("t.xlsx", "[Content_Types].xml", "as CSV"), ("t.zip", "t.csv", "'t.csv'")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, "a,b\n1,2\n")
        assert part in refusal(read_table, tmp_path / name)


@pytest.mark.parametrize("name", WRITERS)
def test_file_without_permission_is_refused(written, name, monkeypatch):
    path = written(name)

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "permission" in refusal(read_table, path)


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_file_is_refused_or_read(written, name):
    path = written(name)
    whole = path.read_bytes()
    read_table(path)
    rng = np.random.default_rng(7)
    outcomes = []
    damaged = [whole[:place] for place in np.linspace(0, len(whole) - 1, 30).astype(int)]
    for place in rng.integers(0, len(whole), 50):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        try:
            table = read_table(path)
        except TableError as error:
            outcomes.append(str(error))
        else:
            # Reading is not enough: what was read must be sound.
            assert table.n_rows == len(table.lines or range(table.n_rows))
            assert table.frame is None or table.frame.validate(full=True) is None
    assert len(outcomes) > 10
    assert not any("\n" in message or len(message) > 500 for message in outcomes)


@pytest.mark.parametrize("name", WRITERS)
def test_memory_is_asked_for_before_it_is_taken(written, name, monkeypatch):
    path = written(name)
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=f"Reading {path.name} needs about"):
        read_table(path)


def test_compressed_text_stops_before_it_fills_the_memory(read, monkeypatch):
    packed = gzip.compress(b"1,2\n" * 2**24, 1)
    assert len(packed) < 2**20
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**27)
    chunks = []
    whole_read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda file, size: chunks.append(size) or whole_read(file, size))
    with pytest.raises(MemoryError, match="Reading bomb"):
        read("bomb.csv.gz", packed)
    assert sum(chunks) <= 2**26


def test_archive_that_claims_more_than_it_can_hold_is_refused(tmp_path):
    path = tmp_path / "t.npz"
    np.savez_compressed(path, X=np.zeros((2000, 100)))
    with zipfile.ZipFile(path) as archive:
        (member,) = archive.infolist()
    content = path.read_bytes()
    assert content.count(struct.pack("<I", member.file_size)) >= 1
    path.write_bytes(content.replace(struct.pack("<I", member.file_size), struct.pack("<I", 2**31)))
    assert "2,147,483,648" in refusal(read_table, path)


@pytest.mark.parametrize("name", WRITERS)
def test_without_pyarrow_the_message_says_how_to_install_it(written, name, monkeypatch):
    path = written(name)
    for module in [module for module in sys.modules if module.startswith("pyarrow.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"Install pyarrow.*pip install 'ldsu\[cli\]'"):
        read_table(path)


def test_table_needs_rows_and_as_many_of_them_in_both_halves():
    with pytest.raises(TypeError):
        Table(Path("t"))
    with pytest.raises(TypeError, match="20 rows"):
        Table(Path("t"), frame=FRAME, matrix=X[:3])


@pytest.mark.parametrize("name", ["usps.npz", "pcmac.npz"])
def test_real_archives_are_read(name, data_folder, real_data):
    expected, y = real_data(name)
    table = read_table(data_folder(name) / name)
    np.testing.assert_array_equal(table.matrix, expected)
    assert columns(table)["y"] == y.tolist()
    assert table.label_name == "y"


@pytest.mark.parametrize(
    ("version", "threads"), [("17.0.0", False), ("22.0.0", False), ("23.0.1", True), ("26.0.1", True)]
)
def test_threads_read_text_only_where_a_wrong_line_cannot_make_them_wait_for_ever(version, threads, read, monkeypatch):
    # A few hundred files with a wrong line, read one after the other in a process, stop it for good before 23.
    used = []
    read_csv = arrow_csv.read_csv

    def noted(data, *, read_options, **options):
        used.append(read_options.use_threads)
        return read_csv(data, read_options=read_options, **options)

    monkeypatch.setattr(arrow_csv, "read_csv", noted)
    monkeypatch.setattr(pa, "__version__", version)
    assert columns(read("t.csv", b"a,b\n1,2\n")) == {"a": ["1"], "b": ["2"]}
    assert used == [threads]
