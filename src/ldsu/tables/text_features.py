"""Texts and counts as points: TF-IDF weighted words, reduced by a truncated SVD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

# scikit-learn's text features are imported where they are used: few tables have texts.
if TYPE_CHECKING:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

DIRECTIONS = 100
MAX_WORDS = 20_000
# A word that occurs in a single document carries no information about others.
MIN_DOCUMENTS = 2


@dataclass(frozen=True, eq=False)
class Words:
    """Documents as unit vectors (n, r): ``(1 + log count) * idf``, projected on r directions, rows of length 1.

    Attributes
    ----------
    vocabulary : tuple of str
        The words, in the order of the rows of `directions`; empty if learned from counts.
    idf : ndarray of shape (v,)
        Rarity of each word: ``log((1 + n) / (1 + documents with it)) + 1``.
    directions : ndarray of float32, shape (v, r)
        Right singular vectors of the weighted counts.
    """

    vocabulary: tuple[str, ...]
    idf: np.ndarray
    directions: np.ndarray

    @classmethod
    def learn(cls, texts: np.ndarray) -> Words:
        """Learn words and directions from texts (n,), None if missing; empty if no word occurs in two texts."""
        from sklearn.feature_extraction.text import CountVectorizer

        vectorizer = CountVectorizer(min_df=min(MIN_DOCUMENTS, len(texts)), max_features=MAX_WORDS)
        try:
            counts = vectorizer.fit_transform([text or "" for text in texts])
        except ValueError:  # empty vocabulary
            return cls((), np.empty(0), np.empty((0, 0), dtype=np.float32))
        vocabulary = tuple(str(word) for word in vectorizer.get_feature_names_out())
        return replace(cls.learn_from_counts(counts), vocabulary=vocabulary)

    @classmethod
    def learn_from_counts(cls, counts: Any) -> Words:
        """Learn idf and directions from sparse counts (n, v)."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfTransformer

        n, v = counts.shape
        weighting = TfidfTransformer(sublinear_tf=True).fit(counts)
        rank = max(1, min(DIRECTIONS, n - 1, v - 1))
        if v == 1:
            directions = np.ones((1, 1))
        else:
            directions = TruncatedSVD(rank, random_state=0).fit(weighting.transform(counts)).components_.T
        return cls((), weighting.idf_, np.ascontiguousarray(directions, dtype=np.float32))

    def __call__(self, texts: np.ndarray) -> np.ndarray:
        """Points (n, r) of texts (n,); a text without a known word is a row of zeros."""
        return self.of_counts(self._vectorizer.transform([text or "" for text in texts]))

    def of_counts(self, counts: Any) -> np.ndarray:
        """Points (n, r) of sparse counts (n, v)."""
        from sklearn.preprocessing import normalize

        return normalize(self._weighting.transform(counts) @ self.directions.astype(np.float64))

    @property
    def n_columns(self) -> int:
        """R."""
        return int(self.directions.shape[1])

    @cached_property
    def _vectorizer(self) -> CountVectorizer:
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(vocabulary=list(self.vocabulary))

    @cached_property
    def _weighting(self) -> TfidfTransformer:
        from sklearn.feature_extraction.text import TfidfTransformer

        weighting = TfidfTransformer(sublinear_tf=True)
        weighting.idf_ = self.idf
        return weighting
