"""What the parts of the panel know of the panel itself: the app and its controller, without importing either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sparkctl.tui.toasts import ToastApp

if TYPE_CHECKING:
    from rich.style import Style
    from textual.screen import ModalScreen

    from sparkctl.clock import Clock
    from sparkctl.commands.actions import Action, ActionContext
    from sparkctl.commands.request import Request, ScreenTarget
    from sparkctl.commands.start.launch_plans import ContainerLaunch
    from sparkctl.commands.switch.switch_request import SwitchInstance
    from sparkctl.context import CommandContext
    from sparkctl.errors import SparkctlError
    from sparkctl.model.events import CommandEnded, Event, WarningEmitted
    from sparkctl.model.instance import InstanceView
    from sparkctl.model.launch_plan import LaunchPlan
    from sparkctl.model.memory_fit import MemoryFit
    from sparkctl.model.node import Node, NodeName
    from sparkctl.model.profile import Profile
    from sparkctl.model.sample import MemoryBar
    from sparkctl.monitor.node_supervisor import NodeSupervisor
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.monitor.recording.recording_player import RecordingPlayer
    from sparkctl.monitor.switch_progress import SwitchProgress
    from sparkctl.profiles.profile_library import ProfileOffer
    from sparkctl.tui.job_runner import JobRunner
    from sparkctl.tui.key_queue import KeyQueue
    from sparkctl.tui.operation_trackers import DoctorRuns, SwitchTracker, TransferTracker
    from sparkctl.tui.panel_options import PanelOptions, PreparedCommand
    from sparkctl.tui.repaint_scheduler import RepaintScheduler
    from sparkctl.tui.toasts import NoticeBoard
    from sparkctl.views.finding_view import NodeProblems
    from sparkctl.views.overview.overview_view import OverviewScreenModel
    from sparkctl.views.overview.tile_model import NodeTileModel
    from sparkctl.views.text.styled_text import TextStyle


class DialogQueue(Protocol):
    """Shows dialogs one at a time."""

    async def show_dialog(self, dialog: ModalScreen[str], opened: Callable[[], None] = ...) -> str | None:
        """Show a dialog after those that are open and return the answer; None for no answer."""
        ...


class MemoryEstimates(Protocol):
    """Whether profiles fit on the nodes now."""

    def get_estimate(self, profile: Profile, node: NodeName) -> MemoryFit | None:
        """Return the current estimate; None where there is none yet."""
        ...

    def request_estimates(self, profiles: Sequence[Profile]) -> None:
        """Compute estimates for these profiles in the background."""
        ...

    async def compute_estimate(self, profile: Profile, node: NodeName) -> MemoryFit | None:
        """Return the estimate for any profile; None where it cannot be computed."""
        ...


class Controller(Protocol):
    """What screens and dialogs use of the panel's controller."""

    clock: Clock
    context: CommandContext
    non_interactive_context: CommandContext
    bridge: RepaintScheduler
    supervisor: NodeSupervisor
    jobs: JobRunner
    notices: NoticeBoard
    examinations: DoctorRuns
    switches: SwitchTracker
    moves: TransferTracker
    recorded: Sequence[Event]
    player: RecordingPlayer | None
    turn: asyncio.Event
    is_taken_over: bool

    @property
    def dialogs(self) -> DialogQueue:
        """The dialogs, one at a time."""
        ...

    @property
    def fits(self) -> MemoryEstimates:
        """The memory estimates."""
        ...

    @property
    def is_replaying(self) -> bool:
        """Whether the panel plays a recording."""
        ...

    @property
    def memory_bars(self) -> Mapping[NodeName, MemoryBar]:
        """The last memory sample of each node."""
        ...

    @property
    def own_switch(self) -> SwitchProgress | None:
        """The switch that this panel runs."""
        ...

    def displayed_time(self) -> float:
        """Return the displayed time in unix seconds."""
        ...

    def list_node_views(self, names: Sequence[NodeName]) -> tuple[NodeTelemetryView, ...]:
        """Return the views of these nodes."""
        ...

    def find_instance(self, name: NodeName, instance: str) -> InstanceView | None:
        """Return an instance as last known; None where it is not there."""
        ...

    def find_start_failure(self, name: NodeName, instance: str) -> CommandEnded | None:
        """Return how the last start failed; None where it did not."""
        ...

    def list_start_warnings(self, name: NodeName, instance: str) -> tuple[WarningEmitted, ...]:
        """Return the warnings of the last start."""
        ...

    def remember_ready_line(self, name: NodeName, instance: str, run: ContainerLaunch | None) -> None:
        """Keep the pattern of the log line that marks an instance as ready."""
        ...

    def find_ready_line(self, name: NodeName, instance: str) -> str | None:
        """Return the pattern of the log line that marks an instance as ready; None where it is not known."""
        ...

    def build_instance_tile(self, name: NodeName, instance: str) -> NodeTileModel:
        """Return the tile model of a node for one of its instances. Raises KeyError."""
        ...

    def find_home_directory(self, node: Node) -> str | None:
        """Return the user's home on a node; None while it is not known."""
        ...

    def preview_launch_plan(self, profile: Profile, node: Node, home: str) -> LaunchPlan:
        """Return the launch that `up` would make. Raises `InvalidInput` where `up` would refuse the profile."""
        ...

    def run_background_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task that ends with the controller at the latest."""
        ...

    def start_command(self, request: Request, *, by_hand: bool = True) -> None:
        """Start a command."""
        ...

    def prepare_command(self, request: Request) -> PreparedCommand:
        """Return the command with a context of its own."""
        ...

    async def load_profile_offers(self) -> list[ProfileOffer]:
        """Return the profiles that can be started."""
        ...

    def run_doctor(self, nodes: Sequence[Node]) -> None:
        """Run `doctor` on the nodes that it does not check already."""
        ...

    def show_notice(self, words: str, tone: TextStyle, *, is_shown: bool = False) -> None:
        """Show a notice below the tiles."""
        ...


class FrontScreen(Protocol):
    """What the parts of the panel use of the screen in front."""

    SCREEN_ID: ClassVar[str]
    frozen_at: float | None

    @property
    def breadcrumb(self) -> str:
        """The text behind the program's name in the header."""
        ...

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this screen, in the order of the help."""
        ...

    def already_shows(self, message: str) -> bool:
        """Tell whether the screen shows this message already."""
        ...


class Dispatcher(Protocol):
    """Carries out requests and command lines, and opens the dialogs that lead to them."""

    def dispatch_line(self, words: Sequence[str], confirms: Action | None = None) -> None:
        """Carry out a command line. Raises `SparkctlError` where it is refused."""
        ...

    def dispatch_request(self, request: Request | ScreenTarget) -> None:
        """Carry out a request. Raises `SparkctlError` where it is refused."""
        ...

    def build_switch(self, profile: Profile, typed: str, nodes: Sequence[NodeName]) -> SwitchInstance:
        """Return the request to switch to a profile on these nodes."""
        ...

    def plan_selected_switch(self) -> None:
        """Plan a switch to the selected profile, or ask for a profile."""
        ...

    def open_profile_picker(self) -> None:
        """Ask which profile to start."""
        ...

    def show_profile_picker(self, offers: Sequence[ProfileOffer], title: str = ..., *, to_switch: bool = False) -> None:
        """Ask which of these profiles to start, and where."""
        ...

    def open_command_line(self, begun: str = "", refused: SparkctlError | None = None) -> None:
        """Open the command line."""
        ...


class Panel(ToastApp):
    """The panel as its screens, dialogs and actions know it. `PanelApp` implements it."""

    setup: PanelOptions
    pasted: str
    config_fault: SparkctlError | None
    keyboard: KeyQueue
    orders: Dispatcher
    controller_ready: asyncio.Event
    tones: Mapping[TextStyle, Style]

    @property
    def node_names(self) -> tuple[NodeName, ...]:
        """The nodes, in the operator's order."""
        raise NotImplementedError

    @property
    def selected_node(self) -> NodeName | None:
        """The selected node."""
        raise NotImplementedError

    @property
    def config_nodes(self) -> tuple[Node, ...]:
        """The nodes of the config; none in a recording."""
        raise NotImplementedError

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this panel, with the operator's keys."""
        raise NotImplementedError

    @property
    def controller(self) -> Controller | None:
        """The controller; None before the first paint."""
        raise NotImplementedError

    @property
    def front_screen(self) -> FrontScreen | None:
        """The screen in front, or behind the open dialog."""
        raise NotImplementedError

    @property
    def header_badge(self) -> str:
        """The header's word for a recording or a simulation."""
        raise NotImplementedError

    @property
    def progress_summary(self) -> str:
        """The running switch or transfer in a few words; empty where none runs."""
        raise NotImplementedError

    def displayed_time(self) -> float:
        """Return the displayed time in unix seconds."""
        raise NotImplementedError

    def build_action_context(self) -> ActionContext:
        """Return the state that the actions depend on."""
        raise NotImplementedError

    def collect_node_problems(self, now: ActionContext) -> NodeProblems:
        """Return the problems of the selected node and of the config."""
        raise NotImplementedError

    def list_guarded_instances(self) -> dict[NodeName, tuple[str, ...] | None]:
        """Return what the guard watches on each node; None where that is not known."""
        raise NotImplementedError

    def build_overview_model(self, held: OverviewScreenModel | None = None) -> OverviewScreenModel | None:
        """Return the content of the overview; None before anything is known."""
        raise NotImplementedError

    def repaint_front_screen(self) -> None:
        """Paint the front screen, even while it is paused."""
        raise NotImplementedError

    def repaint_unless_frozen(self) -> None:
        """Paint the front screen unless it is paused."""
        raise NotImplementedError

    def perform_action(self, name: str) -> None:
        """Run an action, or say why it is not possible now."""
        raise NotImplementedError

    def run_command_line(self, words: Sequence[str], confirms: Action | None = None) -> None:
        """Carry out a command line, after a question as before this action; show the error where it is refused."""
        raise NotImplementedError

    def run_request(self, build_request: Callable[[], Request | ScreenTarget]) -> None:
        """Carry out a request; show the error where it cannot be made or is refused."""
        raise NotImplementedError

    def open_screen(self, name: str, now: ActionContext | None = None) -> None:
        """Open a screen, or return to it where it is open."""
        raise NotImplementedError

    def select_node(self, index: int) -> None:
        """Select a node."""
        raise NotImplementedError

    def move_node_selection(self, by: int) -> None:
        """Move the selection by so many nodes."""
        raise NotImplementedError

    def select_instance(self, node: NodeName, instance: str) -> None:
        """Select an instance of a node."""
        raise NotImplementedError

    def move_instance_selection(self, by: int) -> None:
        """Move the selection by so many instances of the selected node."""
        raise NotImplementedError

    def toggle_pause(self) -> None:
        """Pause the front screen or the recording, or continue it."""
        raise NotImplementedError

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task in the background; a defect in it ends the panel."""
        raise NotImplementedError

    def spawn_dialog_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that opens a dialog; the dialog gets the keys typed until then."""
        raise NotImplementedError

    def spawn_terminal_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that gives the terminal to another program; keys typed until then are dropped."""
        raise NotImplementedError

    def exit_panel(self) -> None:
        """End the panel."""
        raise NotImplementedError

    def request_exit(self) -> None:
        """End the panel; ask first while it runs a switch."""
        raise NotImplementedError
