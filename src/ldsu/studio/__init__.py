"""Label many samples in a page: a map, a queue, and a model that is fitted after each answer.

samples, answers -> journal, layout -> session (a plain object) -> requests -> server or notebook, and page
"""

from ldsu.studio.answers import Answers
from ldsu.studio.journal import Journal, JournalError
from ldsu.studio.notebook import label
from ldsu.studio.samples import Samples, read_samples
from ldsu.studio.server import StudioServer
from ldsu.studio.session import Fitted, Session

__all__ = [
    "Answers",
    "Fitted",
    "Journal",
    "JournalError",
    "Samples",
    "Session",
    "StudioServer",
    "label",
    "read_samples",
]
