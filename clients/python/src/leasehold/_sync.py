"""The blocking client: an AsyncClient on an event loop in a separate thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ._client import AsyncClient, AsyncWatch, Retries
from ._errors import (
    ClosedError,
    LeaseholdError,
    NotHeldError,
    ReleasedError,
)
from ._session import (
    AsyncHeld,
    AsyncHold,
    AsyncLead,
    AsyncMembership,
    AsyncMutex,
    AsyncSession,
    Leader,
)
from ._store import Compare, Update

P = ParamSpec("P")
R = TypeVar("R")
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
        """Waits for a coroutine. If the wait ends early, for example by Ctrl-C, so does the
        coroutine.
        """
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
        """Ends all pending waits and the thread."""
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
    """A blocking wrapper of an asyncio object."""

    _loop: _Loop
    _of: A


def _wait(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[A], P], T]:
    """Returns a method that calls an asyncio method with the same arguments and waits for it."""

    @functools.wraps(method)
    def call(face: _Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._loop.run(method(face._of, *args, **kwargs))

    return call


def _wrap(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]], face_of: Callable[[_Loop, R], T]
) -> Callable[Concatenate[_Face[A], P], T]:
    """Like _wait, but also wraps the result."""
    wait = _wait(method)

    @functools.wraps(method)
    def call(face: _Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face_of(face._loop, wait(face, *args, **kwargs))

    return call


def _like(
    method: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[Concatenate[A, ...], T]], Callable[Concatenate[A, P], T]]:
    """Gives a method the signature of another method."""

    def typed(f: Callable[Concatenate[A, ...], T]) -> Callable[Concatenate[A, P], T]:
        f.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return f

    return typed


class Client:
    """A client for one cluster, with the same arguments as AsyncClient. It is thread-safe."""

    @_like(AsyncClient.__init__)
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
    members = _wait(AsyncClient.members)
    session = _wrap(AsyncClient.session, lambda loop, s: Session(loop, s))
    watch = _wrap(AsyncClient.watch, lambda loop, w: Watch(loop, w))

    def run(
        self, work: Callable[[Session], T], ttl: float = 10.0, *, name: str = "", owner: str = ""
    ) -> T:
        """Runs work with a session, and again with a new session after each loss.

        This repeats until work returns. A thread cannot be interrupted, so work should call check,
        which raises NotHeldError after a loss. If work raises an error while its session is valid,
        run raises that error.
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

    def observe(self, name: str) -> Iterator[Leader | None]:
        """Yields the leader of an election and then every change, or None while there is none."""
        changes = self._of.observe(name)

        async def following() -> Leader | None:
            return await anext(changes)

        try:
            while True:
                yield self._loop.run(following())
        finally:
            if not self._loop.closed:
                self._loop.run(changes.aclose())


class _Facade(Generic[A]):
    def __init__(self, loop: _Loop, of: A) -> None:
        self._loop, self._of = loop, of


class Watch(_Facade[AsyncWatch]):
    """A watch that survives failures of members and connections: ``for update in watch``."""

    def next(self, timeout: float | None = None) -> Update:
        """Waits for the next change. If timeout is set, it can raise TimeoutError."""

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
    """Something held through a lease: a session, a lock, a leadership or a membership.

    Call check before each step that depends on it, because a thread cannot be interrupted. As a
    context manager, the hold is released at the end of the body.
    """

    @property
    def token(self) -> int:
        """The fencing token. It is higher than the token of every earlier holder."""
        return self._of.token

    def error(self) -> NotHeldError | ClosedError | None:
        """Returns why it is no longer valid, or None while it is."""
        return self._of.error()

    def check(self) -> None:
        """Raises NotHeldError if it is no longer valid."""
        self._of.check()

    @property
    def valid_for(self) -> float:
        """How long it stays valid if no renewal succeeds, in seconds; 0 if it has ended."""
        return self._of.valid_for

    @property
    def valid_until(self) -> float:
        """When the program must stop unless a renewal succeeds first, on the scale of
        time.monotonic.
        """
        return self._of.valid_until

    def wait_ended(self, timeout: float | None = None) -> NotHeldError | ClosedError:
        """Waits until it ends, and returns the reason."""
        return self._loop.run(self._of.wait_ended(), timeout)

    def release(self) -> None:
        """Releases it. It stops being valid immediately, even if the call fails."""
        self._loop.run(self._of.release())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(LeaseholdError) if kind else contextlib.nullcontext():
            if not isinstance(self.error(), ReleasedError):
                self.release()


class Session(Hold[AsyncSession]):
    """A lease that is kept alive. Once it has ended, it never becomes valid again."""

    @property
    def id(self) -> int:
        return self._of.id

    def mutex(self, name: str) -> Mutex:
        """Returns the mutex with the given name.

        It also excludes etcd's concurrency.Mutex of that name.
        """
        return Mutex(self._loop, self._of.mutex(name))

    campaign = _wrap(AsyncSession.campaign, lambda loop, x: Lead(loop, x))
    register = _wrap(AsyncSession.register, lambda loop, x: Membership(loop, x))


class Held(Hold[AsyncHeld]):
    """A lock held by this program."""

    @property
    def key(self) -> str:
        """The key that exists while the lock is held."""
        return self._of.key

    @property
    def revision(self) -> int:
        """The create revision of the key, which etcd's clients use as a token."""
        return self._of.revision

    def condition(self) -> Compare:
        """Returns the condition that the lock is still held.

        It is intended for transactions that only the holder should be able to commit.
        """
        return self._of.condition()


class Lead(Hold[AsyncLead]):
    """The leadership of an election."""

    proclaim = _wait(AsyncLead.proclaim)

    def condition(self) -> Compare:
        """Returns the condition that the session still leads."""
        return self._of.condition()


class Membership(Hold[AsyncMembership]):
    """A registration in a group. Once it has ended, it is never made again automatically."""

    update = _wait(AsyncMembership.update)


class Mutex(_Facade[AsyncMutex]):
    """A lock held by one session at a time: ``with session.mutex("name") as held``."""

    lock = _wrap(AsyncMutex.lock, lambda loop, x: Held(loop, x))
    try_lock = _wrap(AsyncMutex.try_lock, lambda loop, x: Held(loop, x))

    def __enter__(self) -> Held:
        self._held = self.lock()
        return self._held

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._held.__exit__(kind, *rest)
