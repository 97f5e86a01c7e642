"""``sparkctl demo``: run the panel or any verb on two simulated Sparks."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparkctl.cli import stderr, stdout
from sparkctl.cli.options import Number
from sparkctl.files import APP_NAME, config_dir, read_only_profiles_dir, remove_abandoned_directories, user_profiles_dir
from sparkctl.history.expected_durations import compute_model_key
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.phase import Phase, PhaseDuration
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.tui.panel_options import DemoStep

if TYPE_CHECKING:
    from sparkctl.simulator import SimClock

TIME_FACTOR = 8.0  # simulated seconds per real second, while something starts or stops
_DAY_SECONDS = 86400.0
_SGLANG_PHASES = (
    ("dropping-caches", None, 1.7), ("creating", None, 0.5), ("starting", None, 13.0), ("loading", "join", 29.0),
    ("loading", "weights", 190.0), ("loading", "profiling", 6.1), ("loading", "kv-cache", 5.9), ("loading", "graphs", 55.0),
)  # fmt: skip
_DRAFT_MODEL_PHASES = (("loading", "draft", 46.3),)
_WARMUP_PHASES = (("warming", "http", 2.6), ("warming", "warm-up", 21.6), ("warming", "first token", 1.2))
_VLLM_PHASES = (
    ("dropping-caches", None, 2.0), ("creating", None, 2.0), ("starting", None, 15.1), ("loading", "join", 41.0),
    ("loading", "weights", 91.0), ("loading", "profiling", 7.0), ("loading", "compile", 42.0), ("loading", "kv-cache", 22.0),
    ("loading", "graphs", 11.8), ("warming", "http", 5.3), ("warming", "first token", 1.3),
)  # fmt: skip
_PAST_STARTS = (
    ("qwen36", "spark2", (*_SGLANG_PHASES, *_DRAFT_MODEL_PHASES, *_WARMUP_PHASES), 4.1),
    ("qwen36-vllm", "spark2", _VLLM_PHASES, 2.2),
    ("qwen36-ngram", "spark1", (*_SGLANG_PHASES, *_WARMUP_PHASES), 1.3),
)  # (profile, node, seconds of each part as the simulated engines take them, how many days ago)
_OTHER_SECONDS = {"minimax-m27": 760.0, "orpheus-llm": 41.0, "orpheus-tts": 16.0}  # of a whole start
_HOUR_SECONDS = 3600.0
_CONNECT_SECONDS = 2.0  # seconds until the first part begins: connecting and looking
_FAILING_OPTIONS = ("--force", "--set", "args.mem-fraction-static=0.95")

DEMO_STEPS = (
    DemoStep(
        1.5,
        "two simulated Sparks, only in this process, with directories of their own: your files are not changed. q ends "
        "the demo, ? shows the keys",
    ),
    DemoStep(
        8,
        "minimax-m27 uses both Sparks. A smaller model on one of them leaves the other free: switch qwen36-ngram",
        ("switch", "qwen36-ngram", "--node", "spark1"),
    ),
    DemoStep(
        14,
        "spark2 is free. We start a model with a large KV cache: up qwen36 --force --set args.mem-fraction-static=0.95",
        ("up", "qwen36", "--node", "spark2", *_FAILING_OPTIONS),
    ),
    DemoStep(
        14,
        "no memory was left for the drafts: press j, then enter on spark2 to see the verdict. Now with vLLM: up qwen36-vllm",
        ("up", "qwen36-vllm", "--node", "spark2"),
    ),
    DemoStep(
        25,
        "the same model twice: FP8 with NGRAM drafts on spark1, NVFP4 with its own draft head on spark2. Now it is your turn",
    ),
)


def format_clock_label(clock: SimClock) -> str:
    """Return the label of the header: how fast the simulated time runs, or how far it is ahead of real time."""
    if clock.rate != 1:
        return f"simulated, time ×{clock.rate:g}"
    ahead = round((clock.unix_time() - time.time()) / 60)
    return f"simulated, {ahead} min ahead" if ahead else "simulated"


def seed_start_history(state: Path, scenario: str, pace: float = 1.0, *, has_others: bool = True) -> None:
    """Write past starts into the history: when what runs in the scenario was started, and others, so that it is known how long a
    start takes.

    ``pace``: simulated seconds per second of the clock that measures the next starts. ``has_others``: without them `plan` judges a
    profile that was never started. Nothing was started on new Sparks.
    """
    from sparkctl.simulator import READY_HOURS, RUNNING_AT_FIRST

    history, library = OperationHistory(state), ProfileLibrary()
    known = {name: took for name, _, took, _ in _PAST_STARTS}
    starts = [
        (name, node, days * _DAY_SECONDS) for name, node, _, days in _PAST_STARTS if has_others and scenario != "fresh"
    ]
    starts += [(name, node, READY_HOURS[name] * _HOUR_SECONDS) for name, node in RUNNING_AT_FIRST.get(scenario, ())]
    for name, node, ago in sorted(starts, key=lambda one: -one[2]):
        profile = library.load_profile(name)
        parts = [PhaseDuration(Phase(phase), step, seconds / pace) for phase, step, seconds in known.get(name, ())]
        seconds = (
            (_CONNECT_SECONDS / pace + sum(one.seconds for one in parts)) if parts else _OTHER_SECONDS[name] / pace
        )
        history.record_start(
            name, profile.digest, node, seconds, time.time() - ago,
            kind=compute_model_key(profile.image, profile.model.path), parts=parts,
            workers=("spark2",) if profile.nodes > 1 else (),
        )  # fmt: skip


SCENARIOS = ("empty", "fresh", "two-stacks", "speech", "big-model", "trouble")
_HANGUP_REPEAT_SECONDS = 2.0
_HOME_PREFIX = "sparkctl-demo-"  # of the temporary directory; the id of its process follows
_BUSY_SCENARIO = "two-stacks"  # for --plain and --readonly, which start nothing
_SCENARIO_OF_VERB = {
    "say": "speech",
    **dict.fromkeys(("tunnel", "check", "bench"), _BUSY_SCENARIO),
}  # verbs that need something running
_IDLE_SCENARIOS = ("empty", "fresh")  # nothing runs there at first
_SERVE_ADVICE = "`sparkctl demo --serve` keeps them for other terminals"
_PROFILES_LOST_MESSAGE = "profiles written in the demo are deleted with it; your own profiles are unchanged"


@click.command(
    "demo",
    short_help="Run the panel, or any command, on two simulated Sparks.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    help="What runs at first. Without it a command starts on `empty` (`say` on `speech`; `tunnel`, `check` and `bench` on `two-stacks`), and the "
    "panel shows a guided tour.",
)
@click.option(
    "--speed", type=Number(min=0.01), default=1.0, show_default=True, help="How fast the simulated time runs."
)
@click.option("--serve", is_flag=True, help="Keep the simulated Sparks running for other terminals.")
@click.option("--readonly", is_flag=True, help="Open the panel read-only, without the guided tour.")
@click.option("--plain", is_flag=True, help="Print changes as sentences instead of opening the panel.")
@click.argument("verb", nargs=-1, metavar="[COMMAND]...", type=click.UNPROCESSED)
@click.pass_context
def demo_command(
    ctx: click.Context, scenario: str | None, speed: float, serve: bool, readonly: bool, plain: bool,
    verb: tuple[str, ...],
) -> int:  # fmt: skip
    """Run COMMAND, or the panel without one, on two simulated Sparks, spark1 and spark2. They speak real SSH and the real
    Docker API.

    \b
    sparkctl demo up qwen36 --node spark1
    sparkctl demo --scenario two-stacks status
    sparkctl demo tunnel qwen36-ngram          its answers are made-up tokens
    sparkctl demo say hello --node spark2 -o hello.wav
    sparkctl demo --scenario trouble top       a stuck clock, heat, half a fabric
    sparkctl demo up qwen36-vllm --node spark1 --set env.SIM_FAULT=cuda-oom
    sparkctl demo up minimax-m27 --set env.SIM_FAULT=worker-dies
    sparkctl demo --serve                      then run any command in another terminal, with the variables it prints

    Values of SIM_FAULT: cuda-oom, oom-killed, hang, exit0, no-token, nonsense, rejected-drafts, open-door, other-key,
    bad-flag, memory-runaway; on two Sparks also worker-dies and fabric-cut. An image with missing-on-spark2 or
    stale-on-spark2 in its name is missing there, or is another build.

    Your files are not changed: the demo reads your profiles, and keeps everything else in a temporary directory that it
    deletes at the end.
    """
    from sparkctl.cli import panel_launcher

    if serve and verb:
        raise click.UsageError("--serve runs no command: use the printed config in another terminal", ctx)
    if (serve or verb) and (idle := [name for name, given in (("--readonly", readonly), ("--plain", plain)) if given]):
        raise click.UsageError(f"{idle[0]} is an option of the panel: use it without a command", ctx)
    if plain:
        return _run_demo_plain(scenario, speed)
    if not serve and not verb and not panel_launcher.can_open_panel():
        raise click.UsageError(
            "the panel needs a terminal: name a command, for example sparkctl demo up qwen36 --node spark1", ctx
        )
    if serve:
        return _serve_simulator(scenario or "empty", speed)
    if not verb:
        return _open_demo_panel(scenario, speed, readonly=readonly)
    return _run_demo_verb(verb, scenario or _SCENARIO_OF_VERB.get(verb[0], "empty"), speed)


def _run_demo_verb(verb: tuple[str, ...], scenario: str, speed: float) -> int:
    """Run a verb on simulated Sparks, and explain that what it started ends with the command."""
    with _temporary_home(scenario, speed=speed) as home:
        _seed_history(home, scenario, speed)
        code = _invoke_verb(verb)
        has_log = any((home / "state").rglob("*.log"))
    from sparkctl.cli.options import VERB_ALIASES

    name = VERB_ALIASES.get(verb[0], verb)[0]
    if name in ("up", "restart") and "--dry-run" not in verb:
        stderr.print_message(_explain_end(code, has_log, can_add_tunnel=name == "up" and "--tunnel" not in verb))
    elif code in (0, 5) and name in ("status", "endpoints") and scenario not in _IDLE_SCENARIOS:
        stderr.print_message(f"these addresses ended with the command; {_SERVE_ADVICE}")
    return code


def _seed_history(home: Path, scenario: str, speed: float) -> None:
    """Write the starts of what runs, for verbs: their clock is the real one, and the simulated Sparks are that much faster."""
    from sparkctl.simulator import DEMO_SPEED

    seed_start_history(home / "state", scenario, DEMO_SPEED * speed, has_others=False)


def _run_demo_plain(scenario: str | None, speed: float) -> int:
    """Print changes on simulated Sparks as sentences until Ctrl-C."""
    from sparkctl.cli.plain_mode import run_plain_mode

    with _temporary_home(scenario or _BUSY_SCENARIO, speed=speed):
        return run_plain_mode()


def _open_demo_panel(scenario: str | None, speed: float, *, readonly: bool) -> int:
    """Open the panel on simulated Sparks. Both use one clock; it runs faster while something starts, as the header shows."""
    from sparkctl.cli.invocation import load_commands
    from sparkctl.cli.panel_launcher import open_panel
    from sparkctl.simulator import DEMO_SPEED, SimClock

    clock, taken = SimClock(elastic=True), dict[str, None]()
    pace = {
        "speed": 1 / DEMO_SPEED,
        "clock": clock,
        "busy_rate": TIME_FACTOR * speed,
        "report_taken_port": taken.setdefault,
    }
    shown = scenario or (_BUSY_SCENARIO if readonly else "story")
    with _temporary_home(shown, **pace) as home:
        seed_start_history(home / "state", shown)
        return open_panel(
            load_commands,
            readonly=readonly,
            clock=clock,
            badge=lambda: ", ".join((format_clock_label(clock), *(f"{address} was taken" for address in taken))),
            story=DEMO_STEPS if scenario is None and not readonly else (),
        )


@contextmanager
def _run_simulator(scenario: str, **pace: Any) -> Iterator[tuple[Path, Path]]:
    """Run two simulated Sparks. Yields the path of their config, and a temporary home directory."""
    import logging

    from sparkctl.simulator import DIRECTORY_PREFIX, run_in_background

    pace.setdefault("report_taken_port", _print_taken_port)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a client leaves while a Spark writes is no warning
    for prefix in (_HOME_PREFIX, DIRECTORY_PREFIX):
        remove_abandoned_directories(prefix)
    with (
        _handle_hangup() as stop_timer,
        tempfile.TemporaryDirectory(prefix=f"{_HOME_PREFIX}{os.getpid()}-") as home,
        run_in_background(scenario=scenario, is_reachable=True, **pace) as config,
    ):
        _copy_config(Path(home))
        try:
            yield Path(config), Path(home)
        finally:
            stop_timer()  # nothing interrupts the deletion


def _print_taken_port(address: str) -> None:
    """Explain that a simulated engine does not answer at the address that is shown for it."""
    stderr.print_message(
        f"another program of this machine has {address}: whoever asks there does not reach the simulated engine; "
        "`sparkctl tunnel` gives it another port",
        is_trouble=True,
    )


@contextmanager
def _temporary_home(scenario: str, **pace: Any) -> Iterator[Path]:
    """Run simulated Sparks with temporary directories, whose root it yields; warn at the end if profiles were written there."""
    with _run_simulator(scenario, **pace) as (config, home), _use_directories(config, home):
        before = _list_profile_stamps(home)
        yield home
        has_written = _list_profile_stamps(home) != before
    if has_written:
        stderr.print_message(_PROFILES_LOST_MESSAGE)


def _list_profile_stamps(home: Path) -> frozenset[tuple[str, int]]:
    """Return the files of the demo's config, each with its time of modification (ns)."""
    with_times = set()
    for path in (home / "config").rglob("*"):
        with suppress(OSError):
            with_times.add((str(path), path.stat().st_mtime_ns))
    return frozenset(with_times)


def _explain_end(code: int, has_log: bool, *, can_add_tunnel: bool) -> str:
    """Return the message after `up`: what it started ends with the simulated Sparks."""
    if code in (0, 130):
        kept = f"with --tunnel it stays until Ctrl-C, and {_SERVE_ADVICE}" if can_add_tunnel else _SERVE_ADVICE
        return f"the simulated Sparks, the started model and its endpoint ended with the command; {kept}"
    return f"the simulated Sparks{', and this log,' if has_log else ''} ended with the command; {_SERVE_ADVICE}"


@contextmanager
def _handle_hangup() -> Iterator[Callable[[], None]]:
    """Exit cleanly when the terminal closes (SIGHUP) or somebody ends the process, so that temporary directories, keys
    included, are deleted. Python drops an exception that a callback of its own raises (an import's, a finalizer's): a
    timer raises it again, until the function that this yields is called."""
    import signal

    has_timer = False

    def exit_on_signal(number: int, _frame: object) -> None:
        nonlocal has_timer
        has_timer = True
        signal.signal(signal.SIGALRM, lambda _number, frame: exit_on_signal(number, frame))
        signal.setitimer(signal.ITIMER_REAL, _HANGUP_REPEAT_SECONDS)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, exit_on_signal) for number in (signal.SIGHUP, signal.SIGTERM)}

    def stop_timer() -> None:
        if has_timer:
            signal.setitimer(signal.ITIMER_REAL, 0)

    try:
        yield stop_timer
    finally:
        stop_timer()
        for number, handler in before.items():
            signal.signal(number, handler)


def _invoke_verb(verb: tuple[str, ...]) -> int:
    from sparkctl.cli.invocation import invoke_command_line

    return invoke_command_line(list(verb))


def _copy_config(home: Path) -> None:
    """Copy the operator's config without the profiles, which are read in place."""
    profiles = user_profiles_dir()

    def list_ignored_names(directory: str, names: list[str]) -> set[str]:
        return {name for name in names if name == ".git" or Path(directory, name) == profiles}

    if config_dir().is_dir():
        with suppress(OSError):  # unreadable files are left out, the rest is copied
            shutil.copytree(
                config_dir(), home / "config" / APP_NAME, ignore=list_ignored_names, ignore_dangling_symlinks=True
            )


@contextmanager
def _use_directories(config: Path, home: Path) -> Iterator[None]:
    """Point the environment at directories under ``home`` and at ``config``; the user's ~/.ssh/config does not apply."""
    changed = {
        "SPARKCTL_PROFILES_BENEATH": str(read_only_profiles_dir() or user_profiles_dir()),
        "SPARKCTL_CONFIG": str(config),
        "SPARKCTL_STATE": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "xdg-state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",  # a simulated Spark has nothing to do with the real Hub
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _serve_simulator(scenario: str, speed: float) -> int:
    """Print how to reach the simulated Sparks and wait for Ctrl-C."""
    import signal

    with _run_simulator(scenario, speed=speed) as (config, home):
        _seed_history(home, scenario, speed)
        stdout.print_line(f"export SPARKCTL_CONFIG={config}")
        stdout.print_line(f"export SPARKCTL_STATE={home / 'state'}")
        stdout.print_line(f"export XDG_CONFIG_HOME={home / 'config'}")
        stdout.print_line("export HF_HUB_OFFLINE=1")  # a simulated Spark has nothing to do with the real Hub
        if "SPARKCTL_PROFILES_BENEATH" in os.environ:
            stdout.print_line(
                f"export SPARKCTL_PROFILES_BENEATH={shlex.quote(os.environ['SPARKCTL_PROFILES_BENEATH'])}"
            )
        stderr.print_message(
            "paste these lines into another terminal: each sparkctl there works on two simulated Sparks, until Ctrl-C here. A "
            "started model answers a client at the address that is shown, or through `sparkctl tunnel` where another program has "
            "that port. Profiles written in such a terminal are deleted at the end"
        )
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: stop.set())
        while not stop.wait(0.5):
            pass
    return 0
