"""Events and notes become bags of words; bad rows are counted; nothing is learned from test rows."""

import csv
import gzip
import io
import time
import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from test_datasets import converted

from ldsu.datasets import Dataset, DatasetError, Events, bag_of_words, load, load_notes, notes
from ldsu.datasets.bags import word_counts
from ldsu.datasets.preprocessing import balanced_rows

# Bags of words


def slow_bag_of_words(lists, train_rows, size):
    """The same, word by word."""
    frequency, total, first = Counter(), Counter(), {}
    for words in lists:
        for word in words:
            first.setdefault(word, len(first))
    for row in train_rows:
        frequency.update(set(lists[row]))
        total.update(lists[row])
    chosen = sorted(frequency, key=lambda word: (-frequency[word], -total[word], first[word]))[:size]
    return [[float(words.count(word)) for word in chosen] + [0.0] * (size - len(chosen)) for words in lists]


def test_bag_of_words_equals_the_count_word_by_word():
    rng = np.random.default_rng(0)
    for _ in range(20):
        lists = [[f"w{i}" for i in rng.integers(0, 12, rng.integers(0, 9))] for _ in range(10)]
        train = rng.permutation(10)[:5]
        for size in (1, 5, 20):
            assert bag_of_words(lists, train, size).tolist() == slow_bag_of_words(lists, train, size)


def test_dictionary_needs_words_and_rows():
    with pytest.raises(ValueError, match="size=0"):
        bag_of_words([["a"]], [0], 0)
    with pytest.raises(ValueError, match="train_rows is empty"):
        bag_of_words([["a"]], [], 5)
    assert not bag_of_words([[], ["a"]], [0], 5).any()


def random_events(rng, n_stays=40, per_stay=30):
    names = ("Age", "Gender", "HR", "MechVent", "Weight")
    stay = np.repeat(np.arange(n_stays, dtype=np.int32), per_stay)
    parameter = rng.integers(0, 5, stay.size).astype(np.uint8)
    value = np.where(parameter == 1, rng.integers(0, 2, stay.size), rng.normal(80, 20, stay.size))
    value = np.where(parameter == 3, 1.0, value)
    value = np.where((parameter == 4) & (rng.random(stay.size) < 0.3), -1.0, value)
    return Events(stay, rng.integers(0, 2881, stay.size).astype(np.int32), parameter, value, names, n_stays)


def slow_event_words(events, train_rows):
    """Each event as (parameter, bin, window), one at a time."""
    words = [[] for _ in range(events.n_stays)]
    learned = {}
    for code, name in enumerate(events.parameters):
        known = [
            value
            for stay, parameter, value in zip(events.stay, events.parameter, events.value, strict=True)
            if parameter == code and stay in set(train_rows) and not (name == "Weight" and value < 0)
        ]
        learned[code] = sorted(set(np.quantile(known, [0.2, 0.4, 0.6, 0.8]))) if known else []
    for stay, minute, parameter, value in zip(events.stay, events.minute, events.parameter, events.value, strict=True):
        name = events.parameters[parameter]
        if name in ("Gender", "MechVent"):
            level = value
        elif name == "Weight" and value < 0:
            level = "unknown"
        else:
            level = sum(value >= edge for edge in learned[parameter])
        window = None if name in ("Age", "Gender") else min(minute // 720, 3)
        words[stay].append((name, level, window))
    return words


def test_event_counts_equal_the_words_made_one_by_one():
    rng = np.random.default_rng(1)
    events = random_events(rng)
    train = rng.permutation(40)[:20]
    expected = slow_event_words(events, train)
    counts, _ = events.counts(train)
    for row, words in enumerate(expected):
        assert sorted(counts[[row]].data) == sorted(Counter(words).values())
    # The same words stand in the same column: the sums over all stays agree as well.
    total = counts.sum(axis=0)
    assert sorted(total[total > 0]) == sorted(Counter(word for words in expected for word in words).values())


def test_words_say_what_they_count():
    events = random_events(np.random.default_rng(0))
    _, words = word_counts(events, np.arange(40), 500)
    assert "Gender 0" in words
    assert "Weight unknown, hours 0-12" in words
    assert any(word.startswith("HR from ") and word.endswith(", hours 36-48") for word in words)
    assert len(set(words)) == len(words)


def test_nothing_is_learned_from_test_rows():
    rng = np.random.default_rng(2)
    events = random_events(rng)
    train, test = np.arange(20), np.arange(20, 40)
    before = word_counts(events, train, 30)
    in_test = events.stay >= 20
    wild = replace(
        events,
        value=np.where(in_test, events.value * 7 - 300, events.value),
        parameter=np.where(in_test, 2, events.parameter).astype(np.uint8),
    )
    after = word_counts(wild, train, 30)
    assert before[1] == after[1]
    np.testing.assert_array_equal(before[0][train], after[0][train])
    assert not np.array_equal(before[0][test], after[0][test])


def test_some_stays_are_those_stays():
    events = random_events(np.random.default_rng(3))
    rows = np.array([7, 3, 30])
    counts, words = events[rows].counts(np.arange(3))
    for position, row in enumerate(rows):
        chosen = events.stay == row
        np.testing.assert_array_equal(events[rows].value[events[rows].stay == position], events.value[chosen])
    assert counts.shape == (3, len(words))
    assert len(events[np.zeros(40, dtype=bool)]) == 0


def test_icu_set_has_a_thousand_stays_half_of_them_deaths(data_folder):
    folder = converted(data_folder, "icu2012")
    start = time.process_time()
    data = load("icu2012", data_dir=folder, download=False)
    assert time.process_time() - start < 10
    assert data.notes == ()
    assert data.classes == ("survived", "died")
    assert np.bincount(data.y).tolist() == [500, 500]
    assert len(data.documents) == 1000
    start = time.process_time()
    X = bag_of_words(data.documents, np.arange(0, 1000, 2))
    assert time.process_time() - start < 2
    assert X.shape == (1000, 500)
    assert np.all(X[::2].sum(axis=0) > 0)  # 500 words are there to be chosen
    assert np.all(X.sum(axis=1) > 0)


def test_balanced_choice_is_the_same_every_time():
    y = np.random.default_rng(0).permutation(np.repeat([0, 1], [1500, 600]))
    rows = balanced_rows(np.empty((2100, 0)), y)
    np.testing.assert_array_equal(rows, balanced_rows(np.empty((2100, 0)), y))
    assert np.bincount(y[rows]).tolist() == [500, 500]
    assert np.all(np.diff(rows) > 0)


def test_fingerprint_of_documents_is_of_all_that_counts_rest_on():
    events = random_events(np.random.default_rng(0))
    data = Dataset("icu2012", np.empty((40, 0)), np.zeros(40, dtype=np.int64), ("survived", "died"), documents=events)
    others = [
        replace(events, value=events.value + 1),
        replace(events, minute=events.minute[::-1]),
        replace(events, parameters=("Age", "Gender", "HR", "Height", "Weight")),
    ]
    found = {replace(data, documents=documents).fingerprint for documents in (events, *others)}
    assert len(found) == 4
    assert data.fingerprint in found


# Notes

HEADER = [
    "ROW_ID", "SUBJECT_ID", "HADM_ID", "CHARTDATE", "CHARTTIME", "STORETIME", "CATEGORY", "DESCRIPTION", "CGID",
    "ISERROR", "TEXT",
]  # fmt: skip
ADMISSIONS = "ROW_ID,SUBJECT_ID,HADM_ID,HOSPITAL_EXPIRE_FLAG\n1,1,100,0\n2,2,200,1\n3,3,300,0\n4,3,301,1\n"


def note(admission, text, category="Nursing", error="", number=1):
    return [str(number), "1", str(admission), "2101-01-01", "", "", category, "Report", "", error, text]


def table(*rows, header=HEADER):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return file.getvalue().encode()


@pytest.fixture
def read(tmp_path):
    def read(data, outcomes=ADMISSIONS, **parameters):
        (tmp_path / "NOTEEVENTS.csv").write_bytes(data)
        (tmp_path / "ADMISSIONS.csv").write_text(outcomes)
        return load_notes(tmp_path / "NOTEEVENTS.csv", tmp_path / "ADMISSIONS.csv", **parameters)

    return read


def words_of(data, admission):
    documents = data.documents
    row = documents.table[[documents.ids.index(str(admission))]].toarray()[0]
    return {word: int(count) for word, count in zip(documents.words, row, strict=True) if count}


def test_notes_of_an_admission_make_one_document(read):
    data = read(
        table(
            note(100, 'Patient "stable",\nno fever; FEVER gone.\n[**Name 12**] seen'),
            note(200, "fever, sepsis"),
            note(100, "sepsis ruled out"),
        )
    )
    assert data.documents.ids == ("100", "200")
    assert data.y.tolist() == [0, 1]
    assert data.classes == ("survived", "died")
    assert words_of(data, 100) == {"patient": 1, "stable": 1, "fever": 2, "gone": 1, "seen": 1, "sepsis": 1, "ruled": 1}
    assert (data.documents.report.rows, data.documents.report.used) == (3, 3)
    assert data.notes == ("3 of 3 rows used",)
    assert bag_of_words(data.documents, [0, 1], 2).tolist() == [[2.0, 1.0], [1.0, 1.0]]


def test_fingerprint_of_notes_is_of_their_words(read):
    found = [
        read(table(note(100, text), note(200, "sepsis"))).fingerprint for text in ("fever", "cough", "fever fever")
    ]
    assert len(set(found)) == 3
    assert read(table(note(100, "fever", "Radiology"), note(200, "sepsis"))).fingerprint == found[0]


def test_rows_that_cannot_be_used_are_counted_by_reason(read):
    data = read(
        table(
            note(100, "kept"),
            note("", "no admission"),
            note(999, "no outcome"),
            note(100, "an error", error="1"),
            note(200, "died at home", category="Discharge summary"),
            ["1", "2", "3"],
            [*note(100, "one field more"), "x"],
            note("200.0", "kept"),
        )
    )
    report = data.documents.report
    assert report.problems == {
        "no HADM_ID": 1,
        "no outcome": 1,
        "marked as an error": 1,
        "excluded category": 1,
        "11 fields expected": 2,
    }
    assert (report.rows, report.used) == (8, 2)
    assert report.examples["11 fields expected"] == [7, 8]
    assert "2 of 8 rows used" in data.notes[0]
    assert data.documents.words == ("kept",)


def test_discharge_summaries_can_be_asked_for(read):
    rows = table(note(100, "alive", category="Discharge summary"), note(200, "dead", category="Discharge summary"))
    assert read(rows, exclude_categories=()).documents.words == ("alive", "dead")
    with pytest.raises(DatasetError, match="no note with words for any of the 4 outcomes: 0 of 2 rows used"):
        read(rows)


@pytest.mark.parametrize("closing", ["", "\nmore text without an end\n1,000 mg given, and so on"])
def test_quote_that_is_never_closed_costs_that_row_only(read, closing):
    bad = f'2,1,100,2101-01-01,,,Nursing,Report,,,"never closed{closing}\n'.encode()
    good = [table(note(200, f"line {'good' * i}\nsecond", number=i))[len(table()) :] for i in range(1, 30)]
    data = read(table(note(100, "earlier")) + bad + b"".join(good), max_note_bytes=2**12)
    report = data.documents.report
    assert report.used == 30
    assert words_of(data, 200)["second"] == 29
    assert sum(report.problems.values()) == 1
    assert report.lines_passed_over == closing.count("\n")
    assert report.examples["unclosed or misplaced quote, or too long"] == [3]


def test_last_row_cut_in_its_text_is_counted(read):
    data = table(note(100, "entire"), note(200, "long text\nthat is cut"))
    report = read(data[:-8]).documents.report
    assert report.used == 1
    assert sum(report.problems.values()) == 1


def test_nul_bytes_and_other_encodings_are_read_as_blanks(read):
    rows = table(note(100, "caf@ noir"), note(200, "a#b zero"), note(300, "naïve")).replace(b"@", b"\xe9")
    data = read(rows.replace(b"#", b"\0"))
    assert data.documents.report.problems == {
        "bytes that are not UTF-8, read as blanks": 1,
        "NUL bytes, read as blanks": 1,
    }
    assert words_of(data, 100) == {"caf": 1, "noir": 1}
    assert words_of(data, 200) == {"zero": 1}
    assert data.documents.report.used == 3


@pytest.mark.parametrize("text", ["x" * 3_000_000, "line\n" * 300_000, '"' * 1_000_001])
def test_huge_field_is_passed_over(read, text):
    data = read(table(note(100, "earlier"), note(200, text), note(200, "later")))
    report = data.documents.report
    assert (report.rows, report.used) == (3, 2)
    assert report.examples["unclosed or misplaced quote, or too long"] == [3]
    assert words_of(data, 200) == {"later": 1}


def test_huge_field_is_read_where_it_is_allowed(read):
    data = read(table(note(100, "line\n" * 300_000)), max_note_bytes=2**23)
    assert words_of(data, 100) == {"line": 300_000}


def test_random_bytes_are_never_fatal(read):
    rng = np.random.default_rng(0)
    good = table(note(100, "good"))
    for _ in range(20):
        noise = rng.choice(np.frombuffer(b'",\n\r\0a1\xff', dtype=np.uint8), 3000).tobytes()
        assert read(good + noise).documents.report.used >= 1


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "no column HADM_ID: its first line has nothing"),
        (b"a,b,c\n1,2,3\n", "no column HADM_ID: its first line has A, B, C"),
        (b'"never closed', "no column HADM_ID"),
        (",".join(HEADER).encode(), "no note with words"),
        (gzip.compress(table(note(100, "x y z")) * 1000, mtime=0)[:-20], "cannot be read to its end"),
    ],
)
def test_file_that_is_no_table_of_notes_is_an_error(read, data, match):
    with pytest.raises(DatasetError, match=match):
        read(data)


def test_missing_file_is_an_error(read, tmp_path):
    with pytest.raises(DatasetError, match=r"nowhere\.csv cannot be read"):
        load_notes(tmp_path / "nowhere.csv", tmp_path / "nowhere.csv")


def test_outcomes_by_patient_with_own_column_names(read):
    rows = [["7", "aa bb"], ["8", "bb cc"], ["9", "cc dd"]]
    outcomes = "patient,died\n7,0\n8,0\n8,1\n9,maybe\n,1\n"
    data = read(
        table(*rows, header=["person", "body"]), outcomes,
        id_column="Person", text_column="BODY", outcome_id_column="patient", outcome_column="died",
    )  # fmt: skip
    assert data.y.tolist() == [0, 1]
    assert data.documents.report.problems["in ADMISSIONS.csv, no patient, or died is neither 0 nor 1"] == 2
    with pytest.raises(DatasetError, match="no row with HADM_ID and a HOSPITAL_EXPIRE_FLAG of 0 or 1"):
        read(table(note(100, "x")), "HADM_ID,HOSPITAL_EXPIRE_FLAG\n")


def test_compressed_notes_with_a_byte_order_mark_and_windows_lines(read):
    rows = table(note(100, "first\nsecond"), note(200, "third")).replace(b"\n", b"\r\n")
    assert read(gzip.compress(b"\xef\xbb\xbf" + rows)).documents.report.used == 2


def test_balanced_choice_of_documents(read):
    rows = table(*(note(admission, "word") for admission in (100, 200, 300, 301)))
    assert np.bincount(read(rows, balanced=2).y).tolist() == [1, 1]
    with pytest.raises(ValueError, match="balanced=6, but there are 2 survivals and 2 deaths"):
        read(rows, balanced=6)


def test_memory_is_taken_by_distinct_words_and_not_by_text(tmp_path, monkeypatch):
    monkeypatch.setattr(notes, "FLUSH_ENTRIES", 500)
    (tmp_path / "outcomes.csv").write_text(ADMISSIONS)
    words = [f"{a}{b}" for a in "bcdfghjkl" for b in ("aa", "ee", "ii", "oo")]
    peaks = []
    for repeats in (100, 1000):
        row = table(note(100, " ".join(words * 4)))[len(table()) :]
        (tmp_path / "notes.csv").write_bytes(table() + row * repeats)
        tries = []
        for _ in range(3):  # what other threads of the test run take meanwhile is counted too
            tracemalloc.start()
            data = load_notes(tmp_path / "notes.csv", tmp_path / "outcomes.csv")
            tries.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        peaks.append(min(tries))
        assert words_of(data, 100) == dict.fromkeys(words, 4 * repeats)
    assert peaks[1] < 1.2 * peaks[0]
