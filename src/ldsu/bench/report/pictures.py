"""Two-dimensional plots of the features of the test half, with thumbnails of the points."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from ldsu.bench.paper import is_ldsu
from ldsu.bench.report.formatting import label_count, settings_text
from ldsu.bench.report.summary import Summary
from ldsu.bench.selection import Setting
from ldsu.bench.spec import DataSpec, MethodSpec

if TYPE_CHECKING:
    from ldsu.bench.protocol import Split
    from ldsu.bench.store import Store

POINTS = 600  # shown
FIT_ROWS = 2000  # used to fit: a picture should not take minutes
SPRITE_BYTES = 90 * 1024
SPRITE_COLUMNS = 25
VERSION = 1  # of the cached pictures: raise it to recompute them

Progress = Callable[[str], None]


def draw_pictures(summary: Summary, store: Store, progress: Progress) -> tuple[list[dict[str, Any]], list[str]]:
    """A picture for each data set: t-SNE of raw samples, of KPCA's and of LDSU's features.

    Pictures are cached in the store and recomputed only when the selected parameters change. The table ``[figures]``
    of an experiment may select the data sets: ``pictures = ["umist"]``; an empty list selects none.

    Returns
    -------
    pictures : list of dict
        For the page's script: key, title, labels, classes, y, thumbnails or None, panels.
    missing : list of str
        A sentence for each data set without a picture.
    """
    found, missing = [], []
    wanted = summary.experiment.figures.get("pictures", [spec.key for spec in summary.experiment.data])
    for spec in summary.experiment.data:
        if spec.key not in wanted or not any(key[0] == spec.key for key in summary.groups):
            continue
        try:
            found.append(_picture(summary, store, spec, progress))
        except (ImportError, MemoryError, OSError, ValueError) as error:
            missing.append(f"No picture of {spec.title}: {error}")
    return found, missing


def _picture(summary: Summary, store: Store, spec: DataSpec, progress: Progress) -> dict[str, Any]:
    labels = spec.middle_labels
    source = _Source(summary, spec, labels)
    recipe = {
        "version": VERSION,
        "labels": labels,
        "seed": summary.experiment.seed,
        "test_fraction": summary.experiment.test_fraction,
        "rows": spec.rows,
        "kernel": spec.kernel,
    }

    def kept(name: str, details: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        wanted = json.loads(json.dumps({**recipe, **details}))
        text = store.picture(spec.key, name)
        before: dict[str, Any] = json.loads(text) if text is not None else {"recipe": None}
        if before["recipe"] == wanted:
            return dict(before["picture"])
        progress(f"{spec.title}: picture of {name}")
        picture = make()
        store.add_picture(spec.key, name, json.dumps({"recipe": wanted, "picture": picture}, separators=(",", ":")))
        return picture

    text = f"{label_count(labels)} {spec.drawn}"
    picture = {"key": spec.key, "title": spec.title, "labels": text, **kept("the points", {}, source.points)}
    raw = "raw pixels" if picture["thumbnails"] else "raw features"
    panels = [{"name": raw, "caption": "no features learned", **kept("raw samples", {}, source.raw)}]
    for method, setting in _methods(summary, spec, labels):
        position = kept(method.key, {"setting": list(setting)}, partial(source.features, method, setting))
        caption = settings_text({name: value for name, value in setting.values.items() if name != "C"}, " ")
        panels.append({"name": method.key, "caption": caption, **position})
    return {**picture, "panels": panels}


def _methods(summary: Summary, spec: DataSpec, labels: int) -> list[tuple[MethodSpec, Setting]]:
    """KPCA and the best LDSU method with features, each with the setting selected by the oracle."""
    from ldsu.bench.families import FAMILIES

    chosen = [
        (method, choice)
        for method in summary.column_keys
        if (choice := summary.choices.get(("oracle", (spec.key, labels, method.key))))
    ]
    plain = [pair for pair in chosen if pair[0].family == "KPCA"]
    ldsu = [pair for pair in chosen if is_ldsu(pair[0].family) and FAMILIES[pair[0].family].features is not None]
    ldsu.sort(key=lambda pair: -pair[1].mean())
    return [(method, choice.settings[0]) for method, choice in [*plain[:1], *ldsu[:1]]]


class _Source:
    """The first split of a data set, loaded when first needed."""

    def __init__(self, summary: Summary, spec: DataSpec, labels: int) -> None:
        self.experiment, self.spec, self.labels = summary.experiment, spec, labels

    @cached_property
    def split(self) -> Split:
        from ldsu.bench.protocol import load_split

        return load_split(self.experiment, self.spec.key, 0)

    @property
    def rows(self) -> np.ndarray:
        n = self.split.y_test.shape[0]
        return np.sort(np.random.default_rng(0).choice(n, min(n, POINTS), replace=False))

    def points(self) -> dict[str, Any]:
        split, rows = self.split, self.rows
        thumbnails = None
        if split.image_shape is not None:
            thumbnails = sprite(split.X_test[rows].reshape(-1, *split.image_shape))
        return {"classes": list(split.classes), "y": split.y_test[rows].tolist(), "thumbnails": thumbnails}

    def raw(self) -> dict[str, Any]:
        return embed(self.split.X_test[self.rows])

    def features(self, method: MethodSpec, setting: Setting) -> dict[str, Any]:
        from ldsu.bench.families import FAMILIES
        from ldsu.bench.protocol import few_labels

        params = {name: value for name, value in setting.values.items() if name != "C"}
        model = FAMILIES[method.family].estimator(params, self.spec.kernel)
        y = few_labels(self.split, self.labels)
        labelled, others = np.flatnonzero(y >= 0), np.flatnonzero(y < 0)
        others = np.random.default_rng(0).permutation(others)[: max(0, FIT_ROWS - labelled.size)]
        rows = np.sort(np.concatenate([labelled, others]))
        model.fit(self.split.X_train[rows], y[rows])
        return embed(np.asarray(model.transform(self.split.X_test[self.rows])))


def embed(features: np.ndarray) -> dict[str, Any]:
    """t-SNE of points (n, r), as integers from 0 to 999: lists ``x`` and ``y``."""
    n, r = features.shape
    unit = np.sqrt(np.mean(np.sum((features - features.mean(axis=0)) ** 2, axis=1)))
    start = "pca" if min(n, r) > 1 and unit > 0 else "random"
    model = TSNE(perplexity=min(30.0, (n - 1) / 3), init=start, max_iter=500, random_state=0)
    # One thread is faster for so few points: threads synchronize at every step.
    with threadpool_limits(1):
        plane = model.fit_transform(features / (unit or 1.0))
    low, high = plane.min(axis=0), plane.max(axis=0)
    positions = np.rint(500 + 999 * (plane - (low + high) / 2) / max(float((high - low).max()), 1e-12)).astype(int)
    positions = np.clip(positions, 0, 999)
    return {"x": positions[:, 0].tolist(), "y": positions[:, 1].tolist()}


def sprite(images: np.ndarray, limit: int = SPRITE_BYTES) -> dict[str, Any]:
    """Thumbnails of images (n, height, width), each scaled to its own range, in one PNG with 16 gray levels.

    They are shrunk until the PNG fits in `limit` bytes. Returns the data URL ``src``, ``width`` and ``height`` of a
    thumbnail, and ``columns``.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Thumbnails need Pillow. Install it with: pip install 'ldsu[report]'") from error
    n, image_height, image_width = images.shape
    low = images.min(axis=(1, 2), keepdims=True)
    span = np.maximum(images.max(axis=(1, 2), keepdims=True) - low, 1e-12)
    grey = np.rint(255 * (images - low) / span).astype(np.uint8)
    for side in (32, 28, 24, 20, 16, 14, 12, 10, 8):
        shrink = min(1.0, side / max(image_height, image_width))
        width, height = max(1, round(image_width * shrink)), max(1, round(image_height * shrink))
        sheet = np.zeros((-(-n // SPRITE_COLUMNS) * height, SPRITE_COLUMNS * width), dtype=np.uint8)
        for i, image in enumerate(grey):
            top, left = i // SPRITE_COLUMNS * height, i % SPRITE_COLUMNS * width
            small = Image.fromarray(image).resize((width, height), Image.Resampling.BOX)
            sheet[top : top + height, left : left + width] = np.asarray(small) // 16
        page = Image.frombytes("P", (sheet.shape[1], sheet.shape[0]), sheet.tobytes())
        page.putpalette([17 * level for level in range(16) for _ in range(3)])
        file = io.BytesIO()
        page.save(file, "PNG", bits=4, optimize=True)
        if file.tell() <= limit:
            break
    source = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"src": source, "width": width, "height": height, "columns": SPRITE_COLUMNS}
