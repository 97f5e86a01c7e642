"""The profiles of the panel as text: what is listed, what is shown of one, and that nothing is too wide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.start.launch_plans import build_preview_plan
from sparkctl.context import CommandContext
from sparkctl.engines.lint import LintRule, LintSeverity
from sparkctl.history.operation_history import LastStart, OperationHistory
from sparkctl.logs import search
from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.memory_fit import EstimatePart, EstimateSource, FitOutcome, MemoryBudget, MemoryFit
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.units import GIB
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import LintDiagnostic, LintResult
from sparkctl.profiles.yaml_reader import FilePosition, read_source_lines
from sparkctl.views.profiles.memory_estimate_view import format_group_answer, render_estimate_symbol
from sparkctl.views.profiles.profile_view import format_profile_list, render_profile
from sparkctl.views.profiles.profiles_screen_view import (
    COLUMN_TITLES,
    ProfilePreview,
    ProfilesScreenModel,
    find_running_instances,
    render_profiles_screen,
)
from sparkctl.views.text.line_wrap import find_command
from sparkctl.views.text.styled_text import join_text, measure_row, measure_text, to_ascii

ONE, TWO = NodeName("spark1"), NodeName("spark2")
NOW = 1_770_000_000.0
BROKEN = "schema: 1\nname: mine\nengine: sglang\nimage: x:1\nport: many\n"


def make_running_instance(name: str, node: NodeName, memory: int) -> InstanceView:
    return InstanceView(
        name=name,
        node=node,
        container=f"c-{name}",
        image="image:1",
        state=ContainerState.RUNNING,
        status="Up",
        ours=True,
        memory=memory,
        phase=Phase.READY,
        profile=name,
        port=8003,
    )


def make_node_view(name: NodeName, *instances: InstanceView) -> NodeTelemetryView:
    memory = MemoryReading(
        total=122 * GIB, available=26 * GIB, free=9 * GIB, page_cache=17 * GIB, swap_total=0, swap_free=0
    )
    return NodeTelemetryView(
        name=name, state=NodeState.OK, when=NOW, instances=instances, instances_seen=NOW, reading=memory
    )


@pytest.fixture
def library(tmp_path: Path) -> ProfileLibrary:
    (tmp_path / "mine.yaml").write_text(BROKEN)
    return ProfileLibrary(user=tmp_path)


@pytest.fixture
def shelf(library: ProfileLibrary, tmp_path: Path) -> ProfilesScreenModel:
    plan = build_preview_plan(
        CommandContext(history=OperationHistory(tmp_path), operator="me"),
        library.load_profile("qwen36"),
        Node(name=ONE, host="h"),
        "/home/milo",
        {},
    )
    return ProfilesScreenModel(
        entries=library.load_all_entries(),
        chosen="qwen36",
        views=(make_node_view(ONE, make_running_instance("qwen36-ngram", ONE, 90 * GIB)), make_node_view(TWO)),
        names=(ONE, TWO),
        node=ONE,
        last=(
            LastStart(profile="qwen36-ngram", node=ONE, when=NOW - 7300, seconds=415.0),
            LastStart(profile="qwen36", node=TWO, when=NOW - 90, failed="cuda-oom"),
        ),
        preview=ProfilePreview(tuple(format_docker_run(plan).splitlines())),
        now=NOW,
    )


def render_screen(shelf: ProfilesScreenModel, columns: int, lines: int) -> str:
    page = render_profiles_screen(shelf, columns, lines)
    assert len(page.rows) == lines
    assert {measure_row(row) for row in page.rows} == {columns}
    return "\n".join(join_text(row).rstrip() for row in page.rows)


@pytest.mark.parametrize(("columns", "lines"), [(80, 22), (120, 38)])
def test_the_list_says_engine_model_where_it_runs_and_how_it_went(
    shelf: ProfilesScreenModel, columns: int, lines: int
) -> None:
    listed = {}
    for name in ("qwen36-ngram", "qwen36-as-posted", "qwen36-vllm", "mine"):
        rows = render_screen(replace(shelf, chosen=name), columns, lines).splitlines()
        listed[name] = next(line for line in rows if line.startswith(f" ▸ {name} "))
    assert "SGLang" in listed["qwen36-ngram"]
    assert ("Qwen3.6 27B FP8" in listed["qwen36-ngram"]) is (columns == 120), "the model is read or left out"
    assert "● spark1   ● 6:55, 2 h ago" in listed["qwen36-ngram"]
    assert "never" in listed["qwen36-as-posted"]
    assert "● " not in listed["qwen36-vllm"]
    assert "broken: line 5: port: must be a whole number" in listed["mine"]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_selected_one_says_what_is_in_the_way_and_what_memory_would_be(
    shelf: ProfilesScreenModel, columns: int
) -> None:
    words = render_screen(shelf, columns, 22)
    assert "▸ qwen36 " in words
    assert "✕ cuda-oom, 1 min ago" in words
    assert "qwen36-ngram holds 90.0 GiB, and port 8003: stop it first" in words
    assert "now  " in words
    assert "then █" in words
    assert "≈ 196.0 of 122.0 GiB est." in words, "what it would take is told, whether or not it is there"
    assert "74.0 GiB too little: stop something first" in words


def test_the_command_can_be_read_to_its_end(shelf: ProfilesScreenModel) -> None:
    seen: list[str] = []
    further = 0
    while True:
        page = render_profiles_screen(replace(shelf, further=further), 80, 22)
        seen += [line for line in map(join_text, page.rows) if line not in seen]
        if page.further < further or "the end" in join_text(page.rows[-2]):
            break
        further = page.further + 5
    read = "".join(line.strip("│ ").replace("\\", "") for line in seen)
    assert "12 of them: sparkctl finds its containers by them" in " ".join(seen)
    for line in [line for line in shelf.preview.lines if "dev.sparkctl." not in line]:
        assert "".join(line.replace("\\", "").split())[:60] in "".join(read.split())


def test_what_runs_is_not_said_where_docker_did_not_say(shelf: ProfilesScreenModel) -> None:
    unknown = replace(make_node_view(ONE), docker_known=False, instances_seen=None)
    words = render_screen(replace(shelf, views=(unknown,)), 120, 30)
    assert "  ?  " in next(line for line in words.splitlines() if line.lstrip().startswith("qwen36-vllm"))


def test_a_broken_one_has_file_line_and_column(shelf: ProfilesScreenModel, tmp_path: Path) -> None:
    words = render_screen(replace(shelf, chosen="mine"), 200, 30)
    assert f"✕ {tmp_path}/mine.yaml:5:7: port: must be a whole number, not `many`" in words
    assert "docker run" not in words


def test_a_fault_of_the_base_is_told_with_the_base(
    shelf: ProfilesScreenModel, library: ProfileLibrary, tmp_path: Path
) -> None:
    (tmp_path / "heir.yaml").write_text("schema: 1\nname: heir\nextends: mine\n")
    words = render_screen(replace(shelf, entries=library.load_all_entries()), 120, 50)
    assert "broken: mine.yaml:5: port: must be" in next(line for line in words.splitlines() if " heir " in line)


def test_a_filter_counts_what_it_leaves_and_inverts(shelf: ProfilesScreenModel) -> None:
    count = len(shelf.entries or ())
    words = render_screen(replace(shelf, pattern=search.parse_filter("qwen36-vllm")), 80, 22)
    assert f"/ 1/{count}  qwen36-vllm" in words
    assert "▸ qwen36-vllm" in words, "the selection goes to one that is shown"
    words = render_screen(replace(shelf, pattern=search.parse_filter("!qwen36-vllm")), 80, 22)
    assert f"/ {count - 1}/{count}" in words
    words = render_screen(replace(shelf, pattern=search.parse_filter("nothing like it")), 80, 22)
    assert f"/ 0/{count}" in words


@pytest.mark.parametrize(("columns", "lines"), [(60, 13), (50, 10), (40, 8), (12, 3), (1, 1)])
def test_small_terminals_break_nothing(shelf: ProfilesScreenModel, columns: int, lines: int) -> None:
    for chosen in ("qwen36", "mine"):
        words = render_screen(replace(shelf, chosen=chosen), columns, lines)
        assert to_ascii(words).isascii()


def test_before_the_files_were_read_that_is_said_and_nothing_else() -> None:
    assert "reading the profiles" in render_screen(ProfilesScreenModel(entries=None), 80, 22)


def test_why_there_is_no_command_stands_in_its_place(shelf: ProfilesScreenModel) -> None:
    trouble = ProfilePreview(trouble="mine.yaml:3:2: env: ${HF_TOKEN} is not set", hint="export HF_TOKEN=...")
    words = render_screen(replace(shelf, preview=trouble), 80, 30)
    assert "${HF_TOKEN} is not set" in words
    assert "export HF_TOKEN=..." in words


def test_what_is_broken_may_run_all_the_same_and_its_faults_are_shown_where_they_are(
    shelf: ProfilesScreenModel, library: ProfileLibrary
) -> None:
    faults = [fault for one in library.load_all_entries() for fault in one.summary.faults]
    alive = (make_node_view(ONE, make_running_instance("mine", ONE, 40 * GIB)), make_node_view(TWO))
    last = (LastStart(profile="mine", node=ONE, when=NOW - 7300, seconds=415.0),)
    broken = replace(
        shelf, chosen="mine", views=alive, last=last, sources=read_source_lines(fault.place for fault in faults)
    )
    words = render_screen(broken, 120, 30).splitlines()
    listed = next(line for line in words if line.startswith(" ▸ mine"))
    assert "broken: line 5: port: must be a whole number" in listed
    assert "● spark1   ● 6:55, 2 h ago" in listed
    below = "\n".join(words)
    assert "     5 │ port: many" in below
    assert "       │       ^" in below
    assert "mine still runs on spark1" in below
    assert "ready on spark1 after 6 min 55 s, 2 h ago" in below


def test_a_line_that_names_a_secret_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("env:\n  HF_TOKEN: [canary]\n  OTHER: [x]\n")
    places = [FilePosition(str(path), line, 3) for line in (2, 3, 9)] + [
        FilePosition(str(tmp_path / "gone.yaml"), 1, 1),
        FilePosition("--set"),
    ]
    assert read_source_lines(places) == {places[1]: "  OTHER: [x]"}


def test_the_check_is_counted_the_worst_with_its_line_and_what_is_good_to_know_below_the_command(
    shelf: ProfilesScreenModel,
) -> None:
    assert "checking its flags ..." in render_screen(shelf, 120, 60)
    place = FilePosition("/p/qwen36.yaml", 5, 3)
    check = LintResult(
        Path("/p/qwen36.yaml"),
        (
            LintDiagnostic(place=place, level=LintSeverity.INFO, kind=LintRule.NO_METRICS, message="no metrics"),
            LintDiagnostic(
                place=place,
                level=LintSeverity.ERROR,
                kind=LintRule.UNKNOWN_FLAG,
                message="--tpp: no such flag",
                setting="args.tp=1",
                settings=("args.tp=1",),
            ),
            LintDiagnostic(
                place=place, level=LintSeverity.WARNING, kind=LintRule.KNOWN_TRAP, message="it dies of that"
            ),
        ),
    )
    words = render_screen(replace(shelf, checks={"qwen36": check}, sources={place: "  tpp: 1"}), 120, 64)
    assert "✕ checked: 1 error, 1 warning, 1 info" in words
    assert "✕ /p/qwen36.yaml:5:3: error[unknown-flag]: --tpp: no such flag (--set args.tp=1)" in words
    assert words.count("5 │   tpp: 1") == 2, "the info has no line"
    assert (
        words.index("unknown-flag") < words.index("known-trap") < words.index("docker run") < words.index("no metrics")
    )
    assert "● checked: good" in render_screen(replace(shelf, checks={"qwen36": LintResult(Path("/p"), ())}), 120, 60)


def add_fit_answers(shelf: ProfilesScreenModel) -> ProfilesScreenModel:
    names = [one.summary.name for one in shelf.entries or ()]
    stop = {ONE: ("qwen36-ngram",), TWO: ()}
    answers = {ONE: FitOutcome.IF_STOPPED, TWO: FitOutcome.FITS}
    parts = (EstimatePart(name="weights", size=30 * GIB, obtained=EstimateSource.MEASURED, words="two files"),)
    fits: dict[tuple[str, NodeName], MemoryFit | None] = {
        (name, node): MemoryFit(node=node, profile=name, answer=answers[node], parts=parts, stops=stop[node])
        for name in names
        for node in (ONE, TWO)
    }
    return replace(shelf, fits=fits)


def find_column_heads(words: str) -> list[int]:
    line = next(line for line in words.splitlines() if "last start" in line)
    return [line.find(head) for head in COLUMN_TITLES]


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_filter_moves_no_column_and_each_has_its_head(shelf: ProfilesScreenModel, columns: int) -> None:
    shelf = add_fit_answers(shelf)
    whole = find_column_heads(render_screen(shelf, columns, 30))
    for typed in ("qwen36-vllm", "mine", "nothing like it"):
        assert (
            find_column_heads(render_screen(replace(shelf, pattern=search.parse_filter(typed)), columns, 30)) == whole
        )
    assert whole[COLUMN_TITLES.index("check")] > 0
    model, after = whole[COLUMN_TITLES.index("model")], next(at for at in whole[3:] if at > 0)
    assert model == -1 if columns == 80 else after - model >= 22, "a model of fewer columns says nothing"


@pytest.mark.parametrize("columns", [60, 66, 72, 79])
def test_where_it_is_narrow_the_last_start_still_has_its_head(shelf: ProfilesScreenModel, columns: int) -> None:
    assert "last start" in render_screen(add_fit_answers(shelf), columns, 22)


def test_the_signs_of_the_fit_have_a_legend_and_the_words_name_their_spark(shelf: ProfilesScreenModel) -> None:
    shelf = add_fit_answers(shelf)
    for columns in (80, 120):
        words = render_screen(shelf, columns, 140)
        assert "✓ fits  △ tight  ↓ drop caches  ▲ stop first  ✕ too big" in words
        assert "[ spark1 ] ▲   spark2   ✓" in words
    assert "▲  ✓  spark1: stop qwen36-ngram" in render_screen(shelf, 200, 40)


def test_each_sign_of_the_fit_has_a_head_and_the_whole_model_comes_before_words_beside_it(
    shelf: ProfilesScreenModel,
) -> None:
    shelf = add_fit_answers(shelf)
    for columns in (80, 120, 200):
        head, *lines = render_screen(shelf, columns, 40).splitlines()
        at = head.index("s1 s2")
        row = next(line for line in lines if line[3:].startswith("qwen36 "))
        assert (row[at], row[at + 3]) == ("▲", "✓")
    assert "Qwen3.5 35B-A3B AWQ, four age" in render_screen(shelf, 120, 40), "more than how many Sparks it is for"
    assert "Qwen3 30B-A3B, FP8 made at the start" in render_screen(shelf, 200, 40), "its engine has a column"


def test_by_name_what_runs_comes_first(shelf: ProfilesScreenModel) -> None:
    names = [one.summary.name for one in shelf.visible_entries]
    runs = [name for name in names if find_running_instances(name, shelf.views)]
    assert runs
    assert names == [*sorted(runs), *sorted(name for name in names if name not in runs)]


def test_the_sum_which_says_what_adds_up_comes_before_the_command(shelf: ProfilesScreenModel) -> None:
    assert "figures on the left add up" in render_screen(add_fit_answers(shelf), 120, 38), "without a key"
    words = render_screen(add_fit_answers(shelf), 120, 80)
    assert words.index("figures on the left add up") < words.index("two files") < words.index("docker run")


def make_half_fit(node: NodeName, free: int, answer: FitOutcome, stops: tuple[str, ...] = ()) -> MemoryFit:
    """Of a model over two Sparks: 90 GiB on each."""
    there = MemoryBudget(total=122 * GIB, available=free * GIB, droppable=0)
    parts = (EstimatePart(name="share", size=90 * GIB, obtained=EstimateSource.FLAGS),)
    return MemoryFit(
        node=node, profile="minimax-m27", answer=answer, parts=parts, standing=there, floor=GIB, stops=stops, sparks=2
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_of_a_model_for_two_sparks_it_is_said_whether_both_have_room_for_it(
    shelf: ProfilesScreenModel, columns: int
) -> None:
    shelf = replace(shelf, chosen="minimax-m27")
    both = {("minimax-m27", node): make_half_fit(node, 110, FitOutcome.FITS) for node in (ONE, TWO)}
    words = " ".join(render_screen(replace(shelf, fits=both), columns, 60).replace("│", " ").split())
    assert "minimax-m27 needs 2 Sparks: 90.0 GiB on each; it fits on spark1 and spark2 together" in words
    assert "✓ spark1 fits, 19.0 GiB to spare" in words
    assert "✓ spark2 fits, 19.0 GiB to spare" in words
    one = both | {("minimax-m27", TWO): make_half_fit(TWO, 40, FitOutcome.IF_STOPPED, ("qwen36",))}
    words = " ".join(render_screen(replace(shelf, fits=one), columns, 60).replace("│", " ").split())
    assert "fit ▲ minimax-m27 needs 2 Sparks: 90.0 GiB on each; it does not fit on spark2 now" in words
    assert "▲ spark2 fits only without qwen36, short by 51.0 GiB" in words
    half: dict[tuple[str, NodeName], MemoryFit | None] = {**both, ("minimax-m27", TWO): None}
    words = render_screen(replace(shelf, fits=half), columns, 60)
    assert "calculating" in words, "of one alone nothing is said of both"
    alone = render_screen(
        replace(shelf, names=(ONE,), fits={("minimax-m27", ONE): make_half_fit(ONE, 110, FitOutcome.SEVERAL)}),
        columns,
        60,
    )
    assert "does not fit on spark1 alone" in alone


@pytest.mark.parametrize("ascii_only", [False, True])
def test_what_fits_with_little_to_spare_looks_like_nothing_else(shelf: ProfilesScreenModel, ascii_only: bool) -> None:
    parts = (
        EstimatePart(name="weights", size=80 * GIB, obtained=EstimateSource.MEASURED),
        EstimatePart(name="runtime", size=10 * GIB, obtained=EstimateSource.ESTIMATE),
    )
    tight = MemoryFit(
        node=ONE,
        profile="qwen36",
        answer=FitOutcome.FITS,
        parts=parts,
        standing=MemoryBudget(total=122 * GIB, available=93 * GIB, droppable=0),
        floor=GIB,
    )
    roomy = replace(tight, standing=MemoryBudget(total=122 * GIB, available=110 * GIB, droppable=0))
    assert (tight.is_tight, roomy.is_tight) == (True, False)
    assert not replace(tight, answer=FitOutcome.SHORT).is_tight, "what does not fit is more than tight"
    show = to_ascii if ascii_only else str
    signs = {
        show(render_estimate_symbol(one).text)
        for one in (tight, roomy, None, replace(tight, answer=FitOutcome.IF_STOPPED))
    }
    assert len(signs) == 4
    words = show(render_screen(replace(shelf, names=(ONE,), fits={("qwen36", ONE): tight}), 200, 60))
    assert "spark1: tight, 2.0 GiB" in words
    assert "it is tight, 10.0 GiB of the sum are estimates" in words


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_while_it_is_counted_no_other_figure_stands_for_it_and_the_signs_are_explained_once(
    shelf: ProfilesScreenModel, columns: int
) -> None:
    fits: dict[tuple[str, NodeName], MemoryFit | None] = {("qwen36", ONE): None, ("qwen36", TWO): None}
    words = render_screen(replace(shelf, fits=fits), columns, 140)
    assert "then calculating" in words
    assert "too little" not in words
    assert words.count("✕ too big") == 1


def test_a_profile_shows_what_it_needs_who_builds_it_and_what_proves_it() -> None:
    profile = ProfileLibrary().load_profile("orpheus-tts")
    shown = [join_text(row).split(maxsplit=1) for row in render_profile(profile) if row]
    rows = {row[0]: row[1] for row in shown if len(row) == 2}
    assert (rows["needs"], rows["probe"]) == ("orpheus-llm", "speech")
    assert rows["build"].startswith("https://github.com/")


@pytest.mark.parametrize("width", [60, 80])
def test_what_the_command_line_shows_of_profiles_breaks_between_words(width: int) -> None:
    library = ProfileLibrary()
    rows = format_profile_list(library.list_summaries(), width)
    assert max(map(measure_row, rows)) <= width
    listed = " ".join(" ".join(map(join_text, rows)).split())
    shown = [
        (name, list(map(join_text, render_profile(library.load_profile(name), width)))) for name in library.list_names()
    ]
    for name, lines in shown:
        assert name in listed
        wide = [line for line in lines if measure_text(line) > width]
        assert all(find_command(line) or max(map(len, line.split())) > width - 12 for line in wide), wide
        assert " ".join(join_text(render_profile(library.load_profile(name))[-1]).split()) in " ".join(
            " ".join(lines).split()
        )


def test_a_command_that_spreads_a_model_over_sparks_names_them() -> None:
    fits = [make_half_fit(node, 110, FitOutcome.SEVERAL) for node in (ONE, TWO)]
    words = "to spread it over them: sparkctl up minimax-m27 --node"
    assert format_group_answer(fits)[-1] == f"{words} spark1 --node spark2 --set nodes=2"
    assert format_group_answer(fits[:1])[-1] == f"{words} spark1 --node NODE --set nodes=2"
    assert format_group_answer(fits, "./out.yaml")[-1].startswith(
        "to spread it over them: sparkctl up ./out.yaml --node"
    )


def test_a_filter_that_finds_nothing_says_so(shelf: ProfilesScreenModel) -> None:
    assert "No profile matches. Esc clears the filter." in render_screen(
        replace(shelf, pattern=search.parse_filter("zz")), 80, 22
    )


def test_a_column_of_blanks_takes_nothing_from_the_model(shelf: ProfilesScreenModel) -> None:
    with_room = render_screen(replace(shelf, last=()), 120, 80)
    started = render_screen(shelf, 120, 80)
    heads = [next(line for line in text.splitlines() if "last start" in line) for text in (with_room, started)]
    widths = [min(head.find(each) % 1000 for each in ("nodes", "check")) - head.index("model") for head in heads]
    assert widths[0] > widths[1], "it has the room that no start takes"
