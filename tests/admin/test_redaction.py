"""Nothing secret leaves in a bundle, and what is not secret stays readable."""

from __future__ import annotations

import pytest

from barnabas_admin.redaction import HIDDEN, redact_json, redact_properties, redact_text

SECRET = "tr0ub4dor&3"
PEM = "-----BEGIN EC PRIVATE KEY-----\\nMHcCAQEEIB\\n-----END EC PRIVATE KEY-----"
JAAS = f'org.apache.PlainLoginModule required username="broker" password="{SECRET}" user_ann="{SECRET}";'
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "line",
    [
        f"ssl.key.password={SECRET}",
        f"listener.name.brokers.plain.sasl.jaas.config={JAAS}",
        f"sasl.jaas.config = {JAAS}",
        f"delegation.token.secret.key={SECRET}",
        f"ssl.keystore.key={PEM}",
        f"# ssl.keystore.password={SECRET}",
        f"my.own.key={JAAS}",
        f"some.words={TOKEN}",
    ],
)
def test_a_secret_of_a_properties_file_is_hidden_and_its_key_stays(line: str) -> None:
    found = redact_properties(f"node.id=1\n{line}\nlog.dirs=/data\n")
    assert found.startswith("node.id=1\n") and found.endswith("\nlog.dirs=/data\n")
    key = line.lstrip("# ").partition("=")[0].strip()
    assert key in found and HIDDEN in found
    assert SECRET not in found and "MHcCAQEEIB" not in found and TOKEN not in found


@pytest.mark.parametrize(
    "text",
    [
        f'login failed: {{"password": "{SECRET}"}}'.replace('": "', '"="').replace('"password"', "password"),
        f"--add-scram SCRAM-SHA-512=[name=admin,password={SECRET}]",
        f"--add-scram SCRAM-SHA-512=[name=admin,saltedpassword={SECRET},salt=abc]",
        f"Authorization: Bearer {TOKEN}",
        PEM.replace("\\n", "\n"),
        "-----BEGIN PRIVATE KEY-----\nMHcCAQEEIB cut off",
    ],
)
def test_a_secret_in_any_text_is_hidden(text: str) -> None:
    found = redact_text(f"before {text}")
    assert found.startswith("before ") and HIDDEN in found
    assert SECRET not in found and "MHcCAQEEIB" not in found and TOKEN not in found


def test_a_secret_of_a_json_value_is_hidden_where_it_stands() -> None:
    found = redact_json(
        {
            "configs": [
                {"key": "sasl.jaas.config", "value": JAAS, "source": "file"},
                {"key": "ssl.endpoint.identification.algorithm", "value": "https"},
                {"key": "ssl.key.password", "value": None},
            ],
            "token": {"client_secret": SECRET},
            "words": f'password="{SECRET}"',
            "is_password_set": True,
        }
    )
    assert SECRET not in str(found)
    assert found["configs"][0] == {"key": "sasl.jaas.config", "value": HIDDEN, "source": "file"}
    assert found["configs"][1]["value"] == "https" and found["configs"][2]["value"] is None
    assert found["is_password_set"] is True


@pytest.mark.parametrize(
    "text",
    [
        f"ssl.key.password {SECRET}\n",
        f"ssl.key.passwor\\u0064={SECRET}\n",
        f"ssl.key.pass\\\n   word={SECRET}\n",
        f"sasl.jaas.config=X required \\\n  username=a \\\n  key={SECRET};\n",
        f"#sasl.jaas.config=X required \\\n#  key={SECRET};\n",
        f'some.words=password=\\"{SECRET}\\"\n',
        f"ssl.key.password=\\d{SECRET}\n",
        f"ssl.key.password=a\x0b{SECRET}\r",
    ],
)
def test_a_secret_in_any_of_javas_forms_is_hidden(text: str) -> None:
    found = redact_properties("node.id=1\n" + text + "log.dirs=/data\n")
    assert SECRET not in found and HIDDEN in found
    assert found.startswith("node.id=1\n") and found.endswith("log.dirs=/data\n")


def test_what_is_no_secret_stays() -> None:
    text = "listeners=SASL_SSL://h:9092\nkey.separator=:\nmessage.key=7\ndelegation.token.max.lifetime.ms=5\n"
    assert redact_properties(text) == text
