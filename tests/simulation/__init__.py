"""Deterministic simulation: real code on virtual time, fake disks and a fake network, under seeds of faults.

May touch:  nothing.                  Must not touch: anything.
Invariants: none; this is the map.
Read next:  raft_simulator.py (the consensus core alone), controllers.py (controllers with logs, snapshots and images),
            share_simulator.py (share partitions with their state),
            broker/barnabas_simulation (whole nodes with clients, a room of the product); sweep.py runs them, mutants/
            and node_mutants.py prove that they bite, stories.py has moments that random seeds hardly reach.

Every law is looked at after every event of the core (raft_invariants.py), after every turn of the loop (the other two), at
every image that is published, and at the end. Which law is where (invariants, partition_model, operators and transactions are in the room):

R1  one leader believed in per epoch, memory and disk     raft_invariants.on_role, on_saved; controller_laws.check; invariants
R2  saved epoch monotone, equal to memory                 raft_invariants.on_role, on_saved, on_boundary
R3  one vote per epoch and replica, across restarts       raft_invariants.on_saved, on_send
R4  high watermark monotone                               raft_invariants.on_high_watermark; controller_laws.check; invariants
R5  a majority of the last voter set holds it on disk     raft_invariants._commit
R6  logs, and snapshots for them, equal below it          raft_invariants.on_high_watermark, on_log_start, at_end
R7  (offset, epoch) names one record                      raft_invariants.on_leader_append
R8  nothing cut or replaced below one's own, or in a batch raft_invariants.on_truncate, on_install
R9  a new leader holds all that was committed             raft_invariants._on_new_leader
R10 a leader commits first past its epoch's start         raft_invariants._commit
R11 one uncommitted voter set, steps of one voter, after the epoch's first commit; rolled back with the log; the same set
    below the same high watermark                         raft_invariants.on_voters_written, _check_committed_set, on_boundary,
                                                          on_change_done, on_snapshot; controller_laws._check_voters
R12 a leader loads no snapshot                            raft_invariants.on_install
R13 the log begins where its oldest snapshot ends; a snapshot is what was committed, with its epoch
                                                          raft_invariants.on_log_start, on_snapshot
R14 who was removed votes again only by an operator       raft_invariants._on_committed_set
R15 legal roles, voters alone run                         raft_invariants.on_role
R16 who lost sight of the leader does not depose it       raft_calm._lose_sight
R17 liveness after everything healed; a leader without a majority resigns
                                                          raft_calm.settle, _cut_off; controller_laws.unsettled; invariants.unsettled
C1  equal images at equal applied offset, and C2: through snapshots too
                                                          controller_laws.on_image; invariants._check_image
C3  partition epochs, leader epochs                       controller_laws.on_image; controller_workload._alter; invariants
C4  leader, ISR, ELR, fenced brokers                      controller_laws.on_image; invariants._check_registration
C5  a fenced broker leads nothing                         controller_laws.on_image
C6  no acknowledged operation is ever absent later        controller_workload.judge
C7  broker epochs rise, older lives are refused           controller_workload._register, _speak_from_the_past
C8  producer id blocks are disjoint                       controller_workload._allocate
C9  no part of a metadata transaction is seen             controller_workload.judge
C10 reassignments                                         invariants._check_move, judge_histories, unsettled; operators;
                                                          tests/metadata_quorum/test_controller_walk.py
R18 a voter that the quorum was recovered without takes no part in the recovered one
R19 a recovery tells what may be lost, takes no survivor for better than it is, and is whole when it says so
R20 a survivor's uncertain end is told as committed only to who has the gap behind it
                                                          controller_recovery.py
L1  retention takes what the topic's settings let go, not what the broker's would
                                                          partition_model.retire; invariants.judge_histories
D7  what a message promises is on disk when it leaves     raft_invariants.on_send
E1, E2, E4, E5, E7 to E9, E15 of transactions, E13 of the LSO
                                                          transactions.py; transaction_model.py
S1 to S17 of share groups                                 share_laws.py
P*  replication, E*: clients' histories                   invariants, partition_model; ../checker

Of Kafka's own simulator: MonotonicHighWatermark R4, MonotonicEpoch R2, MajorityReachedHighWatermark R5, SingleLeader R1,
SnapshotAtLogStart R13, LeaderNeverLoadSnapshot R12, ConsistentCommittedData R6. Of the TLA+ models: NoIllegalState and
StatesMatchRoles R15, NoLogDivergence R6 and R7, NeverTwoLeadersInSameEpoch R1, LeaderHasAllAckedValues R9,
CommittedEntriesReachMajority R5, ValuesNotStuck R17.
"""
