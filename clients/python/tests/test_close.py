"""Closing the blocking client."""

import asyncio
import threading

import pytest

import leasehold


def test_close_ends_what_waits() -> None:
    """A thread waiting in any call gets an error when the client is closed."""
    client = leasehold.Client("127.0.0.1:1")
    errors: list[Exception] = []
    began = threading.Event()

    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            client._loop.run(forever())
        except leasehold.LeaseholdError as e:
            errors.append(e)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    began.wait()
    client.close()
    thread.join(20)
    assert [type(e) for e in errors] == [leasehold.ClosedError]
    client.close()  # a second close does nothing
    with pytest.raises(leasehold.ClosedError):
        client.get("a")
