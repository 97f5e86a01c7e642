"""The import policy: an allow list of what is harmless in a foreign profile. Everything else is withheld,
and secrets become references to the operator's environment.

`apply_policy` checks the finished profile, so no source format can bypass it. An accepted profile is written to a file
and belongs to the operator from then on: nothing in the file says where it came from.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

from sparkctl.engines import load_engine, load_engines
from sparkctl.engines.base import EngineRank
from sparkctl.engines.engine_flags import find_shell_script
from sparkctl.errors import format_did_you_mean
from sparkctl.model.launch_plan import GuardRule
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, Profile, list_arg_texts, map_arg_texts
from sparkctl.model.text.secrets import contains_token, find_secret_arguments, find_secret_values, is_secret_name
from sparkctl.profiles.docker_options import DOCKER_OPTIONS
from sparkctl.profiles.env_references import (
    REFERENCE_PATTERN,
    escape_references,
    format_reference,
    has_references,
    list_referenced_names,
    resolve_defaults,
)
from sparkctl.profiles.field_types import find_misleading_part
from sparkctl.profiles.importers.profile_draft import ImportReport, ImportResult, ProfileDraft

ALLOW_ALL = "all"  # what a plain `--allow` means
ALLOW_NAMES = (
    "build", "mount", "device", "env", "env-file", "network", "ipc", "gpus", "ulimit", "guard", "hooks", "ssh", *DOCKER_OPTIONS,
)  # fmt: skip
_ALLOW_ALIASES = {
    "mounts": "mount", "volume": "mount", "volumes": "mount", "v": "mount", "devices": "device", "e": "env",
    "environment": "env", "env-files": "env-file", "envfile": "env-file", "net": "network", "network-mode": "network",
    "gpu": "gpus", "ulimits": "ulimit", "hook": "hooks", "pre-exec": "hooks", "post-exec": "hooks", "post-commands": "hooks",
    "cap": "cap-add", "capabilities": "cap-add", "security-opts": "security-opt", "p": "publish", "ports": "publish",
    "u": "user", "m": "memory", "w": "workdir", "h": "hostname", "groups": "group-add", "start-guard": "guard",
}  # fmt: skip

# --- environment: what a profile may read from the operator's own ---

# Tokens for model registries, and keys of a server's own.
_REGISTRY_TOKENS = re.compile(
    r"HF_TOKEN|HF_API_TOKEN|HF_HUB_TOKEN|HUGGING_?FACE_TOKEN|HUGGING_?FACE_HUB_TOKEN|HUGGINGFACEHUB_API_TOKEN|NGC_API_KEY"
    r"|MODELSCOPE_API_TOKEN|API_KEY|SECRET_[0-9]{1,3}"
)
_SETTING_PREFIXES = (
    "HF", "NCCL", "UCX", "GLOO", "OMPI", "CUDA", "NVIDIA", "TORCH", "TORCHINDUCTOR", "PYTORCH", "TRITON", "FLASHINFER",
    "TRANSFORMERS", "TOKENIZERS", "TIKTOKEN", "OMP", "MKL", "RAY", "NIM", "LC",
)  # fmt: skip
_SETTING_WORDS = frozenset((
    "ADDR", "ADDRESS", "ARCH", "BACKEND", "BATCH", "BLOCK", "BLOCKS", "CACHE", "CONTEXT", "COUNT", "CPU", "CPUS", "CTX",
    "CTXLEN", "DEBUG", "DEVICE", "DEVICES", "DIR", "DIRECTORY", "DIRS", "DOMAIN", "DP", "DRAFT", "DTYPE", "EAGER", "ENGINE",
    "EP", "FILE", "FOLDER", "FORMAT", "FRACTION", "GID", "GPU", "GPUS", "GROUP", "HANDLE", "HEAD", "HOME", "HOST", "HOSTNAME",
    "ID", "IDS", "IFACE", "IFNAME", "IMAGE", "INDEX", "INTERFACE", "IP", "KV", "LANG", "LANGUAGE", "LAYERS", "LEN", "LENGTH",
    "LEVEL", "LIMIT", "LOCATION", "LOGNAME", "LORA", "MAX", "MEM", "MEMORY", "MIN", "MODE", "MODEL", "MODELS", "NAME",
    "NAMES", "NETWORK", "NODE", "NODES", "NPROC", "NUM", "PARALLEL", "PARSER", "PATH", "PATHS", "PORT", "PORTS", "PP",
    "PRECISION", "QUANT", "QUANTIZATION", "RANK", "RATIO", "REPO", "REPOSITORY", "REQUESTS", "REVISION", "ROOT", "SEED",
    "SEQLEN", "SEQS", "SERVED", "SIZE", "SPEC", "STEPS", "SWAP", "TAG", "TEMPERATURE", "TEMPLATE", "THREADS", "TIMEOUT",
    "TIMEZONE", "TP", "TYPE", "TZ", "UID", "USER", "USERNAME", "UTIL", "UTILIZATION", "VARIANT", "VERSION", "VOLUME",
    "WORKDIR", "WORKERS", "WORKSPACE", "WORLD",
))  # fmt: skip

# --- directories ---

_MODEL_WORDS = frozenset((
    "cache", "caches", "checkpoint", "checkpoints", "ckpt", "ckpts", "comfyui", "flashinfer", "gguf", "ggufs", "hf", "hub",
    "huggingface", "inductor", "llm", "llms", "lora", "loras", "model", "models", "modelscope", "nim", "safetensors", "tiktoken",
    "tilelang", "torch", "torchinductor", "transformers", "triton", "tuning", "weight", "weights",
))  # fmt: skip
_MODEL_PREFIXES = {
    "ai",
    "all",
    "data",
    "deep",
    "engine",
    "gpu",
    "hugging",
    "local",
    "ml",
    "my",
    "shared",
}
_SYSTEM_DIRECTORIES = frozenset((
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "lost+found", "nix", "proc", "run", "sbin", "snap", "sys",
    "usr",
))  # fmt: skip
_HIDDEN_MODEL_DIRECTORIES = frozenset((
    ".cache", ".flashinfer", ".hf", ".huggingface", ".lmstudio", ".local", ".modelscope", ".nim", ".nv", ".torch", ".triton",
))  # fmt: skip
_CODE_FILE = re.compile(r"\.(py|sh|so(\.\d+)*|pth|conf|service|bashrc|profile|pem|key|env)$", re.IGNORECASE)
_DOCKER_SOCKET = re.compile(r"docker\.sock|containerd\.sock|podman\.sock")
_VOLUME_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")

# --- devices, GPUs and the rest of `docker run` ---

_HARMLESS_DEVICE = re.compile(r"/dev/(infiniband(/[\w-]+)*|nvidia[\w-]*(/[\w-]+)*|dri(/[\w-]+)*|kfd|fuse)/?", re.ASCII)
_CDI_GPU = re.compile(r"nvidia\.com/gpu=[A-Za-z0-9_.:-]+")
_GPU_PART = re.compile(
    r"all|[0-9]{1,3}|count=(all|[0-9]{1,3})|device=[\w,-]+|driver=nvidia|capabilities=[a-z0-9,]+", re.ASCII
)
_HARMLESS_IPC = re.compile(r"host|none|private|shareable")
_NETWORK_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_HARMLESS_ULIMITS = (
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nofile",
    "nproc",
    "rss",
    "sigpending",
    "stack",
)
_ANY_VALUE = re.compile(r".*", re.DOTALL)
# Each flag with the values that affect only the container. A flag that is not listed is withheld with any value.
_HARMLESS_OPTIONS: dict[str, re.Pattern[str]] = {
    "add-host": _ANY_VALUE,
    "cap-drop": _ANY_VALUE,
    "cpus": _ANY_VALUE,
    "cpuset-cpus": _ANY_VALUE,
    "hostname": _ANY_VALUE,
    "init": _ANY_VALUE,
    "memory": _ANY_VALUE,
    "memory-swap": _ANY_VALUE,
    "pids-limit": _ANY_VALUE,
    "publish": _ANY_VALUE,
    "read-only": _ANY_VALUE,
    "stop-signal": _ANY_VALUE,
    "workdir": _ANY_VALUE,
    # Docker's default capabilities, and the two that engines need: locked memory for RDMA, and NUMA.
    "cap-add": re.compile(
        r"(CAP_)?(IPC_LOCK|SYS_NICE|AUDIT_WRITE|CHOWN|DAC_OVERRIDE|FOWNER|FSETID|KILL|NET_BIND_SERVICE|NET_RAW|SETFCAP|SETGID"
        r"|SETPCAP|SETUID|SYS_CHROOT)",
        re.IGNORECASE,
    ),
    "group-add": re.compile(r"video|render"),
    "log-driver": re.compile(r"json-file|local|journald|none"),
    "log-opt": re.compile(r"(max-size|max-file|compress|mode|max-buffer-size|tag)=[^\n]*"),
    "oom-score-adj": re.compile(r"[0-9]{1,4}"),
    "runtime": re.compile(r"nvidia|runc"),
    "security-opt": re.compile(r"no-new-privileges([:=]true)?"),
    "tmpfs": re.compile(
        r"(?P<target>/[^:]*)(:(rw|ro|exec|noexec|suid|nosuid|nodev|async|sync|noatime|size=[0-9]+[kmgKMG%]?|mode=[0-7]{3,4}"
        r"|uid=[0-9]+|gid=[0-9]+|nr_inodes=[0-9]+[kmgKMG]?|,)*)?"
    ),
    "user": re.compile(r"[\w-]+(:([0-9]+|root|users|video|render))?", re.ASCII),
}


_SOME_RANK = EngineRank(0, ("", ""))


@dataclass(frozen=True, slots=True)
class ImportRisk:
    """A value that is not known to be harmless. ``name``: for `--allow`; ``field``: its place (``container.options.cap-add``)."""

    name: str
    field: str
    value: str
    why: str


def parse_allow_names(texts: Iterable[str]) -> frozenset[str]:
    """Return the names to allow, as in `ALLOW_NAMES`, from any usual spelling (``cap_add``, ``--volume``).

    ``NAME=VALUE`` allows one value. Raises ValueError for an unknown name.
    """
    found = set()
    for text in texts:
        written, equals, value = text.strip().partition("=")
        name = normalize_allow_name(written)
        if name is None:
            near = format_did_you_mean(written, ALLOW_NAMES)
            raise ValueError(
                f"no such name: `{written[:40]}`{near}; run it without --allow to see what is withheld, and as what"
            )
        found.add(f"{name}={value}" if equals else name)
    return frozenset(found)


def normalize_allow_name(text: str) -> str | None:
    """Return the name for `--allow` that a text means, None if it means none."""
    folded = text.strip().strip("-").lower().replace("_", "-")
    folded = folded.rpartition(".")[2] or folded  # container.options.cap-add
    name = _ALLOW_ALIASES.get(folded, folded)
    return name if name == ALLOW_ALL or name in ALLOW_NAMES else None


def apply_policy(imported: ImportResult, is_beside: Callable[[str], bool]) -> ImportResult:
    """Return an import without what is not harmless, unless the operator allows it; the report lists all of it.

    ``is_beside``: tells whether a file of this name is in the directory of the source, and will be in the profile's.
    """
    ledger, profile = imported.ledger, imported.profile
    withheld = [one for one in _list_risks(profile, is_beside) if not ledger.is_allowed(one.name, one.value)]
    for one in withheld:
        ledger.withhold_value(one.field, one.value, one.name, one.why)
    profile = _remove_withheld(profile, frozenset((one.field, one.value) for one in withheld))
    for field, value in _iter_container_entries(profile):
        if not ledger.has_mapped_field(field, value):
            ledger.add_mapped(f"{imported.kind.value}'s own {field}", field, value)
    _note_environment_secrets(profile, ledger)
    for text in ledger.list_unused_allow_values():
        ledger.add_remark(f"--allow {text} had no effect: the source has nothing of that name with exactly this value.")
    gone = {one.field for one in withheld}
    # what was said of a variable or flag before it was withheld is not true any more
    ledger.remarks[:] = [one for one in ledger.remarks if one.path not in gone or "." not in (one.path or "")]
    comments = tuple(comment for comment in imported.comments if comment[0] not in gone)
    return replace(imported, profile=profile, comments=comments)


def _list_risks(one: Profile, is_beside: Callable[[str], bool]) -> Iterator[ImportRisk]:
    """Yield everything in a profile that is not known to be harmless."""
    box = one.container
    if one.build is not None:
        yield ImportRisk(
            "build", "build", one.build, "its Dockerfile runs as root on the node when `pull` builds the image"
        )
    for mount in one.mounts:
        if why := explain_mount_risk(mount):
            if _has_model_below(one, mount):
                source = mount.partition(":")[0]
                why = f"{source} holds more than models, judging by its name; the model is in it, and cannot start without it"
            yield ImportRisk("mount", "mounts", mount, why)
    for device in box.devices:
        if why := _explain_device_risk(device):
            yield ImportRisk("device", "container.devices", device, why)
    for option, value in box.options:
        if why := _explain_option_risk(option, value):
            yield ImportRisk(option, f"container.options.{option}", value, why)
    for name, value in box.ulimits:
        if name not in _HARMLESS_ULIMITS:
            yield ImportRisk(
                "ulimit",
                f"container.ulimits.{name}",
                value,
                "it gives the container precedence over the node's own programs",
            )
    if box.gpus is not None and not _is_gpu_request(box.gpus):
        yield ImportRisk("gpus", "container.gpus", box.gpus, f"{box.gpus} asks for more than GPUs")
    if box.ipc is not None and not _HARMLESS_IPC.fullmatch(box.ipc):
        yield ImportRisk("ipc", "container.ipc", box.ipc, "it shares the memory of another container")
    if box.network is not None and not _NETWORK_NAME.fullmatch(box.network):
        yield ImportRisk("network", "container.network", box.network, "it shares the network of another container")
    if one.env_file is not None and not _is_local_env_file(one.env_file, is_beside):
        yield ImportRisk(
            "env-file",
            "env_file",
            one.env_file,
            f"{one.env_file} is not next to the source and the profile: its variables would go into the container",
        )
    for name, value in one.env:
        for variable in list_unlisted_variables(value):
            yield ImportRisk("env", f"env.{name}", variable, _explain_variable_risk(variable, value))
    for name, arg in one.args:
        for text in list_arg_texts(arg):
            for variable in list_unlisted_variables(text):
                yield ImportRisk("env", f"args.{name}", variable, _explain_variable_risk(variable, text))
    guard = one.start.guard
    if guard is None or guard.floor < GuardRule().floor or guard.limit is not None:
        yield ImportRisk(
            "guard",
            "start.guard",
            "",
            "without the usual guard nothing stops a start that uses up the node's memory",
        )
    if one.floor_memory is not None and one.floor_memory < GuardRule().floor:
        yield ImportRisk(
            "guard", "memory.floor", str(one.floor_memory), "less than usual would be left for the node's own programs"
        )
    if one.nodes > 1 and load_engine(one.engine).list_ssh_key_mounts(_SOME_RANK):
        why = (
            "its ranks log in to each other with your ~/.ssh, which each container would get; else it is for one Spark"
        )
        yield ImportRisk("ssh", "nodes", str(one.nodes), why)


def _has_model_below(profile: Profile, mount: str) -> bool:
    """Tell whether the model's path lies in the target of a mount of an ordinary directory."""
    source, _, rest = mount.partition(":")
    target, path = rest.partition(":")[0].rstrip("/"), profile.model.path or ""
    parts = [part for part in source.split("/") if part]
    is_ordinary = source.startswith("/") and bool(parts) and parts[0] not in _SYSTEM_DIRECTORIES
    is_plain = not _DOCKER_SOCKET.search(source) and mount.isprintable() and not find_misleading_part(source)
    return is_ordinary and is_plain and bool(target) and path.startswith(f"{target}/")


def _remove_withheld(one: Profile, withheld: frozenset[tuple[str, str]]) -> Profile:
    """Return a profile without these pairs of field and value."""

    def keep_unless_withheld(field: str, value: str | None) -> str | None:
        return None if value is None or (field, value) in withheld else value

    box, guard = one.container, one.start.guard
    return replace(
        one,
        build=keep_unless_withheld("build", one.build),
        mounts=tuple(mount for mount in one.mounts if keep_unless_withheld("mounts", mount)),
        env=tuple(
            (name, text) for name, value in one.env if (text := _fill_withheld_defaults(value, f"env.{name}", withheld)) is not None
        ),
        args=tuple(
            (name, arg) for name, value in one.args if (arg := _fill_withheld_arg(value, f"args.{name}", withheld)) is not None
        ),
        env_file=keep_unless_withheld("env_file", one.env_file),
        nodes=1 if ("nodes", str(one.nodes)) in withheld else one.nodes,
        floor_memory=None if ("memory.floor", str(one.floor_memory)) in withheld else one.floor_memory,
        start=replace(one.start, guard=GuardRule() if ("start.guard", "") in withheld else guard),
        container=replace(
            box,
            gpus=keep_unless_withheld("container.gpus", box.gpus),
            ipc=keep_unless_withheld("container.ipc", box.ipc),
            network=keep_unless_withheld("container.network", box.network),
            ulimits=tuple(pair for pair in box.ulimits if keep_unless_withheld(f"container.ulimits.{pair[0]}", pair[1])),
            devices=tuple(device for device in box.devices if keep_unless_withheld("container.devices", device)),
            options=tuple(pair for pair in box.options if keep_unless_withheld(f"container.options.{pair[0]}", pair[1])),
        ),
    )  # fmt: skip


def _iter_container_entries(one: Profile) -> Iterator[tuple[str, str | None]]:
    """Yield field and value of what a container gets besides its image and its command."""
    box = one.container
    yield from (("mounts", mount) for mount in one.mounts)
    yield from (("container.devices", device) for device in box.devices)
    yield from ((f"container.options.{name}", value) for name, value in box.options)
    yield from ((f"container.ulimits.{name}", None) for name, _ in box.ulimits)
    yield from ((f"env.{name}", None) for name, _ in one.env)
    singles = (
        ("gpus", box.gpus),
        ("ipc", box.ipc),
        ("network", box.network),
        ("shm_size", box.shm_size),
        ("name", box.name),
    )
    yield from ((f"container.{name}", value) for name, value in singles if value is not None)
    if one.env_file is not None:
        yield "env_file", None


# --- one rule for each kind of thing ---


def explain_mount_risk(mount: str) -> str | None:
    """Return why a mount is not harmless, None if it is: a directory for models or caches, or a volume for them."""
    source, _, rest = mount.partition(":")
    if _DOCKER_SOCKET.search(source):
        return "whoever has Docker's socket is root on the node"
    if not mount.isprintable() or find_misleading_part(source) or find_misleading_part(rest.partition(":")[0]):
        return f"{source} leads to another directory than it seems to"
    if not source.startswith(("/", "~")):
        if _VOLUME_NAME.fullmatch(source) and is_model_name(source):
            return None
        return f"the volume {source} may be another container's: its name is not one of models or caches"
    if source.rstrip("/") == "/dev/shm" or _HARMLESS_DEVICE.fullmatch(source):  # noqa: S108  what --ipc host shares as well
        return None
    if _CODE_FILE.search(source.rstrip("/")) or not _is_model_directory(source):
        return f"{source} on the node is not a directory for models or caches"
    return None


def _is_model_directory(path: str) -> bool:
    """Tell whether a path is in, or is, a directory named for models or caches; a home directory never is."""
    parts = [part for part in path.split("/") if part]
    if not parts or parts[0] in _SYSTEM_DIRECTORIES or (parts[0].startswith("~") and parts[0] != "~"):
        return False
    below = parts[{"home": 2, "~": 1, "root": 1}.get(parts[0], 0) :]
    if parts[0] == "var":  # /var/lib/ollama: the whole directory belongs to it
        below = parts[2:] if parts[1:2] in (["lib"], ["cache"], ["tmp"]) and is_model_name("".join(parts[2:3])) else []
    if any(
        part.startswith(".") and part not in _HIDDEN_MODEL_DIRECTORIES | _collect_engine_names("hidden_directories")
        for part in below
    ):
        return False
    # ~/.cache holds programs of others; only the caches named here are allowed.
    return any(is_model_name(part) for part in below if part != ".cache")


def is_model_name(name: str) -> bool:
    """Tell whether a directory or volume is named for models or their caches: hf-cache, LLMs, my_models_2."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name[:255]) + re.findall(r"[a-z]+", name[:255].lower())
    return any(_is_model_word(word.lower()) for word in words)


def _is_model_word(word: str) -> bool:
    words = _MODEL_WORDS | _collect_engine_names("directory_words")
    if word in words:
        return True
    return any(
        word[at:] in words and (word[:at] in words or word[:at] in _MODEL_PREFIXES) for at in range(2, len(word) - 1)
    )


@cache
def _collect_engine_names(field: str) -> frozenset[str]:
    """Return what all engines have in a field of their import rules."""
    return frozenset(name for one in load_engines() if one.import_rules for name in getattr(one.import_rules, field))


def _is_engine_variable(name: str) -> bool:
    """Tell whether a variable is a setting of an engine or of a library below it, by its beginning."""
    prefix, line, rest = name.partition("_")
    known = prefix in _SETTING_PREFIXES or prefix in _collect_engine_names("variables")
    return known and bool(line) and re.fullmatch(r"[A-Z0-9_]+", rest) is not None


def _explain_device_risk(device: str) -> str | None:
    if _CDI_GPU.fullmatch(device):
        return None
    outside, *rest = device.split(":")
    if any(map(find_misleading_part, (outside, *rest))):
        return f"{device} leads to another device than it seems to"
    is_mapped = len(rest) <= 2 and all(part.startswith("/") or set(part) <= set("rwm") for part in rest)
    if _HARMLESS_DEVICE.fullmatch(outside) and is_mapped:
        return None
    return f"{device} is neither a GPU nor a network adapter"


def _explain_option_risk(option: str, value: str) -> str | None:
    harmless = _HARMLESS_OPTIONS.get(option)
    found = None if harmless is None else harmless.fullmatch(value)
    if found is not None and not (option == "tmpfs" and find_misleading_part(found["target"])):
        return None
    if option == "privileged":
        return "a privileged container is root on the node"
    if option == "pid":
        return f"the container would see every process of {'the node' if value == 'host' else 'another container'}"
    if option == "cap-add":
        return f"{value} reaches beyond the container; engines need IPC_LOCK at most"
    if option == "security-opt":
        return f"{value} weakens the isolation of the container from the node"
    if option == "log-driver" or option == "log-opt":
        return f"{value} may send the log away from the node, or write into it what is not to be seen"
    return f"{value} is not among the values of --{option} that are known to be harmless"


def _is_gpu_request(text: str) -> bool:
    """Tell whether a text asks for GPUs only, by Docker's grammar."""
    if text == "none":
        return True
    try:
        parts = next(csv.reader([text], strict=True), [])
    except csv.Error:
        return False
    return bool(parts) and all(_GPU_PART.fullmatch(part) for part in parts)


def _is_local_env_file(text: str, is_beside: Callable[[str], bool]) -> bool:
    name = text.removeprefix("./")
    return (
        "/" not in name
        and not name.startswith("~")
        and name not in ("", ".", "..")
        and text.isprintable()
        and is_beside(name)
    )


# --- what a profile reads from the operator's environment ---


def is_listed_variable(name: str) -> bool:
    """Tell whether a variable of the operator may go into a container without `--allow`: a token for model registries,
    or a setting by its name. A secret with any other name may not.
    """
    if _REGISTRY_TOKENS.fullmatch(name) or name in _collect_engine_names("key_variables"):
        return True
    upper = name.upper()
    if is_secret_name(upper):
        return False
    stem = upper.rstrip("0123456789")
    last = (stem if stem == upper else stem.removesuffix("_")).rpartition("_")[2]
    is_address = re.search(r"(^|_)(API_URL|BASE_URL|ENDPOINT)$", upper) is not None
    return is_address or _is_engine_variable(upper) or last in _SETTING_WORDS


def list_unlisted_variables(text: str) -> tuple[str, ...]:
    """Return the variables in a text that are not taken from the operator's environment without `--allow env`."""
    return tuple(dict.fromkeys(name for name in list_referenced_names(text) if not is_listed_variable(name)))


def _explain_variable_risk(variable: str, text: str) -> str:
    has_default = any(
        match["name"] == variable and match["default"] is not None for match in REFERENCE_PATTERN.finditer(text)
    )
    problem = f"{variable} of your own environment would go into the container"
    if has_default:
        return f"{problem}; its default is used"
    return problem if is_secret_name(variable) else f"{problem}; --define {variable}=VALUE gives it a value"


def _fill_withheld_defaults(text: str, field: str, withheld: frozenset[tuple[str, str]]) -> str | None:
    """Return a text with the defaults of withheld variables, as text (``{A:-$}{B}`` makes no reference); None if one has none."""
    found, plain, end = "", "", 0
    for match in REFERENCE_PATTERN.finditer(text):
        plain, end = plain + text[end : match.start()], match.end()
        if match["name"] is None:
            plain += "${"
        elif (field, match["name"]) not in withheld:
            found, plain = found + escape_references(plain) + match[0], ""
        elif match["default"] is None:
            return None
        else:
            plain += match["default"]
    return found + escape_references(plain + text[end:])


def _fill_withheld_arg(value: ArgValue, field: str, withheld: frozenset[tuple[str, str]]) -> ArgValue | None:
    texts = [_fill_withheld_defaults(text, field, withheld) for text in list_arg_texts(value)]
    if not texts:
        return value
    plain = tuple(text for text in texts if text is not None)
    if len(plain) != len(texts):
        return None
    return FlagValues(plain) if isinstance(value, FlagValues) else plain if isinstance(value, tuple) else plain[0]


def _note_environment_secrets(profile: Profile, ledger: ImportReport) -> None:
    """Report which secrets of the operator's environment go into the container, unless that is reported already."""
    known = {remark.path for remark in ledger.remarks}
    texts = [*((f"env.{name}", value) for name, value in profile.env)]
    texts += [(f"args.{name}", text) for name, value in profile.args for text in list_arg_texts(value)]
    for field, text in texts:
        taken = [name for name in list_referenced_names(text) if is_secret_name(name)] if has_references(text) else []
        if taken and field not in known:
            ledger.add_remark(f"{field} takes {', '.join(taken)} from your own environment into the container.", field)


def replace_env_secrets(draft: ProfileDraft) -> None:
    """Replace every secret value among the environment entries."""
    for name, value in draft.env.items():
        if _is_secret_value(name, value):
            draft.env[name] = format_reference(name)
            _note_replacement(draft, f"env.{name}", name)
        else:
            draft.env[name] = _strip_secret_defaults(draft, f"env.{name}", name, value)


def replace_flag_secrets(draft: ProfileDraft, found: list[tuple[str, ArgValue]]) -> list[tuple[str, ArgValue]]:
    out: list[tuple[str, ArgValue]] = []
    for key, value in found:
        name = re.sub(r"[^A-Za-z0-9]+", "_", key.strip("-")).upper()
        texts = value.words if isinstance(value, FlagValues) else value if isinstance(value, tuple) else (value,)
        words = [text.text if isinstance(text, JsonValue) else text for text in texts if not isinstance(text, bool)]
        if not any(_is_secret_value(key, word) for word in words):
            out.append((key, _strip_arg_secret_defaults(draft, key, value)))
            continue
        kept = tuple(format_reference(name) if _is_secret_value(key, word) else word for word in words)
        out.append(
            (key, FlagValues(kept) if isinstance(value, FlagValues) else kept if isinstance(value, tuple) else kept[0])
        )
        _note_replacement(draft, f"args.{key}", name)
    return out


def replace_command_secrets(draft: ProfileDraft, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that takes its secrets from the container's environment, where a shell can do that, else masks."""
    secrets = find_secret_arguments(command)
    if not secrets:
        return command
    named = {secret: f"SECRET_{number}" for number, secret in enumerate(sorted(secrets, key=len, reverse=True), 1)}
    out = []
    script = find_shell_script(command)
    for position, word in enumerate(command):
        for secret, name in named.items():
            if secret in word and position == script:
                word = word.replace(secret, f"${{{name}}}")
                draft.env[name] = format_reference(name)
            elif secret in word:
                word = word.replace(secret, "CHANGE-ME")
        out.append(word)
    for name in named.values():
        _note_replacement(draft, "command", name)
    return tuple(out)


def replace_data_secrets(value: object, name: str) -> object:
    if isinstance(value, dict):
        return {key: replace_data_secrets(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [replace_data_secrets(one, name) for one in value]
    if isinstance(value, str) and _is_secret_value(name or "_", value):
        return format_reference(re.sub(r"[^A-Za-z0-9]+", "_", name or "SECRET").strip("_").upper() or "SECRET")
    return value


def _strip_arg_secret_defaults(draft: ProfileDraft, key: str, value: ArgValue) -> ArgValue:
    return map_arg_texts(value, lambda text: _strip_secret_defaults(draft, f"args.{key}", key, text))


def _strip_secret_defaults(draft: ProfileDraft, field: str, name: str, text: str) -> str:
    """Return a text without defaults that are secrets: ``${HF_TOKEN:-hf_...}`` becomes ``${HF_TOKEN}``."""

    def strip_secret_default(match: re.Match[str]) -> str:
        variable, default = match["name"], match["default"]
        if variable is None or not default or _is_dummy_secret(default):
            return match[0]
        if not (
            is_secret_name(name)
            or is_secret_name(variable)
            or contains_token(default)
            or find_secret_values([("_", default)])
        ):
            return match[0]
        draft.ledger.add_remark(
            f"The default of {variable} in {field} looks like a secret and is not saved: set it in your environment.",
            field,
        )
        return format_reference(variable)

    return REFERENCE_PATTERN.sub(strip_secret_default, text)


def _is_secret_value(name: str, value: str) -> bool:
    plain = REFERENCE_PATTERN.sub("", value)
    if not plain.strip() or _is_path_of_secret(name, plain):
        return False
    default = any(match["default"] for match in REFERENCE_PATTERN.finditer(value) if match["name"])
    if is_secret_name(name) and (plain != "" or default) and not _is_dummy_secret(plain):
        return True
    text = resolve_defaults(value) or plain
    return contains_token(text) or bool(find_secret_values([("_", text)]) - {text[:0]})


def _is_path_of_secret(name: str, text: str) -> bool:
    """Tell whether a value says where a secret lies (``--api-key-file /run/keys``, ``HF_TOKEN_PATH``), which is none."""
    return re.search(r"[-_](file|path)$", name, re.IGNORECASE) is not None and text.startswith(("/", "~/", "./"))


def _is_dummy_secret(text: str) -> bool:
    """Tell whether a value is a placeholder such as EMPTY, which servers get if there is no key."""
    return text.strip().upper() in ("EMPTY", "NONE", "DUMMY", "NOT-NEEDED", "NULL", "TRUE", "FALSE", "0", "1")


def _note_replacement(draft: ProfileDraft, field: str, name: str) -> None:
    draft.ledger.add_remark(
        f"The value of {field} looks like a secret and is not saved: it is taken from {name} in your environment.",
        field,
    )
