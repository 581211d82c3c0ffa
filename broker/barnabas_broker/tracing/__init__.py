"""Traces of single requests for OpenTelemetry, an extra: which of them, what their spans say, where they go.

May touch:  handlers by wrapping them, services by standing before them.   Must not touch: sockets, logs, the other rooms.
Invariants: off, which is the default, nothing of OpenTelemetry is imported, and no request runs one instruction for it; what a
            collector does, or does not, never delays an answer.
Read next:  produce.py (the spans), export.py (OpenTelemetry's SDK), config.py.
"""
