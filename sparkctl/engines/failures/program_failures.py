"""Failure rules for refused command lines, and for errors that no other rule knows."""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, EXCEPTION_WITHOUT_ERROR, failure_rule
from sparkctl.model.verdict import ChangeDirection, FailureCause

_EXCEPTION_NEEDLES = (
    *("Error: ", "Error(", "Exception: ", "Exception("),
    *("Timeout: ", "Failed: ", "Expired: ", "Unsupported: ", "validation error"),
)
_ARGPARSE_ERROR = r"^[\w./ -]{1,80}: error: "

ARGUMENT_FAILURES = (
    failure_rule(
        _ARGPARSE_ERROR + r"(?P<what>ambiguous option: --?(?P<flag>[\w.-]+)\S* could match (?P<could>.*))",
        FailureCause.UNKNOWN_FLAG,
        "The engine has several flags that begin with --{flag}: {could}",
        "Write the one that is meant in place of args.{flag}: {could}",
        needle=": error: ",
        on="args.{flag}",
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        _ARGPARSE_ERROR + r"(?P<what>unrecognized arguments: --?(?P<flag>[\w.-]+).*)",
        FailureCause.UNKNOWN_FLAG,
        "The engine has no flag --{flag}: {what}",
        "Correct or remove args.{flag}: this image does not know it.",
        needle=": error: ",
        on="args.{flag}",
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        _ARGPARSE_ERROR + r"(?P<what>argument (?:-\w+/)?--?(?P<flag>[\w.-]+)\S*: .*)",
        FailureCause.BAD_VALUE,
        "The engine refused a flag's value: {what}",
        "Correct args.{flag}.",
        needle=": error: argument ",
        on="args.{flag}",
        fatal=True,
    ),
    failure_rule(
        _ARGPARSE_ERROR + r"(?P<what>the following arguments are required: (?P<flag>.*))",
        FailureCause.BAD_VALUE,
        "The engine misses something on its command line: {what}",
        "Give args or command what it asks for.",
        needle=": error: ",
        on="args",
        fatal=True,
    ),
    failure_rule(
        _ARGPARSE_ERROR + r"(?P<what>unrecognized arguments.*|argument .*)",
        FailureCause.UNKNOWN_FLAG,
        "The engine refused its command line: {what}",
        "Correct args or command.",
        needle=": error: ",
        on="args",
        fatal=True,
    ),
)
CRASH_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Unknown quantization (?:method|scheme|strategy):? (?P<name>[\w-]+)"
        rf"|{EXCEPTION_PREFIX}.*Quantization method specified in the model config \((?P<its>[^)]*)\) does not match"
        rf"|{EXCEPTION_PREFIX}.*does not support (?P<kind>[\w-]{{1,40}}) quantization",
        FailureCause.BAD_VALUE,
        "The quantization is refused[: there is no {name}][: the model's own is {its}][: this model does not support {kind}].",
        "Remove args.quantization: the engine reads it from the model.",
        needle="uantization",
        on="args.quantization",
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.*[Aa]ttention[ _]backend.*)|"
        rf"{EXCEPTION_PREFIX}(?P<said>.*(?:FlashInfer|FlashAttention|Triton) backend .*not.*)|"
        rf"{EXCEPTION_PREFIX}(?P<build>.*[Ff]lash[ _-]?(?:[Aa]ttention|attn)\b.{{0,60}}(?:does not|doesn't|only) supports?\b.*)|"
        rf"{EXCEPTION_PREFIX}(?P<kind>.*\b\w{{0,40}}Attention\w{{0,40}}Backend\b.{{0,60}} (?:does not|doesn't|cannot|only) .*)|"
        rf"{EXCEPTION_PREFIX}(?P<only>.*[Aa]ttention.* only (?:supported|available|implemented) .{{0,60}}backend.*)",
        FailureCause.ATTENTION_BACKEND,
        "The attention backend does not do what this model needs[: {what}][: {said}][: {build}][: {kind}][: {only}].",
        "Set args.attention-backend to another one, or leave it out: the engine then chooses.",
        needle=("ackend", "lash"),
        on="args.attention-backend",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?:^|[ (:])(?:ModuleNotFoundError|python[\d.]*): No module named '?(?P<name>sglang|vllm|tensorrt_llm)'?(?=\)|\s*$)",
        FailureCause.BAD_VALUE,
        "The image does not hold {name}.",
        "Correct image or engine.",
        needle="No module named",
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.*?--(?P<flag>[a-z][a-z0-9]*(?:-[a-z0-9]+)+).*)",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Correct args.{flag}, or what it is set together with.",
        needle=_EXCEPTION_NEEDLES,
        on="args.{flag}",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:yaml|ruamel\.yaml)[\w.]{0,60}Error: (?P<what>.*)",
        FailureCause.BAD_VALUE,
        "A YAML file that the engine was given cannot be read: {what}",
        "Correct it: the lines after this one name the file and the place.",
        needle="Error: ",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*\[Errno 2\] No such file or directory: '(?P<path>[^']{{1,400}}\.(?:ya?ml|toml|cfg|ini|j2))'",
        FailureCause.BAD_VALUE,
        "There is no {path} in the container.",
        "Correct the flag that names it, or mount the file.",
        needle="[Errno 2]",
        on="mounts",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"\btask: non-zero exit \((?P<code>\d+)\)",
        FailureCause.CRASHED,
        "Docker's service says that the container ended with exit code {code}.",
        "The container's own log says why: docker logs.",
        needle="task: non-zero exit",
        weight=FailureWeight.LOST,
    ),
    # The exception's own message says what to do, or names the setting that it does not take.
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.*?\b(?P<advice>(?:[Pp]lease|[Yy]ou (?:should|must|need to|have to)) (?:try )?"
        r"(?:set|provid|increas|decreas|reduc|lower|rais|specify|enabl|disabl|remov|chang|choos|select|pass|adjust"
        r"|use (?:--|`|'|\"|an? (?:smaller|larger|different|valid|higher|lower)))(?!.{0,40}(?:prompt|request|messages|completion|input))"
        r".{0,200}))",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Do what the message asks: {advice}",
        needle=("lease ", "ou should ", "ou must ", "ou need to ", "ou have to "),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.*?\b(?P<advice>[Pp]lease (?:try )?(?:upgrad|updat|install|reinstall|downgrad|build|compil"
        r"|recompil).{0,200}))",
        FailureCause.BROKEN_IMAGE,
        "The image lacks something, or has a version that does not fit: {what}",
        "Take an image that has it (a newer tag), or install it when the image is built: {advice}",
        needle=("lease ",),
        on="image",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?:ValueError|AssertionError): (?P<what>.{0,300}?\b(?:max|min|num|enable|disable|use|tp|pp|dp|ep|kv_cache"
        r"|gpu|mem|model|attention|speculative|draft|lora|chunked|block|tensor|pipeline|data|expert|tool|reasoning|served|cuda|moe)"
        r"_[a-z0-9_]{1,60}\b.{0,200}?"
        r"\b(?:must be|should be|must not|cannot be|can't be|can not be|(?:is|are) not (?:supported|compatible|allowed|divisible)"
        r"|not divisible|(?:is|are) (?:larger|greater|smaller|less|lower|higher) than|exceeds?|only supports?|requires?|expects?"
        r"|incompatible with|mutually exclusive|conflicts? with)\b.*)",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Correct the setting that the message names.",
        needle=("ValueError: ", "AssertionError: "),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^what\(\):\s+(?P<what>\S.*)",
        FailureCause.CRASHED,
        "The program ended on an error: {what}",
        "Read the log around this line.",
        needle="what(): ",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^Fatal Python error: (?P<what>.*)",
        FailureCause.CRASHED,
        "Python crashed: {what}",
        "The lines after it say where; a newer or older image may not do it.",
        needle="Fatal Python error",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"^(?P<what>(?:(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)|{EXCEPTION_WITHOUT_ERROR}): .*)",
        FailureCause.CRASHED,
        "The engine stopped on an error: {what}",
        "Read the log around this line.",
        needle=_EXCEPTION_NEEDLES,
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?P<what>(?:AssertionError|KeyboardInterrupt|NotImplementedError|RuntimeError))$",
        FailureCause.CRASHED,
        "The engine stopped on an error: {what}",
        "Read the log around this line.",
        needle=("AssertionError", "KeyboardInterrupt", "NotImplementedError", "RuntimeError"),
        weight=FailureWeight.EXCEPTION,
    ),
)
