"""Chaos of the data plane: real clients write and read while nodes, network, clocks and disks break; rules judge what they saw.

May touch:  namespaces, processes and files that the run itself makes.   Must not touch: the host's network, clock and disks.
Invariants: a run whose clients did too little before the first fault, or whose fault did not bite, is void and no pass; what
            clients were told is judged by tests/checker/data_rules.py, never by what the nodes say of themselves.
Read next:  faults.py, what is done; run.py, from nothing to a report; confluent.py and aio.py, the clients.
"""
