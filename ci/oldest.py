"""Print pip constraints that hold every dependency at the oldest release that pyproject.toml promises to work with.

``numpy>=1.26`` becomes ``numpy==1.26.*``: the newest patch of the oldest release, which is what a careful user of old
versions has. `ci/versions.sh` installs with them.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
BOUND = re.compile(r"(?P<name>[\w-]+)>=(?P<version>[\d.]+)")
# Tools that check the code or build the site do not meet the user: the newest serve. The tests install no encoder.
TOOLS = ("dev", "docs", "gpu", "bench")
HUBS = ("sentence-transformers", "transformers", "timm", "torchvision", "open-clip", "onnxruntime")
NOT_TESTED = (*TOOLS, *HUBS, "text", "text-torch", "photos")


def oldest(project: Path = PROJECT) -> dict[str, str]:
    """The oldest release of each dependency by its name, as ``"1.26"``."""
    described = tomllib.loads(project.read_text())["project"]
    extras = described["optional-dependencies"]
    required = [
        *described["dependencies"],
        *(line for name in extras if name not in NOT_TESTED for line in extras[name]),
    ]
    bounds = {}
    for line in required:
        if line.startswith(f"{described['name']}["):
            continue
        bound = BOUND.fullmatch(line)
        if bound is None:
            raise ValueError(f"pyproject.toml asks for {line!r}, which names no oldest release. Write: NAME>=VERSION.")
        name, version = bound["name"], bound["version"]
        if bounds.setdefault(name, version) != version:
            raise ValueError(f"pyproject.toml asks for {name}>={version} and for {name}>={bounds[name]}. Keep one.")
    return bounds


def constraint(name: str, version: str) -> str:
    """One release and its patches: ``13`` is ``13.0.*``, ``1.26`` is ``1.26.*``."""
    return f"{name}=={version if '.' in version else f'{version}.0'}.*"


if __name__ == "__main__":
    for name, version in oldest().items():
        print(constraint(name, version))
