"""The profiles screen: all profiles, where they run and fit, their docker command, their faults, and keys to edit them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import BindingType

from sparkctl.commands.actions import PROFILES, ActionContext, ActionId
from sparkctl.commands.start.launch_plans import preview_launch
from sparkctl.errors import InvalidInput
from sparkctl.history.operation_history import LastStart, OperationHistory
from sparkctl.logs import search
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.profiles.env_references import check_env_file_permissions
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.profiles.profile_library import ProfileEntry, ProfileLibrary, ProfileOffer
from sparkctl.profiles.profile_lint import LintResult, lint_profile_file
from sparkctl.profiles.yaml_reader import FilePosition, read_source_lines
from sparkctl.tui.dialogs.base import ChoiceDialog, render_sentence
from sparkctl.tui.global_actions import edit_profile, fix_profile
from sparkctl.tui.panel import Panel
from sparkctl.tui.screens.base import ActionHandlers, build_bindings, get_next_member
from sparkctl.tui.screens.scroll_screens import ListScreen
from sparkctl.views.profiles.profiles_screen_view import (
    SORT_BY_COLUMN,
    ProfilePreview,
    ProfileSort,
    ProfilesScreenModel,
    filter_profiles,
    render_profiles_screen,
)
from sparkctl.views.text.styled_text import TextStyle


async def _ask_about_running_job(panel: Panel, verb: str) -> bool:
    """While a job of this verb runs, ask whether to end it; return whether one runs."""
    controller = panel.controller
    assert controller is not None
    going = next((job.started for job in controller.store.jobs.running.values() if job.started.verb == verb), None)
    if going is None:
        return False
    body = [
        *render_sentence(f"sparkctl {' '.join(going.words)}", TextStyle.LABEL),
        (),
        *render_sentence(
            f"It is running. If you end it, what has arrived stays, and the same {verb} continues from there."
        ),
    ]
    whether = (("go on", "let it go on"), ("end", "end it"))
    if await controller.dialogs.show_dialog(ChoiceDialog(verb, body, whether, TextStyle.ATTENTION)) == "end":
        controller.jobs.interrupt_job(going.job)
    return True


async def ask_and_start_pull(panel: Panel, name: str, profile: Profile) -> None:
    """Ask onto which nodes to get a profile's image and model, and start it; while one runs, ask whether to end it."""
    from sparkctl.commands.pull.pull_profile import PullProfile

    controller = panel.controller
    assert controller is not None
    if await _ask_about_running_job(panel, "pull"):
        return
    names = sorted(panel.node_names, key=lambda one: one != panel.selected_node)
    source = f"the image {profile.image}" + (f", the model from {profile.model.source}" if profile.model.source else "")
    body = [
        *render_sentence(f"Get what {name} needs onto a Spark?", TextStyle.STRONG),
        (),
        *render_sentence(f"{source[0].upper()}{source[1:]}. What is already there is not downloaded again."),
    ]
    choices = [("cancel", "Cancel"), *((f"on {one}", one) for one in names)]
    if len(names) > 1:
        choices.append(("on " + "\n".join(names), "all of them"))
    answer = await controller.dialogs.show_dialog(ChoiceDialog(f"pull {name}", body, choices))
    if answer is not None and answer.startswith("on "):
        wanted = [NodeName(one) for one in answer.removeprefix("on ").split("\n")]

        def build_request() -> PullProfile:
            nodes = panel.build_action_context().find_nodes(*wanted)
            known = tuple(panel.config_nodes)
            return PullProfile(profile=profile, nodes=tuple(nodes), environ=os.environ, words=(name,), known=known)

        panel.run_request(build_request)


async def ask_and_start_transfer(panel: Panel, name: str, profile: Profile) -> None:
    """Ask for the direction of a `sync` and start it; while one runs, ask whether to end it."""
    from sparkctl.commands.transfer.transfer_profile import TransferProfile

    controller = panel.controller
    assert controller is not None
    if await _ask_about_running_job(panel, "sync"):
        return
    names = panel.node_names
    first = panel.selected_node or names[0]
    ways = [(first, other) for other in names if other != first]
    ways += [(other, first) for other in names if other != first]
    body = [
        *render_sentence(
            f"Bring what {name} needs, its image and the files of its model, from one Spark to another?",
            TextStyle.STRONG,
        ),
        (),
        *render_sentence(
            "Only differences are sent, directly between them. Nothing is sent where there is not enough free disk space."
        ),
    ]
    arrow = "→"
    choices = (
        ("cancel", "Cancel"),
        *((f"{source}\n{target}", f"{source} {arrow} {target}") for source, target in ways),
    )
    answer = await controller.dialogs.show_dialog(ChoiceDialog(f"sync {name}", body, choices))
    if answer is not None and "\n" in answer:
        source, target = answer.split("\n")

        def build_request() -> TransferProfile:
            near, far = panel.build_action_context().find_nodes(NodeName(source), NodeName(target))
            return TransferProfile(profile=profile, source=near, targets=(far,), environ=os.environ, words=(name,))

        panel.run_request(build_request)


_REFRESH_SECONDS = 2.0  # seconds between two checks for changed files
_CHECK_PAINT_SECONDS = 0.1  # how long finished checks of profiles may wait to be painted together
_PreviewKey = tuple[str, str, str, str | None]  # profile, its hash, node, home there
_FileTimes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """The content of the profile files: entries, warnings about env files, and source lines of faults."""

    entries: tuple[ProfileEntry, ...]
    warnings: Mapping[str, tuple[str, ...]]
    sources: Mapping[FilePosition, str]


def _read_profile_files(library: ProfileLibrary) -> ProfileFiles:
    entries = library.load_all_entries()
    warnings = {one.profile.name: check_env_file_permissions(one.profile) for one in entries if one.profile}
    return ProfileFiles(
        entries, warnings, read_source_lines(fault.place for one in entries for fault in one.summary.faults)
    )


@dataclass(frozen=True, slots=True)
class _ProfileLint:
    """The result of `profiles check` for one profile, and the source lines of its diagnostics."""

    check: LintResult | None = None
    sources: Mapping[FilePosition, str] = field(default_factory=dict)


def _lint_profile(path: Path, history: OperationHistory) -> _ProfileLint:
    try:
        check = lint_profile_file(ProfileLibrary(), path, find_times=history.find_longest_phases)
    except InvalidInput:
        return _ProfileLint()  # the file has just gone: the next reload shows it
    return _ProfileLint(check, read_source_lines(one.place for one in check.diagnostics))


class ProfilesScreen(ListScreen[str]):
    """Lists the profiles; files are read in threads, and again when they change."""

    SCREEN_ID = PROFILES
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(PROFILES)

    def __init__(self) -> None:
        super().__init__()
        self._order = ProfileSort.NAME
        self._files: ProfileFiles | None = None
        self._last_starts: tuple[LastStart, ...] = ()
        self._previews: dict[_PreviewKey, ProfilePreview] = {}
        self._lint_results: dict[Path, _ProfileLint] = {}  # results for the files as last read
        self._unchecked: list[Path] = []

    def on_mount(self) -> None:
        """Read the files now and check for changes at intervals."""
        self.panel.spawn_dialog_task(self._reload_files())
        self.set_interval(_REFRESH_SECONDS, lambda: self.panel.spawn_task(self._reload_files()))

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with the selected profile and the instance of the same name."""
        one = self._build_profiles_model().selected
        return now if one is None else replace(now, profile=one.summary.name, instance=one.summary.name)

    def paint_body(self) -> None:
        model = self._build_profiles_model()
        page = render_profiles_screen(model, *self.page_size)
        self.show_page(page)
        seen = [one for one in (model.selected, *(model.visible_entries[at] for at in page.entries)) if one is not None]
        profiles = [one.profile for one in seen if one.profile is not None]
        for one in seen:
            if one.profile is not None:
                self._request_lint(one.summary.origin)
        if self.panel.controller is not None:
            self.panel.controller.fits.request_estimates(profiles)

    # --- what is shown ---

    def _build_profiles_model(self) -> ProfilesScreenModel:
        panel = self.panel
        controller = panel.controller
        names = panel.node_names
        files = self._files
        model = ProfilesScreenModel(
            entries=None if files is None else files.entries,
            chosen=self._selected_key,
            views=() if controller is None else controller.store.get_views(names),
            names=names,
            node=panel.selected_node,
            last=self._last_starts,
            checks=self._collect_lint_results(),
            fits=self._collect_fits(),
            sources={} if files is None else files.sources,
            pattern=search.parse_filter(self._typed),
            found=self._filter_entries(),
            now=panel.displayed_time(),
            further=self._scroll_offset,
            order=self._order,
        )
        one = model.selected
        if files is None or one is None or one.profile is None:
            return model
        lint = self._lint_results.get(one.summary.origin, _ProfileLint())
        return replace(
            model,
            preview=self._get_preview(one.profile),
            warnings=files.warnings.get(one.summary.name, ()),
            sources={**model.sources, **lint.sources},
        )

    def _filter_entries(self) -> tuple[ProfileEntry, ...]:
        entries = () if self._files is None else self._files.entries
        if self._left is None or self._left[0] is not entries or self._left[1] != self._typed:
            self._left = (entries, self._typed, filter_profiles(entries, search.parse_filter(self._typed)))
        return self._left[2]

    def _collect_lint_results(self) -> dict[str, LintResult]:
        """Return the known check results by name."""
        entries = () if self._files is None else self._files.entries
        results = ((one.summary.name, self._lint_results.get(one.summary.origin)) for one in entries)
        return {name: one.check for name, one in results if one is not None and one.check is not None}

    def _collect_fits(self) -> dict[tuple[str, NodeName], MemoryFit | None]:
        controller, entries = self.panel.controller, () if self._files is None else self._files.entries
        if controller is None:
            return {}
        return {
            (one.profile.name, node): controller.fits.get_estimate(one.profile, node)
            for one in entries
            if one.profile is not None
            for node in controller.store.nodes
        }

    def _request_lint(self, path: Path) -> None:
        """Check a file in a thread, once per state of the file; files are checked one after the other."""
        if path not in self._lint_results:
            self._lint_results[path] = _ProfileLint()
            self._unchecked.append(path)
            if len(self._unchecked) == 1:
                self.panel.spawn_task(self._lint_pending_files(self._lint_results, self._unchecked))

    async def _lint_pending_files(self, verdicts: dict[Path, _ProfileLint], unchecked: list[Path]) -> None:
        now, painted = asyncio.get_running_loop().time, 0.0
        await self.panel.controller_ready.wait()  # which knows the history
        assert self.panel.controller is not None
        while unchecked:
            verdicts[unchecked[0]] = await asyncio.to_thread(
                _lint_profile, unchecked[0], self.panel.controller.context.history
            )
            del unchecked[0]
            if not unchecked or now() - painted > _CHECK_PAINT_SECONDS:  # painting takes as long as checking
                self.repaint()
                painted = now()

    def _get_preview(self, profile: Profile) -> ProfilePreview:
        """Return the known command for the selected node; build it in a thread where it is missing."""
        panel, controller = self.panel, self.panel.controller
        if controller is None:
            return ProfilePreview()
        node = next((node for node in panel.config_nodes if node.name == panel.selected_node), None)
        key = (
            profile.name,
            profile.digest,
            str(panel.selected_node),
            None if node is None else controller.fits.get_home_directory(node),
        )
        if key not in self._previews:
            self._previews[key] = ProfilePreview()
            panel.spawn_task(self._make_preview(key, profile, node))
        return self._previews[key]

    async def _make_preview(self, key: _PreviewKey, profile: Profile, node: Node | None) -> None:
        controller = self.panel.controller
        assert controller is not None
        home = key[3]
        made = await asyncio.to_thread(preview_launch, controller.context, profile, node, home, os.environ)
        note = None
        if node is None:
            note = "as the profile has it: there is no Spark to ask"
        elif home is None and any(mount.startswith("~") for mount in profile.mounts):
            note = f"~ is the user's home on {node.name}, which is not known yet"
        self._previews[key] = ProfilePreview(
            () if made.plan is None else tuple(format_docker_run(made.plan).splitlines()),
            None if made.refusal is None else made.refusal.message,
            None if made.refusal is None else made.refusal.hint,
            note,
        )
        self.repaint()

    async def _reload_files(self) -> None:
        """Read the files that have changed since the last time."""
        controller = self.panel.controller
        before = self._stamp

        def load_changes() -> tuple[_FileTimes, ProfileFiles | None, tuple[LastStart, ...]]:
            library = ProfileLibrary()
            last = () if controller is None else controller.context.history.get_last_starts()
            stamp = library.get_modification_times()
            return stamp, None if stamp == before else _read_profile_files(library), last

        self._stamp, files, last = await asyncio.to_thread(load_changes)
        if files is None and last == self._last_starts:
            return
        self._last_starts = last
        if files is not None:
            self._files = files
            self._previews.clear()
            self._lint_results, self._unchecked = {}, []  # a running check belongs to the old files
        if self.is_running:
            self.repaint()

    _stamp: _FileTimes | None = None
    _left: tuple[tuple[ProfileEntry, ...], str, tuple[ProfileEntry, ...]] | None = None

    # --- actions ---

    def list_keys(self) -> tuple[tuple[str, ...], str | None]:
        """Return the names of the filtered profiles and of the selected one."""
        model = self._build_profiles_model()
        one = model.selected
        return tuple(each.summary.name for each in model.visible_entries), None if one is None else one.summary.name

    def action_handlers(self) -> ActionHandlers:
        return {
            **super().action_handlers(),
            ActionId.UP: self._pick_node,
            ActionId.SORT: lambda: self._sort_by(get_next_member(self._order)),
            ActionId.COPY: self._copy_docker_command,
            ActionId.EDIT: self._edit_profile,
            ActionId.IMPORT: self._import_profile,
            ActionId.SYNC: lambda: self._start_for_selected(ask_and_start_transfer),
            ActionId.PULL: lambda: self._start_for_selected(ask_and_start_pull),
            ActionId.MEND_PROFILE: self._fix_profile,
        }

    def _pick_node(self) -> None:
        """Ask where to start the selected profile, and show the effect."""
        if (found := self._get_readable_profile()) is not None:
            self.panel.dispatcher.show_profile_picker([ProfileOffer(*found)], f"start {found[0]}")

    def _get_readable_profile(self) -> tuple[str, Profile] | None:
        """Return the selected profile with its name; say so where it cannot be read."""
        one = self._build_profiles_model().selected
        if one is None or one.profile is None:
            self.panel.show_toast("this profile cannot be read: e edits it", severity="warning")
            return None
        return one.summary.name, one.profile

    def on_header_click(self, x: int) -> None:
        words = self.page_surface.plain_lines[self._page.top - 1]
        begins = [(words.find(head), head) for head in SORT_BY_COLUMN if head in words]
        hit = max((each for each in begins if each[0] <= x), default=None)
        if hit is not None:
            self._sort_by(SORT_BY_COLUMN[hit[1]])

    def _sort_by(self, order: ProfileSort) -> None:
        self._selected_key = self.list_keys()[1]  # the selection stays on the same profile
        self._order = order
        self.repaint()

    def _copy_docker_command(self) -> None:
        one = self._build_profiles_model()
        if one.preview.lines:
            self.panel.copy_text("\n".join(one.preview.lines), "the docker run line")
        else:
            self.panel.show_toast("there is no command to copy")

    def _edit_profile(self) -> None:
        """Open the selected profile in the editor; a shipped one is copied first."""
        one = self._build_profiles_model().selected
        if one is not None:
            self.panel.spawn_terminal_task(self._change_and_reload(edit_profile, one.summary.name))

    def _import_profile(self) -> None:
        """Import a profile from pasted text, and select it."""
        from sparkctl.tui.dialogs.import_profile_dialog import ImportProfileDialog

        def select_imported(name: str | None) -> None:
            if name is not None:
                self._selected_key, self._typed = name, ""
                self.panel.spawn_task(self._reload_files())

        self.panel.push_screen(ImportProfileDialog(), select_imported)

    def _start_for_selected(self, ask: Callable[[Panel, str, Profile], Coroutine[Any, Any, None]]) -> None:
        if (found := self._get_readable_profile()) is not None:
            self.panel.spawn_task(ask(self.panel, *found))

    def _fix_profile(self) -> None:
        """Apply the safe fixes to the selected profile; a shipped one is copied first."""
        one = self._build_profiles_model().selected
        if one is not None:
            self.panel.spawn_task(self._change_and_reload(fix_profile, one.summary.name))

    async def _change_and_reload(self, change: Callable[[Panel, str], Coroutine[Any, Any, None]], name: str) -> None:
        await change(self.panel, name)
        await self._reload_files()
