"""Import a profile from any source: detect the format of the text, call its reader, and build a `Profile` from the draft."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import PurePath

from sparkctl.engines import FALLBACK_ENGINE, load_engine
from sparkctl.engines.engine_flags import find_shell_script
from sparkctl.engines.traps.profile_traps import check_traps
from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import DockerRunSpec, PhaseTimeouts
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import ArgValue, ContainerOptions, JsonValue, ModelSpec, Profile, StartOptions
from sparkctl.profiles.env_references import escape_references, has_references, resolve_defaults
from sparkctl.profiles.importers import (
    command_line,
    compose_file,
    docker_flags,
    docker_run,
    engine_command,
    export_metadata,
    foreign_yaml,
    import_policy,
    recipe_reader,
    sparkrun_recipe,
)
from sparkctl.profiles.importers.docker_run import build_container_draft
from sparkctl.profiles.importers.engine_command import EngineCommand
from sparkctl.profiles.importers.import_policy import list_unlisted_variables
from sparkctl.profiles.importers.profile_draft import (
    MAX_NODES,
    ImportReport,
    ImportResult,
    KeyOutcome,
    ProfileDraft,
    SourceFormat,
)
from sparkctl.profiles.importers.shell_parser import find_sole_shell_script, split_heredocs, unwrap_shell_command

_YAML_KEY = re.compile(r"(?:[ \t]*+(?:#[^\n]*+|---)?\n)*+[A-Za-z_][\w.-]*:(?:\s|$)")
_OTHER_SOURCES = (
    (
        re.compile(r"\b(?:docker|podman|nerdctl)[ -]compose\b"),
        "what the services are stands in the compose file: import that file",
    ),
    (re.compile(r"\bdocker model\b"), "Docker Model Runner starts no container of its own; import a docker run line"),
    (re.compile(r"\bollama (?:run|serve|pull)\b"), "Ollama's container can be imported: docker run … ollama/ollama"),
    (
        re.compile(r"\bmpirun\b|\btrtllm-llmapi-launch\b"),
        "mpirun starts ranks on several Sparks at once; write one rank's own command: trtllm-serve MODEL …",
    ),
    (re.compile(r"\bkubectl\b|\bhelm\b"), "a Spark runs plain containers; write its container as a docker run line"),
    (re.compile(r"^FROM\s", re.MULTILINE), "a Dockerfile says how an image is made: `build:` in a profile names it"),
)
IncludeLookup = Callable[[str], str | None]
_EXPORT_REMARK = (
    "It claims to be an export of sparkctl. Anybody can write that, so the same is withheld as from any other source."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the operator says about the source. ``lookup``: returns the text of a recipe that another one includes.

    ``allow``: names of `import_policy.ALLOW_NAMES`, True for all; ``is_beside``: tells whether a file of this name is
    in the directory of the source, and will be in the profile's.
    """

    engines: Sequence[str]
    name: str | None = None
    service: str | None = None
    allow: bool | Collection[str] = False
    defined: Mapping[str, str] = field(default_factory=dict)
    lookup: IncludeLookup = lambda _: None
    is_beside: Callable[[str], bool] = lambda _: False


def import_text(text: str, origin: str, wishes: ImportOptions) -> ImportResult:
    """Return the profile of a text. ``origin``: a file's name, or `pasted`. Raises `InvalidInput` with what is wrong and where."""
    if not text.strip():
        raise InvalidInput(f"{origin}: there is nothing in it")
    ledger = ImportReport(allow=wishes.allow)
    ledger.locate = lambda key: _locate_key(text, origin, key)
    if PurePath(origin).suffix.lower() in (".yaml", ".yml", ".json") or text.lstrip().startswith("{"):
        draft = _import_yaml(text, origin, ledger, wishes)
    else:
        draft = _import_unknown_text(text, origin, ledger, wishes)
    draft.source = draft.source or _describe_source(draft, origin)
    fields = export_metadata.read_metadata(draft)
    if fields is None:
        found = build_imported_profile(draft, wishes.engines, wishes.name or _name_from_file(draft, origin))
    else:
        export_metadata.complete_draft(draft, fields)
        found = export_metadata.restore_profile(build_imported_profile(draft, wishes.engines, wishes.name), fields)
    found = import_policy.apply_policy(found, wishes.is_beside)
    if fields is not None and ledger.list_keys_by_outcome(KeyOutcome.WITHHELD):
        ledger.add_remark(_EXPORT_REMARK)
    return found


def _import_unknown_text(text: str, origin: str, ledger: ImportReport, wishes: ImportOptions) -> ProfileDraft:
    """Return the draft of a text whose name does not say what it is."""
    if docker_run.is_quadlet(text):
        return docker_run.import_quadlet(text, ledger, wishes.defined)
    if docker_run.is_unit_file(text):
        script = docker_run.find_unit_script(text)
        if script is not None and command_line.has_command_line(script):
            draft = command_line.import_command_line(script, ledger, wishes.defined)
            docker_run.record_unit_keys(text, draft, wishes.defined)
            return draft
        return docker_run.import_systemd(text, ledger, wishes.defined)
    has_keys = _has_recipe_keys(split_heredocs(text)[0])
    has_keys = has_keys and not _is_page(text)
    if docker_run.has_docker_run(text) and not has_keys:
        return docker_run.import_docker_run(text, ledger, wishes.defined)
    if command_line.has_command_line(text):
        return command_line.import_command_line(text, ledger, wishes.defined)
    if has_keys or _YAML_KEY.match(text):
        return _import_yaml(text, origin, ledger, wishes)
    for body in split_heredocs(text)[1]:
        if _has_recipe_keys(body):
            return _import_yaml(body, origin, ledger, wishes)
    raise InvalidInput(
        f"{origin}: this is neither a recipe nor a command line that starts an engine", _find_import_hint(text)
    )


def _find_import_hint(text: str) -> str:
    """Return what to do instead with a command that cannot be imported."""
    for pattern, hint in _OTHER_SOURCES:
        if pattern.search(text):
            return hint
    return (
        "a recipe begins with keys such as `model:`, a line with docker run, vllm serve, python -m or launch-cluster.sh"
    )


def import_container(
    run: DockerRunSpec, node: str, wishes: ImportOptions, beyond: Sequence[tuple[str, str]]
) -> ImportResult:
    """Return the profile of a container; ``beyond``: its settings that a profile cannot express."""
    draft = build_container_draft(run, ImportReport(allow=wishes.allow), beyond)
    draft.source = f"The container {run.name} on {node}"
    return import_policy.apply_policy(build_imported_profile(draft, wishes.engines, wishes.name), wishes.is_beside)


def _locate_key(text: str, origin: str, key: str) -> str:
    """Return file and line of the first key of that name (the last part of a dotted one)."""
    name = key if key.startswith("#") else re.split(r"[.: ]", key.strip())[-1]
    found = re.search(rf"""(?:^|[\s{{,"'-]){re.escape(name)}["']?\s*:""", text, re.MULTILINE)
    return origin if found is None else f"{origin}:{text.count(chr(10), 0, found.end()) + 1}"


def _import_yaml(text: str, origin: str, ledger: ImportReport, wishes: ImportOptions) -> ProfileDraft:
    data, mended = foreign_yaml.load_foreign_yaml(text, origin)
    for remark in mended:
        ledger.add_remark(f"{origin}: {remark}.")
    if compose_file.is_compose_file(data):
        written, _ = foreign_yaml.load_foreign_yaml(text, origin, as_written=True)
        return compose_file.import_compose(written, ledger, wishes.service, wishes.defined)
    if isinstance(data.get("services"), list):
        return recipe_reader.import_services(data, ledger, wishes.service, wishes.defined)
    if data.get("schema") == 1 and "engine" in data:
        raise InvalidInput(f"{origin}: this is a sparkctl profile already", f"sparkctl profiles check {origin}")
    if "apiVersion" in data and "kind" in data:
        raise InvalidInput(
            f"{origin}: a Kubernetes manifest ({str(data['kind'])[:40]}) cannot be imported",
            "write its container as a docker run line: image, command and args, env, ports",
        )
    if not any(key in data for key in ("model", "container", "command", "include")):
        known = ", ".join(list(data)[:6])
        raise InvalidInput(
            f"{origin}: this is not a recipe: it has none of model, container, command (it has {known})",
            "compose files, sparkrun and eugr recipes, docker run lines and engines' command lines can be imported",
        )
    if str(data.get("recipe_version", "")).strip() in ("1", "1.0") and "runtime" not in data:
        return sparkrun_recipe.import_eugr(data, ledger, wishes.defined)
    return sparkrun_recipe.import_sparkrun(data, ledger, wishes.defined, wishes.lookup)


def _has_recipe_keys(text: str) -> bool:
    """Tell a recipe whose command or notes mention `docker run` from a pasted line."""
    return re.search(r"^(recipe_version|services|model|container):", text, re.MULTILINE) is not None


def _is_page(text: str) -> bool:
    """Tell a page of Markdown, whose front matter may have the keys of a recipe, from a recipe."""
    return re.match(r"---[ \t]*\n(?:[^\n]*\n)*?---[ \t]*\n(?:[ \t]*+\n)*+(?![\w.-]+:|[-#{ \t])", text) is not None


def _name_from_file(draft: ProfileDraft, origin: str) -> str | None:
    """Return the file's name as the name of a recipe without one."""
    if draft.kind.value in ("sparkrun", "eugr") and draft.name is None and "." in origin:
        return PurePath(origin).stem
    return None


def _describe_source(draft: ProfileDraft, origin: str) -> str:
    words = {
        "docker": "A docker run line", "compose": "A compose file", "sparkrun": "A sparkrun recipe", "eugr": "An eugr recipe",
        "services": "A recipe of services", "systemd": "A systemd unit", "quadlet": "A Podman quadlet",
        "command": "A command line",
    }  # fmt: skip
    name = PurePath(origin).name
    return words[draft.kind.value] if name == origin and "." not in origin else f"{words[draft.kind.value]}: {name}"


_NON_NAME_CHARACTERS = re.compile(r"[^a-z0-9._-]+")
MAX_NAME_LENGTH = 56


def profile_name_from_text(text: str | None) -> str | None:
    """Return a profile name made from a text, None if no part of it is usable."""
    if not text:
        return None
    found = _NON_NAME_CHARACTERS.sub("-", text.lower()).strip("-._")
    found = re.sub(r"-{2,}", "-", found)[:MAX_NAME_LENGTH].rstrip("-._")
    return found if len(found) >= 2 else None


def profile_name_from_model(model: str | None) -> str | None:
    """Return a name made from the model's name, without its publisher and directories."""
    if not model:
        return None
    tail = model.rstrip("/").rpartition("/")[2]
    return profile_name_from_text(tail.partition(":")[0].removesuffix(".gguf"))


def profile_name_from_image(image: str | None) -> str | None:
    """Return a name made from the image's name, without registry and tag."""
    if not image:
        return None
    return profile_name_from_text(image.rpartition("/")[2].partition("@")[0].partition(":")[0])


def shorten_title(text: str | None) -> str | None:
    """Return one line of at most 100 characters, cut at a word."""
    line = " ".join((text or "").split())
    if len(line) <= 100:
        return line or None
    return line[:99].rpartition(" ")[0].rstrip(",;:-") + "…"


_PARALLEL_SIZE_FLAGS = (
    ("tensor-parallel-size", "tp", "tp-size"),
    ("pipeline-parallel-size", "pp", "pp-size"),
    ("data-parallel-size", "dp", "dp-size"),
)
_IMAGE_REFERENCE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]*(@sha256:[0-9a-f]{64})?")


def build_imported_profile(draft: ProfileDraft, engines: Sequence[str], name: str | None) -> ImportResult:
    """Return the profile, under ``name`` or the one that the source suggests. Raises `InvalidInput` if there is no image."""
    if not draft.image or not _IMAGE_REFERENCE.fullmatch(draft.image):
        raise InvalidInput(f"`{(draft.image or '')[:80]}` is not an image", "name one: registry/name:tag")
    found = _parse_command(draft, engines)
    if found.model is not None and re.fullmatch(r"<[^<>]*>", found.model):
        raise InvalidInput(f"{found.model} is a placeholder", "write the model's name in its place")
    entrypoint, command = _split_entrypoint(draft, found)
    import_policy.replace_env_secrets(draft)
    flags = import_policy.replace_flag_secrets(draft, found.flags)
    if command is not None:
        command = import_policy.replace_command_secrets(draft, command)
    if draft.by_ranks and _is_python_server(found.engine):
        ranks = max(draft.nodes, count_ranks(flags))
        draft.nodes = min(MAX_NODES, ranks)
        if ranks > MAX_NODES:
            draft.ledger.add_remark(
                f"Its parallel sizes need {ranks} GPUs, and a profile is for {MAX_NODES} Sparks of one GPU at most: "
                "it does not start until they are smaller.",
                "nodes",
            )
    if draft.kind in (SourceFormat.SPARKRUN, SourceFormat.EUGR, SourceFormat.SERVICES) and draft.nodes > 1:
        draft.ledger.add_remark(f"It is for {draft.nodes} Sparks.", "nodes")
    profile = Profile(
        name=profile_name_from_text(name) or _choose_profile_name(draft, found),
        engine=found.engine,
        image=draft.image,
        origin="",
        shipped=False,
        title=shorten_title(draft.title),
        model=ModelSpec(
            path=found.model or draft.model,
            served_name=found.served_name,
            parameters=_parse_parameter_count(draft.parameters),
        ),
        nodes=draft.nodes,
        port=found.port or draft.port or _find_published_port(draft),
        command=command,
        args=tuple(flags),
        env=tuple(draft.env.items()),
        env_file=draft.env_file,
        mounts=tuple(draft.mounts),
        container=ContainerOptions(
            name=draft.container_name,
            gpus=_select_gpus(draft, found.engine),
            shm_size=draft.shm_size,
            ipc=draft.ipc,
            network=draft.network,
            entrypoint=entrypoint,
            ulimits=tuple(draft.ulimits.items()),
            devices=tuple(draft.devices),
            options=tuple(_group_options(draft.options)),
        ),
        start=_build_start_options(draft, found),
        stop_grace=30.0 if draft.stop_grace is None else draft.stop_grace,
        notes="\n\n".join(draft.notes) or None,
        source=draft.source,
        extra=tuple(
            (key, JsonValue(_dump_compact_json(import_policy.replace_data_secrets(value, key))))
            for key, value in draft.ledger.extra.items()
        ),
    )
    # a line for a shell names the engine's program, which some images start themselves; a container's own words stay as they are
    is_doubled = any(one.setting == "command=[]" for one in check_traps(profile, None, None, None))
    if draft.kind is SourceFormat.COMMAND and is_doubled:
        profile = replace(profile, command=())
    comments = tuple((remark.path, remark.text) for remark in draft.ledger.remarks if remark.path is not None)
    return ImportResult(draft.kind, profile, draft.ledger, comments)


def count_ranks(flags: Sequence[tuple[str, ArgValue]]) -> int:
    """Return how many GPUs the parallel sizes in the flags need."""
    count = 1
    for names in _PARALLEL_SIZE_FLAGS:
        sizes = [value for key, value in flags if key.lstrip("-") in names and isinstance(value, str)]
        count *= int(sizes[-1]) if sizes and sizes[-1].isdigit() and 0 < int(sizes[-1]) <= 1024 else 1
    return count


def _choose_profile_name(draft: ProfileDraft, found: EngineCommand) -> str:
    if draft.engine is not None and draft.name is not None:
        return draft.name  # it was a profile's before
    names = (
        profile_name_from_text(draft.name),
        profile_name_from_text(draft.container_name),
        profile_name_from_model(found.model or draft.model),
    )
    return next(filter(None, (*names, profile_name_from_image(draft.image))), "imported")


def _dump_compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parse_command(draft: ProfileDraft, engines: Sequence[str]) -> EngineCommand:
    """Read what is started: the entry point and the words after it, unwrapped from a shell if necessary."""
    words = [*([escape_references(draft.entrypoint)] if draft.entrypoint else []), *(draft.words or [])]
    plain = [resolve_defaults(word) for word in words]
    script = find_sole_shell_script([word for word in plain if word is not None]) if None not in plain else None
    if (
        script is None
        and len(words) == 3
        and find_sole_shell_script([resolve_defaults(words[0]) or "", resolve_defaults(words[1]) or "", "x"])
    ):
        script = None  # its text depends on the operator's environment, so it is kept as written
        draft.ledger.add_remark("The script takes values from your shell; they are not filled in here.", "command")
    if script is not None:
        if draft.engine is None:
            plain = [word.strip() if word == script else word for word in plain if word is not None]
            script = script.strip()
        bare = unwrap_shell_command(script, draft.env)
        if bare.words is None:
            shell = tuple(word for word in plain if word is not None)
            found = engine_command.parse_script_command(script, shell, draft.engine_hint)
            found.engine = draft.engine or found.engine
            _note_script(draft)
            return found
        if bare.directory is not None:
            docker_flags.apply_docker_flag(draft, "workdir", escape_references(bare.directory), f"cd {bare.directory}")
        draft.env |= {key: value for key, value in bare.env if key not in draft.env}
        words = [escape_references(word) for word in bare.words]
    if script is None and (kept := _parse_kept_script(words, draft)) is not None:
        return kept
    found = engine_command.parse_engine_command(words, draft.image or "", draft.engine_hint, draft.engine, draft.model)
    if (
        _is_python_server(found.engine)  # any other program starts its command as written
        and not found.model
        and found.command
        and draft.model
        and found.command[-1] == escape_references(draft.model)
    ):
        found.command, found.model = found.command[:-1], draft.model  # after launch words that are not the engine's own
    if found.engine not in engines:
        found.engine = FALLBACK_ENGINE
    return found


def _is_python_server(engine: str) -> bool:
    rules = engine_command.list_import_rules().get(engine)
    return rules is not None and rules.is_python_server


def _parse_kept_script(words: list[str], draft: ProfileDraft) -> EngineCommand | None:
    """Read a shell with an entry point before it, or with flags after its script; those belong to the script."""
    for start in (0, 1):
        heads = [resolve_defaults(word) or "" for word in words[start:]]
        at = find_shell_script(heads)
        if at is None:
            continue
        end = start + at + 1
        flags = engine_command.parse_flags(words[end:])
        if flags is None or any(has_references(word) for word in words[: end - 1]):
            return None  # its text depends on the operator's environment, so it is kept as written
        script = words[start + at]
        if resolve_defaults(script) is None:
            return _parse_open_script(words[:end], script, flags, draft)
        found = engine_command.parse_script_command(
            heads[at], tuple(resolve_defaults(word) or "" for word in words[:end]), draft.engine_hint
        )
        found.engine, found.flags = draft.engine or found.engine, flags
        _note_script(draft)
        return found
    return None


def _parse_open_script(
    words: list[str], script: str, flags: list[tuple[str, ArgValue]], draft: ProfileDraft
) -> EngineCommand | None:
    """Read a script that takes values from the operator's environment: it is the value of ``-c`` among the flags."""
    option = engine_command.parse_flags(words[-2:])
    if option is None or flags:
        return None
    for name in list_unlisted_variables(script):
        if f"${{{name}}}" in script and not draft.ledger.is_allowed("env", name):
            raise InvalidInput(
                f"its script takes {name} from the shell that runs it", f"--define {name}=VALUE gives it a value"
            )
    parsed = engine_command.parse_script_command(script, (), draft.engine_hint)
    plain = tuple(resolve_defaults(word) or "" for word in words[:-2])
    # No engine of its own: that would put its model and port between the shell and its script.
    return EngineCommand(
        engine=draft.engine or FALLBACK_ENGINE,
        command=plain or None,
        model=None if parsed.model is None or has_references(parsed.model) else parsed.model,
        served_name=None if parsed.served_name is None or has_references(parsed.served_name) else parsed.served_name,
        port=parsed.port,
        flags=option,
        health=parsed.health or load_engine(parsed.engine).defaults.health,
    )


def _note_script(draft: ProfileDraft) -> None:
    if draft.engine is None:  # an export of sparkctl notes this already
        draft.ledger.add_remark(
            "The command stays a shell's script: edit the engine's flags there; `args` does not apply.",
            "command",
        )


def _split_entrypoint(draft: ProfileDraft, found: EngineCommand) -> tuple[str | None, tuple[str, ...] | None]:
    """Return entry point and launch words: a replaced entry point is the first word of the command."""
    command = found.command
    if command is not None:
        command = tuple(resolve_defaults(word) or word for word in command)
    if draft.entrypoint is None:
        return None, command
    if command is None:
        command = load_engine(found.engine).defaults.command
    if not command:
        return draft.entrypoint, () if found.engine in engine_command.list_import_rules() else None
    rest = command[1:]
    return command[0], rest if rest or found.engine in engine_command.list_import_rules() else None


def _find_published_port(draft: ProfileDraft) -> int | None:
    """Return the first published port, as the container sees it."""
    for option, value in draft.options:
        inside = value.removesuffix("/tcp").rpartition(":")[2]
        if option == "publish" and inside.isdigit() and 0 < int(inside) < 65536:
            return int(inside)
    return None


def _select_gpus(draft: ProfileDraft, engine: str) -> str | None:
    """Engines get all GPUs by default; any other program only those it asks for."""
    if draft.gpus == "all" and engine in engine_command.list_import_rules():
        return None
    return draft.gpus


def _group_options(options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options grouped by name, as a file has them."""
    names = dict.fromkeys(name for name, _ in options)
    return [(name, value) for wanted in names for name, value in options if name == wanted]


def _build_start_options(draft: ProfileDraft, found: EngineCommand) -> StartOptions:
    timeouts = {key: value for key, value in draft.timeouts.items() if value > 0}
    own = found.engine in engine_command.list_import_rules()
    health = draft.health if draft.health is not None else None if own else found.health
    if not own and health is None and draft.kind is not SourceFormat.CONTAINER:
        draft.ledger.add_remark(
            "It counts as ready as soon as it runs: set start.ready_line or start.health for a better test.", "engine"
        )
    return StartOptions(health=health, probe=draft.probe, prompt=draft.prompt, timeouts=PhaseTimeouts(**timeouts))


def _parse_parameter_count(text: str | None) -> int | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMBTkmbt]?)", text or "")
    if match is None:
        return None
    return round(float(match[1]) * {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}[match[2].lower()]) or None
