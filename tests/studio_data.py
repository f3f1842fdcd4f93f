"""Small things to label."""

import csv

import numpy as np

HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
KINDS = ("ant", "bee", "cat")


def make_points():
    """Points of three classes, clearly apart, and the classes."""
    rng = np.random.default_rng(0)
    kinds = np.arange(90) % 3
    return rng.normal(size=(90, 3)) + 8 * np.eye(3)[kinds], np.array(KINDS)[kinds]


def make_table(path):
    """A CSV file with three numbers, a text, and six labels."""
    X, names = make_points()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "comment", "kind"])
        for i, (row, name) in enumerate(zip(X.round(4).tolist(), names, strict=True)):
            text = HOSTILE if i == 7 else f"the {'old' if i % 2 else 'new'} one says {i}"
            writer.writerow([*row, text, name if i < 6 else ""])
    return path


def make_photos(folder):
    """A folder of 24 gray images of two kinds, low and high in turn."""
    from PIL import Image

    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(24):
        pixels = rng.integers(0, 60, (8, 8)) + 150 * (np.arange(8) // 4 == i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:02d}.png")
    return folder


def answer_suggestion(page, names):
    """Label the suggested row by keyboard: the number of its class, or its name if it is new. Returns the row."""
    row = page.evaluate("studio.current")
    known = page.evaluate("studio.state.classes.map(({ name }) => name)")
    if names[row] in known:
        page.press(str(known.index(names[row]) + 1))
    else:
        page.press("Enter")
        page.type(names[row])
        page.press("Enter")
    return row
