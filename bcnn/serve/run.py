"""From a run folder to a server that listens."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..runs.neighbours import Neighbours
from ..runs.predict import Recognizer
from .limits import Limits

MAX_CONNECTIONS = 100  # at a time; the next ones are told to come again
NEEDED = ("fastapi", "uvicorn", "python_multipart")


def check_installed() -> None:
    """Raise an ImportError that says what to install if the extra is not there."""
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise ImportError(f"serve: expected {', '.join(NEEDED)}, got no {lacking[0]}; pip install 'bcnn[serve]'.")


def prepare(
    run: Path, recognizer: Recognizer, *, host: str, names: Sequence[str], batch: int, data: str | None = None
) -> Any:
    """The application of a run, its network loaded."""
    from .app import make_app
    from .library import Library

    library = Library(run, recognizer, Neighbours(run, recognizer, data))
    return make_app(library, limits=Limits(batch=batch), host=host, names=names)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on that address; an error in words if it cannot."""
    if not host.strip():  # which would be every address of this machine
        raise ValueError("serve: expected an address to listen on, got none; leave --host out for this machine alone.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    own = socket.socket(family, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((host, port))
        own.listen()  # who reads the address may call at once, and waits until the network is ready
    except OSError as error:
        own.close()
        raise OSError(
            f"serve: expected to listen on {host}, port {port}, got: {error.strerror or error}; choose another --port "
            "(0 for a free one) or --host."
        ) from None
    return own


def serve_on(app: Any, own: socket.socket) -> None:
    """Answer requests until the process is told to end."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=10,
        limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[own])
