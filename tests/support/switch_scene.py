"""Two simulated Sparks with one model on both, for what switches it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.switch.finish_switch import FinishSwitch, FinishVerb
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Event, SwitchStepReported
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimClock, SimulatedSparks
from sparkctl.simulator.sim_container import SimContainer
from sparkctl.simulator.simulated_sparks import _plan_ranks as ranks
from sparkctl.simulator.simulated_sparks import _start_ready_engine as start
from tests.support.events import collect_events_and_end
from tests.support.sim_clients import wait_until_true

OLD, NEW = "qwen36-tp2", "qwen36-ngram"
SPEED = 16.0  # ten minutes, as long as ranks wait for each other, are nearly a second
FAULT = ("env.SIM_FAULT=cuda-oom",)


class SwitchScene:
    """Two simulated Sparks with the big model on both, and an operator."""

    def __init__(self, sparks: SimulatedSparks, state: Path) -> None:
        self.sparks = sparks
        self.state = state
        self.nodes = load_config(sparks.config_path).nodes
        self.old = self.running()

    def ctx(self, operator: str = "milo@laptop") -> CommandContext:
        return CommandContext(history=OperationHistory(self.state), operator=operator)

    def request(self, overrides: tuple[str, ...] = (), **more: bool) -> SwitchInstance:
        profile = ProfileLibrary(shipped_profiles_dir()).load_profile(NEW, overrides=overrides)
        words = (NEW, *(word for one in overrides for word in ("--set", one)))
        return SwitchInstance(
            profile=profile,
            nodes=(self.nodes[0],),
            known=self.nodes,
            words=words,
            guarded=False,
            **more,
        )

    async def speech_beside(self) -> set[str]:
        """Start a small model on the second Spark, which stays where another is switched; return its containers."""
        profile = ProfileLibrary(shipped_profiles_dir()).load_profile("kokoro-tts")
        tts = replace(
            self.request().to_start_request(), profile=profile, nodes=(self.nodes[1],),
            words=("kokoro-tts",), forced=True,
        )  # fmt: skip
        _, ended = await collect_events_and_end(start_instance(self.ctx(), tts))
        assert ended.exit_code == 0, ended
        return self.running()["kokoro-tts"]

    def finish(self) -> FinishSwitch:
        return FinishSwitch(nodes=self.nodes, known=self.nodes, guarded=False)

    def running(self) -> dict[str, set[str]]:
        """Return the ids of what runs, by instance."""
        found: dict[str, set[str]] = {}
        for docker in self.sparks.docker.values():
            for one in docker.containers.values():
                if one.state == "running":
                    found.setdefault(one.labels[ContainerLabel.INSTANCE], set()).add(one.id)
        return found

    def all(self) -> set[str]:
        return {one.id for docker in self.sparks.docker.values() for one in docker.containers.values()}

    @property
    def journals(self) -> list[str | None]:
        return [node.journal for node in self.sparks.nodes.values()]

    def is_old(self) -> bool:
        """Whether exactly the old model runs, whole, in the very same containers, and nothing else is left."""
        return self.running() == self.old and self.all() == set().union(*self.old.values())

    def is_new(self) -> bool:
        """Whether exactly the new one runs, and nothing of the old one is left."""
        return set(self.running()) == {NEW} and len(self.all()) == 1

    def cut_link_at(self, action: str, *, instance: str, is_for_good: bool) -> None:
        """Break the link of the first Spark when its Docker does something with a container of that instance."""
        docker, sshd = self.sparks.docker["spark1"], self.sparks.sshd["spark1"]
        publish = docker.publish_event

        def publish_and_cut(did: str, container: SimContainer, **more: str) -> None:
            publish(did, container, **more)
            if did == action and container.labels.get(ContainerLabel.INSTANCE) == instance:
                docker.publish_event = publish  # type: ignore[method-assign]
                if is_for_good:
                    sshd.unplug()
                else:
                    sshd.drop_connections()

        docker.publish_event = publish_and_cut  # type: ignore[method-assign]

    def silence(self) -> None:
        """Let the first Spark hear nothing more: its connections stay, and nobody new gets in."""
        for login in self.sparks.sshd["spark1"].logins:
            login.data_received = lambda *_: None  # type: ignore[method-assign,misc,assignment]
        self.sparks.sshd["spark1"].stop_listening()

    async def plug_in(self) -> None:
        """Let the first Spark be reached again."""
        await self.sparks.sshd["spark1"].listen(port=self.sparks.ports["spark1"])

    async def interrupted(self, at: SwitchStep) -> CommandEnded:
        """Switch, press Ctrl-C at each event of a step, and return the end."""
        ctx = self.ctx()
        async with aclosing(switch_instance(ctx, self.request())) as events:
            async for event in events:
                if isinstance(event, SwitchStepReported) and event.step is at:
                    ctx.interrupt.record_press()
        assert isinstance(event, CommandEnded)
        return event

    async def crash(self, events: AsyncGenerator[Event, None], at: Callable[[Event], bool]) -> bool:
        """Run until an event, then end as a killed process does: its connections break, its work is abandoned.

        Returns whether the event came."""
        seen = False
        async with aclosing(events):
            async for event in events:
                if at(event):
                    seen = True
                    for sshd in self.sparks.sshd.values():
                        sshd.drop_connections()
                    break
        await wait_until_true(lambda: not any(node.locks for node in self.sparks.nodes.values()))
        return seen


@asynccontextmanager
async def open_two_rank_model(
    state: Path, speed: float = SPEED, clock: SimClock | None = None
) -> AsyncGenerator[SwitchScene, None]:
    """Two Sparks that share one model, ranks of SGLang: they wait ten minutes for each other, those of Ray half a minute."""
    async with SimulatedSparks("empty", speed=speed, decode_speed=200.0, clock=clock) as sparks:
        nodes = list(sparks.docker.values())
        begun = [start(docker, made, 3600.0) for docker, made in zip(nodes, ranks(OLD, nodes), strict=True)]
        for process in begun:
            await process.ready.wait()
        yield SwitchScene(sparks, state)


def list_switch_steps(events: list[Event]) -> list[SwitchStep]:
    return [event.step for event in events if isinstance(event, SwitchStepReported) and event.proof is None]


def resume_switch(ctx: CommandContext, request: FinishSwitch) -> AsyncGenerator[Event, None]:
    """Run `sparkctl resume`."""
    return replace(request, way=FinishVerb.RESUME).run(ctx)


def abort_switch(ctx: CommandContext, request: FinishSwitch) -> AsyncGenerator[Event, None]:
    """Run `sparkctl abort`."""
    return replace(request, way=FinishVerb.ABORT).run(ctx)


def abandon_switch(ctx: CommandContext, request: FinishSwitch) -> AsyncGenerator[Event, None]:
    """Run `sparkctl abort --give-up`."""
    return replace(request, way=FinishVerb.ABANDON).run(ctx)
