"""Active learning: which rows to label next, which labels look wrong, and what more labels would bring."""

from ldsu.active._learner import DEFAULT, STRATEGIES, ActiveLearner, suggest
from ldsu.active._posterior import Posterior, expected_errors, posterior_mean
from ldsu.active._review import DoubtfulLabel, Forecast, doubtful_labels, forecast

__all__ = [
    "DEFAULT",
    "STRATEGIES",
    "ActiveLearner",
    "DoubtfulLabel",
    "Forecast",
    "Posterior",
    "doubtful_labels",
    "expected_errors",
    "forecast",
    "posterior_mean",
    "suggest",
]
