"""Generated API keys: one for each instance, in a file of its own that only its owner reads (0600)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sparkctl.errors import InvalidInput
from sparkctl.files import read_regular_file
from sparkctl.history.log_archive import safe_file_name

_KEY_BYTES = 32
_MAX_FILE_BYTES = 4096


def get_api_key_path(directory: Path, instance: str, node: str) -> Path:
    """Return where the key of an instance is kept, below the state directory."""
    return directory / "keys" / safe_file_name(node) / safe_file_name(instance)


def read_api_key(directory: Path, instance: str, node: str) -> str | None:
    """Return the key of an instance, None where none was made. Raises `InvalidInput` for a file that cannot be used."""
    path = get_api_key_path(directory, instance, node)
    try:
        text = read_regular_file(path, _MAX_FILE_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: the API key cannot be read: {error}", f"for a new one: rm {path}") from error
    if len(text) < _KEY_BYTES or not text.isprintable() or " " in text:
        raise InvalidInput(f"{path}: this is no API key", f"for a new one: rm {path}")
    return text


def ensure_api_key(directory: Path, instance: str, node: str) -> str:
    """Return the key of an instance; make it where there is none. Raises `InvalidInput` where it cannot be kept."""
    path = get_api_key_path(directory, instance, node)
    if (known := read_api_key(directory, instance, node)) is not None:
        return known
    made, fresh = f"sk-{secrets.token_urlsafe(_KEY_BYTES)}", path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "w", encoding="ascii") as out:
                out.write(f"{made}\n")
            path.hardlink_to(fresh)  # of two at once the first one's counts
        finally:
            fresh.unlink()
    except FileExistsError:
        return read_api_key(directory, instance, node) or made
    except OSError as error:
        raise InvalidInput(f"{path}: the API key cannot be kept: {error.strerror}") from error
    return made
