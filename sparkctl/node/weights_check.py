"""sparkctl-whole 1: check a model's files on a Spark: reads their headers, no weights. Standard library only."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

_MAX_HEADER_BYTES = 100 << 20  # bytes; the limit of safetensors itself
_MAX_FILES = 1000  # files
_MAX_CONFIG_BYTES = 1 << 20  # bytes
_MAX_ALL_HEADERS_BYTES = 200 << 20  # bytes: of all files together; above it the sizes stay unknown
_ENTRY_BYTES = 150  # bytes of a header for one tensor, about
_VISION = re.compile(
    r"(^|\.)(visual|vision_\w+|image_\w+|audio_\w+|embed_(vision|audio)|\w*mm_projector|multi_modal_\w+)\."
)
_DRAFT = re.compile(r"(^|\.)(mtp(_\w+)?|nextn\w*|eagle\w*|medusa\w*)\.")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,5})\.")
_EXPERT = re.compile(r"(?:^|\.)experts\.(\d{1,5})\.")
_PARTS = (
    ("experts", re.compile(r"(^|\.)experts\.")),
    ("embedding", re.compile(r"(^|\.)(embed|embed_tokens\w*|tok_embeddings|word_embeddings|wte|embed_in)\.")),
    (
        "output",
        re.compile(r"(^|\.)lm_head\.|(^|\.)shared_head\.head\.|^(model\.|language_model\.)?(head|output|embed_out)\."),
    ),
)


def find_model_directory(place: Path) -> Path:
    """Return the directory of a model's files: Hugging Face's cache keeps them in a snapshot. Raises PermissionError."""
    snapshots = place / "snapshots"
    if not snapshots.is_dir():
        return place
    try:
        named = snapshots / (place / "refs" / "main").read_text().strip()
        if named != snapshots and named.is_dir():
            return named
    except OSError:
        pass
    return max(snapshots.iterdir(), key=lambda one: one.stat().st_mtime, default=place)


def _open_unnoticed(path: str, flags: int) -> int:
    """Open a file without a new time of its last use, where this user may; that time says when an engine loaded it."""
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:
        return os.open(path, flags)


def read_tensors(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return the tensors that a file's header lists, and what is wrong with the file; None if header and size agree."""
    size = path.stat().st_size
    with open(str(path), "rb", opener=_open_unnoticed) as file:
        head = file.read(8)
        if path.suffix == ".gguf":
            return {}, None if head[:4] == b"GGUF" else "it does not begin as a GGUF file does"
        if len(head) < 8:
            return {}, f"it holds {size} bytes: not even a header"
        (length,) = struct.unpack("<Q", head)
        if length > min(size - 8, _MAX_HEADER_BYTES):
            return {}, f"its header is to be {length} bytes long, the file has {size}"
        try:
            tensors = {name: one for name, one in json.loads(file.read(length)).items() if name != "__metadata__"}
            ends = [one["data_offsets"][1] for one in tensors.values()]
            wanted = 8 + length + max(ends or [0])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return {}, "its header cannot be read"
    return tensors, f"it is cut off: {size} of {wanted} bytes are there" if wanted > size else None


def read_model_settings(base: Path) -> dict[str, Any]:
    """Return what config.json says of layers, experts and embeddings; of a model with several parts, the language model's."""
    try:
        with (base / "config.json").open("rb") as file:
            outer = json.loads(file.read(_MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(outer, dict):
        return {}
    nested = [outer.get(name) for name in ("text_config", "llm_config", "language_config", "thinker_config")]
    inner: dict[str, Any] = next((one for one in nested if isinstance(one, dict)), {})
    if isinstance(inner.get("text_config"), dict):
        inner = inner["text_config"]
    said = {**outer, **inner}
    return {
        "layers": _find_count(said, "num_hidden_layers", "n_layer"),
        "experts_per_token": _find_count(
            said,
            "num_experts_per_tok",
            "num_experts_per_token",
            "experts_per_token",
            "moe_top_k",
            "moe_topk",
            "top_k_experts",
        ),
        "tied": said["tie_word_embeddings"] if isinstance(said.get("tie_word_embeddings"), bool) else None,
        "quantized": "quantization_config" in said or "compression_config" in said,
    }


def _find_count(said: dict[str, Any], *names: str) -> int | None:
    found = (said.get(name) for name in names)
    return next((one for one in found if type(one) is int and one > 0), None)


def sort_tensor(name: str, layers: int | None) -> str:
    """Return the part of the model that a tensor belongs to, by its name; of a draft head in the checkpoint, also which."""
    if _VISION.search(name):
        return "vision"
    numbered = _LAYER.search(name)
    is_draft = _DRAFT.search(name) or (numbered and layers is not None and int(numbered[1]) >= layers)
    part = next((part for part, pattern in _PARTS if pattern.search(name)), "body")
    return f"draft_{part}" if is_draft else part


def sum_tensors(files: list[dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes of each part of a model, and how many routed experts a layer has."""
    sizes: dict[str, int] = {}
    whole = float32 = count = 0
    for name, one in (pair for tensors in files for pair in tensors.items()):
        first, last = one["data_offsets"][:2]
        part = sort_tensor(name, settings.get("layers"))
        sizes[part] = sizes.get(part, 0) + last - first
        whole += last - first
        float32 += last - first if one.get("dtype") == "F32" else 0
        if part == "experts":
            numbered, shape = _EXPERT.search(name), one.get("shape") or [0]
            count = max(count, int(numbered[1]) + 1 if numbered else shape[0] if len(shape) > 1 else 0)
    return {**settings, "whole": whole, "float32": float32, "expert_count": count, "parts": sizes}


def find_missing_files(index: Path, names: set[str]) -> list[str]:
    """Return the files that an index lists but that are missing. Raises PermissionError."""
    try:
        wanted = set(json.loads(index.read_text())["weight_map"].values())
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as wrong:
        return [f"{index.name} cannot be read: {wrong}"]
    return [f"{one} is missing: {index.name} lists it" for one in sorted(wanted - names)]


def check_place(place: str) -> dict[str, object]:
    """Return how many files a place has, what is wrong with them, which ones this user may not read, and the sizes of
    the model's parts, None where not every file was read.

    The container mostly runs as root, so a file that is unreadable here may be fine.
    """
    faults: list[str] = []
    unread: list[str] = []
    there: list[Path] = []
    base = Path(place)
    try:
        base = find_model_directory(base)
        there = sorted(base.iterdir()) if base.is_dir() else [base] if base.is_file() else []
    except PermissionError:
        unread.append(".")
    names = {one.name for one in there}
    paths = [one for one in there if one.suffix in (".safetensors", ".gguf")][:_MAX_FILES]
    loaded = select_loaded_files(paths)
    found, held = [], 0
    for path in [one for one in there if one.name.endswith(".safetensors.index.json")] + paths:
        try:
            if path.suffix == ".json":
                faults += find_missing_files(path, names)
                continue
            tensors, fault = read_tensors(path)
            held += _ENTRY_BYTES * len(tensors)
            if tensors and path in loaded and held <= _MAX_ALL_HEADERS_BYTES:
                found.append(tensors)
            if fault is not None:
                faults.append(f"{path.name}: {fault}")
        except PermissionError:
            unread.append(path.name)
        except OSError as wrong:
            faults.append(f"{path.name}: it cannot be read: {wrong.strerror}")
    sizes = None
    if found and len(found) == len(loaded) and not faults and not unread:
        try:
            sizes = sum_tensors(found, read_model_settings(base))
        except (KeyError, TypeError, ValueError, AttributeError):
            sizes = None
    return {"place": place, "files": len(paths), "faults": faults, "unread": unread, "tensors": sizes}


def select_loaded_files(paths: list[Path]) -> list[Path]:
    """Return the safetensors files that an engine loads: no adapter, no second copy of the weights in another layout."""
    some = [one for one in paths if one.suffix == ".safetensors" and not one.name.startswith("adapter")]
    return [one for one in some if not one.name.startswith("consolidated")] or some


if __name__ == "__main__":
    for one in sys.argv[1:]:
        sys.stdout.write(f"@@ {json.dumps(check_place(one))}\n")
    sys.stdout.write('@@ "end"\n')
