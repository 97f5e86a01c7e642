"""Why Docker cannot be reached, as the node itself tells it."""

from __future__ import annotations

import pytest

from sparkctl.errors import DockerPermissionDenied, DockerUnavailable
from sparkctl.transport.docker.docker_errors import raise_for_socket_facts

WELL = {"socket": "yes", "access": "yes", "cli": "yes", "daemon": "yes", "user": "milo", "member": "yes"}


@pytest.mark.parametrize(
    ("facts", "kind", "words", "remedy"),
    [
        ({"socket": "no", "daemon": "no"}, DockerUnavailable, "no Docker", "apt-get install"),
        ({"socket": "no"}, DockerUnavailable, "not running", "systemctl start docker"),
        ({"access": "no", "member": "no"}, DockerPermissionDenied, "not in group docker", "usermod -aG docker milo"),
        ({"access": "no"}, DockerPermissionDenied, "older than that", "loginctl terminate-user milo"),
        ({"access": "no", "member": "no", "user": "m\x1b[31m"}, DockerPermissionDenied, "m may not", "docker m "),
    ],
)
def test_each_reason_has_its_remedy(facts: dict[str, str], kind: type[Exception], words: str, remedy: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        raise_for_socket_facts("spark1", WELL | facts)
    assert remedy in caught.value.hint  # type: ignore[attr-defined]
