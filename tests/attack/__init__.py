"""What an intruder tried, told as one table: `make attack`. The attacks themselves stand with the tests of their rooms.

May touch:  the tests that bear the marker `attack(finding, what holds)`, a terminal.   Must not touch: what they attack.
Invariants: every finding of FINDINGS has an attack; what was skipped or had no time left has not held; only what held in every case of
            its tests says so.
Read next:  __main__.py; docs/security.md.
"""
