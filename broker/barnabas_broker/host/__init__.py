"""All the cores of a host: one process that starts a broker for each core, watches over them, and is one thing to its operator.

May touch:  processes, local sockets, the host's directory.   Must not touch: gRPC beyond the import, event loops, threads, a node's wiring.
Invariants: a node lives on when the host's process dies, and its successor finds it by the lock that it holds; what can be refused is
            refused before anything is started; nothing is forked but from a process with one thread.
Read next:  layout.py, which nodes there are; supervision.py, what becomes of them; supervisor.py, who does it.
"""
