"""``resume`` and ``abort``: finish, undo or give up an unfinished switch, from the journal on its nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from sparkctl.commands.event_stream import build_end, open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.request import Preview, Request, SentenceTone, describe_unreachable
from sparkctl.commands.switch.switch_instance import run_switch
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.commands.switch.switch_runner import SwitchStepRunner, list_remaining_steps
from sparkctl.commands.switch.switch_transaction import SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import NodeError, OperationRefused, SparkctlError
from sparkctl.history.model import OperationKind
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchJournalStatus, SwitchStep
from sparkctl.monitor import switch_journal_io as journals
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.node_session import NodeSession

if TYPE_CHECKING:
    from sparkctl.commands.action_context import ActionContext

_UNCHANGED_MESSAGE = "interrupted before anything was changed"
_STEP_ORDER = tuple(SwitchStep)
_ROLLBACK_STEPS = (SwitchStep.UNDOING, SwitchStep.RESTORING, SwitchStep.RESTORED)


class FinishVerb(StrEnum):
    """The commands, as typed after ``sparkctl``."""

    RESUME = "resume"
    ABORT = "abort"
    ABANDON = "abort --give-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishSwitch(Request):
    """``nodes``: where to look for a journal. ``known``: every node of the config, for those that the journal names
    besides.
    """

    nodes: Sequence[Node]
    known: Sequence[Node]
    environ: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    guarded: bool = True
    way: FinishVerb = FinishVerb.RESUME

    def format_as_command(self) -> tuple[str, ...]:
        verb, *flags = self.way.split()
        return (verb, *self.format_node_options(), *flags)

    def preview(self, now: ActionContext) -> Preview:
        return Preview(
            sections=(
                ((self._format_question(now), SentenceTone.STRONG),),
                *describe_unreachable(now, self.named_nodes),
            ),
            is_required=True,
        )

    def _format_question(self, now: ActionContext) -> str:
        """Return what happens to the models of the switch, by name where its journal is readable."""
        one = now.journal
        if one is None:
            what, new, old = "the switch that was left", "What it started", "what it stopped"
        else:
            what = f"the switch to {one.instance} that {one.operator} left at its step {one.step}"
            new, old = one.instance, " and ".join(one.stops)
        if self.way is FinishVerb.RESUME:
            return f"Go on with {what}?"
        serves = one is not None and any(
            each.name == one.instance and each.phase is Phase.READY for view in now.views for each in view.instances
        )
        ready = ", which is ready now," if serves else ""
        if self.way is FinishVerb.ABANDON:
            both = f"{new}{ready} and {old} go" if old else f"{new}{ready} goes"
            return f"Give up {what}? {both}, logs saved; then neither model serves."
        return f"Undo {what}? {new}{ready} goes{f', and {old} is started again' if old else ''}."

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return finish_switch(ctx, self)


def finish_switch(ctx: CommandContext, request: FinishSwitch) -> AsyncGenerator[Event, None]:
    """Finish the switch found on these nodes.

    RESUME goes on in the direction in which it was going; ABORT removes the new containers and starts the old ones again;
    ABANDON removes both sides, with logs saved, and deletes the journal. The latter two need no profile.
    """

    def stream_finish(own: CommandContext) -> AsyncGenerator[Event, None]:
        return stream_events(own, _FinishRun(own, request).run, on_interrupt=None)

    subject = OperationSubject(kind=OperationKind.SWITCH, nodes=request.nodes, command=f"sparkctl {request.way}")
    return record_operation(ctx, subject, stream_finish)


class FinishAction(StrEnum):
    """What a command does with an unfinished switch."""

    REPEAT = "repeat"  # nothing was changed so far: begin again with a plan of the current state
    FORWARD = "forward"  # run the remaining steps
    ROLL_BACK = "roll back"  # the old instance comes back
    ABANDON = "abandon"  # remove both sides
    FORGET = "forget"  # nothing was stopped: delete the journal
    REFUSE = "refuse"  # the new instance serves


class _FinishRun:
    """One run of one of the commands."""

    def __init__(self, ctx: CommandContext, request: FinishSwitch) -> None:
        self.ctx, self.request = ctx, request
        self.began = ctx.clock.monotonic()
        self.sessions: dict[NodeName, NodeSession] = {}

    async def run(self, emit: Emit) -> CommandEnded:
        verb = self.request.way
        async with AsyncExitStack() as stack:
            journal = await self._find_journal(stack, emit)
            if journal is None:
                where = " or ".join(node.name for node in self.request.nodes)
                return build_end(
                    self.ctx, self.began, Outcome.DONE, message=f"there is no unfinished switch on {where}"
                )
            action, first = decide_finish(verb, journal.step)
            if action is FinishAction.REFUSE:
                before = journal.stops[0] if journal.stops else "PROFILE"
                raise OperationRefused(
                    f"{journal.instance} has passed its checks and serves; the old containers are being removed",
                    f"{journals.list_finish_commands(journal)}\nthen, to go back: sparkctl switch {before} {journal.old_node_options}",
                )
            self._describe_operation(journal, is_way_back=action not in (FinishAction.FORWARD, FinishAction.REPEAT))
            transaction = self._create_transaction(journal, emit)
            request = self._rebuild_request(journal) if needs_profile(action, first) else None
            doing = "resuming" if verb is FinishVerb.RESUME else "aborting"
            await self.ctx.interrupt.run_interruptible(
                transaction.acquire_locks(f"{doing} the switch to {journal.instance}"), _UNCHANGED_MESSAGE
            )
            try:
                await self._verify_unchanged(transaction, journal)
                if action in (FinishAction.REPEAT, FinishAction.FORGET):
                    await transaction.delete_journal()
                    message = "nothing had been stopped: the switch is forgotten"
                    ended = build_end(
                        self.ctx,
                        self.began,
                        Outcome.DONE,
                        node=journal.nodes[0],
                        instance=journal.instance,
                        message=message,
                    )
                elif action is FinishAction.FORWARD:
                    ended = await SwitchStepRunner(transaction, request).run_forward(first)
                elif action is FinishAction.ROLL_BACK:
                    ended = await SwitchStepRunner(transaction).run_rollback(is_requested=True)
                else:
                    ended = await SwitchStepRunner(transaction).run_abandon()
            finally:
                await transaction.release_locks()
        if action is FinishAction.REPEAT:
            assert request is not None
            ended = await run_switch(self.ctx, request, emit)
        return self._close_original_operation(journal, verb, ended)

    # history

    def _describe_operation(self, journal: SwitchJournal, *, is_way_back: bool) -> None:
        """Describe the operation in its own history row."""
        row = self.ctx.operation
        if row is None:
            return None
        nodes = tuple(dict.fromkeys((*journal.nodes, *journal.affected_nodes)))
        if is_way_back:
            return row.record_facts(nodes=nodes, instance=" and ".join(journal.stops) or journal.instance)
        return row.record_facts(
            nodes=nodes, instance=journal.instance, profile=journal.words[0], hash=journal.profile_hash
        )

    def _close_original_operation(self, journal: SwitchJournal, verb: FinishVerb, ended: CommandEnded) -> CommandEnded:
        """Record the result in the history row of the unfinished switch, where that was run from here too."""
        if ended.outcome in (Outcome.READY, Outcome.DONE):
            text = f"finished by sparkctl {verb}: {ended.message or ended.outcome}"
            self.ctx.history.close_operation(journal.id, text, self.ctx.clock.unix_time())
        return ended

    # the journal

    async def _find_journal(self, stack: AsyncExitStack, emit: Emit) -> SwitchJournal | None:
        """Return the journal with the most progress, with a session to every node that it affects."""
        await self._open_sessions(stack, self.request.nodes, emit)
        views = await self.ctx.interrupt.run_interruptible(self._read_journals(), _UNCHANGED_MESSAGE)
        journal = choose_journal(views)
        if journal is None:
            return None
        await self._open_sessions(stack, self._list_other_nodes(journal), emit)
        for node in journal.affected_nodes:
            await self.ctx.interrupt.run_interruptible(self.sessions[node].link.connect(), _UNCHANGED_MESSAGE)
        return journal

    async def _open_sessions(self, stack: AsyncExitStack, nodes: Sequence[Node], emit: Emit) -> None:
        for node in nodes:
            self.sessions[node.name] = await open_session(stack, self.ctx, node, emit)

    async def _read_journals(self) -> dict[NodeName, SwitchJournalStatus | NodeError]:
        async def read_node_journal(session: NodeSession) -> SwitchJournalStatus | NodeError:
            try:
                await session.link.connect()
                return await journals.read_journal(session)
            except NodeError as away:
                return away

        views = await gather_or_cancel(*(read_node_journal(session) for session in self.sessions.values()))
        return dict(zip(self.sessions, views, strict=True))

    def _list_other_nodes(self, journal: SwitchJournal) -> list[Node]:
        by_name = {node.name: node for node in self.request.known}
        unknown = [name for name in journal.affected_nodes if name not in by_name and name not in self.sessions]
        if unknown:
            raise OperationRefused(
                f"the switch touches {' and '.join(unknown)}, and the config has no node of that name",
                f"add it, as {journal.operator} calls it: sparkctl init",
            )
        return [by_name[name] for name in journal.affected_nodes if name not in self.sessions]

    async def _verify_unchanged(self, transaction: SwitchTransaction, journal: SwitchJournal) -> None:
        """Read the journals again under the locks: another operator may have finished or resumed the switch
        meanwhile.
        """
        found = await gather_or_cancel(
            *(journals.read_journal_with_text(self.sessions[node]) for node in journal.affected_nodes)
        )
        if not is_still_unfinished(journal, [view.journal for view, _ in found]):
            raise OperationRefused(
                f"another operator has taken over or finished the switch to {journal.instance}; nothing was done",
                "see its state: sparkctl status",
            )
        for node, (_, text) in zip(journal.affected_nodes, found, strict=True):
            transaction.adopt_journal(node, text)

    def _create_transaction(self, journal: SwitchJournal, emit: Emit) -> SwitchTransaction:
        """Take over the switch: the journal names its new operator from now on."""
        ours = replace(journal, operator=self.ctx.operator, since=self.ctx.clock.unix_time())
        return SwitchTransaction(
            self.ctx, self.sessions, ours, emit, self.began, guarded=self.request.guarded and journal.guarded
        )

    def _rebuild_request(self, journal: SwitchJournal) -> SwitchInstance:
        """Rebuild the request from the words in the journal; raises `OperationRefused` where the profile has
        changed.
        """
        abort_hint = f"bring back what was stopped: sparkctl abort --node {journal.affected_nodes[0]}"
        name, *words = journal.words
        try:
            profile = ProfileLibrary().load_profile(name, overrides=tuple(words[1::2]))
        except SparkctlError as gone:
            raise OperationRefused(
                f"the profile of the switch cannot be loaded here: {gone.message}", abort_hint
            ) from gone
        if profile.digest != journal.profile_hash:
            raise OperationRefused(
                f"{name} is another profile here (hash {profile.digest}) than the one that the switch is to "
                f"({journal.profile_hash}); secrets that were given with --set are not in a journal, either",
                f"{abort_hint}; then switch again",
            )
        nodes = {**{node.name: node for node in self.request.known}, **{k: v.node for k, v in self.sessions.items()}}
        self._refuse_unless_launchable(profile, nodes[journal.nodes[0]], abort_hint)
        return SwitchInstance(
            profile=profile, nodes=tuple(nodes[one] for one in journal.nodes), known=tuple(nodes.values()),
            keep_going=journal.keep_going, rolls_back=journal.rolls_back, timeout=self.request.timeout or journal.timeout,
            environ=self.request.environ, words=journal.words,
            guarded=self.request.guarded and journal.guarded, once_more=True,
        )  # fmt: skip

    def _refuse_unless_launchable(self, profile: Profile, head: Node, abort_hint: str) -> None:
        """Refuse before any change where ``${VAR}`` values of the profile are missing in this shell: only the first
        operator had them, and a new instance that serves by now has not failed by it.
        """
        try:
            build_launch_plan(
                profile,
                head,
                home="/",
                operator=self.ctx.operator,
                environ=self.request.environ,
            )
        except SparkctlError as error:
            raise OperationRefused(
                f"it cannot be resumed from here: {error.message}", "\n".join(filter(None, (error.hint, abort_hint)))
            ) from error


def decide_finish(verb: FinishVerb, step: SwitchStep) -> tuple[FinishAction, SwitchStep]:
    """Return what to do with a switch whose journal shows ``step``, and the step with which FORWARD begins."""
    if verb is FinishVerb.RESUME:
        if step is SwitchStep.CHECKING:
            return FinishAction.REPEAT, step
        if step in _ROLLBACK_STEPS:
            return FinishAction.ROLL_BACK, step
        return FinishAction.FORWARD, SwitchStep.STARTING if step is SwitchStep.LEFT else step
    if step in (SwitchStep.CLEARING, SwitchStep.DONE):
        return FinishAction.REFUSE, step
    if step is SwitchStep.CHECKING:
        return FinishAction.FORGET, step
    return FinishAction.ROLL_BACK if verb is FinishVerb.ABORT else FinishAction.ABANDON, step


def needs_profile(action: FinishAction, first: SwitchStep) -> bool:
    """Tell whether something is started, so that the profile must be loaded and be the one of the journal."""
    if action is FinishAction.FORWARD:
        return SwitchStep.STARTING in list_remaining_steps(first)
    return action is FinishAction.REPEAT


def choose_journal(views: Mapping[NodeName, SwitchJournalStatus | NodeError]) -> SwitchJournal | None:
    """Return the journal with the most progress, None if all nodes answered and none has one.

    Raises the error of a silent node if no other has a journal, and `OperationRefused` if one cannot be read, if they are
    of several switches, and if the switch still runs.
    """
    silent = [one for one in views.values() if isinstance(one, NodeError)]
    found = {name: one for name, one in views.items() if isinstance(one, SwitchJournalStatus)}
    for name, view in found.items():
        if view.found is JournalPresence.UNREADABLE:
            raise journals.build_switch_refusal(name, view, is_held=view.is_held)
    there = {name: one.journal for name, one in found.items() if one.journal is not None}
    if not there:
        if silent:
            raise silent[0]
        return None
    if len({one.id for one in there.values()}) > 1:
        raise OperationRefused(
            "there is more than one unfinished switch: "
            + "; ".join(f"{name}: to {one.instance}" for name, one in there.items()),
            "name a node of the one you mean: --node",
        )
    for name, view in found.items():
        if view.journal is not None and view.is_held:
            raise journals.build_switch_refusal(name, view, is_held=True)
    return max(there.values(), key=lambda one: _STEP_ORDER.index(one.step))


def is_still_unfinished(journal: SwitchJournal, found: Sequence[SwitchJournal | None]) -> bool:
    """Tell whether the nodes' journals, read again under the locks, are still those of this switch as it was left."""
    return journal in found and all(one is None or one.id == journal.id for one in found)
