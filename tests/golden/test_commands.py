"""What scripts see of every verb: exit codes, events, the shape of JSON documents, and what lies on disk afterwards."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click
import pytest

from sparkctl import __version__
from sparkctl.cli.main import sparkctl_command
from sparkctl.simulator import run_in_background
from tests.golden.comparison import assert_no_diffs, diff_golden, is_updating, read_golden, write_golden
from tests.golden.running import CommandRun, find_event_misfits, read_event_shapes, run_command
from tests.golden.shapes import Shape, find_misfits, read_shape, shape_of, write_shape
from tests.golden.test_help import CONTEXTS

RECORDINGS = Path(__file__).parents[1] / "tools/pictures/recordings"
SPEED = 50.0

# On simulated Sparks at which two stacks serve. Each line finds what those before it left.
STORY = """
status --json
status --check --json
top --once --json
endpoints --json
check qwen36-vllm --basic --json
plan qwen36 --json
plan minimax-m27 --json
logs qwen36-vllm --tail 3 --json
logs nothing --json
diagnose qwen36-vllm --json
doctor --json
doctor --fabric --json
doctor --collect {tmp}/bundle.tar.gz --json
guard status --json
guard arm qwen36-vllm --node spark2 --json
guard status --json
guard disarm --json
drop-caches --node spark1 --json
setup --json
tunnel nothing --json
pull qwen36 --node spark1 --json
models --json
models remove qwen36 --node spark1 --json --yes
models remove gpt-oss-120b-GGUF --node spark1 --json --dry-run
images --node spark1 --json
images remove acme/nothing:1 --node spark1 --yes --json
sync qwen36 --from spark1 --to spark2 --dry-run --json
sync qwen36 --from spark1 --to spark2 --json
up qwen36 --node spark1 --json
up qwen36-ngram --node spark1 --json
switch qwen36 --node spark1 --dry-run --json
switch qwen36 --node spark1 --json
resume --json
abort --json
down qwen36 --json
down qwen36 --json
up qwen36 --node spark1 --dry-run --json
up qwen36 --node spark1 --dry-run --format json
up qwen36-ngram --node spark1 --set image=missing/image:1 --json
up qwen36-ngram --node spark1 --set env.SIM_FAULT=cuda-oom --json
restart nothing --json
status --check --json
diagnose qwen36-ngram --json
free spark1 --dry-run --json
free spark1 --json
up qwen36-ngram --node spark1 --detach --json
down qwen36-ngram --kill --json
up qwen36-ngram --node spark1 --set env.SIM_FAULT=hang --timeout 2s --json
up qwen36-ngram --node spark1 --record /dev/full --overwrite --replace --again --force --json
free spark1 spark2 --json
up minimax-m27 --record {tmp}/up.jsonl --json
status --json
plan qwen36 --json
down minimax-m27 --json
history --json
history show {switch} --json
history show {start} --json
profiles import --from-container nothing --node spark1 --json
"""

# Without any Spark.
OFFLINE = """
frobnicate --json
up --json
status --json
profiles list --json
profiles show qwen36-vllm --json
profiles show minimax-m27 --json
profiles show nothing --json
profiles check qwen36-as-posted --json
profiles check {tmp}/bad.yaml --json
profiles import --json docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.19.1 --model Qwen/Qwen3-8B
diagnose --causes --json
diagnose {tmp}/engine.log --json
top --replay {recordings}/failure.jsonl.gz --once --json
top --replay {recordings}/checkup.jsonl.gz --once --json
top --replay {tmp}/bad.yaml --once --json
history --json
bench run qwen36 --json
bench list --json
bench show 1 --json
"""

# With a node that nobody reaches.
UNREACHABLE = """
status --json
top --once --json
up qwen36 --json
down qwen36 --json
plan qwen36 --json
endpoints --json
doctor --json
guard status --json
setup --json
tunnel qwen36 --json
logs qwen36 --json
"""

ENGINE_LOG = """INFO 11-22 10:00:00 [api_server.py:1] vLLM API server version 0.19.1
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


def find_command(words: Sequence[str]) -> str:
    """Return the path of the command that a command line names."""
    two = " ".join(("sparkctl", *words[:2]))
    return two if two in CONTEXTS else " ".join(("sparkctl", *words[:1]))


def run_story(text: str, values: dict[str, object]) -> Iterator[tuple[str, CommandRun]]:
    """Run one command line after the other; `{start}` and `{switch}` are the last ones that the history shows."""
    for line in text.split("\n"):
        if not line:
            continue
        run = run_command(line, values)
        if line == "history --json":
            operations = sorted(run.lines[0]["operations"], key=lambda one: int(one["id"]))
            values |= {str(one["kind"]): one["id"] for one in operations}
        yield line, run


def compare_runs(name: str, runs: Sequence[tuple[str, CommandRun]]) -> Iterator[str]:
    """Yield how the runs of a story differ from the golden files of that name."""
    yield diff_golden(f"commands/{name}.txt", "\n".join(f"{line}\n    {run.summarize()}" for line, run in runs))
    events = read_event_shapes(read_golden("json/events.txt"))
    documents: defaultdict[str, list[object]] = defaultdict(list)
    for line, run in runs:
        if run.is_document:
            form = "-plan" if "--format" in run.words else "-causes" if "--causes" in run.words else ""
            documents[f"{name}/{find_command(run.words).replace(' ', '-')}{form}"] += run.lines
        elif not is_updating() and (misfits := find_event_misfits(run, events)):
            yield "\n".join([f"--- golden/json/events.txt, +++ {line}", *misfits])
    for path, lines in documents.items():
        yield from diff_shape(f"json/{path}.txt", shape_of(lines))


def diff_shape(name: str, seen: Shape) -> Iterator[str]:
    """Yield what a shape has, or lacks, against its golden file."""
    if is_updating():
        write_golden(name, write_shape(seen) + "\n")
    elif misfits := find_misfits(seen, read_shape(read_golden(name))):
        yield "\n".join([f"--- golden/{name}, +++ now", *misfits])


@pytest.fixture
def values(tmp_path: Path) -> dict[str, object]:
    """Return what stands for the names in braces."""
    (tmp_path / "bad.yaml").write_text("schema: 1\nname: bad\nengine: nothing\n")
    (tmp_path / "engine.log").write_text(ENGINE_LOG)
    return {"tmp": tmp_path, "recordings": RECORDINGS}


def test_commands_on_sparks_are_unchanged(
    values: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All verbs, on one pair of simulated Sparks; then what they wrote on this machine."""
    with run_in_background(scenario="two-stacks", speed=SPEED, decode_speed=20.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        runs = list(run_story(STORY, values))
    diffs = list(compare_runs("sparks", runs))
    diffs += [diff_golden("state-files.txt", list_state(tmp_path / "SPARKCTL_STATE"))]
    diffs += [diff_golden("history-schema.sql", dump_schema(tmp_path / "SPARKCTL_STATE/history.db"))]
    for kind in ("before", "verdict"):
        files = [json.loads(path.read_text()) for path in (tmp_path / "SPARKCTL_STATE").rglob(f"*.{kind}.json")]
        diffs += diff_shape(f"json/state/{kind}.txt", shape_of(files))
    assert_no_diffs(diffs)
    recording = tmp_path / "up.jsonl"
    assert recording.stat().st_mode & 0o777 == 0o600
    (printed,) = (run.stdout for line, run in runs if "{tmp}/up.jsonl" in line)
    recorded = [line for line in recording.read_text().splitlines() if json.loads(line)["event"] != "log"]
    assert recorded == printed.splitlines(), "a recording is what --json prints, and the log"


def test_commands_without_sparks_are_unchanged(values: dict[str, object]) -> None:
    assert_no_diffs(compare_runs("offline", list(run_story(OFFLINE, values))))


def test_commands_on_an_unreachable_spark_are_unchanged(
    values: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("nodes: [{name: gone, host: 127.0.0.1, port: 1, user: nobody}]\n")
    monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
    assert_no_diffs(compare_runs("unreachable", list(run_story(UNREACHABLE, values))))


def test_every_command_with_json_is_in_a_story() -> None:
    with_json = {
        path
        for path, context in CONTEXTS.items()
        if any("--json" in one.opts for one in context.command.params if isinstance(one, click.Option))
    }
    lines = [line for line in f"{STORY}{OFFLINE}".splitlines() if "--json" in line]
    assert with_json == {find_command(line.split()) for line in lines} - {"sparkctl frobnicate"}


def test_every_verb_is_known() -> None:
    """A new verb belongs into STORY or OFFLINE, or to those that print no JSON."""
    print_no_json = {"init", "metrics", "demo", "completion", "help", "shell", "exec", "say"}
    in_stories = {line.split()[0] for line in f"{STORY}{OFFLINE}".splitlines() if line} - {"frobnicate"}
    assert set(sparkctl_command.list_commands(click.Context(sparkctl_command))) == in_stories | print_no_json


def list_state(state: Path) -> str:
    """Return the files below the state directory with their modes; times, ids and numbers left out."""
    files = (path for path in state.rglob("*") if path.is_file())
    names = {re.sub(r"(?<=/)[0-9a-f]{12}$", "CONTAINER", str(one.relative_to(state))): one for one in files}
    names = {re.sub(r"\d{8}-\d{6}-[0-9a-f]{12}", "TIME-CONTAINER", name): one for name, one in names.items()}
    return "\n".join(f"{one.stat().st_mode & 0o777:o} {name}" for name, one in sorted(names.items()))


def dump_schema(path: Path) -> str:
    """Return the tables of the history as SQL, a line for each column, and its numbers."""
    with closing(sqlite3.connect(path)) as file:
        lines = [f"PRAGMA {name} = {file.execute(f'PRAGMA {name}').fetchone()[0]};" for name in PRAGMAS]
        for (made,) in file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"):
            words = " ".join(re.sub("--.*", "", made).split())
            lines += re.sub(r"(?<=[(,]) ", "\n    ", words).splitlines()
    return "\n".join(lines)


PRAGMAS = ("application_id", "user_version", "journal_mode")

ENGINES = ("qwen36-ngram", "qwen36-vllm", "llamacpp-gpt-oss-120b", "trtllm-gpt-oss-20b", "orpheus-tts", "minimax-m27")


def test_containers_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of Docker for a profile of each engine: name, labels, mounts and command line."""
    with run_in_background(scenario="empty", speed=SPEED) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        lines = []
        for name in ENGINES:
            where = "" if name == "minimax-m27" else " --node spark1"
            run = run_command(f"up {name}{where} --dry-run --format docker")
            assert run.exit_code == 0, run.stderr
            lines += [f"== {name}", run.stdout]
    text = "\n".join(lines).replace(f"version={__version__}", "version=VERSION")
    text = re.sub(r"(dev\.sparkctl\.run=)[0-9a-f]+", r"\1RUN", text)
    text = re.sub(r"(dev\.sparkctl\.hash=)[0-9a-f]+", r"\1HASH", text)
    assert_no_diffs([diff_golden("containers.txt", text)])


@pytest.mark.parametrize("form", ["docker", "compose", "systemd", "sparkrun"])
def test_exports_are_unchanged(form: str, tmp_path: Path) -> None:
    mine = tmp_path / "XDG_CONFIG_HOME/sparkctl/profiles/mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(
        "schema: 1\nname: mine\nextends: qwen36-vllm\ntitle: Mine\nnotes: Some.\nenv: {HF_TOKEN: '${HF_TOKEN}'}\n"
    )
    run = run_command(f"profiles export mine --as {form}")
    assert run.exit_code == 0, run.stderr
    assert_no_diffs([diff_golden(f"exports/{form}.txt", run.stdout)])


def test_profile_schema_is_unchanged() -> None:
    assert_no_diffs([diff_golden("profile-schema.json", run_command("profiles schema").stdout)])
