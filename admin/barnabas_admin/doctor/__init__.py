"""What keeps a client from its records, found by asking what a client would ask, from where it would.

May touch:  barnabas_wire.client, sockets.    Must not touch: printing, the admin service; nothing in the cluster is changed.
Invariants: a finding says what is wrong, then what to do; what was not looked at is said too; any cluster that speaks Kafka's protocol may
            be asked.
Read next:  finding.py, reaching.py (addresses), standing.py (topics, groups), rebalancing.py (what only watching shows).
"""
