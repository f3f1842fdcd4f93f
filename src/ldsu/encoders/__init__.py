"""Pretrained networks that turn texts and images into numbers, behind one interface."""

from ldsu.encoders._adapters import ADAPTERS, PACKAGED, find_encoder, installed_encoder, register
from ldsu.encoders._embeddings import EmbeddingCache, embed, key_of
from ldsu.encoders._interface import Encoder, EncoderError

__all__ = [
    "ADAPTERS",
    "PACKAGED",
    "EmbeddingCache",
    "Encoder",
    "EncoderError",
    "embed",
    "find_encoder",
    "installed_encoder",
    "key_of",
    "register",
]
