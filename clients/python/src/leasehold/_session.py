"""Sessions and what is held through them: locks, leaderships and memberships."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ._errors import (
    ClosedError,
    CompactedError,
    ExistsError,
    InUseError,
    InvalidError,
    Lease,
    LeaseholdError,
    LeaseNotFoundError,
    LockedError,
    LostError,
    NotHeldError,
    ReleasedError,
    error_of,
)
from ._keeper import Hold
from ._mux import Kind
from ._store import (
    Bytes,
    Compare,
    Delete,
    DrawToken,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    Txn,
    first_ticket,
    is_ticket,
    raw,
    txn_message,
    txn_result,
)
from .v1 import store_pb2, stream_pb2

if TYPE_CHECKING:
    from ._client import AsyncClient

T = TypeVar("T")
_Ended = NotHeldError | ClosedError


class AsyncHold:
    """Something held through a lease: a session, a lock, a leadership or a membership.

    Call check before each step that depends on it. check reads the clock, so it is correct even if
    the process was paused or the event loop was busy until just before the call. As a context
    manager, the hold cancels its body when it is lost, and raises the reason. At the end of the
    body it is released.
    """

    def __init__(self) -> None:
        self._reason: _Ended | None = None
        self._ended = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._task: asyncio.Task[Any] | None = None
        self._cancelled, self._cancelling = False, 0

    @property
    def token(self) -> int:
        """The fencing token. It is higher than the token of every earlier holder.

        A protected resource should reject tokens smaller than the largest it has seen.
        """
        raise NotImplementedError

    def error(self) -> _Ended | None:
        """Returns why it is no longer valid, or None while it is."""
        raise NotImplementedError

    def _left(self) -> int:
        raise NotImplementedError

    def check(self) -> None:
        """Raises NotHeldError if it is no longer valid."""
        error = self.error()
        if error:
            raise error

    @property
    def valid_for(self) -> float:
        """How long it stays valid if no renewal succeeds, in seconds; 0 if it has ended."""
        return 0.0 if self.error() else self._left() / 1e9

    @property
    def valid_until(self) -> float:
        """When the program must stop unless a renewal succeeds first, on the scale of
        time.monotonic.
        """
        return time.monotonic() + self.valid_for

    async def wait_ended(self) -> _Ended:
        """Waits until it ends, and returns the reason."""
        await self._ended.wait()
        error = self.error()
        assert error
        return error

    async def release(self) -> None:
        """Releases it. It stops being valid immediately, even if the call fails."""
        raise NotImplementedError

    def _end(self, why: _Ended) -> None:
        self._reason = self._reason or why
        if self._ended.is_set():
            return
        self._ended.set()
        for f in list(self._listeners):
            f()
        if self._task and not isinstance(self._reason, ReleasedError):
            self._cancelled = True
            self._task.cancel()

    async def __aenter__(self) -> Self:
        self.check()
        task = asyncio.current_task()
        assert task
        self._task, self._cancelling = task, task.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._cancelled and task:
            self._cancelled = False
            delivered = kind is not None and issubclass(kind, asyncio.CancelledError)
            # the body has not awaited anything since, so the cancellation is still pending
            if not delivered:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            ours = task.uncancel() <= self._cancelling
            if not ours and not delivered:  # the task was cancelled from outside as well
                raise asyncio.CancelledError
            if ours and (kind is None or delivered):
                with contextlib.suppress(LeaseholdError):
                    await self.release()
                raise self.error() or ReleasedError() from None
        with contextlib.suppress(LeaseholdError) if kind else contextlib.nullcontext():
            if not isinstance(self._reason, ReleasedError):
                await self.release()


class AsyncSession(AsyncHold):
    """A lease that is kept alive. Once it has ended, it never becomes valid again."""

    def __init__(self, client: AsyncClient, lease: Lease, hold: Hold) -> None:
        super().__init__()
        self.client, self.lease, self._hold = client, lease, hold
        # Keys in wait queues. A key that is being given up has an event that is set afterwards.
        self._keys: dict[str, asyncio.Event | None] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._look)

        hold.notify = notify
        self._look()

    def _look(self) -> None:
        """Ends the session if the lease has ended.

        The keeper reports that immediately, but its thread may hang. The timer uses the monotonic
        clock; the wall clock is checked at least once a second.
        """
        if self._timer:
            self._timer.cancel()
        error = self._hold.error()
        if error:
            self._end(error)
        else:
            self._timer = self._loop.call_later(min(self.valid_for + 0.001, 1.0), self._look)

    @property
    def id(self) -> int:
        return self.lease.id

    @property
    def token(self) -> int:
        return self.lease.token

    def error(self) -> _Ended | None:
        return self._reason or self._hold.error()

    def _left(self) -> int:
        return self._hold.left()

    async def release(self) -> None:
        """Revokes the lease, which ends everything held through it."""
        was = self.error()
        self._end(was or ReleasedError())
        self._hold.end(ReleasedError())
        if was:
            return
        with contextlib.suppress(LeaseNotFoundError):
            ttl = max(self.lease.ttl, 1.0)
            await self.client.revoke(self.id, token=self.token, timeout=min(ttl, 5.0))

    async def _during(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work, but only until the session ends."""
        task = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.check()
            return await task
        finally:
            ended.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def mutex(self, name: str) -> AsyncMutex:
        """Returns the mutex with the given name.

        It also excludes etcd's concurrency.Mutex of that name.
        """
        return AsyncMutex(self, name)

    async def campaign(self, name: str, value: Bytes = b"") -> AsyncLead:
        """Waits until the session leads. Observers see the value.

        Candidates lead in order of arrival. Candidates that use etcd's concurrency.Election take
        part in the same election.
        """
        lead = AsyncLead(await _Ticket.enter(self, name, raw(value)))
        await lead.ticket.wait(None)
        return lead

    async def register(
        self, group: str, id: str, metadata: Bytes = b"", *, wait: bool = True
    ) -> AsyncMembership:
        """Makes the session a member of a group until it is released or the session ends.

        If an earlier member with this ID still exists, register waits until that member is gone. It
        may belong to the same program before a restart. Without wait, register raises ExistsError
        instead.
        """
        _check_name("group", group)
        if not id or "/" in id:
            raise InvalidError(f"{id!r} is not a valid member ID")
        key = f"{group}/{id}"
        while True:
            self.check()
            r = await self._during(
                self.client.txn([Compare.missing(key)], [Put(key, metadata, self.id)], [Range(key)])
            )
            if r.succeeded:
                return AsyncMembership(self, key, r.revision)
            found = r.results[0]
            assert isinstance(found, RangeResult)
            if found.kvs and not wait:
                raise ExistsError(f"{key!r} is registered with lease {found.kvs[0].lease:016x}")
            if found.kvs:
                await self._during(self._gone(key, r.revision))

    async def _gone(self, key: str, revision: int) -> None:
        with contextlib.suppress(CompactedError):
            watch = await self.client.watch(key, start_revision=revision + 1, no_put=True)
            async with watch:
                await watch.next()


class _Ticket:
    """One of the session's keys in a wait queue."""

    def __init__(self, session: AsyncSession, name: str, prefix: str, key: str) -> None:
        self.session, self.name, self.prefix, self.key = session, name, prefix, key
        self.revision = self.token = 0
        self.ready = asyncio.Event()
        self.gone: _Ended | LeaseholdError | None = None
        self.changed: Callable[[], None] = lambda: None

    @staticmethod
    async def enter(
        session: AsyncSession, name: str, value: bytes, *, idle: bool = False
    ) -> _Ticket:
        """Takes a ticket. With idle, raises LockedError unless the queue is empty."""
        _check_name("lock", name)
        session.check()
        prefix = name + "/"
        key = f"{prefix}{session.id:x}"
        while key in session._keys:
            leaving = session._keys[key]
            if leaving is None:
                raise InUseError(f"the session already has {name!r}, or waits for it")
            await session._during(leaving.wait())
        session._keys[key] = None
        t = _Ticket(session, name, prefix, key)
        try:
            await session._during(t._enter(value, idle))
        except (LockedError, InUseError):
            del session._keys[key]
            raise
        except BaseException:
            t.leave_later()
            raise
        return t

    async def _enter(self, value: bytes, idle: bool) -> None:
        conditions = [Compare.missing(self.key)]
        if idle:
            conditions.append(Compare.missing(self.prefix, prefix=True))
        everything = Range(self.prefix, prefix=True)
        then: list[Op] = [Put(self.key, value, self.session.id), DrawToken()]
        m = txn_message(Txn(conditions, then, [everything]))
        m.wait.CopyFrom(self._wait())
        r, _ = await self.session.client._call(stream_pb2.Request(txn=m), Kind.NUMBERED, None, self)
        result = txn_result(r.txn, r.txn.header.revision)
        if result.succeeded:
            if r.txn.HasField("wait_refused"):
                raise error_of(r.txn.wait_refused)
            token = result.results[1]
            assert isinstance(token, int)
            self.token, self.revision = token, r.txn.ticket.create_revision
            self.take(r)
            return
        found = result.results[0]
        assert isinstance(found, RangeResult)
        if any(kv.key == self.key.encode() for kv in found.kvs):
            raise InUseError(f"another session of the lease has {self.name!r}, or waits for it")
        first = first_ticket(self.prefix.encode(), found.kvs)
        if first:
            raise self._locked(first)
        await self._enter(value, False)  # the queue has other keys, but no waiters

    def _locked(self, first: KeyValue) -> LockedError:
        return LockedError(
            f"{self.name!r} is already locked: lease {first.lease:016x} is first in the queue"
        )

    def _wait(self) -> store_pb2.Wait:
        return store_pb2.Wait(key=self.key.encode(), prefix=self.prefix.encode())

    # The following methods are called to follow the ticket on each new link.

    def request(self) -> stream_pb2.Request:
        m = txn_message(Txn([Compare.create_revision(self.key, "==", self.revision)]))
        m.wait.CopyFrom(self._wait())
        return stream_pb2.Request(txn=m)

    def take(self, r: stream_pb2.Response) -> None:
        t = r.txn.ticket
        if not r.txn.HasField("ticket") or t.state == store_pb2.Ticket.STATE_GONE:
            self.end(_gone(self.name, t))
        elif t.state == store_pb2.Ticket.STATE_READY:
            self.ready.set()

    def end(self, error: LeaseholdError) -> None:
        self.gone = self.gone or error
        self.ready.set()
        self.session.client._mux.unfollow(self)
        self.changed()

    async def wait(self, limit: float | None) -> None:
        """Waits until the ticket is ready. If it does not become ready, wait gives it up."""
        try:
            async with asyncio.timeout(limit):
                await self.session._during(self._turn())
            self.session.check()
        except TimeoutError:
            await self._late()
        except BaseException:
            self.leave_later()
            raise

    async def _turn(self) -> None:
        await self.ready.wait()
        if self.gone:
            raise self.gone

    async def _late(self) -> None:
        try:
            r = await self.session.client.range(self.prefix, prefix=True)
        finally:
            self.leave_later()
        first = first_ticket(self.prefix.encode(), r.kvs)
        raise self._locked(first) if first else LockedError()

    def leave_later(self) -> None:
        """Deletes the key in the background, even if it is not known to exist."""
        ours = Compare.lease(self.key, "==", self.session.id)
        self.session._keys[self.key] = asyncio.Event()
        self.session.client._mux.unfollow(self)
        self.session.client._later(self._leave(ours))

    async def leave(self) -> bool:
        """Deletes the key, and reports whether it existed."""
        self.session.client._mux.unfollow(self)
        self.session._keys[self.key] = asyncio.Event()
        return await self._leave(self.condition())

    async def _leave(self, ours: Compare) -> bool:
        # after this time, the key has been deleted with its lease
        ttl = max(self.session.lease.ttl, 1.0)
        try:
            r = await self.session.client.txn([ours], [Delete(self.key)], timeout=ttl)
            return r.succeeded
        finally:
            left = self.session._keys.pop(self.key, None)
            if left:
                left.set()

    def condition(self) -> Compare:
        return Compare.create_revision(self.key, "==", self.revision)


def _gone(name: str, t: store_pb2.Ticket) -> LostError:
    how = {
        store_pb2.Event.CAUSE_DELETED: "its key was deleted",
        store_pb2.Event.CAUSE_EXPIRED: "its lease has expired",
        store_pb2.Event.CAUSE_REVOKED: "its lease was revoked",
    }
    return LostError(f"{name!r} is lost: {how.get(t.cause, 'its key is gone')}")


class _Part(AsyncHold):
    """Something held through a session."""

    def __init__(self, session: AsyncSession) -> None:
        super().__init__()
        self._session = session
        session._listeners.append(self._session_over)
        if session._ended.is_set():
            self._session_over()

    def _session_over(self) -> None:
        error = self._session.error()
        if error:
            self._end(error)

    def _end(self, why: _Ended) -> None:
        with contextlib.suppress(ValueError):  # it has already ended
            self._session._listeners.remove(self._session_over)
        super()._end(why)

    def error(self) -> _Ended | None:
        return self._reason or self._session.error()

    def _left(self) -> int:
        return self._session._left()


class AsyncHeld(_Part):
    """A lock held by this program."""

    def __init__(self, ticket: _Ticket) -> None:
        super().__init__(ticket.session)
        self.ticket = ticket
        ticket.changed = self._lost
        self._lost()

    def _lost(self) -> None:
        gone = self.ticket.gone
        if gone:
            self._end(gone if isinstance(gone, NotHeldError) else LostError(str(gone)))

    @property
    def name(self) -> str:
        return self.ticket.name

    @property
    def key(self) -> str:
        """The key that exists while the lock is held."""
        return self.ticket.key

    @property
    def token(self) -> int:
        return self.ticket.token

    @property
    def revision(self) -> int:
        """The create revision of the key, which etcd's clients use as a token."""
        return self.ticket.revision

    def condition(self) -> Compare:
        """Returns the condition that the lock is still held.

        It is intended for transactions that only the holder should be able to commit.
        """
        return self.ticket.condition()

    async def release(self) -> None:
        """Releases the lock. Raises NotHeldError if the lock was not held until now."""
        was = self.error()
        self._end(ReleasedError())
        if was:
            if not self._session.error():
                self.ticket.leave_later()
            raise was
        if not await self.ticket.leave():
            raise LostError(f"{self.name!r} is lost: its key was deleted")


class AsyncLead(AsyncHeld):
    """The leadership of an election."""

    async def proclaim(self, value: Bytes) -> None:
        """Changes the value that observers see."""
        self.check()
        r = await self._session.client.txn(
            [self.condition()], [Put(self.key, value, self._session.id)]
        )
        if not r.succeeded:
            raise LostError(f"leadership of {self.name!r} was lost")


class AsyncMutex:
    """A lock held by one session at a time: ``async with session.mutex("name") as held``."""

    def __init__(self, session: AsyncSession, name: str) -> None:
        self.session, self.name = session, name
        self._held: AsyncHeld | None = None

    async def lock(self, wait: float | None = None) -> AsyncHeld:
        """Waits until the session holds the lock. Waiters get it in order of arrival.

        LockedError means that others held it for longer than ``wait`` seconds.
        """
        if wait is not None and wait <= 0:
            return await self.try_lock()
        ticket = await _Ticket.enter(self.session, self.name, b"")
        await ticket.wait(wait)
        return AsyncHeld(ticket)

    async def try_lock(self) -> AsyncHeld:
        """Like lock, but raises LockedError immediately if another session holds the lock."""
        ticket = await _Ticket.enter(self.session, self.name, b"", idle=True)
        await ticket.wait(None if ticket.ready.is_set() else 0)
        return AsyncHeld(ticket)

    async def __aenter__(self) -> AsyncHeld:
        if self._held:
            raise InUseError(f"the mutex {self.name!r} is in use")
        self._held = await self.lock()
        return await self._held.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held:
            await held.__aexit__(kind, e, tb)


class AsyncMembership(_Part):
    """A registration in a group. Once it has ended, it is never made again automatically."""

    def __init__(self, session: AsyncSession, key: str, created: int) -> None:
        super().__init__(session)
        self.key, self._created = key, created

    @property
    def token(self) -> int:
        return self._session.token

    def _ours(self) -> list[Compare]:
        return [
            Compare.create_revision(self.key, "==", self._created),
            Compare.lease(self.key, "==", self._session.id),
        ]

    async def update(self, metadata: Bytes) -> None:
        """Changes the member's metadata."""
        self.check()
        put = Put(self.key, metadata, self._session.id)
        r = await self._session.client.txn(self._ours(), [put])
        if not r.succeeded:
            raise LostError(f"{self.key!r} is no longer registered")

    async def release(self) -> None:
        """Leaves the group."""
        was = self.error()
        self._end(ReleasedError())
        if not was:
            await self._session.client.txn(self._ours(), [Delete(self.key)])


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    metadata: bytes
    lease: int
    joined: int
    """The revision at which the member was registered."""


async def members(client: AsyncClient, group: str, timeout: float | None) -> list[Member]:
    _check_name("group", group)
    prefix = f"{group}/".encode()
    r = await client.range(prefix, prefix=True, timeout=timeout)
    found = ((kv, kv.key.removeprefix(prefix).decode()) for kv in r.kvs)
    return [
        Member(id, kv.value, kv.lease, kv.create_revision)
        for kv, id in found
        if id and "/" not in id
    ]


@dataclass(frozen=True, slots=True)
class Leader:
    key: str
    value: bytes
    lease: int
    since: int
    """The revision at which it became the leader. Each later leader has a higher one."""


def leader_of(name: str, kvs: Sequence[KeyValue]) -> Leader | None:
    first = first_ticket(f"{name}/".encode(), kvs)
    return (
        None
        if first is None
        else Leader(first.key.decode(), first.value, first.lease, first.create_revision)
    )


async def observe(client: AsyncClient, name: str) -> AsyncGenerator[Leader | None, None]:
    _check_name("election", name)
    prefix = f"{name}/".encode()
    last: Leader | None = Leader("", b"", 0, -1)
    while True:
        r = await client.range(prefix, prefix=True)
        keys = {kv.key: kv for kv in r.kvs}
        leader = leader_of(name, list(keys.values()))
        if leader != last:
            last = leader
            yield leader
        try:
            watch = await client.watch(prefix, prefix=True, start_revision=r.revision + 1)
            async with watch:
                while True:
                    for e in (await watch.next()).events:
                        if e.kind == "put" and is_ticket(prefix, e.kv):
                            keys[e.kv.key] = e.kv
                        else:
                            keys.pop(e.kv.key, None)
                    leader = leader_of(name, list(keys.values()))
                    if leader != last:
                        last = leader
                        yield leader
        except CompactedError:
            continue


def _check_name(what: str, name: str) -> None:
    if not name:
        raise InvalidError(f"the name of the {what} is empty")
