"""Failure rules for what the libraries under every engine say: Triton, the JIT compilers, CUDA, the dynamic linker, Python's
imports, NCCL's plug-ins, TensorRT. They hold whichever engine runs, and where none is recognised.

A wrapper ("Capture cuda graph failed: X", "Exception in worker: X") contains the library's words, so these rules search
anywhere in a line, and stand before the engines' own rules for wrappers: the remedy follows the root.

After them: the rules for refused command lines, and for errors that no other rule knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkctl.engines.base import UNNAMED_REMEDY, Failure, FailureWeight
from sparkctl.engines.failures.docker_failures import GPUS_REMEDY
from sparkctl.engines.failures.memory_failures import SHELL_PREFIX, exit_code_needles, tells_exit_code
from sparkctl.engines.failures.model_file_failures import JSON_FAULT
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, EXCEPTION_WITHOUT_ERROR, MatchGroups, failure_rule
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.text.units import format_size
from sparkctl.model.verdict import ChangeDirection, FailureCause
from sparkctl.node import load_kernel_table

_MISSING_PART_REMEDY = (
    "<engine: Take another tag of this image. An image of your own: install the missing or matching version when it is built.> "
    "<program: Build its image again with what the program requires (of a Python program: pip install -r requirements.txt). "
    "An image of somebody else: take another tag.>"
)
_TORCH_INDEX = " --index-url https://download.pytorch.org/whl/cu130"
# Python's packages whose name differs from that of their module by more than _ and -: pypi.org.
_PACKAGES = {
    "PIL": "pillow",
    "cupy": "cupy-cuda13x",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
# Those of the same name. Another one is not named: anybody may have registered it.
_SAME_PACKAGES = re.compile(
    "accelerate|aiohttp|bitsandbytes|compressed_tensors|datasets|decord|diffusers|einops|fastapi|flask|gguf|gradio|huggingface_hub"
    "|kernels|librosa|lmcache|mistral_common|modelscope|numba|numpy|onnx|onnxruntime|openai|optimum|outlines|pandas|peft|psutil"
    "|pyarrow|pydantic|ray|requests|safetensors|scipy|sentence_transformers|sentencepiece|setuptools|soundfile|tiktoken|timm"
    "|tokenizers|torch|torch_directml|torchaudio|torchsde|torchvision|tqdm|transformers|triton|uvicorn|uvloop|xformers|xgrammar"
)
# What programs call directories of their own: what has such a name on pypi.org is something else.
_OWN_NAMES = re.compile(
    "api|app|backend|common|common_ops|config|core|helpers|main|models?|modules|nodes|server|shared|src|utils"
)
_OTHER_TAG_REMEDY = (
    "Take another tag of this image. A file that is mounted into it, or a patch, has to be one for this very version."
)
_NOT_MADE_FOR_IT = "A GPU kernel was not made for this GPU (a GB10 is sm_121): {what}"
_WITHOUT_DEEP_GEMM = "<vLLM: DeepGEMM is off with env.VLLM_USE_DEEP_GEMM: 0.> <SGLang: DeepGEMM is off with env.SGLANG_ENABLE_JIT_DEEPGEMM: 0.>"
_OTHER_BACKEND = "Choose another backend for it (attention, MoE, FP4 or sampling), or take an image built for sm_121."
# Bytes of shared memory that one block may use on a GB10 (compute capability 12.1): CUDA programming guide, technical
# specifications per compute capability.
_GB10_SHARED_MEMORY = 101_376
_PLACEHOLDER = re.compile(r"\b(?:your|YOUR|my|MY)_\w|<[A-Za-z][\w -]{0,40}>|/path/to\b|\bXXX")


def _describe_shared_memory_limit(groups: MatchGroups) -> MatchGroups:
    """Return whose limit it is, if the line's figure is a GB10's."""
    return {"whose": "a GB10's 99 KiB"} if groups.get("limit") == str(_GB10_SHARED_MEMORY) else {}


def _format_bytes_left(groups: MatchGroups) -> MatchGroups:
    """Return with a unit what the line gives in bytes."""
    return {"left": format_size(int(groups["bytes"]))} if "bytes" in groups else {}


def _name_python_package(groups: MatchGroups) -> MatchGroups:
    """Return what a module that is not there is a part of: Python names the whole package if that is what it does not find."""
    name, dot, part = groups.get("name", f"{groups.get('tree')}._C").partition(".")
    if dot:
        return {"unbuilt" if "_C" in part else "top": name}
    if _OWN_NAMES.fullmatch(name):
        return {"absent": name, "own": name}
    index = _TORCH_INDEX if name in ("torch", "torchaudio", "torchvision") else ""
    package = _PACKAGES.get(name) or (name.replace("_", "-") if _SAME_PACKAGES.fullmatch(name) else None)
    return {"absent": name} if package is None else {"absent": name, "package": package + index}


def _name_debian_package(groups: MatchGroups) -> MatchGroups:
    """Return the package of a library as Debian and Ubuntu name it: Debian Policy, 8.1."""
    return {"package": f"{groups['name'].lower()}{groups['number']}"}


def _quote_advice(groups: MatchGroups) -> MatchGroups:
    """Return what a message asks for, unless it holds a placeholder, which nobody can set."""
    advice = groups.get("advice", "")
    return {"nothing": ""} if _PLACEHOLDER.search(advice) else {"asks": advice}


# What a message asks for in its own words; a client's own words (a prompt, a request) are no setting.
_ADVICE = (
    r"(?:(?:[Pp]lease|[Yy]ou (?:should|must|need to|have to)) (?:try )?(?:set|provid|increas|decreas|reduc|lower|rais|specify|enabl|disabl"
    r"|remov|chang|choos|select|pass|adjust|use (?:--|`|'|\"|an? (?:smaller|larger|different|valid|higher|lower)))"
    r"|(?:[Tt]ry(?: to)?|[Cc]onsider|[Ss]uggest(?:ed to)?) (?:increas|decreas|reduc|lower|rais|set|disabl|enabl|remov|us)(?:ing|e)? ?"
    r"|(?:(?<=; )|(?<=\. )|(?<=, or ))(?:[Ss]et|[Ii]ncrease|[Dd]ecrease|[Rr]educe|[Ll]ower|[Rr]aise|[Dd]isable|[Ee]nable|[Rr]emove)\b)"
    r"(?!.{0,40}(?:prompt|request|messages|completion|input|pixel_values|_embed|\bbbox|(?:image|audio|video|text)s?`? (?:or|and|when|in)\b))"
)
_ADVICE_VERBS = [
    form
    for verb in ("set", "increase", "decrease", "reduce", "lower", "raise", "disable", "enable", "remove")
    for form in (verb, verb.capitalize())
]
_ADVICE_START = re.compile(_ADVICE)


def quote_asked(groups: MatchGroups) -> MatchGroups:
    """Return what a message that names a flag asks for, if it asks for anything."""
    found = _ADVICE_START.search(groups.get("what", ""))
    asks = "" if found is None else groups["what"][found.start() :]
    return {} if not asks or _PLACEHOLDER.search(asks) else {"asks": asks}


KERNEL_FAILURES = (
    failure_rule(
        r"(?P<what>This kernel only supports sm_?\d+\w*|Error occurred when running GEMM|Failed to run cutlass [\w ]{0,40}gemm[^.]{0,60}"
        r"|[\w ]{1,60}kernels? (?:are |is )?unavailable for .{0,80}on (?:the )?current platform"
        r"|[Cc]ould not construct (?:\w{1,20} ){1,3}op with the requested input combination.{0,120}"
        r"|SM_?1[12]\d [\w .-]{1,60} has no [\w -]{0,40}kernel\b.{0,120}"
        r"|FlashInfer Internal Error: Invalid configuration\b(?!.{0,40}NUM_MMA_).{0,160}|Unsupported max_mma_\w{1,10}: \d{1,6}"
        r"|Unsupported \w{0,40}_backend for \w{1,80}: \S{1,120}\. Expected .{1,160}"
        r"|(?:[Pp]latform|GPU|[Dd]evice) does not support [\w-]{1,40} quantization"
        r"|only supports? sm\d{2,3}\w? and above"
        r"|[\w .-]{1,60} (?:only supports?|(?:(?:is|are) )?only (?:supported|available) (?:on|for)) (?:NVIDIA )?(?:Ampere|Ada|Hopper|Blackwell"
        r"|SM\d{2,3}|sm_?\d{2,3})\b.{0,60}"
        r"|[\w .-]{1,60} (?:does not|doesn't) (?:yet )?support (?:SM ?|sm_?|compute capability )(?:8|9|1[0-2])[\d.x]{1,4}\b.{0,60}"
        r"|kernel \S{1,80} has no device code compatible with CUDA arch \d{3,4}.{0,100}"
        r"|Only (?:Ampere|Hopper|Blackwell)\b.{0,60}(?:GPUs? )?(?:are |is )?supported|cannot be enabled on [Pp]re-\w{1,20} [Aa]rch"
        r"|[Cc]utlass error: (?:Error )?Arch Mismatch|FlashInfer Internal Error: Unsupported \w{1,40}|[Uu]n(?:supported|known) (?:CUDA |cuda "
        r"|GPU )?(?:architecture|SM version|arch):? (?:sm_?)?\d{2,3}\w?"
        r"|[Nn]o (?:valid |suitable )?kernels? (?:found )?for (?:FMHA|this arch|this device|device sm_?\d{2,3}|(?:sm|SM)[_ ]?\d{2,3}|gfx\d).{0,60}"
        r"|[\w ]{1,60}quantization (?:is )?not supported on this (?:architecture|device)|No operator found for `memory_efficient_attention"
        r"|Bfloat16 is only supported on GPUs with compute capability)",
        FailureCause.KERNEL_UNSUPPORTED,
        "A GPU kernel was not made for this GPU (a GB10 is sm_121): {what}",
        _OTHER_BACKEND,
        needle=(
            *("This kernel only supports", "Error occurred when running GEMM", "Failed to run cutlass"),
            *("op with the requested input combination", " has no ", "n't support ", "n't yet support "),
            *(" does not yet support ", "FlashInfer Internal Error: Invalid configuration", " does not support "),
            *(" and above", "on current platform", "on the current platform", "nly support", "nly available "),
            *("Only Ampere", "Only Hopper", "Only Blackwell", "cannot be enabled on ", "Arch Mismatch"),
            *("FlashInfer Internal Error: Unsupported", "nsupported "),
            *("nknown CUDA ", "nknown cuda ", "nknown GPU ", "nknown arch", "nknown SM version"),
            "o kernel",
            "o valid kernel",
            "o suitable kernel",
            "not supported on this",
            "No operator found for `memory",
        ),
        on="image",
    ),
    failure_rule(
        r"Runtime compute cap (?P<gpu>\d{2,3}) is not compatible with compile time compute cap (?P<built>\d{2,3})",
        FailureCause.KERNEL_UNSUPPORTED,
        "The image was built for GPUs of sm_{built}, and this one is sm_{gpu}.",
        "Take the tag of this image that was built for this GPU (a GB10 is sm_121), or build it for that.",
        needle="Runtime compute cap ",
        on="image",
    ),
    failure_rule(
        r"out of resource: shared memory\b(?:, Required: (?P<wants>\d+)(?:, Hardware limit: (?P<limit>\d+))?)?",
        FailureCause.KERNEL_UNSUPPORTED,
        "A Triton kernel needs more shared memory for a block[ ({wants} bytes)] than this GPU has[: {limit}][ ({whose})].",
        "Choose another attention or MoE backend, whose blocks are smaller; where the engine lets you tune the kernel, "
        "fewer stages or smaller blocks.",
        needle="out of resource",
        on="args.attention-backend",
        worked_out=_describe_shared_memory_limit,
    ),
    failure_rule(
        r"(?P<what>\b(?:[Uu]nsupported|[Ii]nvalid|[Uu]nknown) head[_ ]?(?:dim(?:ension)?s?|size)\b.{0,80}"
        r"|\b[Hh]ead[_ ]?(?:dim(?:ension)?|size)\b:? ?=?\d{1,4} (?:is )?(?:not supported|unsupported).{0,120}"
        r"|[Ff]ailed to dispatch .{0,80}?\bhead_dim:? ?\d{1,4}.{0,40}|NUM_MMA_D_QK=\d+(?: NUM_\w{1,20}=\d+){0,6}"
        r"|\bonly supports? head[_ ]?dim(?:ension)?s?\b.{0,80})",
        FailureCause.ATTENTION_BACKEND,
        "The attention backend has no kernel for the size of this model's attention heads: {what}",
        "Set args.attention-backend to another one (triton takes most sizes), for the draft and for pictures, too, where they have a flag of "
        "their own.",
        needle=(
            *("supported head", "nvalid head", "nknown head", "ailed to dispatch ", "NUM_MMA_D_QK="),
            *(" is not supported", " not supported", " unsupported", "nly support"),
        ),
        on="args.attention-backend",
        exception=True,
    ),
    failure_rule(
        r"(?P<what>[\w ./-]{1,80} (?:(?:is|are) )?(?:only (?:supported|available|implemented)|not (?:yet )?supported) (?:in|by|with|for) (?:the )?"
        r"(?:FlashAttention|Flash ?Attn|FA[234]|fa[234]|FlashInfer|FlashMLA|Triton|TRT-?LLM|trtllm|XFormers|cuDNN|cudnn)[ _-]?"
        r"(?:[234]\b|[Aa]ttention|MLA|MHA|[Bb]ackend).{0,60})",
        FailureCause.ATTENTION_BACKEND,
        "The attention backend does not do what this model needs: {what}",
        "Set args.attention-backend to one that the line names, if it runs on this GPU, or leave it out: the engine then chooses.",
        needle=(*("only supported ", "only available ", "only implemented ", "not supported ", "not yet supported "),),
        on="args.attention-backend",
        exception=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<what>Unsupported [\w-]{1,40} (?:prefill|decode|attention|MoE|GEMM) configuration\b.{0,120})",
        FailureCause.KERNEL_UNSUPPORTED,
        "No kernel was made for this model's shape on this GPU: {what}",
        _OTHER_BACKEND,
        needle=" configuration",
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<what>(?<![\w `'.-])(?! {0,4}[Hh]ead[_ ]?(?:size|dim)\b)[\w `'.-]{1,100}(?:not supported|unsupported) (?:for|by|with|in) (?:the )?"
        r"(?:[Ff]lash[Ii]nfer|[Cc][Uu][Tt][Ll][Aa][Ss][Ss]|[Tt]riton|[Mm]arlin|DeepGEMM|deep_gemm|trtllm|TRT-?LLM)\b.{0,80}"
        r"|(?:[Ff]lash[Ii]nfer|cutlass|CUTLASS|Triton|Marlin|DeepGEMM|TRT-?LLM) kernels? (?:is|are) only supported for .{1,80})",
        FailureCause.KERNEL_UNSUPPORTED,
        "A backend has no kernel for what this model needs: {what}",
        "Choose another MoE or FP4 backend, or take a newer image. <vLLM: The flag is args.moe-backend.> "
        "<SGLang: The flag is args.moe-runner-backend.>",
        needle=("supported for ", "supported by ", "supported with ", "supported in "),
        exception=True,
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"[Aa]ssertion error \(?\S{0,200}?(?:layout|gemm|attention|einsum|hyperconnection)\.hpp:\d{1,6}\)?:? '?"
        r"(?P<what>Un(?:known|supported|expected|implemented) .{1,160})",
        FailureCause.KERNEL_UNSUPPORTED,
        "DeepGEMM has no kernel for these scales on this GPU: {what}",
        "Start without it, or choose another backend for the FP8 layers and the experts. DeepGEMM is made for data-centre GPUs, not for a GB10 "
        f"(sm_121). {_WITHOUT_DEEP_GEMM}",
        needle="ssertion error ",
    ),
    failure_rule(
        r"(?:nvrtc|nvcc|NVRTC)\b.{0,60}\binvalid value for --gpu-architecture|nvcc fatal {1,4}: {1,4}Unsupported gpu architecture",
        FailureCause.KERNEL_UNSUPPORTED,
        "The image's CUDA compiler is older than this GPU and does not know it (a GB10 is sm_121).",
        "Take an image of CUDA 13 (12.9 at least).",
        needle=("invalid value for --gpu-architecture", "Unsupported gpu architecture"),
        on="image",
    ),
    failure_rule(
        r"(?P<what>\b(?:CUDNN|CUBLAS|CUSPARSE|CUSOLVER|CUFFT)_STATUS_(?:NOT_SUPPORTED_)?ARCH_MISMATCH|^KeyError: '(?:sm_?|compute_)12[01][af]?'$"
        r"|^KeyError: \(12, [01]\)$)",
        FailureCause.KERNEL_UNSUPPORTED,
        "A library in the image does not know this GPU, or has no kernel for it (a GB10 is sm_121): {what}",
        "Take an image with a newer CUDA and cuDNN (CUDA 13), or choose another backend for it.",
        needle=("_ARCH_MISMATCH", "KeyError: '", "KeyError: (12, "),
        on="image",
    ),
    failure_rule(
        r"(?P<what>\bCUBLAS_STATUS_NOT_SUPPORTED|\b[Nn]o (?:valid )?execution plans (?:built|support the graph))",
        FailureCause.KERNEL_UNSUPPORTED,
        "A CUDA library in the image has no kernel for these number types and sizes on this GPU: {what}",
        "Choose another backend for it (attention, MoE, FP4 or FP8), take a model in another number format, or an image with a newer CUDA and "
        "cuDNN (CUDA 13).",
        needle=("CUBLAS_STATUS_NOT_SUPPORTED", "o execution plans ", "o valid execution plans "),
        exception=True,
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?:requires?|needs?) (?:at least )?(?P<wants>\d{1,7} ?(?:[KM]i?B|bytes)?) of (?:dynamic |static )?shared memory"
        r"(?:.{0,80}?(?:supports?|has|have|limit(?: is)?|maximum(?: is)?|available:?) (?:only )?(?P<has>\d{1,7} ?(?:[KM]i?B|bytes)?))?",
        FailureCause.KERNEL_UNSUPPORTED,
        "A GPU kernel needs {wants} of shared memory for a block, more than this GPU has[: {has}] (a GB10: 99 KiB).",
        _OTHER_BACKEND,
        needle=" shared memory",
        exception=True,
        on="args.attention-backend",
    ),
    failure_rule(
        r"(?P<what>[\w .'-]{0,80}(?:not (?:available|supported|implemented)|unavailable|unsupported) (?:on this (?:GPU )?arch(?:itecture)?\b"
        r"(?: \(sm_?\d{2,3}\w?\))?|(?:for|in) this (?:GPU )?arch(?:itecture)? \((?:sm_?\d{2,3}\w?|\d{1,2}(?:, |\.)\d)\)))",
        FailureCause.KERNEL_UNSUPPORTED,
        "A GPU kernel was not made for this GPU (a GB10 is sm_121): {what}",
        _OTHER_BACKEND,
        needle=(" on this ", " for this ", " in this "),
        exception=True,
        on="image",
    ),
    failure_rule(
        r"(?P<what>type fp8\w{1,12} not supported in this architecture)",
        FailureCause.KERNEL_UNSUPPORTED,
        "A Triton kernel uses a number format that this GPU does not have: {what}",
        "Take a model or a KV cache in another format, or choose another backend for it.",
        needle=" not supported in this architecture",
        on="args.quantization",
    ),
    failure_rule(
        r"^(?:ggml_[a-z_]{1,60}|\S{1,40}): (?:error: )?op not supported (?P<what>\S.{0,80})",
        FailureCause.KERNEL_UNSUPPORTED,
        "llama.cpp's backend has no kernel for a part of this model: {what}",
        "Take a newer build. <llama.cpp: Until then keep that part on the CPU (args.override-tensor).>",
        needle="op not supported ",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"[Ff]ailed to set the (?:allowed|maximum) dynamic shared memory size to (?P<wants>\d+)",
        FailureCause.KERNEL_UNSUPPORTED,
        "A GPU kernel needs {wants} bytes of shared memory for a block, more than this GPU has (a GB10: 101376).",
        _OTHER_BACKEND,
        needle="dynamic shared memory size to ",
        on="args.attention-backend",
    ),
    failure_rule(
        r"out of resource: (?P<what>threads|registers|tensor memory)\b.*",
        FailureCause.KERNEL_UNSUPPORTED,
        "A Triton kernel needs more {what} than this GPU has.",
        "Choose another attention or MoE backend.",
        needle="out of resource",
        on="args.attention-backend",
    ),
    failure_rule(
        r"(?P<what>No supported CUDA architectures found[^.]*|[Oo]nly supports? (?:SM|sm_?)\d+\w*[^.]{0,80}"
        r"|(?:requires?|needs?|wants?|supported only on|is only supported on) (?:an? )?(?:GPUs? (?:with |of )?)?"
        r"(?:SM ?|sm_?|compute capability )(?:>=? ?)?(?:[789]|1[0-9])[\d.]*\w*[^.]{0,80}"
        r"|[Oo]nly (?:SM|sm_?|compute capability) ?\d[\w., ]{0,60}? (?:is|are) supported"
        r"|[Aa]rch conditional MMA instruction used without targeting appropriate compute capability"
        r"|tcgen05[\w.]{0,40} .{0,40}(?:not supported|requires)"
        r"|No [\w-]{1,20} (?:MoE|[Ll]inear|GEMM|attention) backend supports the deployment configuration"
        r"|Unsupported FusedMoe scheme: .{0,160}"
        r"|Kernel requires a runtime memory allocation, but no allocator was set"
        r"|(?:Failed to find|[Cc]ould not find|No) (?:an? |any |suitable |valid |available |compatible |\w{2,20} ){0,3}kernels? "
        r"(?:that|which|for|found|available|implements)\b[^.]{0,100}"
        r"|(?:GEMM|gemm|grouped_mm|scaled_mm)[\w ]{0,40}(?:not supported|no valid|not implemented)[\w ]{0,40}(?:SM|sm_?)\d+)",
        FailureCause.KERNEL_UNSUPPORTED,
        _NOT_MADE_FOR_IT,
        _OTHER_BACKEND,
        needle=(
            *("backend supports the deployment configuration", "kernel", "no valid", "need", "want", "nly support"),
            *("rch conditional MMA instruction used without targeting appropriate compute capability", "require"),
            *("supported", "not implemented"),
        ),
        exception=True,
        on="image",
    ),
    # What was not made stands before these words: to look for that first takes a hundred times as long.
    failure_rule(
        r"(?P<what>[\w ./-]{0,60}(?:not |un)supported (?:on|for|by) (?:(?:this|your|the current) GPU"
        r"|(?:device with )?(?:SM ?|sm_?|compute capability )\d[\d.]{0,6}\w?)"
        r"|[\w ./-]{1,80} (?:not implemented|not supported|unsupported|not available) (?:on|for|by) (?:Blackwell|GB10|DGX Spark)\b"
        r"|\b\w{2,20} kernels? (?:(?:is|are|was|were) )?not found\b.{0,80})",
        FailureCause.KERNEL_UNSUPPORTED,
        _NOT_MADE_FOR_IT,
        _OTHER_BACKEND,
        needle=(
            *(
                f"{what} {where} "
                for what in ("supported", "not implemented", "not available")
                for where in ("on", "for", "by")
            ),
            *(f"kernel{verb}not found" for verb in (" ", "s ", " is ", " was ", "s are ", "s were ")),
        ),
        exception=True,
        on="image",
    ),
    # A check of the GPU's own architecture: DeepGEMM's 'arch_major == 9 or arch_major == 10', CUTLASS's `arch >= 90`.
    failure_rule(
        r"(?:ssertion(?: error | failed| `|Error: )|Check failed: ).{0,300}?['\"` (]"
        r"(?P<what>[\w.>-]{0,30}?(?:arch|sm|cc|capability)(?:_?(?:major|minor|version))?"
        r"(?:\(\)|\[0\]){0,2} ?(?:==|>=|<=|<|>|in) ?[(\[]?\d[^'`\"]{0,80})",
        FailureCause.KERNEL_UNSUPPORTED,
        "A kernel was not made for this GPU (a GB10 is sm_121): it asks for {what}",
        f"{_OTHER_BACKEND} Or start without DeepGEMM. {_WITHOUT_DEEP_GEMM}",
        needle=("ssertion error ", "ssertion failed", "ssertion `", "ssertionError: ", "Check failed: "),
        on="image",
    ),
)
# Warnings of FlashInfer's import and of NVIDIA's images: what needs the kernels says so itself, and what does not goes on.
_TOOLKIT_WARNINGS = (
    failure_rule(
        r"^(?:WARNING: )?Detected (?:NVIDIA )?(?P<gpu>.{1,60}?) GPU, which is not (?:yet )?supported",
        FailureCause.KERNEL_UNSUPPORTED,
        "This image of NVIDIA's is older than this GPU and does not know it ({gpu}).",
        "Take a newer tag of it (for a GB10 one of CUDA 13). It may run all the same: then what failed is another line.",
        needle="GPU, which is not ",
        on="image",
        weight=FailureWeight.LOST,
        at_any_level=True,
        warning=True,
    ),
    failure_rule(
        r"\bNo supported GPU\(s\) detected",
        FailureCause.GPU_RUNTIME_MISSING,
        "This image of NVIDIA's finds no GPU that it can use.",
        f"{GPUS_REMEDY} If the container has a GPU (nvidia-smi in it), the image is older than the GPU: take a newer tag, for a GB10 one of "
        "CUDA 13.",
        needle="No supported GPU(s) detected",
        on="container.gpus",
        weight=FailureWeight.DYING,
        warning=True,
    ),
    failure_rule(
        r"\bSM (?P<arch>1[12])\.x requires CUDA >= (?P<wants>[\d.]{1,8}\d)",
        FailureCause.KERNEL_UNSUPPORTED,
        "FlashInfer compiles no kernel for this GPU (sm_{arch}x): the image's CUDA is older than {wants}.",
        "Take an image with a newer CUDA, or choose another backend than FlashInfer for attention, sampling and MoE.",
        needle=".x requires CUDA >= ",
        on="image",
        weight=FailureWeight.LOST,
        warning=True,
    ),
)
_OTHER_COMPILER = (
    "Take a newer image[: most often its {triton} is older than the GPU (a GB10 is sm_121), or the kernel uses a number format that the GPU "
    "does not have], or choose another backend for the kernel. <vLLM: The flags are args.attention-backend[ (TRITON_ATTN needs no {nvcc})] "
    "and, for experts, args.moe-backend[ (triton needs no {nvcc})].> <SGLang: The flags are args.attention-backend and, for experts, "
    "args.moe-runner-backend[ (triton needs no {nvcc})].>"
)


def _find_compiler(groups: MatchGroups) -> MatchGroups:
    """Return which compiler failed: a backend helps whose kernels another one makes."""
    is_triton = re.search(r"\.py\b|\btt\.|mlir|LLVM|ptxas|[Tt]riton|legalize", " ".join(groups.values()))
    return {"triton": "Triton"} if is_triton else {"nvcc": "nvcc"}


# Headers that a compiler without the development files of CUDA, Python or C does not find.
_MISSING_HEADER = (
    r"fatal error: (?:Python\.h|cuda\w*\.h|cu\w{1,30}\.h|nv\w{1,30}\.h|\w+\.cuh?"
    r"|(?:std\w{2,6}|limits|features|string|math|bits/\S{1,40})\.h): No such file or directory"
)
JIT_FAILURES = (
    failure_rule(
        r"^(?P<what>\w{1,40}Error: .{1,200}): read by torch_compile_cache/",
        FailureCause.JIT_FAILED,
        "What an earlier start compiled and left in the cache does not fit this one: {what}",
        "Remove the directory torch_compile_cache (in the container ~/.cache/vllm, or what is mounted there), on each node. "
        "<vLLM: Or set env.VLLM_DISABLE_COMPILE_CACHE: 1.>",
        needle=": read by torch_compile_cache/",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<what>Assertion error \(include_parser\.hpp\S{0,20} ?.{0,200}"
        r"|Could not find nvcc[^.]*|nvcc: (?:command )?not found|Failed to find C(?:\+\+)? compiler[^.]*"
        r"|CUDA_HOME environment variable is not set|No such file or directory: '(?:\S*/)?(?:nvcc|ninja|gcc|g\+\+|cc|c\+\+)'"
        rf"|Ninja is required to load C\+\+ extensions|{_MISSING_HEADER}"
        r"|(?:/\S{1,80}/)?ld: cannot find -l(?:cuda|cudart|cublas|nvrtc)\w{0,20}|ninja: not found|No module named 'ninja'"
        r"|command '?(?:\S{0,80}/)?(?:gcc|g\+\+|cc|c\+\+|nvcc|clang)'? failed: No such file or directory|failed to open libnvrtc-builtins\S{0,20})",
        FailureCause.JIT_FAILED,
        "The image lacks a part that it needs to compile kernels at the start: {what}",
        "Take an image with the CUDA toolkit and a C compiler with its headers (a devel image; where only gcc's are missing: install "
        "build-essential), or choose a backend that brings its kernels compiled.",
        needle=(
            *("Assertion error (include_parser.hpp", ": No such file or directory"),
            *("CUDA_HOME environment variable is not set", "Could not find nvcc", "Failed to find C"),
            *("Ninja is required to load C++ extensions", "No such file or directory: '", "not found"),
            *("ld: cannot find -l", "No module named 'ninja'", " failed: No such file", "failed to open libnvrtc"),
        ),
        on="image",
    ),
    failure_rule(
        # The compiler's own error says more than the build tool that ran it, before or after: ``f.cu(12): error: …``.
        r"^(?:[^\s:(]{0,400}/)?(?P<file>[^\s:(/]{1,100}\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|inl|py))(?P<line>\(\d{1,7}\)|:\d{1,7}:\d{1,5}): "
        rf"(?!{_MISSING_HEADER})(?:fatal )?error: (?P<what>(?!Failures have been detected|failed to legalize).{{1,300}})"
        r"|\b(?P<ptx>ptxas) \S{1,200}(?: \w{1,20}){0,2}, line \d{1,9}; error {1,4}: (?P<said>.{1,300})",
        FailureCause.JIT_FAILED,
        "A kernel could not be compiled at the start: [{what} ({file}{line})][{said} ({ptx})].",
        _OTHER_COMPILER,
        needle=("error: ", "; error "),
        worked_out=_find_compiler,
        on="image",
        weight=FailureWeight.LIKELY + 1,
        warning=True,
    ),
    failure_rule(
        r"(?P<what>Ninja build failed|Error building extension '[^']*'|ninja: build stopped: subcommand failed"
        r"|nvcc (?:fatal|error)\s*: .{0,160}|NVRTC (?:compilation )?(?:error|failed).{0,160}|nvrtc: error: .{0,160}"
        r"|(?:Inductor|BackendCompiler|CppCompile|CompilationFail)\w{0,40}: .{0,160}"
        r"|Command '\[?'?(?:/[\w./+-]{1,200}/)?(?:ptxas|nvcc|ninja|gcc|g\+\+|cc|c\+\+|clang)'?[ ,].{0,300}returned non-zero exit status \d+"
        r"|CalledProcessError: Command '\[?'?(?:/[\w./+-]{1,200}/)?(?:ptxas|nvcc|ninja|gcc|g\+\+|cc|c\+\+|clang)'(?=.{0,4000}$)"
        r"|PTXAS error: .{0,160}|ptxas fatal\s*: Ptx assembly aborted\b.{0,80}"
        r"|ptxas`? (?:failed with|exited with).{0,160}|triton\.compiler\.errors\.\w{1,60}: .{0,160}"
        r"|NVRTC_ERROR_\w{1,60}|NVCC compilation failed|NVVM compilation failed|PassManager::run failed|LLVM ERROR: .{0,160}"
        r"|\bmlir::.{0,200}Assertion `.{1,160} failed|error: failed to legalize operation.{0,80}"
        r"|command '?(?:\S{0,80}/)?(?:gcc|g\+\+|cc|c\+\+|nvcc|clang)'? failed with exit (?:code|status) \d+"
        r"|Ran out of memory in memory space (?:[vsc]mem|sflag)\b.{0,80}"  # XLA, of a kernel: of the device's own memory it says hbm
        r"|[Ff]ailed to compile (?:the )?(?:CUDA )?kernels?\b.{0,80}|(?:Assertion|CUDA driver) error \(?\S{0,200}?\bjit/\w{1,60}\.[ch]pp:.{1,80})",
        FailureCause.JIT_FAILED,
        "A kernel could not be compiled at the start: {what}",
        f"{_OTHER_COMPILER} Where this line gives no reason, the compiler's own error stands before it.",
        needle=(
            *("BackendCompiler", "CompilationFail", "CppCompile", "Error building extension '", "Inductor", "NVRTC "),
            "Ninja build failed",
            *("PTXAS error:", "CalledProcessError: Command '"),
            "ptxas fatal",
            "exited with",
            "failed with",
            "ninja: build stopped: subcommand failed",
            "nvcc ",
            "nvrtc: error:",
            "returned non-zero exit status",
            "triton.compiler.errors.",
            "NVRTC_ERROR_",
            "NVCC compilation failed",
            "NVVM compilation failed",
            "PassManager::run failed",
            "LLVM ERROR: ",
            "mlir::",
            "failed to legalize operation",
            "ailed to compile ",
            "in memory space ",
            "jit/",
        ),
        worked_out=_find_compiler,
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<what>\S.{0,300}): raised by Triton's compiler \((?P<stage>[\w<>]{1,80})\)$",
        FailureCause.JIT_FAILED,
        "Triton could not compile a kernel for this GPU: {what} (in {stage}).",
        _OTHER_COMPILER,
        needle=": raised by Triton's compiler (",
        worked_out=lambda _: {"triton": "Triton"},
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<path>/\S{{0,200}}(?:/torch_extensions|/\.cache|/\.triton|/\.tilelang|/jit|/tmp)/\S{{1,200}}?\.so): "
        r"(?:cannot open shared object file|file too short|invalid ELF header|failed to map segment)",
        FailureCause.JIT_FAILED,
        "A library that is compiled at its first use is not there, or not whole: {path}",
        "Several ranks that compile it at once, or a build that broke off, leave it so. Remove its directory and start again; where it is "
        "not kept between starts, let one request run before others come. A compiler's error may stand before this line.",
        needle=(
            *(": cannot open shared object file", ": file too short", ": invalid ELF header"),
            ": failed to map segment",
        ),
        weight=FailureWeight.LIKELY,
    ),
)
_WITHOUT_GRAPHS = "<vLLM: Set args.enforce-eager for that.> <SGLang: Set args.disable-cuda-graph for that.> "
_WITHOUT_GRAPHS += (
    "<llama.cpp: env.GGML_CUDA_DISABLE_GRAPHS: 1 leaves them out; the line after the error names the function.>"
)
_GPU_FAULT_REMEDY = (
    f"A newer image may not do it. To find the kernel: start without CUDA graphs, and with {{gpu_trace}} the "
    f"program names it. {_WITHOUT_GRAPHS} `dmesg` on the node may "
    "show {gpu_report}."
)


def _keep_remedy(failure: Failure, _: Mapping[EngineFactName, str]) -> Failure:
    """Return a fault of the hardware as it is: drafts are no suspect."""
    return failure


_XID_SOURCE = "docs.nvidia.com/deploy/xid-errors"
# How programs begin what CUDA told them: "CUDA error 9 at x.cu:1: ", "Failed: Cuda error x.cuh:453 '", "CUDA driver error in f(): ".
_CUDA_SAYS = r"(?:(?:CUDA|Cuda|cuda|ROCm|HIP|MUSA)(?: [Dd]river| [Rr]untime| API)? [Ee]rror\b|Triton Error \[\w{2,8}\]:|GPUassert:).{0,300}?"
# The names of CUDA's own errors: cudaGetErrorString, and the driver's CUresult.
_CUDA_CALL_FAILURES = (
    failure_rule(
        rf"{_CUDA_SAYS}(?P<what>no kernel image is available|device kernel image is invalid|invalid device function"
        r"|cudaError(?:NoKernelImageForDevice|InvalidKernelImage|InvalidDeviceFunction)\b)"
        r"|CUDA_ERROR_(?P<name>NO_BINARY_FOR_GPU|INVALID_IMAGE|INVALID_SOURCE)\b|HSA_STATUS_ERROR_(?P<isa>INVALID_ISA)\b"
        r"|hipError(?P<hip>NoBinaryForGpu|InvalidImage|InvalidDeviceFunction|InvalidKernelFile|SharedObject\w{1,20})\b"
        r"|(?P<blas>TensileLibrary\.dat: .{0,40}for GPU arch ?: ?\w+)",
        FailureCause.KERNEL_UNSUPPORTED,
        "The image has no GPU code for this GPU (a GB10 is sm_121)[: {what}][: {name}][: {isa}][: {hip}][: {blas}].",
        "Take an image built for sm_121.",
        needle=(
            "no kernel image is available",
            "device kernel image is invalid",
            "invalid device function",
            *("cudaErrorNoKernelImage", "cudaErrorInvalidKernelImage", "cudaErrorInvalidDeviceFunction"),
            *("CUDA_ERROR_NO_BINARY", "CUDA_ERROR_INVALID_", "hipErrorNoBinary", "hipErrorInvalid"),
            *("hipErrorSharedObject", "HSA_STATUS_ERROR_INVALID_", "TensileLibrary.dat"),
        ),
        on="image",
    ),
    failure_rule(
        rf"{_CUDA_SAYS}\b(?P<what>operation not supported|the requested functionality is not supported)|CUDA_ERROR_(?P<name>NOT_SUPPORTED)\b",
        FailureCause.KERNEL_UNSUPPORTED,
        "The engine asked the GPU or its driver for something that it does not have ([{what}][{name}]).",
        "Choose another backend for it (attention, MoE, memory allocation, all-reduce), or take an image built for the GB10.",
        needle=("operation not supported", "the requested functionality is not supported", "CUDA_ERROR_NOT_SUPPORTED"),
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"CUDA unknown error - this may be due to an incorrectly set up environment",
        FailureCause.GPU_RUNTIME_MISSING,
        "CUDA does not start in the container: the driver's devices are there but do not answer.",
        "`nvidia-smi` on the node and in the container says whether the driver works; reload nvidia_uvm (sudo modprobe -r "
        "nvidia_uvm && sudo modprobe nvidia_uvm), or reboot the node.",
        needle="CUDA unknown error - ",
        on="container.gpus",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{_CUDA_SAYS}\b(?P<what>(?<!rror: )initialization error|unknown error|system not yet initialized|invalid device ordinal"
        r"|no CUDA-capable device is detected|CUDA-capable device\(?s\)? (?:is/)?are busy or unavailable)"
        r"|(?:CUDA_ERROR_|hipError)(?P<name>NOT_INITIALIZED|NO_DEVICE|INVALID_DEVICE|SYSTEM_NOT_READY|UNKNOWN|NoDevice|InvalidDevice"
        r"|NotInitialized)\b",
        FailureCause.GPU_RUNTIME_MISSING,
        "CUDA does not start in the container[: {what}][: {name}].",
        "`nvidia-smi` on the node and in the container says whether the driver works; set container.gpus: all. After a driver "
        "update reboot the node.",
        needle=(
            *("initialization error", "unknown error", "system not yet initialized", "invalid device ordinal"),
            *("no CUDA-capable device is detected", "are busy or unavailable"),
            *("CUDA_ERROR_", "hipError"),
        ),
        on="container.gpus",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{_CUDA_SAYS}\b(?P<what>an illegal [\w ]{{1,40}}|misaligned address|unspecified launch failure|device-side assert triggered"
        r"|invalid (?:configuration argument|program counter|resource handle|address space)|hardware stack error"
        r"|too many resources requested for launch|the launch timed out|resource already mapped"
        r"|the operation cannot be performed in the present state"
        r"|cudaError(?:Illegal\w{1,20}|MisalignedAddress|Launch(?:Failure|Timeout|OutOfResources)|Assert|HardwareStackError)\b)"
        r"|^(?P<bare>an illegal memory access was encountered|misaligned address|unspecified launch failure|device-side assert triggered)"
        r" \w{1,60}(?:::\w{1,60}){0,4}\(.{0,200}$"
        r"|CUDA_ERROR_(?P<name>ILLEGAL_\w{1,20}|LAUNCH_\w{1,30}|MISALIGNED_ADDRESS|ASSERT|HARDWARE_STACK_ERROR)\b"
        r"|(?P<other>hipError(?:Illegal\w{1,20}|Launch\w{1,20}|Assert)|HSA_STATUS_ERROR_(?:EXCEPTION|ILLEGAL_INSTRUCTION"
        r"|MEMORY_(?:APERTURE_VIOLATION|FAULT))|(?:UR_RESULT|ZE_RESULT|PI)_ERROR_DEVICE_LOST|VK_ERROR_DEVICE_LOST|ErrorDeviceLost)\b"
        r"|(?P<neuron>NRT_EXEC_\w{2,40}|Failed to execute the model status=\d{1,5} message=\S.{0,120})"
        r"|(?P<npu>(?:ACL [\w ]{1,60} failed, |NPU function error: .{1,120}?, )error code(?: is |: ?)5070\d\d)\b",
        FailureCause.GPU_FAULT,
        "A GPU kernel failed while it ran ([{what}][{bare}][{name}][{other}][{neuron}][{npu}]); this line does not say which.",
        _GPU_FAULT_REMEDY,
        needle=(
            *("an illegal ", "misaligned address", "unspecified launch failure", "device-side assert triggered"),
            *("invalid configuration argument", "invalid program counter", "invalid resource handle"),
            *("invalid address space", "hardware stack error", "too many resources requested"),
            "the launch timed out",
            *("resource already mapped", "cannot be performed in the present state"),
            *("cudaErrorIllegal", "cudaErrorMisaligned", "cudaErrorLaunch", "cudaErrorAssert", "cudaErrorHardware"),
            "CUDA_ERROR_",
            "hipError",
            "HSA_STATUS_ERROR_",
            "_ERROR_DEVICE_LOST",
            "ErrorDeviceLost",
            "NRT_EXEC_",
            "execute the model status=",
            *("error code is 5070", "error code: 5070", "error code:5070"),
        ),
        weight=FailureWeight.LIKELY,
    ),
)
# By kind of a row in the table by which the kernel's own log is read: what each of its lines contains.
_KERNEL_NEEDLES = {
    "gpu-lost": (
        "fallen off the bus",
        "probe routine failed",
        "RmInitAdapter failed",
        "rm_init_adapter failed",
        "GPU is probably locked",
    ),
    "pcie": (": AER: ", ": PCIe Bus Error: ", ": DPC: containment event"),
    "network-card": ("mlx5_core ", "(mlx5_core)"),
    "hardware": ("[Hardware Error]: event severity: ", "EDAC "),
    "program-crash": ("]: segfault at ", "]: unhandled "),
    "rdma-memory": ("mlx5_", "infiniband", "ib_umem", "ibv_reg_mr"),
    "disk": ("nvme ", "(sct 0x", ", dev ", " on dev "),
    "thermal": ("ritical temperature reached",),
    "filesystem": ("EXT4-fs", "read-only", "readonly", "hutting down filesystem", "orruption"),
    "wifi": ("mt79", "mt76"),
    "hung-task": ("blocked for more than", "soft lockup", "hard LOCKUP", "rcu: "),
    "kernel-fault": (
        *(
            "Internal error: ",
            "SError Interrupt",
            "Oops: ",
            "Unable to handle kernel",
            "Kernel panic - ",
            "unable to handle",
        ),
        "kernel BUG at",
    ),
}
# What is throttled goes on, and so does what the SMMU stopped.
_NO_FAILURES = {"thermal": ("note", "warning"), "hardware": ("note", "warning")}
_KERNEL_CAUSES = {
    "gpu-lost": FailureCause.GPU_FAULT,
    "network-card": FailureCause.NCCL,
    "rdma-memory": FailureCause.NCCL,
}
# An oops names its driver in a later line.
_KERNEL_WEIGHTS = {
    "kernel-fault": FailureWeight.DEATH,
    "hung-task": FailureWeight.DEATH,
    "program-crash": FailureWeight.DEATH,
    "wifi": FailureWeight.CONCRETE,
}
GPU_FAULTS = (
    # What each number means stands in the table by which the kernel's own log is read.
    *(
        failure_rule(
            rf"NVRM: Xid(?: \([^)]{{1,60}}\))?: {number}\b(?!, .{{0,80}} to 0x0 \(None\))",
            FailureCause.GPU_FAULT,
            f"The NVIDIA driver reports Xid {number}: {row['meaning']}.",
            f"{row['remedy']} ({_XID_SOURCE})",
            needle="NVRM: Xid",
            weight=FailureWeight.CONCRETE if row["severity"] == "problem" else FailureWeight.LIKELY,
            refine=_keep_remedy if row["severity"] == "problem" else None,
        )
        for number, row in load_kernel_table()["xids"].items()
    ),
    # So do the other rows of that table; what has rules of its own is left out.
    *(
        failure_rule(
            row["pattern"],
            _KERNEL_CAUSES.get(row["kind"], FailureCause.CRASHED),
            f"The node's kernel reports: {row['meaning']}.",
            row["remedy"],
            needle=_KERNEL_NEEDLES[row["kind"]],
            weight=_KERNEL_WEIGHTS.get(row["kind"], FailureWeight.LIKELY)
            if row["severity"] == "problem"
            else FailureWeight.LOST,
            refine=_keep_remedy,
            at_any_level=True,
        )
        for row in load_kernel_table()["rules"]
        if row["kind"] in _KERNEL_NEEDLES and row["severity"] not in _NO_FAILURES.get(row["kind"], ("note",))
    ),
    # A library's words for the same: the memory itself is at fault, and no other image or setting mends that.
    failure_rule(
        r"uncorrectable (?:NVLink|(?P<memory>ECC)) error(?: encountered)?|cudaError(?:ECC|Nvlink)Uncorrectable"
        r"|CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE",
        FailureCause.GPU_FAULT,
        "The GPU reports an error of its hardware that cannot be corrected[ (its memory: {memory})].",
        load_kernel_table()["xids"]["48"]["remedy"],
        needle=("uncorrectable ECC error", "uncorrectable NVLink error", "Uncorrectable", "_UNCORRECTABLE"),
        fatal=True,
        refine=_keep_remedy,
    ),
    failure_rule(
        r"NVRM: Xid(?: \([^)]{1,60}\))?: (?!154, .{0,80} to 0x0 \(None\))(?P<code>\d+)(?:, (?P<what>.{0,160}))?",
        FailureCause.GPU_FAULT,
        "The NVIDIA driver reports a fault of the GPU: Xid {code}[ ({what})].",
        _GPU_FAULT_REMEDY,
        needle="NVRM: Xid",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"Error Code 1: Cuda Runtime \((?P<what>(?!out of memory|no kernel)[\w ]{1,60})\)",
        FailureCause.GPU_FAULT,
        "A GPU kernel failed while it ran ({what}); this line does not say which.",
        _GPU_FAULT_REMEDY,
        needle="Error Code 1: Cuda Runtime (",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"Check failed: \(?\w{1,40} == cudaSuccess\)? (?:is false: )?(?P<what>"
        r"(?=.{0,80}(?P<part>Batch(?:Prefill|Decode)\w{0,40}))?(?!.{0,200}(?:out of memory|no kernel image"
        r"|invalid device function)).{0,200})",
        FailureCause.GPU_FAULT,
        "A GPU kernel could not run, or failed: {what}",
        "[{part} is attention of FlashInfer: choose another attention backend.] " + _GPU_FAULT_REMEDY,
        needle=" == cudaSuccess",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:\.{3} )?Memory access fault by GPU node",
        FailureCause.GPU_FAULT,
        "A GPU kernel made an illegal memory access.",
        _GPU_FAULT_REMEDY,
        needle="Memory access fault by GPU",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"Process group watchdog thread terminated with exception: CUDA error: (?P<what>[\w -]{1,80})",
        FailureCause.GPU_FAULT,
        "A GPU kernel failed while it ran ({what}); this line does not say which.",
        _GPU_FAULT_REMEDY,
        needle="watchdog thread terminated",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^\W{0,3}CUDA error (?:in |at )?\(?/?[\w./-]{1,200}\.(?:cuh?|cpp|h|hpp):\d+\)?: (?P<what>an illegal [\w ]{1,40}"
        r"|misaligned address|unspecified launch failure|[\w ]{0,20}assert triggered|invalid [\w ]{1,40})",
        FailureCause.GPU_FAULT,
        "A GPU kernel failed while it ran ({what}); this line does not say which.",
        _GPU_FAULT_REMEDY,
        needle="CUDA error ",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<place>[\w.-]{1,80}\.(?:cuh?|hip|h|hpp|cpp|inl|py):\d{1,6}): .{0,200}(?:(?:block|[Gg]lobal id): \[[\d, ]{1,60}\], "
        r"(?:thread|[Ll]ocal id): \[[\d, ]{1,60}\] Assertion|Device-side assertion) (?P<what>.{1,160}) failed",
        FailureCause.GPU_FAULT,
        "A GPU kernel failed its own check in {place}: {what}.",
        "An index or a size is out of range: most often a token, a position, a picture's tokens, a draft, or a request's top_k or logit_bias. "
        "Use the context that the model was made for; the traceback after this line may name the part. "
        + _GPU_FAULT_REMEDY,
        needle=("], thread: [", "ocal id: [", "Device-side assertion "),
    ),
    failure_rule(
        r"(?P<what>device-side assert triggered|Failed to encode tensor map: 7\d\d"
        r"|CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|MAPPING_ERROR)|unspecified launch failure"
        r"|CUDNN_STATUS_INTERNAL_ERROR|an illegal memory access|(?:CUDA|HIP|ROCm|MUSA) error: invalid argument|Cuda Runtime \((?:misaligned|invalid"
        r"|an illegal)[\w ]{0,40}\)"
        r"|misaligned address|cudaErrorIllegalAddress|cudaErrorLaunchFailure"
        r"|CUDNN_STATUS_EXECUTION_FAILED)",
        FailureCause.GPU_FAULT,
        "A GPU kernel failed while it ran ({what}); this line does not say which.",
        _GPU_FAULT_REMEDY,
        needle=(
            *("CUBLAS_STATUS_", "CUDNN_STATUS_", "an illegal memory access", " error: invalid argument"),
            *("Cuda Runtime (", "Failed to encode tensor map: 7", "cudaErrorIllegalAddress"),
            *("cudaErrorLaunchFailure", "device-side assert triggered", "misaligned address"),
            "unspecified launch failure",
        ),
        exception=True,
        weight=FailureWeight.LIKELY,
    ),
)
CAPTURE_FAILURES = (
    failure_rule(
        r"operation not permitted when stream is capturing|cudaErrorStreamCapture\w*",
        FailureCause.ENGINE_BUG,
        "Something ran on the GPU that is not allowed while CUDA graphs are captured: two settings exclude each other, or this "
        "version has a fault.",
        f"Start without CUDA graphs, or without torch.compile if a flag turned it on. {_WITHOUT_GRAPHS}",
        needle=("operation not permitted when stream is capturing", "cudaErrorStreamCapture"),
        weight=FailureWeight.LIKELY,
    ),
)
# Programs that a speech server or an engine calls.
_PROGRAMS = (
    r"(?:ffmpeg|ffprobe|sox|espeak(?:-ng)?|git(?:-lfs)?|cmake|make|nvidia-smi|numactl|ldconfig|mecab|lspci|ibv_devinfo|ibdev2netdev|lsof|curl"
    r"|wget|aria2c)"
)
IMAGE_FAILURES = (
    # The lines after it name the library that it lacks, or nothing but the GPU's number.
    failure_rule(
        r"\[sgl_kernel\] CRITICAL: Could not load any common_ops library",
        FailureCause.BROKEN_IMAGE,
        "The image's sgl_kernel has no library that loads here: it is for another CUDA, PyTorch or processor.",
        "Take another tag of this image, built for CUDA 13 and arm64. An image of your own: install the sgl_kernel (sglang-kernel) that "
        "belongs to its PyTorch and CUDA. The lines after this one name what was missing.",
        needle="Could not load any common_ops library",
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}\[E050\] Can't find model '(?P<name>[\w.-]{{1,80}})'",
        FailureCause.BROKEN_IMAGE,
        "The image lacks spaCy's model {name}.",
        "Take an image that holds it, or install it when the image is built: python -m spacy download {name}.",
        needle="[E050] Can't find model",
        on="image",
    ),
    failure_rule(
        r"^(?:ERROR: {1,8})?Error loading ASGI app\. (?P<what>Could not import module \"[^\"]{1,120}\"|Attribute \"[^\"]{1,120}\" not found in "
        r"module \"[^\"]{1,120}\")",
        FailureCause.BAD_VALUE,
        "uvicorn does not find the program that it should serve: {what}",
        "Correct MODULE:NAME in command, and the directory where it starts (container.options.workdir, or uvicorn's --app-dir).",
        needle="Error loading ASGI app",
        on="command",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"\b(?P<name>lib(?:cuda|cu|nv|hip|roc|amd)\w{1,20}(?:\.so[\d.]{0,12})?) is not loaded in the current process",
        FailureCause.BROKEN_IMAGE,
        "The engine looks for {name} among what PyTorch has loaded, and it is not there: this PyTorch is of another kind, or the library has "
        "another name.",
        "Take another tag of this image, whose PyTorch is built for the same CUDA. <vLLM: It needs it for its own all-reduce alone: "
        "args.disable-custom-all-reduce: true does without, or env.VLLM_CUDART_SO_PATH names the file.>",
        needle="is not loaded in the current process",
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}\[Errno 2\] No such file or directory: '(?P<name>{_PROGRAMS})'$"
        rf"|{EXCEPTION_PREFIX}(?:.{{0,80}} )?['\"`]?(?P<other>{_PROGRAMS})['\"`]? (?:is |was )?not found\b"
        rf"|{EXCEPTION_PREFIX}(?:.{{0,120}}[ '\"`])?(?P<binary>[\w.-]{{2,60}})['\"`]? (?:(?:binary|executable) not found|not found in \$?PATH)\b"
        rf"|{EXCEPTION_PREFIX}(?:.{{0,120}}: )?exec: \"(?P<go>[^\"]{{1,200}})\": executable file not found",
        FailureCause.BROKEN_IMAGE,
        "The image lacks the program [{name}][{other}][{binary}][{go}].",
        "Take an image that holds it, or install it when the image is built (apt-get install).",
        needle=("No such file or directory: '", " not found"),
        on="image",
    ),
    # ONNX Runtime goes on with the CPU.
    failure_rule(
        r"Failed to load library \S{0,200}(?P<part>libonnxruntime_providers_\w{1,20})\.so with error: (?P<what>\S{1,80}): cannot open shared object",
        FailureCause.BROKEN_IMAGE,
        "ONNX Runtime cannot use the GPU: its {part} lacks {what}. It goes on with the CPU, many times slower.",
        "Take an image whose CUDA and cuDNN are those that its onnxruntime-gpu was built for.",
        needle="libonnxruntime_providers_",
        on="image",
        weight=FailureWeight.DYING,
        warning=True,
    ),
    failure_rule(
        r"(?P<what>Could not load library lib\S{1,80}\. Error: lib.{0,120}|Unable to load any of \{lib.{1,200}\}"
        r"|Cannot load symbol cudnn\w{1,60})",
        FailureCause.BROKEN_IMAGE,
        "The image lacks a library, or does not find it: {what}",
        "Take another tag of this image. An image of your own: install the library when it is built, or add its directory to "
        "env.LD_LIBRARY_PATH.",
        needle=("Could not load library lib", "Unable to load any of {lib", "Cannot load symbol cudnn"),
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>(?!\w{{0,60}}(?:Args|Config|Configuration|LLM|Options|Params|Request)\.__init__)"
        r"[\w.]{1,120}\(\) (?:got an unexpected keyword argument '[^']{1,80}'|missing \d+ required (?:positional|keyword-only) arguments?: .{1,80}))",
        FailureCause.BROKEN_IMAGE,
        "The image's parts do not fit together: {what}",
        _OTHER_TAG_REMEDY,
        needle=("() got an unexpected keyword argument '", "() missing "),
        on="image",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>Torch not compiled with [A-Z]{{3,6}} enabled|.{{0,120}}was not compiled with CUDA support"
        r"|.{0,120}`[\w-]{1,40}` feature is not enabled"  # of a program in Rust
        r"|Numpy is not available"
        r"|Could not run '[\w:.]{1,120}' with arguments from the 'CUDA' backend)",
        FailureCause.BROKEN_IMAGE,
        "The image holds a build for the CPU, or for another version: {what}.",
        "Take an image that is made for NVIDIA GPUs and linux/arm64: what pip installs there is often built without CUDA. An image of your "
        "own: install PyTorch from its index for CUDA (download.pytorch.org/whl/cu130).",
        needle=(
            *("ot compiled with ", "` feature is not enabled", "Numpy is not available"),
            " with arguments from the 'CUDA' backend",
        ),
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.{{0,160}}?(?:(?:is|was|to) be(?:en)? not installed|(?:is|are) not installed"
        rf"|requires \"[\w.-]{{1,40}}\" to be installed"
        rf"|[Yy]ou need to install [\w.-]{{1,40}}|\b[\w+-]{{2,40}} not installed on your system|Could not load libtorchcodec"
        rf"|packages? that were not found in your environment: [\w., -]{{1,120}}|\b[\w-]{{2,40}} package not found\b"
        rf"|requires the [\w .-]{{1,60}} library but it was not found in your environment"
        r"|hasn't been generated yet, you must run `[^`]{1,80}`"
        r"|seems to be not installed|requires? [\w.-]{1,40}: (?:`?pip install )[\w.-]{1,40}|[Rr]un `pip install [^`]{1,80}`"
        r"|No package metadata was found for \S{1,60}|is required for a normal functioning of this module.{0,100}"
        r"|requires the .{0,60}extensions? \(.{1,80}\)"
        r"|[Ll]ibrary lib\S{1,60} is not found or cannot be loaded|cuDNN version incompatibility.{0,100}"
        r"|cuDNN is not available|[\w.+-]{2,40} is not available[.,;:] [Pp]lease install .{1,80}"
        r"|CUDNN_STATUS_(?:NOT_INITIALIZED|SUBLIBRARY_VERSION_MISMATCH|SUBLIBRARY_LOADING_FAILED|VERSION_MISMATCH)"
        r"|(?:is installed with|\w version) .{0,60}(?:less than|does not match|mismatch).{0,80}|[Vv]ersion mismatch\b.{0,80}"
        r"|Descriptors cannot be created directly|[Ff]ailed to import [\w.]{1,120} because of the following error"
        r"|name '(?:flash_attn|xformers|triton|deep_gemm|flashinfer|sgl_kernel)\w{0,40}' is not defined"
        r"|'NoneType' object (?:has no attribute|is not callable).{0,20}(?:flash_attn|triton|flashinfer|varlen)\w{0,40}))",
        FailureCause.BROKEN_IMAGE,
        "The image's parts do not fit together: {what}",
        _MISSING_PART_REMEDY,
        needle=(
            *("to be installed", "ou need to install ", "Could not load libtorchcodec", " not installed"),
            "that were not found in your environment",
            *(" package not found", " been generated yet, you must run"),
            *("pip install", "No package metadata was found for", "normal functioning of this module"),
            *("requires the ", " is not found or cannot be loaded", "cuDNN version incompatibility"),
            *("cuDNN is not available", "lease install ", "CUDNN_STATUS_", "installed with", " version"),
            *("ersion mismatch", "Descriptors cannot be created directly", "ailed to import ", "' is not defined"),
            "'NoneType' object ",
        ),
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?P<what>(?:ContextualVersionConflict|VersionConflict|(?:Syntax|Indentation|Tab)Error|Pydantic(?:User"
        r"|SchemaGeneration)Error): .{0,160})",
        FailureCause.BROKEN_IMAGE,
        "The image's parts do not fit together: {what}",
        _OTHER_TAG_REMEDY,
        needle=(
            *("VersionConflict: ", "SyntaxError: ", "IndentationError: ", "TabError: ", "UserError: "),
            "SchemaGenerationError: ",
        ),
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"No module named '?(?P<name>(?!(?:sglang|vllm|tensorrt_llm)(?![\w.]))(?!\d|_*\W)\w[\w.]{0,120})"
        r"|(?P<said>cannot import name '\w{1,80}' from '(?P<tree>vllm)\.(?:vllm_flash_attn|_\w{0,20}C)\b\S{0,80}' "
        r"\(/(?!\S{0,200}-packages/)\S{1,200}\))",
        FailureCause.BROKEN_IMAGE,
        "[Python's module {absent} is not installed here.][The installed {top} has no {name}: it has another version than what imports it "
        "expects, or something of the same name hides it.][The compiled part of {unbuilt} is not there, or is older than the rest.][ ({said})]",
        "<engine: Take another tag of this image[, or an image of your own on top of it with RUN pip install {package}].>"
        "<program: Build its image again with what the program requires[ (pip install {package}, or all of its requirements.txt)].>"
        "[ If {own} is the program's own directory, correct where it starts (container.options.workdir) or env.PYTHONPATH.]"
        "[ In an image of your own `pip check` tells which {top} the others ask for.]"
        "[ If Python took a source tree of {unbuilt} in place of the installed package: start elsewhere (container.options.workdir, "
        "env.PYTHONPATH), or build it there again (pip install -e .).]",
        needle=("No module named", "cannot import name '"),
        worked_out=_name_python_package,
        exception=True,
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?<![\w./-])(?P<name>lib(?!cu|nv|nccl|torch|c10)[A-Za-z][\w+-]{1,60})\.so\.(?P<number>\d{1,3})[\d.]{0,12}: cannot open shared object",
        FailureCause.BROKEN_IMAGE,
        "The library {name}.so.{number} is not installed here.",
        "<engine: Take another tag of this image, or an image of your own on top of it>"
        "<program: Build its image again> with RUN apt-get install -y {package}, as Ubuntu mostly names the library's package.",
        needle=": cannot open shared object",
        worked_out=_name_debian_package,
        exception=True,
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:\w+\.)*ImportError: (?P<what>(?P<who>[\w.-]{2,40}) (?:needs|requires) (?P<name>[\w.-]{2,40}) (?P<most>[\d.]{0,12}\d) or less\b.{0,80})",
        FailureCause.BROKEN_IMAGE,
        "{name} is too new for {who}: {what}",
        "Take another tag of this image. An image of your own: pin it when it is built (pip install '{name}=={most}.*').",
        needle=" or less",
        exception=True,
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<what>(?:plugin |shared )?library not found: \S{1,200}\.so|unable to (?:load shared|find backend) library.{0,160}"
        r"|[Ff]ailed to load (?:the )?(?:dynamic|shared)(?: shared)? library \S{1,200}"
        r"|[\w.+-]{1,80}?\.so[\d.]{0,20}: (?:cannot open shared object file|file too short|invalid ELF header)|undefined symbol: \S+"
        r"|version `?(?:GLIBCXX|GLIBC|CXXABI|libcudart)[\w.]{0,40}'? not found|numpy\.dtype size changed"
        r"|A module that was compiled using NumPy 1\.x cannot be run in NumPy 2\S*|cannot import name '[^']*' from '[^']*'"
        r"|(?:module|package|type object) '[^']*' has no attribute '[^']*'|Tried to instantiate class '[\w.]{1,80}', but it does not exist"
        r"|type '[\w.]{1,60}' is not subscriptable|'(?:type|ABCMeta)' object is not subscriptable"
        r"|unsupported operand type\(s\) for \|: 'type' and '(?:type|NoneType)'"
        r"|'_OpNamespace' '\w{1,60}' object has no attribute '[^']*'"
        r"|The detected CUDA version .{0,60} mismatches the version that was used to compile|DistributionNotFound: .{0,120}"
        r"|requires? (?:the )?[\w.-]{1,60} ?[<>=!~]=?\s?[\d.]{1,20}.{0,40}(?:but|found|is required|installed).{0,60})",
        FailureCause.BROKEN_IMAGE,
        "The image's parts do not fit together: {what}",
        _MISSING_PART_REMEDY,
        needle=(
            *("library not found: ", "ailed to load ", "unable to load shared library"),
            *("unable to find backend library", "mismatches the version that was used to compile", "GLIBC", "CXXABI"),
            *("libcudart", "' has no attribute '", "Tried to instantiate class '", "' is not subscriptable"),
            *("' object is not subscriptable", "for |: 'type' and", "' object has no attribute '"),
            *(": cannot open shared object file", ": file too short", ": invalid ELF header"),
            "A module that was compiled using NumPy 1.x cannot be run in NumPy 2",
            "DistributionNotFound:",
            "cannot import name '",
            "numpy.dtype size changed",
            "require",
            "undefined symbol:",
        ),
        exception=True,
        on="image",
        weight=FailureWeight.LIKELY,
    ),
)
MEMORY_WORDS = (
    failure_rule(
        r"radv/amdgpu: Not enough memory for command submission",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "The GPU's driver had no memory left for its commands.",
        "Take a smaller model or context, or leave layers on the CPU; stop what else uses the memory.",
        needle="radv/amdgpu: Not enough memory",
    ),
    failure_rule(
        r"Error Code 2: OutOfMemory(?: \(Requested size was (?P<bytes>\d+) bytes)?",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "TensorRT could not allocate[ {bytes} bytes] on the GPU.",
        "While an engine is built: a smaller batch, input length or workspace for the build. While it runs: a smaller share of the "
        "memory for the KV cache, or fewer requests at once. Stop what else uses the GPU.",
        needle="Error Code 2: OutOfMemory",
    ),
    failure_rule(
        r"Executor creation failed due to insufficient GPU memory|There is not enough GPU video memory available"
        r"|CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)|^(?:(?:CUDA|HIP) (?:[Ee]rror|failure 2)|GPUassert): out of memory"
        r"|^CUDA error at \S{1,300} code=2\(cudaErrorMemoryAllocation\)|\bcuda failed with error 2\b",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "CUDA could not allocate memory.",
        "Take a smaller share of the memory for the KV cache, a smaller context or batch, or a smaller model; stop what else "
        "uses the GPU.",
        needle=(
            *("CUBLAS_STATUS_", ": out of memory", "code=2(cudaErrorMemoryAllocation)", "cuda failed with error 2"),
            *("Executor creation failed due to insufficient GPU memory", "not enough GPU video memory"),
        ),
    ),
    failure_rule(
        r"max seq len \((?P<wants>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((?P<has>\d+)\)"
        r"|No available memory for the cache blocks|[Nn]o (?:GPU )?(?:memory|space|room) (?:is )?left for (?:the )?(?:KV|kv)[ _-]?[Cc]ache"
        r"|Impossible to fit (?:in )?any sequence in kv ?[Cc]ache|Can't allocate primary blocks"
        r"|No enough (?:gpu|GPU) memory for (?:runtime|kv)|KV cache memory is not enough|Not enough KV cache (?:memory|blocks)",
        FailureCause.KV_CACHE_TOO_SMALL,
        "The context does not fit into the KV cache[: {wants} tokens needed, {has} fit].",
        "Lower the context[ to {has}], or give the engine a larger share of the memory.",
        needle=(
            *("max seq len (", "No available memory for the cache blocks", "Impossible to fit "),
            *("Can't allocate primary blocks", "memory for ", " left for ", "KV cache "),
        ),
    ),
)
# What programs and scripts say that start a server and wait for it.
_NEVER_READY = (
    r"(?:.{0,80}?\b(?:[Ss]erver|[Ee]ngine|[Ss]ervice|[Mm]odel|[Dd]aemon|[Bb]ackend|[Ee]ndpoint|[Cc]ontainer|\w{0,20}LLM)\b.{0,80}?"
    r" (?:did not|didn't|failed to|never|has not) (?:(?:become|became|get|got|come|came|be) (?:ready|healthy|available|up|online)|start(?:ed)?)"
    r" (?:in|within|after|for) \d{1,6}"
    r"|[Tt]im(?:ed ?out|e?out) waiting (?:\d{1,7} ?\w{0,8} )?for .{1,120}?\b(?:ready|healthy|to start|to come up|start-?up)\b).{0,160}"
)
DISTRIBUTED_FAILURES = (
    failure_rule(
        r"Duplicate GPU detected ?: rank (?P<one>\d{1,4}) and rank (?P<other>\d{1,4}) both on CUDA device",
        FailureCause.NCCL,
        "Two ranks of the model (rank {one} and {other}) were given the same GPU.",
        "A Spark has one GPU: let each Spark run one rank (args.tensor-parallel-size with nodes: 2, mpirun with slots=1), and a model on one "
        "Spark one rank.",
        needle="Duplicate GPU detected",
        on="args.tensor-parallel-size",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.{{0,120}}?(?:\b[Ss]erver (?:\S{{1,200}} )?failed to start (?:in|within) (?P<time>[\w ]{{1,40}})"
        r"|[Ff]ailed to wait for all \w{1,20} to be ready)",
        FailureCause.TIMED_OUT,
        "A server that this program waits for did not become ready[ in {time}].",
        "Read the log of that server: it says why. Give it more time only if it was still loading.",
        needle=("erver ", "ailed to wait for all "),
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(  # a script's own words: an error before it is why
        rf"^(?:(?:[\w.]+\.)?\w*(?:Error|Exception|Timeout): |(?:ERROR|FATAL|[Ee]rror|[Ff]atal):? {{1,4}}|[^\w\s]{{1,3}} {{1,2}})?"
        rf"(?P<what>{_NEVER_READY})",
        FailureCause.TIMED_OUT,
        "What this program waits for did not become ready: {what}",
        "Read the log of that program: it says why. Give it more time only if it was still loading.",
        needle=(" did not ", " didn't ", " failed to ", " never ", " has not ", "out waiting "),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"Watchdog caught collective operation timeout: WorkNCCL\((?:.*?OpType=(?P<op>\w+))?(?:.*? ran for (?P<time>\d{1,12}) milliseconds)?",
        FailureCause.NCCL,
        "The ranks waited for each other in vain[ (in {op})][, {time} ms]: one of them did not take part, or its data did not arrive.",
        "Look at the log of each rank: one that failed, or still loads or compiles, is why. Else check the link between the nodes (sparkctl "
        "doctor), NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME on both; with env.NCCL_DEBUG: INFO the log names the reason.",
        needle="Watchdog caught collective operation timeout: WorkNCCL(",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"Some NCCL operations have (?P<watch>failed or timed out)|(?:^|\] )(?P<late>Timeout at NCCL work: \d{1,12})"
        r"|NCCL [Ee]rror:? (?:[\w./-]{1,200}:\d{1,6} '|\d{1,2}: )?(?P<what>[\w ]{1,80})|unhandled (?P<kind>system|cuda) error \(run with NCCL_DEBUG",
        FailureCause.NCCL,
        "NCCL, which connects the ranks, failed[: {what}][ ({kind} error)][: its operations {watch}][: {late}].",
        "Check the link between the nodes (sparkctl doctor), NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME on both. "
        "With env.NCCL_DEBUG: INFO the log names the reason.",
        needle=("error", "NCCL Error", "Some NCCL operations have ", "Timeout at NCCL work"),
        weight=FailureWeight.LIKELY,
    ),
    # A watchdog tells so of every rank once one of them failed.
    failure_rule(
        r"NCCL communicator was aborted on rank (?P<rank>\d{1,4})(?:\. {1,2}Original reason for failure was: (?P<what>.{1,200}))?",
        FailureCause.NCCL,
        "NCCL, which connects the ranks, was stopped on rank {rank}[: {what}].",
        "It stops where a rank does not answer: read that rank's log, and the lines before this one. If no rank failed, check the link "
        "between the nodes (sparkctl doctor); with env.NCCL_DEBUG: INFO the log names the reason.",
        needle="NCCL communicator was aborted",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"NET/IB ?: Got completion from peer (?P<peer>\S+) with status=(?P<status>\d+)",
        FailureCause.NCCL,
        "NCCL lost its RDMA connection to {peer} (completion status {status}).",
        "Look at the cable and the ports on both nodes (sparkctl doctor), and at the log of the other node: it may have ended "
        "first.",
        needle="Got completion",
    ),
    failure_rule(  # ibverbs' words for it, which Mooncake and UCX (NIXL) pass on
        r"\b(?:transport|RNR) retry counter exceeded|\b[Tt]ransport retry count exceeded on (?P<port>\S{1,60})|\bIBV_WC_(?:RNR_)?RETRY_EXC_ERR\b",
        FailureCause.NCCL,
        "An RDMA transfer failed: the other node did not answer[ on {port}].",
        "Look at the cable and the ports on both nodes (sparkctl doctor), at GID and MTU, and at the log of the other node: it may have "
        "ended first.",
        needle=("retry count", "RETRY_EXC_ERR"),
    ),
    failure_rule(
        r"TCPStore server has shut down too early|sendBytes failed on SocketImpl|recvValue failed on SocketImpl"
        r"|failed to recv, got 0 bytes|Connection was likely closed\. Did the remote server shutdown or crash",
        FailureCause.WORKER_LOST,
        "Another rank of this model ended: the store that all ranks share is gone.",
        "The log of rank 0, or of the rank that ended first, says why.",
        needle=(
            "Connection was likely closed. Did the remote server shutdown or crash",
            *("TCPStore server has shut down too early", "failed to recv, got 0 bytes"),
            *("recvValue failed on SocketImpl", "sendBytes failed on SocketImpl"),
        ),
        weight=FailureWeight.DEATH,
        at_any_level=True,
    ),
    failure_rule(
        r"A worker died or was killed while executing a task|The actor (?:is|died) (?:dead|unexpectedly|because)",
        FailureCause.RAY,
        "A Ray worker died.",
        "Look at the log of the other node; `dmesg` there shows whether the kernel killed it for memory.",
        needle=("A worker died or was killed while executing a task", "The actor is ", "The actor died "),
        weight=FailureWeight.DEATH,
    ),
    # Its own traceback follows, with the reason at its end.
    failure_rule(
        r"\bRayTaskError\((?:[\w.]{1,60}\.)?OutOfMemoryError\): ",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "A Ray task ran out of the GPU's memory.",
        "Take a smaller share of the memory for the KV cache, a smaller context or batch, or a smaller model.",
        needle="RayTaskError(",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"\bRayTaskError\((?P<kind>[\w.]{1,80})\): (?P<what>.{0,120})",
        FailureCause.RAY,
        "A Ray task failed with {kind}: {what}",
        "The end of its traceback names the reason; where it is cut, the log of the other node has it.",
        needle="RayTaskError(",
        weight=FailureWeight.LOST,
    ),
    failure_rule(
        r"[Pp]rocess was signaled to shutdown with signal (?P<signal>4)\b",
        FailureCause.BROKEN_IMAGE,
        "A part of the engine ended on signal {signal}: it uses an instruction that this processor does not have.",
        "Take an image that was built for this processor (a Spark is linux/arm64).",
        needle="signaled to shutdown with signal ",
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"[Pp]rocess was signaled to shutdown with signal (?P<signal>\d+)",
        FailureCause.WORKER_LOST,
        "A part of the engine ended on signal {signal}.",
        "9: look for the kernel's OOM killer with `dmesg` on the node. 6 and 11: the lines before this one may name the fault.",
        needle="signaled to shutdown with signal ",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        # It fails only for objects that do not fit into memory: where there is a gigabyte for them, this is a warning.
        r"(?P<path>/\S{1,200}) is over (?P<share>\d+)% full, available space: (?:(?P<bytes>\d{1,9})(?=;|$)|(?P<left>0\.\d+ GB))",
        FailureCause.DISK_FULL,
        "{path} is full ({share} %, {left} left).",
        "Free space there; if it is in the container's /tmp or /dev/shm, raise container.shm_size or mount a directory.",
        needle="% full",
        worked_out=_format_bytes_left,
        on="container.shm_size",
        weight=FailureWeight.LIKELY,
    ),
)
MODEL_WORDS = (
    failure_rule(
        r"^Unsupported ONNX data type: (?P<type>\S.{0,40})|\bFailed to parse onnx file\b",
        FailureCause.MODEL_FILES,
        "TensorRT cannot read the ONNX model[: it has no counterpart of the number type {type}].",
        "Export the model again: each output with a type (UNKNOWN means that the export left it out), with no FLOAT64 or STRING, and with an "
        "opset that this TensorRT has.",
        needle=("Unsupported ONNX data type: ", "Failed to parse onnx file"),
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"draft model vocab (?:type )?must match target model|assert all\(vocab_sizes\[0\] == vocab_size",
        FailureCause.DRAFT_MISMATCH,
        "The draft model does not belong to the model: their vocabularies differ.",
        "Take the draft model that was made for exactly this model, or start without a draft.",
        needle="vocab",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<what>(?:[Dd]raft|[Ss]peculative|EAGLE|eagle)[^:]{0,80}(?:vocab|hidden[ _]size|tokenizer)[^.]{0,100}"
        r"(?:match|differ|equal|same)[^.]{0,160})",
        FailureCause.DRAFT_MISMATCH,
        "The draft model does not belong to the model: {what}",
        "Take the draft model that was made for exactly this model, or draft without one (NGRAM).",
        needle=("hidden", "tokenizer", "vocab"),
        exception=True,
        weight=FailureWeight.LIKELY,
    ),
)

LIBRARY_FAILURES = (
    KERNEL_FAILURES
    + _TOOLKIT_WARNINGS
    + JIT_FAILURES
    + MEMORY_WORDS
    + CAPTURE_FAILURES
    + GPU_FAULTS
    + _CUDA_CALL_FAILURES
    + DISTRIBUTED_FAILURES
    + MODEL_WORDS
    + IMAGE_FAILURES
)


_EXCEPTION_NEEDLES = (
    *("Error: ", "Error(", "Exception: ", "Exception(", "error: "),
    *("Timeout: ", "Failed: ", "Expired: ", "Unsupported: ", "validation error"),
)
_ARGPARSE_ERROR = r"^[\w./ -]{1,80}: error: "

ARGUMENT_FAILURES = (
    failure_rule(
        _ARGPARSE_ERROR + r"(?P<what>ambiguous option: --?(?P<flag>[\w.-]++)\S*+ could match (?P<could>.*))",
        FailureCause.UNKNOWN_FLAG,
        "The engine has several flags that begin with --{flag}: {could}",
        "Write the full name of the one you mean instead of args.{flag}: {could}",
        needle=": error: ",
        on="args.{flag}",
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        r"^(?:[\w.-]{1,80}/){0,8}(?P<script>[\w-]{0,40}train[\w-]{0,40}\.py): error: (?P<what>unrecognized arguments: .*)",
        FailureCause.UNKNOWN_FLAG,
        "{script} is a training script, and does not have what it was given: {what}",
        "Take the flags of its own --help. It is not an engine: sparkctl starts engines and trains nothing.",
        needle=": error: ",
        fatal=True,
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
        _ARGPARSE_ERROR + r"(?P<what>argument (?:-\w+/)?--?(?P<flag>[\w.-]++)\S*: .*)",
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
        "Something is missing on the engine's command line: {what}",
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
_OTHER_IMAGE = (
    "A part of the image has this fault: take a newer or an older image. The lines before this one tell what it did."
)


def _died_of(names: str, number: int, signal: str) -> str:
    """Return a pattern for what tells that a signal ended a program: a shell, compose, Python, systemd, MPI, torchrun, handlers of
    it, `kubectl describe`, and the engines that look after their processes."""
    return (
        rf"{SHELL_PREFIX}(?:{names})(?: +\(core dumped\)(?: .*)?| {{2,}}\S.*)?$"
        rf"|^(?:[\w.-]{{1,63}} )?exited with code {128 + number}\b|{tells_exit_code(128 + number)}"
        rf"|\b(?:died|exited|crashed|terminated|ended|failed)\b.{{0,60}}\b[Ee]xit ?code:? ?-{number}\b"
        rf"|: Main process exited, code=(?:killed|dumped), status={number}/{signal}\b"
        rf"|^\[[\w.-]{{1,64}}:\d{{1,9}}\] Signal: (?:{names}) \({number}\)|\bexited on signal {number} \("
        rf"|^\*\*\* SIG{signal} (?:\(@|received at )"
        rf"|^Exit (?:code: (?:-{number}|{128 + number})|Code: {{4}}{128 + number})\b|\bFailed core proc\(s\): \{{.{{0,200}}': -{number}\b"
        rf"|^traceback : Signal {number} \(SIG{signal}\)"
    )


def _list_needles(number: int, signal: str, *names: str) -> tuple[str, ...]:
    codes = (f"exited with code {128 + number}", *(f"{word}-{number}" for word in ("code ", "code: ", "code", "code:")))
    exits = (f"Exit code: {128 + number}", f"Exit Code:    {128 + number}", f"': -{number}", f"Signal {number} (")
    return (
        *names,
        *codes,
        *exits,
        *exit_code_needles(128 + number),
        f"status={number}/{signal}",
        f"signal {number} (",
        f"SIG{signal} ",
    )


# Since Rust 1.73 the message stands on the line after the place; before, it was quoted.
_PANIC_MESSAGE = (
    r"(?:\(\d{1,9}\) )?panicked at (?:'(?P<said>.{1,400})', (?P<old>\S{1,300}?):?$"
    r"|(?P<place>\S{1,300}:\d{1,9}:\d{1,9}): (?!note: run with|stack backtrace:)(?P<what>\S.{0,400}))"
)
# A program that ends so leaves no other reason in its log: the line is the proof. A line that names a cause has more weight.
SIGNAL_DEATHS = (
    failure_rule(
        rf"{_died_of('[Ss]egmentation fault', 11, 'SEGV')}|^!{{3,12}} Segfault encountered !",
        FailureCause.CRASHED,
        "The program died of a segmentation fault (SIGSEGV).",
        _OTHER_IMAGE,
        needle=_list_needles(11, "SEGV", "egmentation fault", "Segfault encountered"),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"{_died_of('[Ii]llegal instruction', 4, 'ILL')}|^Fatal Python error: Illegal instruction",
        FailureCause.BROKEN_IMAGE,
        "The program uses an instruction that this processor does not have (SIGILL).",
        "Take a build that was made for this processor (a Spark is linux/arm64).",
        needle=_list_needles(4, "ILL", "llegal instruction"),
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        _died_of("Trace/breakpoint trap", 5, "TRAP"),
        FailureCause.CRASHED,
        "The program ended itself on a failed check (SIGTRAP).",
        _OTHER_IMAGE,
        needle=_list_needles(5, "TRAP", "Trace/breakpoint trap"),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        _died_of("[Ff]loating point exception", 8, "FPE"),
        FailureCause.CRASHED,
        "The program died of an impossible calculation (SIGFPE), most often a division by zero.",
        _OTHER_IMAGE,
        needle=_list_needles(8, "FPE", "loating point exception"),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"{_died_of('[Bb]us error', 7, 'BUS')}|^(?:Fatal Python error: )?Bus error\b",
        FailureCause.DISK_FULL,
        "The program died of a bus error (SIGBUS): most likely the container's shared memory is full.",
        "Raise container.shm_size, or set container.ipc: host. If there is room, a weight file is shorter than it should be, or the disk "
        "fails: dmesg on the node shows the latter.",
        needle=_list_needles(7, "BUS", "us error"),
        on="container.shm_size",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^terminate called (?P<how>without an active exception|recursively)"
        rf"|{_died_of('Aborted', 6, 'ABRT')}|^timeout: the monitored command dumped core",
        FailureCause.CRASHED,
        "The program ended itself (SIGABRT)[ {how}].",
        "The lines before and after this one say why.",
        needle=(
            "terminate called ",
            "monitored command dumped core",
            *_list_needles(6, "ABRT", "Aborted"),
        ),
        weight=FailureWeight.LOST,
    ),
)
_PROGRAM_DEATHS = (
    *SIGNAL_DEATHS,
    failure_rule(
        r"^(?:\*\*\* Error in `[^']{1,200}': )?(?P<what>(?:free|malloc|realloc|calloc|munmap_chunk|malloc_consolidate|sysmalloc)\(\): .{1,120}"
        r"|double free or corruption\b.{0,60}|corrupted (?:size vs|double-linked list).{0,60}"
        r"|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*|Fatal glibc error: .{1,200})",
        FailureCause.CRASHED,
        "The program wrote where it must not, and the C library ended it: {what}",
        _OTHER_IMAGE,
        needle=(
            *(
                f"{name}(): "
                for name in ("free", "malloc", "realloc", "calloc", "munmap_chunk", "malloc_consolidate", "sysmalloc")
            ),
            *("double free or corruption", "corrupted size vs", "corrupted double-linked list"),
            *("stack smashing detected", "buffer overflow detected", "Fatal glibc error: "),
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^(?!\S{0,300}\.cuh?:).{0,400}: Assertion [`'](?P<what>.{1,400})' failed\.?(?: .*)?$|^Assertion failed: (?P<said>\S.*)",
        FailureCause.CRASHED,
        "The program failed its own check, and ended: [{what}][{said}]",
        _OTHER_IMAGE,
        needle=(": Assertion `", ": Assertion '", "Assertion failed: "),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"^thread 'main' {_PANIC_MESSAGE}|^panic: (?P<go>\S.{{0,400}})",
        FailureCause.CRASHED,
        "The program panicked[ at {place}][ at {old}][: {what}][: {said}][: {go}]",
        _OTHER_IMAGE,
        needle=("panicked at ", "panic: "),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"^thread '[^']{{0,80}}' {_PANIC_MESSAGE}",
        FailureCause.CRASHED,
        "A thread of the program panicked[ at {place}][ at {old}][: {what}][: {said}]",
        _OTHER_IMAGE,
        needle="panicked at ",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^thread '[^']{0,80}' (?:\(\d{1,9}\) )?panicked at (?P<place>\S{1,300}:\d{1,9}:\d{1,9}):",
        FailureCause.CRASHED,
        "The program, or a thread of it, panicked at {place}.",
        "The message is on the line after this one. " + _OTHER_IMAGE,
        needle="panicked at ",
        weight=FailureWeight.LOST,
    ),
    failure_rule(
        r"^libc\+\+abi\S{0,10}: terminating (?:due to|with) uncaught exception of type (?P<kind>[\w:]{1,100}?): (?P<what>\S.*)",
        FailureCause.CRASHED,
        "The program ended on an error of the kind {kind}: {what}",
        _OTHER_IMAGE,
        needle=": terminating ",
        fatal=True,
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^terminate called after throwing an instance of '(?P<what>[^']{1,200})'",
        FailureCause.CRASHED,
        "The program ended itself (SIGABRT) on an error of the kind {what}.",
        "The lines before and after this one say why.",
        needle="terminate called after ",
        fatal=True,
        weight=FailureWeight.LOST,
    ),
    failure_rule(
        r"^(?:[\w.-]{1,63} )?exited with code (?P<code>(?!130\b|143\b)[1-9]\d{0,2})\b"
        r"|: Main process exited, code=exited, status=(?P<status>(?!130\b|143\b)[1-9]\d{0,2})/"
        r"|^Exit Code: {4}(?P<row>(?!130\b|143\b)[1-9]\d{0,2})\b",
        FailureCause.CRASHED,
        "The program ended with exit code [{code}][{status}][{row}].",
        "The lines before this one say why.",
        needle=("exited with code ", "code=exited, status=", "Exit Code:    "),
        weight=FailureWeight.DYING,
    ),
)

CRASH_FAILURES = (
    failure_rule(
        r"^(?:(?:asyncio|concurrent\.futures)\.(?:[\w.]{1,20}\.)?)?CancelledError\b",
        FailureCause.CRASHED,
        "A task of the program was cancelled: something else failed, or it was told to stop.",
        "The other errors of the log say why.",
        needle="CancelledError",
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"^EOFError$",
        FailureCause.WORKER_LOST,
        "A process waited for a message from another one, which ended.",
        "The lines before this one, or the other process's own, say why it ended.",
        needle="EOFError",
        weight=FailureWeight.DYING,
    ),
    failure_rule(  # one of many programs that say so goes on without it
        r"^(?P<name>[\w.-]{2,60}) is not installed\.?\s*$",
        FailureCause.BROKEN_IMAGE,
        "The image lacks {name}.",
        "Take an image that holds it, or install it when the image is built.",
        needle=" is not installed",
        on="image",
        weight=FailureWeight.DYING,
        warning=True,
    ),
    failure_rule(
        r"^Error: P(?P<code>[1-4]\d{3}): (?P<what>Can't reach database server .{1,200}|.{0,60}\b[Tt]imed out\b.{0,200})",
        FailureCause.WORKER_LOST,
        "The program's database does not answer (Prisma P{code}): {what}",
        "Start the database first and wait until it is healthy, or correct its address (env.DATABASE_URL).",
        needle=("Can't reach database", "imed out"),
        on="env.DATABASE_URL",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Unknown quantization (?:method|scheme|strategy):? (?P<name>[\w-]+)"
        rf"|{EXCEPTION_PREFIX}.*Quantization method specified in the model config \((?P<its>[^)]*)\) does not match"
        rf"|{EXCEPTION_PREFIX}.*does not support (?P<kind>[\w-]{{1,40}}) quantization",
        FailureCause.BAD_VALUE,
        "The quantization is refused[: there is no {name}][: the model's own is {its}][: this model does not support {kind}].",
        "Remove args.quantization: the engine reads it from the model. If it is not set, the model's own config asks for it: take a newer image.",
        needle="uantization",
        on="args.quantization",
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.*[Aa]ttention[ _]backend.*)|"
        rf"{EXCEPTION_PREFIX}(?P<said>.*(?:FlashInfer|FlashAttention|Triton) backend .*not.*)|"
        rf"{EXCEPTION_PREFIX}(?P<build>.*[Ff]lash[ _-]?(?:[Aa]ttention|attn)\b.{{0,60}}(?:does not|doesn't|only) supports?\b.*)|"
        rf"{EXCEPTION_PREFIX}(?P<kind>.*\b\w{{0,40}}Attention\w{{0,40}}Backend\b.{{0,60}} (?:does not|doesn't|cannot|only) .*)|"
        rf"{EXCEPTION_PREFIX}(?P<only>.*[Aa]ttention.* only (?:supported|available|implemented) .{{0,60}}backend.*)|"
        rf"{EXCEPTION_PREFIX}(?P<torch>No available kernel\. Aborting execution\.)",  # of scaled_dot_product_attention
        FailureCause.ATTENTION_BACKEND,
        "The attention backend does not do what this model needs[: {what}][: {said}][: {build}][: {kind}][: {only}][: {torch}].",
        "Set args.attention-backend to another one, or leave it out: the engine then chooses.",
        needle=("ackend", "lash", "No available kernel"),
        on="args.attention-backend",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>[Hh]ead[_ ]?(?:size|dim) \d+ is not supported by .{{1,200}}|Cannot use \w[\w-]{{1,40}} backend\b.{{0,160}})",
        FailureCause.ATTENTION_BACKEND,
        "The attention backend does not do what this model needs: {what}",
        "Set args.attention-backend to another one, or leave it out: the engine then chooses.",
        needle=("is not supported by ", " backend"),
        on="args.attention-backend",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.{{0,160}}?(?:must be divisible by (?:the )?(?:tensor|TP|tp|world)|is not divisible by (?:min_thread|tp|tensor)"
        r"|is not divisible by weight quantization|not aligned with the quantized weight shape).{0,80}?"
        r"(?:(?P<offer>--quantization \w{1,20}).{0,40})?$)",
        FailureCause.BAD_VALUE,
        "The model cannot be split into that many parts: {what}",
        "Set args.tensor-parallel-size to a smaller number, which divides it: 1 does.[ Or try what the message offers: {offer}.]",
        needle=(" divisible by ", "not aligned with the quantized"),
        on="args.tensor-parallel-size",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.{{0,120}}?(?P<what>\bDType \w{{1,20}} is not supported|\b\w{{1,60}} is only supported (?:on \w{{1,20}} devices )?in"
        r" \w{1,20} precision\b|\b\w{1,60} is only supported on \w{1,20} devices in \w{1,20}\b.{0,60}"
        r"|\b[Pp]ooling (?:config .{1,80} )?is not supported\b.{0,80})",
        FailureCause.BAD_VALUE,
        "The program refused its settings: {what}",
        "Correct the setting that the message names.",
        needle=("is not supported", "is only supported "),
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}torch\.(?P<dtype>\w{{1,20}}) is not supported for quantization method (?P<method>[\w-]{{1,40}})"
        r"(?:.*?Supported dtypes: \[(?P<could>[^\]]{1,120})\])?",
        FailureCause.BAD_VALUE,
        "{method} does not work in {dtype}[: {could} it does].",
        "Correct args.dtype, or leave it out.",
        needle=" is not supported for quantization method ",
        on="args.dtype",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>(?:[\w-]{{1,30}} ){{0,3}}(?:[Ss]peculative decoding|[Pp]ipeline parallelism|[Tt]ensor parallelism"
        rf"|LoRA|[Cc]hunked prefill|[Ss]leep mode"
        r"|[Pp]refix caching|[Ee]xpert parallelism|[Dd]ata parallelism|[Tt]orch compile|CUDA graphs?)\b.{0,60}? not (?:yet )?supported\b.{0,160})",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Leave out the setting that the message names.",
        needle=" supported",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Initial test run failed - Please make sure (?:benchmark|that) .{{0,120}}? Error: (?P<what>.{{1,200}})",
        FailureCause.BAD_VALUE,
        "The benchmark's first request was refused: {what}",
        "Correct the benchmark's arguments: --model has to be the name that the server's /v1/models tells, and base URL and endpoint "
        "those of a server that is ready.",
        needle="Initial test run failed - ",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>(?:.{{0,60}}\b[Ll]ocal[_ ]rank \d{{1,4}} is out of bounds).{{0,80}})",
        FailureCause.BAD_VALUE,
        "The model is to be cut into more parts than this node has GPUs: {what}",
        "A Spark has one GPU: set args.tensor-parallel-size and args.data-parallel-size to what all nodes have together, and nodes to "
        "their number.",
        needle=" is out of bounds",
        on="args.tensor-parallel-size",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>The supplied chat template .{{0,160}}|Cannot find (?:the )?chat template.{{0,160}})"
        r"|^(?:[\w.]+\.)?(?P<jinja>TemplateSyntaxError: .{0,160})",
        FailureCause.BAD_VALUE,
        "The chat template cannot be read: [{what}][{jinja}]",
        "Correct args.chat-template: a path in the container (mount the file), or leave it out for the model's own.",
        needle=("chat template", "TemplateSyntaxError: "),
        on="args.chat-template",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?P<what>(?:ArgumentTypeError|SettingsError|ConfigAttributeError|ConfigKeyError|MissingMandatoryValue): .{0,300})"
        r"|^error: (?P<clap>the following required arguments were not provided.*|invalid value '[^']{0,200}' for '--?[\w-]+.*)"
        r"|^error: (?P<together>the argument '--?[\w-]+.{0,100}' cannot be used with .*)"
        r"|^Error: (?P<go>invalid argument .{1,200} for \"[^\"]{1,80}\" flag: .*)"
        r"|^Error: (?P<click>No such command '[^']{1,200}'|(?:Missing|Invalid value for|Got unexpected extra) .{0,200}"
        r"|(?:accepts|requires) (?:at (?:least|most) )?\d{1,3} arg\(s\).{0,80})",
        FailureCause.BAD_VALUE,
        "The program refused its settings: [{what}][{clap}][{together}][{go}][{click}]",
        "Correct the setting that the message names (args, command or env).",
        needle=("Error: ", "error: ", "MissingMandatoryValue: "),
        on="args",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:error: (?:unexpected argument '-{0,2}|unknown (?:argument|option):? '?--?)|Error: No such option:? '?--?)(?P<flag>\w[\w.-]*)",
        FailureCause.UNKNOWN_FLAG,
        "The program has no flag {flag}.",
        "Correct or remove args.{flag}: this image does not know it.",
        needle=("error: unexpected argument '", "error: unknown ", "Error: No such option"),
        on="args.{flag}",
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        r"(?:^|[ (:/])(?:ModuleNotFoundError|python[\d.]*): No module named '?(?P<name>sglang|vllm|tensorrt_llm)'?(?=\)|\s*$)",
        FailureCause.BROKEN_IMAGE,
        "The image does not hold {name}.",
        "Correct image or engine.",
        needle="No module named",
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.*?--(?P<flag>[a-z][a-z0-9]*(?:-[a-z0-9]+)+).*)",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Correct args.{flag}, or what it is set together with.[ The message says: {asks}]",
        needle=_EXCEPTION_NEEDLES,
        worked_out=quote_asked,
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
        rf"{EXCEPTION_PREFIX}(?P<what>.*?(?P<advice>\b{_ADVICE}.{{0,200}}))",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "[Do what the message asks: {asks}][Correct what the message names{nothing}.]",
        needle=(
            *("lease ", "ou should ", "ou must ", "ou need to ", "ou have to ", "ry to ", "onsider ", "uggest"),
            *("ry increas", "ry decreas", "ry reduc", "ry lower", "ry rais", "ry set", "ry disabl", "ry enabl"),
            *("ry remov", "ry us"),
            *(f"{begin}{verb}" for begin in ("; ", ". ", ", or ") for verb in _ADVICE_VERBS),
        ),
        worked_out=_quote_advice,
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
        r"^(?:[\w.]+\.)?ValueError: (?P<what>LoRA rank (?P<wants>\d{1,6}) is greater than max_lora_rank \d{1,6}.{0,80})",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Set args.max-lora-rank to {wants}.",
        needle="is greater than max_lora_rank",
        on="args.max-lora-rank",
        to="{wants}",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?:ValueError|AssertionError): (?P<what>.{0,300}?\b(?:max|min|num|enable|disable|use|tp|pp|dp|ep|kv_cache|page|hicache"
        r"|gpu|mem|model|attention|speculative|draft|lora|chunked|block|tensor|pipeline|data|expert|tool|reasoning|served|cuda|moe)"
        r"_[a-z0-9_]{1,60}\b.{0,200}?"
        r"\b(?:must be|should be|must not|cannot be|can't be|can not be|(?:is|are) not (?:supported|compatible|allowed|divisible)"
        r"|not divisible|(?:is|are) (?:larger|greater|smaller|less|lower|higher) than|exceeds?|only supports?|requires?|expects?"
        r"|incompatible with|mutually exclusive|conflicts? with)\b.*)"
        r"|^(?:[\w.]+\.)?(?:ValueError|AssertionError): (?P<said>.{0,200}?\b(?:requires?|needs?|only supports?)\b.{0,100}?"
        r"\b(?:max|min|num|enable|disable|kv_cache|attention|speculative|draft|chunked|tensor|pipeline|moe|page|hicache)_[a-z0-9_]{1,60}\b.*)",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: [{what}][{said}]",
        "Correct the setting that the message names.",
        needle=("ValueError: ", "AssertionError: "),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?:ValueError|AssertionError): (?P<what>.{0,200}?\b(?:(?:expects?|must be|should be|is not|got none of) one of\b"
        r"|(?:must|should) be (?:a )?(?:multiple of|divisible by|power of|at (?:least|most) \d|between \d)).*)",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Correct the setting that the message names.",
        needle=("ValueError: ", "AssertionError: "),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?:ValueError|NotImplementedError|AssertionError|KeyError): ['\"]?(?P<what>(?:Unsupported|Unknown|Invalid|Unrecognized) "
        r"(?:[a-z]{2,20}_){1,4}[a-z]{2,20}(?: value)?(?:: |=| ')\S.{0,200})",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Correct the setting that the message names.",
        needle=("Unsupported ", "Unknown ", "Invalid ", "Unrecognized "),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^\d+ validation errors? for (?!\w*(?:Request|Response|Message)\b)\w+: (?:[\w.]+: )?(?:(?:Value|Assertion) (?:error|failed), )?"
        r"(?P<what>.*?)(?: \[type=.*)?$",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "Correct the setting that the message names.",
        needle="validation error",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?ConnectionResetError: \[Errno 104\] Connection reset by peer",
        FailureCause.CRASHED,
        "Another program ended, or closed its connection to this one.",
        "The last frames above this line say which it is (LMCache, NIXL, Mooncake: another engine, or their server; a download: the "
        "hub). Its own log says why.",
        needle="ConnectionResetError: ",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^AssertionError: (?P<what>assert .{0,80}\baccept_token\()",
        FailureCause.ENGINE_BUG,
        "The grammar of a structured output does not take a token that the model made under it ({what}…).",
        "Take another backend for structured outputs, or a newer image. <vLLM: The flag is args.structured-outputs-config (its backend: guidance).> "
        "<SGLang: The flag is args.grammar-backend (llguidance).>",
        needle="accept_token(",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Received an? (?P<has>\w{{1,80}}) for argument (?P<name>\w{{1,40}}), but an? (?P<wants>.{{1,160}}) was expected",
        FailureCause.BROKEN_IMAGE,
        "The image's transformers is another version than the engine was written for: as {name} it takes a {wants}, not a {has}.",
        _OTHER_TAG_REMEDY,
        needle=" was expected",
        on="image",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        rf"^(?:[\w.]+\.)?ConnectionRefusedError: (?P<what>.{{1,200}})|{EXCEPTION_PREFIX}(?P<said>.{{0,300}}?(?:Connect call failed"
        r"|[Cc]onnection refused).{0,120})|^(?:[\w.]+\.)?(?P<http>ConnectError: All connection attempts failed"
        r"|ClientConnectorError: Cannot connect to host .{1,120}"
        r"|ConnectionError: HTTPConnectionPool\(host='(?:localhost|127\.|10\.|172\.|192\.168\.|0\.)[\d.]{0,12}', port=\d{1,5}\): Max .{0,120}"
        r"|_?InactiveRpcError: .{0,300}failed to connect to all addresses.{0,80})",
        FailureCause.WORKER_LOST,
        "Another process does not listen where this one expects it: [{what}][{said}][{http}]",
        "That process ended, has not begun, or has another address. Its own log says why; the lines around this one say which it is.",
        needle=(
            *("ConnectionRefusedError: ", "Connect call failed", "onnection refused", "All connection attempts failed"),
            *("Cannot connect to host ", "HTTPConnectionPool(host='", "failed to connect to all addresses"),
        ),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?:.{{1,80}}?: )?(?P<what>(?:expected (?:scalar type|(?:m1 and m2|mat1 and mat2) to have the same dtype)"
        r"|mat1 and mat2 must have the same dtype|[Ii]nput type \(.{1,60}\) and (?:weight|bias) type \("
        r"|query and key must have the same dtype).{0,160})",
        FailureCause.BAD_VALUE,
        "Two parts of the model compute in different number formats: {what}",
        "Leave out args.dtype, or set it to the format that the model's config.json names; the same for args.kv-cache-dtype. If neither is "
        "set, take a newer image.",
        needle=("expected scalar type", "the same dtype", "nput type ("),
        on="args.dtype",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?ValueError: (?P<what>invalid literal for int\(\) with base \d+: .{1,120}|could not convert string to float: .{1,120})"
        r"|^(?:[\w.]+\.)?JSONDecodeError: (?P<json>Expecting property name enclosed in double quotes: line 1 column 2 \(char 1\))",
        FailureCause.BAD_VALUE,
        "A setting is not written as its reader expects[: {what}][: it is no JSON ({json})].",
        "Look for it among args and env: a number without unit and with a point, JSON with double quotes (the whole in single quotes).",
        needle=("invalid literal for int()", "could not convert string to float", "Expecting property name"),
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"(?P<what>mat1 and mat2 shapes cannot be multiplied \(\d+x(?P<has>\d+) and (?P<takes>\d+)x\d+\))",
        FailureCause.CRASHED,
        "Two parts do not fit together: one takes {takes} values and is given {has} ({what}).",
        "In ComfyUI: text encoder, LoRA, ControlNet or IP adapter of another model family than the checkpoint. In an engine: a draft, an adapter or "
        "a quantization that was not made for this model; else take another image.",
        needle="mat1 and mat2 shapes",
        weight=FailureWeight.EXCEPTION,
    ),
    # Settings are one line; what has more is a file.
    failure_rule(
        rf"^(?:[\w.]+\.)?JSONDecodeError: (?P<what>{JSON_FAULT}: line (?:[2-9]|\d{{2,9}}) column \d{{1,9}}.{{0,40}}"
        r"|Unterminated string starting at: .{1,80})",
        FailureCause.MODEL_FILES,
        "A JSON file cannot be read: {what}",
        "The frames before this line say who read it: most often a file of the model that was cut short or edited by hand (python3 -m json.tool "
        "FILE names the place). Download it again, or correct it.",
        needle="JSONDecodeError: ",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?JSONDecodeError: (?P<what>Expecting value: line 1 column 1 \(char 0\)|Unexpected UTF-8 BOM.{0,80})",
        FailureCause.CRASHED,
        "What should be JSON is empty or something else ({what}); the message does not name it.",
        "Most often a file of the model: an empty one, a Git LFS pointer, a page of a proxy. The frames before this line say who read it; "
        "in the model's directory: find . -name '*.json' -size -2. Else it is a setting that has to be JSON, or a server's answer.",
        needle="JSONDecodeError: ",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Cannot re-initialize (?P<what>CUDA|HIP|XPU|NPU) in forked subprocess",
        FailureCause.BAD_VALUE,
        "{what} was used before the engine started its processes as copies (fork) of its own, and they cannot use it.",
        "Let it start them anew (spawn). In a program of your own: nothing on the GPU before the engine is made, and that below "
        "`if __name__ == '__main__':`.",
        needle="in forked subprocess",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^KeyError: '(?P<what>m?rope_\w{1,40}|original_max_position_embeddings|num_(?:hidden_layers|\w{0,20}experts\w{0,20}|attention_heads"
        r"|key_value_heads)|hidden_size|head_dim|layer_types|sliding_window\w{0,20}|(?:moe_)?intermediate_size|quant_method|quant_algo)'$",
        FailureCause.BROKEN_IMAGE,
        "The engine looks for {what} in the model's config.json, and there is none, or the image's transformers gives it another name.",
        "Take another tag of this image, whose transformers and engine belong together. If it is the model's own config, take the model from the "
        "repository that this engine names.",
        needle="KeyError: '",
        on="image",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^AttributeError: '(?P<name>[A-Z]\w{1,60}Config)' object has no attribute '(?P<what>\w{1,60})'",
        FailureCause.BROKEN_IMAGE,
        "The engine looks for {what} in the model's config ({name}), and the image's transformers, or the model's config.json, has none.",
        "Take another tag of this image, whose transformers and engine belong together. If it is the model's own config, take the model from the "
        "repository that this engine names.",
        needle="Config' object has no attribute '",
        on="image",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^AttributeError: '?(?P<name>(?=[A-Z])\w{0,60}?(?:Tokenizers?|Processor)(?:Fast|(?P<new>Backend))?)'? (?:object )?has no attribute "
        r"'?(?P<what>\w{1,60})",
        FailureCause.BROKEN_IMAGE,
        "The image's transformers is another version than the engine, or the model's own code, was written for: {name} has no {what}.",
        f"{_OTHER_TAG_REMEDY}[ An image of your own: pip install 'transformers<5', the last without Tokenizers{{new}}.]",
        needle=" has no attribute ",
        on="image",
        weight=FailureWeight.EXCEPTION,
    ),
    # Wrappers: the error itself follows, at the end of the message or of another traceback.
    failure_rule(
        rf"{EXCEPTION_PREFIX}The following operation failed in the TorchScript interpreter"
        r"|^(?:[\w.]+\.)?ProcessRaisedException:\s*$|^(?:[\w.]+\.)?BackendCompilerFailed: backend='?\w{1,40}'? raised:$",
        FailureCause.CRASHED,
        "A part of the program failed, and its caller reports it.",
        "The lines after this one name the reason.",
        needle=("failed in the TorchScript interpreter", "ProcessRaisedException:", "BackendCompilerFailed: "),
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"^what\(\):\s+(?P<what>\S.*)",
        FailureCause.CRASHED,
        "The program ended on an error: {what}",
        UNNAMED_REMEDY,
        needle="what(): ",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^It looks like (?P<what>\w{2,20}_init) failed for some reason",
        FailureCause.CRASHED,
        "Open MPI did not start: {what} failed.",
        "The lines after it name the step that failed.",
        needle="_init failed for some reason",
        weight=FailureWeight.DEATH,
    ),
    *_PROGRAM_DEATHS,
    failure_rule(
        r"^Fatal Python error: (?P<what>.*)",
        FailureCause.CRASHED,
        "Python crashed: {what}",
        "The lines after it say where; a newer or older image may work.",
        needle="Fatal Python error",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^(?:builtins\.)?ImportError: (?P<what>\S.{1,300})",
        FailureCause.BROKEN_IMAGE,
        "Python could not import a part of the program: {what}",
        _MISSING_PART_REMEDY,
        needle="ImportError: ",
        on="image",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?:(?!DEBUG|INFO|WARN)\w{1,40}: {1,8})?"
        rf"(?P<what>(?:(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)|{EXCEPTION_WITHOUT_ERROR}): .*)",
        FailureCause.CRASHED,
        "The engine stopped on an error: {what}",
        UNNAMED_REMEDY,
        needle=_EXCEPTION_NEEDLES,
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(  # Ollama serves other models after it; another rule may know what it quotes
        r"\blevel=ERROR .{0,200}?msg=\"error loading (?:llama server|model)\".{0,300}? error=\"?"
        r"(?P<what>(?!.{0,200}context canceled)\S.{0,400}?)\"?$",
        FailureCause.CRASHED,
        "The model could not be loaded: {what}",
        "The lines before this one may name the reason; with env.OLLAMA_DEBUG: 1 the log says more.",
        needle='msg="error loading ',
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"^(?P<what>(?:AssertionError|KeyboardInterrupt|NotImplementedError|RuntimeError))$",
        FailureCause.CRASHED,
        "The engine stopped on an error: {what}",
        UNNAMED_REMEDY,
        needle=("AssertionError", "KeyboardInterrupt", "NotImplementedError", "RuntimeError"),
        weight=FailureWeight.EXCEPTION,
    ),
)
