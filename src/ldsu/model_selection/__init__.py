"""Model selection with few labels: cross-validation, scorers, and a grid search with shared computation."""

from ldsu.model_selection._scoring import (
    FewLabelKFold,
    LabelledScorer,
    average_precisions,
    mean_average_precision,
    mean_average_precision_scorer,
)
from ldsu.model_selection._search import LDSUSearch

__all__ = [
    "FewLabelKFold",
    "LDSUSearch",
    "LabelledScorer",
    "average_precisions",
    "mean_average_precision",
    "mean_average_precision_scorer",
]
