"""The pages and the JSON API of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi import Path as FromPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.formparsers import MultiPartException

from .. import __version__
from ..data.contract import shown
from ..data.preprocess import decode_image
from ..files import amount
from ..runs.predictions import TOP
from .batcher import Batcher, BusyError
from .guard import Guard
from .library import Library
from .limits import Limits
from .models import About, Class, Confusion, ErrorText, Mistake, Results
from .seer import Question, Seer, question_of

STATIC = Path(__file__).parent / "static"
FIELD = "images"  # of the form
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "properties": {FIELD: {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            }
        },
    }
}
_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorText, "description": "No form with images in the field `images`."},
    403: {"model": ErrorText, "description": "The request comes from another web page, or under a strange name."},
    408: {"model": ErrorText, "description": "The images did not arrive in time."},
    413: {"model": ErrorText, "description": "Too many images, or too many bytes."},
    422: {
        "model": Results,
        "description": "None of the images can be read, and each result says why. Or a parameter is wrong.",
    },
    429: {"model": ErrorText, "description": "Too many images wait already; try again in a second."},
    503: {"model": ErrorText, "description": "It took too long; send fewer images at a time."},
}

_WELL = "The answer."
_WRONG: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorText, "description": "There is no photograph or class of that number."},
    422: {"model": ErrorText, "description": "A parameter is not what it should be."},
}
_GONE = {**_WRONG, 410: {"model": ErrorText, "description": "The photograph is gone from the dataset."}}
ClassNumber = Annotated[int, FromPath(description="The number of a class, its `index` in /api/classes.")]
PhotoNumber = Annotated[int, FromPath(description="The number of a photograph in the dataset.")]


def make_app(
    library: Library, *, limits: Limits | None = None, host: str = "127.0.0.1", names: Sequence[str] = ()
) -> Guard:
    """The whole server, guarded.

    Args:
        library: of the run.
        limits: what is refused; None: the usual ones.
        host: the address that it listens on.
        names: other names under which it may be called.
    """
    limits = limits or Limits()
    seer = Seer(library)
    batcher: Batcher[Question, dict[str, Any]] = Batcher(seer, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(batcher.close)

    app = FastAPI(
        title=f"bcnn: {library.about()['name']}", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        description="Says what is in images. Everything is computed on the machine that serves this page.",
    )  # fmt: skip
    app.add_exception_handler(StarletteHTTPException, _in_words)
    app.add_exception_handler(RequestValidationError, _wrong_parameters)
    app.add_exception_handler(Exception, _fault)
    _add_predict(app, library, batcher, limits)
    _add_run(app, library, seer, limits)
    _add_photographs(app, library, batcher)
    app.mount("/", StaticFiles(directory=STATIC, html=True), name="static")
    return Guard(app, host=host, names=names, max_bytes=limits.request_bytes)


async def _in_words(_: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    return JSONResponse({"detail": str(error.detail)}, error.status_code, headers=error.headers)


async def _wrong_parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    said = (f"{own['loc'][-1]}: {own['msg']}, got {shown(str(own['input']))[:80]!r}." for own in error.errors())
    return JSONResponse({"detail": " ".join(said)}, 422)


async def _fault(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": f"A fault in the program, {type(error).__name__}."}, 500)


def _add_predict(app: FastAPI, library: Library, batcher: Batcher[Question, dict[str, Any]], limits: Limits) -> None:
    @app.post("/predict", response_model_exclude_none=True, response_description="At least one image was recognized.",
              openapi_extra=_BODY, responses=_REFUSED)  # fmt: skip
    async def predict(
        request: Request,
        response: Response,
        top: Annotated[int, Query(ge=1, le=1000, description="How many classes per image.")] = TOP,
        explain: Annotated[bool, Query(description="Also a picture of the regions that decided.")] = False,
        similar: Annotated[bool, Query(description="Also the most similar training photographs.")] = False,
    ) -> Results:
        """Say what is in images, with probabilities, the most probable class first.

        The results are in the order of the images. In the place of an image that cannot be read there is an error.
        """
        files = await _files(request, limits)
        asked = {"top": min(top, len(library.classes)), "explain": explain, "similar": similar}
        made = await asyncio.gather(*(asyncio.to_thread(_prepared, *file, library, limits, asked) for file in files))
        questions = [own for own in made if isinstance(own, Question)]
        answers = iter(await _ask(batcher, questions))
        results = [next(answers) if isinstance(own, Question) else own for own in made]
        response.status_code = 200 if questions else 422
        return Results.model_validate({"results": results})


async def _files(request: Request, limits: Limits) -> list[tuple[str, Any]]:
    """The names and the open files of a form; they are in memory, or in a temporary folder if they are large."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise HTTPException(400, f"Send a form (multipart/form-data) with images in the field {FIELD!r}.")
    try:
        form = await asyncio.wait_for(request.form(max_files=limits.num_images, max_fields=10), limits.time_s)
    except (TimeoutError, asyncio.TimeoutError):
        raise HTTPException(408, "The images did not arrive in time; send fewer of them at a time.") from None
    except (MultiPartException, StarletteHTTPException) as error:
        said = str(getattr(error, "detail", error))
        if getattr(error, "status_code", 400) == 413:
            raise
        if "Too many files" in said:
            raise HTTPException(413, f"A request may have {limits.num_images} images at most.") from None
        raise HTTPException(400, f"The form cannot be read: {said}") from None
    found = [(own.filename or "image", own) for own in form.getlist(FIELD) if isinstance(own, UploadFile)]
    if not found:
        raise HTTPException(400, f"Send at least one image, in the field {FIELD!r} of the form.")
    return [(name[:200], own.file) for name, own in found]


def _prepared(
    name: str, file: Any, library: Library, limits: Limits, asked: dict[str, Any]
) -> Question | dict[str, Any]:
    """The image of a file, or what is wrong with it."""
    size = file.seek(0, 2)
    file.seek(0)
    if size > limits.image_bytes:
        most = amount(limits.image_bytes)
        return {"image": name, "error": f"The file is too large: {amount(size)}, and at most {most} are allowed."}
    try:
        return question_of(decode_image(file, shown(name), limits.pixels), name, library.recognizer, **asked)
    except (OSError, ValueError, MemoryError) as error:
        return {"image": name, "error": shown(str(error))}


async def _ask(batcher: Batcher[Question, dict[str, Any]], questions: Sequence[Question]) -> list[dict[str, Any]]:
    try:
        return await batcher.do(questions) if questions else []
    except BusyError as error:
        raise HTTPException(429, f"{error} Try again in a second.", headers={"Retry-After": "1"}) from None
    except (TimeoutError, asyncio.TimeoutError):
        raise HTTPException(
            503, "It took too long; send fewer images at a time.", headers={"Retry-After": "5"}
        ) from None


def check_class(library: Library, label: int) -> None:
    """Answer with 404 if there is no class of that number."""
    if not 0 <= label < len(library.classes):
        raise HTTPException(404, f"There are {len(library.classes)} classes; there is none of the number {label}.")


def _add_run(app: FastAPI, library: Library, seer: Seer, limits: Limits) -> None:
    @app.get("/api/run", response_description=_WELL)
    def run() -> About:
        """What this is: network, dataset, accuracy, and what requests may hold."""
        bounds = {name: getattr(limits, name) for name in ("num_images", "image_bytes", "request_bytes", "pixels")}
        return About.model_validate({**library.about(), "why_no_regions": seer.why_no_regions, "limits": bounds})

    @app.get("/api/classes", response_description=_WELL)
    def classes() -> list[Class]:
        """All classes with the accuracy of each, and the numbers of some of its training photographs."""
        return [Class.model_validate(own) for own in library.all_classes()]

    @app.get("/api/confusion", response_description=_WELL)
    def confusion() -> Confusion:
        """How often test images of each class were taken for which class; pairs that never happened are left out."""
        return Confusion(classes=list(library.classes), counts=library.confusion())

    @app.get("/api/confusion/{truth}/{guess}", response_description=_WELL, responses=_WRONG)
    def cell(truth: ClassNumber, guess: ClassNumber) -> list[Mistake]:
        """The test images of one class that were taken for another, the surest first."""
        check_class(library, truth)
        check_class(library, guess)
        return [Mistake.model_validate(own) for own in library.cell(truth, guess)]


def _add_photographs(app: FastAPI, library: Library, batcher: Batcher[Question, dict[str, Any]]) -> None:
    def opened(index: int) -> bytes:
        try:
            return library.photograph(index)
        except IndexError:
            raise HTTPException(
                404, library.neighbours.why_no_photographs or "There is no photograph of that number."
            ) from None
        except OSError:
            raise HTTPException(410, "The photograph is gone from the dataset, or cannot be read.") from None

    jpeg: dict[int | str, dict[str, Any]] = {200: {"description": _WELL, "content": {"image/jpeg": {}}}}

    @app.get("/api/photographs/{index}", response_class=Response, responses={**jpeg, **_GONE})
    def photograph(index: PhotoNumber) -> Response:
        """A small copy of a photograph of the dataset, by its number there."""
        return Response(opened(index), media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    @app.get(
        "/api/photographs/{index}/regions",
        response_model_exclude_none=True,
        response_description=_WELL,
        responses=_GONE,
    )
    async def regions(
        index: PhotoNumber,
        label: Annotated[int | None, Query(description="The number of the class; none: the predicted one.")] = None,
    ) -> Results:
        """What the network says of a photograph of the dataset, and which regions decided for a class."""
        await asyncio.to_thread(opened, index)
        if label is not None:
            check_class(library, label)
        sample = library.samples[index]

        def prepared() -> Question:
            return question_of(sample.open(), sample.name, library.recognizer, explain=True, label=label)

        return Results.model_validate({"results": await _ask(batcher, [await asyncio.to_thread(prepared)])})
