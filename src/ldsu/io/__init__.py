"""Models as files: saved, loaded and described without running anything that a file says.

container -> _fields -> _objects -> _schemas, the table of what can be saved -> model_files
"""

from ldsu.io.container import ModelError, is_model, read_container, read_record, reading_model, write_container
from ldsu.io.model_files import describe_model, load_model, require_storable, save_model

__all__ = [
    "ModelError",
    "describe_model",
    "is_model",
    "load_model",
    "read_container",
    "read_record",
    "reading_model",
    "require_storable",
    "save_model",
    "write_container",
]
