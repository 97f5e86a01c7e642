"""What Docker says of a container that it cannot end, and of a log that it cannot read."""

from __future__ import annotations

import pytest

from sparkctl.errors import ContainerUnkillable, ExitCode, LogUnreadable
from sparkctl.transport.docker.docker_errors import error_for_response

KILLED = '{"message":"cannot stop container: q: tried to kill container, but did not receive an exit event"}'


def test_a_container_that_outlives_its_kill_is_called_so() -> None:
    error = error_for_response("spark1", 500, KILLED)
    assert isinstance(error, ContainerUnkillable)
    assert error.exit_code is ExitCode.UNHEALTHY
    assert "state D" in (error.hint or "")


@pytest.mark.parametrize("status", [501, 500, 200])
def test_a_log_that_no_driver_keeps_is_called_so(status: int) -> None:
    error = error_for_response("spark1", status, "configured logging driver does not support reading")
    assert isinstance(error, LogUnreadable)
    assert "json-file" in (error.hint or "")
