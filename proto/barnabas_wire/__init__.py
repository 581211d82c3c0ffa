"""The language of the house: Kafka wire messages, record batches, gRPC types and a small client.

May touch:  itself, fastcrc, cramjam, protobuf.   Must not touch: any other room of the house.
Invariants: nothing leaves a decoder unbounded; kafka/ and records/ never import client/ or rpc/.
Read next:  kafka/ids.py for the words, records/batch.py for the one byte range that everything moves.
"""
