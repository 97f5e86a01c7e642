"""The command that asks for the same once more has all that was given, by whichever verb it was asked."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.node import Node, NodeName
from sparkctl.model.verdict import FieldChange
from sparkctl.profiles.profile_library import ProfileLibrary

NODE = Node(name=NodeName("spark1"), host="spark1")
PROFILE = ProfileLibrary(user=shipped_profiles_dir()).load_profile("qwen36")
WORDS = ("qwen36", "--set", "env.HF_TOKEN=hf_abcdefghijklmnopqr", "--set", "port=8010")
ASKED = SwitchInstance(
    profile=PROFILE, nodes=(NODE,), known=(NODE,), keep_going=True, rolls_back=False, timeout=1200.0, words=WORDS,
    guarded=False,
)  # fmt: skip


def list_flags(command: str) -> set[str]:
    return {word for word in command.split() if word.startswith("--") and word not in ("--node", "--set")}


def test_a_switch_and_the_start_in_it_offer_the_same_with_every_flag() -> None:
    said = ASKED.retry_command
    assert said.startswith("sparkctl switch qwen36 --node spark1 --set ")
    assert list_flags(said) == {"--no-guard", "--keep-going", "--no-rollback", "--timeout=1200s"}
    assert ASKED.to_start_request(kept=["c0ffee"]).retry_command == said
    assert "hf_abc" not in said


def test_flags_that_were_not_given_are_not_offered() -> None:
    plain = replace(ASKED, keep_going=False, rolls_back=True, timeout=None, guarded=True, words=())
    assert plain.retry_command == "sparkctl switch qwen36 --node spark1"


def test_a_change_stands_in_the_place_of_what_was_set() -> None:
    said = ASKED.to_start_request(kept=["c0ffee"]).build_retry_command(FieldChange("port", "8011"))
    assert said.count("port=") == 1
    assert "--set port=8011" in said
    assert list_flags(said) == list_flags(ASKED.retry_command)


def test_a_start_of_its_own_keeps_its_flags() -> None:
    start = StartInstance(
        profile=PROFILE, nodes=(NODE,), timeout=90.0, words=("qwen36",), guarded=False, forced=True,
        once_more=True,
    )  # fmt: skip
    assert start.retry_command == "sparkctl up qwen36 --node spark1 --no-guard --again --force --timeout=90s"
