"""Executes the conformance suite's requests with the Python client. See conformance/README.md."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import leasehold
from leasehold import AsyncClient, AsyncHeld, AsyncHold, AsyncSession, Compare, LeaseholdError

Args = dict[str, Any]
_RELATIONS = {"eq": "==", "ne": "!=", "gt": ">", "lt": "<"}


class Runs:
    """The state of a call to client.run."""

    def __init__(self) -> None:
        self.starts: list[AsyncSession] = []
        self.changed = asyncio.Condition()
        self.task: asyncio.Task[None] | None = None
        self.stop = asyncio.Event()


class Driver:
    def __init__(self) -> None:
        self.jump = 0
        self.client: AsyncClient
        self.things: dict[str, Any] = {}

    def clock(self) -> leasehold.Clock:
        return leasehold.Clock(wall=lambda: time.time_ns() + self.jump)

    async def reset(self, a: Args) -> Any:
        for thing in self.things.values():
            if isinstance(thing, Runs) and thing.task:
                thing.task.cancel()
        sessions = [x for x in self.things.values() if isinstance(x, AsyncSession)]
        self.things, self.jump = {}, 0
        for s in sessions:
            with contextlib.suppress(LeaseholdError):
                await s.release()
        if hasattr(self, "client"):
            await self.client.close()
            del self.client

    async def op_connect(self, a: Args) -> Any:
        if hasattr(self, "client"):
            await self.reset({})
        tls = leasehold.TLS(ca=a["ca"]) if "ca" in a else None
        self.client = AsyncClient(
            a["endpoints"], tls=tls, user=a.get("user", ""), password=a.get("password", ""),
            token=a.get("token", ""), timeout=int(a.get("call_ms", 30000)) / 1e3,
            clock=self.clock(),
        )  # fmt: skip

    async def op_clock(self, a: Args) -> Any:
        self.jump += int(a["jump_ms"]) * 1_000_000

    async def op_busy(self, a: Args) -> Any:
        time.sleep(int(a["ms"]) / 1e3)  # noqa: ASYNC251 the event loop is to be busy

    # Keys.

    async def op_put(self, a: Args) -> Any:
        r = await self.client.put(**_put(a), timeout=_timeout(a))
        return _plain(r)

    async def op_get(self, a: Args) -> Any:
        return {"kv": _plain(await self.client.get(a["key"], timeout=_timeout(a)))}

    async def op_range(self, a: Args) -> Any:
        return _plain(await self.client.range(**_range(a), timeout=_timeout(a)))

    async def op_delete(self, a: Args) -> Any:
        return _plain(await self.client.delete(**_delete(a), timeout=_timeout(a)))

    async def op_txn(self, a: Args) -> Any:
        t = self.txn(a)
        r = await self.client.txn(t.conditions, t.then, t.otherwise, timeout=_timeout(a))
        return _plain(r)

    def txn(self, a: Args) -> leasehold.Txn:
        def ops(name: str) -> list[Any]:
            return [self.operation(x) for x in a.get(name, [])]

        return leasehold.Txn([self.condition(c) for c in a.get("if", [])], ops("then"), ops("else"))

    def condition(self, c: Args) -> Compare:
        relation: Any = _RELATIONS[c.get("is", "eq")]
        if "held" in c:
            return self.things[c["held"]].condition()  # type: ignore[no-any-return]
        if "lease_alive" in c:
            return Compare.lease_alive(int(c["lease_alive"]), c.get("is", "eq") == "eq")
        if "name" in c:
            return Compare.name_held(c["name"], int(c["token"]))
        if "missing" in c:
            return Compare.missing(c["missing"], prefix=bool(c.get("prefix")))
        if "value" in c:
            return Compare.value(c["key"], relation, c["value"])
        for target, f in (
            ("version", Compare.version), ("create", Compare.create_revision),
            ("mod", Compare.mod_revision), ("lease", Compare.lease),
        ):  # fmt: skip
            if target in c:
                return f(c["key"], relation, int(c[target]))
        raise ValueError(f"no condition: {c}")

    def operation(self, o: Args) -> Any:
        ((kind, x),) = o.items()
        match kind:
            case "put":
                return leasehold.Put(**_put(x))
            case "delete":
                return leasehold.Delete(**_delete(x))
            case "range":
                return leasehold.Range(**_range(x))
            case "grant":
                return leasehold.Grant(int(x["ttl_ms"]) / 1e3, int(x["id"]), x.get("name", ""))
            case "renew":
                return leasehold.Renew(int(x["lease"]), int(x.get("token", 0)))
            case "revoke":
                return leasehold.Revoke(int(x["lease"]), int(x.get("token", 0)))
            case "draw":
                return leasehold.DrawToken()
            case "txn":
                return self.txn(x)
        raise ValueError(f"no operation: {o}")

    async def op_watch(self, a: Args) -> Any:
        self.things[a["as"]] = await self.client.watch(
            a["key"], end=a.get("end"), prefix=bool(a.get("prefix")),
            start_revision=int(a.get("from", 0)), previous=bool(a.get("prev")),
            no_put=bool(a.get("no_put")), no_delete=bool(a.get("no_delete")),
            timeout=_timeout(a),
        )  # fmt: skip

    async def op_unwatch(self, a: Args) -> Any:
        self.things[a["of"]].close()

    async def op_next(self, a: Args) -> Any:
        of = self.things[a["of"]]
        if isinstance(of, leasehold.AsyncWatch):
            return _plain(await of.next())
        changes: AsyncIterator[leasehold.Leader | None] = of
        return {"leader": _plain(await anext(changes))}

    # Leases.

    async def op_grant(self, a: Args) -> Any:
        lease = await self.client.grant(
            int(a["ttl_ms"]) / 1e3, id=int(a.get("id", 0)), name=a.get("name", ""),
            owner=a.get("owner", ""), labels=a.get("labels"),
            lock_delay=int(a.get("lock_delay_ms", 0)) / 1e3,
            request_id=a.get("request_id", ""), timeout=_timeout(a),
        )  # fmt: skip
        return _lease(lease)

    async def op_renew(self, a: Args) -> Any:
        ttl = await self.client.renew(
            int(a["lease"]), token=int(a.get("token", 0)), timeout=_timeout(a)
        )
        return {"ttl_ms": round(ttl * 1000)}

    async def op_revoke(self, a: Args) -> Any:
        await self.client.revoke(int(a["lease"]), token=int(a.get("token", 0)), timeout=_timeout(a))

    async def op_describe(self, a: Args) -> Any:
        return _lease(
            await self.client.describe(
                int(a.get("lease", 0)), name=a.get("name", ""), keys=True, timeout=_timeout(a)
            )
        )

    async def op_leases(self, a: Args) -> Any:
        found = await self.client.leases(name_prefix=a.get("prefix", ""), owner=a.get("owner", ""))
        return {"leases": [_lease(x) for x in found]}

    async def op_check_token(self, a: Args) -> Any:
        valid = await self.client.check_token(
            int(a["token"]), id=int(a.get("lease", 0)), name=a.get("name", "")
        )
        return {"valid": valid}

    # Sessions, and what is held through them.

    async def op_session(self, a: Args) -> Any:
        s = await self.client.session(
            int(a["ttl_ms"]) / 1e3, name=a.get("name", ""), owner=a.get("owner", ""),
            labels=a.get("labels"), timeout=_timeout(a),
        )  # fmt: skip
        self.things[a["as"]] = s
        return {"lease": s.id, **_held(s)}

    async def op_check(self, a: Args) -> Any:
        hold: AsyncHold = self.things[a["of"]]
        hold.check()
        return _held(hold)

    async def op_wait_ended(self, a: Args) -> Any:
        hold: AsyncHold = self.things[a["of"]]
        error = await hold.wait_ended()
        return {"code": error.code, "message": str(error)}

    async def op_release(self, a: Args) -> Any:
        await self.things[a["of"]].release()

    async def op_run(self, a: Args) -> Any:
        runs = self.things[a["as"]] = Runs()

        async def work(s: AsyncSession) -> None:
            async with runs.changed:
                runs.starts.append(s)
                runs.changed.notify_all()
            if a.get("register"):
                await s.register(a["register"], a["id"], str(len(runs.starts)), wait=True)
            await runs.stop.wait()

        async def begin() -> None:
            await self.client.run(work, int(a["ttl_ms"]) / 1e3, name=a.get("name", ""))

        runs.task = asyncio.create_task(begin())

    async def op_runs(self, a: Args) -> Any:
        runs: Runs = self.things[a["of"]]
        async with runs.changed:
            await runs.changed.wait_for(lambda: len(runs.starts) >= int(a["n"]))
        s = runs.starts[int(a["n"]) - 1]
        return {"lease": s.id, "token": s.token}

    async def op_stop_run(self, a: Args) -> Any:
        runs: Runs = self.things[a["of"]]
        runs.stop.set()
        assert runs.task
        await runs.task

    async def op_lock(self, a: Args) -> Any:
        mutex = self.things[a["session"]].mutex(a["name"])
        wait = None if "wait_ms" not in a else int(a["wait_ms"]) / 1e3
        held = await (mutex.try_lock() if a.get("try") else mutex.lock(wait))
        self.things[a["as"]] = held
        return _held(held)

    async def op_campaign(self, a: Args) -> Any:
        lead = await self.things[a["session"]].campaign(a["name"], a.get("value", ""))
        self.things[a["as"]] = lead
        return _held(lead)

    async def op_proclaim(self, a: Args) -> Any:
        await self.things[a["of"]].proclaim(a["value"])

    async def op_leader(self, a: Args) -> Any:
        return {"leader": _plain(await self.client.leader(a["name"], timeout=_timeout(a)))}

    async def op_observe(self, a: Args) -> Any:
        self.things[a["as"]] = self.client.observe(a["name"])

    async def op_register(self, a: Args) -> Any:
        m = await self.things[a["session"]].register(
            a["group"], a["id"], a.get("metadata", ""), wait=bool(a.get("wait"))
        )
        self.things[a["as"]] = m
        return _held(m)

    async def op_update(self, a: Args) -> Any:
        await self.things[a["of"]].update(a["metadata"])

    async def op_members(self, a: Args) -> Any:
        return {"members": _plain(await self.client.members(a["group"]))}


def _timeout(a: Args) -> float | None:
    return int(a["timeout_ms"]) / 1e3 if "timeout_ms" in a else None


def _put(a: Args) -> Args:
    return {
        "key": a["key"], "value": a.get("value", ""), "lease": int(a.get("lease", 0)),
        "ttl": int(a.get("ttl_ms", 0)) / 1e3, "previous": bool(a.get("prev")),
        "ignore_value": bool(a.get("ignore_value")), "ignore_lease": bool(a.get("ignore_lease")),
    }  # fmt: skip


def _delete(a: Args) -> Args:
    return {
        "key": a["key"], "end": a.get("end"), "prefix": bool(a.get("prefix")),
        "previous": bool(a.get("prev")),
    }  # fmt: skip


def _range(a: Args) -> Args:
    return {
        "key": a["key"], "end": a.get("end"), "prefix": bool(a.get("prefix")),
        "limit": int(a.get("limit", 0)), "revision": int(a.get("revision", 0)),
        "serializable": bool(a.get("serializable")), "keys_only": bool(a.get("keys_only")),
        "count_only": bool(a.get("count_only")),
    }  # fmt: skip


def _held(h: AsyncHold) -> Args:
    out: Args = {"token": h.token, "valid_ms": h.valid_for * 1e3}
    if isinstance(h, AsyncHeld):
        out |= {"revision": h.revision, "key": h.key}
    return out


def _lease(x: leasehold.Lease) -> Args:
    return {
        "lease": x.id, "token": x.token, "ttl_ms": round(x.ttl * 1e3),
        "remaining_ms": round(x.remaining * 1e3), "name": x.name, "owner": x.owner,
        "labels": x.labels, "delayed": x.delayed, "keys": [k.decode() for k in x.keys],
    }  # fmt: skip


_NAMES = {"create_revision": "create", "mod_revision": "mod", "previous": "prev"}


def _plain(x: Any) -> Any:
    """Converts a result to JSON types, with the names used by the suite."""
    if isinstance(x, bytes):
        return x.decode()
    if isinstance(x, leasehold.Lease):
        return _lease(x)
    if dataclasses.is_dataclass(x):
        fields = ((f.name, getattr(x, f.name)) for f in dataclasses.fields(x))
        return {_NAMES.get(name, name): _plain(value) for name, value in fields}
    if isinstance(x, tuple | list):
        return [_plain(y) for y in x]
    return x


async def main() -> None:
    driver, loop = Driver(), asyncio.get_running_loop()
    requests: asyncio.Queue[Args | None] = asyncio.Queue()
    tasks: set[asyncio.Task[None]] = set()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(requests.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(requests.put_nowait, None)

    def write(answer: Args) -> None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    async def answer(request: Args) -> None:
        op, id = request["op"], request["id"]
        f: Callable[[Args], Awaitable[Any]]
        f = driver.reset if op == "reset" else getattr(driver, f"op_{op}")
        try:
            ok = await f(request["args"] or {})
            if ok is None or isinstance(ok, dict):
                ok = {**(ok or {}), "at": time.monotonic() * 1e3}
            write({"id": id, "ok": ok})
        except LeaseholdError as e:
            write({"id": id, "error": {"code": e.code, "message": str(e)}})
        except Exception as e:
            write({"id": id, "error": {"code": "DRIVER", "message": f"{op}: {e!r}"}})

    threading.Thread(target=read, daemon=True).start()
    while (request := await requests.get()) is not None:
        task = asyncio.create_task(answer(request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main())
