"""Chaos: real processes in network namespaces of their own, killed, stopped, cut off and rebuilt under a metadata load.

May touch:  namespaces, processes and files that the run itself makes.   Must not touch: the host's network, other processes.
Invariants: everything runs inside one private PID and network namespace, so that nothing outlives the run, however it ends;
            what clients were told is judged by tests/checker, never by what the nodes say of themselves.
Read next:  scenarios.py, what is done; network.py and nodes.py, with what; workload.py, under which load; report.py, the verdict.
"""
