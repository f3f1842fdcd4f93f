"""From features to decisions and probabilities, with few labels."""

from ldsu.classifier._classifier import ISOLATED, Confidence, LDSUClassifier, TrainingRows, TrainingView
from ldsu.classifier._labelled_only import BlockScaler, LabelledOnly, LabelledScoreMixin
from ldsu.classifier._ridge import row_lengths
from ldsu.classifier._scores import MeanOf
from ldsu.classifier._shares import resolve_shares
from ldsu.classifier._supervised import ODDS, SMOOTHING, Forest, LaplacianRidge, LinearRidge, Scaling, Supervised

__all__ = [
    "ISOLATED",
    "ODDS",
    "SMOOTHING",
    "BlockScaler",
    "Confidence",
    "Forest",
    "LDSUClassifier",
    "LabelledOnly",
    "LabelledScoreMixin",
    "LaplacianRidge",
    "LinearRidge",
    "MeanOf",
    "Scaling",
    "Supervised",
    "TrainingRows",
    "TrainingView",
    "resolve_shares",
    "row_lengths",
]
