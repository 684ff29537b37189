"""The tree tells the architecture: imports point down, the public names are those listed, nothing heavy comes along."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import bcnn

ROOT = Path(bcnn.__file__).parent
LEVEL = {
    "errors": 0, "files": 0, "machine": 0, "progress": 0, "metrics": 1, "parts": 1, "linalg": 1, "options": 1,
    "data": 2, "matfun": 2, "pooling": 3, "fronts": 3, "scorers": 3, "models": 4, "descriptors": 5, "classify": 5,
    "finetune": 6, "report": 6, "runs": 7, "bench": 8, "serve": 8, "experiments": 9, "cli": 10, "__main__": 11,
}  # fmt: skip


def source_modules() -> list[str]:
    paths = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    return [str(path) for path in paths if path.parts[0] != "__init__.py"]


def layer_of(module: str) -> str:
    return Path(module).parts[0].removesuffix(".py")


def layers_imported_by(module: str) -> set[str]:
    package = ["bcnn", *Path(module).parent.parts]
    layers = set()
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = [*base, *(node.module or "").split(".")]
            names = [target, *([*target, alias.name] for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        layers |= {name[1] for name in names if name[0] == "bcnn" and len(name) > 1 and name[1] in LEVEL}
    return layers


def test_the_scan_sees_imports():
    assert layers_imported_by("matfun/compose.py") >= {"errors", "linalg"}
    assert "matfun" in layers_imported_by("cli/methods.py")


@pytest.mark.parametrize("module", source_modules())
def test_imports_point_down(module):
    here = layer_of(module)
    wrong = [t for t in layers_imported_by(module) if t != here and LEVEL[t] >= LEVEL[here]]
    assert not wrong, f"{module} imports {wrong}, which do not lie below it"


def public_names() -> list[tuple[str, str]]:
    """Modules and names, as type checkers see them."""
    imports = [node for node in ast.parse((ROOT / "__init__.pyi").read_text()).body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)  # else they are private to them
    return [(node.module, alias.name) for node in imports for alias in node.names]


@pytest.mark.parametrize(("module", "name"), public_names())
def test_public_names_are_those_that_type_checkers_see(module, name):
    found = getattr(bcnn, name)
    assert found is getattr(importlib.import_module(f"bcnn.{module}"), name)
    assert (found.__module__, found.__name__) == (f"bcnn.{module}", name)  # it is from where it is defined


def test_there_are_no_other_public_names():
    names = [name for _, name in public_names()]
    assert sorted(bcnn.__all__) == sorted([*names, "__version__"])
    assert set(dir(bcnn)) == set(names)
    with pytest.raises(AttributeError, match="bcnn attribute sqrt"):
        _ = bcnn.sqrt


def loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print('\\n'.join(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_the_command_line_does_not_wait_for_torch():
    heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "PIL"}
    assert not loaded_by("import bcnn.cli") & heavy
    assert not loaded_by("import bcnn.runs.config") & heavy
    assert not loaded_by("from tests.command import run_command as run; run('train', '--help')") & heavy


def test_the_functions_need_torch_and_nothing_heavier():
    loaded = loaded_by("import bcnn; bcnn.sqrtm")
    assert "torch" in loaded
    assert not loaded & {"scipy", "matplotlib", "rich", "typer", "torchvision"}
