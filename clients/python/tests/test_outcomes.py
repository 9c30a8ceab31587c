"""Retries and reported outcomes, tested with a fake link."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leasehold import TLS, Clock, InvalidError, UnavailableError, UnknownOutcomeError
from leasehold._config import Config, Login
from leasehold._mux import Kind, Link, LinkError, Mux, _Attempt, _Call
from leasehold.v1 import leases_pb2, stream_pb2

Script = Callable[[stream_pb2.Request], stream_pb2.Response | LinkError | None]


class FakeLink(Link):
    """Answers requests as scripted. None means no answer."""

    def __init__(self, script: Script) -> None:
        self.script, self.sent = script, list[stream_pb2.Request]()

    def send(self, call: _Call) -> None:
        if call.request.HasField("session"):
            ref = stream_pb2.SessionRef(id=1)
            answer: stream_pb2.Response | LinkError | None = stream_pb2.Response(
                session=stream_pb2.SessionResponse(session=ref)
            )
        else:
            self.sent.append(call.request)
            answer = self.script(call.request)
        if isinstance(answer, LinkError):
            call.lost(answer)
        elif answer is not None:
            call.answer(answer)

    def forget(self, call: _Call) -> bool:
        return True


def _config() -> Config:
    return Config(
        Config.parse(["127.0.0.1:1"], None), TLS(), Login("", "", "", None), Clock(),
        1e-3, 5_000_000, 3.0,
    )  # fmt: skip


def _run(link: FakeLink, kind: Kind, timeout: float = 30) -> stream_pb2.Response:
    async def main() -> stream_pb2.Response:
        mux = Mux(_config())
        mux._link = link
        mux._runner = asyncio.create_task(_forever())
        try:
            return (await mux.request(stream_pb2.Request(), kind, timeout))[0]
        finally:
            await mux.close()

    return asyncio.run(main())


def _forever() -> Coroutine[Any, Any, None]:
    async def wait() -> None:
        await asyncio.Event().wait()

    return wait()


def _refusal(reason: leases_pb2.Reason) -> stream_pb2.Response:
    return stream_pb2.Response(error=leases_pb2.Error(reason=reason, message="no"))


def _in_turn(*answers: stream_pb2.Response | LinkError | None) -> Script:
    turns = iter(answers)
    return lambda _: next(turns)


DONE = stream_pb2.Response()


def test_a_write_is_repeated_with_its_number() -> None:
    link = FakeLink(_in_turn(LinkError(True, "broken"), DONE))
    _run(link, Kind.NUMBERED)
    assert [r.number for r in link.sent] == [1, 1]


def test_a_read_has_no_number() -> None:
    link = FakeLink(_in_turn(LinkError(True, "broken"), DONE))
    _run(link, Kind.READ)
    assert [r.number for r in link.sent] == [0, 0]


def test_a_refusal_after_an_unknown_outcome_may_be_of_the_last_try_alone() -> None:
    refused = _refusal(leases_pb2.REASON_PERMISSION_DENIED)
    with pytest.raises(UnknownOutcomeError):
        _run(FakeLink(_in_turn(LinkError(True, "broken"), refused)), Kind.NUMBERED)


def test_an_answer_is_that_of_all_tries() -> None:
    taken = _refusal(leases_pb2.REASON_KEY_NOT_FOUND)
    with pytest.raises(Exception, match="no") as e:
        _run(FakeLink(_in_turn(LinkError(True, "broken"), taken)), Kind.NUMBERED)
    assert not isinstance(e.value, UnknownOutcomeError)


def test_a_forgotten_session_is_replaced_if_nothing_was_done() -> None:
    forgotten = _refusal(leases_pb2.REASON_SESSION_NOT_FOUND)
    _run(FakeLink(_in_turn(forgotten, DONE)), Kind.NUMBERED)


def test_a_forgotten_session_hides_what_was_done() -> None:
    forgotten = _refusal(leases_pb2.REASON_SESSION_NOT_FOUND)
    link = FakeLink(_in_turn(LinkError(True, "broken"), forgotten))
    with pytest.raises(UnknownOutcomeError):
        _run(link, Kind.NUMBERED)
    assert len(link.sent) == 2


def test_unavailable_is_tried_again() -> None:
    link = FakeLink(_in_turn(_refusal(leases_pb2.REASON_UNAVAILABLE), DONE))
    _run(link, Kind.NUMBERED)
    assert len(link.sent) == 2


def test_invalid_is_not() -> None:
    link = FakeLink(_in_turn(_refusal(leases_pb2.REASON_INVALID)))
    with pytest.raises(InvalidError):
        _run(link, Kind.NUMBERED)


def test_no_answer_to_a_write_is_unknown() -> None:
    with pytest.raises(UnknownOutcomeError):
        _run(FakeLink(_in_turn(None)), Kind.NUMBERED, timeout=0.01)


def test_no_answer_to_a_read_is_unavailable() -> None:
    with pytest.raises(UnavailableError):
        _run(FakeLink(_in_turn(None)), Kind.READ, timeout=0.01)


def test_a_write_that_was_never_sent_is_unavailable() -> None:
    def never(_: stream_pb2.Request) -> LinkError:
        return LinkError(False, "not connected")

    with pytest.raises(UnavailableError, match="not connected"):
        _run(FakeLink(never), Kind.NUMBERED, timeout=0.1)


def test_an_answer_that_comes_with_the_timeout_is_not_unavailable() -> None:
    async def main() -> None:
        mux, calls = Mux(_config()), asyncio.Queue[_Call]()

        class Silent(FakeLink):
            def send(self, call: _Call) -> None:
                calls.put_nowait(call)
                super().send(call)

        mux._link = Silent(lambda _: None)
        mux._runner = asyncio.create_task(_forever())
        attempt = _Attempt(mux, stream_pb2.Request(), Kind.NUMBERED, None)
        task = asyncio.create_task(attempt.run())
        await calls.get()  # it opens the session
        call = await calls.get()
        call.answer(DONE)
        task.cancel()
        await asyncio.wait([task])
        assert attempt.unsure
        await mux.close()

    asyncio.run(main())


def test_a_request_that_is_given_up_is_cancelled_at_the_member() -> None:
    class Stream:
        async def write(self, m: stream_pb2.ClientMessage) -> None:
            for r in m.requests:
                sent.put_nowait(r)

    sent = asyncio.Queue[stream_pb2.Request]()

    async def main() -> None:
        config = _config()
        link = Link(config, config.endpoints[0])
        call = _Call(stream_pb2.Request(), lambda _: None, lambda _: None)
        link.send(call)
        writer = asyncio.create_task(link._write(Stream()))
        first = await sent.get()
        assert link.forget(call)
        assert (await sent.get()).cancel == first.id
        writer.cancel()

    asyncio.run(asyncio.wait_for(main(), 20))
