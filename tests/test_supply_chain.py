"""What the library leans on: six packages and no more, all of them declared, and CI's versions pinned by hash."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = ROOT / "ci" / "requirements-py311.lock"
CORE = {"numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl", "psutil"}
# Packages whose modules have another name.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "umap": "umap-learn"}

sys.path.insert(0, str(ROOT / "ci"))
import oldest  # noqa: E402

# A process where nothing but the standard library and what the core needs can be imported fits, searches, saves, loads.
ALONE = """
import sys

forbidden = set(sys.argv[1].split(","))
there_at_the_start = set(sys.modules)


class Gate:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in forbidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Gate())
import numpy as np
from sklearn.datasets import load_iris

from ldsu import LDSU, METHODS, FewLabelKFold, LDSUClassifier, LDSUSearch, load_model, save_model

X, y = load_iris(return_X_y=True)
y[::2] = -1
for method in METHODS.values():
    method().fit(X, y).transform(X)
LDSU(solver="sparse").fit(X, y).transform(X)
LDSUSearch(param_grid={"features__strength": [1.0, 10.0]}, cv=FewLabelKFold(2)).fit(X, y)
model = LDSUClassifier().fit(X, y)
save_model(model, sys.argv[2])
assert np.array_equal(load_model(sys.argv[2]).predict_proba(X), model.predict_proba(X))
came = {name.partition(".")[0] for name in set(sys.modules) - there_at_the_start}
assert not forbidden & came, forbidden & came
print("served without", len(forbidden), "modules")
"""


def extras(*names):
    """Lines of the extras, those that they take over from each other included."""
    lines = []
    for name in names:
        for line in PROJECT["optional-dependencies"][name]:
            again = re.fullmatch(r"ldsu\[(.*)\]", line)
            lines += extras(*again[1].split(",")) if again else [line]
    return lines


def needed(names):
    """These packages and all that they need themselves, without extras of theirs, as installed here."""
    found, left = set(), [canonicalize_name(name) for name in names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            for line in metadata.requires(name) or []:
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    left.append(canonicalize_name(requirement.name))
    return found


def imports(path):
    """Top-level names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def locked():
    """Pinned version and hashes of each package of the lock."""
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    blocks = re.split(r"\n(?=\S)", "\n".join(lines))
    pins = [re.match(r"([\w.-]+)==(\S+)", block) for block in blocks]
    assert all(pins), "every entry of the lock is NAME==VERSION"
    return {
        canonicalize_name(pin[1]): (pin[2], re.findall(r"--hash=sha256:([0-9a-f]{64})(?= |$)", block, re.MULTILINE))
        for pin, block in zip(pins, blocks, strict=True)
    }


def test_the_core_declares_six_dependencies():
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == CORE


def test_the_core_serves_where_nothing_but_its_dependencies_can_be_imported(tmp_path):
    allowed = needed(CORE) | {"ldsu"}
    homes = metadata.packages_distributions()
    forbidden = {
        module for module, names in homes.items() if not {canonicalize_name(name) for name in names} & allowed
    } - set(sys.stdlib_module_names)
    assert {"click", "rich", "pyarrow", "PIL", "pandas", "safetensors", "pytest"} <= forbidden
    done = subprocess.run(
        [sys.executable, "-c", ALONE, ",".join(sorted(forbidden)), str(tmp_path / "model.ldsu")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("served without")


def test_everything_that_is_imported_is_declared():
    declared = {canonicalize_name(Requirement(line).name) for line in extras(*PROJECT["optional-dependencies"])} | CORE
    for path in sorted((ROOT / "src").rglob("*.py")):
        for module in set(imports(path)) - set(sys.stdlib_module_names) - {"ldsu"}:
            package = DISTRIBUTIONS.get(module, module)
            assert package in declared, f"{path.relative_to(ROOT)} imports {module}, which pyproject.toml does not name"


def test_every_bound_is_one_that_the_oldest_versions_are_tested_with():
    bounds = oldest.oldest()
    assert set(bounds) >= CORE
    assert bounds["numpy"] == "1.26"
    assert oldest.constraint("rich", "13") == "rich==13.0.*"
    assert oldest.constraint("umap-learn", "0.5.7") == "umap-learn==0.5.7.*"


@pytest.mark.parametrize("line", ["numpy", "numpy<2", "numpy>=1.26,<3"])
def test_a_dependency_without_an_oldest_release_is_refused(line, tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text(f'[project]\nname = "ldsu"\ndependencies = ["{line}"]\n[project.optional-dependencies]\n')
    with pytest.raises(ValueError, match="names no oldest release"):
        oldest.oldest(project)


def test_the_lock_pins_all_that_ci_installs_and_fits_the_bounds():
    pins = locked()
    for line in [*PROJECT["dependencies"], *extras("dev", "docs"), "hatchling", "editables"]:
        requirement = Requirement(line)
        version, _ = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{line} does not allow {version} of the lock. Run: ci/lock.sh"
    assert not {"ldsu", "torch"} & set(pins)


def test_hooks_before_a_commit_use_the_versions_of_the_lock():
    hooks = re.findall(r"([\w-]+)==([\w.]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert {name for name, _ in hooks} >= {"ruff", "mypy", "codespell"}
    assert [(name, version) for name, version in hooks if locked()[name][0] != version] == []


def test_the_lock_has_hashes_and_names_no_place():
    assert all(hashes for _, hashes in locked().values())
    text = LOCK.read_text()
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted| @ |\bfile:|(^|\s)/", text)
