"""Command lines that are refused, and programs that die of what no other rule knows."""

from __future__ import annotations

from sparkctl.engines._vocabulary import ERROR, OTHERS, rule
from sparkctl.engines.base import Weight
from sparkctl.model.verdict import Cause, Change

_REFUSED = r"^[\w./ -]{1,80}: error: "

ARGUMENTS = (
    rule(
        _REFUSED + r"(?P<what>ambiguous option: --?(?P<flag>[\w.-]+)\S* could match (?P<could>.*))",
        Cause.UNKNOWN_FLAG,
        "The engine has several flags that begin with --{flag}: {could}",
        "Write the one that is meant in place of args.{flag}: {could}",
        needle=": error: ",
        on="args.{flag}",
        fatal=True,
        change=Change.REMOVE,
    ),
    rule(
        _REFUSED + r"(?P<what>unrecognized arguments: --?(?P<flag>[\w.-]+).*)",
        Cause.UNKNOWN_FLAG,
        "The engine has no flag --{flag}: {what}",
        "Correct or remove args.{flag}: this image does not know it.",
        needle=": error: ",
        on="args.{flag}",
        fatal=True,
        change=Change.REMOVE,
    ),
    rule(
        _REFUSED + r"(?P<what>argument (?:-\w+/)?--?(?P<flag>[\w.-]+)\S*: .*)",
        Cause.BAD_VALUE,
        "The engine refused a flag's value: {what}",
        "Correct args.{flag}.",
        needle=": error: argument ",
        on="args.{flag}",
        fatal=True,
    ),
    rule(
        _REFUSED + r"(?P<what>the following arguments are required: (?P<flag>.*))",
        Cause.BAD_VALUE,
        "The engine misses something on its command line: {what}",
        "Give args or command what it asks for.",
        needle=": error: ",
        on="args",
        fatal=True,
    ),
    rule(
        _REFUSED + r"(?P<what>unrecognized arguments.*|argument .*)",
        Cause.UNKNOWN_FLAG,
        "The engine refused its command line: {what}",
        "Correct args or command.",
        needle=": error: ",
        on="args",
        fatal=True,
    ),
)
CRASHES = (
    rule(
        rf"{ERROR}.*Unknown quantization (?:method|scheme|strategy):? (?P<name>[\w-]+)"
        rf"|{ERROR}.*Quantization method specified in the model config \((?P<its>[^)]*)\) does not match",
        Cause.BAD_VALUE,
        "The quantization is refused[: there is no {name}][: the model's own is {its}].",
        "Remove args.quantization: the engine reads it from the model.",
        needle="uantization",
        on="args.quantization",
        change=Change.REMOVE,
    ),
    rule(
        rf"{ERROR}.*(?P<what>[Aa]ttention backend.*)|{ERROR}(?P<said>.*(?:FlashInfer|FlashAttention|Triton) backend .*not.*)",
        Cause.ATTENTION_BACKEND,
        "The attention backend does not do what this model needs[: {what}][: {said}].",
        "Set args.attention-backend to another one, or leave it out: the engine then chooses.",
        needle="ackend",
        on="args.attention-backend",
        weight=Weight.LIKELY,
    ),
    rule(
        r"No module named '?(?P<name>sglang|vllm|tensorrt_llm)\b",
        Cause.BAD_VALUE,
        "The image does not hold {name}.",
        "Correct image or engine.",
        needle="No module named",
        on="image",
    ),
    rule(
        rf"{ERROR}(?P<what>.*?--(?P<flag>[a-z][a-z0-9]*(?:-[a-z0-9]+)+).*)",
        Cause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Correct args.{flag}, or what it is set together with.",
        needle="--",
        on="args.{flag}",
        weight=Weight.LIKELY,
    ),
    rule(
        r"^Fatal Python error: (?P<what>.*)",
        Cause.CRASHED,
        "Python crashed: {what}",
        "The lines after it say where; a newer or older image may not do it.",
        needle="Fatal Python error",
        weight=Weight.DEATH,
    ),
    rule(
        rf"^(?P<what>(?:(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)|{OTHERS}): .*)",
        Cause.CRASHED,
        "The engine stopped on an error: {what}",
        "Read the log around this line.",
        needle=": ",
        weight=Weight.EXCEPTION,
    ),
    rule(
        r"^(?P<what>(?:AssertionError|KeyboardInterrupt|NotImplementedError|RuntimeError))$",
        Cause.CRASHED,
        "The engine stopped on an error: {what}",
        "Read the log around this line.",
        needle="rror",
        weight=Weight.EXCEPTION,
    ),
)
