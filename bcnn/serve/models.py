"""The shapes of what the JSON API answers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Shape(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class Guess(_Shape):
    """A class and how probable it is."""

    name: str = Field(alias="class")
    probability: float


class Similar(_Shape):
    """A training photograph."""

    name: str
    label: str = Field(alias="class")
    cosine: float = Field(description="How similar it is, up to 1.")
    share: float = Field(description="What it adds to the score of the class that is explained.")
    photo: int | None = Field(default=None, description="Its number for /api/photographs; none if the dataset is gone.")


class Result(_Shape):
    """What is on one image, or why that cannot be told."""

    image: str = Field(description="The name that was sent.")
    top: list[Guess] | None = Field(default=None, description="The most probable classes, best first.")
    width: int | None = None
    height: int | None = None
    error: str | None = None
    explained: str | None = Field(default=None, description="The class whose regions are shown.")
    overlay: str | None = Field(default=None, description="A JPEG as a data: address.")
    similar: list[Similar] | None = None


class Results(_Shape):
    """One result per image, in their order."""

    results: list[Result]


class ErrorText(_Shape):
    """Why a request was refused."""

    detail: str


class About(_Shape):
    """What a run is."""

    name: str
    dataset: str
    network: str
    image_size: int
    num_classes: int
    calibrated: bool
    accuracy: float | None
    interval95: tuple[float, float] | None
    num_test: int
    why_no_photographs: str
    why_no_similar: str
    why_no_regions: str
    limits: dict[str, int]


class Class(_Shape):
    """A class of the run."""

    index: int
    name: str
    accuracy: float | None
    num_test: int
    num_train: int
    examples: list[int] = Field(description="Numbers for /api/photographs.")


class Confusion(_Shape):
    """How often which class was taken for which."""

    classes: list[str]
    counts: list[tuple[int, int, int]] = Field(description="True class, predicted class, how often.")


class Mistake(_Shape):
    """A test image."""

    name: str
    photo: int | None
    probability: float
