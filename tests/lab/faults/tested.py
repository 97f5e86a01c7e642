"""Faults that tests of the lab and of CI cause, beside those that are rows of the table."""

from __future__ import annotations

from typing import NamedTuple

_SYNC, _STARTS, _SHELLS = (
    "tests/lab/test_lab_sync.py",
    "tests/lab/test_watched_starts.py",
    "tests/lab/test_login_shells.py",
)
_DAMAGED = "tests/unit/test_damaged_state_files.py"


class FaultUnderTest(NamedTuple):
    """A fault, what is expected of it, and the test that causes it."""

    fault: str
    expected: str
    file: str
    test: str


TESTED_FAULTS = (
    FaultUnderTest(
        "the cable is cut for some seconds during `sync`",
        "the same command goes on and ends with 0",
        _SYNC, "test_a_link_that_is_down_for_some_seconds_delays_the_transfer_and_no_more",
    ),
    FaultUnderTest(
        "the cable is cut for good during `sync`",
        "exit 3; the same command again goes on through the operator's machine, and says so",
        _SYNC, "test_a_link_that_stays_down_leaves_the_way_through_this_machine",
    ),
    FaultUnderTest(
        "the target's disk becomes full during `sync` of a model",
        "exit 6, the part stays; with room the same command goes on",
        _SYNC, "test_a_disk_that_becomes_full_on_the_way_is_said_and_the_same_command_goes_on",
    ),
    FaultUnderTest(
        "Docker's disk becomes full during `sync` of an image",
        "exit 6, nothing is loaded; with room the same command ends with 0",
        _SYNC, "test_a_disk_of_docker_that_becomes_full_on_the_way_is_said",
    ),
    FaultUnderTest(
        "`sync` is killed in the middle",
        "no process and no file is left but the part",
        _SYNC, "test_killed_in_the_middle_nothing_stays_behind_but_the_part",
    ),
    FaultUnderTest(
        "the source sends another image beside the wanted one",
        "exit 1, every name on the target is what it was",
        _SYNC, "test_a_source_that_sends_more_than_the_wanted_image_changes_no_name",
    ),
    FaultUnderTest(
        "log driver `none`, and the start is good, or fails",
        "a warning; the answers and the exit code decide; `logs` says why there is none",
        _STARTS, "test_a_start_without_a_log_is_judged_by_its_answers",
    ),
    FaultUnderTest(
        "a container that Docker cannot end even by force (its shim is stopped)",
        "`down` exits with 5 and says so; nothing is owed",
        _STARTS, "test_a_container_that_does_not_end_is_called_so",
    ),
    FaultUnderTest(
        "`docker pause` while it loads",
        "a warning at once, and in `status`; `down` and `switch` take it away",
        _STARTS, "test_a_paused_container_is_named_everywhere_and_can_be_stopped",
    ),
    FaultUnderTest(
        "the guard is stopped (SIGSTOP), or killed, while it loads",
        "said within seconds, in `guard status` too; one that was killed is replaced",
        _STARTS, "test_a_guard_that_is_stopped_is_said_while_it_loads",
    ),
    FaultUnderTest(
        "sshd forwards no TCP connections, or not to this port",
        "`up` and `switch` refuse (6) before anything is made or stopped",
        _STARTS, "test_without_a_way_to_the_port_nothing_is_made_and_what_serves_goes_on",
    ),
    FaultUnderTest(
        "the login shell is tcsh, fish, rbash (nightly: every one that is installed), noisy and slow",
        "lock, guard, probe and every command as with any other",
        _SHELLS, "test_every_verb_and_the_lock_and_the_guard",
    ),
    FaultUnderTest(
        "ForceCommand, nologin",
        "every command ends with 3 and what was answered; nothing starts or stops",
        _SHELLS, "test_a_login_that_runs_something_else_is_named_and_nothing_starts_or_stops",
    ),
    FaultUnderTest(
        "another user puts a FIFO, a link, a directory or a file where an older sparkctl has its lock",
        "two operators exclude each other all the same; nothing is written through it",
        _SHELLS, "test_what_another_user_puts_in_the_way_of_the_lock",
    ),
    FaultUnderTest(
        "the journal of a switch is cut at every length, zeroed from every byte, or any one byte of it is another",
        "it reads as unreadable, or differs in that one field; no traceback",
        _DAMAGED, "test_a_damaged_journal_is_unreadable_or_says_the_same_of_everything_else",
    ),
    FaultUnderTest(
        "a receipt of the guard, or a stop that is owed, is damaged in the same ways",
        "it counts as none; no traceback",
        _DAMAGED, "test_a_damaged_receipt_is_none_for_the_guard_and_for_the_operator",
    ),
)  # fmt: skip
