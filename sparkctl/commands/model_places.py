"""Where models lie on a node, by the profiles; and the program there that knows more of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sparkctl.context import CommandContext
from sparkctl.engines.memory_estimate import map_path_to_node
from sparkctl.errors import OperationRefused, SparkctlError
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import MODEL_KINDS, PartKind
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import load_json_map, sanitize_line
from sparkctl.node.bootstrap import build_program
from sparkctl.node.models import ANSWER_MARK
from sparkctl.profiles.fit_evaluation import find_model_paths
from sparkctl.profiles.launch_planning import DefaultingEnviron, build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True)
class ModelPlaces:
    """Where models are on a node: ``places``, which profiles name, with their names; ``roots``: directories of models;
    ``tokenizers``: the places that need no weights.
    """

    places: Mapping[str, tuple[str, ...]]
    roots: tuple[str, ...]
    tokenizers: tuple[str, ...]

    async def run_program(self, session: NodeSession, role: str, timeout: float, **words: str) -> dict[str, Any]:
        """Run `node/models.py` there. Raises `SparkctlError`."""
        request = {
            "role": role,
            "places": list(self.places),
            "roots": self.roots,
            "tokenizers": self.tokenizers,
            **words,
        }
        program = build_program(
            "sparkctl-models", ["weights_check", "models"], stdin=json.dumps(request).encode() + b"\n"
        )
        done = await session.run(program.argv, stdin=program.stdin, timeout=timeout)
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            if line.startswith(ANSWER_MARK) and (answer := load_json_map(line.removeprefix(ANSWER_MARK))) is not None:
                return answer
        node = session.node.name
        why = sanitize_line(done.stderr.decode("utf-8", "replace").strip())[-200:] or f"exit {done.status}"
        raise OperationRefused(f"python3 on {node} did not list its models: {why}", f"on {node}: python3 --version")


def find_model_places(ctx: CommandContext, session: NodeSession, profiles: Sequence[Profile]) -> ModelPlaces:
    """Return where the profiles have their models on a node. The session has read the home of its user."""
    places: dict[str, list[str]] = {}
    roots: dict[str, None] = {}
    models, tokenizers = set[str](), set[str]()
    for profile in profiles:
        try:
            plan = build_launch_plan(
                profile,
                session.node,
                home=session.user_home,
                operator=ctx.operator,
                environ=DefaultingEnviron(),
            )
        except SparkctlError:  # a profile for another node
            continue
        for kind, path in zip(MODEL_KINDS, find_model_paths(profile, plan), strict=True):
            if (place := map_path_to_node(path, plan)) is None:
                continue
            (tokenizers if kind is PartKind.TOKENIZER else models).add(place)
            named = places.setdefault(place, [])
            if profile.name not in named:
                named.append(profile.name)
            sources = (one.source.rstrip("/") for one in plan.mounts)
            above = [source for source in sources if source and place.startswith(source + "/")]
            is_cached = PurePosixPath(place).name.startswith("models--")
            if is_cached or above:
                roots[str(PurePosixPath(place).parent) if is_cached else max(above, key=len)] = None
    return ModelPlaces(
        {place: tuple(names) for place, names in places.items()}, tuple(roots), tuple(sorted(tokenizers - models))
    )


def load_all_profiles() -> tuple[Profile, ...]:
    """Return every profile of the library that is valid."""
    return tuple(entry.profile for entry in ProfileLibrary().load_all_entries() if entry.profile is not None)
