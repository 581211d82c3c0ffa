"""The broker's place in the cluster: the image it answers from, how it follows it, and its session with the controller.

May touch:  everything below broker/api.   Must not touch: network, api.
Invariants: one image, swapped whole; a client never hears from this broker of a leader role that it has not taken.
Read next:  publisher.py, the crossing from the control lane to the data lane.
"""
