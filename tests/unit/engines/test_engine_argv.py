"""The command lines, word for word."""

from __future__ import annotations

from sparkctl import engines
from sparkctl.model.profile import ArgValue, ModelSpec, Profile

QWEN = ModelSpec(path="/models/Qwen3.6-27B-FP8", served_name="qwen3.6-27b")


def build_argv(
    engine: str,
    *args: tuple[str, ArgValue],
    model: ModelSpec = QWEN,
    port: int | None = 8003,
    command: tuple[str, ...] | None = None,
) -> tuple[str, ...]:
    made = Profile(
        name="p",
        engine=engine,
        image="img",
        origin="p.yaml",
        shipped=False,
        model=model,
        port=port,
        args=args,
        command=command,
    )
    return engines.load_engine(engine).build_command(made)


def test_sglang_qwen36_is_the_blogs_command() -> None:
    words = build_argv(
        "sglang",
        ("tp", "1"),
        ("speculative-algorithm", "NEXTN"),
        ("speculative-num-steps", "5"),
        ("speculative-eagle-topk", "4"),
        ("mem-fraction-static", "0.82"),
        ("trust-remote-code", True),
    )
    assert " ".join(words) == (
        "python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 --host 0.0.0.0 --port 8003 "
        "--served-model-name qwen3.6-27b --tp 1 --speculative-algorithm NEXTN --speculative-num-steps 5 "
        "--speculative-eagle-topk 4 --mem-fraction-static 0.82 --trust-remote-code"
    )


def test_vllm_takes_the_model_as_a_word() -> None:
    words = build_argv("vllm", ("max-model-len", "8192"))
    assert words == (
        *("vllm", "serve", "/models/Qwen3.6-27B-FP8", "--host", "0.0.0.0", "--port", "8003"),
        *("--served-model-name", "qwen3.6-27b", "--max-model-len", "8192"),
    )


def test_vllms_older_module_takes_it_as_a_flag() -> None:
    words = build_argv("vllm", command=("python3", "-m", "vllm.entrypoints.openai.api_server"))
    assert words[3:5] == ("--model", "/models/Qwen3.6-27B-FP8")


def test_an_image_with_its_own_entrypoint_gets_no_launch_words() -> None:
    assert build_argv("vllm", command=())[:3] == ("--model", "/models/Qwen3.6-27B-FP8", "--host")


def test_flags_in_args_are_not_repeated() -> None:
    own: tuple[tuple[str, ArgValue], ...] = (("host", "127.0.0.1"), ("served_model_name", "mine"), ("--port", "9"))
    words = build_argv("sglang", *own)
    assert words[3:] == (
        *(
            "--model-path",
            "/models/Qwen3.6-27B-FP8",
            "--host",
            "127.0.0.1",
            "--served_model_name",
            "mine",
            "--port",
            "9",
        ),
    )
    assert build_argv("sglang", ("model-path", "/x"))[3] == "--host"


def test_without_a_port_the_engines_own_holds() -> None:
    assert "30000" in build_argv("sglang", port=None)
    assert "8000" in build_argv("vllm", port=None)


def test_a_shell_script_gets_no_flags_of_ours() -> None:
    script = ("bash", "-lc", "exec vllm serve /m --port 1")
    assert build_argv("vllm", command=script) == script
    assert build_argv("sglang", command=script) == script


def test_a_container_is_started_as_its_profile_says() -> None:
    assert build_argv("container", ("listen", "0.0.0.0"), command=("python", "main.py")) == (
        *("python", "main.py", "--listen", "0.0.0.0"),
    )
    assert build_argv("container") == ()
