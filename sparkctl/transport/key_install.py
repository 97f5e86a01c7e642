"""Puts the operator's public key on a node, with the password there, as ssh-copy-id does."""

from __future__ import annotations

from pathlib import Path

from sparkctl.errors import InvalidInput, LoginRefused, OperationRefused
from sparkctl.model.node import Node
from sparkctl.model.questions import Prompter
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.transport.node_session import import_asyncssh_fast

_MAX_KEY_CHARS = 16_384
_INSTALL_SCRIPT = b"""\
umask 077
mkdir -p ~/.ssh && touch ~/.ssh/authorized_keys || exit 1
f=~/.ssh/authorized_keys
grep -qxF -- "$1" "$f" && exit 0
[ -s "$f" ] && [ -n "$(tail -c 1 "$f")" ] && echo >>"$f"
printf '%s\\n' "$1" >>"$f"
"""


def find_public_key(node: Node) -> Path | None:
    """Return the public key that belongs to the node's key file, or to the first of the usual ones."""
    import_asyncssh_fast()
    from sparkctl.transport.ssh.ssh_errors import list_default_keys

    keys = [Path(node.identity).expanduser()] if node.identity else list_default_keys()
    return next((public for key in keys if (public := key.with_name(f"{key.name}.pub")).is_file()), None)


async def install_public_key(node: Node, public: Path, password: str, asker: Prompter) -> None:
    """Add the key to authorized_keys there, unless it is in it. Raises `NodeError`, and `InvalidInput` for a bad key file."""
    import_asyncssh_fast()
    from sparkctl.transport.ssh.ssh_connection import SshConnection

    line = _read_public_key(public)
    link = SshConnection(node, asker, password=password)
    try:
        await link.connect()
        done = await link.run(["sh", "-s", "--", line], stdin=_INSTALL_SCRIPT)
    except LoginRefused as error:
        raise LoginRefused(
            node.name, f"the password did not open {node.name} either: {error.message}", error.hint
        ) from error
    finally:
        await link.close()
    if done.status != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise OperationRefused(f"the key could not be put on {node.name}: {sanitize_line(said[-1])}", None)


def _read_public_key(public: Path) -> str:
    try:
        line = public.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{public} cannot be read: {error}", None) from error
    if "\n" in line or len(line) > _MAX_KEY_CHARS or len(line.split()) < 2 or "PRIVATE" in line:
        raise InvalidInput(f"{public} is not a public key", "make one: ssh-keygen -t ed25519")
    return line
