"""What a node's properties make of its listeners, and what they may not say: it refuses to start rather than to be open."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from barnabas_admin import pki
from barnabas_broker.config.keys import ConfigError
from barnabas_broker.node.properties import NodeConfig, node_config, read_properties
from barnabas_broker.security.config import SecurityProtocol
from barnabas_broker.security.principal_mapping import map_subject, parse_rules
from barnabas_broker.security.tls import ServerTls
from barnabas_wire.client.security import SaslLogin

PLAIN_LINE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
    ' username="broker" password="b \\"quoted\\"" user_broker="b \\"quoted\\"" user_alice=\'hers\';'
)
JAAS = "listener.name.inside.plain.sasl.jaas.config"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.init(directory)
    pki.issue(directory, "node", hosts=["127.0.0.1"])
    return directory


def config_of(protocol: str, **more: str) -> NodeConfig:
    return node_config(
        {
            "process.roles": "broker",
            "node.id": "1",
            "log.dirs": "data",
            "listeners": "INSIDE://127.0.0.1:9092",
            "listener.security.protocol.map": f"INSIDE:{protocol}",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9112",
            **more,
        }
    )


def keys(authority: Path) -> dict[str, str]:
    return {"ssl.keystore.location": str(authority / "node.pem"), "ssl.truststore.location": str(authority / "ca.pem")}


SASL = {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN", JAAS: PLAIN_LINE}


def test_a_jaas_line_says_who_this_broker_is_and_whom_it_lets_in() -> None:
    config = config_of("SASL_PLAINTEXT", **SASL)
    assert config.client_security.login == SaslLogin("PLAIN", "broker", 'b "quoted"')
    assert config.listener_security["INSIDE"].passwords == {"broker": 'b "quoted"', "alice": "hers"}
    assert "hers" not in repr(config.listener_security) and "quoted" not in repr(config.client_security)


def test_a_key_of_one_listener_wins_over_that_of_all(authority: Path) -> None:
    own = {"listener.name.inside.sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    config = config_of("SASL_SSL", **keys(authority), **SASL, **own)
    security = config.listener_security["INSIDE"]
    assert security.config.sasl_enabled_mechanisms == ("SCRAM-SHA-512",)
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert config.client_security.tls is not None and config.client_security.tls().check_hostname


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_a_listener_without_a_map_speaks_what_its_name_says(listener: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location|sasl\.enabled\.mechanisms"):
        config_of("PLAINTEXT", **{"listeners": f"{listener}://127.0.0.1:9092", "listener.security.protocol.map": ""})


@pytest.mark.parametrize(
    ("protocol", "more", "reason"),
    [
        ("TLS", {}, "use PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("SSL", {}, r"set ssl\.keystore\.location"),
        ("SASL_PLAINTEXT", {}, r"set sasl\.enabled\.mechanisms"),
        ("SASL_PLAINTEXT", SASL | {JAAS: ""}, "knows no user"),
        ("SASL_PLAINTEXT", SASL | {JAAS: "evil.Module required;"}, "names Module"),
        ("SASL_PLAINTEXT", SASL | {JAAS: 'x.PlainLoginModule required user_a="hidden"'}, "is not a JAAS line"),
        ("SASL_PLAINTEXT", SASL | {JAAS: 'x.PlainLoginModule required user_a="hidden;'}, "an option is not"),
        ("SASL_PLAINTEXT", SASL | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "has no name"),
        ("PLAINTEXT", {"ssl.enabled.protocols": "TLSv1.1"}, r"TLSv1\.2, TLSv1\.3"),
        ("PLAINTEXT", {"ssl.principal.mapping.rules": "RULE:^CN=(.*$/$1/"}, "not a regular expression"),
        ("PLAINTEXT", {"listener.security.protocol.map": "OTHER:PLAINTEXT"}, "does not name the listener INSIDE"),
    ],
)
def test_what_cannot_be_kept_stops_the_start(protocol: str, more: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        config_of(protocol, **more)
    assert "hidden" not in refused.value.message


@pytest.mark.parametrize("missing", ["ssl.truststore.location", "ssl.keystore.location"])
def test_tls_needs_its_files(authority: Path, missing: str) -> None:
    with pytest.raises(ConfigError, match=missing.replace(".", r"\.")):
        config_of("SSL", **{key: value for key, value in keys(authority).items() if key != missing})
    with pytest.raises(ConfigError, match="No such file"):
        config_of("SSL", **keys(authority) | {missing: "nowhere.pem"})


def test_a_private_key_that_others_may_read_is_refused(authority: Path, tmp_path: Path) -> None:
    file = tmp_path / "node.pem"
    file.write_bytes((authority / "node.pem").read_bytes())
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=f"mode 0640: chmod 600 {file}"):
        config_of("SSL", **keys(authority) | {"ssl.keystore.location": str(file)})


def test_properties_with_a_secret_that_others_may_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\n{JAAS}=secret\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=f"chmod 600 {file}") as refused:
        read_properties(file)
    assert "=secret" not in refused.value.message
    file.chmod(0o600)
    assert read_properties(file)[JAAS] == "secret"


def test_pem_text_stands_for_a_file(authority: Path) -> None:
    pem = (authority / "node.pem").read_text()
    at = pem.index("-----BEGIN CERTIFICATE")
    inline = {
        "ssl.keystore.key": pem[:at].replace("\n", "\\n"),
        "ssl.keystore.certificate.chain": pem[at:].replace("\n", "\\n"),
        "ssl.truststore.certificates": (authority / "ca.pem").read_text().replace("\n", "\\n"),
    }
    security = config_of("SSL", **inline).listener_security["INSIDE"]
    assert security.tls is not None
    assert inline["ssl.keystore.key"] not in repr(security)


def test_a_renewed_certificate_is_taken_and_a_broken_one_is_not(authority: Path) -> None:
    pki.issue(authority, "renewed", hosts=["127.0.0.1"])
    file = authority / "renewed.pem"
    config = config_of("SSL", **keys(authority) | {"ssl.keystore.location": str(file)})
    tls = config.listener_security["INSIDE"].tls
    assert tls is not None
    assert not tls.reload_if_changed()
    before = _served(tls, authority)
    pki.renew(authority, "renewed")
    whole = file.read_bytes()
    file.write_bytes(whole[:200])
    with pytest.raises(ConfigError):
        tls.reload_if_changed()
    assert _served(tls, authority) == before
    file.write_bytes(whole)
    assert tls.reload_if_changed()
    assert _served(tls, authority) != before


def test_a_broker_shows_its_renewed_certificate_to_others_too(authority: Path) -> None:
    pki.issue(authority, "own", hosts=["127.0.0.1"])
    file = authority / "own.pem"
    more = {"ssl.keystore.location": str(file), "ssl.client.auth": "required"}
    config = config_of("SSL", **keys(authority) | more)
    tls = config.client_tls
    server = config.listener_security["INSIDE"].tls
    assert tls is not None and server is not None and config.client_security.tls is not None
    assert not tls.reload_if_changed()
    before = _shown(tls.context, server.context)
    pki.renew(authority, "own")
    whole = file.read_bytes()
    file.write_bytes(whole[:200])
    with pytest.raises(ConfigError):
        tls.reload_if_changed()
    assert before is not None and _shown(tls.context, server.context) == before
    file.write_bytes(whole)
    assert tls.reload_if_changed()
    assert _shown(config.client_security.tls(), server.context) not in (None, before)


@pytest.mark.attack("A7", "an authority that is taken out of the truststore is trusted no more")
def test_an_authority_that_is_taken_away_is_trusted_no_more(authority: Path, tmp_path: Path) -> None:
    """By neither side, without a restart: OpenSSL itself forgets none that a context once had."""
    pki.init(tmp_path, name="Another")
    pki.issue(tmp_path, "stranger", hosts=["127.0.0.1"])
    trusted = tmp_path / "trusted.pem"
    both = (authority / "ca.pem").read_text() + (tmp_path / "ca.pem").read_text()
    trusted.write_text(both)
    config = config_of(
        "SSL", **keys(authority) | {"ssl.truststore.location": str(trusted), "ssl.client.auth": "required"}
    )
    server, client = config.listener_security["INSIDE"].tls, config.client_tls
    assert server is not None and client is not None
    stranger = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    stranger.load_cert_chain(tmp_path / "stranger.pem")
    pretender = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pretender.load_cert_chain(tmp_path / "stranger.pem")
    pretender.load_verify_locations(trusted)
    pretender.verify_mode = ssl.CERT_REQUIRED
    assert _shown(stranger, server.context) is not None and _shown(client.context, pretender) is not None
    trusted.write_text((authority / "ca.pem").read_text())
    assert server.reload_if_changed() and client.reload_if_changed()
    with pytest.raises(ssl.SSLError):
        _shown(stranger, server.context)
    with pytest.raises(ssl.SSLError):
        _shown(client.context, pretender)


def _shown(client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> bytes | None:
    """The certificate that a server is shown now, by a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return server.getpeercert(binary_form=True)


def _served(tls: ServerTls, authority: Path) -> bytes | None:
    """The certificate that a client is shown now, by a handshake in memory."""
    client_context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = tls.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.getpeercert(binary_form=True)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=alice,OU=people", "CN=alice,OU=people"),
        ("RULE:^CN=(.*?),OU=people.*$/$1/", "CN=alice,OU=people,C=CH", "alice"),
        ("RULE:^CN=(.*?),OU=(.*)$/$1@$2/U", "CN=alice,OU=people", "ALICE@PEOPLE"),
        ("RULE:^CN=([^,]*),OU=hosts$/$1/L, RULE:^CN=([^,]*),.*$/other-$1/, DEFAULT", "CN=Node-1,OU=hosts", "node-1"),
        ("RULE:^CN=([^,]*),OU=hosts$/$1/L, RULE:^CN=([^,]*),.*$/other-$1/, DEFAULT", "CN=bob,OU=x", "other-bob"),
        ("RULE:^CN=([^,]*),OU=hosts$/$1/L, DEFAULT", "O=else", "O=else"),
        ("RULE:^CN=([^,]*),OU=hosts$/$1/L", "O=else", None),
        # what Kafka's own documentation and tests have, with java.util.regex's outcome
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=Unknown", "serviceuser"),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "CN=Adm,OU=Op,O=U,L=Z,ST=ZH,C=CH",
            "adm@op",
        ),
        (r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "C=CH,O=x,CN=Kafka.1,OU=y", "kafka.1"),
        (r"RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/", "cn=a,ou=b,dc=c,dc=d", "a@b"),
        (r"RULE:^CN=(\d+)-(\w+)(?:,.*)?$/$2_$1/U", "CN=17-abc,O=x", "ABC_17"),
        (r"RULE:^CN=(?:(a)|(b)).*$/x$1y$2/", "CN=b,O=x", "xyb"),
        ("RULE:(?i)^cn=([^,]+).*$/$1/", "CN=Ann,O=x", "Ann"),
        ("RULE:^CN=([^,]+)$/$0/", "CN=ann", "CN=ann"),
        (r"RULE:^CN=([^,]+)\/(.*)$/$1\/\$2/", "CN=a/b", "a/$2"),
        ("RULE:^CN=(Zoë|Jürg),.*$/$1/", "CN=Jürg,O=x", "Jürg"),
        ("RULE:^CN=a|CN=ab$/hit/", "CN=ab", "hit"),
        ("RULE:^CN=a.c$/hit/", "CN=a\nc", None),
    ],
)
def test_the_first_rule_that_matches_names_a_client(rules: str, subject: str, name: str | None) -> None:
    assert map_subject(parse_rules(rules), subject) == name


@pytest.mark.attack("A8", "a certificate's subject does not hold the loop by a rule that backtracks")
def test_a_subject_is_matched_in_linear_time() -> None:
    rules = parse_rules("RULE:^CN=(([a-z]+)+)+,O=x$/$1/,RULE:^(.*?)*=(.*,?)*;$/$1/")
    since = time.process_time()
    assert map_subject(rules, f"CN={'a' * 26}!") is None
    assert map_subject(rules, f"CN={'a' * 10_000}!") is None
    assert time.process_time() - since < 1.0


@pytest.mark.parametrize("pattern", [r"CN=(a)\1", "(?=CN)", "(?<!x)CN=.*", "CN=(", "x{1001}"])
def test_a_pattern_without_linear_time_stops_the_start(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules: .* RE2"):
        parse_rules(f"RULE:{pattern}/$0/")


def test_a_group_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="names a group"):
        parse_rules("RULE:^CN=(.*)$/$2/")
