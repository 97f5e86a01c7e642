"""A language model that knows nothing, made on the spot: random weights of Qwen3's form and a tokenizer of single bytes.

Written as a directory for vLLM (config.json, tokenizer.json, model.safetensors) and as one GGUF file for llama.cpp, from
the same numbers, by the two formats' own documentation; nothing is downloaded, and nothing but Python is needed.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAME = "tiny-random"
CONTEXT = 4096
_SPREAD = 0.02
_F32, _F16 = 0, 1  # GGUF's numbers for the types of tensors
_U32, _FLOAT, _TEXT, _LIST, _I32 = 4, 6, 8, 9, 5  # and of values
_NORMAL, _CONTROL = 1, 3  # and of tokens
_ALIGNED = 32
_LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One of the model's, by its name in Hugging Face's form; ``values`` row by row."""

    name: str
    shape: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """How large: the smallest that vLLM's kernels for CPUs take."""

    layers: int = 2
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    inner: int = 256


SHAPE = Shape()


def list_tokens() -> list[str]:
    """Return the vocabulary: every byte as byte-level BPE writes it, and three marks of a chat."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    letters = dict(zip(shown + others, [*map(chr, shown), *(chr(0x100 + n) for n in range(len(others)))], strict=True))
    return [letters[byte] for byte in range(256)] + ["Ġt", "er", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]


_MERGES = ("Ġ t", "e r")
_MARKS = 3
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def draw_tensors(seed: int = 0) -> Iterator[Tensor]:
    """Yield every tensor; the same for the same seed."""
    one, chance = SHAPE, random.Random(seed)

    def drawn(name: str, *shape: int) -> Tensor:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if len(shape) == 1:
            return Tensor(f"{name}.weight", shape, (1.0,) * count)  # of a norm
        return Tensor(f"{name}.weight", shape, tuple(chance.gauss(0.0, _SPREAD) for _ in range(count)))

    yield drawn("model.embed_tokens", len(list_tokens()), one.hidden)
    for number in range(one.layers):
        layer = f"model.layers.{number}."
        yield drawn(layer + "input_layernorm", one.hidden)
        yield drawn(layer + "self_attn.q_proj", one.heads * one.head, one.hidden)
        yield drawn(layer + "self_attn.k_proj", one.kv_heads * one.head, one.hidden)
        yield drawn(layer + "self_attn.v_proj", one.kv_heads * one.head, one.hidden)
        yield drawn(layer + "self_attn.o_proj", one.hidden, one.heads * one.head)
        yield drawn(layer + "self_attn.q_norm", one.head)
        yield drawn(layer + "self_attn.k_norm", one.head)
        yield drawn(layer + "post_attention_layernorm", one.hidden)
        yield drawn(layer + "mlp.gate_proj", one.inner, one.hidden)
        yield drawn(layer + "mlp.up_proj", one.inner, one.hidden)
        yield drawn(layer + "mlp.down_proj", one.hidden, one.inner)
    yield drawn("model.norm", one.hidden)
    head = drawn("lm_head", len(list_tokens()), one.hidden)
    letters = 128 * one.hidden
    # Only ASCII can be the likeliest token: at temperature 0 no answer ends before its limit, and each token is text.
    yield Tensor(head.name, head.shape, head.values[:letters] + (0.0,) * (len(head.values) - letters))


def write_directory(directory: Path) -> None:
    """Write the model as vLLM reads one."""
    directory.mkdir(parents=True, exist_ok=True)
    names = list_tokens()
    marks = names[-_MARKS:]
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "hidden_act": "silu",
        "vocab_size": len(names), "hidden_size": SHAPE.hidden, "intermediate_size": SHAPE.inner,
        "num_hidden_layers": SHAPE.layers, "num_attention_heads": SHAPE.heads, "num_key_value_heads": SHAPE.kv_heads,
        "head_dim": SHAPE.head, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "attention_bias": False, "eos_token_id": len(names) - 1, "bos_token_id": None,
        "pad_token_id": len(names) - _MARKS,
    }  # fmt: skip
    special = [
        {"id": len(names) - _MARKS + n, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for n, mark in enumerate(marks)
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "vocab": {name: n for n, name in enumerate(names[:-_MARKS])},
        "merges": list(_MERGES),
    }  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model,
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": marks[2], "pad_token": marks[0],
        "model_max_length": CONTEXT, "chat_template": _TEMPLATE,
    }  # fmt: skip
    files = {"config.json": config, "tokenizer.json": tokenizer, "tokenizer_config.json": settings}
    for name, said in files.items():
        (directory / name).write_text(json.dumps(said, indent=1), encoding="utf-8")
    (directory / "model.safetensors").write_bytes(_build_safetensors())


def _build_safetensors() -> bytes:
    """Return the file: the length of its header, the header in JSON, the tensors as bfloat16."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for one in draw_tensors():
        begin = len(body)
        for value in one.values:
            body += struct.pack("<f", value)[2:]  # bfloat16 is the upper half
        header[one.name] = {"dtype": "BF16", "shape": list(one.shape), "data_offsets": [begin, len(body)]}
    result = json.dumps(header).encode()
    result += b" " * (-len(result) % 8)
    return struct.pack("<Q", len(result)) + result + bytes(body)


def write_gguf(path: Path) -> None:
    """Write the model as llama.cpp reads one."""
    names = list_tokens()
    kinds = [_NORMAL] * (len(names) - _MARKS) + [_CONTROL] * _MARKS
    said = [
        _pack_pair("general.architecture", _TEXT, "qwen3"),
        _pack_pair("general.name", _TEXT, NAME),
        _pack_pair("qwen3.block_count", _U32, SHAPE.layers),
        _pack_pair("qwen3.context_length", _U32, CONTEXT),
        _pack_pair("qwen3.embedding_length", _U32, SHAPE.hidden),
        _pack_pair("qwen3.feed_forward_length", _U32, SHAPE.inner),
        _pack_pair("qwen3.attention.head_count", _U32, SHAPE.heads),
        _pack_pair("qwen3.attention.head_count_kv", _U32, SHAPE.kv_heads),
        _pack_pair("qwen3.attention.key_length", _U32, SHAPE.head),
        _pack_pair("qwen3.attention.value_length", _U32, SHAPE.head),
        _pack_pair("qwen3.attention.layer_norm_rms_epsilon", _FLOAT, 1e-6),
        _pack_pair("qwen3.rope.freq_base", _FLOAT, 10000.0),
        _pack_pair("tokenizer.ggml.model", _TEXT, "gpt2"),
        _pack_pair("tokenizer.ggml.pre", _TEXT, "gpt-2"),
        _pack_pair("tokenizer.ggml.eos_token_id", _U32, len(names) - 1),
        _pack_pair("tokenizer.ggml.padding_token_id", _U32, len(names) - _MARKS),
        _pack_pair("tokenizer.chat_template", _TEXT, _TEMPLATE),
        _pack_list("tokenizer.ggml.tokens", _TEXT, names),
        _pack_list("tokenizer.ggml.token_type", _I32, kinds),
        _pack_list("tokenizer.ggml.merges", _TEXT, list(_MERGES)),
    ]
    infos, body, count = bytearray(), bytearray(), 0
    for one in draw_tensors():
        is_norm = len(one.shape) == 1
        infos += _pack_text(_build_gguf(one.name)) + struct.pack("<I", len(one.shape))
        infos += struct.pack(f"<{len(one.shape)}Q", *reversed(one.shape))  # the fastest first
        infos += struct.pack("<IQ", _F32 if is_norm else _F16, len(body))
        body += struct.pack(f"<{len(one.values)}{'f' if is_norm else 'e'}", *one.values)
        body += b"\0" * (-len(body) % _ALIGNED)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(said)) + b"".join(said) + bytes(infos)
    path.write_bytes(head + b"\0" * (-len(head) % _ALIGNED) + bytes(body))


def _build_gguf(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.weight"
    _, _, number, part = stem.split(".", 3)
    return f"blk.{number}.{_LAYER[part]}.weight"


def _pack_text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _pack_value(kind: int, value: object) -> bytes:
    if kind == _TEXT:
        return _pack_text(str(value))
    return struct.pack({_U32: "<I", _I32: "<i", _FLOAT: "<f"}[kind], value)


def _pack_pair(key: str, kind: int, value: object) -> bytes:
    return _pack_text(key) + struct.pack("<I", kind) + _pack_value(kind, value)


def _pack_list(key: str, kind: int, values: list[str] | list[int]) -> bytes:
    head = _pack_text(key) + struct.pack("<IIQ", _LIST, kind, len(values))
    return head + b"".join(_pack_value(kind, value) for value in values)
