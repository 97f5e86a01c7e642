"""Launch scripts as people publish them: arrays, conditions, here-documents, comments between flags, shells in shells."""

from __future__ import annotations

import json

import pytest

from sparkctl.engines import load_engine
from sparkctl.engines.lint.profile_flags import has_ignored_args
from sparkctl.errors import InvalidInput
from sparkctl.model.profile import FlagValues
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from sparkctl.views.profiles.profile_view import format_import_report
from tests.unit.profiles.importers.import_text import (
    get_container_argv,
    import_and_check,
    import_docker_line,
    list_keys_of,
)

IMAGE = "vllm/vllm-openai:v0.20"


def list_remarks(text: str) -> str:
    return " ".join(remark.text for remark in import_and_check(text).imported.ledger.remarks)


def test_arrays_are_the_words_that_they_hold() -> None:
    profile = import_docker_line(
        "ARGS=(\n  --model org/m   # the model\n  --served-model-name 'a b'\n)\nARGS+=(--max-model-len 8192)\n"
        f'ENVS=(-e A=1 -e B="2 3")\nexec docker run -p 8000:8000 "${{ENVS[@]}}" {IMAGE} "${{ARGS[@]}}"\n'
    )
    assert (profile.model.path, profile.model.served_name) == ("org/m", "a b")
    assert profile.env == (("A", "1"), ("B", "2 3"))
    assert dict(profile.args) == {"max-model-len": "8192"}


def test_a_command_that_is_an_array_is_read() -> None:
    text = f'CMD=(docker run --gpus all -p 8000:8000)\nCMD+=({IMAGE})\n"${{CMD[@]}}" --model org/m'
    assert import_docker_line(text).model.path == "org/m"


def test_an_array_that_the_text_does_not_set_is_said() -> None:
    text = f'docker run -p 8000:8000 {IMAGE} --model org/m "${{EXTRA[@]}}"'
    assert import_docker_line(text).args == ()
    assert "script (EXTRA)" in list_remarks(text)


def test_what_a_condition_sets_is_said_and_overrides_nothing() -> None:
    text = (
        'IMAGE=one/vllm:1\nif [ -n "$FAST" ]; then\n  IMAGE=two/vllm:2\n  ARGS+=(--enforce-eager)\nfi\n'
        'docker run -p 8000:8000 "$IMAGE" --model org/m "${ARGS[@]}"'
    )
    profile = import_docker_line(text)
    assert profile.image == "one/vllm:1"
    assert dict(profile.args) == {"enforce-eager": True}
    assert "(IMAGE, ARGS)" in list_remarks(text)


def test_the_first_branch_of_a_case_stands_as_a_whole() -> None:
    text = (
        "case $1 in\n a) IMG=a/vllm:1; ARGS=(--model org/a) ;;\n b) IMG=b/vllm:1; ARGS=(--model org/b) ;;\nesac\n"
        'docker run -p 8000:8000 $IMG "${ARGS[@]}"'
    )
    profile = import_docker_line(text)
    assert (profile.image, profile.model.path) == ("a/vllm:1", "org/a")


@pytest.mark.parametrize(
    "between",
    [
        "--ipc host   # needed \\\n  --gpus all \\\n",
        "--ipc host \\   # needed\n  --gpus all \\\n",
        "--ipc host \\\n  # needed\n  # and more\n  --gpus all \\\n",
    ],
)
def test_a_comment_between_flags_ends_nothing(between: str) -> None:
    profile = import_docker_line(f"docker run -p 8000:8000 {between}  {IMAGE} --model org/m")
    assert (profile.container.ipc, profile.model.path) == ("host", "org/m")


def test_a_here_document_is_no_part_of_the_script_around_it() -> None:
    text = f"cat > config.yaml <<EOF\nmodel:\n  name: x\nEOF\ndocker run -p 8000:8000 {IMAGE} --model org/m"
    written = import_and_check(text, "start.sh")
    assert written.profile.model.path == "org/m"
    assert "`name: x`" not in list_keys_of(written, KeyOutcome.UNSUPPORTED)


def test_a_file_that_a_script_writes_is_read_where_the_script_starts_nothing() -> None:
    compose = f"services:\n  llm:\n    image: {IMAGE}\n    command: --model org/m\n"
    assert import_docker_line(f"cat > compose.yaml <<'EOF'\n{compose}EOF\ndocker compose up -d").model.path == "org/m"
    run = f"docker run -p 8000:8000 {IMAGE} --model org/m"
    assert import_docker_line(f"cat > run.sh <<EOF\n{run}\nEOF\nbash run.sh").model.path == "org/m"


@pytest.mark.parametrize(
    "line",
    [
        "sudo -u llm {run}",
        "timeout 60 {run}",
        "if ! {run}; then exit 1; fi",
        "cid=$({run})",
        "ssh spark1 '{run}'",
        'bash -c "{run}"',
        'CMD="{run}"\neval "$CMD"',
        "/usr/bin/env -i HOME=/root PATH=/usr/bin LC_ALL=C DOCKER_HOST=unix:///run/docker.sock /usr/bin/{run}",
    ],
)
def test_what_stands_around_the_docker_run_does_not_hide_it(line: str) -> None:
    run = f"docker run -d -p 8000:8000 {IMAGE} --model org/m"
    assert import_docker_line(line.replace("{run}", run)).model.path == "org/m"


def test_an_engine_that_is_started_in_a_container_by_hand() -> None:
    text = "docker exec -it -e M=org/m vllm /bin/bash -c '\n  vllm serve $M --tensor-parallel-size 2'"
    profile = import_docker_line(text)
    assert (profile.engine, profile.model.path) == ("vllm", "org/m")
    assert "how the container was started is not in this line" in list_remarks(text)


def test_what_a_text_exports_goes_into_the_container() -> None:
    run = import_docker_line(f"export VLLM_A=1\ndocker run -e VLLM_A -p 8000:8000 {IMAGE} --model org/m")
    assert run.env == (("VLLM_A", "1"),)
    text = "export CUTE_DSL_ARCH=sm_121a\nexport PATH=/x:$PATH\nvllm serve org/m"
    written = import_and_check(text)
    assert written.profile.env == (("CUTE_DSL_ARCH", "sm_121a"),)
    assert "export PATH" in list_keys_of(written, KeyOutcome.UNSUPPORTED)


def test_an_assignment_that_only_a_shell_can_evaluate_hides_no_command() -> None:
    written = import_and_check('DB="$(pwd)/x" \\\nVLLM_A=1 \\\nvllm serve org/m')
    assert written.profile.env == (("VLLM_A", "1"),)
    assert "DB=" in list_keys_of(written, KeyOutcome.UNSUPPORTED)


def test_defaults_with_variables_and_quotes_in_them() -> None:
    profile = import_docker_line(
        f"docker run -p 8000:8000 -v ${{HF_HOME:-$HOME/.cache/huggingface}}:/root/.cache/huggingface {IMAGE} "
        '--model ${MODEL:-"org/m"} --port ${PORT:-8801} ${DEBUG:+--enforce-eager}'
    )
    assert profile.mounts == ("~/.cache/huggingface:/root/.cache/huggingface",)
    assert (profile.model.path, profile.port, profile.args) == ("org/m", 8801, ())
    assert get_container_argv(profile).count("--port") == 1


def test_an_escaped_dollar_stays_a_dollar() -> None:
    profile = import_docker_line(f'docker run -p 8000:8000 -e A=\\${{HOME}} -e "B=\\${{HOME}}" {IMAGE} --model org/m')
    assert profile.env == (("A", "$${HOME}"), ("B", "$${HOME}"))


@pytest.mark.parametrize(
    "place", ["<image> --model org/m", f"{IMAGE} --model <your model>", f'{IMAGE} --model "<MODEL>"']
)
def test_a_placeholder_is_said(place: str) -> None:
    with pytest.raises(InvalidInput, match="is a placeholder"):
        import_and_check(f"docker run -p 8000:8000 {place}")


def test_a_script_whose_value_only_the_shell_knows_is_no_empty_profile() -> None:
    text = f"GMEM=$(awk 1 /proc/meminfo)\ndocker run -p 8000:8000 {IMAGE} bash -c \"vllm serve m --x '$GMEM'\""
    with pytest.raises(InvalidInput, match="GMEM") as caught:
        import_and_check(text)
    assert "--define GMEM=VALUE" in (caught.value.hint or "")
    assert get_container_argv(import_docker_line(text, defined={"GMEM": "0.8"}))[-1] == "0.8"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("docker compose run --rm vllm", "compose file"),
        ("docker model run ai/qwen3", "Model Runner"),
        ("ollama run llama3.2", "ollama/ollama"),
        ("kubectl apply -f x", "docker run line"),
        ("mpirun -n 2 trtllm-llmapi-launch trtllm-serve org/m", "one rank"),
        ("#!/bin/bash\necho hi\nls a b: c\n", "docker run"),
    ],
)
def test_what_cannot_be_imported_says_what_can(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match="neither a recipe nor a command line") as caught:
        import_and_check(text, "x.sh")
    assert hint in (caught.value.hint or "")


def test_a_kubernetes_manifest_is_named_as_what_it_is() -> None:
    with pytest.raises(InvalidInput, match=r"Kubernetes manifest \(Deployment\)"):
        import_and_check("apiVersion: apps/v1\nkind: Deployment\nspec: {}\n", "x.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 40,
        "A=(x y)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40,
        "A=xx\n" + "A=${B:-$A$A}\n" * 40,
    ],
)
def test_variables_that_double_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expand to more than"):
        import_and_check(text + f'docker run -e B=$A {IMAGE} --model "${{A[@]}}"')


def test_a_list_of_names_in_an_array_is_one_flag() -> None:
    profile = import_docker_line(
        f'N=(a b)\ndocker run -p 1:1 {IMAGE} --model m --served-model-name "${{N[@]}}" --seed 1'
    )
    assert dict(profile.args)["served-model-name"] == FlagValues(("a", "b"))


@pytest.mark.parametrize("redirection", ["> /tmp/serve.log 2>&1", "> serve.log", ">> serve.log"])
def test_a_redirection_on_a_line_of_its_own_is_no_prompt(redirection: str) -> None:
    for flags in ("--kv-cache-dtype fp8", "--kv-cache-dtype \\\n  fp8"):
        written = import_and_check(f"docker run -p 8000:8000 {IMAGE} --model org/m {flags} \\\n  {redirection}\n")
        assert dict(written.profile.args) == {"kv-cache-dtype": "fp8"}, flags
        assert "serve.log" in " ".join(list_keys_of(written, KeyOutcome.UNSUPPORTED))


@pytest.mark.parametrize(
    "text",
    [
        f"$ docker run -p 8000:8000 \\\n> {IMAGE} \\\n> --model org/m",
        f"docker run -p 8000:8000 {IMAGE} \\\n> --model org/m",
        f"> docker run -p 8000:8000 {IMAGE} \\\n> --model org/m",
        f"milo@spark1:~$ docker run -p 8000:8000 {IMAGE} --model \\\n> org/m",
    ],
)
def test_prompts_and_marks_of_a_quote_are_taken_away(text: str) -> None:
    assert import_docker_line(text).model.path == "org/m"


def test_how_many_tokens_a_batch_holds_is_no_secret() -> None:
    profile = import_docker_line(
        'BATCH_TOKENS="${BATCH_TOKENS:-8192}"\n'
        f'docker run -p 8000:8000 {IMAGE} --model org/m --max-num-batched-tokens "$BATCH_TOKENS"'
    )
    assert "8192" in str(dict(profile.args)["max-num-batched-tokens"])


def test_of_many_other_commands_of_a_script_the_report_shows_the_first() -> None:
    text = "".join(f"echo {number}\n" for number in range(30)) + f"docker run -p 8000:8000 --rm {IMAGE} --model org/m\n"
    imported = import_and_check(text).imported
    lines = format_import_report(imported)
    assert "  left out  `echo 0` and 29 more (--json has them all): only the `docker run` is read" in lines
    assert any(line.startswith("  left out  --rm: ") for line in lines)
    assert len(imported.ledger.list_keys_by_outcome(KeyOutcome.UNSUPPORTED)) == 31


@pytest.mark.parametrize(
    "other",
    ["docker network create llm", "docker volume create hub", "docker buildx create --use", "docker image rm run"],
)
def test_only_a_container_is_run_or_created(other: str) -> None:
    assert import_docker_line(f"{other}\ndocker run --network llm -p 8000:8000 {IMAGE} --model org/m").image == IMAGE


@pytest.mark.parametrize(
    "docker",
    ["docker --context spark1", "docker -H ssh://spark1 container", "sudo docker --log-level=error", "/usr/bin/docker"],
)
def test_options_before_the_verb_are_passed_over(docker: str) -> None:
    assert import_docker_line(f"{docker} run -p 8000:8000 {IMAGE} --model org/m").image == IMAGE


def test_of_several_containers_the_one_of_an_engine_is_read() -> None:
    helper = (
        'docker run --rm --gpus all nvidia/cuda:13.0.1-base-ubuntu24.04 nvidia-smi\ndocker run -d "$EXTRA" helper:1\n'
    )
    written = import_and_check(f"{helper}docker run -p 8000:8000 {IMAGE} --model org/m\ndocker run -d grafana/grafana")
    assert (written.profile.image, written.profile.engine) == (IMAGE, "vllm")
    assert list(list_keys_of(written, KeyOutcome.UNSUPPORTED).values()) == ["another `docker run` is read"] * 3
    assert import_docker_line("docker run -p 1:1 one:1\ndocker run -p 2:2 two:2").image == "one:1"


def test_a_variable_that_is_empty_unless_set_is_no_word() -> None:
    command = (
        f"docker run -p 8000:8000 -e A=${{A:-}} {IMAGE} --model org/m --tensor-parallel-size 1 ${{VLLM_EXTRA_ARGS:-}}"
    )
    written = import_and_check(command)
    assert dict(written.profile.args) == {"tensor-parallel-size": "1"}
    assert "(VLLM_EXTRA_ARGS)" in " ".join(remark.text for remark in written.imported.ledger.remarks)
    redirected = import_and_check(
        command.replace("--tensor-parallel-size 1 ${VLLM", "> ${LOG:-} --tensor-parallel-size 1 ${VLLM")
    )
    assert dict(redirected.profile.args) == {"tensor-parallel-size": "1"}
    spread = import_and_check(command, defined={"VLLM_EXTRA_ARGS": "--enforce-eager --kv-cache-dtype fp8"})
    assert list(dict(spread.profile.args)) == ["tensor-parallel-size", "enforce-eager", "kv-cache-dtype"]


def test_a_script_that_hands_its_arguments_on_leaves_the_command_line_to_the_engine() -> None:
    behind = "--model org/m --served-model-name q --port 9000 --max-model-len 4096"
    written = import_and_check(
        f"""docker run -p 9000:9000 --entrypoint bash {IMAGE} -lc 'pip install x; exec "$@"' bash vllm serve {behind}"""
    )
    profile = written.profile
    assert (profile.model.path, profile.port, dict(profile.args)) == ("org/m", 9000, {"max-model-len": "4096"})
    words = load_engine(profile.engine).build_command(profile)
    assert words[:6] == ("-lc", 'pip install x; exec "$@"', "bash", "vllm", "serve", "org/m")
    assert words[words.index("--port") :][:2] == ("--port", "9000")
    assert not has_ignored_args(profile)


def test_the_front_matter_of_a_page_is_no_recipe() -> None:
    line = f"docker run -p 8000:8000 {IMAGE} --model org/m"
    page = f"---\ntitle: m on vLLM\nmodel: org/m\nrun_command: |\n  {line}\n---\n\n**Measured** in June.\n"
    assert import_and_check(page, "m.md").profile.model.path == "org/m"


def test_a_here_document_inside_a_script_stays_in_the_script() -> None:
    # The shape of NVIDIA's own line for TensorRT-LLM: github.com/NVIDIA/dgx-spark-playbooks, nvidia/trt-llm
    script = (
        "cat > /tmp/extra.yml <<EOF\nprint_iter_log: false\nEOF\nvllm serve org/m --port 8355 --extra /tmp/extra.yml"
    )
    written = import_and_check(f"docker run -p 8355:8355 {IMAGE} bash -c '\n{script}\n'\ncurl localhost:8355")
    assert written.profile.command is not None
    assert written.profile.command[-1].strip() == script
    outside = (
        f"cat > x.yml <<EOF\ndocker run -p 1:1 no:1 --model no\nEOF\ndocker run -p 8000:8000 {IMAGE} --model org/m"
    )
    assert import_docker_line(outside).image == IMAGE


@pytest.mark.parametrize(
    "before",
    [
        "nohup uv run --with vllm ", "uvx --from vllm ", "conda run -n llm ", "poetry run ", "(venv) me@spark1:~/x$ ", "spark1:~$ ",
        "❯ ", "uv run --python 3.12 --env-file .env ",
    ],
)  # fmt: skip
def test_what_stands_before_an_engine_is_passed_over(before: str) -> None:
    profile = import_and_check(f"{before}vllm serve org/m --port 8001", defined={"container": IMAGE}).profile
    assert (profile.model.path, profile.port) == ("org/m", 8001)


def test_a_compose_file_may_be_json() -> None:
    text = json.dumps({"services": {"a": {"image": IMAGE, "command": ["--model", "org/m"], "ports": ["9001:8000"]}}})
    assert import_and_check(text).profile.model.path == "org/m"


def test_the_port_of_what_runs_before_the_engine_is_not_the_engines() -> None:
    line = f"docker run --network host {IMAGE} bash -c 'ray start --head --port 6379 && vllm serve org/m"
    assert import_docker_line(f"{line} --port 8005 --served-model-name q'").port == 8005
    assert import_docker_line(f"{line} -tp 2'").port is None


@pytest.mark.parametrize(
    "function",
    [
        'start() {\n  if groups | grep -qw docker; then\n    docker "$@"\n  else\n    sudo docker "$@"\n  fi\n}\nstart',
        'function start { podman "${@}"; }\nstart',
        'start() { echo "+ $*"; "$@"; }\nstart docker',
        'start()\n{\n  [ -n "$DRY_RUN" ] && return\n  "$@"\n}\nmkdir -p x && start docker',
    ],
)
def test_a_function_that_passes_its_words_on_is_what_it_runs(function: str) -> None:
    # The shape of github.com/Ryukijano/NV-Disruptron, scripts/start_vllm_backend.sh
    profile = import_docker_line(f"{function} run -d {IMAGE} --model org/m --port 8001")
    assert (profile.image, profile.model.path, profile.port) == (IMAGE, "org/m", 8001)


def test_a_function_that_only_prints_its_words_runs_nothing() -> None:
    with pytest.raises(InvalidInput, match="neither a recipe nor a command line"):
        import_and_check('say() {\n  echo "$@"\n}\nsay run -d x --model org/m')


def test_why_the_name_of_a_secret_is_doubtful_can_be_read() -> None:
    remarks = list_remarks(f'docker run -p 8000:8000 {IMAGE} ${{HF_TOKEN:+-e HF_TOKEN="$HF_TOKEN"}} --model org/m')
    assert "not set in the text" in remarks
    assert "(HF_TOKEN)" in remarks
