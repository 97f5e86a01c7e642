"""What has to stop so that something else can start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.commands.switch.switch_planner import IncomingRank, NodeInventory, plan_switch
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan, PhaseTimeouts, ReadinessRule
from sparkctl.model.memory_fit import EstimatePart, EstimateSource, FitOutcome, MemoryBudget, MemoryFit, MemoryHolder
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchConflict, SwitchPlan
from sparkctl.model.text.units import GIB
from sparkctl.monitor.ranks import RankContainer, group_by_instance

NODES = (NodeName("spark1"), NodeName("spark2"))
TOTAL = 120 * GIB


def make_launch_plan(node: NodeName, *, port: int | None = 8000, group: str | None = None) -> LaunchPlan:
    labels = ((ContainerLabel.GROUP, group),) if group else ()
    return LaunchPlan(
        node=node,
        instance="new",
        profile="new",
        profile_hash="feedfacecafe",
        engine="vllm",
        container_name="vllm-new",
        image="image:1",
        entrypoint=None,
        command=(),
        env=(),
        mounts=(),
        gpus=None,
        shm_size=None,
        ipc=None,
        network="host",
        ulimits=(),
        devices=(),
        options=(),
        labels=labels,
        port=port,
        served_model=None,
        api_key=None,
        ready=ReadinessRule(line=None, health=None, probe="none"),
        timeouts=PhaseTimeouts(),
        drop_caches=True,
        stop_grace=30.0,
        expected_memory=None,
        floor_memory=None,
    )


def make_container(
    name: str,
    *,
    instance: str | None = None,
    port: int | None = None,
    rank: str | None = None,
    run: str | None = None,
    **more: str,
) -> Container:
    labels = {
        ContainerLabel.INSTANCE: instance,
        ContainerLabel.RANK: rank,
        ContainerLabel.RUN: run,
        ContainerLabel.HASH: "old" if instance else None,
    }
    labels[ContainerLabel.NODES] = ",".join(NODES) if rank else None
    labels |= {f"{ContainerLabel.PREFIX}{key}": value for key, value in more.items()}
    pairs = tuple((key, value) for key, value in labels.items() if value is not None)
    return Container(
        id=f"id-{name}",
        name=name,
        image="image",
        state=ContainerState.RUNNING,
        status="Up",
        created=0.0,
        labels=pairs,
        ports=(port,) if port else (),
    )


def make_rank_container(node: NodeName, memory: int | None, one: Container, port: int | None = None) -> RankContainer:
    return RankContainer(node, one, None if memory is None else memory * GIB, port)


def make_inventory(
    node: NodeName, *occupants: RankContainer, need: int | None = None, port: int | None = 8000, group: str | None = None,
    has_image: bool = True,
) -> NodeInventory:  # fmt: skip
    """Return a node of 120 GiB; ``need`` GiB is what is to start there."""
    memory = sum(one.held or 0 for one in occupants)

    def fit(gone: frozenset[str]) -> MemoryFit:
        back = sum(one.held or 0 for one in occupants if one.container.id in gone)
        room = TOTAL - memory + back
        holders = tuple(
            MemoryHolder(
                name=one.name, ours=one.container.is_managed, held=one.held, is_replaced=one.container.id in gone
            )
            for one in occupants
        )
        standing = MemoryBudget(total=TOTAL, available=TOTAL - memory, droppable=0, holders=holders)
        size = (need or 0) * GIB
        foreign = tuple(
            one.name for one in occupants if not one.container.is_managed and room + (one.held or 0) >= size
        )
        answer = FitOutcome.FITS if room >= size else FitOutcome.IF_STOPPED if foreign else FitOutcome.SHORT
        stops = foreign[:1] if answer is FitOutcome.IF_STOPPED else ()
        return MemoryFit(
            node=node,
            profile="new",
            answer=answer,
            parts=(EstimatePart(name="all", size=size, obtained=EstimateSource.PROFILE),),
            standing=standing,
            stops=stops,
        )

    coming = (
        None
        if need is None
        else IncomingRank(
            plan=make_launch_plan(node, port=port, group=group), has_image=has_image, image_hint="make it", fit=fit
        )
    )
    return NodeInventory(
        node=node,
        occupants=tuple(occupants),
        total=TOTAL,
        available=TOTAL - memory,
        listening=frozenset({22}),
        coming=coming,
    )


def list_conflicts(made: SwitchPlan) -> dict[str, tuple[SwitchConflict, ...]]:
    return {one.container: one.conflicts for change in made.changes for one in change.tenants}


def test_only_what_frees_enough_memory_is_stopped() -> None:
    tts = make_rank_container(NODES[0], 10, make_container("tts", instance="tts"), 9000)
    large = make_rank_container(NODES[0], 70, make_container("llm", instance="llm"), 9001)
    made = plan_switch("new", NODES[:1], [make_inventory(NODES[0], tts, large, need=45)])
    assert list_conflicts(made) == {"tts": (SwitchConflict.MEMORY,), "llm": ()}, "10 GiB are enough, and fewer are lost"
    made = plan_switch("new", NODES[:1], [make_inventory(NODES[0], tts, large, need=60)])
    assert list_conflicts(made) == {"tts": (), "llm": (SwitchConflict.MEMORY,)}
    assert made.stops == ("llm",)
    assert made.changes[0].available_after == (120 - 80 + 70 - 60) * GIB
    made = plan_switch("new", NODES[:1], [make_inventory(NODES[0], tts, large, need=30)])
    assert made.stops == ()
    assert not made.obstacles


def test_what_fits_by_a_few_gib_only_is_said_to_be_tight() -> None:
    tts = make_rank_container(NODES[0], 10, make_container("tts", instance="tts"), 9000)
    roomy, tight = (plan_switch("new", NODES[:1], [make_inventory(NODES[0], tts, need=need)]) for need in (100, 107))
    assert roomy.cautions == ()
    assert tight.cautions == ("spark1: tight: new fits with 3.0 GiB to spare, and may run out of memory",)
    assert not tight.stops


def test_a_model_over_two_sparks_goes_whole_and_the_other_spark_is_free() -> None:
    head = make_rank_container(NODES[0], 100, make_container("head", instance="big", rank="0/2", run="r1"), 8010)
    worker = make_rank_container(NODES[1], 99, make_container("worker", instance="big", rank="1/2", run="r1"))
    made = plan_switch("new", NODES[:1], [make_inventory(NODES[0], head, need=60), make_inventory(NODES[1], worker)])
    assert list_conflicts(made) == {"head": (SwitchConflict.MEMORY,), "worker": (SwitchConflict.NODES,)}
    assert [change.node for change in made.changes] == list(NODES)
    assert made.changes[1].is_free_after
    assert made.changes[1].available_after == TOTAL


def test_ranks_without_labels_belong_together_by_their_divided_model_and_twins_do_not() -> None:
    divided = json.dumps({"weights": 10**11, "ranks": 2})
    ranks = [
        make_rank_container(node, 90, make_container(f"r-{node}", instance="big", **{"per-step": divided}))
        for node in NODES
    ]
    assert [one.nodes for one in group_by_instance(ranks)] == [NODES]
    twins = [make_rank_container(node, 90, make_container(f"t-{node}", instance="same")) for node in NODES]
    assert [one.nodes for one in group_by_instance(twins)] == [NODES[:1], NODES[1:]], (
        "one on each Spark, and each by itself"
    )


def test_what_is_not_ours_is_named_and_never_stopped() -> None:
    comfy = make_rank_container(NODES[0], 80, make_container("comfyui"))
    made = plan_switch("new", NODES[:1], [make_inventory(NODES[0], comfy, need=60)])
    assert made.stops == ()
    (sentence,) = made.obstacles
    assert "comfyui on spark1 holds the memory" in sentence
    assert "docker stop comfyui" in sentence
    web = make_rank_container(NODES[0], 1, make_container("web", port=8000))
    (sentence,) = plan_switch("new", NODES[:1], [make_inventory(NODES[0], web, need=60)]).obstacles
    assert "web on spark1 has port 8000" in sentence


def test_same_port_same_group_and_other_versions_are_stopped() -> None:
    same_port = make_rank_container(NODES[0], 1, make_container("a", instance="a"), 8000)
    of_group = make_rank_container(NODES[0], 1, make_container("b", instance="b", group="llm"), 9000)
    version = make_rank_container(NODES[0], 1, make_container("c", instance="new"), 9001)
    other = make_rank_container(NODES[0], 1, make_container("d", instance="d", group="tts"), 9002)
    made = plan_switch(
        "new", NODES[:1], [make_inventory(NODES[0], same_port, of_group, version, other, need=1, group="llm")]
    )
    assert list_conflicts(made) == {
        "a": (SwitchConflict.PORT,),
        "b": (SwitchConflict.GROUP,),
        "c": (SwitchConflict.INSTANCE,),
        "d": (),
    }


def test_a_silent_spark_that_holds_a_rank_is_an_obstacle_unless_told_to_keep_going() -> None:
    head = make_rank_container(NODES[0], 100, make_container("head", instance="big", rank="0/2", run="r1"), 8010)
    sites = [make_inventory(NODES[0], head, need=60), NodeInventory(node=NODES[1], silent="no route to host")]
    made = plan_switch("new", NODES[:1], sites)
    assert any("big has a rank on spark2" in one for one in made.obstacles)
    made = plan_switch("new", NODES[:1], sites, keep_going=True)
    assert not made.obstacles
    assert any("big has a rank on spark2" in one for one in made.cautions)
    alone = make_rank_container(NODES[0], 100, make_container("llm", instance="llm"), 8010)
    assert not plan_switch("new", NODES[:1], [make_inventory(NODES[0], alone, need=60), sites[1]]).obstacles, (
        "it has nothing to do with it"
    )


def test_a_running_identical_instance_needs_no_switch() -> None:
    same = make_container("vllm-new", instance="new")
    labels = tuple((key, "feedfacecafe" if key == ContainerLabel.HASH else value) for key, value in same.labels)
    same = Container(
        id=same.id, name=same.name, image=same.image, state=same.state, status=same.status, created=0.0, labels=labels
    )
    made = plan_switch(
        "new", NODES[:1], [make_inventory(NODES[0], make_rank_container(NODES[0], 60, same, 8000), need=60)]
    )
    assert made.is_there
    assert made.stops == ()


def test_a_missing_image_and_a_name_that_is_taken_are_obstacles() -> None:
    made = plan_switch("new", NODES[:1], [make_inventory(NODES[0], need=1, has_image=False)])
    assert (made.obstacles, made.hints) == (("spark1 does not have the image image:1",), ("make it",))
    foreign = make_rank_container(NODES[0], 1, make_container("vllm-new"))
    assert (
        "has the name that the new container"
        in plan_switch("new", NODES[:1], [make_inventory(NODES[0], foreign, need=1)]).obstacles[0]
    )


# whatever stands there


@st.composite
def draw_inventories(draw: st.DrawFn) -> tuple[tuple[NodeName, ...], list[NodeInventory]]:
    """Return where something is to start, and two Sparks with a few models, some over both, and some foreign containers."""
    on: dict[NodeName, list[RankContainer]] = {node: [] for node in NODES}
    for at in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(("ours", "foreign", "both")))
        memory, port = draw(st.integers(0, 40)), draw(st.sampled_from((None, 8000, 9000)))
        group = draw(st.sampled_from(("llm", "tts")))
        if kind == "both":
            for rank, node in enumerate(NODES):
                one = make_container(f"m{at}-{rank}", instance=f"m{at}", rank=f"{rank}/2", run=f"run{at}", group=group)
                on[node].append(make_rank_container(node, memory, one, port if rank == 0 else None))
            continue
        node = draw(st.sampled_from(NODES))
        one = (
            make_container(f"c{at}", port=port)
            if kind == "foreign"
            else make_container(f"c{at}", instance=f"i{at}", group=group)
        )
        on[node].append(make_rank_container(node, memory, one, port if kind == "ours" else None))
    targets = draw(st.sampled_from((NODES[:1], NODES[1:], NODES)))
    need, group = draw(st.integers(0, 130)), draw(st.sampled_from((None, "llm")))
    sites = [
        make_inventory(
            node,
            *on[node],
            need=need if node in targets else None,
            group=group,
            port=8000 if node == targets[0] else None,
        )
        for node in NODES
    ]
    return targets, sites


@given(draw_inventories())
def test_never_a_foreign_one_never_half_a_model_never_without_a_conflict(
    world: tuple[tuple[NodeName, ...], list[NodeInventory]],
) -> None:
    targets, sites = world
    made = plan_switch("new", targets, sites)
    tenants = [one for change in made.changes for one in change.tenants]
    goes = {one.container_id for one in tenants if one.must_stop}
    assert all(one.ours for one in tenants if one.must_stop)
    for whole in group_by_instance(each for one in sites for each in one.occupants):
        assert whole.container_ids <= goes or not whole.container_ids & goes
        reasons = {conflict for one in tenants if one.container_id in whole.container_ids for conflict in one.conflicts}
        assert reasons != {SwitchConflict.NODES}, "a model goes for a reason of its own"
    assert made.stops == tuple(sorted({one.instance for one in tenants if one.must_stop}))
    again = plan_switch("new", targets, list(reversed(sites)))
    assert again == made, "whoever is asked first"
    if made.is_possible:
        assert all(not change.fit.is_refused for change in made.changes if change.fit is not None)
        _assert_none_too_many(targets, sites, made)


def _assert_none_too_many(targets: Sequence[NodeName], sites: Sequence[NodeInventory], made: SwitchPlan) -> None:
    """Leave each that goes for memory alone where it is: then it does not fit."""
    goes = {one.container_id for change in made.changes for one in change.stopped_containers}
    for whole in group_by_instance(each for one in sites for each in one.occupants):
        why_ = {
            c
            for change in made.changes
            for one in change.stopped_containers
            if one.container_id in whole.container_ids
            for c in one.conflicts
        }
        if why_ and why_ <= {SwitchConflict.MEMORY, SwitchConflict.NODES}:
            kept = frozenset(goes - whole.container_ids)
            assert any(one.coming.fit(kept).is_refused for one in sites if one.coming is not None)


def test_the_very_same_with_its_ranks_in_another_order_or_in_part_is_called_so() -> None:
    def rank(node: NodeName, label: str, hash_: str) -> RankContainer:
        return make_rank_container(
            node, 90, make_container(f"{label[0]}", instance="new", rank=label, run="r1", hash=hash_)
        )

    same = "feedfacecafe"  # of what is to come
    turned = [
        make_inventory(NODES[1], rank(NODES[1], "1/2", same), need=60),
        make_inventory(NODES[0], rank(NODES[0], "0/2", same), need=60),
    ]
    assert set(list_conflicts(plan_switch("new", NODES[::-1], turned)).values()) == {(SwitchConflict.PLACES,)}
    half = [make_inventory(NODES[0], rank(NODES[0], "0/2", same), need=60), make_inventory(NODES[1], need=60)]
    assert list_conflicts(plan_switch("new", NODES, half)) == {"0": (SwitchConflict.PART,)}
    older = [make_inventory(node, rank(node, f"{at}/2", "older"), need=60) for at, node in enumerate(NODES)]
    assert set(list_conflicts(plan_switch("new", NODES, older)).values()) == {(SwitchConflict.INSTANCE,)}


def test_where_the_sum_is_not_known_who_holds_most_is_named_with_what_frees_it() -> None:
    def asked(*there: RankContainer, others: Sequence[NodeInventory] = ()) -> tuple[str, ...]:
        def fit(gone: frozenset[str]) -> MemoryFit:
            return MemoryFit(
                node=NODES[0],
                profile="new",
                answer=FitOutcome.UNKNOWN,
                cautions=("$SHARE is not there yet", "another thing"),
            )

        made = plan_switch(
            "new",
            NODES[:1],
            [
                replace(
                    make_inventory(NODES[0], *there, need=1),
                    coming=IncomingRank(plan=make_launch_plan(NODES[0]), has_image=True, fit=fit),
                ),
                *others,
            ],
        )
        assert made.stops == ()
        return made.cautions

    said = asked(
        make_rank_container(NODES[0], 10, make_container("tts", instance="tts")),
        make_rank_container(NODES[0], 70, make_container("llm", instance="llm")),
    )
    assert said == (
        "whether new fits on spark1 is not known: $SHARE is not there yet",
        "so nothing stops for memory on spark1, where llm holds most: 70.0 GiB. To have it first: sparkctl down llm --node spark1",
        "spark1: another thing",
    )
    assert "on spark1: docker stop comfyui" in asked(make_rank_container(NODES[0], 70, make_container("comfyui")))[1]
    ranks = [
        make_rank_container(node, 90, make_container(f"r-{node}", instance="big", rank=f"{at}/2", run="r"))
        for at, node in enumerate(NODES)
    ]
    assert asked(ranks[0], others=[make_inventory(NODES[1], ranks[1])])[1].endswith("sparkctl down big"), "all of it"
    assert len(asked()) == 2, "nobody holds anything"


def test_of_everything_that_starts_the_files_are_there_or_there_is_no_switch() -> None:
    def build_start(name: str, absent: str | None) -> IncomingRank:
        fit = MemoryFit(node=NODES[0], profile=name, answer=FitOutcome.FITS, absent=absent)
        plan = replace(make_launch_plan(NODES[0], port=None), instance=name, container_name=name)
        return IncomingRank(plan=plan, has_image=True, model_hint=f"pull {name}", fit=lambda _: fit)

    def plan_with_absent(*absent: str | None) -> SwitchPlan:
        first, second, last = (build_start(f"m{at}", path) for at, path in enumerate(absent))
        site = replace(make_inventory(NODES[0]), needs=(first, second), coming=last)
        return plan_switch("m2", NODES[:1], [site])

    assert plan_with_absent(None, None, None).is_possible
    for at in range(3):
        paths = [f"/models/{at}" if at == each else None for each in range(3)]
        made = plan_with_absent(*paths)
        assert made.obstacles == (f"the model /models/{at} is missing or incomplete on spark1",)
        assert made.hints == (f"pull m{at}",)
    assert len(plan_with_absent("/a", "/b", "/c").obstacles) == 3
