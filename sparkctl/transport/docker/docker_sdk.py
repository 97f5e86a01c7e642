"""Runs single docker SDK calls in the calling thread. Import it late: it takes a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import docker
import docker.errors
import requests.exceptions

T = TypeVar("T")


class SdkRefusal(Exception):
    """Docker refused the call."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said


class SdkTimeout(Exception):
    """The time limit passed."""


class SdkConnectionLost(Exception):
    """The connection broke, or there was none."""


def call_sdk(url: str, version: str, limit: float, function: Callable[[docker.APIClient], T]) -> T:
    """Return the result of ``function`` with a new client. Never call it on the event loop's thread: it blocks.

    The client is created here for the same reason, and for each call because it is not documented as thread-safe.
    """
    try:
        client = docker.APIClient(base_url=url, version=version, timeout=max(1, round(limit)))
        try:
            return function(client)
        finally:
            client.close()
    except docker.errors.APIError as error:
        raise SdkRefusal(error.status_code or 0, str(error.explanation or error)) from error
    except requests.exceptions.Timeout as error:
        raise SdkTimeout(str(error)) from error
    except (requests.exceptions.RequestException, docker.errors.DockerException, OSError) as error:
        raise SdkConnectionLost(str(error)) from error


def create_container(client: docker.APIClient, body: dict[str, object], name: str) -> str:
    """Create a container from a ready request body; return its id."""
    answer = client.create_container_from_config(body, name)  # type: ignore[no-untyped-call]
    return str(answer["Id"])
