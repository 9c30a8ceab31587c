"""Tests of functions that depend only on their arguments."""

import pytest

from leasehold import Compare, InvalidError, KeyValue, NotLoggedInError, Put, Txn
from leasehold._config import TLS, Config, Login
from leasehold._errors import UnknownOutcomeError, error_of
from leasehold._mux import _Numbers
from leasehold._store import end_of, first_ticket, is_ticket, ms, txn_message
from leasehold.v1 import leases_pb2, stream_pb2


@pytest.mark.parametrize(
    ("key", "end"), [("a/", b"a0"), (b"a\xff", b"b"), ("", b"\0"), (b"\xff\xff", b"\0")]
)
def test_end_of_prefix(key: str | bytes, end: bytes) -> None:
    assert end_of(key, None, True) == end


def test_end_and_prefix_exclude_each_other() -> None:
    assert end_of("a", "b", False) == b"b"
    assert end_of("a", None, False) == b""
    with pytest.raises(InvalidError):
        end_of("a", "b", True)


@pytest.mark.parametrize(("seconds", "milliseconds"), [(0, 0), (1.5, 1500), (0.0001, 1)])
def test_milliseconds_are_rounded_up(seconds: float, milliseconds: int) -> None:
    assert ms(seconds) == milliseconds


def _kv(key: str, lease: int, created: int) -> KeyValue:
    return KeyValue(key.encode(), b"", created, created, 1, lease)


def test_tickets() -> None:
    assert is_ticket(b"m/", _kv("m/1f", 31, 2))
    assert is_ticket(b"m/", _kv("m/1f.2", 31, 2))
    assert not is_ticket(b"m/", _kv("m/1f", 0, 2))  # not attached to a lease
    assert not is_ticket(b"m/", _kv("m/sub/1f", 31, 2))
    assert not is_ticket(b"m/", _kv("m/", 31, 2))
    kvs = [_kv("m/a", 10, 7), _kv("m/b", 11, 5), _kv("m/config", 0, 1)]
    assert first_ticket(b"m/", kvs) == kvs[1]
    assert first_ticket(b"m/", kvs[2:]) is None


def test_endpoints() -> None:
    assert Config.parse([" host:1 "], None)[0].target == "host:1"
    assert not Config.parse(["host:1"], None)[0].secure
    assert Config.parse(["host:1"], TLS())[0].secure
    assert not Config.parse(["http://host:1"], TLS())[0].secure
    assert Config.parse(["https://host:1/"], None)[0].secure
    for wrong in ([], ["ftp://host:1"], ["host"]):
        with pytest.raises(InvalidError):
            Config.parse(wrong, None)


def test_login_messages() -> None:
    login = Login("app", "secret", "", None)
    assert login.current() is None
    assert login.request() == b"\x0a\x03app\x12\x06secret"
    header = b"\x0a\x02\x08\x01"
    assert login.accept(header + b"\x12\x05tok.1") == "tok.1"
    assert login.current() == "tok.1"
    login.refused("another")
    assert login.current() == "tok.1"
    login.refused("tok.1")
    assert login.current() is None
    with pytest.raises(NotLoggedInError):
        login.accept(header)


def test_one_way_to_log_in() -> None:
    assert Login("", "", "t", None).current() == "t"
    assert Login("", "", "", None).current() == ""
    with pytest.raises(InvalidError):
        Login("app", "secret", "t", None)
    with pytest.raises(InvalidError):
        Login("", "secret", "", None)


def test_errors_have_the_words_of_the_member() -> None:
    e = error_of(
        leases_pb2.Error(
            reason=leases_pb2.REASON_NAME_TAKEN,
            message="taken",
            holder=leases_pb2.Lease(id=7, owner="me"),
            metadata={"lease": "7"},
        )
    )
    assert (e.code, str(e), e.metadata) == ("NAME_TAKEN", "taken", {"lease": "7"})
    assert e.holder is not None
    assert e.holder.owner == "me"


def test_a_reason_of_a_later_server_says_nothing_of_the_outcome() -> None:
    e = leases_pb2.Error()
    e.ParseFromString(b"\x08\x7f")  # reason 127
    assert isinstance(error_of(e), UnknownOutcomeError)


def test_numbers_are_acknowledged_in_order() -> None:
    n = _Numbers(stream_pb2.SessionRef(id=1))
    n.last = 3
    n.settle(2)
    assert n.acknowledged_below == 1
    n.settle(1)
    assert n.acknowledged_below == 3
    n.settle(3)
    assert n.acknowledged_below == 4


def test_missing_compares_with_zero() -> None:
    m = txn_message(Txn([Compare.missing("a/", prefix=True)], [Put("k", "v", 7)]))
    assert m.compare[0].WhichOneof("target") == "create_revision"
    assert m.compare[0].range_end == b"a0"
    assert m.success[0].put.lease == 7
