"""A failure of files names the setting that brings them, not the model wherever it was read from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.engines import load_engine
from sparkctl.logs import verdict_builder
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.verdict_builder import find_flag_with_path
from sparkctl.model.launch_plan import LaunchPlan, ReadinessRule
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.verdict import FailureCause, Verdict
from tests.unit.model.test_event_json import PLAN

DRAFT = '{"method": "draft_model", "model": "/models/none", "num_speculative_tokens": 3}'
VLLM = ("vllm", "serve", "/models/m", "--speculative-config", DRAFT, "--tokenizer=/models/tok", "--port", "8000")
SGLANG = ("python", "-m", "x", "--model-path", "/models/m", "--speculative-draft-model-path", "/models/none")
UNTOLD = "OSError: Invalid repository ID or local directory specified: '{path}'."


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        (UNTOLD.format(path="/models/none"), "speculative-config"),
        (UNTOLD.format(path="/models/m"), None),
        (UNTOLD.format(path="/models/tok/"), "tokenizer"),
        (UNTOLD.format(path="/models/elsewhere"), None),
        ("/models/none/model.safetensors is cut", "speculative-config"),
        ("/models/none.bak and /models/none-2 are others", None),
        ("/models/m/config.json", None),
        ("/models/m beside /models/none", "speculative-config"),
    ],
)
def test_the_flag_whose_value_the_line_names(text: str, flag: str | None) -> None:
    assert find_flag_with_path(VLLM, text) == flag


def test_a_folder_of_downloads_is_not_blamed_for_what_lies_in_it() -> None:
    assert find_flag_with_path(("x", "--download-dir", "/models"), "/models/m: no such model") is None


def build_verdict(engine: str, plan: LaunchPlan | None, *lines: str) -> Verdict:
    log = LogAnalyzer(engine=load_engine(engine), ready=ReadinessRule(line=None, health=None))
    log.feed_lines(LogLine(when="", text=text, number=number) for number, text in enumerate(lines, 1))
    found = verdict_builder.build_verdict(log, plan)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("engine", "command", "flag"),
    [("vllm", VLLM, "speculative-config"), ("sglang", SGLANG, "speculative-draft-model-path")],
)
def test_a_draft_model_that_is_not_there_is_no_fault_of_model_path(
    engine: str, command: tuple[str, ...], flag: str
) -> None:
    plan = replace(PLAN, engine=engine, command=command)
    found = build_verdict(engine, plan, UNTOLD.format(path="/models/none"))
    assert (found.cause, found.field) == (FailureCause.MODEL_FILES, f"args.{flag}")
    assert "model.path" not in found.remedy
    assert f"args.{flag}" in found.remedy
    own = build_verdict(engine, plan, UNTOLD.format(path="/models/m"))
    assert own.field == "model.path"


def test_vllm_says_itself_that_it_is_the_speculative_configuration() -> None:
    found = build_verdict(
        "vllm",
        None,
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
        "  Value error, Invalid repository ID or local directory specified: '/models/none'.",
        "Please verify the following requirements: [type=value_error, input_value=ArgsKwargs((), {'model': 'x'}), input_type=A]",
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
    )
    assert (found.cause, found.field) == (FailureCause.MODEL_FILES, "args.speculative-config")
    assert "/models/none" in found.summary


def test_an_unknown_flag_is_looked_up_in_the_version_that_the_profile_says() -> None:
    line = "vllm: error: unrecognized arguments: --max-modl-len 1"
    plan = replace(PLAN, engine="vllm", image="own/vllm:1", engine_version="0.32.0")
    assert "newest that is known" in build_verdict("vllm", replace(plan, engine_version=None), line).remedy
    assert "newest that is known" not in build_verdict("vllm", plan, line).remedy
    tagged = replace(plan, image="vllm/vllm-openai:v0.32.0", engine_version=None)
    assert "newest that is known" not in build_verdict("vllm", tagged, line).remedy
