"""Settings of the documentation site; `make docs` builds it into build/docs and needs no network for that.

The guides are the Markdown files of this folder, and a new one appears on the site by itself. `reference/` has the
examples, the gallery and the files of the root that a reader may want; `reference/api` is written anew with every
build: the public names of `bcnn` on one page, and one page for each package, all from the docstrings.
"""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

import bcnn

DOCS = Path(__file__).parent
PACKAGES = (
    "linalg", "matfun", "pooling", "fronts", "scorers", "models", "parts", "data", "descriptors", "classify",
    "finetune", "report", "errors",
)  # fmt: skip
# Files of the root that have a page on the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
}
# What begins a line of a docstring, besides the sections that napoleon knows.
LABELS = ("Paper", "Valid", "Cost", "Raises", "Returns", "Run", "Expected", "Legend", "Example")

project = "bcnn"
author = "the authors of bcnn"
copyright = "the authors of bcnn, MIT licence"
release = version = bcnn.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # brings MathJax along, so that pages ask no other host for anything
    "sphinx_copybutton",
]
suppress_warnings = ["ref.python"]  # a name such as Head is both in its module and among the public names
default_role = "literal"  # `name` in a docstring is code, as it is in Markdown
myst_heading_anchors = 4  # the anchors that GitHub makes, such as pooling.md#the-ridge

napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = f"bcnn {version}"
html_copy_source = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def titled(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n\n"


def public_names() -> str:
    """The page of what `import bcnn` gives: functions, classes, errors and warnings, in the order of `__init__.pyi`."""
    things = {name: getattr(bcnn, name) for name in bcnn.__all__ if not name.startswith("__")}
    errors = {name for name, thing in things.items() if isinstance(thing, type) and issubclass(thing, Exception)}
    classes = {name for name, thing in things.items() if inspect.isclass(thing)} - errors
    text = titled("bcnn: the public names", "=") + ".. currentmodule:: bcnn\n\n"
    for title, kind, names in (
        ("Functions", "function", things.keys() - classes - errors),
        ("Classes", "class", classes),
        ("Errors and warnings", "exception", errors),
    ):
        text += titled(title, "-")
        members = "   :members:\n" if kind == "class" else ""
        text += "".join(f".. auto{kind}:: {name}\n{members}\n" for name in things if name in names)
    return text


def package(name: str) -> str:
    """The page of a package: its own docstring, then its modules, each with all that is not private."""
    root = importlib.import_module(name)
    found = [module.name for module in pkgutil.walk_packages(getattr(root, "__path__", []), f"{name}.")]
    text = titled(name, "=") + f".. automodule:: {name}\n   :members:\n\n"
    for module in found:
        text += titled(module, "-") + f".. automodule:: {module}\n   :members:\n   :show-inheritance:\n\n"
    return text


def write_reference(app: Any) -> None:
    folder = DOCS / "reference" / "api"
    folder.mkdir(exist_ok=True)
    pages = {"public": public_names(), **{name: package(f"bcnn.{name}") for name in PACKAGES}}
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def site_links(text: str, folder: Path, page_folder: Path) -> str:
    """Links to files of the repository that are no pages lead to the page made of them, to a download, or nowhere."""

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        path = (folder / target).resolve()
        up = "../" * len(page_folder.resolve().relative_to(DOCS).parts)
        if path.is_dir():
            return words
        for file, page in PAGES.items():
            if path == DOCS.parent / file:
                return f"[{words}]({up}{page})"
        if path.suffix == ".md" and DOCS not in path.parents:
            return f"{{download}}`{words} <{up}../{path.relative_to(DOCS.parent)}>`"
        return match.group()

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)\)", link, text)


def on_source(app: Any, docname: str, source: list[str]) -> None:
    folder = (DOCS / docname).parent
    source[0] = site_links(source[0], folder, folder)


def on_include(app: Any, path: Path, docname: str, source: list[str]) -> None:
    source[0] = site_links(source[0], DOCS.parent, (DOCS / docname).parent)


def on_member(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Without what scikit-learn adds to estimators for its own bookkeeping."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def on_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """A label that begins a line, such as "Paper:" or "Cost:", begins a paragraph, too."""
    labelled = [re.sub(rf"^({'|'.join(LABELS)}): (?=\S)", r"\n**\1:** ", line) for line in lines]
    lines[:] = "\n".join(labelled).split("\n")


def setup(app: Any) -> None:
    app.add_lexer("mermaid", TextLexer)
    app.connect("builder-inited", write_reference)
    app.connect("source-read", on_source)
    app.connect("include-read", on_include)
    app.connect("autodoc-skip-member", on_member)
    app.connect("autodoc-process-docstring", on_docstring, priority=100)  # before napoleon
