"""Texts and images by a pretrained encoder: one more way a column becomes numbers."""

import csv

import numpy as np
import pytest

from ldsu import load_model, save_model
from ldsu.encoders import Encoder, EncoderError, register
from ldsu.encoders import _adapters as adapters
from ldsu.io import describe_model
from ldsu.tables import Table, TableError, embedded, fit_task, prepare, read_table

pa = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def made_encoders(monkeypatch, tmp_path):
    """Two made encoders, which count their calls: letters of texts, and mean colors of images."""
    monkeypatch.setenv("LDSU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(adapters, "_registered", {})
    monkeypatch.setattr(embedded, "installed_encoder", lambda kind: None)
    calls = []

    def letters(texts):
        calls.extend(texts)
        return [[text.count(letter) for letter in "abcdef"] for text in texts]

    def colors(images):
        calls.extend(images)
        return [np.asarray(image.resize((2, 2))).ravel() + 1 for image in images]

    register(Encoder("letters", "text", "1", "one", lambda: letters))
    register(Encoder("colors", "image", "1", "one", lambda: colors))
    return calls


def texts(n):
    y = np.arange(n) % 2
    words = (["abba", "baba", "abab"], ["cede", "deed", "fede"])
    return [" ".join([*RNG.choice(words[c], 4), f"x{i}"]) for i, c in enumerate(y)], y


def table_of_texts(n=40, **more):
    column, y = texts(n)
    labels = [None if i >= 8 else ["no", "yes"][c] for i, c in enumerate(y)]
    return Table(path_of("texts.csv"), pa.table({"text": column, "y": labels, **more}))


def path_of(name):
    from pathlib import Path

    return Path(name)


@pytest.fixture
def photos(tmp_path):
    """A folder of red and of blue images of different sizes, three of each labelled."""
    for i in range(24):
        color, name = (((200, 30, 30), "red"), ((30, 30, 200), "blue"))[i % 2]
        pixels = np.clip(RNG.normal(color, 25, (20 + i, 30, 3)), 0, 255).astype(np.uint8)
        path = tmp_path / "photos" / (name if i < 6 else "unlabelled") / f"{name}{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path / "photos"


def distances(X):
    D2 = ((X[:, None] - X) ** 2).sum(axis=2)
    return D2[~np.eye(len(X), dtype=bool)]


def test_a_text_column_is_encoded_by_the_named_encoder():
    task = prepare(table_of_texts(), "y", encoder="letters")
    assert task.encoder.decisions() == [("text", "text", "embedding by letters 1")]
    assert task.X.shape == (40, 6)
    model, _ = fit_task(task)
    assert (model.predict(task.table).label == np.tile(["no", "yes"], 20)).mean() == 1


def test_without_an_encoder_words_are_counted_as_before():
    for encoder in ("none", "auto"):  # none is installed
        task = prepare(table_of_texts(), "y", encoder=encoder)
        assert task.encoder.decisions() == [("text", "text", "TF-IDF of words, 100 components")]


def test_an_installed_encoder_is_used_unless_it_is_declined(monkeypatch):
    monkeypatch.setattr(
        embedded, "installed_encoder", lambda kind: adapters.find_encoder("letters") if kind == "text" else None
    )
    assert prepare(table_of_texts(), "y").encoder.decisions()[0][2] == "embedding by letters 1"
    assert prepare(table_of_texts(), "y", encoder="none").encoder.decisions()[0][2].startswith("TF-IDF")


def test_rows_are_compared_by_cosine_and_have_the_distances_of_a_standardized_column():
    X = prepare(table_of_texts(), "y", encoder="letters").X
    assert distances(X).mean() == pytest.approx(2, rel=0.06)  # 2 n / (n - 1) between rows of variance 1
    center = prepare(table_of_texts(), "y", encoder="letters").encoder.words[0].center
    twice = table_of_texts(text2=["abba", "abba abba"] * 20)
    Y = prepare(twice, "y", encoder="letters", kinds={"text": "ignored", "text2": "text"}).X
    np.testing.assert_allclose(Y[0], Y[1], atol=1e-6)  # the length of a vector means nothing
    assert center.shape == (6,)


def test_two_texts_together_weigh_as_much_as_all_other_columns():
    first, second = texts(40)[0], texts(40)[0][::-1]
    numbers = {f"n{j}": RNG.standard_normal(40) * 10**j for j in range(3)}
    task = prepare(table_of_texts(text=first, more=second, **numbers), "y", encoder="letters")
    assert task.X.shape == (40, 3 + 6 + 6)
    parts = [distances(task.X[:, columns]).mean() for columns in (slice(3), slice(3, 9), slice(9, 15))]
    np.testing.assert_allclose([parts[1] + parts[2], parts[1]], [parts[0], parts[0] / 2], rtol=1e-6)


def test_a_missing_text_is_in_the_middle():
    table = table_of_texts()
    column = table.frame["text"].to_pylist()
    column[5] = None
    X = prepare(table_of_texts(text=column), "y", encoder="letters").X
    assert not X[5].any()


def test_a_folder_of_images_is_encoded_from_its_files(photos, made_encoders):
    table = read_table(photos, pixels=False)
    task = prepare(table, None, encoder="colors")
    assert task.encoder.decisions() == [
        ("images", "files", "embedding by colors 1"),
    ]
    assert task.X.shape == (24, 12)
    assert {image.mode for image in made_encoders} == {"RGB"}
    assert {image.size[0] for image in made_encoders} == {30}  # the files, not pixels resized for a table
    with_pixels = prepare(read_table(photos), None, encoder="colors")
    np.testing.assert_array_equal(with_pixels.X, task.X)
    model, _ = fit_task(task)
    predicted = model.predict(photos).label
    assert [name.rpartition("/")[2][:3] for name in table.row_names] == [label[:3] for label in predicted]


def test_a_second_fit_and_a_prediction_do_not_call_the_encoder(photos, made_encoders):
    model, _ = fit_task(prepare(read_table(photos, pixels=False), None, encoder="colors"))
    n = len(made_encoders)
    assert n == 24
    prepare(read_table(photos, pixels=False), None, encoder="colors")
    model.predict(photos)
    assert len(made_encoders) == n


def test_a_large_photograph_is_reduced_before_the_encoder_sees_it(tmp_path, made_encoders):
    for name in ("a", "b"):
        (tmp_path / "p" / name).mkdir(parents=True)
        Image.new("L", (2000, 1000), 7).save(tmp_path / "p" / name / "1.png")
    prepare(read_table(tmp_path / "p", pixels=False), None, encoder="colors")
    assert made_encoders[0].size == (512, 256)


def test_a_damaged_photograph_is_named(photos):
    (photos / "red" / "red00.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(TableError, match=r"red00\.png cannot be read as an image"):
        prepare(read_table(photos, pixels=False), None, encoder="colors")


def test_saved_models_keep_what_names_the_encoder_and_predict_the_same(photos, tmp_path):
    for task in (
        prepare(table_of_texts(), "y", encoder="letters"),
        prepare(read_table(photos), None, encoder="colors"),
    ):
        model, _ = fit_task(task)
        save_model(model, tmp_path / "m.ldsu")
        again = load_model(tmp_path / "m.ldsu")
        assert again.encoder.decisions() == model.encoder.decisions()
        source = photos if task.table.row_names else task.table
        np.testing.assert_array_equal(again.predict(source).probability, model.predict(source).probability)
        assert describe_model(tmp_path / "m.ldsu")["class"] == "TableModel"


def test_another_encoder_of_that_name_is_refused(tmp_path):
    table = table_of_texts()
    model, _ = fit_task(prepare(table, "y", encoder="letters"))
    save_model(model, tmp_path / "m.ldsu")
    other = Encoder("letters", "text", "2", "two", lambda: lambda texts: [[1.0] * 6 for _ in texts])
    register(other)
    message = r"'letters', version 1 \(fingerprint one\), but here it is version 2 \(fingerprint two\)"
    with pytest.raises(EncoderError, match=message):
        load_model(tmp_path / "m.ldsu").predict(table)
    adapters._registered.clear()
    with pytest.raises(EncoderError, match="There is no encoder 'letters'"):
        load_model(tmp_path / "m.ldsu").predict(table)


def test_a_table_without_image_files_is_refused_by_a_model_of_images(photos):
    model, _ = fit_task(prepare(read_table(photos), None, encoder="colors"))
    with pytest.raises(TableError, match=r"texts\.csv has no image files"):
        model.predict(table_of_texts())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["letters", "letters2"], "both encoders of texts"),
        (["auto", "letters"], "cannot be combined"),
        ("unknown", "There is no encoder"),
    ],
)
def test_encoders_that_do_not_fit_together_are_refused(names, message):
    register(Encoder("letters2", "text", "1", "one", lambda: len))
    with pytest.raises(ValueError, match=message):
        prepare(table_of_texts(), "y", encoder=names)


def test_a_column_without_text_is_refused():
    table = table_of_texts(text=[None] * 40)
    with pytest.raises(TableError, match="has no text that could be encoded"):
        embedded.Embedding.learn(adapters.find_encoder("letters"), [None, ""], "column 'text'")
    with pytest.raises(TableError, match="no usable column"):
        prepare(table, "y", encoder="letters")


def test_models_with_an_encoder_are_not_exported_to_onnx(photos):
    pytest.importorskip("onnx")
    from ldsu.tables.onnx import table_to_onnx

    model, _ = fit_task(prepare(read_table(photos), None, encoder="colors"))
    with pytest.raises(ValueError, match="pretrained encoder cannot be exported"):
        table_to_onnx(model)


# The command line, from end to end


def run(*arguments):
    click_testing = pytest.importorskip("click.testing")
    from ldsu.cli import cli

    return click_testing.CliRunner().invoke(cli, [str(argument) for argument in arguments])


def write_tickets(path):
    column, y = texts(60)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "topic"])
        writer.writerows([text, "ab"[c] if i < 12 else ""] for i, (text, c) in enumerate(zip(column, y, strict=True)))


def test_commands_fit_predict_and_inspect_with_an_encoder(tmp_path, photos, made_encoders):
    write_tickets(tmp_path / "tickets.csv")
    for table, options in (
        (tmp_path / "tickets.csv", ("--label", "topic", "--encoder", "letters")),
        (photos, ("--encoder", "colors")),
    ):
        done = run("fit", table, *options, "-o", tmp_path / "m.ldsu", "--force")
        assert done.exit_code == 0, done.output
        assert "embedding by" in done.output
        shown = run("inspect", tmp_path / "m.ldsu")
        assert "embedding by" in shown.output
        n = len(made_encoders)
        predicted = run("predict", tmp_path / "m.ldsu", table, "-o", tmp_path / "labels.csv", "--force")
        assert predicted.exit_code == 0, predicted.output
        assert len(made_encoders) == n


def test_predict_says_in_a_sentence_that_the_encoder_is_another(tmp_path):
    write_tickets(tmp_path / "tickets.csv")
    assert (
        run(
            "fit", tmp_path / "tickets.csv", "--label", "topic", "--encoder", "letters", "-o", tmp_path / "m.ldsu"
        ).exit_code
        == 0
    )
    register(Encoder("letters", "text", "2", "two", lambda: len))
    done = run("predict", tmp_path / "m.ldsu", tmp_path / "tickets.csv")
    assert done.exit_code == 2
    assert "but here it is version 2" in done.output


@pytest.mark.parametrize("kind", ["text", "image"])
def test_a_packaged_encoder_serves_from_end_to_end_without_a_network(kind, tmp_path, photos, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    adapters._found.cache_clear()
    encoder = adapters.installed_encoder(kind)
    if encoder is None:
        pytest.skip(f"no packaged encoder of {kind}s is installed: pip install 'ldsu[text,photos]'")
    write_tickets(tmp_path / "tickets.csv")
    table, options = (tmp_path / "tickets.csv", ("--label", "topic")) if kind == "text" else (photos, ())
    done = run("fit", table, *options, "--encoder", encoder.name, "-o", tmp_path / "m.ldsu")
    assert done.exit_code == 0, done.output
    done = run("predict", tmp_path / "m.ldsu", table, "-o", tmp_path / "labels.csv")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "labels.csv").exists()
