"""A shared network: nothing is lost, no link carries more than it can, alone is at full pace, and order is nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib import Costs, Links, Mesh, Trace, retime, simulate
from lib.cluster.network import Network, Shares, paces
from lib.schedules.data_parallel import fully_sharded
from lib.trace import json_format as serial

shares = st.sampled_from([Fraction(1), Fraction(1, 10), Fraction(2, 5), Fraction(1, 3)])
needs = st.dictionaries(st.integers(0, 4), shares, max_size=4)


@given(st.lists(needs, max_size=6))
def test_no_link_carries_more_than_it_can_and_who_is_slow_passes_a_full_one(flows: list[Shares]) -> None:
    found = paces(flows)
    used = {link: sum(f.get(link, 0) * p for f, p in zip(flows, found, strict=True)) for f in flows for link in f}
    assert all(amount <= 1 for amount in used.values())
    for flow, pace in zip(flows, found, strict=True):
        assert 0 < pace <= 1
        full = [link for link in flow if used[link] == 1]
        fastest = [max(p for f, p in zip(flows, found, strict=True) if link in f) for link in full]
        assert pace == 1 or pace in fastest  # nobody beside it there is faster


@given(st.lists(needs, max_size=6), st.randoms(use_true_random=False))
def test_paces_do_not_depend_on_the_order(flows: list[Shares], random: Random) -> None:
    order = list(range(len(flows)))
    random.shuffle(order)
    assert paces([flows[i] for i in order]) == [paces(flows)[i] for i in order]


@dataclass
class Noted:
    issued: int
    start: int | None = None
    length: int = 0


@dataclass
class Job:
    stream: int
    ready: int
    length: int
    noted: Noted = field(init=False)
    end: int | None = None

    def __post_init__(self) -> None:
        self.noted = Noted(self.ready)


class Roads(Costs):
    def __init__(self, links: Mapping[int, Shares]) -> None:
        self.__dict__["links"] = links

    def passes(self, members: Sequence[int]) -> Shares:
        return self.__dict__["links"][members[0]]

    def passes_at(self, way: str, rank: int, other: int) -> Shares:
        return {(way, rank): 1}


def carried(links: Mapping[int, Shares], jobs: list[Job], order: Sequence[int] | None = None) -> Network:
    network = Network(Roads(links))
    for i in order or range(len(jobs)):
        job = jobs[i]

        def then(job: Job = job) -> None:
            job.end = network.now

        network.meet(job.stream, [job.stream], [job.noted], job.length, then)
    while network.step():
        pass
    return network


@st.composite
def traffic(draw: st.DrawFn) -> tuple[Mapping[int, Shares], list[Job]]:
    links: Any = draw(st.dictionaries(st.integers(0, 5), needs.filter(bool), min_size=1, max_size=6))
    times = st.integers(0, 50)
    return links, draw(st.lists(st.builds(Job, st.sampled_from(sorted(links)), times, times), max_size=9))


@given(traffic())
def test_what_is_carried_has_its_time_and_no_link_more_than_it_can(
    case: tuple[Mapping[int, Shares], list[Job]],
) -> None:
    links, jobs = case
    carried(links, jobs)
    for job in jobs:
        assert job.end is not None
        assert job.noted.start is not None
        assert job.noted.start >= job.ready
        assert job.noted.start + job.noted.length == job.end
        assert job.noted.length >= job.length
    for stream in links:
        mine = [job for job in jobs if job.stream == stream]
        for before, after in pairwise(mine):
            assert after.noted.start == max(after.ready, before.end or 0)
    # Whatever interval one takes: what lies wholly in it fits through the link.
    for link in {link for passed in links.values() for link in passed}:
        over = [(job, share) for job in jobs if (share := links[job.stream].get(link)) is not None]
        for begin in {job.noted.start for job, _ in over}:
            for end in {job.end for job, _ in over}:
                inside = [
                    j.length * s for j, s in over if (j.noted.start or 0) >= (begin or 0) and (j.end or 0) <= (end or 0)
                ]
                assert sum(inside) <= max(0, (end or 0) - (begin or 0))


@given(traffic(), st.randoms(use_true_random=False))
def test_who_asks_first_changes_nothing(case: tuple[Mapping[int, Shares], list[Job]], random: Random) -> None:
    links, jobs = case
    again = [Job(job.stream, job.ready, job.length) for job in jobs]
    keys = [random.random() for _ in jobs]
    order = sorted(range(len(jobs)), key=lambda i: keys[i])
    by_stream = {s: iter([i for i, job in enumerate(jobs) if job.stream == s]) for s in links}
    carried(links, jobs)
    carried(links, again, [next(by_stream[jobs[i].stream]) for i in order])  # each stream keeps its order
    assert [(job.noted, job.end) for job in again] == [(job.noted, job.end) for job in jobs]


@given(traffic())
def test_alone_is_at_full_pace(case: tuple[Mapping[int, Shares], list[Job]]) -> None:
    links, jobs = case
    apart = [Job(job.stream, 100 * i, job.length) for i, job in enumerate(jobs)]
    carried(links, apart)
    assert [(job.noted.start, job.noted.length) for job in apart] == [(job.ready, job.length) for job in apart]


@given(st.integers(1, 8), st.integers(0, 100), shares)
def test_equal_flows_end_together_and_no_work_is_lost(count: int, length: int, share: Fraction) -> None:
    jobs = [Job(i, 0, length) for i in range(count)]
    carried({i: {"a": share} for i in range(count)}, jobs)
    assert {job.end for job in jobs} == {ceil(length * max(1, count * share))}


HSDP = fully_sharded("shard", "replica")


@given(st.permutations(range(8)), st.sampled_from([(2, 4), (4, 2)]))
def test_devices_in_another_order_are_the_same_run_where_hosts_move_with_them(
    names: list[int], sizes: tuple[int, int]
) -> None:
    axes: dict[str, int] = dict(zip(("replica", "shard"), sizes, strict=True))
    mixed = Trace.of(simulate(HSDP, layers=2, batches=8, mesh=Mesh(axes, ranks=names), costs=Links(host_size=2)))
    assert serial.encode(retime(mixed, mixed.costs)) == serial.encode(mixed)

    class Seated(Links):
        def _host(self, rank: int) -> int:
            return names[rank] // 2

    # Rank i of a mesh in order does the work of rank names[i], but for which batches are whose.
    straight = Trace.of(simulate(HSDP, layers=2, batches=8, mesh=Mesh(axes), costs=Seated(host_size=2)))
    for rank, name in enumerate(names):
        mine, its = straight.programs[rank].events, mixed.programs[name].events
        assert [(e.op, e.start, e.length) for e in its] == [(e.op, e.start, e.length) for e in mine]
