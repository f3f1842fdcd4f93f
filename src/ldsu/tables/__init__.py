"""Models of tables: files -> columns -> encoded points -> a model that knows the columns."""

from ldsu.tables.model import Predictions, TableModel, Task, fit_task, prepare
from ldsu.tables.readers import read_table
from ldsu.tables.table import Table, TableError

__all__ = ["Predictions", "Table", "TableError", "TableModel", "Task", "fit_task", "prepare", "read_table"]
