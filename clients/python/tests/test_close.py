"""Closing the client for threads."""

import threading

import pytest

import leasehold


def test_close_ends_calls() -> None:
    """A call that waits for a member that is not there ends with the client."""
    client = leasehold.Client("127.0.0.1:1")
    errors: list[Exception] = []
    began = threading.Event()

    def put() -> None:
        began.set()
        try:
            client.put("a", "b")
        except leasehold.LeaseholdError as e:
            errors.append(e)

    thread = threading.Thread(target=put)
    thread.start()
    began.wait()
    client.close()
    thread.join()
    assert len(errors) == 1
    client.close()  # once more does nothing
    with pytest.raises(leasehold.ClosedError):
        client.get("a")
