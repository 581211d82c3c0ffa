"""Kafka's own wire: ids, error codes, frames, and every message declared once for all its versions.

May touch:  itself.                   Must not touch: sockets, files, clock, client/, rpc/.
Invariants: every length and count is checked against the bytes that remain before anything is allocated;
            an unknown tagged field is skipped; what cannot be read raises MalformedMessage and nothing else.
Read next:  schema.py (declaration and compiler), messages/metadata.py (typical), messages/produce.py (the hot path).
"""
