"""The bundled scenarios: what goes wrong, and when. Everything else is the seed's.

May touch:  nothing, it is a table.   Must not touch: the simulation.
Invariants: times count from the moment at which the topic is there and the client writes; they rise; every scenario ends with all mended.
Read next:  script.py, which plays them; scripted.py.
"""

from __future__ import annotations

from enum import Enum

from barnabas_wire.lazy_dataclass import dataclass


class Deed(Enum):
    """What is done."""

    POWER_OFF = "power off"
    """The node stops at once: its disk keeps what was flushed and any part of the rest."""
    POWER_ON = "power on"
    CUT_OFF = "cut off"
    """Nothing goes from the node to the others, nor back. Clients reach everybody."""
    MEND = "mend"
    """All links are open again."""
    LOSE_FETCHES = "lose fetches"
    """What the follower asks its leader for does not arrive; everything else does."""
    FLIP_A_BIT = "flip a bit"
    """A bit flips in the oldest record of the node's replica, on its disk."""
    LOSE_MACHINES = "lose machines"
    """Two nodes are gone with their disks; the one that neither leads the quorum nor, if it can be, the partition is left."""
    RECOVER = "recover"
    """An operator begins the quorum again from the survivor, by the code of `quorum recover`."""
    ELECT = "elect"
    """The operator says that the node's replica is the one to continue with, though the cluster cannot know it (unclean
    election)."""
    NEW_MACHINE = "new machine"
    """One of the lost nodes is there again, with empty disks."""
    ADD_VOTER = "add voter"
    """The operator lets it vote again."""


class Whom(Enum):
    """The node that it is done to; found when the moment comes."""

    PARTITION_LEADER = "who leads the partition"
    QUORUM_LEADER = "who leads the quorum"
    FOLLOWER = "a follower of the partition"
    THE_SAME = "whoever was struck last"
    EVERYBODY = "all nodes"
    FIRST_LOST = "the first of the lost"
    SECOND_LOST = "the second of the lost"
    SURVIVOR = "the survivor"


@dataclass(frozen=True, slots=True)
class Act:
    """One line of a script."""

    at_s: float
    deed: Deed
    whom: Whom


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A script, and what to look for in it."""

    name: str
    title: str
    about: str
    acts: tuple[Act, ...]
    ends_s: float
    """Virtual seconds; then everything is mended, and the whole history judged."""


SCENARIOS = {
    each.name: each
    for each in (
        Scenario(
            name="leader-dies",
            title="A leader dies",
            about="First the broker that leads the partition loses its power, then the leader of the quorum. Look for the few seconds "
            "in which the dead one still leads in everybody's mind, for the vote that ends them, and for what it finds when it is back.",
            acts=(
                Act(4.0, Deed.POWER_OFF, Whom.PARTITION_LEADER),
                Act(13.0, Deed.POWER_ON, Whom.THE_SAME),
                Act(18.0, Deed.POWER_OFF, Whom.QUORUM_LEADER),
                Act(27.0, Deed.POWER_ON, Whom.THE_SAME),
            ),
            ends_s=32.0,
        ),
        Scenario(
            name="network-splits",
            title="A network splits",
            about="Who leads the quorum is cut off from the other two, and later who leads the partition, while the client still reaches "
            "everybody. Look for two nodes that believe that they lead, and for why only one of them can promise anything.",
            acts=(
                Act(4.0, Deed.CUT_OFF, Whom.QUORUM_LEADER),
                Act(15.0, Deed.MEND, Whom.THE_SAME),
                Act(20.0, Deed.CUT_OFF, Whom.PARTITION_LEADER),
                Act(31.0, Deed.MEND, Whom.THE_SAME),
            ),
            ends_s=36.0,
        ),
        Scenario(
            name="follower-falls-behind",
            title="A follower falls behind",
            about="What one follower asks its leader for is lost, and nothing else. Look for the writes that wait for it, for the moment "
            "at which it leaves the in-sync set, and for what it must hold before it is let in again.",
            acts=(Act(4.0, Deed.LOSE_FETCHES, Whom.FOLLOWER), Act(15.0, Deed.MEND, Whom.THE_SAME)),
            ends_s=21.0,
        ),
        Scenario(
            name="disk-rots",
            title="A disk rots",
            about="A bit flips on the leader's disk, in a record that was acknowledged long ago. Look for how long nobody knows, for who "
            "leads when the scrub has found it, and for where the sound bytes come from.",
            acts=(Act(4.0, Deed.FLIP_A_BIT, Whom.PARTITION_LEADER),),
            ends_s=26.0,
        ),
        Scenario(
            name="power-cut",
            title="The power goes out everywhere",
            about="All three nodes lose their power in one instant, while records are on their way. Look for what each finds on its disk, "
            "and that nothing that the client has an acknowledgement of is missing.",
            acts=(Act(4.0, Deed.POWER_OFF, Whom.EVERYBODY), Act(6.0, Deed.POWER_ON, Whom.EVERYBODY)),
            ends_s=16.0,
        ),
        Scenario(
            name="two-voters-lost",
            title="Two voters are lost",
            about="Two of three machines are gone with their disks: nobody can be elected any more. Look for the node that is left and can "
            "do nothing, for what an operator gives up by beginning anew from it, and for how the cluster grows back to three.",
            acts=(
                Act(4.0, Deed.LOSE_MACHINES, Whom.SURVIVOR),
                Act(12.0, Deed.RECOVER, Whom.SURVIVOR),
                Act(17.0, Deed.ELECT, Whom.SURVIVOR),
                Act(20.0, Deed.NEW_MACHINE, Whom.FIRST_LOST),
                Act(27.0, Deed.NEW_MACHINE, Whom.SECOND_LOST),
                Act(33.0, Deed.ADD_VOTER, Whom.FIRST_LOST),
                Act(36.0, Deed.ADD_VOTER, Whom.SECOND_LOST),
            ),
            ends_s=40.0,
        ),
    )
}
"""By name."""
