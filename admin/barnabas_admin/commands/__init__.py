"""The verbs of `barnabas`: one noun per file, one function per verb.

May touch:  invocation, output, the admin and Kafka clients.    Must not touch: code of the broker's rooms.
Invariants: every command takes -o text|json; stdout is data; a mutation says what it changed.
Read next:  topic.py.
"""
