"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from ._clock import Clock
from ._config import TLS, Config, Login
from ._errors import (
    ClosedError,
    ExpiredError,
    Lease,
    LeaseholdError,
    LostError,
    lease_of,
    reason_error,
)
from ._keeper import Keeper
from ._mux import Follower, Kind, Mux
from ._session import AsyncSession, Leader, Member, leader_of, members, observe
from ._store import (
    Bytes,
    Compare,
    Delete,
    DeleteResult,
    Grant,
    KeyValue,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    Update,
    delete_message,
    delete_result,
    end_of,
    event_of,
    grant_message,
    put_message,
    put_result,
    range_message,
    range_result,
    raw,
    txn_message,
    txn_result,
)
from .v1 import leases_pb2, store_pb2, stream_pb2

T = TypeVar("T")


class AsyncClient:
    """A client for one cluster, for use in one event loop.

    Endpoints are ``host:port``, ``http://host:port``, ``https://host:port`` or ``unix:/path``. List
    all members. A call waits for a member for at most ``timeout`` seconds. If it times out, it
    raises UnavailableError if nothing has changed, and otherwise UnknownOutcomeError. Until then
    the client retries the call, which takes effect only once.
    """

    def __init__(
        self,
        endpoints: Sequence[str] | str,
        *,
        tls: TLS | None = None,
        user: str = "",
        password: str = "",
        token: str = "",
        token_file: str | Path | None = None,
        timeout: float = 30.0,
        drift: float = 1e-3,
        margin: float = 0.005,
        member_timeout: float = 3.0,
        clock: Clock | None = None,
    ) -> None:
        list_ = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        self._config = Config(
            Config.parse(list_, tls), tls or TLS(), Login(user, password, token, token_file),
            clock or Clock(), drift, int(margin * 1e9), member_timeout,
        )  # fmt: skip
        self._timeout = timeout
        self._mux = Mux(self._config)
        self._keeper = Keeper(self._config)
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all sessions, watches and calls. Leases that were not released expire."""
        if self._background:
            await asyncio.wait(self._background, timeout=5)
            for task in self._background:
                task.cancel()
        await asyncio.to_thread(self._keeper.close)
        await self._mux.close()

    async def _call(
        self,
        request: stream_pb2.Request,
        kind: Kind,
        timeout: float | None,
        follower: Follower | None = None,
    ) -> tuple[stream_pb2.Response, int]:
        limit = self._timeout if timeout is None else timeout
        return await self._mux.request(request, kind, limit, follower)

    # Keys.

    async def get(self, key: Bytes, *, timeout: float | None = None) -> KeyValue | None:
        """Reads a key linearizably, and returns None if it does not exist."""
        r = await self.range(key, timeout=timeout)
        return r.kvs[0] if r.kvs else None

    async def range(
        self,
        key: Bytes,
        *,
        end: Bytes | None = None,
        prefix: bool = False,
        limit: int = 0,
        revision: int = 0,
        serializable: bool = False,
        keys_only: bool = False,
        count_only: bool = False,
        timeout: float | None = None,
    ) -> RangeResult:
        """Reads the keys from key to end, or all keys with a prefix, in order."""
        m = range_message(
            Range(key, end, prefix, limit, revision, serializable, keys_only, count_only)
        )
        r, _ = await self._call(stream_pb2.Request(read_range=m), Kind.READ, timeout)
        return range_result(r.read_range, r.read_range.header.revision)

    async def put(
        self,
        key: Bytes,
        value: Bytes = b"",
        *,
        lease: int = 0,
        ttl: float = 0,
        ignore_value: bool = False,
        ignore_lease: bool = False,
        previous: bool = False,
        timeout: float | None = None,
    ) -> PutResult:
        m = put_message(Put(key, value, lease, ttl, ignore_value, ignore_lease, previous))
        r, _ = await self._call(stream_pb2.Request(put=m), Kind.NUMBERED, timeout)
        return put_result(r.put, r.put.header.revision)

    async def delete(
        self,
        key: Bytes,
        *,
        end: Bytes | None = None,
        prefix: bool = False,
        previous: bool = False,
        timeout: float | None = None,
    ) -> DeleteResult:
        m = delete_message(Delete(key, end, prefix, previous))
        r, _ = await self._call(stream_pb2.Request(delete_range=m), Kind.NUMBERED, timeout)
        return delete_result(r.delete_range, r.delete_range.header.revision)

    async def txn(
        self,
        conditions: Sequence[Compare] = (),
        then: Sequence[Op] = (),
        otherwise: Sequence[Op] = (),
        *,
        timeout: float | None = None,
    ) -> TxnResult:
        """Executes ``then`` if all conditions hold, and ``otherwise`` if not.

        Either all of its operations take effect or none.
        """
        m = txn_message(Txn(conditions, then, otherwise))
        r, _ = await self._call(stream_pb2.Request(txn=m), Kind.NUMBERED, timeout)
        return txn_result(r.txn, r.txn.header.revision)

    async def watch(
        self,
        key: Bytes,
        *,
        end: Bytes | None = None,
        prefix: bool = False,
        start_revision: int = 0,
        previous: bool = False,
        no_put: bool = False,
        no_delete: bool = False,
        timeout: float | None = None,
    ) -> AsyncWatch:
        """Starts a watch, which delivers all changes from then on."""
        m = store_pb2.WatchRequest(
            key=raw(key), range_end=end_of(key, end, prefix), start_revision=start_revision,
            prev_kv=previous, no_put=no_put, no_delete=no_delete, progress_ms=10_000,
        )  # fmt: skip
        w = AsyncWatch(self._mux, m)
        self._mux.follow(w)
        try:
            async with asyncio.timeout(self._timeout if timeout is None else timeout):
                await w._begun()
        except TimeoutError:
            w.close()
            raise self._mux.unavailable("the watch has not begun") from None
        except BaseException:
            w.close()
            raise
        return w

    # Leases that are not kept alive.

    async def grant(
        self,
        ttl: float,
        *,
        id: int = 0,
        name: str = "",
        owner: str = "",
        labels: dict[str, str] | None = None,
        lock_delay: float = 0,
        request_id: str = "",
        timeout: float | None = None,
    ) -> Lease:
        """Grants a lease without keeping it alive. To keep it alive, use session instead."""
        m = grant_message(Grant(ttl, id, name, owner, labels or {}, lock_delay))
        m.request_id = request_id or secrets.token_urlsafe()
        r, _ = await self._call(stream_pb2.Request(grant=m), Kind.NUMBERED, timeout)
        return lease_of(r.grant.lease)

    async def renew(self, id: int, *, token: int = 0, timeout: float | None = None) -> float:
        """Restarts the TTL of a lease, and returns the TTL."""
        refs = [leases_pb2.LeaseRef(id=id, token=token)]
        request = stream_pb2.Request(renew=leases_pb2.RenewRequest(leases=refs))
        r, _ = await self._call(request, Kind.READ, timeout)
        result = r.renew.results[0]
        if result.reason:
            raise reason_error(result.reason)
        return result.ttl_ms / 1e3

    async def revoke(self, id: int, *, token: int = 0, timeout: float | None = None) -> None:
        """Ends a lease and deletes its keys."""
        refs = [leases_pb2.LeaseRef(id=id, token=token)]
        request = stream_pb2.Request(revoke=leases_pb2.RevokeRequest(leases=refs))
        r, _ = await self._call(request, Kind.NUMBERED, timeout)
        result = r.revoke.results[0]
        if result.reason:
            raise reason_error(result.reason)

    async def describe(
        self, id: int = 0, *, name: str = "", keys: bool = False, timeout: float | None = None
    ) -> Lease:
        """Describes a lease, given its ID or its name."""
        m = leases_pb2.DescribeRequest(id=id, name=name, keys=keys)
        r, _ = await self._call(stream_pb2.Request(describe=m), Kind.READ, timeout)
        return lease_of(r.describe.lease)

    async def leases(
        self, *, name_prefix: str = "", owner: str = "", timeout: float | None = None
    ) -> list[Lease]:
        """Lists leases."""
        m = leases_pb2.ListRequest(name_prefix=name_prefix, owner=owner)
        found: list[Lease] = []
        while True:
            r, _ = await self._call(stream_pb2.Request(list=m), Kind.READ, timeout)
            found += (lease_of(x) for x in r.list.leases)
            if not r.list.next_page_token:
                return found
            m.page_token = r.list.next_page_token

    async def check_token(
        self, token: int, *, id: int = 0, name: str = "", timeout: float | None = None
    ) -> bool:
        """Reports whether a fencing token still belongs to the live lease with the ID or name."""
        m = leases_pb2.CheckTokenRequest(id=id, name=name, token=token)
        r, _ = await self._call(stream_pb2.Request(check_token=m), Kind.READ, timeout)
        return r.check_token.valid

    # Sessions.

    async def session(
        self,
        ttl: float = 10.0,
        *,
        name: str = "",
        owner: str = "",
        labels: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncSession:
        """Grants a lease and keeps it alive. Raises NameTakenError if a live lease has the name."""
        m = grant_message(Grant(ttl, 0, name, owner, labels or {}))
        m.request_id = secrets.token_urlsafe()
        r, sent = await self._call(stream_pb2.Request(grant=m), Kind.NUMBERED, timeout)
        return AsyncSession(self, lease_of(r.grant.lease), self._keeper.keep(r.grant.lease, sent))

    async def run(
        self,
        work: Callable[[AsyncSession], Awaitable[T]],
        ttl: float = 10.0,
        *,
        name: str = "",
        owner: str = "",
    ) -> T:
        """Runs work with a session, and again with a new session after each loss.

        When its session is lost, work is cancelled. run waits for it to end and then starts again.
        This repeats until work returns. If no session is granted, run keeps trying. If work raises
        an error while its session is valid, run raises that error.
        """
        retries = Retries()
        while True:
            s = None
            try:
                async with await self.session(ttl, name=name, owner=owner) as s:
                    retries.failures = 0
                    return await work(s)
            except LeaseholdError as e:
                pause = retries.after(e, s.error() if s else None)
            await asyncio.sleep(pause)

    async def leader(self, name: str, *, timeout: float | None = None) -> Leader | None:
        """Returns the current leader of an election, or None if there is none."""
        r = await self.range(name + "/", prefix=True, timeout=timeout)
        return leader_of(name, r.kvs)

    def observe(self, name: str) -> AsyncGenerator[Leader | None, None]:
        """Yields the leader of an election and then every change, or None while there is none."""
        return observe(self, name)

    async def members(self, group: str, *, timeout: float | None = None) -> list[Member]:
        """Returns the members of a group, ordered by ID. The read is linearizable."""
        return await members(self, group, timeout)

    def _later(self, work: Awaitable[object]) -> None:
        """Runs work in the background. close waits for it for a few seconds."""

        async def run() -> None:
            with contextlib.suppress(LeaseholdError):  # the key is deleted with its lease
                await work

        task = asyncio.ensure_future(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class Retries:
    """Decides when ``run`` starts again, and after which errors."""

    def __init__(self) -> None:
        self.failures = 0

    def after(self, e: LeaseholdError, ended: LeaseholdError | None) -> float:
        """Returns how long to wait, or raises the error. ``ended`` is why the session ended."""
        if isinstance(e, ClosedError):
            raise e
        # regardless of the error that work raised afterwards
        lost = isinstance(ended, LostError | ExpiredError)
        # Work may have lost what it held. If there was no session, the next one may be granted.
        passing = {"LOST", "EXPIRED", "LEASE_NOT_FOUND"}
        if not ended:
            passing |= {"UNAVAILABLE", "UNKNOWN_OUTCOME", "NAME_TAKEN", "NOT_LOGGED_IN"}
        if not lost and e.code not in passing:
            raise e
        self.failures = min(self.failures + 1, 10)
        longest: float = min(0.05 * 2**self.failures, 5)
        return longest * random.uniform(0.5, 1)


class AsyncWatch:
    """A watch that survives failures of members and connections: ``async for update in watch``.

    It delivers each change once and in order, and all changes of a revision together. It raises
    CompactedError if the cluster no longer has the next changes.
    """

    _MOST = 10_000
    """The maximum number of buffered updates. After that, the watch pauses, and the cluster keeps
    the rest.
    """

    def __init__(self, mux: Mux, m: store_pb2.WatchRequest) -> None:
        self._mux, self._message = mux, m
        self._queue: deque[Update] = deque()
        self._part: list[store_pb2.Event] = []
        self._ready = asyncio.Event()
        self._first, self._paused = True, False
        self._is_begun = False
        self._error: LeaseholdError | None = None

    def request(self) -> stream_pb2.Request:
        self._part, self._first = [], True
        return stream_pb2.Request(watch=self._message)

    def take(self, r: stream_pb2.Response) -> None:
        m, revision = r.watch, r.watch.header.revision
        if self._first:  # it only confirms that the watch has begun
            self._first, self._is_begun = False, True
            self._message.start_revision = self._message.start_revision or revision + 1
            self._ready.set()
        elif not m.events:
            self._message.start_revision = max(self._message.start_revision, revision + 1)
        self._part += m.events
        if m.fragment or not self._part:
            return
        for of, events in itertools.groupby(self._part, lambda e: e.kv.mod_revision):
            self._queue.append(Update(of, tuple(event_of(e) for e in events)))
        self._message.start_revision, self._part = revision + 1, []
        if len(self._queue) >= self._MOST:
            self._paused = True
            self._mux.unfollow(self)
        self._ready.set()

    def end(self, error: LeaseholdError) -> None:
        self._error = self._error or error
        self._ready.set()

    async def _begun(self) -> None:
        while not (self._is_begun or self._error):
            await self._wait()
        if self._error and not self._queue:
            raise self._error

    async def _wait(self) -> None:
        self._ready.clear()
        await self._ready.wait()

    async def next(self) -> Update:
        """Waits for the next change."""
        while True:
            if self._queue:
                if self._paused and len(self._queue) == 1:
                    self._paused = False
                    self._mux.follow(self)
                return self._queue.popleft()
            if self._error:
                raise self._error
            await self._wait()

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> Update:
        try:
            return await self.next()
        except ClosedError:
            raise StopAsyncIteration from None

    def close(self) -> None:
        self._mux.unfollow(self)
        self._queue.clear()
        self.end(ClosedError())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
