"""Stands in for `barnabas-server` where only the process matters: serves /readyz, /healthz and a healthy admin service.

`check` refuses the property fake.refused. Properties: fake.words (printed at start), fake.die (exit status to end with at
once), fake.deaf=true (ignores SIGTERM).
`format`, and a start with --format-for, append their arguments to <first log dir>/formatted.txt; fake.format.status ends both.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def read(path: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in Path(path).read_text().splitlines() if "=" in line)


def main(arguments: list[str]) -> int:
    if arguments[0] == "check":
        refused = [word for word in arguments if word.startswith("--override=fake.refused=")]
        if refused:
            print(json.dumps({"error": {"message": f"{refused[0]} cannot be had"}}), file=sys.stderr)
        return 2 if refused else 0
    properties = read(arguments[arguments.index("-c") + 1])
    if arguments[0] == "format" or "--format-for" in arguments:
        directory = Path(properties["log.dirs"])
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "formatted.txt").open("a") as stream:
            print(" ".join(arguments), file=stream)
        status = int(properties.get("fake.format.status", "0"))
        if status == 0:
            (directory / "meta.properties").touch()
        if arguments[0] == "format" or status != 0:
            return status
    if "fake.words" in properties:
        print(properties["fake.words"], file=sys.stderr, flush=True)
    if "fake.die" in properties:
        return int(properties["fake.die"])
    stopped = threading.Event()
    if properties.get("fake.deaf") == "true":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    serve_admin(int(properties["admin.listeners"].rsplit(":", 1)[1]))
    http = ThreadingHTTPServer(("127.0.0.1", int(properties["metrics.listeners"].rsplit(":", 1)[1])), Ready)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    # The kernel may give the signal to another thread, which would not wake a wait without end.
    while not stopped.wait(0.05):
        pass
    return 0


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"controller 1\n" if self.path == "/healthz" else b"ok\n")

    def log_message(self, *_: object) -> None:
        return None


def serve_admin(port: int) -> None:
    import grpc

    from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc

    class Healthy(admin_pb2_grpc.AdminServicer):
        def DescribeHealth(self, request: object, context: object) -> admin_pb2.DescribeHealthResponse:
            return admin_pb2.DescribeHealthResponse(is_healthy=True)

    server = grpc.server(ThreadPoolExecutor(1), options=(("grpc.so_reuseport", 0),))
    admin_pb2_grpc.add_AdminServicer_to_server(Healthy(), server)  # type: ignore[abstract]  # what the test asks for
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    globals()["_server"] = server


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
