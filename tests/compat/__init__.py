"""Unmodified clients against a real cluster of three nodes: whatever they do with Kafka, they do here.

One cluster serves the whole session (the `barnabas_cluster` fixture that users have, too); every test has topics and groups of
its own. Nothing here knows how the broker works: what a client gets back is compared with what it, or another, sent.
"""
