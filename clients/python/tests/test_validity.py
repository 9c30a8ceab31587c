"""How long a lease is valid, tested with a fake clock."""

from leasehold import TLS, Clock
from leasehold._config import Config, Login
from leasehold._errors import ExpiredError, LostError
from leasehold._keeper import Hold, Keeper, _Stream
from leasehold.v1 import leases_pb2, stream_pb2

S = 10**9


class FakeTime:
    def __init__(self) -> None:
        self.monotonic, self.wall = 5 * S, 1_700_000_000 * S

    def clock(self) -> Clock:
        return Clock(lambda: self.monotonic, lambda: self.wall)

    def passes(self, seconds: float) -> None:
        self.monotonic += int(seconds * S)
        self.wall += int(seconds * S)


class FakeStream(_Stream):
    """Records what is sent."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.waits = {}
        self.sent: list[list[int]] = []
        self.closed = False

    def send(self, holds: list[Hold], deadline: int) -> None:
        self.sent.append([h.id for h in holds])
        self.waits[len(self.sent)] = (self._keeper.clock.now(), deadline, holds)

    def close(self) -> None:
        self.closed = True


def _keeper(time: FakeTime) -> Keeper:
    endpoints = Config.parse(["127.0.0.1:1"], None)
    login = Login("", "", "", None)
    config = Config(endpoints, tls=TLS(), login=login, clock=time.clock(), drift=1e-3,
                    margin=5_000_000, member_timeout=3.0)  # fmt: skip
    return Keeper(config)


def _hold(k: Keeper, id: int = 1, ttl: int = 10) -> Hold:
    h = Hold(k, id, 7, ttl * S, k.clock.now(), ttl * S)
    k._holds[id] = h
    return h


def test_the_clock_takes_the_faster_step() -> None:
    time = FakeTime()
    clock = time.clock()
    time.passes(1)
    assert clock.now() == S
    time.wall += 3 * S  # the wall clock was set, or the machine was suspended
    assert clock.now() == 4 * S
    time.wall -= 100 * S
    assert clock.now() == 4 * S
    time.passes(1)  # a clock that was set back does not stop the elapsed time
    assert clock.now() == 5 * S


def test_less_drift_and_margin() -> None:
    time = FakeTime()
    h = _hold(_keeper(time))
    assert h.left() == 10 * S - 10_000_000 - 5_000_000
    time.passes(9.984)
    assert h.error() is None
    time.passes(0.001)
    assert isinstance(h.error(), ExpiredError)


def test_it_never_comes_back() -> None:
    time = FakeTime()
    h = _hold(_keeper(time))
    time.passes(11)
    h.renewed(0, 10 * S)
    assert isinstance(h.error(), ExpiredError)
    time.passes(-20)
    assert isinstance(h.error(), ExpiredError)


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    time = FakeTime()
    k = _keeper(time)
    h, stream = _hold(k), FakeStream(k)
    k._stream = stream
    time.passes(4)
    k._step(k.clock.now())
    assert stream.sent == [[1]]
    time.passes(2)
    result = leases_pb2.RenewResult(id=1, ttl_ms=10_000)
    k.answered(stream, _answer(1, result))
    assert h.left() == 8 * S - 15_000_000


def test_a_member_that_hangs_is_left() -> None:
    time = FakeTime()
    k = _keeper(time)
    _hold(k)
    stream = FakeStream(k)
    k._stream = stream
    time.passes(4)
    k._step(k.clock.now())
    time.passes(1.7)
    k._not_before = k.clock.now() + S
    k._step(k.clock.now())
    assert stream.closed
    assert k._stream is None


def test_not_due_is_not_sent() -> None:
    time = FakeTime()
    k = _keeper(time)
    _hold(k)
    k._stream = stream = FakeStream(k)
    time.passes(3)
    at = k._step(k.clock.now())
    assert stream.sent == []
    assert at == 10 * S // 3


def test_lost() -> None:
    time = FakeTime()
    k = _keeper(time)
    h, other, stream = _hold(k), _hold(k, 2), FakeStream(k)
    k._stream = stream
    told: list[bool] = []
    h.notify = lambda: told.append(True)
    time.passes(4)
    k._step(k.clock.now())
    result = leases_pb2.RenewResult(
        id=1,
        reason=leases_pb2.REASON_LEASE_NOT_FOUND,
        cause=leases_pb2.LeaseEvent.KIND_REVOKED,
        by="somebody",
    )
    k.answered(stream, _answer(1, result, leases_pb2.RenewResult(id=2, ttl_ms=10_000)))
    error = h.error()
    assert isinstance(error, LostError)
    assert str(error) == "the lease is gone: revoked by 'somebody'"
    assert told == [True]
    assert other.error() is None
    assert list(k._holds) == [2]


def test_an_unknown_outcome_is_not_a_renewal() -> None:
    time = FakeTime()
    k = _keeper(time)
    h, stream = _hold(k), FakeStream(k)
    k._stream = stream
    time.passes(4)
    k._step(k.clock.now())
    before = h.left()
    result = leases_pb2.RenewResult(id=1, reason=leases_pb2.REASON_UNKNOWN_OUTCOME)
    k.answered(stream, _answer(1, result))
    assert h.left() == before
    assert stream.closed  # another member may be able to renew it


def _answer(id: int, *results: leases_pb2.RenewResult) -> stream_pb2.Response:
    return stream_pb2.Response(id=id, renew=leases_pb2.RenewResponse(results=results))
