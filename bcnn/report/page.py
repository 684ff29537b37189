"""A document as one HTML page that needs nothing else: no script, no other file, no other host.

The look is in `page.html.j2`. All text is escaped; pictures are part of the page, and a browser runs nothing in them.
"""

from __future__ import annotations

import base64
from importlib.resources import files
from pathlib import Path

from ..files import written_whole
from .document import Details, Document, Gallery, Picture, Table

LONGEST_UNBROKEN = 20  # characters; a longer cell may break into lines, a shorter one, such as "83.0 ± 0.4", never does


def render_html(document: Document) -> str:
    """Return the page as HTML."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.tests |= {
        "table": lambda block: isinstance(block, Table),
        "picture": lambda block: isinstance(block, Picture),
        "gallery": lambda block: isinstance(block, Gallery),
        "details": lambda block: isinstance(block, Details),
    }
    environment.globals |= {"data_uri": data_uri, "longest_unbroken": LONGEST_UNBROKEN}
    template = environment.from_string(files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(document=document)


def write_page(document: Document, path: Path) -> None:
    """The page as a file; bytes of a file name that are no text are written out, as the rest of the page is UTF-8."""
    with written_whole(path) as temporary:
        temporary.write_text(render_html(document), encoding="utf-8", errors="backslashreplace")


def data_uri(picture: Picture) -> str:
    """Return the picture as an address that contains it."""
    return f"data:{picture.kind};base64,{base64.b64encode(picture.content).decode('ascii')}"
