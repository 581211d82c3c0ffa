"""A whole node in this process, as far as it gets without a quorum."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import split_descriptors
from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import node_config
from barnabas_broker.node.real_world import RealWorld
from barnabas_broker.version import VERSION


async def test_a_broker_that_waits_for_its_controllers_stops_when_it_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    is_asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        await reader.read()
        writer.close()

    controller = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    port = controller.sockets[0].getsockname()[1]
    config = node_config(
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
            "log.dirs": str(tmp_path / "data"),
        }
    )
    control, stop = ControlLane(), asyncio.Event()
    descriptors = split_descriptors(1024, connections_wanted=10, reserve_wanted=32)
    try:
        running = asyncio.create_task(Node(config, RealWorld(control=control, descriptors=descriptors)).run(stop))
        await asyncio.wait_for(is_asked.wait(), 30)
        stop.set()
        await asyncio.wait_for(running, 30)
    finally:
        control.close()
        controller.close()
    assert not (tmp_path / "data").exists(), "it knows no cluster id: nothing is formatted"
    first = caplog.messages[0]
    for part in (VERSION, "node 1 (broker)", "PLAINTEXT://127.0.0.1:0", str(tmp_path / "data")):
        assert part in first, "one line says what starts"
