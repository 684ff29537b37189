"""What every request passes first: whose page sent it, how large it is; and the headers of every answer.

A web page of somebody else must not use a server on this machine. Browsers say in `Origin` and `Sec-Fetch-Site` which
page asks; a name that was made to point here (DNS rebinding) shows in `Host`. So `Host` has to be this machine, and
other pages may do nothing but link to the start page.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class Guard:
    """Refuses requests of strangers and requests that are too large; puts the security headers on all answers.

    Args:
        app: what comes after it.
        host: the address that the server listens on.
        names: other names under which it may be called.
        max_bytes: of the body of a request.
    """

    def __init__(self, app: ASGIApp, *, host: str, names: Iterable[str] = (), max_bytes: int):
        self.app, self.max_bytes = app, max_bytes
        self.names = {"localhost", host.lower(), *(name.lower() for name in names)}
        self.only_here = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.decode().lower() for name, _ in message["headers"]}
                own = [(n.encode(), value.encode()) for n, value in HEADERS.items() if n not in given]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self.refusal(scope["method"], scope["path"], headers)
        if refused is not None:
            await _answer(with_headers, *refused)
            return
        await self.app(scope, self._bounded(receive), with_headers)

    def refusal(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """The code and the reason if a request is not to be answered."""
        name = host_in(headers.get("host", ""))
        if not self._knows(name):
            return 403, f"This server does not answer to the name {name[:80]!r}; allow it by bcnn serve --allow-host."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return 403, "Another web page may not use this server."
        from_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        is_link = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if from_elsewhere and not is_link:
            return 403, "Another web page may not use this server."
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,18}", length):
            return 400, "The length of the request is not a number."
        return self._too_large() if int(length) > self.max_bytes else None

    def _knows(self, name: str) -> bool:
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return is_loopback(name) or not self.only_here  # a name can be made to point here, an address cannot

    def _too_large(self) -> tuple[int, str]:
        return 413, f"A request may have {self.max_bytes / 1e6:.0f} MB at most; send fewer or smaller images."

    def _bounded(self, receive: Receive) -> Receive:
        """The body, counted: its announced length need not be true, or be there at all."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.max_bytes:
                raise HTTPException(*self._too_large())
            return message

        return counted


async def _answer(send: Any, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
               (b"connection", b"close")]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def host_in(header: str) -> str:
    """The name in a Host header, without its port.

    Example:
        >>> host_in("LocalHost:8000"), host_in("[::1]:8000"), host_in("127.0.0.1")
        ('localhost', '::1', '127.0.0.1')
    """
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
