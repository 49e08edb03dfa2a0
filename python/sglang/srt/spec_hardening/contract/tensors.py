"""Compares the tensors of a draft checkpoint with the parameters its class has.

Upstream's loaders skip what they do not know and leave at random what they are not given.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from .layout import Layout, Parameter
from .report import Findings
from .safetensors_header import TensorInfo


def check_tensors(
    tensors: Mapping[str, TensorInfo],
    layout: Layout,
    quantized: bool,
    folder: Path,
    findings: Findings,
) -> dict[str, TensorInfo]:
    """Refuses what is missing, unknown, or of the wrong shape or dtype.

    Args:
        quantized: the draft's config says that its projections are quantised, so that only names,
            norms, `fc` and vocabulary maps can be compared.

    Returns:
        The tensors by parameter name.
    """
    found: dict[str, TensorInfo] = {}
    unknown: list[TensorInfo] = []
    for name, tensor in tensors.items():
        parameter = layout.parameter_name(name)
        if parameter in layout.parameters:
            if other := found.get(str(parameter)):
                _refuse_second(tensor, other, findings)
            found[str(parameter)] = tensor
        elif parameter is not None and not (quantized and _is_projection(name)):
            unknown.append(tensor)
    missing = [
        name
        for name, parameter in layout.parameters.items()
        if parameter.required
        and name not in found
        and name != "d2t"
        and not (quantized and _is_projection(name))
    ]
    for name in missing:
        _refuse_missing(name, layout.parameters[name], unknown, folder, findings)
    for tensor in unknown:
        _refuse_unknown(tensor, layout, findings)
    for name, tensor in found.items():
        if not (quantized and _is_projection(name)):
            _check_one(name, tensor, layout.parameters[name], findings)
    return found


def _refuse_second(tensor: TensorInfo, first: TensorInfo, findings: Findings) -> None:
    findings.refuse(
        "tensor-twice",
        tensor.file,
        tensor.name,
        first.name,
        f"{first.name} is loaded into the same parameter, and the one that is read last stays; "
        "remove the one that is not meant",
    )


def _is_projection(name: str) -> bool:
    """Whether a quantisation may replace this matrix by packed ones of other names."""
    return "_proj." in name or "_proj_with_mqa." in name


def _refuse_missing(
    name: str, parameter: Parameter, unknown: list[TensorInfo], folder: Path, findings: Findings
) -> None:
    remedy = (
        f"the draft would run with random values here; the checkpoint must hold it with shape "
        f"{list(parameter.shape)}"
    )
    like = [tensor.name for tensor in unknown if tensor.shape == parameter.shape]
    if close := difflib.get_close_matches(name, like, 1, 0.6):
        remedy += f" (is it the tensor called {close[0]}?)"
    findings.refuse("tensor-missing", folder, name, None, remedy)


def _refuse_unknown(tensor: TensorInfo, layout: Layout, findings: Findings) -> None:
    if tensor.name.endswith("lm_head.weight"):
        remedy = (
            "draft_vocab_size null or tied embeddings mean the target's head, so this one would be "
            f"dropped; write draft_vocab_size {tensor.shape[0]} to use it, or remove the tensor"
        )
    elif tensor.name.removeprefix("model.") in layout.parameters:
        remedy = "this class does not load names that begin with model.; save it without"
    else:
        remedy = "no parameter of the draft takes it and it would be dropped; rename or remove it"
    findings.refuse("tensor-unknown", tensor.file, tensor.name, list(tensor.shape), remedy)


def _check_one(name: str, tensor: TensorInfo, parameter: Parameter, findings: Findings) -> None:
    if tensor.dtype not in parameter.dtypes:
        findings.refuse(
            "tensor-dtype",
            tensor.file,
            tensor.name,
            tensor.dtype,
            f"save it as one of {', '.join(parameter.dtypes)}",
        )
    # The vocabulary maps and fc have checks of their own that say more than a shape does.
    if name not in ("fc.weight", "d2t", "t2d") and tensor.shape != parameter.shape:
        findings.refuse(
            "tensor-shape",
            tensor.file,
            tensor.name,
            list(tensor.shape),
            f"the draft's config asks for {list(parameter.shape)}; correct the config or the "
            "checkpoint",
        )
