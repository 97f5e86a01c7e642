"""`docker run` lines as people paste them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.lint.profile_flags import collect_profile_flags
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.profile import FlagValues, JsonValue
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from tests.unit.profiles.importers.import_text import (
    get_container_argv,
    import_and_check,
    import_docker_line,
    list_keys_of,
)

IMAGE = "vllm/vllm-openai:v0.19.1"


def test_a_whole_line_lands_field_by_field() -> None:
    profile = import_docker_line(
        "$ sudo docker run -d --gpus all --name qwen --restart unless-stopped \\\n"
        "    --ipc=host --shm-size 16g --ulimit memlock=-1 --ulimit stack=67108864 --cap-add IPC_LOCK \\  \n"
        "    -v $HOME/.cache/huggingface:/root/.cache/huggingface -p 8000:8000 -e NCCL_DEBUG=INFO -eVLLM_X=1 \\\n"
        "    --device /dev/infiniband  scitrera/dgx-spark-vllm:0.19.1 \\\n"
        "    vllm serve Qwen/Qwen3-8B --served-model-name qwen3 --max-model-len=8192 -tp 1 --host 0.0.0.0 --port 8000 \\\n"
        '    --speculative-config \'{"method": "mtp", "num_speculative_tokens": 3}\' --enable-prefix-caching  # fast\n'
    )
    assert (profile.name, profile.engine, profile.image) == ("qwen", "vllm", "scitrera/dgx-spark-vllm:0.19.1")
    assert (profile.model.path, profile.model.served_name, profile.port) == ("Qwen/Qwen3-8B", "qwen3", 8000)
    assert profile.command is None
    assert profile.args == (
        ("max-model-len", "8192"), ("tensor-parallel-size", "1"),
        ("speculative-config", JsonValue('{"method":"mtp","num_speculative_tokens":3}')), ("enable-prefix-caching", True),
    )  # fmt: skip
    assert profile.env == (("NCCL_DEBUG", "INFO"), ("VLLM_X", "1"))
    assert profile.mounts == ("~/.cache/huggingface:/root/.cache/huggingface",)
    box = profile.container
    assert (box.name, box.gpus, box.ipc, box.shm_size) == ("qwen", None, "host", "16g")
    assert box.ulimits == (("memlock", "-1"), ("stack", "67108864"))
    assert box.devices == ("/dev/infiniband",)
    assert box.options == (("cap-add", "IPC_LOCK"), ("publish", "8000:8000"))


@pytest.mark.parametrize(
    "text",
    [
        f"docker run {IMAGE} --model a/b --port 9000",
        f"  docker   container run {IMAGE} --model=a/b --port=9000",
        f"user@spark1:~$ docker run {IMAGE} \\\n> --model a/b \\\n> --port 9000",
        f"```bash\nsudo docker run {IMAGE} --model a/b --port 9000\n```",
        f"docker run {IMAGE} –model a/b –port 9000",
        f"docker run {IMAGE}\n  --model a/b\n  --port 9000\n",
        f"docker run {IMAGE} `\r\n  --model a/b `\r\n  --port 9000\r\n",
        f"# start it\nMODEL=a/b\nexport PORT=9000\ndocker pull {IMAGE}\ndocker run {IMAGE} --model $MODEL --port ${{PORT}}",
        f"docker run {IMAGE} --model “a/b” --port ‘9000’",
        f"docker stop x || true; docker rm x; docker run {IMAGE} --model a/b --port 9000 && docker logs -f x",
        f"podman run {IMAGE} --model a/b --port 9000 2>&1 | tee log.txt",
    ],
)  # fmt: skip
def test_prompts_and_comments_around_a_line_change_nothing(text: str) -> None:
    profile = import_docker_line(text)
    assert (profile.engine, profile.image, profile.model.path, profile.port) == ("vllm", IMAGE, "a/b", 9000)
    assert profile.args == ()
    assert get_container_argv(profile) == ("--model", "a/b", "--host", "0.0.0.0", "--port", "9000")


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve a/b --port 9000 --dtype bfloat16",
        "bash -c 'vllm serve a/b --port 9000 --dtype bfloat16'",
        'bash -lc "exec vllm serve a/b --port 9000 \\\n --dtype bfloat16"',
        "sh -c 'set -e; vllm serve a/b --port $PORT --dtype bfloat16'",
    ],
)
def test_a_shell_around_one_command_is_taken_off(command: str) -> None:
    profile = import_docker_line(f"docker run -e PORT=9000 x/vllm:1 {command}")
    assert (profile.engine, profile.command, profile.port) == ("vllm", None, 9000)
    assert get_container_argv(profile) == (
        "vllm",
        "serve",
        "a/b",
        "--host",
        "0.0.0.0",
        "--port",
        "9000",
        "--dtype",
        "bfloat16",
    )


def test_a_script_of_several_commands_stays_one() -> None:
    script = "pip install x && vllm serve a/b --port 9000 --served-model-name c"
    profile = import_docker_line(f"docker run x/vllm:1 bash -c '{script}'")
    assert (profile.engine, profile.command) == ("vllm", ("bash", "-c", script))
    assert (profile.port, profile.model.path, profile.model.served_name) == (9000, "a/b", "c")
    assert get_container_argv(profile) == ("bash", "-c", script)


def test_an_environment_set_in_the_script_is_the_containers() -> None:
    profile = import_docker_line(
        "docker run x/y:1 sh -c 'export A=1 && B=\"two words\" python -m sglang.launch_server --model-path /m'"
    )
    assert profile.env == (("A", "1"), ("B", "two words"))
    assert (profile.engine, profile.command, profile.model.path) == ("sglang", None, "/m")


def test_several_values_and_repeated_flags_stay_what_they_are() -> None:
    profile = import_docker_line(
        "docker run x/y:1 sglang serve --model-path /m --cuda-graph-bs 1 2 4 --lora a=b --lora c=d -x -1"
    )
    assert profile.args == (("cuda-graph-bs", FlagValues(("1", "2", "4"))), ("lora", ("a=b", "c=d")), ("x", "-1"))
    assert get_container_argv(profile)[-10:] == (
        *("--cuda-graph-bs", "1", "2", "4", "--lora", "a=b", "--lora", "c=d"),
        "-x",
        "-1",
    )


def test_variables_nobody_sets_are_the_operators_own() -> None:
    written = import_and_check(
        "docker run -e HF_TOKEN -e A=$B -e 'C=$D' -e E=\"${F:-g} h\" -v $DATA/models:/models x/y:1 prog --key ${KEY} --n '${X}'",
        allow={"env"},
    )
    profile = written.profile
    assert profile.env == (("HF_TOKEN", "${HF_TOKEN}"), ("A", "${B}"), ("C", "$D"), ("E", "${F:-g} h"))
    assert profile.args == (("key", "${KEY}"), ("--n", "$${X}"))
    assert profile.mounts == ()
    assert "${DATA}" in str(list_keys_of(written, KeyOutcome.UNSUPPORTED)["-v ${DATA}/models:/models"])
    assert import_docker_line("docker run -v $DATA/models:/models x/y:1", defined={"DATA": "/data"}).mounts == (
        "/data/models:/models",
    )


def test_secrets_are_not_written_down() -> None:
    token = "hf_" + "a1" * 15
    written = import_and_check(
        f"export HF_TOKEN={token}\ndocker run -e HF_TOKEN=$HF_TOKEN -e MY_PASSWORD=hunter22 -e URL=http://u:pw12345@h/ "
        f"-e VLLM_API_KEY=EMPTY -e HEADER='Bearer {token}' x/vllm:1 vllm serve m --api-key sk-{'b' * 30} --dtype auto",
        allow={"env"},
    )
    assert written.profile.env == (
        ("HF_TOKEN", "${HF_TOKEN}"), ("MY_PASSWORD", "${MY_PASSWORD}"), ("URL", "${URL}"), ("VLLM_API_KEY", "EMPTY"),
        ("HEADER", "${HEADER}"),
    )  # fmt: skip
    assert written.profile.args == (("api-key", "${API_KEY}"), ("dtype", "auto"))
    everything = written.text + repr(written.imported.ledger.remarks) + repr(written.imported.ledger.accounts)
    assert not any(secret in everything for secret in (token, "hunter22", "pw12345", "b" * 30))
    assert sum("looks like a secret" in remark.text for remark in written.imported.ledger.remarks) == 5


def test_a_secret_in_a_script_comes_from_the_environment() -> None:
    profile = import_docker_line("docker run x/y:1 bash -c 'prepare && serve --api-key verysecretkey1'")
    assert profile.command == ("bash", "-c", "prepare && serve --api-key ${SECRET_1}")
    assert profile.env == (("SECRET_1", "${SECRET_1}"),)


DANGERS = (
    "--privileged --pid host --cap-add SYS_ADMIN -v /var/run/docker.sock:/var/run/docker.sock -v /:/host -v /etc/x:/x "
    "-v /home/me/work:/w --device /dev/sda"
)


def test_what_reaches_beyond_the_container_wants_to_be_allowed() -> None:
    written = import_and_check(f"docker run {DANGERS} -v /data/models:/m -v hf-cache:/v -v ~/.cache/vllm:/c:ro x/y:1")
    assert written.profile.mounts == ("/data/models:/m", "hf-cache:/v", "~/.cache/vllm:/c:ro")
    assert (written.profile.container.options, written.profile.container.devices) == ((), ())
    assert len(list_keys_of(written, KeyOutcome.WITHHELD)) == 8
    allowed = import_and_check(f"docker run {DANGERS} x/y:1", allow=True)
    assert not list_keys_of(allowed, KeyOutcome.WITHHELD)
    assert len(allowed.profile.mounts) == 4
    assert allowed.profile.container.options == (("privileged", "true"), ("pid", "host"), ("cap-add", "SYS_ADMIN"))
    assert allowed.profile.container.devices == ("/dev/sda",)


@pytest.mark.parametrize("source", ["/models/../etc", "/proc/models", "/run/docker.sock", "/usr/lib/cache"])
def test_a_directory_is_not_what_its_name_says(source: str) -> None:
    assert import_docker_line(f"docker run -v {source}:/x x/y:1").mounts == ()


def test_options_docker_does_not_know_are_kept_and_said() -> None:
    written = import_and_check(
        "docker run --sysctl a=1 --sysctl b=2 --frobnicate --hal=9000 --dns 1.1.1.1 -v ./here:/x --rm x/y:1 go"
    )
    kept = {key: value.text for key, value in written.profile.extra}
    assert kept == {"sysctl": '["a=1","b=2"]', "frobnicate": '"true"', "hal": '"9000"', "dns": '"1.1.1.1"'}
    left = list_keys_of(written, KeyOutcome.UNSUPPORTED)
    assert set(left) == {"-v ./here:/x", "--rm"}
    assert "depends on the directory" in str(left["-v ./here:/x"])
    assert written.profile.command == ("go",)


def test_a_replaced_entry_point_is_the_first_word() -> None:
    profile = import_docker_line("docker run --entrypoint /bin/bash x/vllm:1 -c 'vllm serve a/b --port 9000'")
    assert (profile.container.entrypoint, profile.command) == ("vllm", ("serve",))
    assert get_container_argv(profile) == ("serve", "a/b", "--host", "0.0.0.0", "--port", "9000")
    plain = import_docker_line("docker run --entrypoint python3 x/y:1 main.py --listen 0.0.0.0 --port 8188")
    assert (plain.engine, plain.container.entrypoint, plain.port) == ("container", "python3", 8188)
    assert get_container_argv(plain) == ("main.py", "--listen", "0.0.0.0", "--port", "8188")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docker run -it --rm", "names no image"),
        ("docker run $IMAGE", "depends on a variable"),
        ("docker exec -it x bash", "neither a recipe"),
        ("hello", "neither a recipe"),
        ("   ", "nothing in it"),
    ],
)
def test_text_that_is_no_docker_line_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidInput) as error:
        import_and_check(text)
    assert expected in error.value.message


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from("docker run-v$e{}'\"\\`=:/()|;&<> \n\t#x~{[") | st.characters(), max_size=80))
def test_any_text_is_read_or_refused(tail: str) -> None:
    try:
        written = import_and_check(f"docker run {tail}")
    except SparkctlError:
        return
    assert written.profile.image


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("--model /models/X --dtype auto", ("--model", "/models/X")),
        ("/models/X --dtype auto", ("--model", "/models/X")),
        ("vllm serve --model /models/X --dtype auto", ("vllm", "serve", "/models/X")),
        ("python3 -m vllm.entrypoints.openai.api_server --model /models/X --dtype auto",
         ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/X")),
    ],
)  # fmt: skip
def test_a_model_stands_in_one_place_and_what_is_set_there_is_what_starts(command: str, words: tuple[str, ...]) -> None:
    profile = import_docker_line(f"docker run --gpus all -p 8000:8000 {IMAGE} {command}")
    assert (profile.model.path, profile.args) == ("/models/X", (("dtype", "auto"),))
    assert get_container_argv(profile) == (*words, "--host", "0.0.0.0", "--port", "8000", "--dtype", "auto")
    other = replace(profile, model=replace(profile.model, path="/models/Y"))
    assert get_container_argv(other) == tuple(
        "/models/Y" if word == "/models/X" else word for word in get_container_argv(profile)
    )


def test_a_program_of_somebodys_own_keeps_its_model_flag() -> None:
    profile = import_docker_line(f"docker run --entrypoint /start.sh {IMAGE} --model /models/X")
    words = [*([profile.container.entrypoint] if profile.container.entrypoint else []), *get_container_argv(profile)]
    assert words[0] == "/start.sh"
    assert words[words.index("--model") + 1] == "/models/X"
    assert words.count("/models/X") == 1


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ('docker run --gpus all "unterminated', '"unterminated'),
        (f'docker run {IMAGE} --model a/b --speculative-config \'{{"method": "mtp"}}', "'{"),
        (f"docker run {IMAGE} --model a/b --x $'c", "$'c"),
        (f"Don't do this: docker run {IMAGE}", "'t do this"),
    ],
)
def test_a_quote_that_is_not_closed_is_said(text: str, quote: str) -> None:
    with pytest.raises(InvalidInput, match="a quote is not closed") as refused:
        import_docker_line(text)
    assert quote in refused.value.message
    assert refused.value.exit_code == 2


def test_an_apostrophe_behind_the_line_is_no_quote_of_it() -> None:
    assert import_docker_line(f"docker run {IMAGE} --model a/b\n\nDon't forget the port").model.path == "a/b"


@pytest.mark.parametrize(
    ("command", "directory"),
    [
        ("sh -c 'cd /opt/x && python3 -m sglang.launch_server --model-path a/b'", "/opt/x"),
        ("bash -c 'set -e; cd /opt; cd /srv; python3 -m sglang.launch_server --model-path a/b'", "/srv"),
    ],
)
def test_where_a_shell_went_before_its_command_is_kept(command: str, directory: str) -> None:
    written = import_and_check(f"docker run -w /elsewhere x/sglang:0.5.12 {command}")
    assert written.profile.container.options == (("workdir", directory),)
    assert get_container_argv(written.profile)[:3] == ("python3", "-m", "sglang.launch_server")


@pytest.mark.parametrize(
    "script", ["cd models && vllm serve a/b", "cd $HOME && vllm serve a/b", "A=b; pip install x; vllm serve a/b"]
)
def test_a_script_that_stays_one_says_where_its_flags_are_edited(script: str) -> None:
    written = import_and_check(f"docker run x/vllm:1 bash -c '{script}'")
    assert get_container_argv(written.profile) == ("bash", "-c", script)
    assert "`args` does not apply" in written.text


@pytest.mark.parametrize("words", ["--entrypoint bash {image} -c", "{image} bash -c"])
def test_a_script_with_variables_stays_a_script(words: str) -> None:
    """After a runbook for a Spark, switch-to-35b.sh: an entry point bash, and a script with a variable."""
    line = f'docker run --gpus all {words.format(image=IMAGE)} "bash /p.sh && vllm serve a/b --port $PORT"'
    profile = import_docker_line(line)
    assert (profile.engine, profile.model.path, profile.start.health) == ("container", "a/b", "/health")
    shell = [profile.container.entrypoint] if profile.container.entrypoint else []
    assert (*shell, *get_container_argv(profile)) == ("bash", "-c", "bash /p.sh && vllm serve a/b --port ${PORT}")


@pytest.mark.parametrize(
    ("flags", "engine"),
    [
        ("--max-model-len 8192 --tool-call-parser hermes --gpu-memory-utilization 0.8", "vllm"),
        ("--mem-fraction-static 0.8 --context-length 8192", "sglang"),
        ("--max-model-len 8192", "container"),
        ("--max-model-len 8192 --gpu-memory-utilization 0.8 --mem-fraction-static 0.8", "container"),
    ],
)
def test_an_engine_in_an_image_of_any_name_is_known_by_its_flags(flags: str, engine: str) -> None:
    assert import_docker_line(f"docker run --gpus all local-v26-patched:latest a/b {flags}").engine == engine


def test_one_flag_of_an_engine_suffices_where_the_image_has_its_name() -> None:
    """As an owner's runbook starts a patched build, whose name no vendor has."""
    flags = "--max-model-len 32768 --tool-call-parser qwen3_coder"
    assert import_docker_line(f"docker run --gpus all vllm-v26-patched:latest a/b {flags}").engine == "vllm"
    assert import_docker_line(f"docker run --gpus all my-v26-patched:latest a/b {flags}").engine == "container"


def test_a_mount_that_holds_the_model_is_withheld_for_what_else_it_holds() -> None:
    line = f"docker run --gpus all -v /data/:/data {IMAGE} --model /data/models/a --max-model-len 8192"
    why = list_keys_of(import_and_check(line), KeyOutcome.WITHHELD)
    assert [text for text in why.values() if text and "the model is in it" in text]


def test_flags_of_a_patched_engine_are_named_for_the_profile() -> None:
    written = import_and_check(
        f"docker run --gpus all {IMAGE} --model a/b --mxfp4-backend CUTLASS --max-model-len 8192"
    )
    result = [remark.text for remark in written.imported.ledger.remarks]
    (said,) = (text for text in result if "patched_flags: [mxfp4-backend]" in text)
    assert "correct it. Only if" in said, "a misspelt flag is more likely than a patched engine"


def test_a_script_that_is_run_without_arguments_takes_its_defaults() -> None:
    text = "MODEL=${1:-Qwen/Qwen3-8B}\ndocker run -p 8000:8000 vllm/vllm-openai:v1 --model $MODEL --max-num-seqs ${2-4}"
    profile = import_docker_line(text)
    assert profile.model.path == "Qwen/Qwen3-8B"
    assert profile.args == (("max-num-seqs", "4"),)


def test_a_line_that_is_not_read_is_told_as_it_was_written() -> None:
    written = import_and_check("echo ${2}\ndocker run -p 1:1 vllm/vllm-openai:v1 --model m")
    assert "`echo ${2}`" in list_keys_of(written, KeyOutcome.UNSUPPORTED)


def test_where_a_secret_lies_is_none() -> None:
    line = "docker run -p 1:1 -e HF_TOKEN_PATH=/run/hf -e HF_TOKEN=/x/hf_abcdefghijklmnopqrst vllm/vllm-openai:v1 --model m --api-key-file /run/key"
    profile = import_docker_line(line)
    assert ("api-key-file", "/run/key") in profile.args
    assert profile.env == (("HF_TOKEN_PATH", "/run/hf"), ("HF_TOKEN", "${HF_TOKEN}"))


def test_the_flags_in_the_script_of_a_shell_as_entry_point_are_read() -> None:
    script = "pip install x && exec vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8"
    profile = import_docker_line(
        f"docker run -p 8000:8000 --entrypoint bash nvcr.io/nvidia/vllm:26.01-py3 -c '{script}'"
    )
    assert (profile.engine, profile.container.entrypoint, profile.command) == ("vllm", "bash", ("-c", script))
    assert get_container_argv(profile) == ("-c", script), "nothing may stand behind the script"
    assert [flag.word for flag in collect_profile_flags(profile)] == ["--gpu-memory-utilization"]
    assert CommandFlags(("-c", script), "bash").get_fraction("gpu-memory-utilization") == 0.8
    assert CommandFlags(("-c", "8192"), "llama-server").get_count("c") == 8192


@pytest.mark.parametrize("source", [r"C:\Users\me\models", r'"C:\Users\me\models"', "C:/Users/me/models"])
def test_a_directory_of_windows_is_left_out_once(source: str) -> None:
    written = import_and_check(f"docker run -v {source}:/models -v cache:/m:ro {IMAGE} --model /models/x")
    (left,) = [
        one for one in written.imported.ledger.list_keys_by_outcome(KeyOutcome.UNSUPPORTED) if "models" in one.key
    ]
    assert "a Windows drive" in (left.why or "")
    assert written.profile.mounts == ("cache:/m:ro",)
