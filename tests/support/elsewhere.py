"""A broker that other machines can reach, and somebody on such a machine."""

import contextlib
import datetime as dt
import ipaddress
import json
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.processes import BrokerProcess, git, make_repository
from tests.support.tandem import Said, Tandem
from tests.support.waiting import PATIENCE

# An address of this machine that is not one of the loopback's names, so the broker takes it for any other address.
ELSEWHERE = "127.0.0.2"


def configure(home: Path, **settings: object) -> None:
    file = home / "config/gsd-review-broker/config.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings))


def certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ELSEWHERE))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return files


def free_port() -> int:
    with socket.socket() as one:
        one.bind((ELSEWHERE, 0))
        return one.getsockname()[1]


class Member:
    """Somebody with a machine, a clone and a token of their own. Only TLS leads to the team's broker."""

    def __init__(self, folder: Path, served: Path, url: str, trusted: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.clone = folder / "clone"
        git(folder, "clone", "-q", str(served), str(self.clone))
        (self.clone / ".git/info/exclude").write_text("/.planning/\n")
        self.url = url
        self.tandem = Tandem(self.clone, self.home, SSL_CERT_FILE=str(trusted))
        self.names = {
            "GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "test@example.invalid",
            "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.invalid", "GIT_CONFIG_NOSYSTEM": "1",
        }  # fmt: skip

    def keep_token(self, token: str) -> None:
        file = self.home / "config/gsd-review-broker/token"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(token + "\n")
        file.chmod(0o600)

    def install(self, *, patience: float | None = PATIENCE) -> Said:
        done = self.tandem.run("gate", "install", "--mode", "block", "--url", self.url)
        if done.code == 0 and patience is not None:
            with (self.clone / ".git/tandem/gate").open("a") as facts:
                facts.write(f"patience={patience}\n")
        return done

    def commit(self, content: str, **environment: str) -> Said:
        """As git runs it; it may fail."""
        (self.clone / "hello.txt").write_text(content)
        variables = {**self.tandem.environment, **self.names, **environment}
        done = subprocess.run(
            ["git", "commit", "-q", "-a", "-m", "A change"], cwd=self.clone, env=variables, capture_output=True,
            check=False,
        )  # fmt: skip
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


class Team:
    """A broker that speaks TLS and needs tokens, on a machine of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "server"
        self.home.mkdir()
        self.served = make_repository(folder / "served")
        self.certificate, key = certificate(folder)
        self.port = free_port()
        self.url = f"https://{ELSEWHERE}:{self.port}"
        configure(self.home, host=ELSEWHERE, auth="token", tls_certificate=str(self.certificate), tls_key=str(key))
        self.process = BrokerProcess(self.served, home=self.home)
        self.tandem = Tandem(self.served, self.home)

    def token(self, role: str, name: str) -> str:
        made = self.tandem.run("token", "new", "--role", role, "--name", name)
        assert made.code == 0, made.err
        return made.out.strip()

    def member(self, name: str) -> Member:
        return Member(self.folder / name, self.served, self.url, self.certificate)


@contextlib.contextmanager
def team(folder: Path) -> Generator[Team]:
    made = Team(folder)
    made.process.start(port=made.port)
    try:
        yield made
    finally:
        made.process.stop()
