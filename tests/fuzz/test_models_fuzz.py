"""Model files changed at random, bytes or contents: refused in a sentence, or a model that answers with numbers."""

import copy
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.files import MODELS, WRITERS, check_sentence, damaged, try_file, use_model
from fuzz.profile import inputs
from fuzz.test_tables_fuzz import EDITS
from ldsu import load_model
from ldsu.io import ModelError, describe_model, read_container, write_container

FILES = sorted(MODELS)
every_model = pytest.mark.parametrize("name", FILES)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(("rbf", "auto", "LDSU", "__class__", "../x", "0", "array", "F")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
NUMBERS = (0.0, -1.0, 1e308, -1e308, 5e-324, np.nan, np.inf, 2.0**53)


class Models(NamedTuple):
    folder: Path
    contents: dict

    def __repr__(self):  # not megabytes of it in the report of a failure
        return "sound models"


@pytest.fixture(scope="module")
def sound_models(tmp_path_factory):
    """Bytes, record and arrays of every sound model, by name."""
    folder = tmp_path_factory.mktemp("models")
    contents = {}
    for name in FILES:
        WRITERS[name](folder / name)
        contents[name] = ((folder / name).read_bytes(), *read_container(folder / name))
    return Models(folder, contents)


@every_model
@given(edits=EDITS)
@inputs(default=6, full=100)
def test_a_model_file_with_changed_bytes_is_refused(name, edits, sound_models):
    folder, contents = sound_models
    data = damaged(contents[name][0], edits)
    path = folder / "damaged.ldsu"
    path.write_bytes(data)
    if data == contents[name][0]:
        load_model(path)
        return
    with pytest.raises(ModelError) as caught:
        load_model(path)
    check_sentence(caught.value)


@given(data=st.binary(max_size=300), name=st.sampled_from(FILES))
@inputs(default=15, full=300)
def test_any_bytes_are_refused_as_a_model(data, name, sound_models):
    path = sound_models.folder / "any.ldsu"
    path.write_bytes(data)
    assert try_file(path, name) is None


def places(value, path=()):
    """Every place within plain data."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(record, path, operation, value):
    *way, last = path
    for key in way:
        record = record[key]
    if operation == "remove":
        del record[last]
    elif operation == "add" and isinstance(record, dict):
        record["more"] = value
    else:
        record[last] = value


@every_model
@given(data=st.data())
@inputs(default=8, full=150)
def test_a_model_with_a_changed_record_is_refused_or_answers(name, data, sound_models):
    folder, contents = sound_models
    record, arrays = copy.deepcopy(contents[name][1]), contents[name][2]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in places(record) if path]))
        put(record, path, data.draw(st.sampled_from(("replace", "replace", "remove", "add"))), data.draw(JSON))
    accepts_or_refuses(folder, record, arrays, data.draw(st.booleans()))


@every_model
@given(data=st.data())
@inputs(default=8, full=150)
def test_a_model_with_changed_arrays_is_refused_or_answers(name, data, sound_models):
    folder, contents = sound_models
    record, arrays = contents[name][1], dict(contents[name][2])
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(sorted(arrays)))
        arrays[place] = data.draw(changed(arrays[place]))
    accepts_or_refuses(folder, record, arrays, data.draw(st.booleans()))


@st.composite
def changed(draw, array):
    """An array with other values, of another type or of another shape."""
    how = draw(st.sampled_from(("value", "value", "value", "all", "type", "shorter", "longer", "turned", "empty")))
    array = array.copy()
    if how in ("value", "all") and array.size:
        values = (
            NUMBERS if array.dtype.kind == "f" else (0, 1, -1, 10**6, 2**31 - 1) if array.dtype.kind == "i" else (0, 1)
        )
        value = np.asarray(draw(st.sampled_from(values)))
        with np.errstate(all="ignore"):
            array.flat[slice(None) if how == "all" else draw(st.integers(0, array.size - 1))] = value.astype(
                array.dtype
            )
    elif how == "type":
        with np.errstate(all="ignore"):
            array = array.astype(draw(st.sampled_from(("f8", "f4", "i8", "i4", "u1", "?"))))
    elif how == "shorter" and array.ndim:
        array = array[:-1].copy()
    elif how == "longer" and array.ndim:
        array = np.concatenate([array, array[:1]])
    elif how == "turned":
        array = np.ascontiguousarray(array.T)
    elif how == "empty":
        array = array.reshape(-1)[:0].copy()
    return array


def accepts_or_refuses(folder, record, arrays, check):
    """A file whose checksum is right and whose contents are not those of a fit."""
    path = folder / "changed.ldsu"
    write_container(path, record, arrays)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            describe_model(path)
            model = load_model(path, check=check)
    except ModelError as error:
        check_sentence(error)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        use_model(model)
