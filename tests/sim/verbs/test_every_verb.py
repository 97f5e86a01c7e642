"""The real command on the simulated Sparks: every verb, every way a start ends, and what a script gets to see of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.run_command import QUICK, SPARK_URL, parse_result, run_demo, run_in_process


@pytest.mark.parametrize(
    ("profile", "port"),
    [
        *(("qwen36", 8003), ("qwen36-ngram", 8003), ("qwen36-vllm", 8000), ("orpheus-tts", 5005)),
        *(("llamacpp-gpt-oss-120b", 8080), ("trtllm-gpt-oss-20b", 8355)),
    ],
)
def test_every_shipped_profile_gets_ready(profile: str, port: int) -> None:
    ran = run_demo("up", profile, "--node", "spark1", "--json")
    ended = parse_result(ran)
    assert ended["outcome"] == "ready", ran.stderr
    assert re.fullmatch(f"{SPARK_URL}{port}", ended["endpoint"])
    phases = [json.loads(line)["phase"] for line in ran.stdout.splitlines() if '"event":"phase"' in line]
    order = ["dropping-caches", "creating", "starting", "loading", "warming", "ready"]
    assert list(dict.fromkeys(phases)) == [phase for phase in order if phase in phases]
    assert {"creating", "warming", "ready"} <= set(phases)


def test_stdout_is_the_endpoint_and_stderr_the_talk() -> None:
    ran = run_demo("up", "qwen36", "--node", "spark1")
    assert ran.returncode == 0
    assert re.fullmatch(f"{SPARK_URL}8003\n", ran.stdout)
    assert "ready after" in ran.stderr
    assert "\x1b" not in ran.stderr


FAULTS = [
    ("cuda-oom", 1, "failed", "cuda-out-of-memory"),
    ("oom-killed", 1, "failed", "host-oom-kill"),
    ("memory-runaway", 1, "failed", "guard-stopped"),
    ("bad-flag", 1, "failed", "unknown-flag"),
    ("exit0", 1, "failed", "exited"),
    ("hang", 4, "timed-out", "timed-out"),
    ("no-token", 4, "timed-out", "wedged"),
]


@pytest.mark.parametrize(("fault", "code", "outcome", "cause"), FAULTS)
def test_every_failure_has_its_code_its_cause_and_its_proof(fault: str, code: int, outcome: str, cause: str) -> None:
    ran = run_demo("up", "qwen36", "-n", "spark1", "--set", f"env.SIM_FAULT={fault}", "--timeout", "4s", "--json")
    ended = parse_result(ran)
    assert (ran.returncode, ended["outcome"]) == (code, outcome)
    assert ended["verdict"]["cause"] == cause
    assert ended["verdict"]["evidence"]
    assert ended["verdict"]["remedy"]
    assert not any(one["text"].startswith("process ") for one in ended["verdict"]["evidence"]), (
        "ended ones hold nothing"
    )
    assert ended["log"]


@pytest.mark.parametrize(
    ("setting", "cause"), [("start.ready_line=never said", "timed-out"), ("start.health=/not-there", "wedged")]
)
def test_what_answers_is_not_ready_without_its_ready_line_and_its_health(setting: str, cause: str) -> None:
    ran = run_demo("up", "qwen36", "-n", "spark1", "--set", setting, "--timeout", "4s", "--json")
    ended = parse_result(ran)
    assert (ran.returncode, ended["outcome"], ended["verdict"]["cause"]) == (4, "timed-out", cause)


def test_nonsense_stays_ready_and_is_a_finding_with_its_evidence() -> None:
    ran = run_demo("up", "qwen36", "-n", "spark1", "--set", "env.SIM_FAULT=nonsense", "--strict", "--json")
    ended = parse_result(ran)
    assert (ran.returncode, ended["outcome"], ended["exit_code"]) == (5, "ready", 5)
    found = [json.loads(line) for line in ran.stdout.splitlines() if '"answers"' in line]
    assert [(one["severity"], one["instance"]) for one in found] == [("warning", "qwen36")]
    assert [one["name"] for one in found[0]["evidence"]] == ["asked", "came"]
    assert found[0]["evidence"][1]["value"].startswith("!!!!!!!!!!!!")


def test_a_running_model_is_checked() -> None:
    ran = run_demo("check", "qwen36-vllm", "--basic", "--strict", scenario="two-stacks")
    assert ran.returncode == 0, ran.stderr
    assert "answered correctly" in ran.stdout
    assert "it takes 8192 tokens, as its command says" in ran.stdout
    missing = run_demo("check", "nothing", scenario="two-stacks")
    assert missing.returncode == 2
    assert "no running instance is called nothing on spark1, spark2" in missing.stderr
    profile = run_demo("check", "qwen36", scenario="two-stacks")
    assert "qwen36 is a profile, and it is not running on spark1, spark2" in profile.stderr
    assert "try: sparkctl up qwen36 --node NODE\n" in profile.stderr


def test_a_dry_run_changes_nothing_and_prints_the_docker_line() -> None:
    ran = run_demo("up", "qwen36", "--node", "spark1", "--dry-run", "--format", "docker")
    assert ran.returncode == 0
    assert ran.stdout.startswith("docker run -d")
    assert "-v /home/milo/models:/models" in ran.stdout
    text = run_demo("up", "qwen36", "--node", "spark1", "--dry-run")
    assert "drop the page cache" in text.stdout


def test_detach_returns_at_once() -> None:
    ended = parse_result(run_demo("up", "qwen36", "--node", "spark1", "--detach", "--json"))
    assert ended["outcome"] == "detached"
    assert ended["exit_code"] == 0


def test_an_instance_that_is_ready_is_success_at_once() -> None:
    ran = run_demo("up", "qwen36-ngram", "--node", "spark1", "--json", scenario="two-stacks")
    assert parse_result(ran)["outcome"] == "ready"
    assert '"phase":"creating"' not in ran.stdout


def test_another_version_wants_replace_and_gets_it() -> None:
    words = ("up", "qwen36-ngram", "--node", "spark1", "--set", "args.mem-fraction-static=0.6", "--json")
    refused = parse_result(run_demo(*words, scenario="two-stacks"))
    assert (refused["outcome"], refused["exit_code"]) == ("refused", 6)
    assert "--replace" in refused["hint"]
    replaced = run_demo(*words, "--replace", scenario="two-stacks")
    assert parse_result(replaced)["outcome"] == "ready"
    assert '"phase":"stopped"' in replaced.stdout


def test_a_busy_port_and_a_missing_image_are_refused_before_anything_is_changed() -> None:
    port = run_demo("up", "qwen36", "--node", "spark1", "--json", scenario="two-stacks")
    assert parse_result(port)["exit_code"] == 6
    assert "8003" in parse_result(port)["message"]
    image = run_demo("up", "qwen36", "--node", "spark1", "--set", "image=missing/image:1", "--json")
    assert parse_result(image)["exit_code"] == 6
    assert parse_result(image)["hint"].endswith("--set image=missing/image:1 --pull")
    for ran in (port, image):
        assert '"phase":"creating"' not in ran.stdout
        assert '"phase":"dropping-caches"' not in ran.stdout


def test_down_waits_for_the_memory_and_tells_what_came_back() -> None:
    ran = run_demo("down", "--all", scenario="two-stacks")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("came back") == 2
    again = run_demo("down", "qwen36")
    assert again.returncode == 0
    assert "nothing to stop" in again.stderr


def test_several_names_are_stopped_one_after_the_other() -> None:
    ran = run_demo("rm", "qwen36-ngram", "not-there", "qwen36-vllm", scenario="two-stacks")
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.count("came back") == 2
    assert "is called not-there" in ran.stderr


def test_a_node_s_name_is_taken_where_hands_put_it() -> None:
    ran = run_demo("status", "spark2", scenario="two-stacks")
    assert ran.returncode == 0
    assert "spark2" in ran.stdout
    assert "spark1" not in ran.stdout
    ran = run_demo("free", "--node", "spark2", "--dry-run", scenario="two-stacks")
    assert ran.returncode == 0
    assert "would stop qwen36-vllm on spark2" in ran.stderr
    assert "qwen36-ngram" not in ran.stderr
    assert run_demo("free", scenario="two-stacks").returncode == 2  # never all of them by default


def test_status_shows_phase_memory_and_endpoint() -> None:
    ran = run_demo("status", scenario="two-stacks")
    assert ran.returncode == 0
    assert re.search(r"spark1 +● qwen36-ngram +ready +\d+\.\d GiB +— +http://", ran.stdout)
    assert "GiB" in ran.stdout
    document = json.loads(run_demo("status", "--json", scenario="big-model").stdout)
    assert document["schema"] == 1
    assert [i["phase"] for node in document["nodes"] for i in node["instances"]] == ["ready", "ready"]


def test_logs_are_whole_filtered_and_tailed() -> None:
    whole = run_demo("logs", "qwen36-ngram", scenario="two-stacks")
    assert "The server is fired up and ready to roll!" in whole.stdout
    some = run_demo("logs", "qwen36-ngram", "--grep", "fired up", scenario="two-stacks").stdout.splitlines()
    assert len(some) == 1
    assert len(run_demo("logs", "qwen36-ngram", "--tail", "3", scenario="two-stacks").stdout.splitlines()) == 3
    stamped = run_demo("logs", "qwen36-ngram", "-t", scenario="two-stacks").stdout.splitlines()
    stamps, texts = zip(*(line.split(" ", 1) for line in stamped), strict=True)
    assert {"fired up" in text for text in texts} == {True, False}
    arrived = [
        json.loads(line)
        for line in run_demo("logs", "qwen36-ngram", "--json", scenario="two-stacks").stdout.splitlines()
    ]
    found = [line["when"] for event in arrived if event["event"] == "log" for line in event["lines"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{18}Z", stamp) for stamp in (*stamps, *found)), (
        "asked for, they come"
    )
    assert found
    none = run_demo("logs", "no-such-thing")
    assert none.returncode == 2
    assert "no instance" in none.stderr


def test_drop_caches_prints_before_and_after() -> None:
    ran = run_demo("drop-caches", "--node", "spark1")
    assert ran.returncode == 0
    assert "page cache" in ran.stdout
    assert "spark2" not in ran.stdout


def test_doctor_finds_nothing_wrong_with_a_simulated_spark() -> None:
    ran = run_demo("doctor", "--json")
    assert parse_result(ran)["exit_code"] == 0
    severities = {json.loads(line)["severity"] for line in ran.stdout.splitlines() if '"finding"' in line}
    assert severities <= {"good", "note"}


def test_the_operators_own_profile_runs_in_the_demo(tmp_path: Path) -> None:
    mine = tmp_path / "sparkctl/profiles/mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("schema: 1\nname: mine\nextends: qwen36\nport: 8044\n")
    ran = run_demo("up", "mine", "--node", "spark2", env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert re.fullmatch(f"{SPARK_URL}8044\n", ran.stdout)


def test_what_the_demo_writes_is_in_directories_of_its_own(tmp_path: Path) -> None:
    homes = {"HOME": "home", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}
    env = {name: str(tmp_path / place) for name, place in homes.items()}
    mine = tmp_path / "config/sparkctl/profiles/mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("schema: 1\nname: mine\nextends: qwen36\nport: 8044\n")
    before = sorted(tmp_path.rglob("*"))
    line = "docker run -d --gpus all --network host vllm/vllm-openai:v0.19.1 --model /models/x --port 8000"
    ran = run_in_process("demo", "profiles", "import", "--save", "--name", "other", "-", stdin=line, env=env)
    assert ran.returncode == 0, ran.stderr
    assert "other" in ran.stdout + ran.stderr
    assert "profiles written in the demo are deleted with it" in ran.stderr
    started = run_demo("up", "mine", "--node", "spark1", env=env)
    assert started.returncode == 0, started.stderr
    assert "written in the demo" not in started.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [["--plain", "demo"], ["demo", "--plain"], ["--plain", "--ascii", "demo"]])
def test_the_demo_is_told_in_sentences_where_the_option_stands_before_it_or_behind(words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    result = ""
    for line in process.stdout:
        result += line
        if "qwen36-vllm on spark2: ready" in result:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    first = result.splitlines()[0]
    assert "connecting to spark1 and spark2" in first
    assert "unknown" not in result
    assert "qwen36-vllm on spark2: ready" in result


def test_the_panels_options_are_for_the_demo_without_a_verb() -> None:
    for words in (["--readonly", "demo", "status"], ["demo", "--readonly", "status"], ["demo", "--plain", "status"]):
        ran = run_in_process(*words)
        assert ran.returncode == 2
        assert "is an option of the panel" in ran.stderr


def test_a_secret_appears_nowhere(tmp_path: Path) -> None:
    canary = "hf_canary0123456789abcdef"
    mine = tmp_path / "sparkctl/profiles/mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("schema: 1\nname: mine\nextends: qwen36\nenv:\n  HF_TOKEN: ${HF_TOKEN}\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path), "HF_TOKEN": canary}
    for words in (["--json"], ["--dry-run"], ["--dry-run", "--format", "docker"], ["--dry-run", "--format", "json"]):
        ran = run_demo("up", "mine", "--node", "spark1", *words, env=env)
        assert ran.returncode == 0, ran.stderr
        assert canary not in ran.stdout + ran.stderr


def test_a_secret_expanded_in_an_argument_appears_nowhere(tmp_path: Path) -> None:
    canary = "canary/0123456789+abc"
    mine = tmp_path / "sparkctl/profiles/mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(
        "schema: 1\nname: mine\nextends: qwen36\nargs:\n  tool-server: http://x/${MY_TOKEN}/y\n"
        f"container: {{options: {{log-opt: [splunk-token={canary}]}}}}\n"
    )
    env = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "MY_TOKEN": canary}
    for words in (
        ["--json"],
        [],
        ["--dry-run"],
        ["--dry-run", "--format", "docker"],
        ["--dry-run", "--format", "json"],
    ):
        ran = run_demo("up", "mine", "--node", "spark1", *words, env=env)
        assert ran.returncode == 0, ran.stderr
        assert canary not in ran.stdout + ran.stderr
    shown = run_demo("profiles", "show", "mine", env=env)
    assert "${MY_TOKEN}" in shown.stdout
    assert canary not in shown.stdout
    for saved in (tmp_path / "state").rglob("*.log"):
        assert canary not in saved.read_text()


def test_ctrl_c_stops_watching_and_says_that_the_engine_goes_on() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", "demo", "up", "qwen36", "--node", "spark1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "loading" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(30) == 130
    assert "keeps starting" in rest


def test_top_adds_up_and_knows_what_an_instance_holds() -> None:
    ran = run_demo("top", "--once", "--json", scenario="two-stacks")
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert [node["name"] for node in document["nodes"]] == ["spark1", "spark2"]
    for node in document["nodes"]:
        memory = node["memory"]
        assert sum(memory[part] for part in ("gpu_processes", "other_used", "page_cache", "free")) == memory["total"]
        assert node["gpus"][0]["busy"] > 0.8
        assert node["cpu"]["busy"] is not None
    assert {one["name"] for one in document["instances"]} == {"qwen36-ngram", "qwen36-vllm"}
    assert all(one["memory"] > 90 << 30 for one in document["instances"])


def test_top_tells_what_both_engines_do() -> None:
    ran = run_demo("top", "--once", "--json", scenario="two-stacks")
    document = {one["engine"]: one for one in json.loads(ran.stdout)["instances"]}
    for engine, (slowest, fastest), estimator in (("sglang", (11.5, 14), "log"), ("vllm", (19, 28), "counters")):
        numbers = document[engine]["numbers"]
        assert numbers["activity"] == "decoding", ran.stdout
        assert slowest < numbers["generation_rate"] < fastest
        assert 1.5 < numbers["acceptance"]["length"] < 3.6
        assert 0 < numbers["acceptance"]["rate"] < 1
        made = numbers["steps"] * numbers["batch"] * numbers["acceptance"]["length"]
        # where a request ends between the two readings, some of what its last step accepted is no token any more
        assert 0.98 < made / numbers["generation_rate"] < 1.25
        assert numbers["estimator"] == numbers["acceptance"]["estimator"] == estimator
    assert document["sglang"]["metrics_hint"] == "args.enable-metrics: true"
    assert document["vllm"]["metrics_hint"] is None


def test_top_says_what_both_engines_do() -> None:
    lines = run_demo("top", "--once", "--explain", scenario="two-stacks").stdout.splitlines()
    under = {
        line.split()[1]: [each.strip() for each in lines[at + 1 :]] for at, line in enumerate(lines) if "ready" in line
    }
    speed = r"\d+(\.\d)? tok/s · published \d+(\.\d)? · {} running · KV \d+(\.\d)? % · "
    accepts = r"accepts \d\.\d\d per step · \d+(\.\d)? % of {} drafts"
    sglang, vllm = under["qwen36-ngram"], under["qwen36-vllm"]
    assert re.fullmatch(speed.format(1) + r"/metrics is off; in the profile: args\.enable-metrics: true", sglang[0])
    assert re.fullmatch(accepts.format(11) + " · by its log", sglang[1])
    reads = re.fullmatch(r"bandwidth ≈ (\d+) GB/s est\. · \d+ % of 230 measured, \d+ % of 273 spec", sglang[2])
    assert reads is not None, sglang[2]
    assert 180 < int(reads[1]) < 215, "27 GB seven times a second, as fast as a Spark reads"
    assert re.fullmatch(r"holds 9\d\.\d GiB · its profile expects 96\.0 GiB", sglang[3])
    assert "weights        27.00 GB" in sglang
    assert re.match(speed.format(1)[:-3] + "( |$)", vllm[0])
    assert re.fullmatch(accepts.format(3) + r" · by position \d+( · \d+){2} %", vllm[1])
    reads = re.fullmatch(r"bandwidth ≈ (\d+) GB/s est\. · \d+ % of 230 measured, \d+ % of 273 spec", vllm[2])
    assert reads is not None, vllm[2]
    assert 140 < int(reads[1]) < 215, "21.9 GB eight times a second"


def test_live_top_follows_the_log_and_counts_on() -> None:
    words = ["demo", "--scenario", "two-stacks", "top", "--json"]
    process = subprocess.Popen([sys.executable, "-m", "sparkctl", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    engines: set[str] = set()
    while engines < {"sglang", "vllm"}:
        shown = json.loads(process.stdout.readline())["instances"]
        engines |= {one["engine"] for one in shown if (one["numbers"] or {}).get("generation_rate")}
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait(15) == 0


def test_top_goes_on_until_ctrl_c() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", "demo", "--speed", QUICK, "top", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    seen = 0
    while seen < 2:  # a node is unknown until its first sample
        document = json.loads(process.stdout.readline())
        seen += all(node["memory"] for node in document["nodes"])
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait(15) == 0


def test_top_of_a_node_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps({"nodes": [{"name": "gone", "host": "127.0.0.1", "port": 1}]}))
    ran = run_in_process("top", "--once", "--json", env={"SPARKCTL_CONFIG": str(tmp_path / "config.yaml")})
    assert ran.returncode == 3
    (node,) = json.loads(ran.stdout)["nodes"]
    assert (node["state"], node["memory"]) == ("unreachable", None)


def test_serve_prints_a_config_that_other_terminals_can_use() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", "demo", "--speed", QUICK, "--serve"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    config = process.stdout.readline().strip().removeprefix("export SPARKCTL_CONFIG=")
    state = process.stdout.readline().strip().removeprefix("export SPARKCTL_STATE=")
    own = process.stdout.readline().strip().removeprefix("export XDG_CONFIG_HOME=")
    assert Path(own).parent == Path(state).parent, (
        "profiles that are written there are the demo's, and not the operator's"
    )
    assert process.stdout.readline().strip() == "export HF_HUB_OFFLINE=1", "the real Hub has no say in it"
    env = {"SPARKCTL_CONFIG": config, "SPARKCTL_STATE": state, "XDG_CONFIG_HOME": own}
    try:
        first = run_in_process("up", "qwen36", "--node", "spark1", env=env)
        assert first.returncode == 0, first.stderr
        with urllib.request.urlopen(f"{first.stdout.strip()}/v1/models", timeout=10) as answer:
            assert json.load(answer)["data"][0]["id"] == "qwen3.6-27b", "what is printed answers a client"
        second = run_in_process("up", "qwen36", "--node", "spark1", env=env)
        assert "already runs" in second.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_in_the_demo_it_is_said_what_ended_with_it() -> None:
    ready = run_demo("up", "qwen36-vllm", "--node", "spark1")
    assert ready.returncode == 0, ready.stderr
    assert (
        "its endpoint ended with the command; with --tunnel it stays until Ctrl-C, and `sparkctl demo --serve`"
        in ready.stderr
    )
    refused = run_demo("up", "qwen36-vllm", "--node", "spark1", "--set", "env.SIM_FAULT=nosuch")
    assert refused.returncode != 0
    assert "memory-runaway" in refused.stderr, "the faults that there are"
    assert "and this log" not in refused.stderr
    nothing = run_demo("up", "nosuch", "--node", "spark1")
    assert "and this log" not in nothing.stderr
    assert "ended with the command" not in run_demo("up", "qwen36", "--node", "spark1", "--dry-run").stderr


def test_a_terminal_that_is_closed_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", "demo", "--speed", QUICK, "--serve"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    assert list(tmp_path.iterdir())
    process.send_signal(signal.SIGHUP)
    process.wait(20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [["up", "qwen36", "--node", "spark1"], ["top", "--json"]])
def test_a_verb_whose_terminal_is_closed_leaves_nothing_behind(tmp_path: Path, verb: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", "demo", "--scenario", "empty", *verb],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    assert list(tmp_path.iterdir())
    process.send_signal(signal.SIGHUP)
    process.stdout.read()
    process.wait(20)
    assert list(tmp_path.iterdir()) == []
