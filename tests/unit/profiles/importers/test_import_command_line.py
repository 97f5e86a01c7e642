"""An engine's own command line as a profile: bare, and behind the launcher of eugr's spark-vllm-docker."""

from __future__ import annotations

import json

import pytest

from sparkctl.engines import engine_names
from sparkctl.errors import InvalidInput
from sparkctl.model.profile import JsonValue
from sparkctl.profiles.importers.profile_draft import ImportResult, KeyOutcome, SourceFormat
from sparkctl.profiles.importers.profile_importer import ImportOptions, import_text

LAUNCHER_LINE = """Then run:

./launch-cluster.sh -t vllm-node-tf5 \\
--solo \\
--apply-mod mods/fix-qwen3.5-chat-template \\
-e VLLM_MARLIN_USE_ATOMIC_ADD=1 \\
exec vllm serve Intel/Qwen3.5-35B-A3B-int4-AutoRound \\
  --host 0.0.0.0 \\
  --port 8888 \\
  --max-model-len 262144 \\
  --gpu-memory-utilization 0.7 \\
  --enable-prefix-caching \\
  --chat-template unsloth.jinja \\
  --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3.5-35B-A3B-DFlash", "num_speculative_tokens": 15}' \\
  --attention-backend flash_attn
"""


def import_line(text: str, origin: str = "pasted", **defined: str) -> ImportResult:
    return import_text(text, origin, ImportOptions(engines=engine_names(), defined=defined))


@pytest.mark.parametrize("origin", ["pasted", "line.txt", "run.sh"])
def test_the_launcher_of_the_thread_as_it_was_pasted(origin: str) -> None:
    found = import_line(LAUNCHER_LINE, origin)
    profile = found.profile
    assert found.kind is SourceFormat.COMMAND
    assert (profile.engine, profile.image, profile.nodes, profile.port) == ("vllm", "vllm-node-tf5", 1, 8888)
    assert profile.model.path == "Intel/Qwen3.5-35B-A3B-int4-AutoRound"
    args = dict(profile.args)
    drafts = args.pop("speculative-config")
    assert isinstance(drafts, JsonValue)
    assert json.loads(drafts.text)["num_speculative_tokens"] == 15
    assert args == {
        "max-model-len": "262144",
        "gpu-memory-utilization": "0.7",
        "enable-prefix-caching": True,
        "chat-template": "unsloth.jinja",
        "attention-backend": "flash_attn",
    }
    assert profile.env == (("VLLM_MARLIN_USE_ATOMIC_ADD", "1"),)
    assert profile.mounts == ("~/.cache/huggingface:/root/.cache/huggingface",)
    remarks = " ".join(remark.text for remark in found.ledger.remarks)
    assert "fix-qwen3.5-chat-template" in remarks
    assert "vllm-node-tf5 is not an image to pull" in remarks
    assert [one.key for one in found.ledger.list_keys_by_outcome(KeyOutcome.UNSUPPORTED)] == ["`Then run:`"]


def test_two_nodes_of_the_launcher_are_two_sparks() -> None:
    assert import_line("launch-cluster.sh -n 10.0.0.1,10.0.0.2 exec vllm serve x/Big-1B -tp 2").profile.nodes == 2
    assert import_line("launch-cluster.sh exec vllm serve x/Big-1B --tensor-parallel-size 2").profile.nodes == 2
    assert import_line("launch-cluster.sh --solo exec vllm serve x/Big-1B").profile.nodes == 1


def test_a_bare_line_names_no_image_and_says_so() -> None:
    found = import_line("HF_HUB_OFFLINE=1 vllm serve Qwen/Qwen3-8B --max-model-len 8k --port 8001 > log 2>&1 &")
    assert found.profile.env == (("HF_HUB_OFFLINE", "1"),)
    assert (found.profile.name, found.profile.port) == ("qwen3-8b", 8001)
    assert any("names no image" in remark.text and remark.path == "image" for remark in found.ledger.remarks)
    given = import_line("vllm serve Qwen/Qwen3-8B", container="vllm/vllm-openai:v0.19.1")
    assert given.profile.image == "vllm/vllm-openai:v0.19.1"
    assert not any("names no image" in remark.text for remark in given.ledger.remarks)


def test_the_corrected_line_of_the_audit() -> None:
    found = import_line(
        "python -m sglang.launch_server \\\n--model-path cyankiwi/Qwen3.5-35B-A3B-AWQ-4bit \\\n--quantization awq \\\n"
        "--kv-cache-dtype fp8_e5m2 \\\n--triton-attention-num-kv-splits 16 \\\n--max-running-requests 4"
    ).profile
    assert (found.engine, found.model.path) == ("sglang", "cyankiwi/Qwen3.5-35B-A3B-AWQ-4bit")
    assert dict(found.args) == {
        "quantization": "awq",
        "kv-cache-dtype": "fp8_e5m2",
        "triton-attention-num-kv-splits": "16",
        "max-running-requests": "4",
    }


@pytest.mark.parametrize(
    ("line", "path", "mounts"),
    [
        ("vllm serve /models/x", "/models/x", ("/models/x:/models/x",)),
        ("vllm serve ~/models/x", "/models/x", ("~/models/x:/models/x",)),
        ("sglang serve --model-path ~/models/x", "/models/x", ("~/models/x:/models/x",)),
        ("llama-server -m /models/x.gguf -c 8192", "/models/x.gguf", ("/models/x.gguf:/models/x.gguf",)),
    ],
)
def test_a_model_on_the_disk_is_mounted(line: str, path: str, mounts: tuple[str, ...]) -> None:
    profile = import_line(line).profile
    assert (profile.model.path, profile.mounts) == (path, mounts)


def test_a_path_of_the_sender_s_machine_is_no_program_of_the_image() -> None:
    assert import_line("/opt/evil/bin/vllm serve x/Some-1B").profile.command is None


def test_what_a_line_must_not_bring_is_withheld() -> None:
    found = import_line("launch-cluster.sh -v /:/host -e LD_PRELOAD=/host/x.so --solo exec vllm serve x/Some-1B")
    assert not [mount for mount in found.profile.mounts if mount.startswith("/:")]
    assert found.ledger.list_keys_by_outcome(KeyOutcome.WITHHELD)


@pytest.mark.parametrize(
    "text",
    ["python train.py --x 1", "./launch-cluster.sh stop", "vllm bench serve", "echo vllm serve x/y", "hello there"],
)
def test_what_starts_no_engine_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="neither a recipe nor a command line"):
        import_line(text)


def test_a_quote_that_is_not_closed_is_told() -> None:
    with pytest.raises(InvalidInput, match="a quote is not closed"):
        import_line('vllm serve x/Some-1B --speculative-config \'{"method": "mtp"')


def test_a_recipe_with_such_a_line_in_it_stays_a_recipe() -> None:
    recipe = "model: x/Some-1B\ncontainer: img:1\ncommand: |\n  vllm serve {model} --port 8000\n"
    assert import_line(recipe).kind is SourceFormat.SPARKRUN


@pytest.mark.parametrize(
    ("image", "command"), [("vllm/vllm-openai:v0.33.0", ()), ("vllm/vllm-openai:v0.19.1", ()), ("x/vllm:0.33.0", None)]
)
def test_an_image_that_starts_the_engine_itself_gets_no_second_command(
    image: str, command: tuple[str, ...] | None
) -> None:
    assert import_line("vllm serve Qwen/Qwen3-8B --port 8000", container=image).profile.command == command


@pytest.mark.parametrize(
    ("mount", "option"),
    [
        ("type=tmpfs,destination=/dev/shm,tmpfs-size=16g", "/dev/shm:size=16g"),
        ("type=tmpfs,dst=/x,tmpfs-size=1g,tmpfs-mode=1770", "/x:size=1g,mode=1770"),
        ("type=tmpfs,target=/x", "/x"),
    ],
)
def test_a_mount_of_memory_keeps_its_size(mount: str, option: str) -> None:
    found = import_line(f"docker run --mount {mount} x/vllm:0.33.0 vllm serve /m")
    assert ("tmpfs", option) in found.profile.container.options
