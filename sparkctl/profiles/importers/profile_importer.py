"""Import a profile from any source: detect the format of the text and call its reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import DockerRunSpec
from sparkctl.profiles.importers import (
    command_line,
    compose_file,
    docker_run,
    export_metadata,
    foreign_yaml,
    import_policy,
    services_recipe,
    sparkrun_recipe,
)
from sparkctl.profiles.importers.docker_run import build_container_draft
from sparkctl.profiles.importers.draft_to_profile import build_imported_profile
from sparkctl.profiles.importers.import_report import ImportReport, KeyOutcome
from sparkctl.profiles.importers.profile_draft import ImportResult, ProfileDraft
from sparkctl.profiles.importers.shell_parser import split_heredocs

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
    """Return the profile of a text. ``origin``: a file's name, or `pasted` and the like.

    Raises `InvalidInput` with what is wrong and where.
    """
    if not text.strip():
        raise InvalidInput(f"{origin}: there is nothing in it")
    ledger = ImportReport(allow=wishes.allow)
    ledger.locate = lambda key: _locate_key(text, origin, key)
    if PurePath(origin).suffix.lower() in (".yaml", ".yml"):
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
    if docker_run.is_unit_file(text):
        script = docker_run.find_unit_script(text)
        if script is not None and command_line.has_command_line(script):
            return command_line.import_command_line(script, ledger, wishes.defined)
        return docker_run.import_systemd(text, ledger, wishes.defined)
    has_keys = _has_recipe_keys(split_heredocs(text)[0])
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
    run: DockerRunSpec, node: str, wishes: ImportOptions, beyond: Sequence[tuple[str, str]] = ()
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
        return services_recipe.import_services(data, ledger, wishes.service, wishes.defined)
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


def _name_from_file(draft: ProfileDraft, origin: str) -> str | None:
    """Return the file's name as the name of a recipe without one."""
    if draft.kind.value in ("sparkrun", "eugr") and draft.name is None and "." in origin:
        return PurePath(origin).stem
    return None


def _describe_source(draft: ProfileDraft, origin: str) -> str:
    words = {
        "docker": "A docker run line", "compose": "A compose file", "sparkrun": "A sparkrun recipe", "eugr": "An eugr recipe",
        "services": "A recipe of services", "systemd": "A systemd unit", "command": "A command line",
    }  # fmt: skip
    name = PurePath(origin).name
    return words[draft.kind.value] if name == origin and "." not in origin else f"{words[draft.kind.value]}: {name}"
