"""Within the package imports point one way, those for types alone included."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import bcnn.experiments

ROOT = Path(bcnn.experiments.__file__).parent


def module_of(parts: list[str]) -> str | None:
    """The file of a module or of a package, as its path within the package."""
    for path in (ROOT.joinpath(*parts).with_suffix(".py") if parts else ROOT, ROOT.joinpath(*parts, "__init__.py")):
        if path.is_file():
            return str(path.relative_to(ROOT))
    return None


def imported_by(path: Path) -> set[str]:
    here, found = list(path.relative_to(ROOT).parent.parts), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(here) + 1:
            base = here[: len(here) - node.level + 1] + (node.module.split(".") if node.module else [])
            found |= {module_of([*base, alias.name]) or module_of(base) for alias in node.names}
    return found - {None}


def test_imports_point_one_way():
    graph = {str(path.relative_to(ROOT)): imported_by(path) for path in ROOT.rglob("*.py")}
    assert "jobs/tuned.py" in graph["jobs/source.py"]
    assert "__init__.py" in graph["plan.py"]
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert order.index("workshop.py") < order.index("gauge.py") < order.index("jobs/tuned.py") < order.index("run.py")


def test_nothing_is_imported_for_types_alone():
    assert not [path.name for path in ROOT.rglob("*.py") if "TYPE_CHECKING" in path.read_text()]
