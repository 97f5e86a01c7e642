"""What an import takes over only when it is told to: things that reach beyond the container."""

from __future__ import annotations

import re

from sparkctl.recipes.ledger import Ledger

# Where models and caches are kept; a mount of anything else is somebody's own decision.
_KEEPS_MODELS = re.compile(
    r"model|cache|huggingface|^\.?hf([._-]|$)|checkpoint|ckpt|weights|gguf|safetensors|^hub$|llm|lora|draft|tiktoken"
    r"|vllm|sglang|ollama|comfyui|triton|flashinfer|torch|nim|tuning",
    re.IGNORECASE,
)
_CODE = re.compile(r"\.(py|sh|so(\.\d+)*|pth|conf|service|bashrc|profile|pem|key)$|(^|/)\.ssh(/|$)")
_SYSTEM = ("boot", "dev", "etc", "proc", "run", "sys", "sbin", "bin", "lib", "usr")
_SOCKET = re.compile(r"docker\.sock|containerd\.sock|podman\.sock")
_DEVICES = re.compile(r"/dev/(infiniband(/.*)?|nvidia.*|dri(/.*)?|kfd|fuse)$|[\w.-]+/[\w.-]+=")
_CAPABILITIES = ("ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_BOOT", "DAC_READ_SEARCH")


def may_mount(ledger: Ledger, key: str, source: str) -> bool:
    """Tell whether a mount may be imported: volumes, and directories of models and caches; else with ``--allow`` only."""
    if _SOCKET.search(source):
        return ledger.permits(key, "whoever has Docker's socket is root on the node")
    if not source.startswith(("/", "~")):
        return True
    if _CODE.search(source):
        return ledger.permits(key, f"{source} on the node is no directory of models or caches")
    parts = [part for part in source.split("/") if part not in ("", "~")]
    if (
        ".." not in parts
        and parts[:1]
        and parts[0] not in _SYSTEM
        and any(_KEEPS_MODELS.search(part) for part in parts)
    ):
        return True
    return ledger.permits(key, f"{source} on the node is no directory of models or caches")


def may_set(ledger: Ledger, key: str, option: str, value: str) -> bool:
    """Tell whether a docker run flag may be imported."""
    if option == "privileged":
        return ledger.permits(key, "a privileged container is root on the node")
    if option in ("pid", "userns", "uts") and value == "host":
        return ledger.permits(key, "it sees every process of the node")
    if option == "cap-add" and value.upper().removeprefix("CAP_") in _CAPABILITIES:
        return ledger.permits(key, f"{value} is as good as root on the node")
    return True


def may_use(ledger: Ledger, key: str, device: str) -> bool:
    """Tell whether a device may be imported: GPUs and network adapters; else with ``--allow`` only."""
    if _DEVICES.match(device.split(":")[0]):
        return True
    return ledger.permits(key, f"{device} is neither a GPU nor a network adapter")
