"""A small server of the Hugging Face Hub's protocol on loopback: as much of it as pushing and pulling a model takes."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """What the server holds: repositories of files, and large files by checksum; tests change it at will."""

    def __init__(self, url):
        self.url = url
        self.repos: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.private: set[str] = set()
        self.token: str | None = None  # that writers have to show
        self.said_size: dict[str, int] = {}  # sizes that the listing claims instead of the true ones
        self.said_sha: dict[str, str] = {}
        self.requests: list[str] = []

    def siblings(self, repo):
        found = []
        for name, content in self.repos[repo].items():
            entry = {"rfilename": name, "size": self.said_size.get(name, len(content))}
            if name.endswith(".safetensors"):
                sha = self.said_sha.get(name, hashlib.sha256(content).hexdigest())
                entry["lfs"] = {"size": len(content), "sha256": sha, "pointerSize": 134}
            found.append(entry)
        return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_):
        pass

    def _body(self):
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(length)

    def _answer(self, content=b"", status=200, **headers):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers["Content-Type"] = "application/json"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _missing(self):
        self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

    def do_POST(self):  # noqa: C901
        path, body = unquote(urlsplit(self.path).path), self._body()
        self.hub.requests.append(f"POST {path}")
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self._answer({"error": "Invalid username or password."}, 401)
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            if repo in self.hub.repos:
                return self._answer({"error": "exists", "url": f"{self.hub.url}/{repo}"}, 409)
            self.hub.repos[repo] = {}
            if asked.get("private") or asked.get("visibility") == "private":
                self.hub.private.add(repo)
            return self._answer({"url": f"{self.hub.url}/{repo}", "id": COMMIT})
        if path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    "oid": one["oid"],
                    "size": one["size"],
                    "actions": {"upload": {"href": f"{self.hub.url}/upload/{one['oid']}"}},
                }
                for one in json.loads(body)["objects"]
            ]
            return self._answer({"transfer": "basic", "objects": objects})
        repo = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            files = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for one in json.loads(body)["files"]
            ]
            return self._answer({"files": files})
        if "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.hub.repos[repo][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    self.hub.repos[repo][value["path"]] = self.hub.large[value["oid"]]
            return self._answer({"commitUrl": f"{self.hub.url}/{repo}/commit/{COMMIT}", "commitOid": COMMIT})
        return self._answer({"tags": [], "errors": [], "warnings": []})  # such as the check of a card's header

    def do_PUT(self):
        content = self._body()
        oid = self.path.rsplit("/", 1)[-1]
        assert hashlib.sha256(content).hexdigest() == oid
        self.hub.large[oid] = content
        self._answer()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo = "/".join(parts[2:4])
            if repo not in self.hub.repos:
                return self._missing()
            return self._answer({"id": repo, "sha": COMMIT, "siblings": self.hub.siblings(repo), "tags": []})
        repo, name = "/".join(parts[:2]), "/".join(parts[4:])
        if repo not in self.hub.repos or name not in self.hub.repos[repo]:
            return self._missing()
        content = self.hub.repos[repo][name]
        about = {"X_Repo_Commit": COMMIT, "ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept_Ranges": "none"}
        return self._answer(content, **about)

    do_HEAD = do_GET  # noqa: N815


@contextmanager
def serving():
    """The hub, as long as it answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
