"""The identity of clients: SASL and TLS of the Kafka listeners, and the identity that this broker shows to others.

May touch:  the PEM files that a node's properties name, the image's credentials.
Must not touch: sockets, frames (network drives what is here), logs.
Invariants: a node never starts less secure than its properties say; no log line, error or repr shows a secret.
Read next:  listener_security.py (what the keys mean), sasl/session.py (one connection's login), tls.py.
"""
