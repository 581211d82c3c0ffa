"""Transactions: the coordinator of every transactional id whose partition of `__transaction_state` this broker leads.

May touch:  ../runtime.py, ../brokers.py, the metadata image, the controller client.   Must not touch: api, network.
Invariants: decide, then replay; PREPARE is the commit point; a marker leaves after PREPARE is committed, COMPLETE follows the last.
Read next:  state.py (the machine), shard.py, service.py, markers.py.
"""
