"""ONNX, which onnxruntime and many other programs run; needs ``pip install bcnn[onnx]``."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy

from ...files import amount, written_whole

MAX_BYTES = 2**31 - 1  # of one file: the format's own bound
INPUT, OUTPUT = "images", "probabilities"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
FACTS = {"classes", "preparation", "run"}  # in the metadata
AXES = ("batch", "colours", "height", "width")


def require() -> None:
    """Raise in words unless the packages are here."""
    try:
        for name in PACKAGES:
            importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"export: expected the packages onnx, onnxscript and onnxruntime, got: {error}; run: pip install "
            "'bcnn[onnx]'."
        ) from None


def write(program: Any, path: Path, about: Mapping[str, str]) -> None:
    """Write the recorded network, with facts about it in the file's metadata."""
    import onnx
    import torch

    size = sum(tensor.numel() * tensor.element_size() for tensor in program.state_dict.values())
    if size > MAX_BYTES:
        raise ValueError(
            f"export: expected a network that fits into one ONNX file, {amount(MAX_BYTES)}, got {amount(size)}; use "
            "--to torch, or a smaller --proj-dim when training."
        )
    with _quiet():
        try:
            converted: Any = torch.onnx.export(
                program, (), dynamo=True, external_data=False, input_names=[INPUT], output_names=[OUTPUT], verbose=False
            )
        except Exception as error:  # whatever the converter makes of an operation it does not know
            raise ValueError(
                f"export: expected operations that ONNX has, got: {_reason(error)}; use --to torch."
            ) from None
    with written_whole(path) as temporary:
        converted.save(str(temporary), external_data=False)
        model = onnx.load(str(temporary))
        _name_axes(model)
        onnx.helper.set_model_props(model, dict(about))
        onnx.checker.check_model(model)
        onnx.save(model, str(temporary))


def open_file(path: Path) -> Callable[[numpy.ndarray], numpy.ndarray]:
    """The file as a function of arrays, by onnxruntime on the CPU."""
    session = _session(path)

    def run(images: numpy.ndarray) -> numpy.ndarray:
        (result,) = session.run([OUTPUT], {INPUT: images})
        return numpy.asarray(result)

    return run


def read_about(path: Path) -> dict[str, str]:
    """The facts in a file, as texts of JSON."""
    return dict(_session(path).get_modelmeta().custom_metadata_map)


def is_ours(path: Path) -> bool:
    """Whether a file has the facts of `write`; nothing of it is run."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return {own.key for own in model.metadata_props} >= FACTS


def _session(path: Path) -> Any:
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors alone
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _name_axes(model: Any) -> None:
    """Axes that are left open under names for people; the converter numbers them."""
    names: dict[str, str] = {}
    for axis, dim in zip(AXES, model.graph.input[0].type.tensor_type.shape.dim, strict=True):
        if dim.dim_param:
            names.setdefault(dim.dim_param, axis)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.get(dim.dim_param, dim.dim_param)
    del model.graph.value_info[:]  # shapes between the layers, which name the axes as before


def _reason(error: Exception) -> str:
    """The line of the converter's report that says what is missing."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if "No ONNX function" in line or line.startswith("<class")]
    return (said or [line for line in lines if line] or [type(error).__name__])[0][:300].rstrip(".")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the converter's remarks on packages it could use."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
