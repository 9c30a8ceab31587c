"""The body of a hold is cancelled when the hold ends."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold import (
    TLS,
    AsyncHeld,
    AsyncHold,
    AsyncMembership,
    AsyncSession,
    Clock,
    ExpiredError,
    Lease,
    LostError,
    ReleasedError,
    _keeper,
)
from leasehold._config import Config, Login
from leasehold._keeper import Keeper
from leasehold._session import _Ended


class FakeHold(AsyncHold):
    def __init__(self) -> None:
        super().__init__()
        self.releases = 0

    def error(self) -> _Ended | None:
        return self._reason

    def lose(self) -> None:
        self._end(LostError("it was deleted"))

    async def release(self) -> None:
        self.releases += 1
        was = self._reason
        self._end(ReleasedError())
        if was:
            raise was


def test_the_body_is_cancelled_and_the_reason_raised() -> None:
    async def main() -> None:
        h = FakeHold()
        with pytest.raises(LostError, match="deleted"):
            async with h:
                asyncio.get_running_loop().call_soon(h.lose)
                await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task
        assert task.cancelling() == 0
        assert h.releases == 1

    asyncio.run(main())


def test_a_loss_is_told_to_a_body_that_did_not_wait() -> None:
    async def main() -> None:
        h = FakeHold()
        with pytest.raises(LostError):
            async with h:
                h.lose()

    asyncio.run(main())


def test_released_at_the_end() -> None:
    async def main() -> None:
        h = FakeHold()
        async with h:
            pass
        assert h.releases == 1
        assert isinstance(h.error(), ReleasedError)
        with pytest.raises(ReleasedError):
            async with h:
                raise AssertionError

    asyncio.run(main())


def test_nested() -> None:
    async def main() -> None:
        outer, inner = FakeHold(), FakeHold()
        outer._listeners.append(inner.lose)
        with pytest.raises(LostError):
            async with outer:
                async with inner:
                    asyncio.get_running_loop().call_soon(outer.lose)
                    await asyncio.Event().wait()
                raise AssertionError
        assert (outer.releases, inner.releases) == (1, 1)

    asyncio.run(main())


def test_a_cancellation_from_outside_passes() -> None:
    async def main() -> None:
        h, entered = FakeHold(), asyncio.Event()

        async def work() -> None:
            async with h:
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert h.releases == 1

    asyncio.run(main())


def test_an_error_of_the_body_passes() -> None:
    async def main() -> None:
        h = FakeHold()
        with pytest.raises(KeyError):
            async with h:
                raise KeyError
        assert h.releases == 1

    asyncio.run(main())


def test_an_error_of_a_body_that_did_not_wait_after_the_loss_passes() -> None:
    async def main() -> None:
        h = FakeHold()
        with pytest.raises(KeyError):
            async with h:
                h.lose()
                raise KeyError
        await asyncio.sleep(0)  # no cancellation is left over
        assert h.releases == 1

    asyncio.run(main())


def test_what_rests_on_a_session_leaves_no_listeners() -> None:
    async def main() -> None:
        session = FakeHold()
        ticket: Any = SimpleNamespace(session=session, gone=None, name="m")
        held = AsyncHeld(ticket)
        assert len(session._listeners) == 1
        ticket.gone = LostError("its key was deleted")
        ticket.changed()
        assert isinstance(held.error(), LostError)
        assert session._listeners == []
        member = AsyncMembership(session, "g/id", 1)  # type: ignore[arg-type]
        member._end(ReleasedError())
        assert session._listeners == []

    asyncio.run(main())


def test_a_loss_is_reported_without_the_keeper() -> None:
    async def main() -> None:
        clock = Clock()
        config = Config(
            Config.parse(["127.0.0.1:1"], None), TLS(), Login("", "", "", None), clock, 0, 0, 3.0
        )
        keeper = Keeper(config)  # its thread is not started
        hold = _keeper.Hold(keeper, 1, 7, 30_000_000, clock.now(), 30_000_000)
        session = AsyncSession(None, Lease(1, 7, 0.03, 0.03), hold)  # type: ignore[arg-type]
        assert isinstance(await session.wait_ended(), ExpiredError)

    asyncio.run(asyncio.wait_for(main(), 20))
