"""Power loss with real processes: a disk that remembers what was not flushed, and a tool that takes it away after a kill.

May touch:  node processes and their files.     Must not touch: how a node works; it only brings another Disk (open_disk).
Invariants: what a flush confirmed survives; of the rest any part may go, as on a disk whose cache lost power.
Read next:  journal.py, what is remembered; recording_disk.py, who remembers; rollback.py, who takes away; node.py, the process.

`kill -9` alone loses nothing: the page cache is the kernel's. So the nodes run with a RecordingDisk, and after a kill
`roll_back` makes of their directories what a power cut could have left.
"""
