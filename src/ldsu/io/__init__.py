"""Models as files: saved, loaded and described without running anything that a file says.

container -> schema -> kinds -> records -> probe -> classes, which fills the table of schemas; files
"""

import ldsu.io.classes  # noqa: F401 - fills the table of schemas
from ldsu.io.container import ModelError, is_model, read_container, read_record, write_container
from ldsu.io.model_files import describe_model, load_model, require_storable, save_model

__all__ = [
    "ModelError",
    "describe_model",
    "is_model",
    "load_model",
    "read_container",
    "read_record",
    "require_storable",
    "save_model",
    "write_container",
]
