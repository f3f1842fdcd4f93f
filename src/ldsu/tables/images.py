"""Folders of images -> rows of pixels, all of one size and either all gray or all color."""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ldsu._utils.memory import require_memory
from ldsu.tables.table import Table, TableError, count, import_extra, readable

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
# Pillow supports sixty formats; only these are tried, whatever the content of a file.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
UNLABELLED = frozenset({"unlabelled", "unlabeled"})
# Images of a common size up to this are not resized; others become squares of the default side.
MAX_SIDE, DEFAULT_SIDE = 64, 32
# Encoders look at 224 to 384 pixels: larger photographs would only take memory.
MAX_PHOTO_SIDE = 512
# EXIF orientations that swap height and width.
SIDEWAYS = frozenset({5, 6, 7, 8})
ORIENTATION_TAG = 0x0112
PROGRESS_STEPS = 100
AN_IMAGE = "an image"
REPAIR = "Repair the image, or remove it from the folder."

Progress = Callable[[int, int], None]


class FileLabel(NamedTuple):
    """A line of a list of labels: its position, the image file, and the label, None if unlabelled."""

    place: str
    file: str
    label: str | None


def read_images(
    folder: Path,
    labels: Sequence[FileLabel] | None = None,
    image_size: tuple[int, ...] | None = None,
    progress: Progress | None = None,
    pixels: bool = True,
) -> Table:
    """Read a folder of images as a uint8 matrix (n, height * width [* 3]), sorted by name.

    Without `labels`, sub-folders are classes, and one named "unlabelled" contains unlabelled images; a folder without
    sub-folders has no label column. Images without one of the `labels` are unlabelled.

    Images are resized to `image_size` (height, width), gray if all of them are; (height, width, 1) and (height, width,
    3) convert all of them to gray or color. Default: their common size, up to 64 x 64, or 32 x 32.

    Without `pixels` only names and labels are read, for an encoder that opens the files itself (`read_photo`).
    """
    names, n_others = _image_files(folder)
    if not names:
        found = f"{count(n_others, 'other file')}, but no image" if n_others else "no file"
        raise TableError(
            f"The folder {folder.name} contains {found} ({', '.join(sorted(SUFFIXES))}). Use a folder of images, or a "
            "table file."
        )
    column = _folder_labels(folder, names) if labels is None else _listed_labels(folder, names, labels)
    notes = [f"Skipped {count(n_others, 'file')} other than images."] if n_others else []
    if labels is not None and column is not None and (n_missing := column.count(None)):
        notes.append(f"{_were(n_missing, 'image')} left unlabelled, without a label in the list.")

    matrix, image_shape = np.empty((len(names), 0)), None
    if pixels:
        size, color = _resolve_size(folder, names, image_size)
        matrix, image_shape, more = _read_all(folder, names, size, color, progress)
        notes += more
    frame = None
    if column is not None:
        pa = import_extra("pyarrow")
        with readable(folder, "a folder of images", "Rename its sub-folders to UTF-8 names."):
            frame = pa.table({"label": pa.array(column, pa.string())})
    return Table(
        folder,
        frame=frame,
        matrix=matrix,
        row_names=tuple(names),
        image_shape=image_shape,
        label_name=None if frame is None else "label",
        notes=tuple(notes),
    )


def _image_files(folder: Path) -> tuple[list[str], int]:
    """Image files below a folder, relative to it and sorted, and the number of other files; hidden files excluded."""
    names, n_others = [], 0

    def refuse(error: OSError) -> None:
        raise error

    with readable(folder, "a folder of images", "Use a folder that can be opened."):
        for place, folders, files in os.walk(folder, onerror=refuse):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                if name.startswith("."):
                    continue
                if Path(name).suffix.lower() in SUFFIXES:
                    names.append((Path(place) / name).relative_to(folder).as_posix())
                else:
                    n_others += 1
    return sorted(names), n_others


def _folder_labels(folder: Path, names: Sequence[str]) -> list[str | None] | None:
    """The sub-folder of each image is its class; None if no image is in a sub-folder."""
    parts = [PurePosixPath(name).parts for name in names]
    loose = [name for name, path in zip(names, parts, strict=True) if len(path) == 1]
    if len(loose) == len(names):
        return None
    if loose:
        raise TableError(
            f"The folder {folder.name} contains {count(len(loose), 'image')} outside its sub-folders, like {loose[0]}. "
            'Move them into the sub-folder of their class, or into one named "unlabelled".'
        )
    return [None if path[0].lower() in UNLABELLED else path[0] for path in parts]


def _listed_labels(folder: Path, names: Sequence[str], labels: Iterable[FileLabel]) -> list[str | None]:
    """Label of each image from a list, by path, name, or name without suffix, if unique."""
    row_of: dict[str, int] = {}
    for key in (lambda path: path.stem, lambda path: path.name, str):
        keys = [key(PurePosixPath(name)) for name in names]
        unique = {value for value, times in Counter(keys).items() if times == 1}
        row_of |= {value: row for row, value in enumerate(keys) if value in unique}
    column: list[str | None] = [None] * len(names)
    places: dict[int, str] = {}
    for place, file, label in labels:
        row = row_of.get(PurePosixPath(file.replace("\\", "/")).as_posix())
        if row is None:
            raise TableError(f"{place}: no unique image {file!r} in the folder {folder.name}. Correct the name.")
        if row in places:
            raise TableError(f"{place}: the image {file!r} already has a label from {places[row]}. Keep one of them.")
        places[row], column[row] = place, label
    return column


def _resolve_size(
    folder: Path, names: Sequence[str], image_size: tuple[int, ...] | None
) -> tuple[tuple[int, int], bool | None]:
    """Height and width of all images, and whether they are in color; None keeps the color of the images."""
    if image_size is None:
        sizes = {_size(folder / name) for name in names}
        size = sizes.pop()
        return ((DEFAULT_SIDE, DEFAULT_SIDE) if sizes or max(size) > MAX_SIDE else size), None
    if len(image_size) not in (2, 3) or min(image_size) < 1 or image_size[2:] not in ((), (1,), (3,)):
        raise ValueError(f"image_size must be (height, width) or (height, width, 1 or 3), but is {image_size}.")
    height, width, *channels = image_size
    return (height, width), (channels == [3] if channels else None)


def _size(path: Path) -> tuple[int, int]:
    """Height and width of an image as displayed, from its header."""
    with readable(path, AN_IMAGE, REPAIR), _opened(path) as image:
        width, height = image.size
        return (width, height) if image.getexif().get(ORIENTATION_TAG) in SIDEWAYS else (height, width)


def _read_all(
    folder: Path, names: Sequence[str], size: tuple[int, int], color: bool | None, progress: Progress | None
) -> tuple[np.ndarray, tuple[int, ...], list[str]]:
    """Pixels (n, height * width [* 3]), the image shape, and notes. Gray until the first color image."""
    n, (height, width) = len(names), size
    require_memory(
        # At the first color image the gray pixels are copied.
        n * height * width * (1 if color is False else 4),
        f"Reading {n:,} images of {height} x {width} pixels",
        "Use a smaller image_size, or fewer images.",
    )
    pixels = np.empty((n, height, width, 3) if color else (n, height, width), dtype=np.uint8)
    conversions: Counter[str] = Counter()
    step = max(1, n // PROGRESS_STEPS)
    for row, name in enumerate(names):
        image, done = _read_image(folder / name, size, color)
        if image.ndim == pixels.ndim:
            pixels = np.repeat(pixels[..., None], 3, axis=3)
        pixels[row] = image if image.ndim == pixels.ndim - 1 else image[..., None]
        conversions.update(done)
        if progress is not None and ((row + 1) % step == 0 or row + 1 == n):
            progress(row + 1, n)
    notes = {
        "resized": f"{_were(conversions['resized'], 'image')} resized to {height} x {width}.",
        "deep": f"{_were(conversions['deep'], 'image')} reduced from 16 to 8 bits per pixel.",
        "frames": f"Only the first frame of {count(conversions['frames'], 'image')} with several frames was read.",
    }
    return pixels.reshape(n, -1), pixels.shape[1:], [note for name, note in notes.items() if conversions[name]]


def read_photo(path: Path) -> Image:
    """An image in RGB, upright, with transparency replaced by white, and at most `MAX_PHOTO_SIDE` high and wide."""
    flat, _ = _flat_image(path)
    flat = flat.convert("RGB")
    flat.thumbnail((MAX_PHOTO_SIDE, MAX_PHOTO_SIDE))
    return flat


def _read_image(path: Path, size: tuple[int, int], color: bool | None) -> tuple[np.ndarray, dict[str, int]]:
    """Decode and resize an image.

    Returns its pixels (h, w) or (h, w, 3), and which conversions were needed.
    """
    flat, done = _flat_image(path)
    if color is not None:
        flat = flat.convert("RGB" if color else "L")
    elif flat.mode == "RGB" and _is_gray(flat):
        flat = flat.getchannel(0)
    resized = flat.size != size[::-1]
    if resized:
        flat = flat.resize(size[::-1], import_extra("PIL.Image").Resampling.LANCZOS)
    return np.asarray(flat), {"resized": resized, **done}


def _flat_image(path: Path) -> tuple[Any, dict[str, int]]:
    """An image in mode L or RGB, upright, with transparency replaced by white, and which conversions were needed."""
    ops = import_extra("PIL.ImageOps")
    with readable(path, AN_IMAGE, REPAIR), _opened(path) as image:
        several_frames = getattr(image, "n_frames", 1) > 1
        image.load()
        deep = image.mode.startswith("I")
        upright = ops.exif_transpose(image)
        if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
            pixels = "floating-point" if image.mode == "F" else "32-bit"
            raise TableError(
                f"{path.name} has {pixels} pixels with an unknown value of white. Save it with 8 or 16 bits per pixel."
            )
        flat = _eight_bits(upright) if deep else _on_white(upright)
        return flat, {"deep": deep, "frames": several_frames}


def thumbnail(path: Path, side: int = 512) -> bytes:
    """An image as a PNG file of at most `side` pixels each way, upright and on white."""
    import_extra("PIL.Image")
    with readable(path, AN_IMAGE, REPAIR), _opened(path) as image:
        image.load()
        upright = import_extra("PIL.ImageOps").exif_transpose(image)
        flat = _eight_bits(upright) if image.mode.startswith("I") else _on_white(upright)
        flat.thumbnail((side, side))
        png = io.BytesIO()
        flat.save(png, "PNG")
        return png.getvalue()


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """Open an image and read its header. Exceeding the pixel limit of Pillow is an error instead of a warning."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise TableError(f"{path.name} is not a regular file, but a pipe or a device. Remove it from the folder.")
    pillow = import_extra("PIL.Image")
    with warnings.catch_warnings():
        # Other warnings of Pillow (on EXIF data or palettes) do not affect the pixels.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        try:
            pillow.init()
            image = pillow.open(path, formats=[name for name in FORMATS if name in pillow.OPEN])
        except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
            raise TableError(
                f"{path.name} has more than {pillow.MAX_IMAGE_PIXELS:,} pixels, the limit for untrusted files. "
                "Make it smaller."
            ) from error
        except pillow.UnidentifiedImageError as error:
            raise TableError(f"{path.name} cannot be read as {AN_IMAGE}: unknown content. {REPAIR}") from error
        with image:
            yield image


def _on_white(image: Any) -> Any:
    """Convert an image with 8 bits per channel to mode L or RGB, with transparency replaced by white."""
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = import_extra("PIL.Image").new("RGBA", image.size, "white")
        white.alpha_composite(rgba)
        return white.convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")


def _eight_bits(image: Any) -> Any:
    """Reduce a gray image from 16 to 8 bits; Pillow itself would clip values at 255."""
    return import_extra("PIL.Image").fromarray((np.asarray(image) // 257).astype(np.uint8))


def _is_gray(image: Any) -> bool:
    """Whether red, green and blue are equal in each pixel."""
    difference = import_extra("PIL.ImageChops").difference
    red, green, blue = image.split()
    return difference(red, green).getbbox() is None and difference(red, blue).getbbox() is None


def _were(n: int, noun: str) -> str:
    return f"{count(n, noun)} {'was' if n == 1 else 'were'}"
