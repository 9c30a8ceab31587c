"""Renews leases in a separate thread, over a separate stream.

A program that keeps the event loop busy does not delay renewals. This is the only module that knows
how leases are renewed.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from ._config import OPEN, Config
from ._errors import ClosedError, ExpiredError, LeaseholdError, LostError, NotHeldError
from .v1 import leases_pb2, stream_pb2

_MS = 1_000_000
_KINDS = leases_pb2.LeaseEvent.Kind


class Hold:
    """A lease that is kept alive. Its methods are thread-safe.

    Its validity is measured from the moment just before the last acknowledged grant or renewal was
    sent. It lasts for the TTL, minus clock drift and a margin.
    """

    def __init__(self, keeper: Keeper, id: int, token: int, ttl: int, sent: int, left: int) -> None:
        self._keeper, self.id, self.token, self.ttl = keeper, id, token, ttl
        self._lock = threading.Lock()
        self._until = sent + keeper.validity(left)
        self._error: NotHeldError | ClosedError | None = None
        self.renew_at = sent + ttl // 3
        # called when the lease ends, usually on the keeper's thread
        self.notify: Callable[[], None] = lambda: None

    def error(self) -> NotHeldError | ClosedError | None:
        """Returns why the lease is not valid. It reads the clock, so it is correct even after a
        pause.
        """
        with self._lock:
            if self._error is None and self._keeper.clock.now() >= self._until:
                self._error = ExpiredError(
                    "the lease was not renewed in time, by this machine's clock; "
                    "whether it still exists is unknown"
                )
            return self._error

    def left(self) -> int:
        """Returns how long the lease stays valid without a renewal, in nanoseconds."""
        if self.error():
            return 0
        with self._lock:
            return max(0, self._until - self._keeper.clock.now())

    def renewed(self, sent: int, ttl: int) -> None:
        if self.error() is None:
            with self._lock:
                self._until = max(self._until, sent + self._keeper.validity(ttl))
            self.renew_at = sent + ttl // 3

    def end(self, error: NotHeldError | ClosedError) -> None:
        """Ends the lease for the program."""
        with self._lock:
            self._error = self._error or error
        self._keeper.drop(self)
        self.notify()


class _Stream:
    """A stream to one member, with the renewals that are in flight."""

    def __init__(self, keeper: Keeper, index: int) -> None:
        self._keeper = keeper
        self._out: queue.SimpleQueue[stream_pb2.ClientMessage | None] = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self.waits: dict[int, tuple[int, int, list[Hold]]] = {}  # sent, deadline, leases
        c = keeper.config
        self._endpoint = c.endpoints[index % len(c.endpoints)]
        self._channel: grpc.Channel | None = None
        self._call: Any = None
        self.broken = False
        threading.Thread(target=self._run, name="leasehold-renewals", daemon=True).start()

    def send(self, holds: list[Hold], deadline: int) -> None:
        refs = [leases_pb2.LeaseRef(id=h.id, token=h.token) for h in holds]
        r = stream_pb2.Request(id=next(self._ids), renew=leases_pb2.RenewRequest(leases=refs))
        self.waits[r.id] = (self._keeper.clock.now(), deadline, holds)
        self._out.put(stream_pb2.ClientMessage(requests=[r]))

    def close(self) -> None:
        self.broken = True
        self._out.put(None)
        if self._call:
            self._call.cancel()

    def _requests(self) -> Iterator[stream_pb2.ClientMessage]:
        while (message := self._out.get()) is not None:
            yield message

    def _run(self) -> None:
        c, e, token = self._keeper.config, self._endpoint, ""
        try:
            if e.secure:
                credentials = c.tls.credentials()
                self._channel = grpc.secure_channel(e.target, credentials, c.channel_options())
            else:
                self._channel = grpc.insecure_channel(e.target, c.channel_options())
            token = self._log_in(self._channel)
            self._call = self._channel.stream_stream(
                OPEN,
                request_serializer=stream_pb2.ClientMessage.SerializeToString,
                response_deserializer=stream_pb2.ServerMessage.FromString,
            )(self._requests(), metadata=(("token", token),) if token else ())
            if self.broken:
                self._call.cancel()
            for message in self._call:
                for r in message.responses:
                    self._keeper.answered(self, r)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                c.login.refused(token)
        except (LeaseholdError, OSError, ValueError):
            pass  # a token or certificate file is invalid; the next attempt reads it again
        finally:
            self._out.put(None)
            if self._channel:
                self._channel.close()
            self._keeper.lost(self)

    def _log_in(self, channel: grpc.Channel) -> str:
        login = self._keeper.config.login
        token = login.current()
        if token is not None:
            return token
        try:
            call = channel.unary_unary(login.method)
            answer: bytes = call(login.request(), timeout=self._keeper.config.dial_timeout)
            return login.accept(answer)
        except grpc.RpcError as e:
            refusal = login.refusal(e)
            if refusal:
                raise refusal from None
            return ""


class Keeper:
    """Keeps the leases of a client alive."""

    def __init__(self, config: Config) -> None:
        self.config, self.clock = config, config.clock
        self._wake = threading.Condition()  # guards the following attributes
        self._holds: dict[int, Hold] = {}
        self._stream: _Stream | None = None
        self._next = 0  # the next endpoint
        self._not_before = 0  # earliest time of the next attempt after a failure
        self._thread: threading.Thread | None = None
        self._closed = False

    def validity(self, ttl: int) -> int:
        """Returns how long a grant or renewal is valid after it was sent."""
        return ttl - int(ttl * self.config.drift) - self.config.margin

    def keep(self, lease: leases_pb2.Lease, sent: int) -> Hold:
        """Keeps a lease alive. ``sent`` is when the request that granted it was sent."""
        left = min(lease.remaining_ms, lease.ttl_ms) * _MS
        hold = Hold(self, lease.id, lease.token, lease.ttl_ms * _MS, sent, left)
        with self._wake:
            if self._closed:
                raise ClosedError()
            self._holds[hold.id] = hold
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="leasehold-keeper", daemon=True
                )
                self._thread.start()
            self._wake.notify()
        return hold

    def drop(self, hold: Hold) -> None:
        with self._wake:
            if self._holds.get(hold.id) is hold:
                del self._holds[hold.id]

    def close(self) -> None:
        with self._wake:
            self._closed = True
            holds = list(self._holds.values())
            self._wake.notify()
        for h in holds:
            h.end(ClosedError())
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._closed:
                    if self._stream:
                        self._stream.close()
                    return
                now = self.clock.now()
                ended = [h for h in self._holds.values() if h.error()]
                if not ended:
                    # The wait uses the monotonic clock. The wall clock is checked at least once a
                    # second.
                    self._wake.wait(min((self._step(now) - now) / 1e9, 1.0))
                    continue
            for h in ended:
                error = h.error()
                if error:
                    h.end(error)

    def _step(self, now: int) -> int:
        """Does the work that is due, and returns when there is more to do."""
        if not self._holds:
            return now + 3600 * 10**9
        ends = min(now + h.left() for h in self._holds.values())
        stream, waiting = self._stream, set[int]()
        if stream:
            late = [d for _, d, _ in stream.waits.values() if d <= now]
            if late:  # the member or the link hangs, so try the next member
                stream.close()
                self._stream = stream = None
            else:
                waiting = {h.id for _, _, holds in stream.waits.values() for h in holds}
                ends = min([ends, *(d for _, d, _ in stream.waits.values())])
        if stream is None:  # the stream is opened before the first renewal is due
            if now < self._not_before:
                return min(ends, self._not_before)
            self._stream = stream = _Stream(self, self._next)
            self._next += 1
        idle = [h for h in self._holds.values() if h.id not in waiting]
        turn = min((h.renew_at for h in idle), default=ends)
        if turn > now:
            return min(ends, turn)
        due = [h for h in idle if h.renew_at <= now + h.ttl // 20]
        patience = min(max(min(h.ttl for h in due) // 6, 100 * _MS), 2000 * _MS)
        stream.send(due, now + patience)
        return min(ends, now + patience)

    def answered(self, stream: _Stream, r: stream_pb2.Response) -> None:
        with self._wake:
            sent, _, holds = stream.waits.get(r.id, (0, 0, []))
            if not r.more:
                stream.waits.pop(r.id, None)
            by_id = {h.id: h for h in holds}
            gone: list[tuple[Hold, LostError]] = []
            refused = r.HasField("error")
            for result in r.renew.results:
                h = by_id.get(result.id)
                if h is None:
                    continue
                if result.reason == leases_pb2.REASON_UNSPECIFIED:
                    h.renewed(sent, result.ttl_ms * _MS)
                elif result.reason == leases_pb2.REASON_LEASE_NOT_FOUND:
                    gone.append((h, _lost(result)))
                else:
                    refused = True
            if refused:
                self._fail(stream)
            self._wake.notify()
        for h, error in gone:
            h.end(error)

    def lost(self, stream: _Stream) -> None:
        """Handles the end of a stream."""
        with self._wake:
            self._fail(stream)
            self._wake.notify()

    def _fail(self, stream: _Stream) -> None:
        """Leaves a member that does not renew leases. The next member is tried soon."""
        if self._stream is stream:
            stream.close()
            self._stream = None
            ttl = min((h.ttl for h in self._holds.values()), default=0)
            self._not_before = self.clock.now() + min(ttl // 20, 200 * _MS)


def _lost(result: leases_pb2.RenewResult) -> LostError:
    if not result.cause:
        return LostError("the lease is gone: how it ended is unknown")
    how = _KINDS.Name(result.cause).removeprefix("KIND_").lower().replace("_", " ")
    return LostError(f"the lease is gone: {how}" + (f" by {result.by!r}" if result.by else ""))
