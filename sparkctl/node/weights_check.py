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
_MAX_CONFIG_BYTES = 1 << 20
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
        if path.suffix == ".gguf":
            return _read_gguf_tensors(file, size)[::2]
        head = file.read(8)
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


_SPLIT_GGUF = re.compile(r"^(.*)-\d{5}(-of-\d{5}\.gguf)$")
_GGUF_VERSIONS = (2, 3)
_GGUF_NUMBERS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")  # by the type's number; 8 text, 9 array
_GGUF_TEXT, _GGUF_ARRAY = 8, 9
_MAX_GGUF_TEXT_BYTES = 16 << 20  # bytes; a chat template, or one token
# ggml's types: numbers of a block, and its bytes. Another one is measured by where the next tensor begins.
_GGML_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
    12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56),
    30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
# Names of GGUF as the rules below know them.
_GGUF_NAMES = (
    (re.compile(r"^token_embd\."), "embed_tokens."),
    (re.compile(r"^(?:v|mm|a)\."), "visual."),
    (re.compile(r"^blk\."), "layers."),
    (re.compile(r"\.ffn_(\w+)_exps\."), r".mlp.experts.\1."),
)


class _GgufReader:
    """Reads GGUF's little-endian values from a file, no further than ``limit`` bytes."""

    def __init__(self, file: Any, limit: int) -> None:
        self._file, self._limit = file, limit

    def read(self, size: int) -> bytes:
        if size > _MAX_GGUF_TEXT_BYTES or self._file.tell() + size > self._limit:
            raise ValueError("too long")
        return bytes(self._file.read(size))

    def read_number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.read(struct.calcsize(f"<{form}")))[0]

    def read_text(self) -> str:
        return self.read(self.read_number("Q")).decode("utf-8", "replace")

    def read_value(self, kind: int) -> Any:
        """Return a number or a text; None for an array, which is passed over."""
        if kind == _GGUF_TEXT:
            return self.read_text()
        if kind != _GGUF_ARRAY:
            return self.read_number(_GGUF_NUMBERS[kind])
        inner, count = self.read_number("I"), self.read_number("Q")
        if inner in (_GGUF_TEXT, _GGUF_ARRAY):
            for _ in range(count):
                self.read_value(inner)
        else:
            skipped = count * struct.calcsize(f"<{_GGUF_NUMBERS[inner]}")
            if self._file.tell() + skipped > self._limit:
                raise ValueError("too long")
            self._file.seek(skipped, os.SEEK_CUR)
        return None


def _read_gguf_tensors(file: Any, size: int) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return the tensors that a GGUF file's header lists, as safetensors' would, its numbers and texts by key, and what is
    wrong with the file."""
    if file.read(4) != b"GGUF":
        return {}, {}, "it does not begin as a GGUF file does"
    reader = _GgufReader(file, min(size, _MAX_HEADER_BYTES))
    try:
        if reader.read_number("I") not in _GGUF_VERSIONS:
            return {}, {}, None  # of another layout: nothing is known of it
        tensor_count, key_count = reader.read_number("Q"), reader.read_number("Q")
        settings = {}
        for _ in range(key_count):
            key = reader.read_text()
            settings[key] = reader.read_value(reader.read_number("I"))
        listed = []
        for _ in range(tensor_count):
            name = reader.read_text()
            shape = [reader.read_number("Q") for _ in range(reader.read_number("I"))]
            listed.append((name, shape, reader.read_number("I"), reader.read_number("Q")))
    except (ValueError, KeyError, IndexError, TypeError, struct.error, RecursionError):
        return {}, {}, "its header cannot be read"
    step = settings.get("general.alignment")
    step = step if type(step) is int and step > 0 else 32
    begin = -(-file.tell() // step) * step
    starts = sorted({offset for *_, offset in listed} | {max(0, size - begin)})
    tensors, wanted = {}, 0
    for name, shape, kind, offset in listed:
        numbers = 1
        for each in shape:
            numbers *= each
        block, width = _GGML_BLOCKS.get(kind, (0, 0))
        later = next((one for one in starts if one > offset), offset) if not block else 0
        length = -(-numbers // block) * width if block else later - offset
        wanted = max(wanted, begin + offset + length)
        for pattern, ours in _GGUF_NAMES:
            name = pattern.sub(ours, name)
        tensors[name] = {"data_offsets": [offset, offset + length], "shape": shape[::-1]}
    return tensors, settings, f"it is cut off: {size} of {wanted} bytes are there" if wanted > size else None


def read_gguf_settings(path: Path) -> dict[str, Any]:
    """Return what a GGUF file says of layers and experts; the layers without those that draft (nextn)."""
    with open(str(path), "rb", opener=_open_unnoticed) as file:
        settings = _read_gguf_tensors(file, path.stat().st_size)[1]
    kind = settings.get("general.architecture")
    layers = _find_count(settings, f"{kind}.block_count")
    drafts = _find_count(settings, f"{kind}.nextn_predict_layers") or 0
    return {
        "layers": None if layers is None else layers - drafts,
        "experts_per_token": _find_count(settings, f"{kind}.expert_used_count"),
        "tied": None,
        "quantized": True,  # whatever its type: the engine takes it as it is
    }


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
    config = {**outer, **inner}
    return {
        "layers": _find_count(config, "num_hidden_layers", "n_layer"),
        "experts_per_token": _find_count(
            config,
            "num_experts_per_tok",
            "num_experts_per_token",
            "experts_per_token",
            "moe_top_k",
            "moe_topk",
            "top_k_experts",
        ),
        "tied": config["tie_word_embeddings"] if isinstance(config.get("tie_word_embeddings"), bool) else None,
        "quantized": "quantization_config" in config or "compression_config" in config,
    }


def _find_count(settings: dict[str, Any], *names: str) -> int | None:
    found = (settings.get(name) for name in names)
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
        there = sorted(base.iterdir()) if base.is_dir() else list_file_parts(base) if base.is_file() else []
    except PermissionError:
        unread.append(".")
    names = {one.name for one in there}
    paths = [one for one in there if one.suffix in (".safetensors", ".gguf")][:_MAX_FILES]
    loaded = select_loaded_files(paths)
    found, header_bytes = [], 0
    for path in [one for one in there if one.name.endswith(".safetensors.index.json")] + paths:
        try:
            if path.suffix == ".json":
                faults += find_missing_files(path, names)
                continue
            tensors, fault = read_tensors(path)
            header_bytes += _ENTRY_BYTES * len(tensors)
            if tensors and path in loaded and header_bytes <= _MAX_ALL_HEADERS_BYTES:
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
            is_gguf = loaded[0].suffix == ".gguf"
            sizes = sum_tensors(found, read_gguf_settings(loaded[0]) if is_gguf else read_model_settings(base))
        except (KeyError, TypeError, ValueError, AttributeError, OSError):
            sizes = None
    return {"place": place, "files": len(paths), "faults": faults, "unread": unread, "tensors": sizes}


def select_loaded_files(paths: list[Path]) -> list[Path]:
    """Return the files that an engine loads: no adapter, no second copy of the weights in another layout. Empty where
    several GGUF models lie together: which one it is cannot be told from here."""
    some = [one for one in paths if one.suffix == ".safetensors" and not one.name.startswith("adapter")]
    if some:
        return [one for one in some if not one.name.startswith("consolidated")] or some
    ggufs = [one for one in paths if one.suffix == ".gguf" and not one.name.startswith("mmproj")]
    return ggufs if len({_SPLIT_GGUF.sub(r"\1\2", one.name) for one in ggufs}) == 1 else []


def list_file_parts(path: Path) -> list[Path]:
    """Return a file, or all parts of a GGUF file in parts."""
    if not _SPLIT_GGUF.match(path.name):
        return [path]
    whole = _SPLIT_GGUF.sub(r"\1\2", path.name)
    return sorted(one for one in path.parent.iterdir() if _SPLIT_GGUF.sub(r"\1\2", one.name) == whole)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        sys.stdout.write(f"@@ {json.dumps(check_place(one))}\n")
    sys.stdout.write('@@ "end"\n')
