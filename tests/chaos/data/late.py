"""`python -m tests.chaos.data.late --bootstrap … --history FILE --flag FILE`: transactional clients of version 2 behind proxies that
hold EndTxn back past the next transaction.

May touch:  the cluster as its client and as its proxies, its history file.   Must not touch: faults, verdicts.
Invariants: the clients know the brokers by their proxies alone; a client that waits ANSWER_S in vain for the end of a transaction asks
            again and goes on with the next one, as every client does.
Read next:  end_holder.py, the proxy; tests/support/transactional_producer.py, the client.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import traceback
from pathlib import Path
from random import Random

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from tests.chaos.data.confluent import pad
from tests.chaos.data.end_holder import EndHolder
from tests.chaos.data.journal import Journal
from tests.chaos.data.plan import ENDED, PARTITIONS, key_of
from tests.chaos.data.stage import LATE_HOST, proxy_port
from tests.chaos.network import address_of
from tests.chaos.nodes import PROXIED_PORT
from tests.checker.data_history import Fault, HistoryWriter
from tests.support.transactional_producer import TransactionalProducer

PRODUCERS = 4
ANSWER_S = 0.5
REQUEST_S = 10.0
TRANSACTION_MS = 10_000
RECORDS = (2, 6)
PAUSE_S = (0.02, 0.12)
"""Between two records: a transaction is open for most of the time, so that what is late comes into one."""
COMMIT_SHARE = 0.6
AGAIN_S = 0.3


class LateClients:
    """All of them, a task each."""

    def __init__(self, brokers: list[int], history: HistoryWriter, flag: Path, seed: int) -> None:
        self._brokers = brokers
        self._history = history
        self._flag = flag
        self._seed = seed
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Work until standard input ends."""
        loop = asyncio.get_running_loop()
        loop.add_reader(0, self._on_input)
        proxies = []
        for broker in self._brokers:
            holder = EndHolder(
                host=address_of(broker),
                port=PROXIED_PORT,
                random=Random(f"{self._seed}{broker}"),
                flag=self._flag,
                report=self._history.write,
            )
            proxies.append(await asyncio.start_server(holder.serve, None, proxy_port(broker)))
        async with asyncio.TaskGroup() as tasks:
            for number in range(PRODUCERS):
                tasks.create_task(self._guard(f"late-{number}"))
        for proxy in proxies:
            proxy.close()

    def _on_input(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self._is_over.set()

    async def _guard(self, name: str) -> None:
        try:
            await self._produce(name)
        except Exception:
            self._history.write(Fault(who=f"the client {name}", what=traceback.format_exc()))

    async def _produce(self, name: str) -> None:
        random = Random(f"{self._seed}{name}")
        journal = Journal(self._history, name)
        bootstrap = [f"{address_of(LATE_HOST)}:{proxy_port(broker)}" for broker in self._brokers]
        owner = 0
        while not self._is_over.is_set():
            client = ClusterClient(bootstrap, client_id=name, timeout_s=REQUEST_S)
            ender = ClusterClient(bootstrap, client_id=f"{name}-ends", timeout_s=ANSWER_S)
            producer = TransactionalProducer(client, name, is_new=True, timeout_ms=TRANSACTION_MS)
            owner += 1
            try:
                await producer.init()
                journal.take(owner)
                while not self._is_over.is_set():
                    await self._transact(producer, ender, journal, random)
            except (KafkaError, OSError) as error:
                journal.give_up(repr(error))
            finally:
                await client.close()
                await ender.close()
            await asyncio.sleep(AGAIN_S)

    async def _transact(
        self, producer: TransactionalProducer, ender: ClusterClient, journal: Journal, random: Random
    ) -> None:
        """One transaction from its first record to its end."""
        places = [TopicPartition(ENDED, random.randrange(PARTITIONS[ENDED])) for _ in range(random.randint(*RECORDS))]
        values = [(place, f"{journal.tag}.{number}") for number, place in enumerate(places)]
        journal.begin([(key_of(*place), value) for place, value in values])
        offsets = {}
        for place, value in values:
            offsets[value] = int(await producer.write(place, pad(value, 0)))
            journal.open()
            await asyncio.sleep(random.uniform(*PAUSE_S))
        is_commit = random.random() < COMMIT_SHARE
        journal.ask(is_commit=is_commit)
        await producer.end(is_commit=is_commit, client=ender)
        journal.end(offsets)


def main() -> int:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="", help="not used: brokers are known by their proxies")
    parser.add_argument("--brokers", required=True, help="their ids")
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--flag", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    history = HistoryWriter(options.history)
    brokers = [int(each) for each in options.brokers.split(",")]
    asyncio.run(LateClients(brokers, history, options.flag, options.seed).run())
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
