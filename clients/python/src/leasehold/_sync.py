"""The client for programs with threads: AsyncClient on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ._client import AsyncClient, AsyncWatch, Retries
from ._errors import (
    ClosedError,
    LeaseholdError,
    OverError,
    ReleasedError,
)
from ._session import (
    AsyncHeld,
    AsyncHold,
    AsyncLead,
    AsyncMembers,
    AsyncMembership,
    AsyncMutex,
    AsyncSession,
    Leader,
)
from ._store import Compare, Update

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
H = TypeVar("H", bound=AsyncHold)


class _Loop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="leasehold-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Waits for a coroutine. If the wait ends early, as by Ctrl-C, the coroutine does, too."""
        if self.closed:
            work.close()
            raise ClosedError()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise ClosedError() from None
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise TimeoutError from None
        except BaseException:
            future.cancel()
            raise

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Ends everything that still waits, and the thread."""
        asyncio.run_coroutine_threadsafe(self._end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Face(Protocol[A]):
    """An object that stands before one of asyncio's."""

    _loop: _Loop
    _of: A


def _wait(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[A], P], T]:
    """Makes a method that waits for that of the asyncio face, with the same arguments."""

    def call(face: _Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._loop.run(method(face._of, *args, **kwargs))

    call.__doc__ = method.__doc__
    return call


class Client:
    """A client of one cluster, with the arguments of AsyncClient. Any thread may use it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._of = AsyncClient(*args, **kwargs)
        self._loop = _Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._loop.closed:
            self._loop.run(self._of.close())
            self._loop.close()

    get = _wait(AsyncClient.get)
    range = _wait(AsyncClient.range)
    put = _wait(AsyncClient.put)
    delete = _wait(AsyncClient.delete)
    txn = _wait(AsyncClient.txn)
    grant = _wait(AsyncClient.grant)
    renew = _wait(AsyncClient.renew)
    revoke = _wait(AsyncClient.revoke)
    describe = _wait(AsyncClient.describe)
    leases = _wait(AsyncClient.leases)
    check_token = _wait(AsyncClient.check_token)
    leader = _wait(AsyncClient.leader)
    _session = _wait(AsyncClient.session)
    _watch = _wait(AsyncClient.watch)

    def session(
        self,
        ttl: float = 10.0,
        *,
        name: str = "",
        owner: str = "",
        labels: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Session:
        """Grants a lease and keeps it alive, in a thread of its own."""
        s = self._session(ttl, name=name, owner=owner, labels=labels, timeout=timeout)
        return Session(self._loop, s)

    def run(
        self, work: Callable[[Session], T], ttl: float = 10.0, *, name: str = "", owner: str = ""
    ) -> T:
        """Runs work with a session, and again with a new one after each loss, until it returns.

        A thread cannot be interrupted: work calls check, which raises an OverError. An error that
        work raises while its session is valid ends run.
        """
        retries = Retries()
        while True:
            s = None
            try:
                with self.session(ttl, name=name, owner=owner) as s:
                    retries.failures = 0
                    return work(s)
            except LeaseholdError as e:
                pause = retries.after(e, s.error() if s else None)
            time.sleep(pause)

    def watch(self, *args: Any, **kwargs: Any) -> Watch:
        """Begins a watch, with the arguments of AsyncClient.watch."""
        return Watch(self._loop, self._watch(*args, **kwargs))

    def observe(self, name: str) -> Iterator[Leader | None]:
        """Yields the leader of an election, and then each change; None while nobody leads."""
        changes = self._of.observe(name)

        async def following() -> Leader | None:
            return await anext(changes)

        try:
            while True:
                yield self._loop.run(following())
        finally:
            if not self._loop.closed:
                self._loop.run(changes.aclose())

    def members(self, group: str) -> Members:
        """The members that are registered in a group."""
        return Members(self._loop, AsyncMembers(self._of, group))


class _Facade(Generic[A]):
    def __init__(self, loop: _Loop, of: A) -> None:
        self._loop, self._of = loop, of


class Watch(_Facade[AsyncWatch]):
    """A watch, which survives failures of members and connections: ``for update in watch``."""

    def next(self, timeout: float | None = None) -> Update:
        """Waits for the next change; with a timeout it may raise TimeoutError."""

        async def following() -> Update:
            async with asyncio.timeout(timeout):
                return await self._of.next()

        return self._loop.run(following())

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Update:
        try:
            return self.next()
        except ClosedError:
            raise StopIteration from None

    def close(self) -> None:
        async def end() -> None:
            self._of.close()

        self._loop.run(end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Hold(_Facade[H]):
    """What rests on a lease. A thread cannot be interrupted, so it calls check before each step
    that matters. As a context manager a hold is released at the end."""

    @property
    def token(self) -> int:
        """The fencing token, higher than that of every earlier holder."""
        return self._of.token

    def error(self) -> OverError | ClosedError | None:
        """Why it is over; None while it is valid."""
        return self._of.error()

    def check(self) -> None:
        """Raises an OverError unless it is valid now."""
        self._of.check()

    @property
    def valid_for(self) -> float:
        """For how many seconds it is valid, if no renewal succeeds; 0 if it is over."""
        return self._of.valid_for

    @property
    def valid_until(self) -> float:
        """When the program must stop, by time.monotonic, if no renewal succeeds before."""
        return self._of.valid_until

    def wait_over(self, timeout: float | None = None) -> OverError | ClosedError:
        """Waits until it is over, and returns why."""
        return self._loop.run(self._of.wait_over(), timeout)

    def release(self) -> None:
        """Gives it up. For the program it is over at once, even if the call fails."""
        self._loop.run(self._of.release())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(LeaseholdError) if kind else contextlib.nullcontext():
            if not isinstance(self.error(), ReleasedError):
                self.release()


class Session(Hold[AsyncSession]):
    """A lease that is kept alive, and what the program holds by it. It never comes back."""

    @property
    def id(self) -> int:
        return self._of.id

    def mutex(self, name: str) -> Mutex:
        """The mutex of a name. It and etcd's concurrency.Mutex exclude each other."""
        return Mutex(self._loop, self._of.mutex(name))

    def campaign(self, name: str, value: str | bytes = b"") -> Lead:
        """Waits until the session leads. Observers see the value."""
        return Lead(self._loop, self._loop.run(self._of.campaign(name, value)))

    def register(
        self, group: str, id: str, metadata: str | bytes = b"", *, wait: bool = True
    ) -> Membership:
        """Makes the session a member of a group, until it is released or the session is over."""
        registered = self._of.register(group, id, metadata, wait=wait)
        return Membership(self._loop, self._loop.run(registered))


class Held(Hold[AsyncHeld]):
    """A lock that is held."""

    @property
    def key(self) -> str:
        """The key that exists while it is held."""
        return self._of.key

    @property
    def revision(self) -> int:
        """The create revision of the key, which etcd's clients use as a token."""
        return self._of.revision

    def condition(self) -> Compare:
        """The condition that it is still held, for transactions that only the holder may do."""
        return self._of.condition()


class Lead(Hold[AsyncLead]):
    """The lead of an election."""

    proclaim = _wait(AsyncLead.proclaim)

    def condition(self) -> Compare:
        """The condition that the session still leads."""
        return self._of.condition()


class Membership(Hold[AsyncMembership]):
    """A registration in a group. It is never made again by itself."""

    update = _wait(AsyncMembership.update)


class Members(_Facade[AsyncMembers]):
    """The members of a group."""

    list = _wait(AsyncMembers.list)


class Mutex(_Facade[AsyncMutex]):
    """A lock that one session at a time holds: ``with session.mutex("name") as held``."""

    def lock(self, wait: float | None = None) -> Held:
        """Waits until the session holds the lock, at most for wait; then it raises LockedError."""
        return Held(self._loop, self._loop.run(self._of.lock(wait)))

    def try_lock(self) -> Held:
        """Raises LockedError at once if another session holds the lock."""
        return Held(self._loop, self._loop.run(self._of.try_lock()))

    def __enter__(self) -> Held:
        self._held = self.lock()
        return self._held

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._held.__exit__(kind, *rest)
