"""The stream to one member, which carries all of a client's requests except renewals."""

from __future__ import annotations

import asyncio
import enum
import random
import secrets
from collections.abc import Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from ._config import OPEN, Config, Endpoint
from ._errors import (
    ClosedError,
    InvalidError,
    LeaseholdError,
    LimitReachedError,
    NoSpaceError,
    NotLoggedInError,
    PermissionDeniedError,
    SessionNotFoundError,
    UnavailableError,
    UnknownOutcomeError,
    error_of,
)
from .v1 import stream_pb2 as pb

_MAX_AHEAD = 4000
"""The maximum number of open numbers. The cluster keeps 4,096 answers per session."""


class Kind(enum.Enum):
    """How a request with an unknown outcome is retried."""

    READ = 1  # changes nothing
    NUMBERED = 2  # its number makes it take effect only once


class LinkError(Exception):
    """A request was not answered. If it was sent, it may have taken effect."""

    def __init__(self, sent: bool, cause: str) -> None:
        super().__init__(cause)
        self.sent = sent


class GivenUp(LinkError):  # noqa: N818
    """The caller was cancelled."""


class Follower(Protocol):
    """A request with several responses, which is sent again on each new link."""

    def request(self) -> pb.Request: ...
    def take(self, r: pb.Response) -> None: ...
    def end(self, error: LeaseholdError) -> None: ...


class _Numbers:
    """An idempotency session.

    All numbers below acknowledged_below are done, and so are some of the numbers up to last.
    """

    def __init__(self, ref: pb.SessionRef) -> None:
        self.ref = ref
        self.acknowledged_below, self.last = 1, 0
        self._done: set[int] = set()

    def settle(self, n: int) -> None:
        self._done.add(n)
        while self.acknowledged_below in self._done:
            self._done.remove(self.acknowledged_below)
            self.acknowledged_below += 1


class _Call:
    def __init__(
        self,
        request: pb.Request,
        answer: Callable[[pb.Response], None],
        lost: Callable[[LinkError], None],
        numbers: _Numbers | None = None,
    ) -> None:
        self.request, self.answer, self.lost, self.numbers = request, answer, lost, numbers
        self.since: float | None = None  # when it was sent; None again after its first answer


class Link:
    """A stream to one member. It belongs to the event loop."""

    def __init__(self, config: Config, endpoint: Endpoint) -> None:
        self._config, self.endpoint = config, endpoint
        self._queue: list[_Call] = []
        self._work = asyncio.Event()
        self._open: dict[int, _Call] = {}
        self._last = 0
        self._heard = 0.0
        self._cause = "the client left the member"

    async def run(self, up: Callable[[], None]) -> None:
        """Connects, calls ``up`` when the member has answered, and returns when the stream ends."""
        c, loop = self._config, asyncio.get_running_loop()
        if self.endpoint.secure:
            credentials = c.tls.credentials()
            channel = grpc.aio.secure_channel(
                self.endpoint.target, credentials, c.channel_options()
            )
        else:
            channel = grpc.aio.insecure_channel(self.endpoint.target, c.channel_options())
        token, earlier = "", False
        try:
            async with asyncio.timeout(c.dial_timeout):
                earlier = bool(c.login.user and c.login.current())
                token = await _log_in(channel, c)
                stream: grpc.aio.StreamStreamCall[Any, Any] = channel.stream_stream(
                    OPEN,
                    request_serializer=pb.ClientMessage.SerializeToString,
                    response_deserializer=pb.ServerMessage.FromString,
                )(metadata=(("token", token),) if token else ())
                await stream.read()  # the first message reports the leader
            self._heard = loop.time()
            up()
            await self._serve(stream)
        except grpc.aio.AioRpcError as e:
            self._cause = e.details() or str(e.code())
            if e.code() == grpc.StatusCode.UNAUTHENTICATED:
                c.login.refused(token)
                if earlier:  # a new login may succeed
                    raise UnavailableError(f"the login has expired: {self._cause}") from None
            raise _rpc_error(e) from None
        finally:
            self._fail()
            await channel.close()

    async def _serve(self, stream: Any) -> None:
        """Reads and writes until the stream ends or the member stops responding."""
        tasks = [
            asyncio.create_task(f(stream)) for f in (self._read, self._write, self._watch_member)
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # the reader is about to report the reason
            if tasks[0] not in done and tasks[1] in done:
                await asyncio.wait(tasks[:1], timeout=1)
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stream.cancel()

    async def _read(self, stream: Any) -> None:
        loop = asyncio.get_running_loop()
        while (message := await stream.read()) is not grpc.aio.EOF:
            self._heard = loop.time()
            for r in message.responses:
                call = self._open.get(r.id)
                if call is None:
                    continue
                call.since = None
                if not r.more:
                    del self._open[r.id]
                call.answer(r)
        self._cause = "the member ended the stream"

    async def _write(self, stream: Any) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._work.wait()
            self._work.clear()
            calls, self._queue = self._queue, []
            while calls:
                # A message belongs to one session, which is the session of its first numbered
                # request.
                numbers = next((c.numbers for c in calls if c.numbers), None)
                now = [c for c in calls if c.numbers in (None, numbers)]
                calls = [c for c in calls if c.numbers not in (None, numbers)]
                message = pb.ClientMessage()
                if numbers:
                    message.session.CopyFrom(numbers.ref)
                    message.acknowledged_below = numbers.acknowledged_below
                for call in now:
                    self._last += 1
                    call.request.id = self._last
                    if not call.request.HasField("cancel"):  # a cancel request gets no answer
                        self._open[self._last] = call
                        call.since = loop.time()
                    message.requests.append(call.request)
                await stream.write(message)

    async def _watch_member(self, stream: Any) -> None:
        """Leaves a member that sends nothing while a request is waiting for its first answer."""
        limit, loop = self._config.member_timeout, asyncio.get_running_loop()
        while True:
            await asyncio.sleep(limit / 4)
            waits = [c.since for c in self._open.values() if c.since is not None]
            if waits and loop.time() - max(min(waits), self._heard) > limit:
                self._cause = f"{self.endpoint.target} has not responded for {limit} s"
                return

    def send(self, call: _Call) -> None:
        self._queue.append(call)
        self._work.set()

    def forget(self, call: _Call) -> bool:
        """Cancels a request, and reports whether it had been sent."""
        if call in self._queue:
            self._queue.remove(call)
            return False
        if self._open.pop(call.request.id, None):
            cancel = pb.Request(cancel=call.request.id)
            self.send(_Call(cancel, lambda _: None, lambda _: None))
        return True

    def _fail(self) -> None:
        unsent, self._queue = self._queue, []
        sent, self._open = list(self._open.values()), {}
        for call in sent:
            call.lost(LinkError(True, self._cause))
        for call in unsent:
            call.lost(LinkError(False, self._cause))


async def _log_in(channel: grpc.aio.Channel, c: Config) -> str:
    token = c.login.current()
    if token is not None:
        return token
    try:
        call = channel.unary_unary(c.login.method)
        answer: bytes = await call(c.login.request())
        return c.login.accept(answer)
    except grpc.aio.AioRpcError as e:
        refusal = c.login.refusal(e)
        if refusal:
            raise refusal from None
        return ""


def _rpc_error(e: grpc.aio.AioRpcError) -> LeaseholdError:
    if e.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return NotLoggedInError(f"the cluster rejected the login: {e.details()}")
    if e.code() == grpc.StatusCode.UNIMPLEMENTED:
        return UnavailableError("the server does not serve leasehold.v1")
    return UnavailableError(e.details() or str(e.code()))


class Mux:
    """Maintains a link to any member, and retries requests if that is safe."""

    def __init__(self, config: Config) -> None:
        self._config, self.clock = config, config.clock
        self._link: Link | None = None
        self._runner: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # set and replaced when the link or the error changes
        self._error: LeaseholdError | None = None  # error of the last attempt to connect
        self._closed = False
        self._numbers: _Numbers | None = None
        self._opening = asyncio.Lock()
        self._followers: dict[Follower, tuple[Link, _Call] | None] = {}

    async def close(self) -> None:
        self._closed = True
        for f in list(self._followers):
            self.unfollow(f)
            f.end(ClosedError())
        if self._runner:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._notify()

    def unavailable(self, what: str) -> UnavailableError:
        return UnavailableError(f"{what}: {self._error}" if self._error else what)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        endpoints = list(self._config.endpoints)
        random.shuffle(endpoints)
        failures = 0
        while not self._closed:
            link = Link(self._config, endpoints[0])

            def up(link: Link = link) -> None:
                nonlocal failures
                failures, self._link, self._error = 0, link, None
                self._notify()
                for f in list(self._followers):
                    if self._followers[f] is None:
                        self._follow(f)

            try:
                await link.run(up)
            except TimeoutError:
                self._error = UnavailableError(
                    f"{link.endpoint.target} did not respond within {self._config.dial_timeout} s"
                )
            except LeaseholdError as e:
                self._error = e
            except Exception as e:  # for example, an error from reading certificate or token files
                self._error = UnavailableError(f"{link.endpoint.target}: {e}")
            finally:
                self._link = None
            self._notify()
            endpoints.append(endpoints.pop(0))
            await asyncio.sleep(_back_off(failures))
            failures += 1

    async def link(self) -> Link:
        """Returns the link, waiting until there is one."""
        while True:
            if self._closed:
                raise ClosedError()
            if self._runner is None:
                self._runner = asyncio.create_task(self._run())
            if self._link:
                return self._link
            if isinstance(self._error, NotLoggedInError):
                error, self._error = self._error, None  # the next call waits for the next attempt
                raise error
            await self._changed.wait()

    async def request(
        self,
        request: pb.Request,
        kind: Kind,
        timeout: float,
        follower: Follower | None = None,
    ) -> tuple[pb.Response, int]:
        """Sends a request until it is answered.

        Also returns when the answered attempt began. If there is a follower, it receives the later
        responses. After a failure or a cancellation, a caller that needs to know the outcome must
        determine it itself.
        """
        attempt = _Attempt(self, request, kind, follower)
        try:
            async with asyncio.timeout(timeout):
                return await attempt.run()
        except TimeoutError:
            last = attempt.last or self._error
            why = f"no response within {timeout} s" + (f": {last}" if last else "")
            raise (UnknownOutcomeError if attempt.unsure else UnavailableError)(why) from None
        finally:
            attempt.settle()

    async def number(self, link: Link) -> _Numbers:
        """Assigns the next number. It is the last number of the returned session."""
        async with self._opening:
            n = self._numbers
            # Open a new session if there is none, or if an old write is taking very long.
            if n is None or n.last - n.acknowledged_below > _MAX_AHEAD:
                open_session = pb.SessionRequest(nonce=secrets.randbits(64))
                r = await self.attempt(link, pb.Request(session=open_session), None, None)
                if r.HasField("error"):
                    raise LinkError(False, r.error.message)
                n = self._numbers = _Numbers(r.session.session)
            n.last += 1
            return n

    async def attempt(
        self,
        link: Link,
        request: pb.Request,
        numbers: _Numbers | None,
        follower: Follower | None,
    ) -> pb.Response:
        """Makes one attempt to send a request."""
        done: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()

        def answer(r: pb.Response) -> None:
            if not done.done():
                if follower and r.more:
                    self._followers[follower] = (link, call)
                done.set_result(r)
            elif follower in self._followers:
                self._take(follower, call, r)

        def lost(e: LinkError) -> None:
            if not done.done():
                done.set_exception(e)
            elif follower:
                self._lost(follower, call)

        call = _Call(request, answer, lost, numbers)
        link.send(call)
        try:
            return await done
        # the answer may have arrived in the same turn of the event loop
        except asyncio.CancelledError:
            raise GivenUp(link.forget(call), "given up") from None

    def follow(self, f: Follower) -> None:
        """Sends a follower's request on the current link and all later ones, until the follower
        ends.
        """
        if self._closed:
            raise ClosedError()
        self._followers[f] = None
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        self._follow(f)

    def _follow(self, f: Follower) -> None:
        if not self._link or self._followers.get(f, ()) is not None:
            return
        call = _Call(f.request(), lambda r: self._take(f, call, r), lambda _: self._lost(f, call))
        self._followers[f] = (self._link, call)
        self._link.send(call)

    def unfollow(self, f: Follower) -> None:
        at = self._followers.pop(f, None)
        if at:
            at[0].forget(at[1])

    def _take(self, f: Follower, call: _Call, r: pb.Response) -> None:
        at = self._followers.get(f)
        if at is None or at[1] is not call:
            return
        if not r.HasField("error"):
            f.take(r)
            if not r.more and f in self._followers:
                self._again(f)
            return
        error = error_of(r.error)
        if isinstance(error, UnavailableError | NotLoggedInError | UnknownOutcomeError):
            self._again(f)
            return
        del self._followers[f]
        f.end(error)

    def _lost(self, f: Follower, call: _Call) -> None:
        at = self._followers.get(f)
        if at is not None and at[1] is call:
            self._followers[f] = None  # the next link begins it again

    def _again(self, f: Follower) -> None:
        self._followers[f] = None
        asyncio.get_running_loop().call_later(0.1, self._follow, f)

    def forget_numbers(self, n: _Numbers) -> None:
        if self._numbers is n:
            self._numbers = None


class _Attempt:
    """A request, and what is known about its outcome."""

    def __init__(
        self, mux: Mux, request: pb.Request, kind: Kind, follower: Follower | None
    ) -> None:
        self._mux, self._request, self._kind, self._follower = mux, request, kind, follower
        self._numbers: _Numbers | None = None
        self._number = 0
        self.unsure = False  # an earlier attempt may have taken effect
        self.last: Exception | None = None

    async def run(self) -> tuple[pb.Response, int]:
        failures = 0
        while True:
            link = await self._mux.link()
            sent = self._mux.clock.now()
            try:
                if self._kind is Kind.NUMBERED and self._numbers is None:
                    self._numbers = await self._open(link)
                    self._number = self._numbers.last
                request = pb.Request()
                request.CopyFrom(self._request)
                request.number = self._number
                r = await self._mux.attempt(link, request, self._numbers, self._follower)
            except LinkError as e:
                self.unsure |= e.sent and self._kind is not Kind.READ
                if isinstance(e, GivenUp):
                    raise asyncio.CancelledError from None
                self.last = e
            else:
                if not r.HasField("error"):
                    return r, sent
                self.last = error = error_of(r.error)
                if not self._again(error):
                    unknown = self.unsure and not isinstance(error, UnknownOutcomeError)
                    raise UnknownOutcomeError(str(error)) if unknown else error
            await asyncio.sleep(_back_off(failures))
            failures += 1

    async def _open(self, link: Link) -> _Numbers:
        try:
            return await self._mux.number(link)
        except GivenUp:
            raise
        except LinkError as e:  # the outcome is unknown for the session, not for the request
            raise LinkError(False, str(e)) from None

    def _again(self, error: LeaseholdError) -> bool:
        """Reports whether to retry after an error, and records what the error implies."""
        if isinstance(error, UnavailableError | NotLoggedInError):
            return True  # nothing has changed
        if isinstance(error, UnknownOutcomeError):
            self.unsure |= self._kind is not Kind.READ
            return True
        if isinstance(error, SessionNotFoundError) and self._numbers:
            self._mux.forget_numbers(self._numbers)
            self._numbers, self._number = None, 0
            return not self.unsure
        last_alone = (InvalidError, NoSpaceError, LimitReachedError, PermissionDeniedError)
        if not isinstance(error, last_alone):
            self.unsure = False  # the error applies to all attempts
        return False

    def settle(self) -> None:
        if self._numbers:
            self._numbers.settle(self._number)


def _back_off(failures: int) -> float:
    longest: float = min(0.005 * 2.0 ** min(failures, 10), 0.5)
    return longest * random.uniform(0.5, 1)
