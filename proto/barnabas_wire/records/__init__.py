"""Record batches as they lie on the wire and on the disk: header, records, CRC, compression, control records.

May touch:  itself, barnabas_wire.kafka, fastcrc, cramjam.    Must not touch: sockets, files, clock, client/, rpc/.
Invariants: a batch is one byte range that is never opened on its way; base offset and leader epoch lie outside its CRC;
            nothing is decompressed beyond the caller's bound.
Read next:  batch.py.
"""
