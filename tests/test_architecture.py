"""The listing shows the data flow: no import cycles, no private names of other packages, a core that stands alone."""

import ast
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import ldsu

ROOT = Path(ldsu.__file__).parent
EDGES = {"tables", "bench", "cli", "dask", "studio"}
CORE = {
    "_utils",
    "labels",
    "kernels",
    "graphs",
    "spectrum",
    "neighbors",
    "solvers",
    "methods",
    "classifier",
    "active",
    "model_selection",
}


def module_name(file):
    parts = ("ldsu", *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted(ROOT.rglob("*.py"))}


def imports(name):
    """Modules of ldsu that a module imports, anywhere in it, each with the names it takes from there."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                target = f"{node.module}.{alias.name}"
                yield (target, None) if target in MODULES else (node.module, alias.name)


def package(name):
    return name.split(".")[1] if "." in name else ""


def test_imports_have_no_cycles():
    # The package itself imports its parts when they are asked for, and they take its version.
    graph = {name: {target for target, _ in imports(name)} - {name, "ldsu"} for name in MODULES if name != "ldsu"}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a cycle
    assert graph["ldsu.classifier"]


def test_core_imports_no_tables_experiments_commands_or_cluster():
    wrong = [
        f"{name} imports {target}"
        for name in MODULES
        if package(name) in CORE
        for target, _ in imports(name)
        if package(target) in EDGES
    ]
    assert not wrong


def test_no_package_imports_private_modules_or_names_of_another():
    wrong = [
        f"{name} imports {taken or ''} from {target}"
        for name in MODULES
        for target, taken in imports(name)
        if package(target) not in (package(name), "_utils", "")
        and (any(part.startswith("_") for part in target.split(".")) or (taken or "").startswith("_"))
    ]
    assert not wrong


def test_no_two_modules_have_one_name():
    counts = Counter(file.stem.lstrip("_") for file in MODULES.values() if not file.stem.startswith("__"))
    assert [name for name, count in counts.items() if count > 1] == []
