"""What eugr's recipes (v1) and sparkrun's (v2 and what grew out of it) have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.recipes import fabric, options, plain, script
from sparkctl.recipes.braces import Filled
from sparkctl.recipes.draft import Draft
from sparkctl.recipes.references import literal

Rule = Callable[["Recipe", str, Any], None]
_BASH = ("bash", "-c")


class Recipe:
    """One recipe on its way into a draft. ``fill``: how its tool fills in placeholders."""

    def __init__(self, draft: Draft, data: dict[str, Any], fill: Callable[[str, Mapping[str, str]], Filled]) -> None:
        self.draft, self.data, self.ledger = draft, data, draft.ledger
        self.fill = fill
        self.defaults: dict[str, Any] = {}
        self.defined: Mapping[str, str] = {}
        self.used: set[str] = set()  # defaults that something beside the command asks for
        self.env: dict[str, str] = {}  # as a shell in the container sees it

    @property
    def values(self) -> dict[str, str]:
        """The placeholders' values; ``model`` is always one."""
        found = {key: _said(value) for key, value in self.defaults.items() if value is not None} | dict(self.defined)
        model = plain.text(self.data.get("model"))
        return ({"model": model} if model else {}) | found

    def take_defaults(self, defaults: Mapping[str, Any], defined: Mapping[str, str]) -> None:
        """Read ``defaults``, and what the operator defines over them."""
        self.defaults, self.defined = dict(defaults), defined

    def take_env(self, pairs: Mapping[str, Any], key: str = "env") -> None:
        """Read environment entries; their values are literal."""
        for name, value in pairs.items():
            text = plain.text(value)
            if text is None:
                self.ledger.unsupported(f"{key}.{name}", 'it has no value; write "" for an empty one')
                continue
            self.env[name] = text
            options.apply(self.draft, "env", f"{name}={literal(text)}", f"{key}.{name}")

    def take_command(self, command: str | None, engine: str | None, more: Mapping[str, str] | None = None) -> None:
        """Fill in the command and take it apart; without one, the defaults are flags by the tool's own table (``more``:
        what its tool knows beside sparkrun's)."""
        if command is not None:
            filled = self.fill(command.strip(), self.values)
            self._told(filled)
            self._run(filled.text)
            return
        if engine not in fabric.COMMANDS:
            self.ledger.remark(
                "The recipe has no command, and no engine that it could be made for: write command: by hand."
            )
            self._unused(frozenset())
            return
        values, words = self.values, list(fabric.COMMANDS[engine])
        used = {"model"}
        for key, flag in (fabric.FLAGS[engine] | dict(more or {})).items():
            if key not in values:
                continue
            used.add(key)
            if key in fabric.SWITCHES:
                words += [flag] if plain.truth(values[key]) else []
            else:
                words += [flag, values[key]]
            self.ledger.mapped(f"defaults.{key}", flag.lstrip("-"))
        if engine == "llama-cpp":
            model = values.get("model", "")
            words += ["-m" if model.startswith("/") or model.endswith(".gguf") else "-hf", model]
        self.draft.words = [literal(values.get("model", "") if word == "{model}" else word) for word in words]
        self._unused(frozenset(used))

    def _told(self, filled: Filled) -> None:
        self.ledger.mapped("command", "command, args")
        for name in filled.used:
            self.ledger.mapped("model" if name == "model" else f"defaults.{name}", "command, args")
        for name in filled.missing:
            self.ledger.unsupported(
                f"command {{{name}}}",
                f"it has no default; it is written as it stands (--define {name}=VALUE gives it one)",
            )
        self._unused(frozenset(filled.used))

    def _unused(self, used: frozenset[str]) -> None:
        used = used | self.used
        idle = {key: value for key, value in self.defaults.items() if key not in used and not plain.is_empty(value)}
        for key, value in idle.items():
            if key == "served_model_name" and self.draft.model is not None and self.data.get("command"):
                continue  # said behind the command, see `take_name`
            self.ledger.kept(
                f"defaults.{key}",
                plain.data(value),
                "nothing in the command asks for it"
                if self.data.get("command")
                else "its own tool makes no flag of it",
                name=f"default {key}",
            )
        for key in set(self.defaults) - set(idle) - used:
            self.ledger.mapped(f"defaults.{key}", "nothing: it is empty")

    def _run(self, text: str) -> None:
        """Put the command into the draft: as words where it is one command, else as a shell's script."""
        found = script.unwrapped(text, {name: literal(value) for name, value in self.env.items()})
        for name, value in found.env:
            options.apply(self.draft, "env", f"{name}={value}", f"command {name}=")
        if found.words is not None:
            self.draft.words = [literal(word) for word in found.words]
            return
        self.draft.words = [*_BASH, literal(text)]
        self.ledger.remark("The command is a script: its flags stay in it, and --set cannot change them.", "command")

    def take_cache(self) -> None:
        """Mount the node's cache of the hub, as the recipe's tool does, where the model comes from it."""
        target = self.env.get("HF_HOME", fabric.HUB_TARGET)
        model = self.draft.model or ""
        if model.startswith(("/", "~", ".")) or not target.startswith("/"):
            return
        if not any(mount.split(":")[1] in (target, fabric.HUB_TARGET) for mount in self.draft.mounts):
            self.draft.mounts.append(f"{fabric.HUB_CACHE}:{target}")

    def take_image(self, key: str, engine: str | None, image: str | None) -> None:
        """Take the image; where none is named, the one that the tool would take. Raises `InvalidInput`."""
        if image:
            filled = self.fill(image, self.values)
            self.used |= set(filled.used)
            for name in filled.used:
                self.ledger.mapped(f"defaults.{name}", "image")
            self.draft.image = filled.text.strip()
            self.ledger.mapped(key, "image")
        elif engine in fabric.IMAGES:
            self.draft.image = fabric.IMAGES[engine]
            self.ledger.remark(f"The recipe names no image; {self.draft.image} is a guess.", "image")
        else:
            raise InvalidInput(
                "the recipe names no image (container:), and its engine is none that an image is known for",
                "sparkctl starts containers, no programs on the node itself; --define container=IMAGE names one",
            )

    def keep(self, key: str, why: str | None = None) -> None:
        """Keep a key of the recipe under ``extra:``."""
        value = self.data.get(key)
        if plain.is_empty(value):
            self.ledger.mapped(key, "nothing: it is empty")
        else:
            self.ledger.kept(key, plain.data(value), why)

    def local_image(self, args: list[str]) -> None:
        """Say of an image that only a build on the node makes how that is done, and what can be pulled instead."""
        image = self.draft.image or ""
        if not re.match(r"vllm-node(?![^-:@])", image):
            return
        flavour = next((f"-{word}" for word in ("tf5", "b12x") if word in f"{image} {' '.join(args)}"), "")
        if "--pre-tf" in args or "--pre-transformers" in args:
            flavour = "-tf5"
        build = " ".join(["./build-and-copy.sh", "-t", image, *args])
        self.ledger.remark(
            f"{image} is no image to pull: eugr's build makes it on the node ({build}, in a checkout of "
            f"eugr/spark-vllm-docker). Built every night and close to it: --set image={fabric.PREBUILT}{flavour}:latest",
            "image",
        )


def _said(value: object) -> str:
    """Return a value as Python's tools write it into a command."""
    return str(value) if not isinstance(value, dict | list) else plain.compact(value)


def modifications(recipe: Recipe, mods: list[str]) -> None:
    """Say what eugr's mods are and that they are not applied."""
    if mods:
        recipe.ledger.kept("mods", mods, "sparkctl patches no container")
        names = ", ".join(mod.removeprefix("mods/") for mod in mods)
        recipe.ledger.remark(
            f"The recipe wants mods that sparkctl does not apply: {names}. Each is a directory with a run.sh that its tool "
            "runs in the container before the engine; bake them into an image of your own, or see whether it starts without.",
            "extra.mods",
        )
