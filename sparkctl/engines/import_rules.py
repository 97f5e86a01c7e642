"""How importers recognise an engine in other tools' files, and how exporters name it there. Each engine gives its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

HUB_CACHE = "~/.cache/huggingface"
HUB_CACHE_TARGET = "/root/.cache/huggingface"
HUB_ID_PATTERN = re.compile(r"[\w.-]+/[\w.-]+(?::[\w.-]+)?")
# Keys of a recipe's defaults and their flags, for the engines whose flags have the same names.
COMMON_RECIPE_FLAGS = {
    "host": "--host",
    "port": "--port",
    "served_model_name": "--served-model-name",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "trust_remote_code": "--trust-remote-code",
    "kv_cache_dtype": "--kv-cache-dtype",
    "api_key": "--api-key",
}


class ModelWord(StrEnum):
    """Whether a command line has the model as a plain word."""

    NEVER = "never"  # by a flag alone
    FIRST = "first"  # right after the launch words, or by a flag
    ANYWHERE = "anywhere"  # only so, in any place


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRules:
    """``program``: the word that starts it, with ``subcommand`` after it; ``module``: of Python, which starts it, too,
    and then the subcommand is required. ``model_flags``: without dashes; True: for a hub id, False: for a file, None:
    for both. ``name_flags``: those that name the model to clients. ``short_flags``: to their long names.

    ``image``: regex of images that start it themselves. ``has_ranks``: its flags say over how many GPUs it is spread.

    For recipes: ``recipe_name`` is its name there, ``recipe_words`` show it in a name, command or image,
    ``recipe_image`` is the one that sparkrun uses if a recipe names none (a guess for today's recipes),
    ``recipe_command`` its launch words with ``{model}``, ``recipe_model_flags`` those for a file and for a hub id if the
    launch words have no model; ``recipe_flags`` the keys of a recipe's defaults with their flags, ``recipe_switches``
    those keys that are switches (sparkrun's own tables). ``is_recipe_default``: it is meant where a recipe names none.
    ``built_image``: regex of an image that eugr's tool builds on the node, ``nightly_image`` the one built every night and
    close to it (also with -tf5 and -b12x). ``placeholders``: the names that an export gives to what people
    change at a start, by flag; empty: it cannot be exported so.

    ``variables``: beginnings of its environment variables; ``key_variables``: those that hold an API key.
    ``directory_words``: words in names of directories that belong to it, ``hidden_directories``: those that begin with
    a dot.
    ``other_servers``: programs that have no engine here, with the path that answers when they are ready;
    ``other_images``: the same by a part of the image's name.
    """

    program: str = ""
    subcommand: str | None = None
    module: str | None = None
    model_word: ModelWord = ModelWord.NEVER
    model_flags: Mapping[str, bool | None] = field(default_factory=dict)
    name_flags: tuple[str, ...] = ("served-model-name",)
    short_flags: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    has_ranks: bool = False
    is_recipe_default: bool = False
    built_image: str | None = None
    nightly_image: str | None = None
    recipe_name: str = ""
    recipe_words: tuple[str, ...] = ()
    recipe_image: str | None = None
    recipe_command: tuple[str, ...] = ()
    recipe_model_flags: tuple[str, str] | None = None
    recipe_flags: Mapping[str, str] = field(default_factory=dict)
    recipe_switches: tuple[str, ...] = ()
    placeholders: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    directory_words: tuple[str, ...] = ()
    hidden_directories: tuple[str, ...] = ()
    other_servers: Mapping[str, str] = field(default_factory=dict)
    other_images: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_python_server(self) -> bool:
        """Tell whether a Python module starts it, too: then its flags are parsed alike, whatever starts it."""
        return self.module is not None
