"""The laws of a partitioned, replicated log as its clients see it: one pure function each, E1 to E18.

May touch:  its arguments.            Must not touch: files, clusters, clocks.
Invariants: a rule accuses only what no correct cluster can do, whatever was lost on the way: an outcome of "info" is both; what
            lies before the log's last start was deleted at an unknown time.
Read next:  RULES and WAITING below.

Names and numbers are those of Jepsen's Kafka workload where it has them. Those of transactions are in transaction_rules.py, those of
share groups, S1 to S7, in share_rules.py. What is judged elsewhere is in WAITING, with the reason.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from tests.checker.data_history import (
    ASSIGNED,
    FAIL,
    OK,
    SUBSCRIBED,
    UNKNOWN_OFFSET,
    Batch,
    Committed,
    History,
    Poll,
    Send,
)
from tests.checker.share_rules import (
    counts_beyond_the_limit,
    dead_letters_of_the_living,
    doubled_dead_letters,
    missing_dead_letters,
    never_delivered,
    settled_records_delivered_again,
    settled_twice,
)
from tests.checker.transaction_rules import (
    accepted_late_ends,
    circular_transactions,
    copies_of_uncommitted,
    fenced_transactions,
    inexact_copies,
    offsets_apart,
    precommitted_reads,
    torn_transactions,
)

TOGETHER_S_MAX = 15.0
"""Longer than any session lasts, and than any cut of a client's way to its coordinator."""
READING_PAUSE_S = 2.0
"""A member that reads nothing for so long has stopped reading."""
STALE_AFTER_S = 5.0
"""A reader that goes on polling a whole cluster must be shown an acknowledged record within this time."""
SEQUENCES = 1 << 31
"""A producer's sequence numbers begin again at 0 after as many."""
NAMED_MAX = 20


class Finding(NamedTuple):
    """One law broken once."""

    rule: str
    what: str


class Rule(NamedTuple):
    """A law. `is_error`: whether a broken one fails the run, or is only reported."""

    name: str
    meaning: str
    find: Callable[[History], Iterable[str]]
    is_error: bool = True


# -- records: lost, doubled, moved, invented ---------------------------------------------------------------------------


def lost_writes(history: History) -> Iterator[str]:
    """E1: an acknowledged record, at or below the highest offset that was read in the end, that nobody was shown."""
    highest = {key: max(history.read[key], default=-1) for key in history.read}
    for send in _acknowledged_within(history):
        if send.offset <= highest.get(send.key, -1) and (send.key, send.value) not in history.final_places:
            yield f"{_name(send)} is not in the log"


def unseen_writes(history: History) -> Iterator[str]:
    """E10: an acknowledged record above everything that was read in the end: lost at the tail, or never served."""
    highest = {key: max(history.read[key], default=-1) for key in history.read}
    for send in _acknowledged_within(history):
        if send.offset > highest.get(send.key, -1) and (send.key, send.value) not in history.final_places:
            yield f"{_name(send)} was never read; the highest offset read is {highest.get(send.key, 'none')}"


def duplicates(history: History) -> Iterator[str]:
    """E2: a value of an idempotent producer at two offsets of its key."""
    for send, offsets in _doubled(history):
        if send.is_idempotent:
            yield f"{_name(send)} is at offsets {offsets}"


def duplicates_of_retries(history: History) -> Iterator[str]:
    """E2r: the same of a producer that is not idempotent, which its retries explain."""
    for send, offsets in _doubled(history):
        if not send.is_idempotent:
            yield f"{_name(send)} is at offsets {offsets}"


def inconsistent_offsets(history: History) -> Iterator[str]:
    """E3: two values at one offset of a key, by acknowledgements or polls."""
    values: dict[tuple[str, int], set[str]] = defaultdict(set)
    for key, places in history.read.items():
        for offset, shown in places.items():
            values[(key, offset)] |= shown
    for send in history.sends:
        if send.outcome == OK and send.offset != UNKNOWN_OFFSET:
            values[(send.key, send.offset)].add(send.value)
    for (key, offset), found in values.items():
        if len(found) > 1:
            yield f"{key} at {offset} holds {sorted(found)}"


def failed_writes_read(history: History) -> Iterator[str]:
    """E4: a poll shows a value whose producer was told that it certainly was not written."""
    for (key, value), offsets in history.places.items():
        send = history.senders.get((key, value))
        if send is not None and send.outcome == FAIL:
            yield f"{_name(send)} was refused ({send.error}), and is at {sorted(offsets)}"


def invented_records(history: History) -> Iterator[str]:
    """E4i: a poll shows a value that nobody sent to this key, or shows it before it was sent."""
    for (key, value), offsets in history.places.items():
        if (key, value) not in history.senders:
            yield f"{key} at {sorted(offsets)} holds {value}, which nobody sent there"
    for poll in history.polls:
        for key, records in poll.records.items():
            for offset, value in records:
                send = history.senders.get((key, value))
                if send is not None and send.begun > poll.ended:
                    yield f"{poll.client} read {value} at {key} {offset} before it was sent"


# -- order of reads and writes -----------------------------------------------------------------------------------------


def nonmonotonic_polls(history: History) -> Iterator[str]:
    """E6: a reader goes back or reads an offset twice: with partitions chosen by hand, or within one assignment of a group."""
    for (client, key, _), reads in history.reads.items():
        for (before, _), (after, _) in pairwise(reads):
            if after <= before:
                yield f"{client} read {key} at {after} after {before}"


def poll_skips(history: History) -> Iterator[str]:
    """E6s: the same reader passes over a record that existed, and that was not deleted."""
    for (client, key, _), reads in history.reads.items():
        existing = history.existing.get(key, [])
        start = history.log_starts.get(key, 0)
        for (before, _), (after, _) in pairwise(reads):
            if after - before > 1:
                skipped = existing[bisect_right(existing, max(before, start - 1)) : bisect_left(existing, after)]
                if skipped:
                    yield f"{client} went from {before} to {after} of {key} over {_some(skipped)}"


def group_starts(history: History) -> Iterator[str]:
    """E6g: a member of a group begins a partition behind what was committed before, or past it over existing records."""
    commits = history.commits_by_key
    given = {(event.client, event.assignment): event.at for event in history.assignments}
    for (client, key, assignment), reads in history.reads.items():
        poll = reads[0][1]
        if poll.how != SUBSCRIBED:
            continue
        first = reads[0][0]
        before = [
            commit
            for commit in commits.get((poll.group, key), ())
            if commit.begun < poll.ended and commit.outcome != FAIL
        ]
        at = given.get((client, assignment), poll.begun)
        certain = [commit for commit in before if commit.outcome == OK and commit.ended < at]
        behind = certain[-1].offset if certain else 0
        is_reset = any(commit.is_reset for commit in before)
        if first < behind and not is_reset:
            yield f"{client} began {key} at {first}, behind {behind} that its group {poll.group} had committed"
        furthest = max((commit.offset for commit in before), default=0)
        existing = history.existing.get(key, [])
        skipped = existing[
            bisect_left(existing, max(furthest, history.log_starts.get(key, 0))) : bisect_left(existing, first)
        ]
        if skipped:
            yield f"{client} began {key} at {first}, past {furthest} that {poll.group} had committed, over {_some(skipped)}"


def nonmonotonic_sends(history: History) -> Iterator[str]:
    """E7: of two records of one idempotent producer and key, the later sent has the lower offset."""
    sent: dict[tuple[str, str], list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.is_idempotent:
            sent[(send.client, send.key)].append(send)
    for (client, key), sends in sent.items():
        placed = sorted((send.sequence, _offset_of(history, send)) for send in sends)
        for (_, before), (sequence, after) in pairwise([place for place in placed if place[1] is not None]):
            assert before is not None and after is not None
            if after < before:
                yield f"record {sequence} of {client} is at {key} {after}, an earlier one at {before}"


def sequence_gaps(history: History) -> Iterator[str]:
    """E7s: in a replica's log, a batch of a producer's epoch does not follow its former one without gap or repetition."""
    for (node, key), batches in history.logs.items():
        last: dict[tuple[int, int], int] = {}
        for batch in batches:
            if batch.producer_id < 0 or batch.base_sequence < 0:
                continue
            producer = (batch.producer_id, batch.producer_epoch)
            expected = last.get(producer)
            if expected is not None and batch.base_sequence != expected:
                yield (
                    f"node {node}, {key} at {batch.base}: producer {producer[0]} epoch {producer[1]} has sequence "
                    f"{batch.base_sequence} where {expected} is due"
                )
            last[producer] = (batch.base_sequence + batch.last - batch.base + 1) % SEQUENCES


# -- time --------------------------------------------------------------------------------------------------------------


def stale_reads(history: History) -> Iterator[str]:
    """E12: a reader by hand polls on for STALE_AFTER_S in a whole cluster and is not shown an acknowledged record that is there.
    Not of transactions: one may wait behind another that is open, whose client was killed. Not while TCP waits, whose connections
    outlived a cut: no broker can send sooner."""
    spans = history.spans_within_reach()
    acknowledged: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for send in history.sends:
        if send.outcome == OK and send.offset != UNKNOWN_OFFSET and send.key not in history.transacted:
            acknowledged[send.key].append((send.ended, send.offset))
    for offsets in acknowledged.values():
        offsets.sort()
    keys = {event.client: event.keys for event in history.assignments}
    polls: dict[str, list[Poll]] = defaultdict(list)
    for poll in history.polls:
        if poll.how == ASSIGNED:
            polls[poll.client].append(poll)
    for client, calls in polls.items():
        begins = [poll.begun for poll in calls]
        for key in keys.get(client, ()):
            reached = list(accumulate((max(o for o, _ in poll.records.get(key, [(-1, "")])) for poll in calls), max))
            for answered, offset in acknowledged.get(key, ()):
                showing = bisect_left(reached, offset)
                shown = calls[showing].ended if showing < len(calls) else calls[-1].ended
                due = min(shown, history.gone_at(key, offset))
                if due - answered <= STALE_AFTER_S:
                    continue  # nearly all: to go through the spans for each would take minutes where there are millions
                for since, until in spans:
                    # whole calls that began after the acknowledgement, in a healthy span, and before it was shown or gone
                    first = bisect_left(begins, max(since, answered))
                    last = bisect_left(begins, min(until, due)) - 1
                    waited = min(calls[last].ended, until, due) - calls[first].begun if first <= last else 0.0
                    if waited > STALE_AFTER_S:
                        yield f"{client} polled for {waited:.1f} s and was not shown {key} {offset}"


def marks_that_go_back(history: History) -> Iterator[str]:
    """E13: to one client, within one leader epoch, the end or the start of a log goes back; or its leader epoch does."""
    last: dict[tuple[str, str], tuple[int, int, int, float]] = {}
    for event in history.listed:
        former = last.get((event.client, event.key))
        if former is not None and event.begun >= former[3]:
            epoch, start, end, _ = former
            if -1 < event.leader_epoch < epoch:
                yield f"{event.client}: leader epoch of {event.key} goes from {epoch} back to {event.leader_epoch}"
            if event.leader_epoch == epoch and event.end < end:
                yield f"{event.client}: end of {event.key} goes from {end} back to {event.end} in epoch {epoch}"
            if event.leader_epoch == epoch and event.start < start:
                yield f"{event.client}: start of {event.key} goes from {start} back to {event.start} in epoch {epoch}"
        last[(event.client, event.key)] = (event.leader_epoch, event.start, event.end, event.ended)


def deleted_records_that_return(history: History) -> Iterator[str]:
    """E13d: a log starts before an offset up to which DeleteRecords had been acknowledged."""
    for deletion in history.deletions:
        if deletion.outcome == OK:
            later = [e for e in history.listed if e.key == deletion.key and e.begun >= deletion.ended]
            for event in later:
                if event.start < deletion.log_start:
                    yield f"{event.key} starts at {event.start}, after records before {deletion.log_start} were deleted"


def epochs_that_go_back(history: History) -> Iterator[str]:
    """E13l: in a replica's log, the leader epoch or a producer's epoch falls from one batch to the next."""
    for (node, key), batches in history.logs.items():
        leader_epoch = -1
        producers: dict[int, int] = {}
        for batch in batches:
            if batch.leader_epoch < leader_epoch:
                yield f"node {node}, {key} at {batch.base}: leader epoch {batch.leader_epoch} after {leader_epoch}"
            leader_epoch = max(leader_epoch, batch.leader_epoch)
            if batch.producer_id >= 0 and batch.producer_epoch < producers.get(batch.producer_id, -1):
                yield (
                    f"node {node}, {key} at {batch.base}: producer {batch.producer_id} epoch {batch.producer_epoch} after "
                    f"{producers[batch.producer_id]}"
                )
            producers[batch.producer_id] = max(batch.producer_epoch, producers.get(batch.producer_id, -1))


# -- groups ------------------------------------------------------------------------------------------------------------


def two_owners(history: History) -> Iterator[str]:
    """E14: two members of one generation are given one partition."""
    owner: dict[tuple[str, int, str], str] = {}
    for event in history.assignments:
        if event.generation < 0:
            continue
        for key in event.keys:
            other = owner.setdefault((event.group, event.generation, key), event.client)
            if other != event.client:
                yield f"{key} belongs to {other} and {event.client} in generation {event.generation} of {event.group}"


def readers_together(history: History) -> Iterator[str]:
    """E14t: two members of a group read one partition at the same time for longer than any session lasts. A zombie that wakes reads
    what it has fetched until it hears that it is out; that is a moment."""
    spans: dict[tuple[str, str], list[tuple[float, float, str]]] = defaultdict(list)
    for (client, key, _), reads in history.reads.items():
        if reads[0][1].how != SUBSCRIBED:
            continue
        of_group = spans[(reads[0][1].group, key)]
        since = until = reads[0][1].ended
        for _, poll in reads:
            if poll.ended - until > READING_PAUSE_S:
                of_group.append((since, until, client))
                since = poll.ended
            until = poll.ended
        of_group.append((since, until, client))
    for (group, key), found in spans.items():
        furthest = (float("-inf"), "")
        for since, until, client in sorted(found):
            together_s = min(until, furthest[0]) - since
            if together_s > TOGETHER_S_MAX and client != furthest[1]:
                yield f"{furthest[1]} and {client} of {group} read {key} together for {together_s:.1f} s"
            furthest = max(furthest, (until, client))


def commits_that_go_back(history: History) -> Iterator[str]:
    """E14c: in a whole cluster, what is committed is behind an acknowledged commit, and nobody asked for it."""
    spans = history.healthy_spans()
    for answer, words in _older_commits(history):
        if any(since <= answer.begun and answer.ended <= until for since, until in spans):
            yield words


def stale_coordinators(history: History) -> Iterator[str]:
    """E14s: the same while the cluster is broken: a coordinator that was cut off, and has a successor, answers from memory.
    Kafka's does, too; no commit is accepted there."""
    spans = history.healthy_spans()
    for answer, words in _older_commits(history):
        if not any(since <= answer.begun and answer.ended <= until for since, until in spans):
            yield words


def zombie_commits(history: History) -> Iterator[str]:
    """E14z: a commit of an older generation is accepted after a member of a newer one was given its partitions."""
    newest: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for event in history.assignments:
        if event.generation >= 0:
            newest[event.group].append((event.at, event.generation))
    for commit in history.commits:
        if commit.outcome != OK or commit.generation < 0:
            continue
        later = [
            generation
            for at, generation in newest[commit.group]
            if at < commit.begun and generation > commit.generation
        ]
        if later:
            yield (
                f"{commit.client} committed {commit.offset} of {commit.key} in generation {commit.generation} of "
                f"{commit.group}, where {max(later)} had begun"
            )


# -- replicas and processes --------------------------------------------------------------------------------------------


def replicas_differ(history: History) -> Iterator[str]:
    """E16: two replicas hold other bytes between the higher of their log starts and the HW, or one lacks some."""
    logs = history.logs
    by_key: dict[str, list[int]] = defaultdict(list)
    facts = {(replica.node, replica.key): replica for replica in history.replicas}
    for replica in history.replicas:
        by_key[replica.key].append(replica.node)
    for key, nodes in by_key.items():
        replicas = [facts[(node, key)] for node in nodes]
        high_watermark = max(replica.high_watermark for replica in replicas)
        start = max(replica.start for replica in replicas)
        for replica in replicas:
            if replica.end < high_watermark:
                yield f"{key}: node {replica.node} ends at {replica.end}, below the HW {high_watermark}"
        held = {}
        for node in nodes:
            inside = [b for b in logs.get((node, key), ()) if b.last >= start and b.base < high_watermark]
            held[node] = {b.base: (b.last, b.digest) for b in inside}
            yield from _holes(node, key, inside, start, high_watermark)
            for batch in inside:
                if not batch.is_valid:
                    yield f"{key} at {batch.base}: node {node} holds a batch with a wrong checksum"
        first = nodes[0]
        for node in nodes[1:]:
            both = sorted(held[first].keys() | held[node].keys())
            different = [base for base in both if held[first].get(base) != held[node].get(base)]
            if different:
                yield f"{key}: nodes {first} and {node} differ in the batches at {_some(different)}"


def epoch_caches_differ(history: History) -> Iterator[str]:
    """E16e: two replicas' leader epochs disagree between the higher of their log starts and the HW."""
    by_key = defaultdict(list)
    for replica in history.replicas:
        if replica.epochs is not None:
            by_key[replica.key].append(replica)
    for key, replicas in by_key.items():
        start = max(replica.start for replica in replicas)
        high_watermark = max(replica.high_watermark for replica in replicas)
        # an epoch that begins at the log's start may have begun anywhere before it
        seen = {
            replica.node: [(epoch, first) for epoch, first in replica.epochs or () if start < first < high_watermark]
            for replica in replicas
        }
        if len({tuple(epochs) for epochs in seen.values()}) > 1:
            yield f"{key}: leader epochs from {start} to {high_watermark} by node: {seen}"


def unasked_ends(history: History) -> Iterator[str]:
    """E18: a process ended unasked, wrote a traceback, or did not come back in time."""
    for fault in history.faults:
        yield f"{fault.who}: {fault.what}"


RULES = (
    Rule("E1", "an acknowledged record is gone", lost_writes),
    Rule("E2", "an idempotent producer's record is doubled", duplicates),
    Rule("E2r", "another producer's record is doubled", duplicates_of_retries, is_error=False),
    Rule("E3", "two values at one offset", inconsistent_offsets),
    Rule("E4", "a refused record is read", failed_writes_read),
    Rule("E4i", "a record that nobody sent is read", invented_records),
    Rule("E4c", "a copy is made from what was not committed", copies_of_uncommitted),
    Rule("E5", "a record is read before its commit was asked for", precommitted_reads),
    Rule("E6", "a reader goes back", nonmonotonic_polls),
    Rule("E6s", "a reader passes over records", poll_skips),
    Rule("E6g", "a group goes on elsewhere than it committed", group_starts),
    Rule("E7", "an idempotent producer's records are reordered", nonmonotonic_sends),
    Rule("E7s", "a producer's sequence has a gap in a log", sequence_gaps),
    Rule("E8", "a transaction is read in part", torn_transactions),
    Rule("E9", "a group does not stand where its output ends", offsets_apart),
    Rule("E9c", "a copy is not its source", inexact_copies),
    Rule("E10", "an acknowledged record is never served", unseen_writes),
    Rule("E11", "transactions are made from each other", circular_transactions),
    Rule("E12", "a reader is not shown an acknowledged record", stale_reads),
    Rule("E13", "a log's end, start or epoch goes back", marks_that_go_back),
    Rule("E13d", "deleted records are back", deleted_records_that_return),
    Rule("E13l", "an epoch goes back within a log", epochs_that_go_back),
    Rule("E14", "a partition has two owners", two_owners),
    Rule("E14t", "two members of a group read one partition for long", readers_together),
    Rule("E14c", "a committed offset goes back", commits_that_go_back),
    Rule("E14s", "a coordinator that was cut off tells old commits", stale_coordinators, is_error=False),
    Rule("E14z", "a zombie's commit is accepted", zombie_commits),
    Rule("E15", "a fenced producer's transaction is read", fenced_transactions),
    Rule("E15l", "a late end of a transaction is accepted", accepted_late_ends),
    Rule("E16", "replicas differ", replicas_differ),
    Rule("E16e", "leader epochs of replicas differ", epoch_caches_differ),
    Rule("E18", "a process failed", unasked_ends),
    Rule("S1", "a settled record is delivered again", settled_records_delivered_again),
    Rule("S2", "a record is settled twice", settled_twice),
    Rule("S3", "a record is delivered too often", counts_beyond_the_limit),
    Rule("S4", "a record is never delivered", never_delivered),
    Rule("S5", "a dead letter is missing", missing_dead_letters),
    Rule("S6", "a record has several dead letters", doubled_dead_letters, is_error=False),
    Rule("S7", "an accepted record is dead", dead_letters_of_the_living),
)
WAITING = {
    "E13 of the LSO": "judged by the readers of broker/barnabas_simulation/transactions.py",
    "E17": "metadata is linearizable: `make chaos` judges it with linearizability.py, under its own load",
}
"""What is not judged here, and why."""


def judge(history: History, *, rules: Iterable[Rule] = RULES) -> list[Finding]:
    """Every law that is broken, in the order of the table."""
    return [Finding(rule.name, what) for rule in rules for what in rule.find(history)]


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Those that fail a run; the others are reported."""
    reported = {rule.name for rule in RULES if not rule.is_error}
    return [finding for finding in findings if finding.rule not in reported]


# -- what several rules need -------------------------------------------------------------------------------------------


def _acknowledged_within(history: History) -> Iterator[Send]:
    """Acknowledged records that must still be there. One whose offset was not told must be, unless its log was cut."""
    for send in history.sends:
        start = history.log_starts.get(send.key, 0)
        if send.outcome == OK and (send.offset >= start or (send.offset == UNKNOWN_OFFSET and start == 0)):
            yield send


def _older_commits(history: History) -> Iterator[tuple[Committed, str]]:
    """Answers of OffsetFetch that are older than a commit that had been acknowledged before they were asked for."""
    for answer in history.committed:
        commits = history.commits_by_key.get((answer.group, answer.key), [])
        before = [c for c in commits if c.outcome == OK and c.ended < answer.begun]
        if not before:
            continue
        newest = before[-1]
        # Any other commit that may have come after the newest certain one may be what is reported: also one that was given up long
        # before, for what a link lost is sent again when it is mended, and comes behind what a newer connection brought.
        rivals = [
            c.offset
            for c in commits
            if c.outcome != FAIL and c.begun < answer.ended and (c.ended > newest.begun or c.outcome != OK)
        ]
        if answer.offset < min(rivals, default=newest.offset):
            words = (
                f"{answer.group} had committed {newest.offset} of {answer.key}; the coordinator says {answer.offset}"
            )
            yield answer, words


def _doubled(history: History) -> Iterator[tuple[Send, list[int]]]:
    for place, offsets in history.places.items():
        if len(offsets) > 1 and place in history.senders:
            yield history.senders[place], sorted(offsets)


def _offset_of(history: History, send: Send) -> int | None:
    """Where a record is, by its acknowledgement, else by the first place where it was read."""
    if send.outcome == OK and send.offset != UNKNOWN_OFFSET:
        return send.offset
    return min(history.places.get((send.key, send.value), ()), default=None)


def _holes(node: int, key: str, batches: list[Batch], start: int, high_watermark: int) -> Iterator[str]:
    expected = start
    for batch in batches:
        if batch.base > expected:
            yield f"{key}: node {node} has nothing from {expected} to {batch.base}"
        expected = max(expected, batch.last + 1)
    if expected < high_watermark:
        yield f"{key}: node {node} has nothing from {expected} to the HW {high_watermark}"


def _name(send: Send) -> str:
    offset = "an offset that was not told" if send.offset == UNKNOWN_OFFSET else str(send.offset)
    return f"{send.value} of {send.client}, {send.outcome} at {send.key} {offset},"


def _some(offsets: list[int]) -> str:
    more = f" and {len(offsets) - NAMED_MAX} more" if len(offsets) > NAMED_MAX else ""
    return f"{offsets[:NAMED_MAX]}{more}"
