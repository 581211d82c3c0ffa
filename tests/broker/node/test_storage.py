"""A node's directories say who it is; every refusal names the command or file that mends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_broker.node.properties import ServerConfig
from barnabas_broker.node.storage import NodeStorage, format_storage, initial_controllers, is_formatted, load_storage
from barnabas_log.disk import RealDisk
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot, bootstrap_snapshot, bootstrap_voters
from barnabas_quorum.raft.voters import VoterSet
from barnabas_quorum.records_security import UserScramCredentialRecord
from barnabas_wire.kafka.ids import Uuid

CLUSTER = str(Uuid(bytes(range(16))))
OWN, OTHER = Uuid(b"o" * 16), Uuid(b"p" * 16)


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    """A real disk, closed afterwards."""
    found = RealDisk()
    yield found
    found.close()


def server(path: Path, *, roles: tuple[str, ...] = ("broker", "controller"), node_id: int = 1) -> ServerConfig:
    """A node with two data directories."""
    return ServerConfig(
        process_roles=roles,
        node_id=node_id,
        log_dirs=(str(path / "a"), str(path / "b")),
        listeners=("CONTROLLER://127.0.0.1:1",),
        quorum_bootstrap_servers=("127.0.0.1:1",),
    )


def voters(*, port: int = 1) -> VoterSet:
    """Two voters, of which this node is the first."""
    return initial_controllers(f"1@127.0.0.1:{port}:{OWN},2@127.0.0.1:9:{OTHER}")


def format_node(
    disk: RealDisk,
    config: ServerConfig,
    *,
    given: VoterSet | None = None,
    again: bool = False,
    first_records: Sequence[UserScramCredentialRecord] = (),
) -> NodeStorage:
    """Format with ids drawn from a counter."""
    ids = iter(Uuid(bytes([number]) * 16) for number in range(1, 200))
    return format_storage(
        disk,
        config,
        cluster_id=CLUSTER,
        make_voters=lambda directory_id: given,
        new_uuid=lambda: next(ids),
        is_formatted_ignored=again,
        first_records=first_records,
    )


def test_a_formatted_controller_knows_cluster_directories_and_voters(disk: RealDisk, tmp_path: Path) -> None:
    made = format_node(disk, server(tmp_path), given=voters())
    loaded = load_storage(disk, server(tmp_path))
    assert loaded == made
    assert (loaded.cluster_id, loaded.voters) == (CLUSTER, voters())
    assert loaded.replica.directory_id == OWN, "the voter set names this node's metadata directory"
    assert len(set(loaded.directory_ids.values())) == 2


def test_an_unformatted_directory_is_refused_with_the_command(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"not formatted.*barnabas storage format -c FILE"):
        load_storage(disk, server(tmp_path))


def test_formatting_twice_is_refused_unless_asked_and_then_keeps_everything(disk: RealDisk, tmp_path: Path) -> None:
    made = format_node(disk, server(tmp_path), given=voters())
    with pytest.raises(StorageError, match="--ignore-formatted"):
        format_node(disk, server(tmp_path), given=voters())
    assert format_node(disk, server(tmp_path), given=voters(), again=True) == made


def test_only_the_addresses_of_voters_may_be_written_again(disk: RealDisk, tmp_path: Path) -> None:
    format_node(disk, server(tmp_path), given=voters())
    moved = format_node(disk, server(tmp_path), given=voters(port=7), again=True)
    assert moved.voters == voters(port=7)
    stranger = initial_controllers(f"1@127.0.0.1:1:{OWN},3@127.0.0.1:9:{OTHER}")
    with pytest.raises(StorageError, match="other voters"):
        format_node(disk, server(tmp_path), given=stranger, again=True)


def test_a_directory_of_another_node_or_cluster_is_refused(disk: RealDisk, tmp_path: Path) -> None:
    format_node(disk, server(tmp_path), given=voters())
    with pytest.raises(StorageError, match=r"belongs to node 1, but node\.id=4"):
        load_storage(disk, server(tmp_path, node_id=4))


def test_a_damaged_bootstrap_checkpoint_names_itself_and_where_to_get_it(disk: RealDisk, tmp_path: Path) -> None:
    format_node(disk, server(tmp_path), given=voters())
    (checkpoint,) = tmp_path.rglob("*.checkpoint")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(StorageError, match="another controller") as refused:
        load_storage(disk, server(tmp_path))
    assert str(checkpoint) in refused.value.message


def test_a_damaged_meta_file_names_itself(disk: RealDisk, tmp_path: Path) -> None:
    format_node(disk, server(tmp_path), given=voters())
    (tmp_path / "b/meta.properties").write_text("version=1\ncluster.id=x\n")
    with pytest.raises(StorageError, match=r"b/meta\.properties is damaged"):
        load_storage(disk, server(tmp_path))


@pytest.mark.parametrize("what", ["unreadable", "unformatted", "absent"])
def test_a_data_directory_that_cannot_be_read_is_offline_and_that_of_the_metadata_log_is_refused(
    disk: RealDisk, tmp_path: Path, what: str
) -> None:
    made = format_node(disk, server(tmp_path), given=voters())

    def spoil(name: str) -> None:
        (tmp_path / name).rename(tmp_path / f"{name}.away")
        if what == "unreadable":
            (tmp_path / name).symlink_to(tmp_path / name)
        elif what == "unformatted":
            (tmp_path / name).mkdir()

    spoil("b")
    b = str(tmp_path / "b")
    loaded = load_storage(disk, server(tmp_path))
    assert loaded.directory_ids == {str(tmp_path / "a"): made.directory_ids[str(tmp_path / "a")]}
    assert list(loaded.offline) == [b]
    if what != "unreadable":
        assert "mount the disk" in str(loaded.offline[b]) and CLUSTER in str(loaded.offline[b])
    assert is_formatted(disk, server(tmp_path)), "a broker does not format itself beside what it has"
    spoil("a")
    with pytest.raises(StorageError, match="cannot be read" if what == "unreadable" else "not formatted"):
        load_storage(disk, server(tmp_path))
    assert is_formatted(disk, server(tmp_path)) == (what == "unreadable")


def test_a_directory_that_cannot_be_made_is_named_with_its_key() -> None:
    disk = RealDisk()
    with pytest.raises(StorageError, match=r"/proc/nowhere/a cannot be written .*log\.dirs"):
        format_node(disk, server(Path("/proc/nowhere"), roles=("broker",)))
    disk.close()


def test_a_broker_has_no_voters(disk: RealDisk, tmp_path: Path) -> None:
    assert format_node(disk, server(tmp_path, roles=("broker",))).voters is None


def test_a_controller_formatted_without_voters_has_to_ask_for_them(disk: RealDisk, tmp_path: Path) -> None:
    assert format_node(disk, server(tmp_path), given=None).voters is None


def test_a_checkpoint_cut_at_any_byte_is_refused() -> None:
    data = bootstrap_snapshot(voters())
    assert bootstrap_voters(data) == voters()
    for cut in range(len(data)):
        with pytest.raises(DamagedSnapshot):
            bootstrap_voters(data[:cut])
