"""Folders of images: labels from sub-folders or a list, one size and one number of channels for all."""

import os
import sys
import threading

import numpy as np
import pytest

from conftest import refusal
from ldsu.tables import TableError, read_table

pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 5), dtype=np.uint8)
COLOURED = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
SUFFIXES = ["png", "jpg", "jpeg", "bmp", "gif", "tif", "tiff", "webp", "ppm", "pgm"]
LOSSLESS = ["png", "bmp", "tif", "tiff", "ppm"]


@pytest.fixture
def folder(tmp_path):
    """A function that writes images, by their paths, and gives their folder."""

    def write(images, **options):
        for name, pixels in images.items():
            path = tmp_path / "photos" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
            image.save(path, **options)
        return tmp_path / "photos"

    return write


def labels(table):
    return table.frame.to_pydict()["label"]


def test_sub_folders_are_classes_in_the_order_of_their_names(folder):
    images = {"dog/2.png": GREY, "cat/b.png": GREY + 1, "cat/a.png": GREY + 2, "cat/deep/c.png": GREY + 3}
    table = read_table(folder(images))
    assert table.row_names == ("cat/a.png", "cat/b.png", "cat/deep/c.png", "dog/2.png")
    assert labels(table) == ["cat", "cat", "cat", "dog"]
    assert table.label_name == "label"
    assert table.place(3) == "photos/dog/2.png"
    np.testing.assert_array_equal(table.matrix.reshape(-1, 6, 5), [GREY + 2, GREY + 1, GREY + 3, GREY])


@pytest.mark.parametrize("name", ["unlabelled", "unlabeled", "Unlabelled"])
def test_unlabelled_folder_has_no_label(folder, name):
    assert labels(read_table(folder({"cat/a.png": GREY, f"{name}/b.png": GREY}))).count(None) == 1


def test_flat_folder_has_no_label_column(folder):
    table = read_table(folder({"a.png": GREY, "b.png": GREY}))
    assert table.frame is None
    assert table.label_name is None
    assert table.n_rows == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_read(folder, suffix):
    table = read_table(folder({f"a.{suffix}": GREY if suffix == "pgm" else COLOURED}))
    assert table.image_shape == ((6, 5) if suffix == "pgm" else (6, 5, 3))
    assert table.matrix.dtype == np.uint8
    if suffix in LOSSLESS:
        np.testing.assert_array_equal(table.matrix[0].reshape(6, 5, 3), COLOURED)


def test_suffix_may_be_in_capitals_and_content_of_another_image_format(folder, tmp_path):
    path = folder({"a.png": GREY}) / "a.png"
    path.rename(path.with_name("A.JPG"))
    assert read_table(tmp_path / "photos").row_names == ("A.JPG",)


def test_images_are_grey_only_if_all_are(folder):
    grey_in_rgb = np.repeat(GREY[..., None], 3, axis=2)
    path = folder({"a.png": GREY, "b.png": grey_in_rgb})
    assert read_table(path).image_shape == (6, 5)
    table = read_table(folder({"c.png": COLOURED, "d.png": GREY}))
    assert table.image_shape == (6, 5, 3)
    expected = [grey_in_rgb, grey_in_rgb, COLOURED, grey_in_rgb]
    np.testing.assert_array_equal(table.matrix.reshape(-1, 6, 5, 3), expected)


def test_image_size_decides_grey_or_colour_if_it_names_one(folder):
    path = folder({"a.png": COLOURED, "b.png": GREY})
    assert read_table(path, image_size=(6, 5, 1)).image_shape == (6, 5)
    assert read_table(path, image_size=(6, 5)).image_shape == (6, 5, 3)
    (path / "a.png").unlink()
    table = read_table(path, image_size=(6, 5, 3))
    np.testing.assert_array_equal(table.matrix.reshape(6, 5, 3), np.repeat(GREY[..., None], 3, axis=2))


@pytest.mark.parametrize(
    ("sizes", "expected", "resized"),
    [
        ([(10, 12), (10, 12)], (10, 12), 0),
        ([(64, 64)], (64, 64), 0),
        ([(65, 20)], (32, 32), 1),
        ([(10, 12), (12, 10), (32, 32)], (32, 32), 2),
    ],
)
def test_common_size_is_kept_up_to_64_and_others_become_32(folder, sizes, expected, resized):
    images = {f"{place}.png": np.full(size, 7, dtype=np.uint8) for place, size in enumerate(sizes)}
    table = read_table(folder(images))
    assert table.image_shape == expected
    assert (table.matrix == 7).all()
    notes = [note for note in table.notes if "resized to 32 x 32" in note]
    assert [note.split()[0] for note in notes] == ([str(resized)] if resized else [])


def test_resizing_averages_and_does_not_pick_single_pixels(folder):
    stripes = np.zeros((128, 128), dtype=np.uint8)
    stripes[:, ::2] = 255
    matrix = read_table(folder({"a.png": stripes})).matrix
    # Every pixel is nearly the mean of black and white; a picked one would be one of them.
    assert 100 < matrix.min() <= matrix.max() < 155


def test_image_size_overrides(folder):
    table = read_table(folder({"a.png": GREY}), image_size=(3, 4))
    assert table.image_shape == (3, 4)
    assert table.matrix.shape == (1, 12)
    for wrong in ((3,), (0, 4), (3, 4, 2)):
        with pytest.raises(ValueError, match="image_size"):
            read_table(table.source, image_size=wrong)


def test_exif_orientation_is_applied_to_pixels_and_to_the_size(folder):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees to the right
    table = read_table(folder({"a.png": GREY}, exif=exif))
    assert table.image_shape == (5, 6)
    np.testing.assert_array_equal(table.matrix.reshape(5, 6), np.rot90(GREY, -1))


def test_transparent_pixels_are_white(folder):
    pixels = np.dstack([COLOURED, np.zeros((6, 5), dtype=np.uint8)])
    pixels[0, 0, 3] = 255
    matrix = read_table(folder({"a.png": pixels})).matrix.reshape(6, 5, 3)
    np.testing.assert_array_equal(matrix[0, 0], COLOURED[0, 0])
    assert (matrix[1:] == 255).all()


def test_palettes_bits_and_transparent_greys_are_read(folder):
    black_and_white = Image.fromarray(np.array([[0, 255]], dtype=np.uint8)).convert("1")
    grey_alpha = Image.merge("LA", [Image.new("L", (2, 1), 0), Image.new("L", (2, 1), 128)])
    palette = Image.fromarray(np.array([[[1, 2, 3], [9, 8, 7]]], dtype=np.uint8)).convert("P", palette=1, colors=2)
    table = read_table(folder({"a.png": black_and_white, "b.png": grey_alpha, "c.png": palette}))
    bits, alpha, colours = table.matrix.reshape(3, 1, 2, 3)
    assert bits[0].tolist() == [[0] * 3, [255] * 3]
    assert alpha[0].tolist() == [[127] * 3] * 2
    assert sorted(colours[0].tolist()) == [[1, 2, 3], [9, 8, 7]]


def test_sixteen_bits_are_scaled_and_not_cut_off(folder):
    deep = np.array([[0, 257, 65535]], dtype=np.uint16)
    for name in ("a.png", "a.tif"):
        path = folder({name: Image.fromarray(deep)})
        table = read_table(path)
        assert table.matrix.tolist() == [[0, 1, 255]]
        assert "from 16 to 8 bits" in table.notes[0]
        (path / name).unlink()


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_pixels_of_unknown_range_are_refused(folder, dtype):
    assert "a.tif" in refusal(read_table, folder({"a.tif": Image.fromarray(np.ones((2, 2), dtype=dtype))}))


def test_first_frame_is_taken_with_a_note(folder):
    frames = [Image.fromarray(np.full((4, 4), value, dtype=np.uint8)) for value in (9, 200)]
    table = read_table(folder({"a.gif": frames[0]}, save_all=True, append_images=frames[1:]))
    assert (table.matrix == 9).all()
    assert "several frames" in table.notes[0]


def test_other_files_are_counted_and_hidden_ones_are_not(folder):
    path = folder({"cat/a.png": GREY, ".hidden/b.png": GREY, "cat/.c.png": GREY})
    (path / "cat" / "notes.txt").write_text("x")
    (path / ".DS_Store").write_text("x")
    table = read_table(path)
    assert table.row_names == ("cat/a.png",)
    assert "1 file " in table.notes[0]


def test_progress_goes_up_to_the_number_of_images(folder):
    calls = []
    read_table(folder({f"{n:03}.png": GREY for n in range(250)}), progress=lambda *call: calls.append(call))
    assert calls[-1] == (250, 250)
    assert calls == sorted(set(calls))
    assert 50 < len(calls) < 200


# ---------------------------------------------------------------- labels from a list


@pytest.mark.parametrize(
    "text",
    [
        "file,label\na.png,cat\nb.png,dog\n",
        "split,Label,Filename\ntrain,cat,a.png\ntest,dog,b.png\n",
        "which;what\na.png;cat\nsub\\b.png;dog\n",
        "id,class\na,cat\n./b,dog\n",
    ],
)
def test_list_gives_labels_by_path_by_name_or_without_suffix(folder, tmp_path, text):
    path = folder({"a.png": GREY, "sub/b.png": GREY, "z.png": GREY})
    (tmp_path / "labels.csv").write_text(text)
    table = read_table(path, labels=tmp_path / "labels.csv")
    assert dict(zip(table.row_names, labels(table), strict=True)) == {"a.png": "cat", "sub/b.png": "dog", "z.png": None}
    assert "1 image was left unlabelled" in table.notes[0]


def test_empty_label_in_the_list_is_unlabelled(folder, tmp_path):
    (tmp_path / "labels.csv").write_text("file,label\na.png,cat\nb.png,\n")
    table = read_table(folder({"a.png": GREY, "b.png": GREY}), labels=tmp_path / "labels.csv")
    assert labels(table) == ["cat", None]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("file,label\na.png,cat\nq.png,dog\n", ["labels.csv, line 3", "'q.png'"]),
        ("file,label\na.png,cat\na.png,dog\n", ["labels.csv, line 3", "'a.png'", "line 2"]),
        ("file,label\n,cat\n", ["labels.csv, line 2", "missing"]),
        ("file,label\nsame.png,cat\n", ["'same.png'"]),
        ("label\ncat\n", ["1 column", "two"]),
    ],
)
def test_what_must_be_fixed_in_a_list_is_named(folder, tmp_path, text, parts):
    (tmp_path / "labels.csv").write_text(text)
    path = folder({"a.png": GREY, "x/same.png": GREY, "y/same.png": GREY})
    message = refusal(read_table, path, labels=tmp_path / "labels.csv")
    assert all(part in message for part in parts), message


# ---------------------------------------------------------------- what cannot be read


def test_folder_without_images_is_refused(tmp_path):
    assert "no file" in refusal(read_table, tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    message = refusal(read_table, tmp_path)
    assert "1 other file" in message
    assert ".png" in message


def test_images_beside_class_folders_are_refused(folder):
    assert "loose.png" in refusal(read_table, folder({"cat/a.png": GREY, "loose.png": GREY}))


def test_link_to_nowhere_and_text_named_like_an_image_are_named(folder):
    path = folder({"cat/a.png": GREY})
    (path / "cat" / "b.png").symlink_to("nowhere.png")
    assert "b.png" in refusal(read_table, path)
    (path / "cat" / "b.png").unlink()
    (path / "cat" / "c.png").write_text("not an image")
    assert "c.png" in refusal(read_table, path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("image_size", [None, (2, 2)])
def test_pipe_and_device_named_like_images_are_refused_and_never_opened(folder, image_size):
    path = folder({"cat/a.png": GREY})
    pipe = path / "cat" / "b.png"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"",))  # ends the wait of whoever opens it after all
    writer.start()
    try:
        assert "b.png is not a regular file" in refusal(read_table, path, image_size=image_size)
        assert writer.is_alive()
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        writer.join()
        os.close(reader)
    pipe.unlink()
    pipe.symlink_to(os.devnull)
    assert "b.png is not a regular file" in refusal(read_table, path, image_size=image_size)


def test_image_of_too_many_pixels_is_refused_before_it_is_decoded(folder, monkeypatch):
    path = folder({"big.png": np.zeros((60, 50), dtype=np.uint8)})
    for limit in (2000, 1000):  # Pillow warns at the first, and refuses at the second
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        message = refusal(read_table, path)
        assert "big.png" in message
        assert f"{limit:,} pixels" in message


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "tif", "webp", "ppm"])
def test_damaged_image_is_refused_or_read(folder, suffix):
    path = folder({f"a.{suffix}": COLOURED}) / f"a.{suffix}"
    whole = path.read_bytes()
    read_table(path.parent)
    rng = np.random.default_rng(3)
    damaged = [whole[:place] for place in np.linspace(0, len(whole) - 1, 25).astype(int)]
    for place in rng.integers(0, len(whole), 40):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(flipped))
    messages = []
    for content in damaged:
        path.write_bytes(content)
        try:
            table = read_table(path.parent)
        except TableError as error:
            messages.append(str(error))
        else:
            assert table.matrix.shape == (1, np.prod(table.image_shape))
    assert len(messages) > 5
    assert all(path.name in message and "\n" not in message for message in messages)


def test_memory_is_asked_for_before_images_are_read(folder, monkeypatch):
    path = folder({"a.png": GREY})
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 20)
    with pytest.raises(MemoryError, match="Reading 1 images"):
        read_table(path)


def test_without_pillow_the_message_says_how_to_install_it(folder, monkeypatch):
    path = folder({"a.png": GREY})
    for module in [module for module in sys.modules if module.startswith("PIL.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"Install Pillow.*pip install 'ldsu\[cli\]'"):
        read_table(path)


def test_folder_that_may_not_be_opened_is_refused(folder, monkeypatch):
    path = folder({"a.png": GREY})

    def walk(top, onerror):
        onerror(PermissionError(13, "Permission denied", str(top)))
        return iter(())

    monkeypatch.setattr("os.walk", walk)
    assert "permission" in refusal(read_table, path)


def test_reading_leaves_no_file_open(folder, monkeypatch):
    opened = []
    monkeypatch.setattr("builtins.open", remember(open, opened))
    read_table(folder({"a.png": GREY, "b.tif": COLOURED}))
    assert opened
    assert all(file.closed for file in opened)


def remember(function, results):
    def call(*arguments, **options):
        results.append(function(*arguments, **options))
        return results[-1]

    return call
