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
    """What is in one image, or why that cannot be said."""

    image: str = Field(description="The name that was sent.")
    top: list[Guess] | None = Field(default=None, description="The most probable classes, best first.")
    width: int | None = Field(default=None, description="Of the image that was sent, in pixels.")
    height: int | None = None
    error: str | None = Field(default=None, description="Why there is no answer; the other fields are missing then.")
    explained: str | None = Field(default=None, description="The class whose regions are shown.")
    overlay: str | None = Field(default=None, description="A JPEG as a data: address.")
    similar: list[Similar] | None = Field(default=None, description="Training photographs, the most similar first.")


class Results(_Shape):
    """One result per image, in their order."""

    results: list[Result]


class ErrorText(_Shape):
    """Why a request was refused."""

    detail: str


class About(_Shape):
    """What a run is."""

    name: str = Field(description="Of the run folder.")
    dataset: str
    network: str
    image_size: int = Field(description="The side of the square that the network sees, in pixels.")
    num_classes: int
    calibrated: bool = Field(description="Whether the probabilities are.")
    accuracy: float | None = Field(description="Of the test images, from 0 to 1.")
    interval95: tuple[float, float] | None = Field(description="Of the accuracy: Wilson's interval.")
    num_test: int = Field(description="How many test images there were.")
    why_no_photographs: str = Field(description="Empty if there are photographs, else what is missing.")
    why_no_similar: str = Field(description="Empty if similar training photographs can be found.")
    why_no_regions: str = Field(description="Empty if the regions that decided can be shown.")
    limits: dict[str, int] = Field(description="What a request may hold.")


class Class(_Shape):
    """A class of the run."""

    index: int = Field(description="Its number, from 0.")
    name: str
    accuracy: float | None = Field(description="The share of its test images that were recognized.")
    num_test: int = Field(description="How many test images it has.")
    num_train: int = Field(description="How many training images it has.")
    examples: list[int] = Field(description="Numbers for /api/photographs.")


class Confusion(_Shape):
    """How often which class was taken for which."""

    classes: list[str]
    counts: list[tuple[int, int, int]] = Field(description="True class, predicted class, how often.")


class Mistake(_Shape):
    """A test image."""

    name: str
    photo: int | None = Field(description="Its number for /api/photographs; none if it is gone.")
    probability: float = Field(description="Of the class that was predicted.")
