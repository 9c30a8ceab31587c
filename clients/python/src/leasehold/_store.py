"""Keys, conditions and operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ._errors import InvalidError, Lease, lease_of
from .v1 import leases_pb2, store_pb2

Bytes = str | bytes
Relation = Literal["==", "!=", ">", "<"]

_RELATIONS: dict[str, store_pb2.Compare.Relation] = {
    "==": store_pb2.Compare.RELATION_EQUAL,
    "!=": store_pb2.Compare.RELATION_NOT_EQUAL,
    ">": store_pb2.Compare.RELATION_GREATER,
    "<": store_pb2.Compare.RELATION_LESS,
}


def raw(text: Bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def ms(seconds: float) -> int:
    """Converts to whole milliseconds, rounded up."""
    return -int(-seconds * 1000 // 1)


def end_of(key: Bytes, end: Bytes | None, prefix: bool) -> bytes:
    """Returns the end of a range, which is a single key, the keys up to end, or all keys with a
    prefix.
    """
    if not prefix:
        return raw(end) if end is not None else b""
    if end is not None:
        raise InvalidError("set only one of end and prefix")
    stem = raw(key).rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int
    """The lease to which the key is attached, or 0."""


def kv_of(m: store_pb2.KeyValue) -> KeyValue:
    return KeyValue(m.key, m.value, m.create_revision, m.mod_revision, m.version, m.lease)


@dataclass(frozen=True, slots=True)
class PutResult:
    revision: int
    previous: KeyValue | None = None


@dataclass(frozen=True, slots=True)
class DeleteResult:
    revision: int
    deleted: int
    previous: tuple[KeyValue, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeResult:
    revision: int
    kvs: tuple[KeyValue, ...]
    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class TxnResult:
    revision: int
    succeeded: bool
    results: tuple[OpResult, ...]
    """One result for each executed operation. Grant and Renew return the lease, Revoke returns the
    number of keys deleted with it, and DrawToken returns the token.
    """


OpResult = PutResult | DeleteResult | RangeResult | TxnResult | Lease | int


@dataclass(frozen=True, slots=True)
class Event:
    """A change to one key."""

    kind: Literal["put", "delete"]
    kv: KeyValue
    previous: KeyValue | None = None
    cause: Literal["", "deleted", "expired", "revoked"] = ""
    """Why the key was deleted: by a request, or because its lease ended."""
    lease: int = 0
    """The lease with which the key was deleted."""


_CAUSE: dict[int, Literal["", "deleted", "expired", "revoked"]] = {
    store_pb2.Event.CAUSE_DELETED: "deleted",
    store_pb2.Event.CAUSE_EXPIRED: "expired",
    store_pb2.Event.CAUSE_REVOKED: "revoked",
}


def event_of(m: store_pb2.Event) -> Event:
    kind: Literal["put", "delete"] = "delete" if m.kind == store_pb2.Event.KIND_DELETE else "put"
    previous = kv_of(m.prev_kv) if m.HasField("prev_kv") else None
    return Event(kind, kv_of(m.kv), previous, _CAUSE.get(m.cause, ""), m.lease)


@dataclass(frozen=True, slots=True)
class Update:
    """All changes of one revision."""

    revision: int
    events: tuple[Event, ...]


class Compare:
    """A condition of a transaction."""

    def __init__(self, m: store_pb2.Compare) -> None:
        self.message = m

    @staticmethod
    def value(key: Bytes, relation: Relation, value: Bytes) -> Compare:
        return _compare(store_pb2.Compare(key=raw(key), value=raw(value)), relation)

    @staticmethod
    def version(key: Bytes, relation: Relation, version: int) -> Compare:
        return _compare(store_pb2.Compare(key=raw(key), version=version), relation)

    @staticmethod
    def create_revision(key: Bytes, relation: Relation, revision: int) -> Compare:
        return _compare(store_pb2.Compare(key=raw(key), create_revision=revision), relation)

    @staticmethod
    def mod_revision(key: Bytes, relation: Relation, revision: int) -> Compare:
        return _compare(store_pb2.Compare(key=raw(key), mod_revision=revision), relation)

    @staticmethod
    def lease(key: Bytes, relation: Relation, lease: int) -> Compare:
        return _compare(store_pb2.Compare(key=raw(key), lease=lease), relation)

    @staticmethod
    def exists(key: Bytes) -> Compare:
        return Compare.create_revision(key, ">", 0)

    @staticmethod
    def missing(key: Bytes, *, prefix: bool = False) -> Compare:
        """The key does not exist or, with prefix, no key with the prefix exists."""
        m = store_pb2.Compare(key=raw(key), range_end=end_of(key, None, prefix))
        m.create_revision = 0
        return _compare(m, "==")

    @staticmethod
    def lease_alive(lease: int, alive: bool = True) -> Compare:
        return _compare(store_pb2.Compare(lease_alive=lease), "==" if alive else "!=")

    @staticmethod
    def name_held(name: str, token: int) -> Compare:
        """A live lease with this token has the name. If the token is 0: no lease has the name."""
        held = store_pb2.NameToken(name=name, token=token)
        return _compare(store_pb2.Compare(name_token=held), "==")


def _compare(m: store_pb2.Compare, relation: Relation) -> Compare:
    m.relation = _RELATIONS[relation]
    return Compare(m)


@dataclass(frozen=True, slots=True)
class Put:
    key: Bytes
    value: Bytes = b""
    lease: int = 0
    """The lease to which the key is attached."""
    ttl: float = 0
    """Gives the key its own lease: the key is deleted after the TTL unless it is put again."""
    ignore_value: bool = False
    ignore_lease: bool = False
    previous: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    key: Bytes
    end: Bytes | None = None
    prefix: bool = False
    previous: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    key: Bytes
    end: Bytes | None = None
    prefix: bool = False
    limit: int = 0
    revision: int = 0
    serializable: bool = False
    keys_only: bool = False
    count_only: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """Grants a lease. In a transaction, the ID is required."""

    ttl: float
    id: int = 0
    name: str = ""
    owner: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    lock_delay: float = 0


@dataclass(frozen=True, slots=True)
class Renew:
    lease: int
    token: int = 0


@dataclass(frozen=True, slots=True)
class Revoke:
    lease: int
    token: int = 0


@dataclass(frozen=True, slots=True)
class DrawToken:
    """Draws the next fencing token. It does not belong to any lease."""


@dataclass(frozen=True, slots=True)
class Txn:
    """Executes the first list of operations if all conditions hold, and the second if not."""

    conditions: Sequence[Compare] = ()
    then: Sequence[Op] = ()
    otherwise: Sequence[Op] = ()


Op = Put | Delete | Range | Grant | Renew | Revoke | DrawToken | Txn


def put_message(o: Put) -> store_pb2.PutRequest:
    return store_pb2.PutRequest(
        key=raw(o.key), value=raw(o.value), lease=o.lease, ttl_ms=ms(o.ttl),
        ignore_value=o.ignore_value, ignore_lease=o.ignore_lease, prev_kv=o.previous,
    )  # fmt: skip


def delete_message(o: Delete) -> store_pb2.DeleteRequest:
    return store_pb2.DeleteRequest(
        key=raw(o.key), range_end=end_of(o.key, o.end, o.prefix), prev_kv=o.previous
    )


def range_message(o: Range) -> store_pb2.RangeRequest:
    return store_pb2.RangeRequest(
        key=raw(o.key), range_end=end_of(o.key, o.end, o.prefix), limit=o.limit,
        revision=o.revision, serializable=o.serializable, keys_only=o.keys_only,
        count_only=o.count_only,
    )  # fmt: skip


def grant_message(o: Grant) -> leases_pb2.GrantRequest:
    return leases_pb2.GrantRequest(
        id=o.id, ttl_ms=ms(o.ttl), name=o.name, owner=o.owner, labels=o.labels,
        lock_delay_ms=ms(o.lock_delay),
    )  # fmt: skip


def txn_message(o: Txn) -> store_pb2.TxnRequest:
    return store_pb2.TxnRequest(
        compare=[c.message for c in o.conditions],
        success=[_op_message(x) for x in o.then],
        failure=[_op_message(x) for x in o.otherwise],
    )


def _op_message(o: Op) -> store_pb2.Op:
    match o:
        case Put():
            return store_pb2.Op(put=put_message(o))
        case Delete():
            return store_pb2.Op(delete_range=delete_message(o))
        case Range():
            return store_pb2.Op(read_range=range_message(o))
        case Grant():
            return store_pb2.Op(grant=grant_message(o))
        case Renew():
            return store_pb2.Op(renew=leases_pb2.LeaseRef(id=o.lease, token=o.token))
        case Revoke():
            return store_pb2.Op(revoke=leases_pb2.LeaseRef(id=o.lease, token=o.token))
        case DrawToken():
            return store_pb2.Op(draw_token=store_pb2.DrawTokenRequest())
        case Txn():
            return store_pb2.Op(txn=txn_message(o))


def put_result(m: store_pb2.PutResponse, revision: int) -> PutResult:
    return PutResult(revision, kv_of(m.prev_kv) if m.HasField("prev_kv") else None)


def delete_result(m: store_pb2.DeleteResponse, revision: int) -> DeleteResult:
    return DeleteResult(revision, m.deleted, tuple(kv_of(k) for k in m.prev_kvs))


def range_result(m: store_pb2.RangeResponse, revision: int) -> RangeResult:
    return RangeResult(revision, tuple(kv_of(k) for k in m.kvs), m.count, m.more)


def txn_result(m: store_pb2.TxnResponse, revision: int) -> TxnResult:
    return TxnResult(revision, m.succeeded, tuple(_op_result(r, revision) for r in m.responses))


def _op_result(m: store_pb2.OpResponse, revision: int) -> OpResult:
    match m.WhichOneof("response"):
        case "put":
            return put_result(m.put, revision)
        case "delete_range":
            return delete_result(m.delete_range, revision)
        case "read_range":
            return range_result(m.read_range, revision)
        case "txn":
            return txn_result(m.txn, revision)
        case "grant":
            return lease_of(m.grant.lease)
        case "renew":
            return lease_of(m.renew)
        case "revoke":
            return m.revoke
        case _:
            return m.draw_token


def is_ticket(prefix: bytes, kv: KeyValue) -> bool:
    """Reports whether a key is in the wait queue with a prefix.

    It then consists of the prefix, the ID of its lease and, optionally, a number.
    """
    rest = kv.key.removeprefix(prefix) if kv.key.startswith(prefix) else b""
    return kv.lease != 0 and rest != b"" and not rest.strip(b"0123456789abcdef.")


def first_ticket(prefix: bytes, kvs: Sequence[KeyValue]) -> KeyValue | None:
    tickets = (kv for kv in kvs if is_ticket(prefix, kv))
    return min(tickets, key=lambda kv: (kv.create_revision, kv.key), default=None)
