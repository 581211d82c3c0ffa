"""The metadata on one node: its log on disk and whose directory that is in, the image a broker answers from, its session with the
controller.

May touch:  everything below broker/api.   Must not touch: network, api.
Invariants: one image, swapped whole; a client never hears from this broker of a leader role that it has not taken; nothing that
            was flushed to the metadata log is forgotten without a word.
Read next:  publisher.py, the crossing from the control lane to the data lane; metadata_log.py, which the offline verbs open too.
"""
