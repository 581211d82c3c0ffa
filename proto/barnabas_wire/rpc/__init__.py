"""gRPC between nodes, and between operators and nodes: the .proto files with the code generated from them.

May touch:  grpc, protobuf.           Must not touch: any room.
Invariants: generated code is committed and never edited (`make proto`); fields are added, never renumbered.
Read next:  options.py, quorum.proto, controller.proto, admin.proto.
"""
