"""Failure rules of llama-server (llama.cpp): lines of its loader, of ggml and of its flag parser."""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.failures.docker_failures import GPUS_REMEDY
from sparkctl.engines.failures.library_failures import GPU_FAULTS, MEMORY_WORDS
from sparkctl.engines.failures.memory_failures import CUDA_OUT_OF_MEMORY_TEXT, cuda_memory_rules, format_asked_size
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, failure_rule
from sparkctl.model.verdict import DROP_CACHES_REMEDY, ChangeDirection, FailureCause

CONTEXT_FIELD = "args.ctx-size"
_LOWER_CONTEXT_REMEDY = (
    f"Lower {CONTEXT_FIELD} or args.parallel, or set args.cache-type-k and args.cache-type-v to q8_0 (the latter needs "
    "args.flash-attn: on)."
)
_MODEL_PATH_FIELD = "model.path"
_FLAG_PATTERN = r"(?:--|-(?=\w\b))?(?P<flag>-?[\w.-]+)"  # as in args: ctx-size, c, and -fa with its dash

# Any device's buffer: CUDA0 on a Spark, CPU or Vulkan0 where the image has no CUDA.
MEMORY_FAILURES = (
    failure_rule(
        r"failed to allocate buffer for (?:kv|rs) cache|failed to initialize the context: std::bad_alloc",
        FailureCause.KV_CACHE_TOO_SMALL,
        "The memory that the weights left is too small for the KV cache.",
        f"{_LOWER_CONTEXT_REMEDY} {DROP_CACHES_REMEDY}",
        needle="failed to ",
        on=CONTEXT_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"failed to allocate compute (?:pp |tg )?buffers",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "The memory ran out for the buffers in which prompts are computed.",
        f"Lower args.ubatch-size or {CONTEXT_FIELD}. {DROP_CACHES_REMEDY}",
        needle="failed to allocate compute",
        on="args.ubatch-size",  # not fatal: the server may try again, without pipeline parallelism
        weight=FailureWeight.LIKELY,  # a line before it may say how much was asked for
    ),
    failure_rule(
        r"^ggml_aligned_malloc: insufficient memory \(attempted to allocate (?P<size>[\d.]+ \w+)\)",
        FailureCause.HOST_MEMORY,
        "The node had no {size} left that llama.cpp asked for.",
        "Stop what else holds memory on the node. Where it encodes a picture (args.mmproj), give it a smaller one, or set "
        f"args.image-max-tokens; else lower args.ubatch-size or {CONTEXT_FIELD}. {DROP_CACHES_REMEDY}",
        needle="ggml_aligned_malloc: insufficient memory",
    ),
    failure_rule(
        r"gallocr_reserve\w*: failed to allocate \w+ buffer of size (?P<bytes>\d+)",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "The memory ran out for the buffers in which prompts are computed: they need {asked}.",
        f"Lower args.ubatch-size or {CONTEXT_FIELD}, and set args.flash-attn to on: without it they grow with the context. "
        f"{DROP_CACHES_REMEDY}",
        needle="gallocr_reserve",
        worked_out=format_asked_size,
        on="args.ubatch-size",
        weight=FailureWeight.LIKELY,  # the server may try again, without pipeline parallelism
    ),
    failure_rule(
        r"unable to allocate (?P<device>\w+) buffer",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "The weights do not fit into what is free ({device}).",
        f"{DROP_CACHES_REMEDY} Stop what else holds memory on the node, or take a smaller quantization.",
        needle="unable to allocate",
        fatal=True,
    ),
    failure_rule(
        r"allocating (?P<size>[\d.]+ \w+) on device \d+: cudaMalloc failed: out of memory",
        FailureCause.CUDA_OUT_OF_MEMORY,
        f"{CUDA_OUT_OF_MEMORY_TEXT[:-1]}: it tried to allocate {{size}}.",
        f"{DROP_CACHES_REMEDY} {_LOWER_CONTEXT_REMEDY}",
        needle="cudaMalloc failed",
        on=CONTEXT_FIELD,
        weight=FailureWeight.DEATH,  # a later line says for what
    ),
    *cuda_memory_rules(
        _LOWER_CONTEXT_REMEDY, CONTEXT_FIELD, fatal=True, begins=r"^(?:\S+:\d+: )?(?=(?:CUDA|ROCm|HIP|MUSA) error: )"
    ),
)
CUDA_FAILURES = (
    failure_rule(
        r"^(?:\S+:\d+: )?(?:CUDA|ROCm|HIP|MUSA) error: (?P<what>no kernel image is available.*"
        r"|device kernel image is invalid.*|invalid device function.*|.*illegal instruction.*)",
        FailureCause.KERNEL_UNSUPPORTED,
        "A GPU kernel of this image does not run on this GPU: {what}",
        "Take an image built for sm_121 (CUDA 12.9 or newer).",
        needle=("CUDA error: ", "ROCm error: ", "HIP error: ", "MUSA error: "),
        on="image",
        fatal=True,
    ),
    failure_rule(
        r"^(?:\S+:\d+: )?(?:CUDA|ROCm|HIP|MUSA) error: (?P<what>.*(?:unsupported toolchain|driver version is insufficient).*)",
        FailureCause.DRIVER_MISMATCH,
        "The node's NVIDIA driver is too old for this image: {what}",
        "Update the node (DGX OS), or take an image built for its CUDA version.",
        needle=("CUDA error: ", "ROCm error: ", "HIP error: ", "MUSA error: "),
        on="image",
        fatal=True,
    ),
    *MEMORY_WORDS,
    *GPU_FAULTS,
    failure_rule(
        r"^(?:\[\d{1,9}\] )?\S{1,300}\.(?:cuh?|cpp|c|h):\d{1,6}: (?P<what>fatal error)",
        FailureCause.CRASHED,
        "llama.cpp ended with a fatal error.",
        "Take a newer build, and look for this place among the issues of llama.cpp. In fattn.cu it means that flash attention has "
        "no kernel for what was asked: set args.flash-attn: off.",
        needle=": fatal error",
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^(?:\S+:\d+: )?(?:CUDA|ROCm|HIP|MUSA) error: (?!system has unsupported display driver|forward compatibility"
        r"|operation not supported|the requested functionality)(?P<what>.*)",
        FailureCause.CRASHED,
        "CUDA failed: {what}",
        "Read the lines after it; dmesg on the node may show more.",
        needle=("CUDA error: ", "ROCm error: ", "HIP error: ", "MUSA error: "),
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"non-causal attention requires n_ubatch >= n_tokens",
        FailureCause.BAD_VALUE,
        "The prompts that were read together have more tokens than args.ubatch-size, and this model reads them all at once.",
        "Raise args.ubatch-size and args.batch-size above that (8192, say), or lower args.parallel.",
        needle="non-causal attention requires n_ubatch",
        on="args.ubatch-size",
        fatal=True,
        change=ChangeDirection.RAISE,
    ),
    failure_rule(
        r"pre-allocated tensor \((?P<tensor>\S{1,80}).{0,60} in a buffer \((?:(?P<split>\w{1,40}_Split)|(?P<buffer>\w{1,40}))\) that cannot run "
        r"the operation \((?P<what>\w{1,40})\)",
        FailureCause.ENGINE_BUG,
        "llama.cpp holds the tensor {tensor} where it cannot compute {what} with it[ ({split})][ ({buffer})].",
        "[Leave out args.split-mode: this model does not run with its rows split over GPUs ({split}). ]Else take a newer build.",
        needle="in a buffer (",
        on="args.split-mode",
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        r"^(?:[\w.]{1,40} abort:\d+: |(?:\S*/)?(?P<at>[^\s/]+:\d+): )?GGML_ASSERT\((?P<what>.*)\) failed|^\.{0,200}GGML_ASSERT: (?P<place>\S.*)",
        FailureCause.CRASHED,
        "llama.cpp failed its own check[ in {at}][: GGML_ASSERT({what})][: {place}]",
        "Take a newer build, and look for this check among the issues of llama.cpp.",
        needle="GGML_ASSERT",
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^ggml_cuda_init: failed to initialize (?:CUDA|ROCm): (?!.*(?:driver version is insufficient|forward compatibility"
        r"|unsupported display driver))(?P<what>.*)",
        FailureCause.GPU_RUNTIME_MISSING,
        "llama.cpp finds no GPU: {what}. It goes on without one, many times slower.",
        GPUS_REMEDY,
        needle="ggml_cuda_init: failed",
        on="container.gpus",
        weight=FailureWeight.LIKELY,
        at_any_level=True,
    ),
)
MODEL_FAILURES = (
    failure_rule(
        r"failed to load model '(?P<path>[^']*)': .{0,80}unable to find tensor (?P<tensor>\S+)",
        FailureCause.MODEL_FILES,
        "{path} lacks the tensor {tensor}: it was made for another version of llama.cpp, or of another model.",
        "Take the file again from a repository that was made for this version, or a newer image.",
        needle="unable to find tensor",
    ),
    failure_rule(
        r"mismatch between text model \(n_embd = (?P<text>\d+)\) and mmproj \(n_embd = (?P<picture>\d+)\)",
        FailureCause.MODEL_FILES,
        "The projector (mmproj) belongs to another model: it is for a width of {picture}, and the model has {text}.",
        "Take the mmproj file from the same repository as the model (args.mmproj).",
        needle=" and mmproj (",
        on="args.mmproj",
        fatal=True,
    ),
    failure_rule(
        r"failed to load model '(?P<path>[^']*)': .{0,80}unknown projector type: (?P<kind>\S+)",
        FailureCause.MODEL_UNSUPPORTED,
        "This version of llama.cpp does not know the projector {kind} of {path}.",
        "Take a newer image.",
        needle="unknown projector type",
        on="image",
    ),
    failure_rule(
        r"failed to open (?:GGUF file )?(?:'(?P<path>[^']*)'|(?P<bare>/[^:(]*?))(?:: | \()(?:errno = )?Permission denied",
        FailureCause.PERMISSION,
        "[{path}][{bare}] cannot be opened by the container's user.",
        "chmod a+r the file on the node, or run the container as its owner.",
        needle="failed to open",
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"failed to open GGUF file (?:'(?P<path>[^']*)'|(?P<bare>\S+))"
        r"|failed to open (?:'(?P<other>[^']*\.gguf)'|(?P<it>[^\s']\S*\.gguf)): '?No such file",
        FailureCause.MODEL_NOT_FOUND,
        "There is no [{path}][{bare}][{other}][{it}] in the container.",
        "Correct model.path, or the mount that should bring it in.",
        needle="failed to open",
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"(?:unknown|unsupported) model architecture: ''",
        FailureCause.MODEL_UNSUPPORTED,
        "The GGUF file names no architecture: it holds no language model that llama.cpp can load.",
        "Choose another GGUF file: this one belongs to another kind of model (pictures, video, sound), or was converted "
        "without its metadata. A newer image does not help.",
        needle="model architecture: ''",
        on="model.path",
        fatal=True,
    ),
    failure_rule(
        r"(?:unknown|unsupported) model architecture: 'clip'",
        FailureCause.MODEL_UNSUPPORTED,
        "The GGUF file is a projector for pictures (mmproj), not a language model.",
        "Give the language model's file as the model, and this one in args.mmproj.",
        needle="model architecture: 'clip'",
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"(?P<what>no CPU backend found)",
        FailureCause.BROKEN_IMAGE,
        "This build of llama.cpp is not complete: {what}.",
        "Its library libggml-cpu is missing or not found beside the program: take the whole build, or another image. The model's file is not at "
        "fault.",
        needle="no CPU backend found",
        on="image",
        fatal=True,
    ),
    failure_rule(
        r"(?:unknown|unsupported) model architecture: '(?P<name>[^']+)'|error loading model: unknown architecture$",
        FailureCause.MODEL_UNSUPPORTED,
        "This build of llama.cpp does not know the architecture[ {name}] of this model.",
        "Take a newer image.",
        needle=("model architecture", "unknown architecture"),
        on="image",
        fatal=True,
    ),
    failure_rule(
        r"unknown pre-tokenizer type: '(?P<tokenizer>[^']*)'|has invalid ggml type (?P<type>\d+)|unknown tokenizer: '(?P<kind>[^']*)'",
        FailureCause.MODEL_UNSUPPORTED,
        "This build of llama.cpp does not know a part of the model[: the pre-tokenizer {tokenizer}][: tensors of type {type}]"
        "[: the tokenizer {kind}].",
        "Take a newer image.",
        needle=("unknown pre-tokenizer type", "has invalid ggml type", "unknown tokenizer: '"),
        on="image",
        fatal=True,
    ),
    failure_rule(
        r"data is not within the file bounds|is corrupted or incomplete|unexpectedly reached end of file",
        FailureCause.TRUNCATED_WEIGHTS,
        "The GGUF file is shorter than its header says: the download was cut.",
        "Download it again, and compare the size with the hub's.",
        needle=("data is not within the file bounds", "is corrupted or incomplete", "unexpectedly reached end of file"),
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"failed to load GGUF split from (?P<path>\S+)|(?:invalid|illegal) split (?:file|count)(?P<what>.*)",
        FailureCause.MODEL_FILES,
        "A part of the split GGUF is missing or not the first one is given[: {path}][{what}].",
        "Put all parts into one directory, and give the one that ends with -00001-of-….gguf.",
        needle="split",
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"error loading model(?: \w+)*: (?P<what>vk::\S{1,80}: (?!ErrorOutOf)Error\w{1,60})",
        FailureCause.GPU_RUNTIME_MISSING,
        "Vulkan does not start: {what}",
        GPUS_REMEDY,
        needle="error loading model",
        on="container.gpus",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"error loading model(?: \w+)*: (?P<what>(?!.*(?:failed to load model from|Cannot allocate memory)).*)",
        FailureCause.MODEL_FILES,
        "The model cannot be loaded: {what}",
        "Check that the file is complete and made for this build; a newer image may know more formats.",
        needle="error loading model",
        on=_MODEL_PATH_FIELD,
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"error from HF API \((?:https\S+, )?(?:response code: )?(?P<code>40[13])"
        r"|download failed: .*\(status: (?P<status>40[13])\)",
        FailureCause.MODEL_GATED,
        "The model hub denies you access to this model[ (HTTP {code})][ (HTTP {status})].",
        "Accept the model's licence on the hub and set env.HF_TOKEN to a token of that account.",
        needle=("error from HF API", "download failed: "),
        on="env.HF_TOKEN",
    ),
    failure_rule(
        r"failed to download model|download failed after \d+ attempts|required file is not available in cache",
        FailureCause.HUB_UNREACHABLE,
        "The model is not on the node, and could not be downloaded.",
        "Download the GGUF beforehand and mount it, or give the container network access to the hub.",
        needle=("failed to download model", "download failed after", "required file is not available"),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.DEATH,
    ),
)
# Mainly from the reader of the file format.
FORMAT_FAILURES = (
    failure_rule(
        r"exactly one out metadata, path_model, and file must be defined",
        FailureCause.HUB_UNREACHABLE,
        "The requested model was not downloaded: the hub does not have it, or could not be reached.",
        "Correct model.path (ORGANISATION/REPOSITORY:QUANTIZATION), or download the GGUF beforehand and mount it.",
        needle="path_model",
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"no GGUF files found in repository (?P<repo>\S+)|file '(?P<file>[^']*)' not found in repository",
        FailureCause.MODEL_NOT_FOUND,
        "The hub has no such GGUF[: {repo}][: {file}].",
        "Correct model.path (ORGANISATION/REPOSITORY:QUANTIZATION).",
        needle="found in repository",
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"^(?:main: )?error: the supplied chat template is not supported(?:: (?P<name>.{1,120}))?",
        FailureCause.BAD_VALUE,
        "llama.cpp does not know the chat template[: {name}].",
        "Set args.jinja: true, which runs any template, or leave out args.chat-template for the model's own.",
        needle="supplied chat template is not supported",
        on="args.jinja",
        fatal=True,
    ),
    failure_rule(
        r"(?:quantized V cache|V cache quantization) requires flash_attn|quantized V cache was requested, but this requires Flash Attention",
        FailureCause.BAD_VALUE,
        "A quantized V cache needs flash attention.",
        "Set args.flash-attn: on, or leave args.cache-type-v out.",
        needle=("requires flash_attn", "requires Flash Attention"),
        on="args.flash-attn",
        fatal=True,
    ),
    failure_rule(
        r"^\w{2,60}: (?:failed to initialize the context: )?(?P<what>SPLIT_MODE_TENSOR requires flash_attn\b.{0,80}"
        r"|model does not support different K \(.{1,20}\) and V \(.{1,20}\) cache types"
        r"|[KV] cache type \S{1,20} with block size \d{1,6} does not divide .{1,60}|n_batch and n_ubatch cannot both be zero"
        r"|invalid value for main_gpu: .{1,60})",
        FailureCause.BAD_VALUE,
        "llama.cpp refused its settings: {what}",
        "Correct the setting that the message names (main_gpu: args.main-gpu; K and V cache type: args.cache-type-k, args.cache-type-v).",
        needle=(
            *(
                "SPLIT_MODE_TENSOR requires",
                "does not support different K ",
                " does not divide ",
                "n_ubatch cannot both be zero",
            ),
            "invalid value for main_gpu",
        ),
        fatal=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:srv +\w{1,40}: )?(?:\w{1,60}: )?(?P<what>the server is built without SSL support|--port 0 is not supported with .{1,60}"
        r"|static assets path not found: .{1,200})",
        FailureCause.BAD_VALUE,
        "llama.cpp refused its settings: {what}",
        "Leave out the setting that the message names, or take an image that was built with it.",
        needle=("built without SSL support", "--port 0 is not supported", "static assets path not found"),
        fatal=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"please consider disabling jinja via --no-jinja",
        FailureCause.BAD_VALUE,
        "The model's chat template cannot be run.",
        "Set args.no-jinja: true with args.chat-template: chatml, or name a corrected template in args.chat-template-file.",
        needle="disabling jinja via --no-jinja",
        on="args.chat-template-file",
        fatal=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^gguf_init\w{0,40}: (?P<what>(?:tensor '.{1,120}' (?:has|with|of type|size|dimension) .{1,160}|duplicate (?:key|tensor name) .{1,120}"
        r"|key '.{1,80}' (?:has invalid GGUF type|must be of type) .{1,60}|number of (?:tensors|key value pairs) is .{1,60}"
        r"|encountered (?:length_error|bad_alloc error) while reading .{1,100}|string length \d.{1,60}))",
        FailureCause.MODEL_FILES,
        "The GGUF is damaged, or was made by a tool of another version: {what}",
        "Download it again and compare its checksum with the hub's; if it is the same, take another quantization of this model.",
        needle="gguf_init",
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"invalid magic characters|invalid magic number|failed to read magic",
        FailureCause.MODEL_FILES,
        "The file is not a GGUF.",
        "Give the .gguf file itself, not its directory: llama.cpp reads no safetensors. head -c 99 FILE shows a web page "
        "that a failed download left in the model's place.",
        needle=("invalid magic", "failed to read magic"),
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"this GGUF file is version (?P<has>\d+) but this software only supports up to version (?P<most>\d+)"
        r"|GGUFv1 is no longer supported|bad GGUF version",
        FailureCause.MODEL_UNSUPPORTED,
        "This build cannot read the file's version of GGUF[ ({has}; at most {most})].",
        "Take a newer image, or convert the model again.",
        needle="GGUF",
        on="image",
        fatal=True,
    ),
    failure_rule(
        r"failed to read (?:header|key-value pairs|tensor info|tensor data)|exceeds (?:remaining )?file size|failed to seek to (?!init)",
        FailureCause.TRUNCATED_WEIGHTS,
        "The GGUF file ends before its header does: the download was cut.",
        "Download it again, and compare the size with the hub's.",
        needle=("exceeds remaining file size", "exceeds file size", "failed to read", "failed to seek to "),
        on=_MODEL_PATH_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"failed to initialize the context: (?P<what>\S.{0,300})",
        FailureCause.CRASHED,
        "The model is loaded, but llama.cpp cannot prepare its context: {what}",
        "Correct the setting that the message names (args.ctx-size, args.cache-type-k, args.cache-type-v, args.flash-attn), or take a newer "
        "image.",
        needle="failed to initialize the context: ",
        weight=FailureWeight.DEATH,
    ),
)
FLAG_FAILURES = (
    failure_rule(
        r"\b(?P<what>this custom template is not supported)",
        FailureCause.BAD_VALUE,
        "The chat template is none of those that llama.cpp knows: {what}",
        "Set args.jinja: true, which reads any, or args.chat-template to one that it knows (chatml).",
        needle="custom template is not supported",
        on="args.chat-template",
    ),
    failure_rule(
        r"\bInvalid diff: now finding less tool calls",
        FailureCause.ENGINE_BUG,
        "llama.cpp's reader of tool calls lost one while it streamed an answer, and the server ended.",
        "Take a newer build. Until then ask without stream where tools are given.",
        needle="now finding less tool calls",
    ),
    failure_rule(
        r"^error: invalid argument: (?P<program>(?:/\S{0,100}/)?(?:(?:ba|da|z)?sh|python[\d.]{0,5}|llama-server|server))$",
        FailureCause.UNKNOWN_FLAG,
        "llama-server was given the program {program} as an argument: it is the image's entrypoint itself.",
        "Leave {program} out, and give args alone. If a shell has to run first, set container.entrypoint to {program} (docker run "
        "--entrypoint).",
        needle="invalid argument",
        on="container.entrypoint",
        fatal=True,
    ),
    failure_rule(
        rf"^error: invalid argument: {_FLAG_PATTERN}",
        FailureCause.UNKNOWN_FLAG,
        "llama-server refused its flags: it does not know {flag}.",
        "Correct or remove args.{flag}: this image does not know it.",
        needle="invalid argument",
        on="args.{flag}",
        fatal=True,
    ),
    failure_rule(
        rf'^error while handling argument "{_FLAG_PATTERN}": the argument has been removed\.?(?P<what>.*)',
        FailureCause.UNKNOWN_FLAG,
        "This build of llama-server no longer takes {flag}[: {what}].",
        "Remove args.{flag}, or write what the line says.",
        needle="error while handling argument",
        on="args.{flag}",
        fatal=True,
    ),
    failure_rule(
        rf"^error while handling argument \"{_FLAG_PATTERN}\": error: un\w+ value for --flash-attn: '(?P<given>-[^']*)'",
        FailureCause.BAD_VALUE,
        "llama-server refused the value of {flag}: it took the next flag, {given}, for its value.",
        "-fa needs on, off or auto; the value it got was the next flag.",
        needle="--flash-attn: ",
        on="args.{flag}",
        fatal=True,
        to="on",
    ),
    failure_rule(
        rf'^error while handling argument "{_FLAG_PATTERN}": (?P<what>.*)',
        FailureCause.BAD_VALUE,
        "llama-server refused the value of {flag}: {what}",
        "Correct args.{flag}.",
        needle="error while handling argument",
        on="args.{flag}",
        fatal=True,
    ),
    failure_rule(
        r'^error while handling environment variable "(?P<name>\w+)": (?P<what>.*)',
        FailureCause.BAD_VALUE,
        "llama-server refused {name} of its environment: {what}",
        "Correct env.{name}.",
        needle="environment variable",
        on="env.{name}",
        fatal=True,
    ),
    failure_rule(
        r"^error: (?P<what>(?:unknown value|invalid|the supplied|--?[a-z-]+ is required|Invalid).*)",
        FailureCause.BAD_VALUE,
        "llama-server refused its command line: {what}",
        "Correct args.",
        needle="error: ",
        on="args",
        fatal=True,
    ),
    failure_rule(
        r"chat template parsing error: (?P<what>.*)",
        FailureCause.BAD_VALUE,
        "The chat template cannot be read: {what}",
        "Set args.chat-template, or a template file with args.chat-template-file.",
        needle="chat template parsing error",
        on="args.chat-template",
        fatal=True,
    ),
)
EXIT_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?:500 Internal Server Error: )?timed out waiting for llama[ -](?:runner|server) to start(?!.{{0,40}}context canceled)",
        FailureCause.TIMED_OUT,
        "Ollama's runner did not load the model in time.",
        "The lines before this one may name the reason: a slow disk, or too little memory. Where it only loads slowly, raise "
        "env.OLLAMA_LOAD_TIMEOUT.",
        needle="timed out waiting for llama",
        on="env.OLLAMA_LOAD_TIMEOUT",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"failed to load draft model, '(?P<path>[^']*)'|failed to create MTP context",
        FailureCause.MODEL_FILES,
        "The draft model cannot be loaded[: {path}].",
        "Correct args.model-draft, or leave speculation out (args.spec-type: none).",
        needle="failed to ",
        on="args.model-draft",
        fatal=True,
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"llama_model_loader: failed to load model from (?P<path>\S.{0,300})",
        FailureCause.MODEL_FILES,
        "The model's file could not be opened or read, and no line says why: {path}",
        "Look whether the file is there, whole and readable in the container (ls -l), and correct model.path or its mount.",
        needle="failed to load model from ",
        on=_MODEL_PATH_FIELD,
        fatal=True,
        weight=FailureWeight.LOST,
    ),
    failure_rule(
        r"exiting due to (?:model loading|HTTP server) error|failed to create_context with model|[Ff]ailed to load model"
        r"|failed to create context with model",
        FailureCause.CRASHED,
        "The model could not be loaded.",
        "The lines before this one name the reason.",
        needle=(
            "exiting due to",
            "failed to create context with model",
            "failed to create_context with model",
            "ailed to load model",
        ),
        fatal=True,
        weight=FailureWeight.AFTERMATH,
    ),
)
