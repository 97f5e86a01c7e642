"""The network between simulated Sparks, and the ranks that connect. A cut cable removes the fabric's addresses, not the LAN's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, TypeVar

from sparkctl.concurrency import run_until_first
from sparkctl.engines.simulation.engine_launch import RankRendezvous, RendezvousKind, SimLaunch, SocketAddress
from sparkctl.model.lazy_dataclass import dataclass

T = TypeVar("T")
ReachabilityCheck = Callable[[str, str], bool]  # a node's name and an address
SleepFunction = Callable[[float], Awaitable[None]]


class LossReason(StrEnum):
    """How the other ranks lost a rank."""

    DIED = "died"
    CUT = "cut"  # it lives, but cannot be reached
    RAISED = "raised"  # it lives, but its engine process ended with an error that the head receives


@dataclass(frozen=True, slots=True)
class RankLoss:
    """The rank at ``address`` is lost; ``said`` is its error, if the others receive one."""

    how: LossReason
    address: str
    said: str = ""


class RendezvousTimeout(Exception):
    """The others did not come in time: how many came, and how many were expected."""

    def __init__(self, have: int, of: int) -> None:
        super().__init__(f"{have} of {of}")
        self.have, self.of = have, of


@dataclass(eq=False, kw_only=True)
class RankMember:
    """One rank of a model. ``node``: its Spark; ``address``: its own; ``running``: requests that it works on now."""

    launch: SimLaunch
    node: str
    joining: RankRendezvous
    address: str
    running: Callable[[], int]
    rank: int | None
    group: RankGroup | None = None


@dataclass(eq=False, kw_only=True)
class RankGroup:
    """The connected ranks of one start; ``loss`` is the first lost rank."""

    head: RankMember
    count: int
    members: dict[int, RankMember] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    headless: asyncio.Event = field(default_factory=asyncio.Event)
    here: set[int] = field(default_factory=set)  # ranks that have loaded
    loss: RankLoss | None = None

    def add_member(self, member: RankMember) -> None:
        """Add a rank; a Ray rank gets the next number."""
        if member.rank is None:
            member.rank = next(rank for rank in range(len(self.members) + 1) if rank not in self.members)
        self.members[member.rank] = member
        member.group = self
        if len(self.members) == self.count:
            self.complete.set()

    def mark_loaded(self, member: RankMember) -> None:
        """Mark a rank as loaded; it waits until all others have loaded."""
        self.here.add(member.rank or 0)
        if len(self.here) == self.count:
            self.loaded.set()

    def mark_lost(self, how: LossReason, member: RankMember, said: str = "") -> None:
        """Record the end of a rank; only the first one counts."""
        if self.loss is None:
            self.loss = RankLoss(how, member.address, said)
            self.lost.set()

    def loss_seen_by(self, member: RankMember) -> RankLoss:
        """Return what a rank notices of the loss: with a cut cable, that another one is silent."""
        assert self.loss is not None
        other = next((one.address for one in self.members.values() if one is not member), self.loss.address)
        return replace(self.loss, address=other) if self.loss.how is LossReason.CUT else self.loss


class RankNetwork:
    """One for all nodes. ``reaches``: whether a node shares a network with an address; ``is_cable``: whether that is on the cable."""

    def __init__(self, reaches: ReachabilityCheck, is_cable: Callable[[str], bool]) -> None:
        self.is_cut = False
        self.courtesy = 3.0  # of our seconds that anybody waits at least, however fast time goes
        self._reaches = reaches
        self._is_cable = is_cable
        self._open: dict[SocketAddress, RankGroup] = {}  # where heads wait
        self._serving: dict[SocketAddress, RankMember] = {}  # where workers wait to be found
        self._news = asyncio.Event()

    def is_reachable(self, node: str, address: str) -> bool:
        """Tell whether a node reaches an address now."""
        return self._reaches(node, address) and not (self.is_cut and self._is_cable(address))

    def cut_cable(self) -> None:
        """Cut the cable: groups that are connected through it lose a rank."""
        self.is_cut = True
        for group in {id(one): one for one in self._open.values()}.values():
            if self._is_cable(group.head.joining.main_address[0]):
                group.mark_lost(LossReason.CUT, group.head)
        self._notify_waiters()

    async def join_group(self, member: RankMember, sleep: SleepFunction) -> RankGroup:
        """Find the other ranks, or raise `RendezvousTimeout` when the patience ends; ``sleep`` uses the node's time."""
        joining = member.joining
        if joining.bond.is_dialed_by_head:
            if not joining.is_head:
                return await self._wait_for_head(member)
            await self._wait_with_limit(self._wait_for_workers(joining), sleep(joining.patience or 0.0))
            return self._connect_to_workers(member)
        assert joining.patience is not None
        if joining.is_head:
            group = member.group or self.open_group(member)
        else:
            found = await self._wait_with_limit(self._find_head_group(member), sleep(joining.patience))
            if found is None:
                raise RendezvousTimeout(0, joining.count)
            group = found
            group.add_member(member)
            self._notify_waiters()
        if joining.bond is RendezvousKind.RAY and not joining.is_head:
            await group.complete.wait()  # it is in the cluster; what it is for, it hears when all are
        elif await self._wait_with_limit(group.complete.wait(), sleep(joining.patience)) is None:
            raise RendezvousTimeout(len(group.members), group.count)
        return group

    def open_group(self, head: RankMember) -> RankGroup:
        """Make a head visible before it waits for anybody."""
        group = self._open[head.joining.main_address] = RankGroup(head=head, count=head.joining.count)
        group.add_member(head)
        self._notify_waiters()
        return group

    async def _wait_for_head(self, member: RankMember) -> RankGroup:
        member.group = None
        self._serving[member.joining.main_address] = member
        while member.group is None:
            await self._news.wait()
        return member.group

    async def _wait_for_workers(self, joining: RankRendezvous) -> None:
        while joining.patience and any(place not in self._serving for place in joining.places):
            await self._news.wait()

    async def _find_head_group(self, member: RankMember) -> RankGroup:
        place = member.joining.main_address
        while True:
            group = self._open.get(place)
            if group is not None and group.loss is None and self.is_reachable(member.node, place[0]):
                return group
            await self._news.wait()

    def _connect_to_workers(self, member: RankMember) -> RankGroup:
        places = member.joining.places
        servers = [self._serving.get(place) for place in places]
        there = [one for one in servers if one is not None and self.is_reachable(member.node, one.address)]
        if len(there) < len(places):
            raise RendezvousTimeout(len(there), len(places))
        group = RankGroup(head=member, count=1 + len(there))
        member.rank = 0
        group.add_member(member)
        for rank, server in enumerate(there, 1):
            server.rank = rank
            group.add_member(server)
        self._open[places[0]] = group
        self._notify_waiters()
        return group

    def leave_group(self, member: RankMember) -> None:
        if (group := member.group) is not None:
            group.mark_lost(LossReason.DIED, member)
            if group.head is member:
                group.headless.set()
        for place, there in list(self._open.items()):
            if there.head is member:
                del self._open[place]
        for place, server in list(self._serving.items()):
            if server is member:
                del self._serving[place]
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _wait_with_limit(self, coming: Coroutine[Any, Any, T], limit: Awaitable[None]) -> T | None:
        """Return the result, or None if the limit is over first."""

        async def wait_for_limit() -> None:
            await asyncio.gather(limit, asyncio.sleep(self.courtesy))

        _, found = await run_until_first(coming, wait_for_limit())
        return found
