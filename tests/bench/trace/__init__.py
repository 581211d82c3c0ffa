"""`make bench-trace`: where the time of one small record goes, step by step and wait by wait, over all three brokers.

May touch:  processes it starts, functions of its own nodes, from outside.     Must not touch: broker code.
Invariants: the product has no branch and no hook for this: functions are wrapped in the traced node's process alone.
Read next:  points.py (what is wrapped), path.py (what becomes of the marks), node.py, __main__.py.
"""
