"""Import an engine's own command line (``vllm serve …``, ``python -m sglang.launch_server …``), pasted with any text
around it, also behind ``launch-cluster.sh … exec`` of eugr's spark-vllm-docker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.engines.base import HUB_CACHE, HUB_CACHE_TARGET, HUB_ID_PATTERN
from sparkctl.errors import InvalidInput
from sparkctl.profiles.env_references import escape_references, has_references
from sparkctl.profiles.importers import docker_flags, recipe_reader, shell_parser
from sparkctl.profiles.importers.engine_command import list_import_rules, parse_engine_command
from sparkctl.profiles.importers.profile_draft import MAX_NODES, ImportReport, ProfileDraft, SourceFormat
from sparkctl.profiles.importers.shell_parser import ShellWord

_MACHINE_VARIABLES = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "PWD", "USER", "SHELL"})
_QUESTION_FLAGS = ("--version", "--help", "-h")
_LAUNCHER = "launch-cluster.sh"
_LAUNCHER_IMAGE = "vllm-node"  # where -t names none
_BARE_FLAGS = frozenset({
    "--solo", "--check-config", "--ray", "--no-ray", "--no-cache-dirs", "--keep-entrypoint", "--earlyoom",
    "--non-privileged", "-d", "--setup", "--discover",
})  # fmt: skip
_NODE_FLAGS = frozenset({"--eth-if", "--ib-if", "--master-port", "--head-port", "--config", "-j"})
_YAML_KEYS = re.compile(
    r"^(recipe_version|schema|services|model|container|command|include|defaults|runtime|image):", re.MULTILINE
)
_DEBUG_LEVELS = ("VERSION", "WARN", "INFO", "TRACE")


def list_launch_programs() -> frozenset[str]:
    """Return the words that begin a command line which starts an engine."""
    programs = {rules.program for rules in list_import_rules().values() if rules.program}
    return frozenset(programs | {"python", "python3", _LAUNCHER, f"./{_LAUNCHER}"})


def has_command_line(text: str) -> bool:
    """Tell whether a text is an engine's command line, and no recipe that contains one."""
    if _YAML_KEYS.search(text) is not None:
        return False
    try:
        commands = shell_parser.parse_script(text, {}, lambda words: _find_engine_words(words) is not None)
    except InvalidInput:
        return False
    return any(_find_engine_words(command.words) is not None for command in commands)


def import_command_line(text: str, ledger: ImportReport, defined: Mapping[str, str]) -> ProfileDraft:
    """Return the draft of the first engine command in a text. ``defined``: values of variables that the text does not
    set, and ``container`` for the image.

    Raises `InvalidInput` where there is none, or no image is known for it.
    """
    draft = ProfileDraft(kind=SourceFormat.COMMAND, ledger=ledger)
    found: list[ShellWord] | None = None
    exported: dict[str, str] = {}
    for command in shell_parser.parse_script(text, defined, lambda words: _find_engine_words(words) is not None):
        words = _find_engine_words(command.words)
        if words is None or found is not None:
            if found is None and (exports := shell_parser.list_exports(command)):
                exported |= exports
            elif command.words and not all(shell_parser.parse_assignment(word) for word in command.words):
                line = command.as_text()[:100]
                ledger.add_unsupported(f"`{line}`", "only the engine's first command is read")
            continue
        if command.unclosed is not None:
            raise InvalidInput(
                f"a quote is not closed: {command.unclosed}", "is the line cut off? Paste all of it, quotes and all"
            )
        found = words
        shell_parser.refuse_placeholder(found)
        _take_environment(draft, exported, command.words)
        for redirection in command.redirections:
            ledger.add_unsupported(redirection, "what it prints is in `sparkctl logs`")
        for doubt in command.list_doubts():
            ledger.add_remark(doubt)
    if found is None:
        raise InvalidInput("there is no engine's command in it", "paste the whole line, or name a file")
    is_solo = True
    if _is_launcher(found[0]):
        found, is_solo = _read_launcher(draft, found[1:])
    _take_engine_command(draft, found, defined, is_solo=is_solo)
    return draft


def _find_engine_words(words: Sequence[ShellWord]) -> list[ShellWord] | None:
    """Return the words of a command without what stands before its program; None where no engine is started."""
    rest = list(words[shell_parser.skip_prefix(words) :])
    if not rest:
        return None
    if _is_launcher(rest[0]):
        return rest if any(word.text == "exec" for word in rest) else None
    return rest if _starts_engine(rest) else None


def _is_launcher(word: ShellWord) -> bool:
    return word.text.rpartition("/")[2] == _LAUNCHER


def _starts_engine(words: Sequence[ShellWord]) -> bool:
    """Tell whether the first word is an engine's program, or Python with its module."""
    if any(word.text in _QUESTION_FLAGS for word in words[1:]):
        return False
    first = words[0].text.rpartition("/")[2]
    programs = {rules.program for rules in list_import_rules().values()}
    if first not in programs and not re.fullmatch(r"python[0-9.]*", first):
        return False
    return parse_engine_command([word.text for word in words], "", None).engine != FALLBACK_ENGINE


def _take_environment(draft: ProfileDraft, exported: Mapping[str, str], words: Sequence[ShellWord]) -> None:
    """Take what the text exports before the engine's command, and what stands in front of it."""
    for name, value in exported.items():
        if name in _MACHINE_VARIABLES:
            draft.ledger.add_unsupported(
                f"export {name}", "it is of the machine that ran the line; the image has its own"
            )
        else:
            docker_flags.apply_docker_flag(draft, "env", f"{name}={value}", f"export {name}")
    for word in words[: shell_parser.skip_prefix(words)]:
        name = word.text.partition("=")[0]
        if word.unknown:
            draft.ledger.add_unsupported(f"{name}=", f"{word.unknown[0]} is known only to the shell it is run in")
        elif (pair := shell_parser.parse_assignment(word)) is not None:
            docker_flags.apply_docker_flag(draft, "env", f"{pair[0]}={pair[1]}", f"{pair[0]}=")


def _read_launcher(draft: ProfileDraft, words: list[ShellWord]) -> tuple[list[ShellWord], bool]:
    """Read the launcher's own flags; return the words of its command, and whether it is for one Spark."""
    ledger, mods, is_solo = draft.ledger, [], False
    draft.image = _LAUNCHER_IMAGE
    at = 0
    while at < len(words) and words[at].text != "exec":
        flag, equals, own = words[at].text.partition("=")
        if flag in _BARE_FLAGS:
            is_solo = is_solo or flag == "--solo"
            ledger.add_mapped(flag, "nodes" if flag == "--solo" else "nothing: how its tool starts containers")
            at += 1
            continue
        if flag == "--nccl-debug" and (at + 1 >= len(words) or words[at + 1].text not in _DEBUG_LEVELS):
            docker_flags.apply_docker_flag(draft, "env", "NCCL_DEBUG=INFO", flag)
            at += 1
            continue
        value = own if equals else words[at + 1].text if at + 1 < len(words) else ""
        at += 1 if equals else 2
        if flag == "-t":
            draft.image = value
            ledger.add_mapped(flag, "image")
        elif flag == "--name":
            draft.container_name = value
            ledger.add_mapped(flag, "container.name")
        elif flag in ("-e", "--env"):
            docker_flags.apply_docker_flag(draft, "env", value, f"-e {value.partition('=')[0]}")
        elif flag in ("-v", "--volume", "-p", "--publish"):
            docker_flags.apply_docker_flag(draft, "volume" if "v" in flag else "publish", value, f"{flag} {value}")
        elif flag == "--nccl-debug":
            docker_flags.apply_docker_flag(draft, "env", f"NCCL_DEBUG={value}", flag)
        elif flag == "--apply-mod":
            mods.append(value)
        elif flag in ("-n", "--nodes"):
            draft.nodes = min(MAX_NODES, len([one for one in value.split(",") if one]) or 1)
            ledger.add_mapped(flag, "nodes")
        elif flag in _NODE_FLAGS:
            ledger.add_mapped(flag, "nothing: sparkctl finds it out at the start")
        else:
            ledger.add_unsupported(f"{flag} {value}".strip(), "a profile has no such field")
    recipe_reader.note_mods(ledger, mods)
    recipe_reader.note_local_build(draft, [])
    return words[at + 1 :], is_solo


def _take_engine_command(
    draft: ProfileDraft, words: Sequence[ShellWord], defined: Mapping[str, str], *, is_solo: bool
) -> None:
    """Take the engine's words, and what a container needs for them: an image, the model's files, the host's network."""
    for word in words:
        for piece in word.unknown:
            draft.ledger.add_unsupported(piece, "only the shell that runs it knows its value; it is kept as written")
    program = (
        words[0].text.rpartition("/")[2] if words else ""
    )  # a path of the machine that ran it is none of the image
    draft.words = [program, *(word.text for word in words[1:])]
    found = parse_engine_command(draft.words, "", None)
    if found.engine == FALLBACK_ENGINE:
        raise InvalidInput("no engine's command follows exec", "vllm serve MODEL and its like can be imported")
    draft.ledger.add_mapped("COMMAND", "command, args")
    rules = list_import_rules()[found.engine]
    draft.engine_hint = rules.recipe_name or found.engine
    if image := defined.get("container"):
        draft.image = escape_references(image)
        draft.ledger.add_mapped("container", "image")
    elif draft.image is None:
        if rules.recipe_image is None:
            raise InvalidInput(
                "the line names no image, and none is known for it", "--define container=IMAGE names one"
            )
        draft.image = rules.recipe_image
        draft.ledger.add_remark(
            f"The line names no image; {draft.image} is a guess (--define container=IMAGE names another).", "image"
        )
    if found.model:
        draft.name = found.model.rstrip("/").rpartition("/")[2].removesuffix(".gguf")
        _mount_model(draft, found.model)
    draft.by_ranks = not is_solo
    draft.ipc, draft.network, draft.gpus = "host", "host", "all"


def _mount_model(draft: ProfileDraft, model: str) -> None:
    """Mount the model's directory at its own path, or the hub's cache."""
    if HUB_ID_PATTERN.fullmatch(model):
        if not any(mount.split(":")[1] == HUB_CACHE_TARGET for mount in draft.mounts):
            draft.mounts.append(f"{HUB_CACHE}:{HUB_CACHE_TARGET}")
        return
    if model.startswith("/") and not has_references(model):
        if not any(model.startswith(f"{mount.split(':')[1].rstrip('/')}/") for mount in draft.mounts):
            draft.mounts.append(f"{model}:{model}")
        return
    target = f"/models/{model.rstrip('/').rpartition('/')[2]}"
    if model.startswith("~/"):
        draft.mounts.append(f"{model}:{target}")
        draft.words = [
            target if word == model else word.replace(f"={model}", f"={target}") for word in draft.words or ()
        ]
        return
    draft.ledger.add_remark(
        f"{model} is a path of the shell that ran the line: mount its directory and set model.path.", "model.path"
    )
