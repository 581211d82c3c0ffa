"""A small journal of a simulated run, made by hand."""

from __future__ import annotations

from dataclasses import replace

from barnabas_wire.run_journal import Belief, Journal, Step


def belief(node: int, *, log_end: int = 3, is_up: bool = True) -> Belief:
    return Belief(
        node=node,
        is_up=is_up,
        life=1,
        role="leader" if node == 1 else "follower",
        epoch=2,
        leader=1,
        voted=1,
        voters=(1, 2, 3),
        metadata_end=9,
        metadata_committed=8,
        fenced=(),
        partition_role="leader" if node == 2 else "follower",
        leader_epoch=0,
        partition_leader=2,
        log_end=log_end,
        flushed_end=min(log_end, 2),
        high_watermark=1,
        isr=(1, 2, 3),
        is_damaged=False,
    )


def small_journal() -> Journal:
    first = Step(
        step=1,
        at_ms=10,
        kind="elected",
        node=1,
        what="Node 1 leads the quorum in epoch 2",
        law="R1 one leader per epoch",
        why="Two of three voted for it.",
        cut=(),
        beliefs=tuple(belief(node) for node in (1, 2, 3)),
    )
    return Journal(
        scenario="made-by-hand",
        title="A small run",
        about="Nothing goes wrong but what the steps say.",
        seed=7,
        nodes=(1, 2, 3),
        min_insync=2,
        partition="records-0",
        steps=(
            first,
            replace(first, step=2, at_ms=20, kind="append", node=2, what="Node 2 writes record 2"),
            replace(
                first,
                step=3,
                at_ms=30,
                kind="fault",
                node=3,
                what="Node 3 is cut off from <nodes> {1, 2}",
                cut=((1, 3), (3, 1)),
                beliefs=(belief(1), belief(2, log_end=5), belief(3, is_up=False)),
            ),
        ),
        is_kept=True,
        at_ms=40,
        acknowledged=1,
        verdict="Every law held.",
    )


def text_of(journal: Journal) -> bytes:
    return "".join(f"{line}\n" for line in journal.lines()).encode()
