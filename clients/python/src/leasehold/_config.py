"""The members' endpoints and the client's identity."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from ._clock import Clock
from ._errors import InvalidError, NotLoggedInError

OPEN = "/leasehold.v1.StreamService/Open"
_LOGIN = "/etcdserverpb.Auth/Authenticate"


@dataclass(frozen=True, slots=True)
class TLS:
    """PEM files. They are read for each connection, so they can be replaced."""

    ca: str | Path | None = None
    """The root certificates for members. By default, the system's are used."""
    cert: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None
    """The name in the members' certificates, if it differs from the endpoint's host."""

    def credentials(self) -> grpc.ChannelCredentials:
        def read(file: str | Path | None) -> bytes | None:
            return None if file is None else Path(file).read_bytes()

        return grpc.ssl_channel_credentials(read(self.ca), read(self.key), read(self.cert))


@dataclass(frozen=True, slots=True)
class Endpoint:
    target: str
    secure: bool


def _endpoint(text: str, tls: TLS | None) -> Endpoint:
    scheme, sep, rest = text.partition("://")
    if not sep:
        scheme, rest = "", text
    if scheme not in ("", "http", "https"):
        raise InvalidError(f"endpoint {text!r}: the scheme is not http or https")
    if scheme == "https" and tls is None:
        tls = TLS()
    rest = rest.rstrip("/")
    if not rest.startswith("unix:") and not rest.rpartition(":")[2].isdigit():
        raise InvalidError(f"endpoint {text!r} has no port")
    return Endpoint(rest, tls is not None and scheme != "http")


@dataclass(slots=True)
class Config:
    endpoints: list[Endpoint]
    tls: TLS
    login: Login
    clock: Clock
    drift: float
    margin: int
    member_timeout: float
    dial_timeout: float = 2.0
    options: list[tuple[str, str | int]] = field(default_factory=list)

    @staticmethod
    def parse(endpoints: list[str], tls: TLS | None) -> list[Endpoint]:
        parsed = [_endpoint(e.strip(), tls) for e in endpoints if e.strip()]
        if not parsed:
            raise InvalidError("no endpoints specified")
        return parsed

    def channel_options(self) -> list[tuple[str, str | int]]:
        options: list[tuple[str, str | int]] = [
            ("grpc.keepalive_time_ms", 6000),  # members allow one ping every five seconds
            ("grpc.keepalive_timeout_ms", int(self.member_timeout * 1000)),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.ping_timeout_ms", int(self.member_timeout * 1000)),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # makes each new link a new connection
            ("grpc.enable_retries", 0),
        ]
        if self.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return options


class Login:
    """The token of a client, shared by all connections. A password is exchanged for a token."""

    def __init__(self, user: str, password: str, token: str, token_file: str | Path | None) -> None:
        if sum(map(bool, (user, token, token_file))) > 1:
            raise InvalidError("set only one of user, token and token_file")
        if password and not user:
            raise InvalidError("password set without a user")
        self.user, self._password = user, password
        self._fixed, self._file = token, token_file
        self._lock = threading.Lock()
        self._token = ""

    def current(self) -> str | None:
        """Returns the token, "" if there is none, or None if the client must log in first."""
        if self._file:
            token = Path(self._file).read_text().strip()
            if not token:
                raise NotLoggedInError(f"{self._file} contains no token")
            return token
        if not self.user:
            return self._fixed
        with self._lock:
            return self._token or None

    def refused(self, token: str) -> None:
        """Discards a token that a member rejected. The next connection logs in again."""
        with self._lock:
            if token == self._token:
                self._token = ""

    # The client uses only this call of etcd's Auth service, so it encodes its messages by hand. The
    # name is field 1 and the password is field 2. In the answer, the token is field 2.

    method = _LOGIN

    def request(self) -> bytes:
        def text(field: int, value: str) -> bytes:
            raw = value.encode()
            return bytes([field << 3 | 2]) + _varint(len(raw)) + raw

        return text(1, self.user) + text(2, self._password)

    def accept(self, answer: bytes) -> str:
        token = _text(answer, 2)
        if not token:
            raise NotLoggedInError("the login response contains no token")
        with self._lock:
            self._token = token
        return token

    def refusal(self, e: grpc.RpcError) -> NotLoggedInError | None:
        """Returns why the login failed, or None if there are no users. Raises other errors."""
        code, details = e.code(), e.details() or ""
        if code == grpc.StatusCode.FAILED_PRECONDITION and "not enabled" in details:
            return None
        if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED):
            return NotLoggedInError(f"login as user {self.user!r} was rejected: {details}")
        raise e


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def _text(message: bytes, field: int) -> str:
    """Returns a text field of a message in which all fields are length-delimited."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        if tag & 7 != 2:
            return ""
        size, at = _read_varint(message, at)
        if tag >> 3 == field:
            return message[at : at + size].decode()
        at += size
    return ""


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
