"""``setup``: put in place what `doctor` finds missing: Docker's group, the right to drop the page cache, the cable; or undo it.

Nothing is changed before each file was shown and the operator said yes. The program that changes it runs as root once for
each step, with the files on its stdin (`node/setup_node.sh`); sudo's password is asked for once and not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

from sparkctl.commands.event_stream import build_end, open_session, stream_events
from sparkctl.commands.node_lock import acquire_node_lock
from sparkctl.commands.request import Preview, Request, SentenceTone, describe_unreachable, list_flags
from sparkctl.commands.setup.setup_plan import (
    DOCKER_GROUP,
    GROUP_FILE,
    NETPLAN_FILE,
    NO_LINK_HINT,
    CableEnd,
    SshSide,
    build_cable_route,
    correct_before,
    find_wrong_lanes,
    list_addresses,
    list_fine_parts,
    list_shared_addresses,
    plan_cable,
    plan_cable_step,
    plan_own_steps,
    plan_ssh,
    plan_undo,
)
from sparkctl.commands.start.connectivity_check import check_fabric
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import ConnectionLost, ExitCode, OperationRefused, SparkctlError, UnreadableAnswer
from sparkctl.model.events import (
    CommandEnded,
    Emit,
    Event,
    FileChange,
    Outcome,
    SetupPlanned,
    SetupStep,
    SetupStepDone,
    SetupStepKind,
    WarningEmitted,
)
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.questions import SetupQuestion, SudoPasswordQuestion
from sparkctl.model.text.units import format_duration
from sparkctl.node import peer_checks
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.node.setup_program import (
    ABSENT,
    SCRIPT_MARKER,
    WAY_BACK_SECONDS,
    SetupReport,
    arm_cable,
    build_program,
    call,
    decode_report,
    list_kept_copies,
)
from sparkctl.transport.node_session import NodeSession

if TYPE_CHECKING:
    from sparkctl.commands.action_context import ActionContext


CABLE_LIMIT_SECONDS = 60.0
_SECTIONS = ("identity", "docker", "sudo", "network", "setup")
_LOOK_AGAIN_SECONDS = 1.0
_RETURN_SECONDS = 10.0  # seconds in which a lost connection may come back
# seconds before its limit in which a node is not asked to keep the cable any more
_CONFIRM_SECONDS = WAY_BACK_SECONDS + 3.0
_GROUP_ADVICE = "it takes effect at the next login there: reopen shells and panels that are open"

Steps = dict[NodeName, tuple[SetupStep, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUpNodes(Request):
    """What to set up.

    Attributes:
        undo: take back what an earlier set-up wrote.
        is_confirmed: make the changes that were shown without a question.
        ssh_profile: a profile whose ranks log in at each other by SSH, for which that is set up as well.
        cable_limit: seconds in which the cable has to come up; else each node goes back to its old file.
    """

    nodes: Sequence[Node]
    dry_run: bool = False
    undo: bool = False
    is_confirmed: bool = False
    cable_limit: float = CABLE_LIMIT_SECONDS
    ssh_profile: str | None = None

    def format_as_command(self) -> tuple[str, ...]:
        flags = {
            "--dry-run": self.dry_run,
            "--undo": self.undo,
            "--yes": self.is_confirmed,
            f"--cable-timeout={self.cable_limit:g}s": self.cable_limit != CABLE_LIMIT_SECONDS,
        }
        ssh = () if self.ssh_profile is None else ("--for", self.ssh_profile)
        return ("setup", *map(str, self.named_nodes), *list_flags(flags), *ssh)

    def preview(self, now: ActionContext) -> Preview:
        """Return the question before it: it changes nothing before its own question, which shows each file."""
        names = " and ".join(node.name for node in self.nodes)
        what = f"Look at what is missing on {names}? Every change is shown before it is made."
        return Preview(
            sections=(((what, SentenceTone.STRONG),), *describe_unreachable(now, self.named_nodes)), accept="look"
        )

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return set_up_nodes(ctx, self)


def set_up_nodes(ctx: CommandContext, request: SetUpNodes) -> AsyncGenerator[Event, None]:
    """Show what would change, ask, and change it; refused where the operator says no, and where sudo does."""

    async def run_setup(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        async with AsyncExitStack() as stack:
            sessions = [await open_session(stack, ctx, node, emit) for node in request.nodes]
            await gather_or_cancel(*(session.link.connect() for session in sessions))
            run = NodeSetup(ctx, request, sessions, emit)
            outcome, message = await (run.undo(stack) if request.undo else run.set_up(stack))
        return build_end(ctx, began, outcome, message=message)

    return stream_events(
        ctx,
        run_setup,
        on_interrupt="interrupted; each file is as it was or as it was shown, and a cable that was not proved goes back by "
        "itself; see: sparkctl setup --dry-run",
    )


class CableRolledBack(OperationRefused):
    """The cable did not come up in time; the files and addresses from before are back."""

    exit_code = ExitCode.TIMED_OUT


@dataclass(slots=True, kw_only=True)
class SetupState:
    """What is to be done: the steps of each node, the ends of the cable, and what was noted or is fine."""

    steps: Steps
    ends: tuple[CableEnd, ...] = ()
    sides: Mapping[NodeName, SshSide] = field(default_factory=dict)
    fine: list[str] = field(default_factory=list)  # what all of them have in common
    notes: list[tuple[NodeName | None, str, str | None]] = field(default_factory=list)


class NodeSetup:
    """One run of `setup` on its nodes."""

    def __init__(self, ctx: CommandContext, request: SetUpNodes, sessions: Sequence[NodeSession], emit: Emit) -> None:
        self._ctx, self._request, self._emit = ctx, request, emit
        self._sessions = {session.node.name: session for session in sessions}
        holder = PasswordHolder(ctx)
        self._shells = {session.node.name: RootShell(session, holder) for session in sessions}
        self._user_shells = {session.node.name: RootShell(session, None) for session in sessions}

    async def set_up(self, stack: AsyncExitStack) -> tuple[Outcome, str]:
        """Plan, show, ask and change; return how it ended."""
        inspections = await self._inspect_nodes()
        state = plan_setup(inspections, self._request.nodes)
        if self._request.ssh_profile is not None:
            await self._plan_ssh(state, inspections)
        for node, words, hint in state.notes:
            self._warn(node, words, hint)
        for node, inspection in inspections.items():
            fine = (*list_fine_parts(inspection), *state.fine)
            self._emit(SetupPlanned(self._ctx.clock.unix_time(), node, state.steps.get(node, ()), fine))
        if not state.steps:
            return Outcome.DONE, "nothing to do"
        if self._request.dry_run:
            return Outcome.PLANNED, "nothing was changed; without --dry-run these changes are made"
        await self._confirm(state.steps)
        # The files are root's: only now it is known what is in them.
        seen = await self._correct(state.steps, inspections)
        if seen != state.steps:
            self._show({node: steps for node, steps in seen.items() if steps != state.steps[node]})
            if self._request.is_confirmed:
                raise OperationRefused(
                    "a file that only root can read is not as expected; nothing was changed",
                    "review the changes above and confirm them: sparkctl setup",
                )
            await self._confirm(seen)
            state.steps = seen
        await self._acquire_locks(stack, state.steps)
        for node, steps in state.steps.items():
            for step in steps:
                if step.kind not in (SetupStepKind.CABLE, SetupStepKind.SSH):
                    await self._apply(node, step, inspections[node])
        if state.ends:
            await self._apply_cable(state)
        if state.sides:
            await self._apply_ssh(state)
        return Outcome.DONE, "done; to undo it: sparkctl setup --undo"

    async def undo(self, stack: AsyncExitStack) -> tuple[Outcome, str]:
        """Take back what was written, on each node all of it or nothing."""
        plans: Steps = {}
        todo: list[tuple[RootShell, list[str]]] = []  # the calls of each shell
        inspections = await self._inspect_nodes()
        for node, shell in self._shells.items():
            seen = inspections[node].setup
            shells = [self._user_shells[node]] if seen is None or seen.has_own_state else []
            shells += [shell] if seen is None or seen.has_state else []
            for one in shells:
                report = await one.run("records")
                step, foreign = plan_undo(report)
                if foreign:
                    self._emit(SetupPlanned(self._ctx.clock.unix_time(), node, (replace(step, changes=foreign),)))
                    names = " and ".join(change.path for change in foreign)
                    raise OperationRefused(
                        f"{node}: {names} changed since sparkctl wrote it (above); nothing was changed",
                        "take your change out, or remove the file by hand, and then the record: sudo rm -r "
                        + report.state,
                    )
                if step.changes:
                    plans[node] = (*plans.get(node, ()), step)
                    written = [change for change in step.changes if change.path in report.records]
                    sums = [word for change in written for word in (change.path, _sum(change.before))]
                    kept = {
                        change.path: report.files[list_kept_copies(change.path, report.state)[1]] for change in written
                    }
                    rebased = [change for change in written if change.after != kept[change.path].text]
                    calls = [call("rebase", x.path, _sum(x.before), text=x.after) for x in rebased]
                    todo.append((one, [*calls, call("undo", *sums)]))
        self._show(plans)
        if not plans:
            return Outcome.DONE, "nothing to do: sparkctl has not set up anything here"
        if self._request.dry_run:
            return Outcome.PLANNED, "nothing was changed; without --dry-run these changes are made"
        await self._confirm(plans)
        await self._acquire_locks(stack, plans)
        for shell, calls in todo:
            node = shell.session.node.name
            self._report_warnings(node, await shell.run(*calls))
            self._emit(SetupStepDone(ts=self._ctx.clock.unix_time(), node=node, step=SetupStepKind.UNDO))
        return Outcome.DONE, "done; the nodes are as they were before"

    async def _acquire_locks(self, stack: AsyncExitStack, nodes: Iterable[NodeName]) -> None:
        for node in nodes:
            session, warn = self._sessions[node], partial(self._warn, node)
            lock = await acquire_node_lock(session, self._ctx, "setting it up", warn)
            stack.push_async_callback(lock.release)

    async def _inspect_nodes(self) -> dict[NodeName, NodeInspection]:
        inspections = await gather_or_cancel(*(session.read_node(*_SECTIONS) for session in self._sessions.values()))
        return dict(zip(self._sessions, inspections, strict=True))

    def _show(self, steps: Steps) -> None:
        for node, own in steps.items():
            self._emit(SetupPlanned(self._ctx.clock.unix_time(), node, own))

    def _warn(self, node: NodeName | None, words: str, hint: str | None = None) -> None:
        self._emit(WarningEmitted(self._ctx.clock.unix_time(), node, words, hint))

    def _report_warnings(self, node: NodeName, report: SetupReport) -> None:
        for words in report.warnings:
            self._warn(node, words)

    async def _confirm(self, steps: Steps) -> None:
        if self._request.is_confirmed:
            return
        question = SetupQuestion(tuple((node, step) for node, own in steps.items() for step in own))
        if not await self._ctx.prompter.ask_yes_no(question):
            raise OperationRefused("not confirmed: nothing was changed", "to skip the question: --yes")

    async def _correct(self, steps: Steps, inspections: Mapping[NodeName, NodeInspection]) -> Steps:
        """Return the steps with the files as root sees them."""
        found: Steps = {}
        for node, own in steps.items():
            # what is below ~/.ssh was read whole already, by its owner
            roots = [step for step in own if step.kind is not SetupStepKind.SSH]
            paths = sorted({change.path for step in roots for change in step.changes} - {GROUP_FILE})
            files = (await self._shells[node].run(call("show", *paths))).files if roots else {}
            found[node] = tuple(
                correct_before(step, files, _get_user(inspections[node])) if step in roots else step for step in own
            )
        return found

    async def _apply(self, node: NodeName, step: SetupStep, inspection: NodeInspection) -> None:
        """Do one step that is not the cable's, and look whether it helped."""
        calls = [_format_put(one) for one in step.changes if one.path != GROUP_FILE]
        if step.kind is SetupStepKind.DOCKER_GROUP:
            calls.append(call("join_group", DOCKER_GROUP, _get_user(inspection)))
        self._report_warnings(node, await self._shells[node].run(*calls))
        detail = _GROUP_ADVICE if step.kind is SetupStepKind.DOCKER_GROUP else None
        self._emit(SetupStepDone(ts=self._ctx.clock.unix_time(), node=node, step=step.kind, detail=detail))
        if step.kind is SetupStepKind.DROP_CACHES:
            now = await self._sessions[node].read_node("sudo")
            if now.drop_right == "denied":
                self._warn(
                    node,
                    "the line is in place, but sudo still does not allow it",
                    f"on {node}: sudo -l; sudo visudo -c",
                )

    async def _plan_ssh(self, state: SetupState, inspections: Mapping[NodeName, NodeInspection]) -> None:
        """Add the steps of SSH between the Sparks. Raises `OperationRefused` where it cannot be set up."""

        async def read_side(session: NodeSession) -> SshSide:
            node = session.node.name
            files = await self._user_shells[node].run("show_ssh")
            answer = await session.run(peer_checks.LOGIN_SCRIPT_COMMAND, stdin=peer_checks.LOGIN_SCRIPT)
            try:
                login = peer_checks.decode_login_target(answer.stdout)
            except ValueError as error:
                raise UnreadableAnswer(node, f"{node} did not report its user", None) from error
            return SshSide(node, files, login, list_addresses(inspections[node].network, state.ends, node))

        sides = await gather_or_cancel(*map(read_side, self._sessions.values()))
        state.sides = {side.node: side for side in sides}
        steps = plan_ssh(state.sides)
        if not steps:
            state.sides = {}
            state.fine.append("SSH between the Sparks: each user's key and each host's key are known to the other")
        for node, step in steps.items():
            state.steps[node] = (*state.steps.get(node, ()), step)

    async def _apply_ssh(self, state: SetupState) -> None:
        """Make the keys, put the lines in place, and try each login. Raises `OperationRefused` where one does not work."""
        for node, side in state.sides.items():
            if side.needs_key:
                made = await self._user_shells[node].run(call("make_key", f"sparkctl:{node}"))
                side.files.public_key = made.public_key
        for node, step in plan_ssh(state.sides).items():
            await self._user_shells[node].run("make_ssh_directory", *map(_format_put, step.changes))
        for node, side in state.sides.items():
            for peer in state.sides.values():
                if peer is not side:
                    await self._try_login(side, peer)
            self._emit(SetupStepDone(ts=self._ctx.clock.unix_time(), node=node, step=SetupStepKind.SSH))

    async def _try_login(self, side: SshSide, peer: SshSide) -> None:
        address = list_shared_addresses(side, peer)[0]
        words = peer_checks.build_login_test_command(peer.login, address, knows_host=True)
        done = await self._sessions[side.node].run(words)
        if done.status != 0:
            why = done.last_error or f"ssh ended with {done.status}"
            raise OperationRefused(
                f"{side.node} still cannot log in at {peer.node} ({address}): {why}",
                "see whether sshd there allows keys and that address; take it back: sparkctl setup --undo",
            )

    async def _apply_cable(self, state: SetupState) -> None:
        """Put both files in place; keep them only if both ends are up and reach each other in time."""
        limit = self._request.cable_limit
        end_of_limit = self._ctx.clock.monotonic() + limit
        steps = {node: step for node, own in state.steps.items() for step in own if step.kind is SetupStepKind.CABLE}

        async def apply_end(end: CableEnd) -> None:
            (change,) = steps[end.node].changes
            await self._shells[end.node].run(
                arm_cable(NETPLAN_FILE, end.format_lanes_now(), limit),
                _format_put(change),
                call("apply_cable", NETPLAN_FILE),
                timeout=limit,
            )

        try:
            # both to their end: a program that was cut off would go on as root on its node
            done = await asyncio.gather(*(apply_end(end) for end in state.ends), return_exceptions=True)
            if (failure := next((one for one in done if one is not None), None)) is not None:
                raise failure
            await self._wait_until_up(state.ends, end_of_limit)
        except SparkctlError as error:
            raise await self._roll_cable_back(state.ends, set(), error, end_of_limit) from error
        # no TaskGroup: a cancellation may not come between the two, or one alone would keep its file for good
        keeping = asyncio.ensure_future(self._keep_cable(state.ends, end_of_limit))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.gather(keeping, return_exceptions=True)
            raise
        for end in state.ends:
            self._emit(SetupStepDone(ts=self._ctx.clock.unix_time(), node=end.node, step=SetupStepKind.CABLE))

    async def _keep_cable(self, ends: Sequence[CableEnd], end_of_limit: float) -> None:
        """Have both ends keep their files. Raises `CableRolledBack` where one does not."""
        confirmed: set[NodeName] = set()
        try:
            for end in ends:  # one after the other: where the second does not keep it, the first goes back as well
                confirmed.add(end.node)
                kept = await self._shells[end.node].run("confirm_cable", timeout=_RETURN_SECONDS)
                if "confirmed" not in kept.words:
                    raise OperationRefused(f"{end.node} had already reverted", None)
        except SparkctlError as error:
            raise await self._roll_cable_back(ends, confirmed, error, end_of_limit) from error

    async def _roll_cable_back(
        self, ends: Sequence[CableEnd], confirmed: Set[NodeName], error: SparkctlError, end_of_limit: float
    ) -> CableRolledBack:
        """Have each end go back, and return the error that tells it."""
        are_back = await self._give_cable_back(ends, confirmed, error, end_of_limit)
        return CableRolledBack(
            f"the cable was not set up: {error.message}"
            + ("; both Sparks have their old files back" if are_back else ""),
            error.hint or "see that the cable is in, and on each Spark: ip -br link; then again: sparkctl setup",
        )

    async def _wait_until_up(self, ends: Sequence[CableEnd], end_of_limit: float) -> None:
        """Return when both ends have their addresses and reach each other, with packets of 9000 bytes."""
        sessions = [self._sessions[end.node] for end in ends]
        wrong: list[str] = []
        last: SparkctlError | None = None
        while self._ctx.clock.monotonic() < end_of_limit - _CONFIRM_SECONDS:
            try:
                inspections = await gather_or_cancel(*(session.read_node("network") for session in sessions))
                wrong = [
                    words
                    for end, inspection in zip(ends, inspections, strict=True)
                    for words in find_wrong_lanes(end, inspection.network)
                ]
                if not wrong:
                    for words in await check_fabric(sessions, build_cable_route(ends)):
                        self._warn(None, words)
                    return
                last = None
            except ConnectionLost:
                left = max(1.0, end_of_limit - self._ctx.clock.monotonic())
                await gather_or_cancel(*(session.link.reconnect(left) for session in sessions))
            except OperationRefused as refused:
                last = refused
            await self._ctx.clock.sleep(_LOOK_AGAIN_SECONDS)
        raise last or OperationRefused("; ".join(wrong) or "the Sparks did not answer in time", None)

    async def _give_cable_back(
        self, ends: Sequence[CableEnd], confirmed: Set[NodeName], why: SparkctlError, end_of_limit: float
    ) -> bool:
        """Have each node go back now, and tell whether both did; one that cannot be asked and kept nothing does so by itself."""

        async def give_back(end: CableEnd) -> bool:
            shell, now = self._shells[end.node], self._ctx.clock
            with suppress(SparkctlError, TimeoutError):
                await shell.session.link.reconnect(_RETURN_SECONDS)
                if "back" in (await shell.run(call("give_cable_back", NETPLAN_FILE))).words:
                    step = SetupStepDone(
                        ts=now.unix_time(), node=end.node, step=SetupStepKind.CABLE, is_back=True, detail=why.message
                    )
                    self._emit(step)
                    return True
            if end.node in confirmed:
                words = "it cannot be reached to revert, and may still have the new file"
                self._warn(end.node, words, f"when it answers again: sparkctl setup {end.node} --undo")
                return False
            left = format_duration(max(1.0, end_of_limit - now.monotonic()))
            self._warn(end.node, f"it cannot be reached to revert; it does so by itself within {left}")
            return False

        return all(await gather_or_cancel(*map(give_back, ends)))


def plan_setup(inspections: Mapping[NodeName, NodeInspection], nodes: Sequence[Node]) -> SetupState:
    """Return what is to be done on these nodes. Pure."""
    state = SetupState(steps={})
    steps: dict[NodeName, list[SetupStep]] = {}
    for node, inspection in inspections.items():
        own, notes = plan_own_steps(node, inspection)
        steps[node] = list(own)
        state.notes += [(node, words, None) for words in notes]
    if len(inspections) == 2:
        try:
            planned, left_out = _plan_cable(inspections, nodes)
            state.notes += [(None, f"half of the cable is not used: {words}", NO_LINK_HINT) for words in left_out]
            if not planned and not left_out:
                state.fine.append("cable: both ends have addresses in one network and MTU 9000")
            for end, step in planned:
                state.ends = (*state.ends, end)
                steps[end.node].append(step)
        except OperationRefused as refused:
            state.notes.append((None, f"the cable is left as it is: {refused.message}", refused.hint))
    elif len(inspections) > 2:
        state.notes.append((None, "the cable is left as it is: sparkctl sets up the cable of two Sparks", None))
    state.steps = {node: tuple(own) for node, own in steps.items() if own}
    return state


def _plan_cable(
    inspections: Mapping[NodeName, NodeInspection], nodes: Sequence[Node]
) -> tuple[list[tuple[CableEnd, SetupStep]], tuple[str, ...]]:
    """Return the steps of both ends, none where they are as they should be, and why a function is left out, in words."""
    seen = {node: inspection.network for node, inspection in inspections.items()}
    known = {node: network for node, network in seen.items() if network is not None}
    if len(known) < len(inspections):
        raise OperationRefused("a Spark did not report its interfaces", "on it: ip -j addr")
    ends, left_out = plan_cable(known, {node.name: node.fabric for node in nodes if node.fabric})
    if ends is None:
        return [], left_out
    for node, inspection in inspections.items():
        if inspection.setup is None or not inspection.setup.has_netplan:
            raise OperationRefused(
                f"{node} has no netplan, so its addresses are set in another way", "docs/two-sparks.md"
            )
    one, other = ends
    return [
        (one, plan_cable_step(one, other.node, inspections[one.node])),
        (other, plan_cable_step(other, one.node, inspections[other.node])),
    ], left_out


def _get_user(inspection: NodeInspection) -> str:
    return "" if inspection.identity is None else inspection.identity.user


def _format_put(change: FileChange) -> str:
    assert change.after is not None
    assert change.mode is not None
    return call("put", change.path, change.mode, _sum(change.before), text=change.after)


def _sum(text: str | None) -> str:
    import hashlib

    return ABSENT if text is None else hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


_SUDO_TIMEOUT_SECONDS = 30.0  # seconds: PAM delays a wrong password
_PROGRAM_TIMEOUT_SECONDS = 90.0  # seconds: netplan waits for its backend
_MAX_TRIES = 3
# Lines before the program's first are dropped: where sudo asks for no password after all, it is not run as a command.
_SHELL = ("sh", "-c", f"while IFS= read -r line; do [ \"$line\" = '{SCRIPT_MARKER}' ] && exec sh -s; done")


class SudoRefused(OperationRefused):
    """The node's user may not become root there, or gave no password."""


class PasswordHolder:
    """The password of this one command: tried on each node in turn, asked for where none or another is right."""

    def __init__(self, ctx: CommandContext) -> None:
        self._ctx = ctx
        self._password: str | None = None

    async def find_password(self, session: NodeSession) -> str:
        """Return the password for a node. Raises `SudoRefused`."""
        if self._password is not None and await self._is_right(session, self._password) is None:
            return self._password
        refusal = "a password is required"
        for _ in range(_MAX_TRIES):
            question = SudoPasswordQuestion(session.node.name, "make these changes")
            password = await self._ctx.prompter.ask_password(question)
            if not password:
                break
            refusal = await self._is_right(session, password) or ""
            if not refusal:
                self._password = password
                return password
        raise SudoRefused(
            f"sudo on {session.node.name} does not let this user make the changes ({refusal})",
            "on a terminal sparkctl asks for the password; sudo needs none where the user has NOPASSWD",
        )

    async def _is_right(self, session: NodeSession, password: str) -> str | None:
        """Return None for the right password, else what sudo says. Only one line is on stdin, so sudo tries once."""
        done = await session.run(
            ["sudo", "-S", "-k", "-p", "", "true"], stdin=password.encode() + b"\n", timeout=_SUDO_TIMEOUT_SECONDS
        )
        return None if done.status == 0 else done.last_error or "it gave no reason"


class RootShell:
    """One node's root shell: each `run` is one call of sudo. Without a holder it is a shell of the node's own user."""

    def __init__(self, session: NodeSession, holder: PasswordHolder | None) -> None:
        self.session = session
        self._holder = holder
        self._argv: tuple[str, ...] | None = None
        self._first_line = b""

    async def prepare(self) -> None:
        """Find out how to become root. Raises `SudoRefused`."""
        if self._holder is None:
            self._argv = _SHELL
            return
        user_id = await self.session.run(["id", "-u"])
        if user_id.stdout.strip() == b"0":
            self._argv = _SHELL
        elif (await self.session.run(["sudo", "-n", "true"], timeout=_SUDO_TIMEOUT_SECONDS)).status == 0:
            self._argv = ("sudo", "-n", *_SHELL)
        else:
            self._first_line = (await self._holder.find_password(self.session)).encode() + b"\n"
            self._argv = ("sudo", "-S", "-k", "-p", "", *_SHELL)

    async def run(self, *calls: str, timeout: float = _PROGRAM_TIMEOUT_SECONDS) -> SetupReport:
        """Run calls and return what they printed. Raises `OperationRefused` where one failed."""
        if self._argv is None:
            await self.prepare()
        assert self._argv is not None
        own = ("as_user",) if self._holder is None else ()
        done = await self.session.run(self._argv, stdin=self._first_line + build_program(*own, *calls), timeout=timeout)
        report = decode_report(done.stdout)
        name = self.session.node.name
        if not report.began:
            shell, why = "the shell" if self._holder is None else "sudo", done.last_error
            raise SudoRefused(
                f"{shell} on {name} did not run the set-up: {why or f'it ended with {done.status}'}",
                None if self._holder is None else f"on {name}: sudo -l",
            )
        if report.failure is not None:
            raise OperationRefused(f"{name}: {report.failure}", None)
        if report.changed_path is not None:
            raise OperationRefused(
                f"{name}: {report.changed_path} changed after it was shown; it was left as it is",
                "look at it again: sparkctl setup",
            )
        if "end" not in report.words and not report.words & {"late"}:
            why = f": {done.last_error}" if done.last_error else ""
            raise UnreadableAnswer(
                name,
                f"the set-up on {name} broke off{why}",
                f"see its state: sparkctl setup {name} --dry-run",
            )
        return report
