"""The JSON API: what it says is what `bcnn predict` says, what it is not given it says in words, and it is bounded."""

import json
import shutil
import threading

import pytest

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from bcnn.serve.app import make_app
from bcnn.serve.limits import Limits
from tests.command import run_command
from tests.serve.runs import images_of, library_of, make_run, png

FORM = "multipart/form-data"
HERE = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("p"))


@pytest.fixture(scope="module")
def library(run):
    return library_of(run)


@pytest.fixture
def client(library):
    with TestClient(make_app(library), base_url=HERE) as own:
        yield own


def send(client, *files, **options):
    sent = [("images", (name, content)) for name, content in files]
    return client.post("/predict", files=sent, **options)


def test_it_says_what_the_command_says(client, run):
    paths = images_of(run)
    answer = send(client, *((path.name, path.read_bytes()) for path in paths), params={"top": 2})
    assert answer.status_code == 200
    said = [[(own["class"], own["probability"]) for own in one["top"]] for one in answer.json()["results"]]
    done = run_command("predict", run, *paths, "--format", "json", "--top", "2")
    for one, other in zip(said, json.loads(done.stdout), strict=True):
        assert [name for name, _ in one] == [own["class"] for own in other["top"]]
        assert [p for _, p in one] == pytest.approx([own["probability"] for own in other["top"]], abs=1e-3)
    assert "overlay" not in answer.json()["results"][0]
    assert (answer.json()["results"][0]["width"], answer.json()["results"][0]["height"]) == (48, 48)


def test_regions_and_similar_photographs(client, run):
    path = images_of(run)[0]
    (result,) = send(client, ("x.png", path.read_bytes()), params={"explain": 1, "similar": 1}).json()["results"]
    assert result["overlay"].startswith("data:image/jpeg;base64,/9j/")
    assert result["explained"] == result["top"][0]["class"]
    cosines = [own["cosine"] for own in result["similar"]]
    assert cosines == sorted(cosines, reverse=True)
    assert result["similar"][0]["class"] == result["top"][0]["class"]
    photo = client.get(f"/api/photographs/{result['similar'][0]['photo']}")
    assert (photo.status_code, photo.headers["content-type"]) == (200, "image/jpeg")


def test_a_broken_image_has_an_error_in_its_place(client):
    answer = send(client, ("a.png", png()), ("b.png", b"no image"), ("c.png", png(colour="blue")))
    assert answer.status_code == 200
    first, second, third = answer.json()["results"]
    assert "top" in first
    assert "top" in third
    assert second["error"].startswith("b.png: expected an image that Pillow can read")
    assert "0x" not in second["error"]
    assert send(client, ("b.png", b"no image")).status_code == 422


@pytest.mark.parametrize(
    ("request_of", "code", "said"),
    [(lambda c: c.post("/predict", json={}), 400, "Send a form"),
     (lambda c: c.post("/predict", files=[("other", ("a.png", png()))]), 400, "at least one image"),
     (lambda c: c.post("/predict", content=b"x", headers={"content-type": FORM}), 400, "cannot be read"),
     (lambda c: send(c, *[("a.png", png())] * 17), 413, "16 images at most"),
     (lambda c: c.get("/api/photographs/100000"), 404, "no photograph of that number"),
     (lambda c: c.get("/api/photographs/-1"), 404, "no photograph of that number"),
     (lambda c: c.get("/api/photographs/0/regions?label=99"), 404, "There are 3 classes"),
     (lambda c: c.get("/api/confusion/0/99"), 404, "There are 3 classes"),
     (lambda c: c.get("/api/confusion/-1/0"), 404, "There are 3 classes"),
     (lambda c: c.post("/predict?top=0"), 422, "top: Input should be greater than or equal to 1, got '0'."),
     (lambda c: c.get("/api/photographs/a"), 422, "index: Input should be a valid integer"),
     (lambda c: c.get("/missing.html"), 404, "Not Found")],
)  # fmt: skip
def test_what_it_cannot_do_it_says(client, request_of, code, said):
    answer = request_of(client)
    assert answer.status_code == code
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/api/photographs/..%2f..%2fetc%2fpasswd", "/api/photographs/a.png", "/..%2fapp.py",
                                  "/%2e%2e/app.py", "//etc/passwd"])  # fmt: skip
def test_no_path_of_a_request_opens_a_file(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_wrong_parameters_are_refused(client):
    assert send(client, ("a.png", png()), params={"top": 0}).status_code == 422
    assert send(client, ("a.png", png()), params={"top": "many"}).status_code == 422


def test_bounds(library):
    limits = Limits(image_bytes=2000, request_bytes=20000, pixels=1000)
    with TestClient(make_app(library, limits=limits), base_url=HERE) as client:
        answer = send(client, ("a.png", png(40)))
        assert "40 x 40 pixels; at most 1000 in all are allowed" in answer.json()["results"][0]["error"]
        answer = send(client, ("a.png", png(40) + b"\0" * 3000))
        assert "at most 0.0 MB are allowed" in answer.json()["results"][0]["error"]
        assert send(client, ("a.png", png(40) + b"\0" * 30000)).status_code == 413

        def endless():
            yield b"--x\r\nContent-Disposition: form-data; name=images; filename=a\r\n\r\n"
            for _ in range(100):
                yield b"0" * 1000

        answer = client.post("/predict", content=endless(), headers={"content-type": f"{FORM}; boundary=x"})
        assert answer.status_code == 413  # although its length was not announced


def test_a_full_queue_and_a_slow_network(library, monkeypatch):
    free = threading.Event()
    with TestClient(make_app(library, limits=Limits(queue=2)), base_url=HERE) as client:
        assert send(client, *[("a.png", png())] * 3).status_code == 429
        assert send(client, *[("a.png", png())] * 2).status_code == 200  # what was refused does not count any more
    monkeypatch.setattr("bcnn.serve.seer.Seer.__call__", lambda self, questions: [free.wait(20)] * len(questions))
    with TestClient(make_app(library, limits=Limits(time_s=0.2)), base_url=HERE) as client:
        answer = send(client, ("a.png", png()))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        free.set()


@pytest.mark.parametrize(
    ("headers", "code"),
    [({"host": "127.0.0.1:8000"}, 200), ({"host": "localhost:8000"}, 200), ({"host": "[::1]:8000"}, 200),
     ({"host": "rebound.example:8000"}, 403), ({"host": "192.168.1.7:8000"}, 403), ({"host": ""}, 403),
     ({"host": "127.0.0.1.rebound.example"}, 403),
     ({"origin": "http://127.0.0.1:8000"}, 200), ({"origin": "http://evil.example"}, 403), ({"origin": "null"}, 403),
     ({"origin": "http://127.0.0.1:9000"}, 403), ({"sec-fetch-site": "cross-site"}, 403),
     ({"sec-fetch-site": "same-origin"}, 200), ({"sec-fetch-site": "none"}, 200)],
)  # fmt: skip
def test_other_pages_may_not_use_it(client, headers, code):
    assert send(client, ("a.png", png()), headers=headers).status_code == code
    assert client.get("/api/classes", headers=headers).status_code == code


def test_other_pages_may_link_to_it(client):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/api/classes", headers=link).status_code == 403
    assert client.post("/predict", headers=link).status_code == 403


def test_names_that_are_allowed(library):
    def code(host, app):
        with TestClient(app, base_url=HERE) as client:
            return client.get("/api/run", headers={"host": host}).status_code

    assert code("bird.lan:8000", make_app(library, names=["Bird.lan"])) == 200
    assert code("192.168.1.7:8000", make_app(library, host="0.0.0.0")) == 200
    assert code("rebound.example", make_app(library, host="0.0.0.0")) == 403


def test_every_answer_has_the_security_headers(client):
    for answer in (client.get("/"), client.get("/api/run"), client.get("/", headers={"host": "x"}), client.get("/no")):
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


def test_classes_confusion_and_mistakes_are_those_of_the_run(client, run):
    metrics = json.loads((run / "metrics.json").read_text())
    classes = client.get("/api/classes").json()
    assert [own["name"] for own in classes] == list(metrics["per_class"])
    for own in classes:
        assert own["accuracy"] == metrics["per_class"][own["name"]]["accuracy"]
        assert (own["num_train"], own["num_test"], len(own["examples"])) == (8, 3, 3)
    counts = client.get("/api/confusion").json()["counts"]
    assert sum(count for _, _, count in counts) == metrics["num_test"]
    right = sum(count for truth, guess, count in counts if truth == guess)
    assert right / metrics["num_test"] == pytest.approx(metrics["accuracy"])
    truth, guess, count = counts[0]
    found = client.get(f"/api/confusion/{truth}/{guess}").json()
    assert len(found) == count
    answer = client.get(f"/api/photographs/{found[0]['photo']}/regions", params={"label": guess})
    assert answer.json()["results"][0]["explained"] == classes[guess]["name"]
    assert client.get("/api/run").json()["accuracy"] == metrics["accuracy"]


def test_the_api_is_described(client):
    api = client.get("/openapi.json").json()
    assert "multipart/form-data" in api["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert {"400", "413", "422", "429", "503"} <= set(api["paths"]["/predict"]["post"]["responses"])
    assert client.get("/docs").status_code == 404  # it would load scripts from elsewhere


def test_a_run_whose_dataset_and_descriptors_are_gone(run, tmp_path):
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("descriptors"))
    (run.parent / "pictures").rename(run.parent / "away")
    try:
        library = library_of(tmp_path / "run")
    finally:
        (run.parent / "away").rename(run.parent / "pictures")
    with TestClient(make_app(library), base_url=HERE) as client:
        about = client.get("/api/run").json()
        assert "is not where it was" in about["why_no_photographs"]
        assert "are gone" in about["why_no_similar"]
        (result,) = send(client, ("a.png", png()), params={"similar": 1, "explain": 1}).json()["results"]
        assert "similar" not in result
        assert "overlay" in result
        assert "is not where it was" in client.get("/api/photographs/0").json()["detail"]
        assert client.get("/api/confusion").json()["counts"]


def test_a_model_file_alone(run, tmp_path):
    shutil.copy(run / "model.safetensors", tmp_path / "alone.safetensors")
    with TestClient(make_app(library_of(tmp_path / "alone.safetensors")), base_url=HERE) as client:
        assert client.get("/api/run").json()["name"] == "alone.safetensors"
        assert client.get("/api/confusion").json()["counts"] == []
        assert "top" in send(client, ("a.png", png())).json()["results"][0]
