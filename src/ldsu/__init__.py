"""Features from many samples and few labels.

samples -> labels, kernels -> neighbors -> graphs -> filters, spectrum, solvers -> methods -> classify, model_selection
"""

from ldsu.classify import BlockScaler, LabelledOnly, LDSUClassifier
from ldsu.labels import encode_labels, unlabelled_mask
from ldsu.methods import KDA, KLPP, KPCA, KSDA, KSELF, LDSU, METHODS, EnFS
from ldsu.model_selection import (
    FewLabelKFold,
    LabelledScorer,
    mean_average_precision,
    mean_average_precision_scorer,
)
from ldsu.spectrum import KernelBasis

__version__ = "0.1.0"

__all__ = [
    "KDA",
    "KLPP",
    "KPCA",
    "KSDA",
    "KSELF",
    "LDSU",
    "METHODS",
    "BlockScaler",
    "EnFS",
    "FewLabelKFold",
    "KernelBasis",
    "LDSUClassifier",
    "LabelledOnly",
    "LabelledScorer",
    "encode_labels",
    "mean_average_precision",
    "mean_average_precision_scorer",
    "unlabelled_mask",
]
