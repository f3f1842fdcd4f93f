"""Encoders: one interface for every library, vectors that are kept on disk and are never another encoder's."""

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest

from ldsu._utils.stages import watching
from ldsu.encoders import (
    ADAPTERS,
    PACKAGED,
    EmbeddingCache,
    Encoder,
    EncoderError,
    embed,
    find_encoder,
    installed_encoder,
    key_of,
    register,
)
from ldsu.encoders import _adapters as adapters

TEXTS = ["a", "bb", "ccc", "bb", "dddd"]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LDSU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


class Counted:
    """A made encoder that counts the items it was called with."""

    def __init__(self, fingerprint="1", batch_size=2):
        self.seen = []
        self.encoder = Encoder("counted", "text", "1", fingerprint, lambda: self, batch_size)

    def __call__(self, texts):
        self.seen += texts
        return [[len(text), ord(text[0])] for text in texts]


def embed_texts(encoder, texts=TEXTS):
    return embed(encoder, [key_of(text.encode()) for text in texts], texts.__getitem__)


EXPECTED = np.array([[1, 97], [2, 98], [3, 99], [2, 98], [4, 100]], dtype=np.float32)


# The interface


def test_vectors_are_float32_in_the_order_of_the_items_and_equal_items_are_encoded_once():
    counted = Counted()
    vectors = embed_texts(counted.encoder)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, EXPECTED)
    assert sorted(counted.seen) == ["a", "bb", "ccc", "dddd"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0, 2.0], r"returned an array of shape \(2,\) for 2 texts"),
        ([[1.0]], r"returned an array of shape \(1, 1\) for 2 texts"),
        ([[np.nan], [1.0]], "returned NaN or infinity"),
    ],
)
def test_what_is_no_vector_per_item_is_refused(returned, message):
    with pytest.raises(EncoderError, match=message):
        Encoder("wrong", "text", "1", "1", lambda: lambda texts: returned).encode(["a", "b"])


def test_weights_are_loaded_when_they_are_first_needed_and_once():
    loaded = []

    def load():
        loaded.append(1)
        return lambda texts: [[1.0]] * len(texts)

    encoder = Encoder("lazy", "text", "1", "1", load)
    assert not loaded
    encoder.encode(["a"])
    encoder.encode(["b"])
    assert len(loaded) == 1


def test_progress_tells_the_number_and_the_time_left():
    said = []
    with watching(lambda what, seconds: said.append(what)):
        embed_texts(Counted().encoder)
    assert said[0] == "text by counted: 0 of 4"
    assert said[1].startswith("text by counted: 2 of 4, about ")


def test_no_items_have_no_vectors():
    assert embed_texts(Counted().encoder, []).shape == (0, 0)


# The cache


def test_a_second_run_does_not_call_the_encoder():
    first, second = Counted(), Counted()
    embed_texts(first.encoder)
    np.testing.assert_array_equal(embed_texts(second.encoder, TEXTS[::-1]), EXPECTED[::-1])
    assert second.seen == []


def test_another_fingerprint_has_another_cache():
    embed_texts(Counted().encoder)
    other = Counted(fingerprint="2")
    embed_texts(other.encoder)
    assert len(other.seen) == 4


def test_a_damaged_entry_is_computed_again_and_replaced():
    embed_texts(Counted().encoder)
    path = EmbeddingCache(Counted().encoder).path
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE vectors SET vector = zeroblob(8) WHERE key = ?", (key_of(b"bb"),))
    connection.close()
    again = Counted()
    np.testing.assert_array_equal(embed_texts(again.encoder), EXPECTED)
    assert again.seen == ["bb"]
    last = Counted()
    embed_texts(last.encoder)
    assert last.seen == []


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_costs_time_only(content, cache):
    path = EmbeddingCache(Counted().encoder).path
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    np.testing.assert_array_equal(embed_texts(Counted().encoder), EXPECTED)
    again = Counted()
    np.testing.assert_array_equal(embed_texts(again.encoder), EXPECTED)
    assert again.seen == []


def test_without_a_folder_to_write_to_vectors_are_kept_in_memory(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LDSU_CACHE", str(tmp_path / "file" / "below"))
    first, second = Counted(), Counted()
    np.testing.assert_array_equal(embed_texts(first.encoder), EXPECTED)
    np.testing.assert_array_equal(embed_texts(second.encoder), EXPECTED)
    assert second.seen == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_the_cache_is_readable_by_its_owner_alone():
    embed_texts(Counted().encoder)
    assert EmbeddingCache(Counted().encoder).path.stat().st_mode & 0o077 == 0


def test_several_threads_share_a_cache():
    results = []
    texts = [f"{i}-{'x' * (i % 7)}" for i in range(60)]
    threads = [threading.Thread(target=lambda: results.append(embed_texts(Counted().encoder, texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(np.array_equal(result, results[0]) for result in results)
    after = Counted()
    embed_texts(after.encoder, texts)
    assert after.seen == []


SLOW = """
import sys, time
import numpy as np
from ldsu.encoders import Encoder, _embeddings, embed, key_of
_embeddings.WRITE_SECONDS = 0

def slow(texts):
    time.sleep(float(sys.argv[1]))
    print("encoded", flush=True)
    return [[len(text), ord(text[0])] for text in texts]

texts = [chr(97 + i) * (i + 1) for i in range(20)]
encoder = Encoder("slow", "text", "1", "1", lambda: slow, 1)
vectors = embed(encoder, [key_of(text.encode()) for text in texts], texts.__getitem__)
assert np.array_equal(vectors, [[i + 1, 97 + i] for i in range(20)])
"""


def slow_run(seconds):
    return subprocess.Popen([sys.executable, "-c", SLOW, str(seconds)], stdout=subprocess.PIPE, text=True)


def test_two_processes_share_a_cache_and_a_third_computes_nothing():
    both = [slow_run(0), slow_run(0)]
    assert [run.wait(timeout=120) for run in both] == [0, 0]
    for run in both:
        run.stdout.close()
    third = slow_run(0)
    output, _ = third.communicate(timeout=120)
    assert (third.returncode, output) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_what_was_encoded_before_a_kill_is_kept():
    killed = slow_run(0.1)
    for _ in range(6):
        assert killed.stdout.readline() == "encoded\n"
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    resumed = slow_run(0)
    output, _ = resumed.communicate(timeout=120)
    assert resumed.returncode == 0
    assert 0 < output.count("encoded") <= 16


# The registry


def test_a_registered_encoder_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr(adapters, "_registered", {})
    encoder = register(Counted().encoder)
    assert find_encoder("counted") is encoder


@pytest.mark.parametrize("name", ["none", "auto", "minilm", "onnx:file", ""])
def test_names_with_a_meaning_are_not_taken(name):
    with pytest.raises(ValueError, match="cannot be named"):
        register(Encoder(name, "text", "1", "1", lambda: len))


@pytest.mark.parametrize("name", ["minilmm", "nobody:model", "onnx:", "timm"])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(EncoderError, match=r"There is no encoder .* Available: sentence-encoder, minilm, "):
        find_encoder(name)


def without(monkeypatch, *modules):
    """As if these modules were not installed."""
    find_spec, import_module = adapters.find_spec, adapters.import_module

    def imported(name):
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(name=name.partition(".")[0])
        return import_module(name)

    monkeypatch.setattr(adapters, "find_spec", lambda name: None if name in modules else find_spec(name))
    monkeypatch.setattr(adapters, "import_module", imported)
    adapters._found.cache_clear()


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_encoder_that_is_not_installed_names_its_extra(name, monkeypatch):
    without(monkeypatch, PACKAGED[name].module)
    with pytest.raises(ImportError, match=rf"pip install 'ldsu\[{PACKAGED[name].extra}\]'"):
        find_encoder(name)


@pytest.mark.parametrize("adapter", [name for name in ADAPTERS if name != "onnx"])
def test_an_adapter_without_its_library_names_its_extra(adapter, monkeypatch):
    extra = adapter.removesuffix("-text").removesuffix("-image")
    without(monkeypatch, extra.replace("-", "_"))
    with pytest.raises(ImportError, match=rf"pip install 'ldsu\[{extra}\]'"):
        find_encoder(f"{adapter}:model/weights")


def test_without_packages_no_encoder_is_installed(monkeypatch):
    without(monkeypatch, *(entry.module for entry in PACKAGED.values()))
    assert installed_encoder("text") is None
    assert installed_encoder("image") is None


# Packages that contain their weights


def packaged(name):
    adapters._found.cache_clear()
    try:
        return find_encoder(name)
    except ImportError as error:
        pytest.skip(str(error))


def test_a_file_with_other_content_is_not_read(monkeypatch, tmp_path):
    (tmp_path / "weights").write_bytes(b"other")
    called = []
    entry = adapters.Packaged(
        "text",
        "text",
        "package",
        "1",
        "package",
        (),
        {"weights": hashlib.sha256(b"mine").hexdigest()},
        "",
        called.append,
    )
    monkeypatch.setitem(adapters.PACKAGED, "made", entry)
    monkeypatch.setattr(adapters, "_package_folder", lambda entry: tmp_path)
    adapters._found.cache_clear()
    encoder = find_encoder("made")
    with pytest.raises(EncoderError, match="weights of the package package is not that of version 1"):
        encoder.encode(["a"])
    assert called == []


@pytest.mark.parametrize("name", ["minilm", "sentence-encoder"])
def test_packaged_text_encoder_puts_meaning_above_words(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    encoder = packaged(name)
    question, same, other = encoder.encode(["How old are you?", "What is your age?", "The train leaves at nine."])
    assert cosine(question, same) > cosine(question, other) + 0.2
    assert cosine(encoder.encode(["How old are you?"])[0], question) > 0.999  # the batch does not matter


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_packaged_image_encoder_knows_a_photograph_again():
    Image = pytest.importorskip("PIL.Image")
    encoder = packaged("efficientnet-lite0")
    from sklearn.datasets import load_sample_image

    flower, temple = (Image.fromarray(load_sample_image(name)) for name in ("flower.jpg", "china.jpg"))
    vectors = encoder.encode([flower, flower.resize((200, 150)), temple])
    assert vectors.shape == (3, 1280)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2]) + 0.2


# ONNX


def save_graph(path, nodes, inputs, output_rank):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * output_rank)
    graph = helper.make_graph([helper.make_node(*node[:3], **node[3]) for node in nodes], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def test_an_onnx_file_of_images_gets_pixels_in_the_size_of_its_input(tmp_path):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    Image = pytest.importorskip("PIL.Image")
    pixels = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3, 8, 6])
    save_graph(tmp_path / "mean.onnx", [("Identity", ["x"], ["y"], {})], [pixels], 4)
    encoder = find_encoder(f"onnx:{tmp_path / 'mean.onnx'}")
    assert (encoder.kind, encoder.version) == ("image", "mean.onnx")
    (vector,) = encoder.encode([Image.new("RGB", (40, 30), (255, 0, 0))])
    np.testing.assert_allclose(vector, (np.array([1, 0, 0]) - adapters.IMAGENET[0]) / adapters.IMAGENET[1], rtol=1e-5)


def test_an_onnx_file_of_texts_needs_its_tokenizer(tmp_path):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    tokens = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, [None, None])
    save_graph(tmp_path / "text.onnx", [("Cast", ["input_ids"], ["y"], {"to": 1})], [tokens], 2)
    with pytest.raises(EncoderError, match=r"there is no .*tokenizer\.json"):
        find_encoder(f"onnx:{tmp_path / 'text.onnx'}")
    with pytest.raises(EncoderError, match="There is no ONNX file"):
        find_encoder(f"onnx:{tmp_path / 'nothing.onnx'}")
