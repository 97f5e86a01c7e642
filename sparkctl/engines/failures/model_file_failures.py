"""Failure rules for models that cannot be downloaded or read, as the hub's client, transformers and safetensors report
it.
"""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, failure_rule
from sparkctl.model.verdict import ChangeDirection, FailureCause

_MODEL_PATH_FIELD = "model.path"
_TOKEN_FIELD = "env.HF_TOKEN"  # noqa: S105
_LICENCE_REMEDY = "Accept the model's licence on the hub and set env.HF_TOKEN to a token of that account."
_DOWNLOAD_REMEDY = "Download it again (hf download checks every file), then start it again."

_HUB_HOSTS = r"(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn)"

_NOT_FOUND_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Repo id must (?:be in the form|use alphanumeric)[^:]*: '(?P<path>[^']*)'",
        FailureCause.MODEL_NOT_FOUND,
        "There is no {path} in the container.",
        "Correct model.path, or the mount that should bring it in.",
        needle="Repo id must",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Repository Not Found for url: (?P<url>\S+?)\.?(?:\s|$)|is not a local folder and is not a valid model "
        rf"identifier)|^(?:[\w.]+\.)?(?:RepositoryNotFoundError|RevisionNotFoundError): ",
        FailureCause.MODEL_NOT_FOUND,
        "The hub has no such model[ ({url})].",
        "Correct model.path; a private model needs env.HF_TOKEN.",
        needle=(
            "Repository Not Found for url:",
            "is not a local folder and is not a valid model identifier",
            "positoryNotFoundError",
            "visionNotFoundError",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"^(?:[\w.]+\.)?GatedRepoError: |{EXCEPTION_PREFIX}.*(?:Cannot access gated repo|You are trying to access a gated repo"
        r"|Access to model (?P<model>\S+) is restricted)|^Access to model (?P<named>\S+) is restricted"
        r"|^Cannot access gated repo",
        FailureCause.MODEL_GATED,
        "The model hub does not let you have this model[ ({model})][ ({named})].",
        _LICENCE_REMEDY,
        needle=(
            "Access to model",
            "Cannot access gated repo",
            "GatedRepoError:",
            "You are trying to access a gated repo",
        ),
        on=_TOKEN_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?P<status>401|403) Client Error.*(?:huggingface|hf\.co|hf-mirror|Hugging)",
        FailureCause.MODEL_GATED,
        "The model hub refused the download ({status}).",
        _LICENCE_REMEDY,
        needle=" Client Error",
        on=_TOKEN_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*\b(?P<status>429) (?:Client Error|Too Many Requests).*{_HUB_HOSTS}",
        FailureCause.HUB_UNREACHABLE,
        "The model hub accepts no more requests from here for now ({status}).",
        "Wait some minutes, then start it again; with env.HF_TOKEN set the hub allows more. Or download the model beforehand "
        "and mount it.",
        needle=("429 Client Error", "429 Too Many Requests"),
        on=_TOKEN_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*\b(?P<status>5\d\d) (?:Server Error|Internal Server|Bad Gateway|Service Unavailable|Gateway Time).*{_HUB_HOSTS}",
        FailureCause.HUB_UNREACHABLE,
        "The model hub did not work ({status}).",
        "Start it again later, or download the model beforehand and mount it.",
        needle=("Bad Gateway", "Gateway Time", "Internal Server", "Server Error", "Service Unavailable"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"^(?=.*(?:[Tt]imed out|Timeout)){EXCEPTION_PREFIX}.*?(?P<host>{_HUB_HOSTS})",
        FailureCause.HUB_UNREACHABLE,
        "The model hub did not answer in time ({host}).",
        "Give the container a way to the hub and start it again (what is downloaded stays), or download the model beforehand "
        "and mount it.",
        needle=("Timeout", "imed out"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?:LocalEntryNotFoundError|OfflineModeIsEnabled): "
        rf"|{EXCEPTION_PREFIX}.*We couldn't connect to '(?P<hub>[^']*)' to load"
        rf"|{EXCEPTION_PREFIX}.*(?:outgoing traffic has been disabled|Cannot reach (?P<url>https?://\S+?):? offline mode)",
        FailureCause.HUB_UNREACHABLE,
        "The model is not on the node, and the hub[ {hub}][ {url}] could not be asked for it.",
        "Download the model beforehand and mount it, or give the container a way to the hub (HF_HUB_OFFLINE unset).",
        needle=(
            "Cannot reach",
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "We couldn't connect to '",
            "outgoing traffic has been disabled",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Name or service not known|Temporary failure in name resolution|Network is unreachable"
        r"|Max retries exceeded with url: (?P<url>\S*(?:huggingface|hf\.co|/api/models|/resolve/)\S*)"
        r"|Failed to resolve '(?P<host>[^']*)')",
        FailureCause.HUB_UNREACHABLE,
        "The container found no way to the network[ ({host})].",
        "Give the container a way to the hub, or download the model beforehand and mount it.",
        needle=(
            "Name or service not known",
            "Temporary failure in name resolution",
            "Network is unreachable",
            "Max retries exceeded with url: ",
            "Failed to resolve '",
        ),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
)
_CORRUPT_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*deserializing header: .*(?:[Hh]eader ?[Tt]oo ?[Ll]arge|invalid JSON|InvalidHeaderDeserialization"
        r"|InvalidHeaderStart|invalid UTF-8)",
        FailureCause.MODEL_FILES,
        "A weight file is not a safetensors file: a Git LFS pointer, an error page, or another format.",
        f"Look at the file's beginning (head -c 200). {_DOWNLOAD_REMEDY}",
        needle="deserializing header: ",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*?(?:Error while deserializing header: (?P<what>.*)|MetadataIncompleteBuffer|InvalidHeaderLength"
        r"|HeaderTooSmall|incomplete metadata, file not fully covered)"
        r"|^Error while deserializing header: (?P<said>.*)",
        FailureCause.TRUNCATED_WEIGHTS,
        "A weight file is cut short[: {what}][: {said}].",
        _DOWNLOAD_REMEDY,
        needle=(
            "Error while deserializing header:",
            "HeaderTooSmall",
            "InvalidHeaderLength",
            "MetadataIncompleteBuffer",
            "incomplete metadata, file not fully covered",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:PytorchStreamReader failed reading (?:zip archive|file)|unexpected EOF, expected (?P<more>\d+) more bytes"
        r"|Consistency check failed: file should be of size (?P<size>\d+)|file is (?:truncated|corrupted))",
        FailureCause.TRUNCATED_WEIGHTS,
        "A weight file is cut short[: {more} bytes are missing][: it should hold {size} bytes].",
        _DOWNLOAD_REMEDY,
        needle=(
            "Consistency check failed: file should be of size",
            "PytorchStreamReader failed reading",
            "file is truncated",
            "file is corrupted",
            "unexpected EOF, expected",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Cannot find any model weights with [`'](?P<path>[^`']*)",
        FailureCause.MODEL_FILES,
        "{path} holds no weights.",
        "Finish the download: only the small files are there.",
        needle="Cannot find any model weights",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Invalid repository ID or local directory specified: '(?P<path>[^']*)'",
        FailureCause.MODEL_FILES,
        "{path} is not a model: it has no config.json that the engine can read.",
        "Correct model.path, or finish the download.",
        needle="Invalid repository ID",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Unrecognized model in (?P<path>\S+?)\. ",
        FailureCause.MODEL_FILES,
        "The config.json in {path} is missing, or names no model type.",
        "Finish the download, or correct model.path.",
        needle="Unrecognized model",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*?(?<!\S)(?P<path>\S+) does not appear to have (?:a file named|files named) (?P<file>[^.]*\.\w+)"
        rf"|{EXCEPTION_PREFIX}.*Can't load the (?:configuration|model) (?:of|for) '(?P<name>[^']*)'"
        rf"|{EXCEPTION_PREFIX}.*It looks like the config file at '(?P<config>[^']*)' is not a valid JSON",
        FailureCause.MODEL_FILES,
        "The model is incomplete[: {path} has no {file}][: nothing that can be read for {name}][: {config} is no JSON].",
        "Finish the download, or correct model.path.",
        needle=("does not appear to have", "Can't load the", "It looks like the config file at '"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        r"^\d+ validation errors? for ModelConfig: .{0,80}?(?P<what>(?:Expecting (?:value|property name|',' delimiter|':' delimiter)"
        r"|Extra data|Unterminated string starting at|Invalid (?:control character|\\escape)).{0,60}: line \d+ column \d+)",
        FailureCause.MODEL_FILES,
        "A JSON file of the model cannot be read: {what}.",
        "Look at config.json and the tokenizer's files: cut short, empty, or a Git LFS pointer. " + _DOWNLOAD_REMEDY,
        needle=" validation error",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Couldn't instantiate the backend tokenizer|Can't load tokenizer for|Unable to load vocabulary"
        r"|Tokenizer class (?P<name>\S+) does not exist)",
        FailureCause.MODEL_FILES,
        "The model's tokenizer files are missing or of another kind[ ({name})].",
        "Finish the download: tokenizer.json or its like is not there.",
        needle=(
            "Can't load tokenizer for",
            "Couldn't instantiate the backend tokenizer",
            "Tokenizer class",
            "Unable to load vocabulary",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:FileNotFoundError: )?\[Errno 2\] No such file or directory: '(?P<path>[^']*\.(?:json|safetensors|gguf"
        r"|bin|model|txt|jinja))'",
        FailureCause.MODEL_FILES,
        "{path} is not there.",
        "Finish the download, or correct the path or its mount.",
        needle="[Errno 2]",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:There is no module or parameter named '(?P<name>[^']*)'|Following weights were not initialized from "
        r"checkpoint)",
        FailureCause.MODEL_FILES,
        "The weights do not match the format they are loaded as[: no place for {name}].",
        "Correct args.quantization or the drafter, or take an image that knows this checkpoint.",
        needle=("Following weights were not initialized from checkpoint", "There is no module or parameter named '"),
    ),
    failure_rule(
        r"^KeyError: '(?P<name>(?:\w+\.)+\w*(?:weight|scale|bias|zeros|zero_point|g_idx)\w*(?:\.\w+){0,4})'"
        rf"|{EXCEPTION_PREFIX}Attempted to load weight (?P<has>.{{1,80}}?) into parameter (?P<wants>.{{1,80}})",
        FailureCause.MODEL_FILES,
        "The weights do not match the format they are loaded as[: no place for {name}][: a weight of {has} for one of {wants}].",
        "Correct args.quantization or the drafter, or take an image that knows this checkpoint.",
        needle=("Attempted to load weight", "KeyError: '"),
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*?(?P<name>\w{{0,40}}(?:weight|scale)\w{{0,40}} for layer '[^']{{1,120}}') was never loaded",
        FailureCause.MODEL_FILES,
        "The model's files lack a weight: {name}.",
        "Take a checkpoint that has it, or start without the part that wants it: a draft that was left out of a quantization.",
        needle=" was never loaded",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}The size of tensor a \((?P<has>\d+)\) must match the size of tensor b \((?P<wants>\d+)\)",
        FailureCause.MODEL_FILES,
        "A weight in the files has a different size than the model needs ({has}, {wants}).",
        "Correct args.quantization or the drafter, or take an image that knows this checkpoint.",
        needle="The size of tensor a",
        during="weights",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Cannot find the config file for (?P<kind>\w+)",
        FailureCause.BAD_VALUE,
        "The model is not quantized as {kind}.",
        "Remove args.quantization or give the kind the weights were made with.",
        needle="Cannot find the config file for",
        on="args.quantization",
        change=ChangeDirection.REMOVE,
    ),
)
_UNSUPPORTED_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:contains custom code which must be executed|[Pp]lease pass the argument `trust_remote_code=True`"
        r"|(?:consider setting|set the option) `trust_remote_code=True`|requires you to execute the (?:configuration|modeling) "
        r"file)",
        FailureCause.TRUST_REMOTE_CODE,
        "The model has its own code, which the engine is not allowed to run.",
        "If you trust the model's author, set args.trust-remote-code: true.",
        needle=(
            "`trust_remote_code=True`",
            "contains custom code which must be executed",
            "requires you to execute the",
        ),
        on="args.trust-remote-code",
        to="true",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Model architectures (?P<names>\[[^\]]*\]) (?:are not supported|failed to be inspected)",
        FailureCause.MODEL_UNSUPPORTED,
        "This image does not know the model's architecture {names}.",
        "Take a newer image of the engine.",
        needle="Model architectures",
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*model type `(?P<type>[^`]*)` but Transformers does not recognize this architecture"
        rf"|{EXCEPTION_PREFIX}.*?\b(?P<arch>\w+) has no (?:vLLM|SGLang) implementation|"
        rf"{EXCEPTION_PREFIX}.*No model architectures are specified|"
        rf"{EXCEPTION_PREFIX}.*\b[Aa]rchitecture:? '?(?P<other>\w{{3,80}})'? is (?:not (?:yet )?supported|unsupported)",
        FailureCause.MODEL_UNSUPPORTED,
        "This image does not know the model[ type {type}][ class {arch}][ class {other}].",
        "Take a newer image of the engine.",
        needle=(
            "rchitecture",
            "has no vLLM implementation",
            "has no SGLang implementation",
            "No model architectures are specified",
            "` but Transformers does not recognize this architecture",
        ),
        on="image",
    ),
)

MODEL_FILE_FAILURES = _NOT_FOUND_FAILURES + _CORRUPT_FAILURES + _UNSUPPORTED_FAILURES
