"""Endpoints as clients read them."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace

import pytest
import yaml

from sparkctl.commands.list_endpoints import EndpointFailure, ServedEndpoint, ServedModel, choose_default_endpoint
from sparkctl.model.node import NodeName
from sparkctl.views.endpoint_config import (
    api_key_variable,
    build_endpoints_json,
    caution_local_names,
    format_endpoint_config,
)

ONE = ServedEndpoint(
    node=NodeName("spark1"),
    instance="qwen36",
    url="http://10.0.0.1:8003/v1",
    models=(ServedModel("qwen3.6-27b", 32768),),
    engine="sglang",
)
TWO = ServedEndpoint(
    node=NodeName("spark2"),
    instance="1-b.c",
    url="http://10.0.0.2:8000/v1",
    models=(ServedModel("a b'$(x)", None), ServedModel("lora")),
    needs_key=True,
)
DUMB = ServedEndpoint(
    node=NodeName("spark2"), instance="qwen36", url="http://10.0.0.2:8001/v1", models=(), needs_key=True
)


def test_a_name_of_mdns_gets_a_caution() -> None:
    assert caution_local_names([ONE, TWO]) is None
    named = replace(ONE, url="http://spark-2a60.local:8003/v1")
    assert "IPv4" in (caution_local_names([TWO, named]) or "")


def test_a_shell_reads_the_variables() -> None:
    text = "\n".join(format_endpoint_config([TWO, ONE], "env", TWO))
    script = f'{text}\nprintf "%s\\0" "$OPENAI_BASE_URL" "$OPENAI_MODEL" "$OPENAI_API_KEY" "$QWEN36_BASE_URL" "$_1_B_C_MODEL"'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={"_1_B_C_API_KEY": "s3"}, check=True
    )
    assert done.stdout.split("\0")[:5] == [
        "http://10.0.0.2:8000/v1",
        "a b'$(x)",
        "s3",
        "http://10.0.0.1:8003/v1",
        "a b'$(x)",
    ]


def test_litellm_has_an_entry_for_each_model() -> None:
    entries = yaml.safe_load("\n".join(format_endpoint_config([ONE, TWO, DUMB], "litellm")))["model_list"]
    assert entries[0] == {
        "model_name": "qwen3.6-27b",
        "litellm_params": {"model": "openai/qwen3.6-27b", "api_base": "http://10.0.0.1:8003/v1", "api_key": "none"},
        "model_info": {"max_input_tokens": 32768},
    }
    assert [entry["litellm_params"]["api_key"] for entry in entries[1:]] == ["os.environ/_1_B_C_API_KEY"] * 2


def _make_endpoint(instance: str, name: str, context: int | None) -> ServedEndpoint:
    return ServedEndpoint(
        node=NodeName("spark1"),
        instance=instance,
        url=f"http://10.0.0.1/{instance}",
        models=(ServedModel(name, context),),
    )


def test_litellm_balances_only_over_instances_of_one_context() -> None:
    served = [
        _make_endpoint("long", "qwen", 65536),
        _make_endpoint("short", "qwen", 8192),
        _make_endpoint("a", "glm", 100),
    ]
    lines = format_endpoint_config([*served, _make_endpoint("b", "glm", 100)], "litellm")
    entries = yaml.safe_load("\n".join(lines))["model_list"]
    assert [entry["model_name"] for entry in entries] == ["long", "short", "glm", "glm"]
    assert [entry["litellm_params"]["model"] for entry in entries[:2]] == ["openai/qwen", "openai/qwen"]
    assert [line for line in lines if line.startswith("#")] == [
        "# qwen: its instances take contexts of different lengths, and one name for all would spread requests over them; "
        "each has its own name: long, short"
    ]


def test_litellms_own_names_are_of_one_meaning_each() -> None:
    served = [
        _make_endpoint("qwen", "qwen", 65536),
        _make_endpoint("b", "qwen", None),
        _make_endpoint("c", "x\n- evil: 1", 1),
    ]
    lines = format_endpoint_config([*served, _make_endpoint("d", "x\n- evil: 1", 2)], "litellm")
    assert [entry["model_name"] for entry in yaml.safe_load("\n".join(lines))["model_list"]] == [
        "qwen/qwen",
        "b",
        "c",
        "d",
    ]


def test_openclaw_has_a_provider_for_each_endpoint() -> None:
    document = json.loads("\n".join(format_endpoint_config([ONE, TWO, DUMB], "openclaw", ONE)))
    providers = document["models"]["providers"]
    assert list(providers) == ["qwen36-spark1", "1-b.c", "qwen36-spark2"]
    assert providers["qwen36-spark1"]["models"] == [
        {
            "id": "qwen3.6-27b",
            "name": "qwen3.6-27b on spark1",
            "input": ["text"],
            "contextWindow": 32768,
            "maxTokens": 8192,
        }
    ]
    assert providers["1-b.c"]["apiKey"] == "${_1_B_C_API_KEY}"
    assert document["agents"]["defaults"]["model"]["primary"] == "qwen36-spark1/qwen3.6-27b"


def test_opencode_has_models_by_name() -> None:
    provider = json.loads("\n".join(format_endpoint_config([ONE], "opencode")))["provider"]["qwen36"]
    assert provider["options"] == {"baseURL": "http://10.0.0.1:8003/v1", "apiKey": "none"}
    assert provider["models"] == {
        "qwen3.6-27b": {"name": "qwen3.6-27b on spark1", "limit": {"context": 32768, "output": 8192}}
    }


def test_claude_code_has_the_default_and_no_stranger() -> None:
    env = json.loads("\n".join(format_endpoint_config([TWO, ONE], "claude-code", ONE)))["env"]
    assert env["ANTHROPIC_BASE_URL"] == "http://10.0.0.1:8003"
    assert {env[name] for name in env if name.endswith("_MODEL")} == {"qwen3.6-27b"}
    assert env["ANTHROPIC_AUTH_TOKEN"] == "none"
    assert format_endpoint_config([TWO], "claude-code", None) == ["{}"]
    locked = json.loads("\n".join(format_endpoint_config([TWO], "claude-code", TWO)))["env"]
    assert "ANTHROPIC_AUTH_TOKEN" not in locked


def test_open_webui_has_a_key_for_each_url() -> None:
    lines = format_endpoint_config([ONE, replace(TWO, key="sk-1")], "open-webui")
    assert lines[-2:] == [
        "OPENAI_API_BASE_URLS=http://10.0.0.1:8003/v1;http://10.0.0.2:8000/v1", "OPENAI_API_KEYS=none;sk-1",
    ]  # fmt: skip


def test_llama_swap_starts_what_is_ours_and_stays_in_the_foreground() -> None:
    ours = replace(ONE, profile="qwen36", ready_seconds=400.0)
    wide = replace(ONE, instance="big", profile="big one", nodes=(NodeName("spark1"), NodeName("spark2")))
    lines = format_endpoint_config([ours, wide, replace(TWO, ours=False)], "llama-swap")
    document = yaml.safe_load("\n".join(lines))
    assert lines[0] == "# qwen36: ready after 6 min 40 s as a rule"
    assert document["healthCheckTimeout"] == 800
    assert list(document["models"]) == ["qwen36", "big"]
    words = shlex.split(document["models"]["big"]["cmd"])
    assert words[:2] == ["sh", "-c"]
    assert words[2].startswith("sparkctl up 'big one' --node spark1 --node spark2 && exec sparkctl logs big --node ")
    assert document["models"]["qwen36"]["cmdStop"] == "sparkctl down qwen36 --node spark1"
    assert document["models"]["qwen36"]["proxy"] == "http://10.0.0.1:8003"
    assert document["groups"] == {"spark1": {"swap": False, "exclusive": False, "members": ["qwen36", "big"]}}


def test_llama_swap_asks_the_health_path_of_the_profile() -> None:
    voice = replace(ONE, instance="voice", profile="voice", models=(), service="speech", health="/docs")
    document = yaml.safe_load("\n".join(format_endpoint_config([voice, replace(ONE, profile="qwen36")], "llama-swap")))
    assert [one.get("checkEndpoint") for one in document["models"].values()] == ["/docs", None]


@pytest.mark.parametrize(
    "form", ["env", "claude-code", "continue", "litellm", "llama-swap", "open-webui", "openclaw", "opencode"]
)
def test_the_model_behind_a_voice_is_for_no_client(form: str) -> None:
    inner = replace(ONE, url="http://spark1:5006/v1", instance="inner", profile="inner", started_for="voice")
    assert choose_default_endpoint((inner, TWO), ()) == TWO
    assert choose_default_endpoint((inner,), ()) is None
    seen = format_endpoint_config([inner, TWO], form, TWO)
    assert seen == format_endpoint_config([TWO], form, TWO)
    result = build_endpoints_json((inner, TWO))["endpoints"]
    assert [one.get("needed_by") for one in result] == ["voice", None]  # type: ignore[attr-defined]


def test_continue_has_an_entry_for_each_model() -> None:
    document = yaml.safe_load("\n".join(format_endpoint_config([ONE, TWO], "continue")))
    assert (document["schema"], len(document["models"])) == ("v1", 3)
    assert document["models"][0]["defaultCompletionOptions"] == {"contextLength": 32768, "maxTokens": 8192}
    assert document["models"][1]["apiKey"] == "${{ secrets._1_B_C_API_KEY }}"


@pytest.mark.parametrize("form", ["env", "litellm", "openclaw", "opencode"])
def test_a_known_key_is_written(form: str) -> None:
    text = "\n".join(format_endpoint_config([replace(TWO, key="sk-12345")], form, None))
    assert "sk-12345" in text
    assert "_1_B_C_API_KEY}" not in text
    assert "sk-12345" not in repr(replace(TWO, key="sk-12345"))


@pytest.mark.parametrize(
    "form", ["env", "litellm", "openclaw", "opencode", "claude-code", "open-webui", "llama-swap", "continue"]
)
def test_no_endpoint_is_no_error(form: str) -> None:
    assert format_endpoint_config([], form) is not None


def test_data_has_every_field() -> None:
    assert build_endpoints_json([DUMB])["endpoints"] == [
        {"node": "spark2", "instance": "qwen36", "base_url": "http://10.0.0.2:8001/v1", "models": [], "needs_key": True,
         "ours": True, "engine": None}
    ]  # fmt: skip
    assert api_key_variable(TWO) == "_1_B_C_API_KEY"


OURS, THEIRS = replace(ONE, ours=True), replace(TWO, ours=False, needs_key=False)
AWAY, LOADING = (
    EndpointFailure("spark3", "spark3 does not answer"),
    EndpointFailure("spark1", "qwen36 does not say", None, "qwen36"),
)


@pytest.mark.parametrize(
    ("served", "silent", "default"),
    [
        ([OURS, THEIRS], [], OURS),
        ([OURS, THEIRS], [AWAY], OURS),
        ([THEIRS], [], THEIRS),
        ([THEIRS], [AWAY], None),
        ([THEIRS], [LOADING], None),
        ([], [], None),
    ],
)
def test_a_stranger_s_engine_is_the_default_only_where_none_of_ours_can_be_there(
    served: list[ServedEndpoint], silent: list[EndpointFailure], default: ServedEndpoint | None
) -> None:
    assert choose_default_endpoint(served, silent) == default
    text = "\n".join(format_endpoint_config(served, "env", default))
    assert ("OPENAI_BASE_URL" in text) == (default is not None)
    document = json.loads("\n".join(format_endpoint_config(served, "openclaw", default)))
    assert ("agents" in document) == (default is not None)


@pytest.mark.parametrize("name", ["openai", "OpenAI", "anthropic", "azure-openai", "qwen36", "QWEN36"])
def test_no_container_takes_variables_of_services_or_of_ours_by_its_name(name: str) -> None:
    theirs = ServedEndpoint(
        node=NodeName("spark2"),
        instance=name,
        url="http://evil:1/v1",
        models=(ServedModel("evil", None),),
        needs_key=True,
        ours=False,
    )
    lines = format_endpoint_config([OURS, theirs], "env", OURS)
    shell = "\n".join([*lines, "env"])
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=True
    )
    known = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert (known["OPENAI_BASE_URL"], known["OPENAI_MODEL"]) == (OURS.url, "qwen3.6-27b")
    assert known["QWEN36_BASE_URL"] == OURS.url
    assert not {"ANTHROPIC_BASE_URL", "AZURE_OPENAI_BASE_URL", "ANTHROPIC_MODEL"} & known.keys()
    assert [variable for variable, value in known.items() if "evil:1" in value] in (
        ["QWEN36_SPARK2_BASE_URL"], [f"{name.upper().replace('-', '_')}_SPARK2_BASE_URL"],
    )  # fmt: skip
    services = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY")
    assert api_key_variable(theirs) not in services


def test_a_speech_server_is_an_endpoint_of_its_own_and_never_the_model() -> None:
    voice = replace(ONE, node=TWO.node, instance="voice", url="http://spark2:5005/v1", models=(), service="speech")
    served = (voice, ONE)
    assert choose_default_endpoint(served, ()) == ONE
    assert choose_default_endpoint((voice,), ()) is None
    env = format_endpoint_config(served, "env", ONE)
    assert f"# voice on {voice.node} (speech)" in env
    assert "export VOICE_BASE_URL=http://spark2:5005/v1" in env
    assert [line for line in env if line.startswith("export OPENAI_BASE_URL")] == [f"export OPENAI_BASE_URL={ONE.url}"]
    web = format_endpoint_config(served, "open-webui", ONE)
    assert f"OPENAI_API_BASE_URLS={ONE.url}" in web
    assert "AUDIO_TTS_OPENAI_API_BASE_URL=http://spark2:5005/v1" in web
    for form in ("claude-code", "continue", "openclaw", "opencode", "litellm"):
        assert "5005" not in "\n".join(format_endpoint_config(served, form, ONE)), form
    assert [one.get("service") for one in build_endpoints_json(served)["endpoints"]] == ["speech", None]  # type: ignore[attr-defined]
