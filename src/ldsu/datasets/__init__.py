"""Public data sets, loaded by name: read from disk or downloaded, checked, and preprocessed."""

from ldsu._utils.files import cache_folder
from ldsu.datasets._catalogue import DATASETS, DatasetInfo
from ldsu.datasets._registry import Dataset, load
from ldsu.datasets.bags import bag_of_words
from ldsu.datasets.events import Events
from ldsu.datasets.formats import DatasetError, DatasetWarning
from ldsu.datasets.notes import Notes, NotesReport, load_notes
from ldsu.datasets.preprocessing import PREPROCESSINGS

__all__ = [
    "DATASETS",
    "PREPROCESSINGS",
    "Dataset",
    "DatasetError",
    "DatasetInfo",
    "DatasetWarning",
    "Events",
    "Notes",
    "NotesReport",
    "bag_of_words",
    "cache_folder",
    "load",
    "load_notes",
]
