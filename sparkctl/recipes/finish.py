"""From a filled draft to a `Profile`: the command taken apart, secrets out, what is at its default left unsaid."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from sparkctl.errors import InvalidInput
from sparkctl.model.command import script_at
from sparkctl.model.plan import Timeouts
from sparkctl.model.profile import ArgValue, ContainerOptions, JsonText, Model, Profile, StartRules
from sparkctl.recipes import launch, naming, options, secrecy
from sparkctl.recipes.draft import Draft, Imported, Kind
from sparkctl.recipes.launch import Launch
from sparkctl.recipes.references import has_references, literal, settled
from sparkctl.recipes.script import as_script, unwrapped

_PARALLEL = (
    ("tensor-parallel-size", "tp", "tp-size"),
    ("pipeline-parallel-size", "pp", "pp-size"),
    ("data-parallel-size", "dp", "dp-size"),
)
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]*(@sha256:[0-9a-f]{64})?")


_LAUNCH = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server"),
    "llamacpp": ("llama-server",),
    "trtllm": ("trtllm-serve",),
}


def finish(draft: Draft, engines: Sequence[str], name: str | None = None) -> Imported:
    """Return the profile. ``engines``: those there are; ``name``: instead of the one that the source suggests.

    Raises `InvalidInput` where there is no image.
    """
    if not draft.image or not _IMAGE.fullmatch(draft.image):
        raise InvalidInput(f"`{(draft.image or '')[:80]}` is not an image", "name one: registry/name:tag")
    found = _launched(draft, engines)
    entrypoint, command = _divided(draft, found)
    secrecy.env(draft)
    flags = secrecy.flags(draft, found.flags)
    if command is not None:
        command = secrecy.words(draft, command)
    if draft.by_ranks and found.engine in ("vllm", "sglang"):
        draft.nodes = min(8, max(draft.nodes, _ranks(flags)))
    if draft.kind in (Kind.SPARKRUN, Kind.EUGR, Kind.SERVICES) and draft.nodes > 1:
        draft.ledger.remark(f"It is for {draft.nodes} Sparks.", "nodes")
    profile = Profile(
        name=naming.slug(name) or _name(draft, found),
        engine=found.engine, image=draft.image, origin="", shipped=False, title=naming.title(draft.title),
        model=Model(found.model or draft.model, found.served_name, parameters=_count(draft.parameters)),
        nodes=draft.nodes, port=found.port or draft.port or _published(draft), command=command, args=tuple(flags),
        env=tuple(draft.env.items()), env_file=draft.env_file, mounts=tuple(draft.mounts),
        container=ContainerOptions(
            draft.container_name, _gpus(draft, found.engine), draft.shm_size, draft.ipc, draft.network, entrypoint,
            tuple(draft.ulimits.items()), tuple(draft.devices), tuple(_grouped(draft.options)),
        ),
        start=_start(draft, found), stop_grace=30.0 if draft.stop_grace is None else draft.stop_grace,
        notes="\n\n".join(draft.notes) or None, source=draft.source,
        extra=tuple((key, JsonText(_text(secrecy.data(value, key)))) for key, value in draft.ledger.extra.items()),
    )  # fmt: skip
    comments = tuple((remark.path, remark.text) for remark in draft.ledger.remarks if remark.path is not None)
    return Imported(draft.kind, profile, draft.ledger, comments)


def _ranks(flags: Sequence[tuple[str, ArgValue]]) -> int:
    """Return how many GPUs the parallel sizes among the flags take."""
    count = 1
    for names in _PARALLEL:
        sizes = [value for key, value in flags if key.lstrip("-") in names and isinstance(value, str)]
        count *= int(sizes[-1]) if sizes and sizes[-1].isdigit() and 0 < int(sizes[-1]) <= 8 else 1
    return count


def _name(draft: Draft, found: Launch) -> str:
    if draft.engine is not None and draft.name is not None:
        return draft.name  # it was a profile's before
    names = (naming.slug(draft.name), naming.slug(draft.container_name), naming.of_model(found.model or draft.model))
    return next(filter(None, (*names, naming.of_image(draft.image))), "imported")


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _launched(draft: Draft, engines: Sequence[str]) -> Launch:
    """Read what is started: the entry point and the words behind it, out of the shell they may stand in."""
    words = [*([literal(draft.entrypoint)] if draft.entrypoint else []), *(draft.words or [])]
    plain = [settled(word) for word in words]
    script = as_script([word for word in plain if word is not None]) if None not in plain else None
    if script is None and len(words) == 3 and as_script([settled(words[0]) or "", settled(words[1]) or "", "x"]):
        script = None  # its text depends on the operator's environment: it stays as it is
        draft.ledger.remark("The script takes values from your shell; they are not filled in here.", "command")
    if script is not None:
        if draft.engine is None:
            plain = [word.strip() if word == script else word for word in plain if word is not None]
            script = script.strip()
        bare = unwrapped(script, draft.env)
        if bare.words is None:
            shell = tuple(word for word in plain if word is not None)
            found = launch.of_script(script, shell, draft.engine_hint)
            found.engine = draft.engine or found.engine
            _note_script(draft)
            return found
        if bare.directory is not None:
            options.apply(draft, "workdir", literal(bare.directory), f"cd {bare.directory}")
        draft.env |= {key: value for key, value in bare.env if key not in draft.env}
        words = [literal(word) for word in bare.words]
    if script is None and (kept := _kept_script(words, draft)) is not None:
        return kept
    found = launch.read(words, draft.image or "", draft.engine_hint, engines, draft.engine, draft.model)
    is_said_again = found.engine in ("vllm", "sglang")  # anything else starts its command as it stands
    if (
        is_said_again
        and not found.model
        and found.command
        and draft.model
        and found.command[-1] == literal(draft.model)
    ):
        found.command, found.model = found.command[:-1], draft.model  # behind launch words of somebody's own
    if found.engine not in engines:
        found.engine = "container"
    return found


def _kept_script(words: list[str], draft: Draft) -> Launch | None:
    """Read a shell that has an entry point before it, or flags behind its script; those are the script's own."""
    for start in (0, 1):
        heads = [settled(word) or "" for word in words[start:]]
        at = script_at(heads)
        if at is None:
            continue
        end = start + at + 1
        flags = launch.flags_of(words[end:])
        if flags is None or any(has_references(word) for word in words[:end]):
            return None  # its text depends on the operator's environment
        found = launch.of_script(heads[at], tuple(settled(word) or "" for word in words[:end]), draft.engine_hint)
        found.engine, found.flags = draft.engine or found.engine, flags
        _note_script(draft)
        return found
    return None


def _note_script(draft: Draft) -> None:
    if draft.engine is None:  # an export of ours has said it once
        draft.ledger.remark(
            "The command stays a shell's script: what its engine is told is edited in it; `args` does not reach it.",
            "command",
        )


def _divided(draft: Draft, found: Launch) -> tuple[str | None, tuple[str, ...] | None]:
    """Return entry point and launch words: a replaced entry point is the first word of what is started."""
    command = found.command
    if command is not None:
        command = tuple(settled(word) or word for word in command)
    if draft.entrypoint is None:
        return None, command
    if command is None:
        command = _LAUNCH.get(found.engine, ())
    if not command:
        return draft.entrypoint, () if found.engine in launch.OWN else None
    rest = command[1:]
    return command[0], rest if rest or found.engine in launch.OWN else None


def _published(draft: Draft) -> int | None:
    """Return the first port that is published, as the container sees it."""
    for option, value in draft.options:
        inside = value.removesuffix("/tcp").rpartition(":")[2]
        if option == "publish" and inside.isdigit() and 0 < int(inside) < 65536:
            return int(inside)
    return None


def _gpus(draft: Draft, engine: str) -> str | None:
    """Engines get all GPUs without a word; anything else only those it asks for."""
    if draft.gpus == "all" and engine in launch.OWN:
        return None
    return draft.gpus


def _grouped(options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options with those of one name together, as a file has them."""
    names = dict.fromkeys(name for name, _ in options)
    return [(name, value) for wanted in names for name, value in options if name == wanted]


def _start(draft: Draft, found: Launch) -> StartRules:
    timeouts = {key: value for key, value in draft.timeouts.items() if value > 0}
    own = found.engine in launch.OWN
    health = draft.health if draft.health is not None else None if own else found.health
    if not own and health is None and draft.kind is not Kind.CONTAINER:
        draft.ledger.remark(
            "It counts as ready as soon as it runs: start.ready_line or start.health would say more.", "engine"
        )
    return StartRules(health=health, probe=draft.probe, prompt=draft.prompt, timeouts=Timeouts(**timeouts))


def _count(text: str | None) -> int | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMBTkmbt]?)", text or "")
    if match is None:
        return None
    return round(float(match[1]) * {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}[match[2].lower()]) or None
