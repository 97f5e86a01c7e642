"""``sparkctl bench``: measure instances, and compare what was measured."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from sparkctl.cli import stderr, stdout
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    VerbGroup,
    WholeNumber,
    add_other_nodes,
    complete_instances,
    json_document_option,
    json_option,
    node_option,
    parse_duration_option,
    select_configured_nodes,
    select_rank_nodes,
    wide_document_option,
)
from sparkctl.errors import InvalidInput, SparkctlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.commands.bench.run_bench import RunBench
    from sparkctl.commands.start.start_request import StartInstance
    from sparkctl.history.bench_store import BenchStore
    from sparkctl.model.bench import BenchCell, BenchRun
    from sparkctl.model.node import Node
    from sparkctl.model.reference import Reference

_plot_option = click.option("--plot", is_flag=True, help="Also plot it here, in the terminal.")
_png_option = click.option(
    "--png", type=click.Path(path_type=Path), metavar="FILE", help="Also draw it to FILE, as PNG."
)
_svg_option = click.option(
    "--svg", type=click.Path(path_type=Path), metavar="FILE", help="Also draw it to FILE, as SVG."
)
_LARGEST = 1_000_000  # tokens, or requests at a time: more is a slip


class BenchGroup(VerbGroup):
    """``bench INSTANCE`` is ``bench run INSTANCE``."""

    default_command = "run"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``run`` where no command is named."""
        if args and self.find_command_name(args[0]) is None and args[0] not in ctx.help_option_names:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


@click.group("bench", cls=BenchGroup, short_help="Measure a running model, and compare two measurements.")
def bench_command() -> None:
    """Measure how fast a running model is, and compare stacks.

    \b
    sparkctl bench qwen36
    sparkctl bench qwen36 --preset owner
    sparkctl bench compare 3 4

    The load comes from llama-benchy, over the SSH connection: nothing runs in the Spark's memory, and no port is opened.
    Each cell also shows what the engine and the Spark did meanwhile: accepted drafts, memory, power, clock.
    """


def _parse_numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    least = 0 if param.name == "depth" else 1
    try:
        found = tuple(dict.fromkeys(int(word) for word in value.replace(",", " ").split()))
    except ValueError as wrong:
        raise click.BadParameter(f"{value!r} is not a list of numbers, such as 1,2,4", ctx, param) from wrong
    if not found or not all(least <= number <= _LARGEST for number in found):
        raise click.BadParameter(f"each number is {least} to {_LARGEST}", ctx, param)
    return found


@bench_command.command(
    "run", cls=RequestCommand, short_help="Measure a running instance (`bench INSTANCE` is the same)."
)
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...", shell_complete=complete_instances)
@click.option(
    "--preset",
    default="quick",
    metavar="NAME",
    help="quick (default, 8 cells once), owner (12 cells: longer answers and contexts) or full (up to 32k of context).",
)
@click.option("--pp", callback=_parse_numbers, metavar="N,N", help="Prompt tokens; replaces the preset's.")
@click.option("--tg", callback=_parse_numbers, metavar="N,N", help="Generated tokens.")
@click.option("--depth", callback=_parse_numbers, metavar="N,N", help="Tokens of context before the prompt.")
@click.option("--concurrency", callback=_parse_numbers, metavar="N,N", help="Concurrent requests.")
@click.option(
    "--runs",
    type=WholeNumber(1, 100),
    metavar="N",
    help="Measure each cell N times (default 3; quick of one instance: 1).",
)
@click.option(
    "--timeout", callback=parse_duration_option, metavar="TIME", help="Give up on a cell after this long, e.g. 10m."
)
@click.option("--tokenizer", metavar="DIR", help="The model's tokenizer, if it cannot be read from the Spark.")
@click.option("--book", type=click.Path(path_type=Path), metavar="FILE", help="A text file to cut prompts from.")
@click.option(
    "--command",
    "generator",
    metavar="COMMAND",
    envvar="SPARKCTL_BENCH_COMMAND",
    help="The command that starts llama-benchy (default: bench.command in the config).",
)
@click.option("--resume", type=WholeNumber(1), metavar="NO", help="Measure what is still missing in benchmark NO.")
@click.option(
    "--start",
    "are_started",
    is_flag=True,
    help="Start what does not run, without asking. It is stopped afterwards, and what had to stop for it starts again.",
)
@click.option("--together", is_flag=True, help="Measure all at the same time, on different Sparks.")
@click.option("--by-domain", is_flag=True, help="Acceptance and speed by kind of text: coding, JSON, prose and so on.")
@click.option(
    "--domain", "domains", multiple=True, metavar="NAME", help="With --by-domain: only this kind of text (repeatable)."
)
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --by-domain: your own prompts, in the format of Spec-Bench.",
)
@click.option(
    "--max-tokens",
    type=WholeNumber(2, _LARGEST),
    default=256,
    metavar="N",
    help="With --by-domain: at most this many tokens for each answer.",
)
@click.option(
    "--baseline", metavar="NAME", help="With --by-domain: compare with this instance or profile, which has no drafts."
)
@node_option(many=True)
@json_option
@click.pass_context
def run_command(
    ctx: click.Context, /, instances: tuple[str, ...], node: tuple[str, ...], as_json: bool, generator: str | None,
    resume: int | None, preset: str, runs: int | None, timeout: float | None, tokenizer: str | None, book: Path | None,
    are_started: bool, together: bool, by_domain: bool, domains: tuple[str, ...], prompts: Path | None, max_tokens: int,
    baseline: str | None, **sizes: tuple[int, ...] | None,
) -> PreparedVerb:  # fmt: skip
    """Measure INSTANCE cell by cell. What was measured is kept, even if the rest fails.

    \b
    sparkctl bench qwen36 --pp 2048 --tg 128 --depth 0,8192 --concurrency 1,4
    sparkctl bench qwen36-ngram qwen36-vllm --node spark1 --start      one after the other, overnight
    sparkctl bench --resume 7
    sparkctl bench qwen36-vllm --by-domain --baseline qwen36 --start      MTP against NEXTN, by kind of text

    Each cell is a run of llama-benchy of its own, with prompts that no cache holds. The table marks cells that other
    clients disturbed, or in which the GPU was throttled. Exit 1: a cell was not measured, or the engine ended. Exit 6:
    refused, nothing was measured, for example because llama-benchy is not installed.
    """
    from sparkctl.cli.event_printers import BenchPrinter
    from sparkctl.commands.bench.load_generator import hash_book, refuse_missing_tokenizer
    from sparkctl.commands.bench.run_bench import DEFAULT_RUNS, PRESET_RUNS, RunBench, RunBenches
    from sparkctl.commands.bench.run_domains import RunDomains
    from sparkctl.config import load_config
    from sparkctl.history.bench_store import BenchStore

    nodes = select_configured_nodes(node)
    kept = None if resume is None else BenchStore().load(resume)
    if kept is not None and len(instances) > 1:
        raise click.UsageError("--resume continues one benchmark", ctx)
    if kept is not None and by_domain and kept.setup.prompts is None:
        raise click.UsageError(f"benchmark {resume} is of cells: sparkctl bench --resume {resume}", ctx)
    if by_domain or (kept is not None and kept.setup.prompts is not None):
        _refuse_cell_options(ctx)
        instances = instances or (() if kept is None else (kept.instance,))
        if len(instances) > 1:
            _refuse_several_by_domain(instances)
        if not instances:
            raise click.UsageError("--by-domain measures one instance: sparkctl bench INSTANCE --by-domain", ctx)
        if baseline == instances[0]:
            raise click.UsageError(f"{baseline} cannot be its own baseline", ctx)
        if kept is not None:
            prompts = prompts or (None if kept.prompts is None else Path(kept.prompts))
            domains = tuple(one.domain for one in kept.wanted_domains)
            max_tokens = kept.setup.answer_tokens or max_tokens
        own = RunDomains(
            instance=instances[0], nodes=nodes, names_nodes=bool(node), prompts=prompts, domains=tuple(dict.fromkeys(domains)),
            tokens=max_tokens, timeout=timeout, baseline=baseline, resume=resume,
            start=None if resume else _prepare_start(instances[0], node, is_wanted=False),
            baseline_start=None if baseline is None else _prepare_start(baseline, node, is_wanted=False, fallback=nodes),
            are_started=are_started, everywhere=add_other_nodes(nodes),
        )  # fmt: skip
        return PreparedVerb(request=own, printer=lambda: BenchPrinter("ending this kind of text ..."))
    for name in ("domains", "prompts", "max_tokens", "baseline"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{_OPTION_NAMES.get(name, f'--{name}')} goes with --by-domain", ctx)
    generator = generator or load_config(required=False).bench_command
    if kept is not None:
        instances, cells, runs = instances or (kept.instance,), kept.wanted, kept.setup.runs
    else:
        cells = _choose_cells(ctx, preset, sizes)
        is_comparison = len(instances) > 1  # which needs a spread
        own_cells = any(sizes.values())
        runs = runs or (DEFAULT_RUNS if own_cells or is_comparison else PRESET_RUNS.get(preset, DEFAULT_RUNS))
    if not instances:
        raise click.UsageError("which instance? sparkctl status shows what runs", ctx)
    hash_book(book)  # a file that is not there is told before anything starts
    refuse_missing_tokenizer(tokenizer)
    benches = tuple(
        RunBench(
            instance=name, nodes=nodes, names_nodes=bool(node), cells=cells, runs=runs,
            drops_long_cells=not any(sizes.values()), timeout=timeout, generator=generator,
            tokenizer=tokenizer, book=book, resume=resume,
        )
        for name in dict.fromkeys(instances)
    )  # fmt: skip
    request = RunBenches(
        benches=benches,
        nodes=nodes,
        names_nodes=bool(node),
        starts=tuple(None if resume else _prepare_start(one.instance, node, is_wanted=are_started) for one in benches),
        are_started=are_started,
        everywhere=add_other_nodes(nodes),
        together=together,
        estimate=_estimate_seconds(
            benches if kept is None else [replace(benches[0], cells=kept.missing)], together=together
        ),
    )
    return PreparedVerb(request=request, printer=lambda: BenchPrinter("ending this cell ..."))


def _estimate_seconds(benches: Sequence[RunBench], *, together: bool) -> float | None:
    """Return about how long these take, by the newest benchmark of each; None where one was never measured."""
    from sparkctl.history.bench_store import BenchStore
    from sparkctl.model.bench import estimate_seconds

    runs, found = BenchStore().list_runs(), list[float]()
    for one in benches:
        seen = next(
            (run.results for run in runs if run.results and one.instance in (run.instance, run.setup.profile)), ()
        )
        took = estimate_seconds(one.cells, one.runs, seen)
        if took is None:
            return None
        found.append(took)
    return max(found) if together else sum(found)


_OPTION_NAMES = {
    "domains": "--domain",
    "max_tokens": "--max-tokens",
    "are_started": "--start",
    "generator": "--command",
}
_CELL_OPTIONS = (
    "preset", "pp", "tg", "depth", "concurrency", "runs", "tokenizer", "book", "generator", "together",
)  # fmt: skip


def _refuse_cell_options(ctx: click.Context) -> None:
    """Refuse what means nothing for prompts by kind of text."""
    for name in _CELL_OPTIONS:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{_OPTION_NAMES.get(name, f'--{name}')} does not go with --by-domain", ctx)


def _prepare_start(
    name: str, node: tuple[str, ...], *, is_wanted: bool, fallback: Sequence[Node] = ()
) -> StartInstance | None:
    """Return how a profile of this name is started, None if it cannot be. Raises `SparkctlError` then, where it ``is_wanted``, and
    for one that gives no tokens.

    ``fallback``: of these one of a single Spark gets the first where no node was named.
    """
    from sparkctl.commands.bench.run_bench import refuse_without_tokens
    from sparkctl.commands.start.start_request import build_start_request
    from sparkctl.profiles.profile_library import ProfileLibrary

    try:
        profile = ProfileLibrary().load_profile(name)
    except SparkctlError:
        if is_wanted:
            raise
        return None
    refuse_without_tokens(name, profile.start.probe)
    try:
        is_free = bool(fallback) and not node and profile.nodes == 1
        return build_start_request(profile, fallback[:1] if is_free else select_rank_nodes(node, profile), name)
    except (SparkctlError, click.UsageError):
        if is_wanted:
            raise
        return None


def _choose_cells(ctx: click.Context, preset: str, sizes: dict[str, Any]) -> tuple[BenchCell, ...]:
    from sparkctl.commands.bench.run_bench import PRESETS
    from sparkctl.model.bench import BenchCell

    if preset not in PRESETS:
        raise click.BadParameter(f"{preset!r} is none of {', '.join(PRESETS)}", ctx, param_hint="--preset")
    if not any(sizes.values()):
        return PRESETS[preset]
    first = PRESETS[preset][0]
    each = {name: sizes[name] or (getattr(first, name),) for name in ("pp", "tg", "depth", "concurrency")}
    return tuple(
        BenchCell(pp=pp, tg=tg, depth=depth, concurrency=concurrency)
        for depth in each["depth"]
        for pp in each["pp"]
        for tg in each["tg"]
        for concurrency in each["concurrency"]
    )


@bench_command.command("list")
@json_document_option
def list_command(as_json: bool) -> int:
    """List the benchmarks that were run from this machine, the newest first.

    \b
    sparkctl bench list
    sparkctl bench list --json
    """
    from sparkctl.history.bench_store import BenchStore
    from sparkctl.model.json_codec import to_json_data
    from sparkctl.views.bench_view import render_list

    runs = BenchStore().list_runs()
    if as_json:
        stdout.print_json({"schema": 1, "runs": to_json_data(runs)})
    else:
        stdout.print_rows(render_list(runs))
    return 0


@bench_command.command("show")
@click.argument("number", type=WholeNumber(1), metavar="NO")
@click.option(
    "--as",
    "form",
    type=click.Choice(["table", "llama-benchy"]),
    default="table",
    metavar="FORM",
    help="table (default), or llama-benchy: the document that leaderboards read.",
)
@wide_document_option
@_plot_option
@_png_option
@_svg_option
def show_command(number: int, form: str, as_json: bool, plot: bool, png: Path | None, svg: Path | None) -> int:
    """Show benchmark NO: its cells, and what the Spark did meanwhile; with -o wide also steps, bandwidth and temperature.

    \b
    sparkctl bench show 3
    sparkctl bench show 3 --as llama-benchy > result.json
    """
    from sparkctl.history.bench_store import BenchStore
    from sparkctl.model.json_codec import to_json_data
    from sparkctl.views.bench_view import build_leaderboard_document, render_run

    store = BenchStore()
    run = store.load(number)
    if form == "llama-benchy":
        _refuse_kinds_of_text(run)
        stdout.print_json(build_leaderboard_document(run))
        return 0
    if as_json:
        stdout.print_json({"schema": 1, "run": to_json_data(run)})
        return 0
    runs = {one.number: one for one in store.list_runs()}
    baseline = None if run.baseline is None else runs.get(run.baseline)
    is_wide = stdout.get_option(stdout.FORMAT_OPTION) == "wide"
    stdout.print_rows(render_run(run, baseline, is_wide=is_wide))
    _show_pictures([run] if baseline is None else [baseline, run], plot, png, svg)
    return 0


def _show_pictures(runs: Sequence[BenchRun], plot: bool, png: Path | None, svg: Path | None) -> None:
    """Plot in the terminal, and write the pictures that were asked for."""
    from sparkctl.views import bench_chart

    if not (plot or png or svg):
        return
    charts = bench_chart.build_charts(runs)
    if plot:
        stdout.print_lines([""])
        stdout.print_rows(bench_chart.render_charts(charts))
    for path, suffix in ((png, ".png"), (svg, ".svg")):
        if path is not None:
            if path.suffix.lower() != suffix:
                raise click.BadParameter(f"{path}: the name does not end with {suffix}", param_hint=f"--{suffix[1:]}")
            bench_chart.save_charts(charts, path, bench_chart.describe_runs(runs))
            stderr.print_message(f"written: {path}")


@bench_command.command("compare")
@click.argument("before", required=False, metavar="[A]")
@click.argument("after", required=False, metavar="[B]")
@click.option(
    "--as",
    "form",
    type=click.Choice(["table", "markdown", "csv", "json"]),
    default="table",
    metavar="FORM",
    help="table (default), markdown for a forum, csv, or json: both runs in llama-benchy's schema.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide"]),
    metavar="wide",
    help="Also show the range of the values, and the runs.",
)
@_plot_option
@_png_option
@_svg_option
def compare_command(
    before: str | None, after: str | None, form: str, output: str | None, plot: bool, png: Path | None, svg: Path | None
) -> int:
    """Show benchmarks A and B side by side, cell by cell, and what differed in their set-ups.

    \b
    sparkctl bench compare 3 4
    sparkctl bench compare qwen36-ngram qwen36-vllm --as markdown --png chart.png

    A and B are numbers (`sparkctl bench list`), or names of instances or profiles: then the newest of each. Without both:
    the newest two of different profiles. "not distinguishable" means that the values of A and B overlap; of a kind of text,
    that A is faster with some prompts and B with others.
    """
    from sparkctl.history.bench_store import BenchStore, compare_benches
    from sparkctl.views import bench_view

    old, new = _choose_runs(BenchStore(), before, after)
    if form == "json":
        _refuse_kinds_of_text(old, new)
    one = compare_benches(old, new, _find_reference)
    match form:
        case "markdown":
            stdout.print_lines(bench_view.format_comparison_markdown(one))
        case "csv":
            stdout.print_lines(bench_view.format_comparison_csv(one))
        case "json":
            stdout.print_json({"schema": 1, "runs": [bench_view.build_leaderboard_document(run) for run in (old, new)]})
        case _:
            stdout.print_rows(bench_view.render_comparison(one, is_wide=output == "wide"))
    _show_pictures((old, new), plot and form == "table", png, svg)
    return 0


def _refuse_kinds_of_text(*runs: BenchRun) -> None:
    if any(run.domains for run in runs):
        raise click.BadParameter(
            "llama-benchy's schema has cells, no kinds of text: sparkctl bench show NO --json", param_hint="--as"
        )


def _find_reference(run: BenchRun) -> Sequence[Reference]:
    """Return what the sources of a run's profile measured: of the recorded one, else of the known one with its name and image."""
    from sparkctl.history.start_diff import load_recorded_reference
    from sparkctl.profiles.profile_library import ProfileLibrary

    if run.setup.text is not None or run.setup.profile is None:
        return load_recorded_reference(run.setup.text)
    try:  # it was started on another machine
        profile = ProfileLibrary().load_profile(run.setup.profile)
    except SparkctlError:
        return ()
    return profile.reference if profile.image == run.setup.image else ()


def _refuse_several_by_domain(instances: Sequence[str]) -> NoReturn:
    """Raise `InvalidInput` with the commands that measure each instance by kind of text, and compare two."""
    each = [f"sparkctl bench {shlex.quote(one)} --by-domain --start" for one in instances]
    pair = shlex.join(instances[:2])
    raise InvalidInput(
        "--by-domain measures one instance at a time", "\n".join([*each, f"then: sparkctl bench compare {pair}"])
    )


def _choose_runs(store: BenchStore, before: str | None, after: str | None) -> tuple[BenchRun, BenchRun]:
    runs = tuple(run for run in store.list_runs() if run.results or run.domains)  # one may be at its first cell

    def pick(name: str) -> BenchRun | None:
        return next((run for run in runs if name in (run.instance, run.setup.profile)), None)

    def find(name: str) -> BenchRun:
        if name.isdecimal():
            return store.load(int(name))
        found = pick(name)
        if found is None:
            missing = [one for one in (before, after) if one is not None and not one.isdecimal() and not pick(one)]
            measure = f"sparkctl bench {shlex.join(dict.fromkeys(missing))} --start        measures what is missing"
            raise InvalidInput(f"there is no benchmark of {name}", f"{measure}\nsparkctl bench list")
        return found

    def is_other_kind(run: BenchRun, new: BenchRun) -> bool:
        """Tell whether it is of another profile, and by cells or by kind of text as the new one is."""
        names = [one.setup.profile or one.instance for one in (run, new)]
        return names[0] != names[1] and bool(run.setup.prompts) == bool(new.setup.prompts)

    if before is not None and after is not None:
        pair = find(before), find(after)
        if pair[0].number == pair[1].number:
            raise InvalidInput(f"{before} and {after} are the same benchmark, {pair[0].number}", "sparkctl bench list")
        return pair
    new = find(before) if before is not None else next(iter(runs), None)
    old = None if new is None else next((run for run in runs if is_other_kind(run, new)), None)
    if new is None or old is None:
        known = {0: "no benchmark", 1: "one benchmark alone"}.get(len(runs), "no second benchmark of another profile")
        raise InvalidInput(
            f"there is {known}: two are compared", "sparkctl bench list, or measure one: sparkctl bench INSTANCE"
        )
    return old, new
