"""A model folder as the contract sees it: its config and the headers of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import pickled
from .json_file import JsonError, read_json
from .report import Findings
from .safetensors_header import HeaderError, TensorInfo, read_header

LAYER_KEYS = ("num_hidden_layers", "num_layers", "n_layer")
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """A folder and its config.

    Attributes:
        config: config.json as it is.
        text: the part that describes the language model (`text_config` of a multimodal wrapper).
        prefix: how keys of `text` are written from the root of the file.
    """

    folder: Path
    config: dict[str, Any]
    text: dict[str, Any]
    prefix: str

    @property
    def config_file(self) -> Path:
        return self.folder / "config.json"

    @property
    def architecture(self) -> str:
        return str(self.config["architectures"][0])

    def integer(self, *keys: str) -> int | None:
        """The first of these keys of `text` that holds an integer."""
        for key in keys:
            value = self.text.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def layers(self) -> int | None:
        return self.integer(*LAYER_KEYS)


def read_config(
    folder: Path, findings: Findings, overrides: Mapping[str, Any] | None = None
) -> Checkpoint | None:
    """The folder's config; None after a refusal if there is nothing to go on with."""
    file = folder / "config.json"
    try:
        config = read_json(file)
    except FileNotFoundError:
        findings.refuse(
            "config-unreadable", file, "config.json", None, "the folder holds no config.json"
        )
        return None
    except (OSError, JsonError) as error:
        findings.refuse(
            "config-unreadable", file, "config.json", str(error), "write it as valid JSON"
        )
        return None
    if not isinstance(config, dict):
        findings.refuse(
            "config-unreadable", file, "config.json", config, "it must be a JSON object"
        )
        return None
    config |= overrides or {}
    architectures = config.get("architectures")
    if not (isinstance(architectures, list) and architectures):
        findings.refuse(
            "config-unreadable",
            file,
            "architectures",
            architectures,
            'name the model class, for instance ["LlamaForCausalLM"]',
        )
        return None
    text = config.get("text_config")
    if isinstance(text, dict):
        return Checkpoint(folder, config, text, "text_config.")
    if text is not None:
        findings.refuse(
            "config-unreadable", file, "text_config", text, "write it as an object, or leave it out"
        )
        return None
    return Checkpoint(folder, config, config, "")


def read_tensors(folder: Path, findings: Findings) -> dict[str, TensorInfo] | None:
    """Every tensor of the checkpoint by name; None after a refusal, or where none can be read.

    As upstream does, `.bin` files are looked at only where there are no safetensors.
    """
    files = _listed(folder, findings)
    if files is None:
        return None
    if not files:
        return pickled.read_tensors(folder, findings)
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        try:
            header = read_header(file)
            _refuse_twice(tensors, header, findings)
            tensors.update(header)
        except (HeaderError, OSError) as error:
            findings.refuse(
                "weights-unreadable",
                file,
                "header",
                str(error),
                "download or copy the file again and compare its checksum",
            )
            return None
    return tensors


def _refuse_twice(
    tensors: Mapping[str, TensorInfo], more: Mapping[str, TensorInfo], findings: Findings
) -> None:
    for name in sorted(tensors.keys() & more.keys())[:1]:  # copies of a file share every name
        findings.refuse(
            "tensor-twice",
            more[name].file,
            name,
            tensors[name].file.name,
            f"{tensors[name].file.name} holds a tensor of this name too, and which of them stays "
            "is up to the order in which files are read; remove one of the files",
        )


def _listed(folder: Path, findings: Findings) -> list[Path] | None:
    """The safetensors files upstream loads: those of the index if there is one, else all."""
    index = folder / INDEX
    if not index.is_file():
        files = sorted(folder.glob("*.safetensors"))
        # Upstream's exception for Mistral's folders, which hold everything twice.
        mistral = [file.name for file in files] == ["consolidated.safetensors", "model.safetensors"]
        return files[1:] if mistral else files
    names = _names(index, findings)
    if names is None:
        return None
    missing = [name for name in names if not (folder / name).is_file()]
    for name in missing:
        findings.refuse(
            "shard-missing",
            index,
            "weight_map",
            name,
            f"the index names {name}, which is not there; download it into {folder}",
        )
    return None if missing else [folder / name for name in names]


def _names(index: Path, findings: Findings) -> list[str] | None:
    """The files that an index names, each of which must lie beside it."""
    try:
        held = read_json(index)
    except (OSError, JsonError) as error:
        _refuse_index(index, str(error), findings)
        return None
    listed = held.get("weight_map") if isinstance(held, dict) else None
    if not isinstance(listed, dict) or not listed:
        _refuse_index(index, listed, findings)
        return None
    for tensor, name in listed.items():
        if not isinstance(name, str) or not name.endswith(".safetensors"):
            _refuse_index(index, {tensor: name}, findings)
            return None
        if Path(name).name != name:
            findings.refuse(
                "shard-outside",
                index,
                f"weight_map.{tensor}",
                name,
                "upstream loads the files of the folder itself and would drop this one; put it "
                "beside the index and write its plain name",
            )
            return None
    return sorted(set(listed.values()))


def _refuse_index(index: Path, value: Any, findings: Findings) -> None:
    findings.refuse(
        "weights-unreadable",
        index,
        "weight_map",
        value,
        "download the index again; it must map every tensor to its .safetensors file",
    )
