"""Groups of every protocol: membership, generations and epochs, committed offsets, kept in `__consumer_offsets`.

May touch:  its shards through the runtime, the metadata image, the controller client.   Must not touch: sockets, files.
Invariants: one coordinator per group; generations only grow; an assignment is given out only once its record is committed;
            an offset is committed only by a current member, or by anyone while the group is empty.
Read next:  service.py (entry and routing), shard.py (one partition's groups), classic.py (one group), records.py (bytes), led_group.py
            (what consumer/, share/ and streams/ have in common).
"""
