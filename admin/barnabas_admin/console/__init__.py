"""The web console: a process of its own that shows one cluster in a browser, and why it is as it is.

May touch:  the gRPC admin service and the Kafka listeners, by the clients that the commands use; its history file.
Must not touch: log files, the metadata log but by the admin service, the other rooms.
Invariants: each page is made from one dictionary, which is also its JSON twin; a read never changes the cluster; a write
            carries the form's token, and a console that is read-only has no route for it.
Read next:  application.py (routes), pages.py (what each page asks), cluster.py (how it asks).
"""
