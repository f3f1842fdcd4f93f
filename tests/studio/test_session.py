"""The session: answers are applied at once, the model follows, and what is exported is what was given and predicted."""

import csv
import errno
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from ldsu.io import load_model
from ldsu.studio import JournalError, Samples, Session, read_samples
from ldsu.studio import layout as layouts
from ldsu.studio.session import DOUBTFUL, GIVEN, NO_CLASS, accuracy_interval
from ldsu.tables import TableError
from studio_data import make_photos, make_points, make_table

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")


@pytest.fixture(scope="module")
def points():
    return make_points()


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "table.csv")


@pytest.fixture
def photos(tmp_path):
    return make_photos(tmp_path / "photos")


@pytest.fixture
def session(points):
    with Session(Samples.of_points(points[0])) as session:
        yield session


def teach(session, names, rows=range(12)):
    for row in rows:
        session.label([row], names[row])
    assert session.wait(60)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_model_follows_the_answers(session, points):
    assert session.wait(60)
    state = session.state()
    assert (state["model"], state["labelled"], state["curve"]) == (False, 0, ())
    assert len(state["queue"]) == 60
    teach(session, points[1])
    state = session.state()
    assert not state["error"]
    assert state["labelled"] == 12
    assert [kind["labels"] for kind in state["classes"]] == [4, 4, 4]
    assert [kind["share"] for kind in state["classes"]] == pytest.approx([1 / 3] * 3)
    assert not set(state["queue"]) & set(range(12))
    n_labels, accuracy, low, high = state["curve"][-1]
    assert n_labels == 12
    assert low < accuracy < high
    assert (np.array(state["classes"])[session.fitted.codes].tolist()[5]["name"]) == points[1][5]


def test_an_answer_does_not_wait_for_a_fit(session, monkeypatch):
    assert session.wait(60)
    go = threading.Event()
    fit = session._learner.fit
    monkeypatch.setattr(session._learner, "fit", lambda X, y: (go.wait(60), fit(X, y))[1])
    for row in range(6):
        session.label([row], "abcdef"[row])
    assert session.state()["labelled"] == 6
    assert session.state()["fitting"]
    go.set()
    assert session.wait(60)
    assert len(session.model_.classifier.classes_) == 6


def test_an_answer_that_is_not_on_the_disk_is_not_acknowledged(points, tmp_path, monkeypatch):
    samples, events = Samples.of_points(points[0]), []
    with Session(samples, tmp_path / "journal") as session:
        sync, apply = os.fsync, session.answers.apply

        def full(handle):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                session.label([0], "ant")
            assert (session.labels_ == None).all()  # noqa: E711
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: (sync(handle), events.append("on the disk")))
            patch.setattr(session.answers, "apply", lambda entry: (apply(entry), events.append("applied")))
            session.label([1], "bee")
        assert events[:2] == ["on the disk", "applied"]
    with Session(samples, tmp_path / "journal") as session:
        assert session.labels_[:3].tolist() == [None, "bee", None]


def test_a_failed_fit_is_shown_and_the_next_answer_is_fitted(session, points, monkeypatch):
    teach(session, points[1])

    def fail(X, y):
        raise MemoryError("The fit needs 9 GiB.")

    with monkeypatch.context() as patch:
        patch.setattr(session._learner, "fit", fail)
        session.label([12], "ant")
        assert session.wait(60)
        assert session.state()["error"] == "The fit needs 9 GiB."
        assert session.state()["labelled"] == 13
        assert session.model_ is not None
    session.label([15], "ant")
    assert session.wait(60)
    assert session.state()["error"] == ""


def test_undo_restores_the_model_too(session, points):
    teach(session, points[1])
    before = session.fitted.codes.copy()
    session.label([20], "new")
    assert session.wait(60)
    assert session.undo() == "1 row: new"
    assert session.state()["classes"][-1]["name"] == "cat"
    session.row(20)
    assert session.wait(60)
    assert (session.fitted.codes == before).all()


def test_a_class_in_place_of_an_undone_one_does_not_get_its_predictions(session, points, monkeypatch):
    teach(session, points[1])
    session.label([50, 53, 56], "wrong")
    assert session.wait(60)
    monkeypatch.setattr(session._learner, "fit", lambda X, y: None)
    session.undo()
    session.add_class("another")
    assert 3 not in session.fitted.codes
    assert session.state()["classes"][3] == {"name": "another", "labels": 0, "share": 0}


def test_marks_leave_the_queue_and_only_skipped_rows_come_back(points):
    with Session(Samples.of_points(points[0][:9])) as session:
        teach(session, points[1], range(6))
        session.mark([6], "skip")
        session.mark([7], "unsure")
        session.mark([8], "none")
        assert session.wait(60)
        assert session.state()["queue"] == [6]
        assert (session.state()["marked"], session.row(7)["mark"]) == (3, "unsure")


def test_a_preview_counts_what_disagrees_before_anything_is_labelled(session, points):
    teach(session, points[1])
    ants = [row for row in range(12, 90) if points[1][row] == "ant"][:20]
    bees = [row for row in range(12, 90) if points[1][row] == "bee"][:3]
    found = session.preview([*ants, *bees, 1], "ant")
    assert found["predicted"] == [("ant", 20), ("bee", 4)]
    assert (found["rows"], found["disagree"], found["relabelled"]) == (24, 4, 1)
    assert found["agreeing"] == ants
    assert session.preview(ants, "unheard of")["disagree"] == 20
    assert session.state()["labelled"] == 12


def test_a_label_that_the_others_contradict_is_doubtful_until_it_is_changed(session, points):
    teach(session, points[1], range(24))
    session.label([3], "bee")
    assert session.wait(60)
    (doubtful,) = session.state()["doubtful"]
    assert (doubtful["row"], doubtful["given"], doubtful["suggested"]) == (3, "bee", "ant")
    flags = np.frombuffer(session.points(), np.uint8)[3 * 90 :]
    assert flags[3] & DOUBTFUL
    assert flags[4] & GIVEN
    session.label([3], "ant")
    assert session.state()["doubtful"] == []


def test_points_have_the_given_class_before_the_predicted_one(session, points):
    teach(session, points[1])
    session.label([30], "cat")
    session.mark([31], "none")
    codes = np.frombuffer(session.points()[: 2 * 90], "<u2")
    assert codes[30] == 2
    assert codes[31] == NO_CLASS
    assert (codes[:12] == np.arange(12) % 3).all()


def test_the_map_stays_where_it_is_when_the_model_changes(session, points):
    for _ in range(200):
        if session.map_revision > 1:
            break
        session.wait_for_news(session.revision, 0.1)
    teach(session, points[1])
    before = session.positions
    teach(session, points[1], range(12, 30))
    assert np.abs(session.positions - before).max() < 0.1
    middles = np.array([session.positions[points[1] == name].mean(axis=0) for name in ("ant", "bee", "cat")])
    nearest = np.linalg.norm(session.positions[:, None] - middles, axis=2).argmin(axis=1)
    assert np.mean(np.array(["ant", "bee", "cat"])[nearest] == points[1]) > 0.95


def test_layouts_are_finite_for_odd_samples():
    for X in (np.zeros((5, 1)), np.ones((4, 3)), np.arange(6.0)[:, None], np.eye(5) * 1e30, np.eye(5) * 1e-30):
        components = layouts.principal_components(X)
        Y = layouts.unit(layouts.neighbor_layout(components))
        assert Y.shape == (len(X), 2)
        assert np.isfinite(Y).all()
        assert np.abs(Y).max() <= 1.1


def test_alignment_finds_any_rotation_and_reflection():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(40, 2))
    turn, _ = np.linalg.qr(rng.normal(size=(2, 2)))
    assert np.allclose(layouts.aligned(Y @ turn + 3, to=Y), Y)


def test_interval_has_the_accuracy_in_it_and_shrinks_with_labels():
    widths = []
    for n_labels in (1, 10, 100, 10000):
        for accuracy in (0.0, 0.3, 0.999, 1.0):
            low, high = accuracy_interval(accuracy, n_labels)
            assert -1e-9 <= low <= accuracy + 1e-9
            assert accuracy - 1e-9 <= high <= 1 + 1e-9
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


def test_the_labels_of_a_file_are_given_at_the_start_and_the_file_is_never_written(table, tmp_path):
    content = table.read_bytes()
    with Session(read_samples(table, label="kind", kinds={"comment": "ignored"}), tmp_path / "j") as session:
        assert session.labels_.tolist()[:7] == ["ant", "bee", "cat", "ant", "bee", "cat", None]
        session.label([8], "ant")
        for name in (table, tmp_path / "." / "table.csv"):
            with pytest.raises(ValueError, match="is what is being labelled"):
                session.export("labels", name)
        assert dict(session.row(6)["columns"])["comment"] == "the new one says 6"
        assert session.find("ONE SAYS 8")[0] == 80
        assert session.find("[a-z]") == []
    assert table.read_bytes() == content


def test_the_next_day_continues_where_the_last_ended(table, tmp_path, points):
    samples = read_samples(table, label="kind", kinds={"comment": "ignored"})
    journal = tmp_path / "answers.jsonl"
    with Session(samples, journal) as session:
        teach(session, points[1], range(6, 15))
        session.label([20, 21], "dog")
        session.undo()
        session.mark([30], "unsure")
        assert session.wait(60)
        before = session.state()
    with Session(read_samples(table, label="kind", kinds={"comment": "ignored"}), journal) as session:
        assert session.wait(60)
        after = session.state()
        for name in ("classes", "labelled", "marked", "undo", "queue"):
            assert after[name] == before[name], name
        assert [point[0] for point in after["curve"]] == [point[0] for point in before["curve"]]
        assert session.undo() == "1 row: unsure"


def test_a_journal_of_changed_data_is_refused(table, tmp_path):
    journal = tmp_path / "answers.jsonl"
    with Session(read_samples(table, label="kind"), journal) as session:
        session.label([9], "ant")
    table.write_text(table.read_text().replace("the new one says 30", "the new one says 31"))
    with pytest.raises(JournalError, match="other data"):
        Session(read_samples(table, label="kind"), journal)


@pytest.mark.parametrize("line", ['{"do":"label","rows":[99],"class":"a"}', '{"do":"fly"}', "{}", '{"do":"label"}'])
def test_a_journal_with_an_impossible_entry_is_refused_with_its_line(table, tmp_path, line):
    journal = tmp_path / "answers.jsonl"
    with Session(read_samples(table, label="kind"), journal) as session:
        session.label([9], "ant")
        assert session.wait(60)
    with journal.open("a") as file:
        file.write(f"{line}\n{line}\n")
    with pytest.raises(JournalError, match=r"answers.jsonl, line \d"):
        Session(read_samples(table, label="kind"), journal)


def test_exported_labels_keep_given_and_predicted_ones_apart(table, tmp_path, points):
    with Session(read_samples(table, label="kind", kinds={"comment": "ignored"})) as session:
        session.label([8], "bee")  # a cat
        session.mark([9], "unsure")
        path = session.export("labels", tmp_path / "out.csv")
        rows = rows_of(path)
        assert len(rows) == 90
        assert [row["given"] for row in rows[:10]] == ["ant", "bee", "cat", "ant", "bee", "cat", "", "", "bee", ""]
        assert rows[9]["mark"] == "unsure"
        classes = np.array(session.answers.classes)
        assert [row["predicted"] for row in rows] == classes[session.fitted.codes].tolist()
        assert [float(row["probability"]) for row in rows] == session.fitted.probability.round(6).tolist()
        assert (rows[7]["comment"], rows[7]["kind"]) == (session.row(7)["columns"][3][1], "")


def test_exported_predictions_equal_those_of_ldsu_predict_with_the_exported_model(table, tmp_path):
    with Session(read_samples(table, label="kind", kinds={"comment": "ignored"})) as session:
        session.label([9, 12, 15], "ant")
        model = session.export("model", tmp_path / "m.ldsu")
        ours = session.export("predictions", tmp_path / "ours.csv")
        about = load_model(model).about
        assert about["labelled"] == {"ant": 5, "bee": 2, "cat": 2}
    command = [sys.executable, "-m", "ldsu", "predict", model, table, "-o", tmp_path / "theirs.csv", "--quiet"]
    subprocess.run(command, check=True, timeout=120)
    assert ours.read_bytes() == (tmp_path / "theirs.csv").read_bytes()


def test_without_a_model_only_labels_are_exported(session, tmp_path):
    session.label([0], "ant")
    for what in ("model", "predictions"):
        with pytest.raises(ValueError, match="no model yet"):
            session.export(what, tmp_path / what)
    rows = rows_of(session.export("labels", tmp_path / "labels.csv"))
    assert [(row["given"], row["predicted"], row["probability"]) for row in rows[:2]] == [("ant", "", ""), ("", "", "")]


def test_labels_of_others_merge_from_a_journal_and_from_an_exported_table(table, tmp_path):
    def reading():
        return read_samples(table, label="kind", kinds={"comment": "ignored"})

    with Session(reading(), tmp_path / "anna.jsonl") as anna:
        anna.label([10], "bee")
        anna.label([11, 12], "ant")
        anna.export("labels", tmp_path / "anna.csv")
    for name in ("anna.jsonl", "anna.csv"):
        with Session(reading()) as ben:
            ben.label([11], "cat")
            ben.label([12], "ant")
            counts = ben.merge(tmp_path / name)
            # A journal has what a person did; a table all labels, those of the file too.
            assert counts == {"added": 1, "agreeing": 1 if name == "anna.jsonl" else 7, "conflicts": 1}
            assert ben.row(11)["conflicts"] == [(name, "ant")]
            assert ben.state()["conflicts"] == [{"row": 11, "given": "cat", "others": [(name, "ant")]}]
            assert ben.labels_[[10, 11, 12]].tolist() == ["bee", "cat", "ant"]
            assert ben.merge(tmp_path / name)["added"] == 0
            ben.label([11], "ant")
            assert ben.state()["conflicts"] == []
            assert len(ben.answers.history) == 4  # the second merge had nothing to add


def test_labels_of_other_data_do_not_merge(session, table, tmp_path):
    with Session(read_samples(table, label="kind"), tmp_path / "other.jsonl") as other:
        other.label([1], "ant")
    with pytest.raises(JournalError, match="other data"):
        session.merge(tmp_path / "other.jsonl")
    (tmp_path / "short.csv").write_text("label\nant\nbee\n")
    with pytest.raises(ValueError, match="2 rows, and a column of labels"):
        session.merge(tmp_path / "short.csv")


def test_embeddings_are_labelled_with_a_table_beside_them(points, table, tmp_path):
    np.save(tmp_path / "points.npy", points[0])
    samples = read_samples(tmp_path / "points.npy", show=table, label="kind")
    with Session(samples) as session:
        assert session.labels_.tolist()[:3] == ["ant", "bee", "cat"]
        assert dict(session.row(6)["columns"])["comment"] == "the new one says 6"
        session.export("predictions", tmp_path / "out.csv")
        right = np.mean(
            [row["label"] == name for row, name in zip(rows_of(tmp_path / "out.csv"), points[1], strict=True)]
        )
        assert right > 0.9
    np.save(tmp_path / "short.npy", points[0][:50])
    with pytest.raises(TableError, match="same rows in the same order"):
        read_samples(tmp_path / "short.npy", show=table)


def test_a_folder_of_images_needs_no_label_and_shows_its_images(photos):
    samples = read_samples(photos)
    assert samples.has_images
    assert samples.image(3).startswith(b"\x89PNG")
    with Session(samples) as session:
        teach(session, ["low", "high"] * 12, range(4))
        assert session.row(23)["predicted"] == "high"
        assert session.find("07") == [7]


def test_a_text_column_is_labelled_by_its_words(tmp_path):
    path = tmp_path / "tickets.csv"
    texts = [f"please refund my money for order {i}" if i % 2 else f"the parcel never arrived {i}" for i in range(40)]
    path.write_text("\n".join(["message", *texts]))
    with Session(read_samples(path, kinds={"message": "text"})) as session:
        teach(session, ["delivery", "refund"] * 20, range(4))
        assert session.row(33)["predicted"] == "refund"
        assert session.find("refund")[-1] == 3  # labelled rows last


def test_a_folder_of_images_is_encoded_by_the_encoder_that_is_named(photos, tmp_path, monkeypatch):
    from ldsu.encoders import Encoder, register
    from ldsu.encoders import _adapters as adapters

    monkeypatch.setattr(adapters, "_registered", {})
    monkeypatch.setenv("LDSU_CACHE", str(tmp_path / "cache"))

    def halves(images):
        arrays = [np.asarray(image, dtype=float) for image in images]
        return np.array([[array[:4].mean(), array[4:].mean(), 1.0] for array in arrays])

    register(Encoder("halves", "image", "1", "one", lambda: halves))
    assert read_samples(photos, encoder="halves").X.shape == (24, 3)
    assert read_samples(photos, encoder="none").X.shape[1] == 64
