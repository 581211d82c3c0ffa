"""The main job, end to end: 336,776 real flights through three controllers, three brokers, an unmodified Kafka client and a
Spark job, while the broker that leads partition 0 is killed. Run it with `make demo`; `make demo KEEP=1` leaves the cluster up.

Exit status 0 means: every acknowledged record is in the log exactly once, and the queries agree with the files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Message as Delivered
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rows as source
import verify
from nodes import Nodes
from picture import draw
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

CLI = [sys.executable, "-m", "barnabas_admin.main"]
JOINED_ROWS = 335_220
WITHOUT_WEATHER = 1_556
RESTART_AFTER = 0.8
"""The killed broker is started again when this share of the rows was produced."""
SPARK_TIMEOUT_S = 900

console = Console(highlight=False)


class Delivery:
    """What the producer was told: where each record went, and how long a killed leader's partitions took nothing."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, int, int], tuple[bytes, bytes]] = {}
        self.failed: list[str] = []
        self.killed_at = 0.0
        self.orphans: set[tuple[str, int]] = set()
        self.gap_s = 0.0

    def on_delivery(self, error: Any, message: Delivered) -> None:
        """Called by the client for every record, once."""
        if error is not None:
            self.failed.append(str(error))
            return
        place = (message.topic(), message.partition(), message.offset())
        self.acknowledged[place] = (message.key(), message.value())

    def on_delivery_after_kill(self, error: Any, message: Delivered) -> None:
        """The same for records handed over after the kill: the first one tells when its partition was back."""
        self.on_delivery(error, message)
        if error is None and (message.topic(), message.partition()) in self.orphans:
            self.orphans.discard((message.topic(), message.partition()))
            self.gap_s = max(self.gap_s, time.monotonic() - self.killed_at)


def main() -> int:
    """Everything, in order; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up and print how to reach it")
    options = parser.parse_args()
    if shutil.which("java") is None:
        raise SystemExit("Spark needs Java 17 or newer: install Debian's openjdk-17-jre-headless")
    directory = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
    nodes = Nodes(directory)
    started = time.monotonic()
    is_left_up = is_right = False
    try:
        with console.status("starting 3 controllers and 3 brokers"):
            nodes.start()
        console.print(f"[bold]cluster[/]    3 controllers, 3 brokers ready after {time.monotonic() - started:.1f} s")
        create_topics(nodes)
        delivery, produce_s = produce(nodes)
        results = run_spark(nodes, directory)
        is_right = report(nodes, delivery, produce_s, results, time.monotonic() - started)
        is_left_up = options.keep
        return 0 if is_right else 1
    finally:
        if is_left_up:
            console.print(
                f"\nleft up    kafka {nodes.bootstrap}\n           admin {nodes.admin}\n"
                f"           try   BARNABAS_ADMIN={nodes.admin} {Path(sys.executable).parent}/barnabas topic list\n"
                f"           stop  kill {' '.join(str(node.process.pid) for node in nodes.all if node.process)}"
            )
        else:
            nodes.stop()
            if is_right:
                shutil.rmtree(directory, ignore_errors=True)
            else:
                console.print(f"[red]the files of this run are in {directory}[/]")


def barnabas(nodes: Nodes, *arguments: str) -> str:
    """Run the CLI against the cluster; its standard output."""
    environment = os.environ | {"BARNABAS_ADMIN": nodes.admin}
    done = subprocess.run([*CLI, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise SystemExit(f"barnabas {' '.join(arguments)} failed ({done.returncode}): {done.stderr or done.stdout}")
    return done.stdout


def create_topics(nodes: Nodes) -> None:
    """flights and weather, never shortened by time: the events are from 2013."""
    for topic, partitions in (("flights", "6"), ("weather", "3")):
        settings = ["--config", "min.insync.replicas=2", "--config", "retention.ms=-1"]
        barnabas(nodes, "topic", "create", topic, "-p", partitions, "-r", "3", *settings)
    console.print(barnabas(nodes, "topic", "list").rstrip())


def leaders(nodes: Nodes, topic: str) -> dict[int, int]:
    """Partition -> broker id of its leader."""
    answer = json.loads(barnabas(nodes, "topic", "describe", topic, "-o", "json"))
    described = next(item for item in answer["topics"] if item["name"] == topic)
    return {part["partition"]: part["leader"] for part in described["partitions"]}


def produce(nodes: Nodes) -> tuple[Delivery, float]:
    """Produce every row, kill the leader of flights-0 halfway, start it again later; returns the reports and seconds."""
    messages = source.messages()
    producer = Producer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 100_000,
        }
    )
    delivery = Delivery()
    victim = None
    on_delivery = delivery.on_delivery
    started = time.monotonic()
    columns = (
        TextColumn("[bold]produce[/]   "),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("acks=all, idempotent", total=len(messages))
        for count, message in enumerate(messages, 1):
            if count == len(messages) // 2:
                led = {
                    (topic, part): who
                    for topic in ("flights", "weather")
                    for part, who in leaders(nodes, topic).items()
                }
                victim = nodes.broker(led[("flights", 0)])
                delivery.orphans = {place for place, who in led.items() if who == victim.id}
                victim.kill()
                delivery.killed_at = time.monotonic()
                on_delivery = delivery.on_delivery_after_kill
                progress.update(bar, description=f"[red]{victim.name} killed[/]")
            if (
                victim is not None
                and victim.process
                and victim.process.poll() is not None
                and count >= RESTART_AFTER * len(messages)
            ):
                victim.start()
                progress.update(bar, description=f"[green]{victim.name} started again[/]")
            while True:
                try:
                    producer.produce(
                        message.topic,
                        message.value,
                        message.key,
                        timestamp=message.timestamp_ms,
                        on_delivery=on_delivery,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if count % 1000 == 0:
                producer.poll(0)
                progress.update(bar, completed=len(delivery.acknowledged))
        while producer.flush(1.0) > 0:
            progress.update(bar, completed=len(delivery.acknowledged))
        progress.update(bar, completed=len(delivery.acknowledged))
    if delivery.failed:
        console.print(f"[red]{len(delivery.failed)} deliveries failed, the first: {delivery.failed[0]}[/]")
    assert victim is not None
    nodes.wait_ready(victim)
    return delivery, time.monotonic() - started


def run_spark(nodes: Nodes, directory: Path) -> dict[str, Any]:
    """The Spark job as a process of its own; its results."""
    output = directory / "spark"
    output.mkdir()
    job = [sys.executable, str(Path(__file__).with_name("job.py")), nodes.bootstrap, str(output)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with (
        console.status("Spark: two streaming queries and a batch over format('barnabas')"),
        (output / "job.log").open("wb") as log,
    ):
        done = subprocess.run(job, env=environment, stdout=log, stderr=log, check=False, timeout=SPARK_TIMEOUT_S)
    if done.returncode != 0:
        raise SystemExit(f"the Spark job failed:\n{(output / 'job.log').read_text()[-6000:]}")
    results: dict[str, Any] = json.loads((output / "results.json").read_text())
    return results


def report(nodes: Nodes, delivery: Delivery, produce_s: float, results: dict[str, Any], all_s: float) -> bool:
    """Print tables and summary, draw the picture, judge; returns whether everything is right."""
    show_departures(results["departures"])
    with console.status("reading the whole log back"):
        log = verify.judge_log(delivery.acknowledged, verify.read_everything(nodes.bootstrap, ("flights", "weather")))
    picture = Path.cwd() / "barnabas-demo.png"
    draw(results["departures"], picture)
    missing = sum(row["count"] for row in results["without_weather"])
    wrong = verify.wrong_departures(results["departures"])
    checks = {
        f"{len(delivery.acknowledged):,} acknowledged, {log.read:,} in the log: lost {log.lost}, duplicated {log.duplicated}, "
        f"misplaced {log.misplaced}, unknown {log.unknown}": log.is_clean and not delivery.failed,
        f"query 1 agrees with the files on {len(results['departures']):,} origins and days": not wrong,
        f"query 2 joined {results['joined_rows']:,} flights to their weather": results["joined_rows"] == JOINED_ROWS,
        f"{missing:,} flights have no weather ("
        + ", ".join(f"{row['origin']} {row['count']}" for row in results["without_weather"])
        + ")": missing == WITHOUT_WEATHER,
        f"{results['rows_dropped_as_late']} rows were dropped as late": results["rows_dropped_as_late"] == 0,
        "the Spark job opened no gRPC channel": not results["grpc_was_imported"],
    }
    console.print()
    for text, is_true in checks.items():
        console.print(f"[green]ok[/]   {text}" if is_true else f"[red]WRONG[/] {text}")
    for line in wrong[:5]:
        console.print(f"      {line}")
    seconds = results["seconds"]
    console.print(
        f"\n[bold]records[/]    {len(delivery.acknowledged):,} in {produce_s:.1f} s, a broker killed halfway\n"
        f"[bold]failover[/]   {delivery.gap_s:.2f} s until every partition of the killed broker took records again\n"
        f"[bold]spark[/]      {seconds['all']:.0f} s (session {seconds['session']:.0f}, query 1 {seconds['departures']:.0f}, "
        f"query 2 {seconds['join']:.0f})\n"
        f"[bold]picture[/]    {picture}\n"
        f"[bold]metrics[/]    http://{nodes.brokers[0].properties['metrics.listeners']}/metrics\n"
        f"[bold]all[/]        {all_s:.0f} s"
    )
    return all(checks.values())


def show_departures(departures: list[dict[str, Any]]) -> None:
    """Query 1 in short: per origin, the year, and its worst day."""
    table = Table(title="departures and mean delay (query 1, complete mode)", title_justify="left")
    for name in ("origin", "days", "departures", "mean delay, min", "worst day", "its mean delay, min"):
        table.add_column(name, justify="left" if name in ("origin", "worst day") else "right")
    for origin in sorted({row["origin"] for row in departures}):
        days = [row for row in departures if row["origin"] == origin]
        flown = sum(row["departures"] for row in days)
        mean = sum(row["mean_delay"] * row["departures"] for row in days) / flown
        worst = max(days, key=lambda row: row["mean_delay"])
        table.add_row(
            origin, str(len(days)), f"{flown:,}", f"{mean:.2f}", str(worst["day"]), f"{worst['mean_delay']:.1f}"
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
