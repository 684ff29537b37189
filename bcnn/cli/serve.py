"""`bcnn serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options import pick
from ..runs.config import RunConfig
from .common import device as check_device
from .common import make_console
from .explain import Data
from .options import with_options
from .predict import Run


@with_options(pick(RunConfig, "device", "engine"), config=True)
def serve(
    run: Run,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Only programs on this machine can reach 127.0.0.1.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name under which the server may be called, such as that of this machine; repeatable."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="How many images go through the network together, at most.")] = 8,
    data: Data = None,
    **options: Any,
) -> None:
    """Try a trained network on a web page on this machine, with a JSON API beside it.

    Needs the extra bcnn[serve]. Nothing is loaded from other hosts, and files are written only to a temporary folder.
    """
    from ..runs.predict import open_run
    from ..serve.run import check_installed, listen, prepare, serve_on

    check_installed()
    recognizer = open_run(run, batch=batch, **{**options, "device": check_device(options["device"])})
    app = prepare(run, recognizer, host=host, names=tuple(allow_host or ()), batch=batch, data=data)
    with listen(host, port) as socket:
        address = f"[{host}]" if ":" in host else host
        make_console().print(
            f"Serving {Path(run)} on http://{address}:{socket.getsockname()[1]}/ ; Ctrl-C ends it.",
            markup=False, soft_wrap=True, highlight=False,
        )  # fmt: skip
        serve_on(app, socket)
