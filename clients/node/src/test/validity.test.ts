import { create } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { mock, test } from "node:test";

import { LeaseholdError } from "../errors.js";
import { Held, Session } from "../session.js";
import type { Moment } from "../validity.js";
import { Clock, State, Validity, validFor } from "../validity.js";
import type { RenewResult } from "../v1/leases_pb.js";
import {
  LeaseEvent_Kind,
  Reason,
  RenewResponseSchema,
  RenewResultSchema,
} from "../v1/leases_pb.js";
import { ResponseSchema } from "../v1/stream_pb.js";
import { Keeper, type Link } from "../worker.js";

const second = 1_000_000_000n;

/** A clock that the test advances. */
class FakeClock extends Clock {
  at: Moment = { monotonic: 5n * second, wall: 1_700_000_000n * second };

  override now(): Moment {
    return { ...this.at };
  }

  passes(seconds: number): void {
    const n = BigInt(Math.round(seconds * 1e9));
    this.at = { monotonic: this.at.monotonic + n, wall: this.at.wall + n };
  }

  set(seconds: number): void {
    this.at.wall += BigInt(seconds) * second;
  }
}

function valid(clock: Clock, seconds: number): Validity {
  const v = new Validity(clock);
  v.set(clock.now(), BigInt(seconds) * second);
  return v;
}

test("what has passed is what the faster clock says", () => {
  const clock = new FakeClock();
  const began = clock.now();
  clock.passes(1);
  assert.equal(clock.passed(began), second);
  clock.set(3); // the wall clock was set, or the machine was suspended
  assert.equal(clock.passed(began), 4n * second);
  clock.set(-100);
  assert.equal(clock.passed(began), second);
});

test("less drift and margin", () => {
  assert.equal(validFor(10_000, 1e-3, 5), 9_985_000_000n);
});

test("it is over at its end, for ever", () => {
  const clock = new FakeClock();
  const v = valid(clock, 10);
  clock.passes(9.999);
  assert.equal(v.error(), undefined);
  clock.passes(0.001);
  assert.equal(v.error()?.code, "EXPIRED");
  v.set(clock.now(), 10n * second);
  assert.equal(v.error()?.code, "EXPIRED");
  clock.passes(-20);
  assert.equal(v.error()?.code, "EXPIRED");
});

test("nobody looked while it ended", () => {
  const clock = new FakeClock();
  const v = valid(clock, 10);
  clock.passes(11);
  v.set(clock.now(), 10n * second); // the answer to a renewal arrived too late
  assert.equal(v.error()?.code, "EXPIRED");
});

test("an older answer does not shorten it", () => {
  const clock = new FakeClock();
  const v = new Validity(clock);
  const early = clock.now();
  clock.passes(2);
  v.set(clock.now(), 10n * second);
  v.set(early, 10n * second);
  assert.equal(v.left(), 10n * second);
});

test("another thread sees it by the shared memory", () => {
  const clock = new FakeClock();
  const v = valid(clock, 10);
  const there = new Validity(clock, v.memory);
  assert.equal(there.left(), 10n * second);
  there.finish(State.Lost, "the lease is gone: revoked");
  there.finish(State.Released, "too late");
  assert.equal(v.error()?.code, "LOST");
  assert.equal(v.error()?.message, "the lease is gone: revoked");
  assert.equal(v.left(), 0n);
});

/** Returns a keeper, with the messages it sends and the leases it reports as ended. */
function keeping(clock: FakeClock) {
  const sent: bigint[][] = [];
  const over: bigint[] = [];
  const links: Link[] = [];
  const closed: Link[] = [];
  const start = {
    target: {} as never, clock: new SharedArrayBuffer(8), drift: 1e-3, margin: 5,
  };
  const open = (): Link => {
    const waits: Link["waits"] = new Map();
    const link = {
      waits,
      renew(held: { id: bigint }[], wait: never): void {
        sent.push(held.map((h) => h.id));
        waits.set(BigInt(sent.length), wait);
      },
      close: () => closed.push(link),
    } as unknown as Link;
    links.push(link);
    return link;
  };
  const keeper = new Keeper(start, clock, open, (id) => over.push(id));
  const keep = (id: bigint): Validity => {
    const v = new Validity(clock);
    v.set(clock.now(), validFor(10_000, 1e-3, 5));
    keeper.order({ keep: id, token: 7n, ttl: 10_000, sent: clock.now(), memory: v.memory });
    return v;
  };
  return { keeper, sent, over, links, closed, keep };
}

function answer(id: bigint, ...results: RenewResult[]) {
  const value = create(RenewResponseSchema, { results });
  return create(ResponseSchema, { id, body: { case: "renew", value } });
}

const renewed = (id: bigint) => create(RenewResultSchema, { id, ttlMs: 10_000n });

test("renewal", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.after(() => mock.timers.reset());

  await t.test("after a third of the TTL, and it counts from when it was sent", () => {
    const clock = new FakeClock();
    const k = keeping(clock);
    const v = k.keep(1n);
    clock.passes(3);
    k.keeper.step();
    assert.deepEqual(k.sent, []);
    clock.passes(1);
    k.keeper.step();
    assert.deepEqual(k.sent, [[1n]]);
    clock.passes(1);
    k.keeper.answered(k.links[0]!, answer(1n, renewed(1n)));
    assert.equal(v.left(), 8_985_000_000n);
  });

  await t.test("a member that hangs is left", () => {
    const clock = new FakeClock();
    const k = keeping(clock);
    k.keep(1n);
    clock.passes(4);
    k.keeper.step();
    clock.passes(1.7);
    k.keeper.step();
    assert.deepEqual(k.closed, [k.links[0]]);
    clock.passes(0.3);
    k.keeper.step();
    assert.deepEqual(k.sent, [[1n], [1n]]);
    assert.equal(k.links.length, 2);
  });

  await t.test("an unknown outcome is not a renewal, and another member may know", () => {
    const clock = new FakeClock();
    const k = keeping(clock);
    const v = k.keep(1n);
    clock.passes(4);
    k.keeper.step();
    const before = v.left();
    const reason = Reason.UNKNOWN_OUTCOME;
    k.keeper.answered(k.links[0]!, answer(1n, create(RenewResultSchema, { id: 1n, reason })));
    assert.equal(v.left(), before);
    assert.deepEqual(k.closed, [k.links[0]]);
  });

  await t.test("one of two is lost", () => {
    const clock = new FakeClock();
    const k = keeping(clock);
    const [v, other] = [k.keep(1n), k.keep(2n)];
    clock.passes(4);
    k.keeper.step();
    const gone = create(RenewResultSchema, {
      id: 1n, reason: Reason.LEASE_NOT_FOUND, cause: LeaseEvent_Kind.REVOKED, by: "somebody",
    });
    k.keeper.answered(k.links[0]!, answer(1n, gone, renewed(2n)));
    assert.equal(v.error()?.message, "the lease is gone: revoked by somebody");
    assert.deepEqual(k.over, [1n]);
    assert.equal(other.error(), undefined);
  });

  await t.test("one that expires is reported", () => {
    const clock = new FakeClock();
    const k = keeping(clock);
    k.keep(1n);
    clock.passes(10);
    k.keeper.step();
    assert.deepEqual(k.over, [1n]);
  });

  await t.test("a clock that is set back does not hide that the machine was suspended", () => {
    const clock = new FakeClock();
    const k = keeping(clock);
    const v = k.keep(1n);
    clock.set(5);
    k.keeper.step();
    clock.set(-5);
    k.keeper.step();
    assert.equal(v.left(), 4_985_000_000n);
    clock.passes(3);
    assert.equal(v.left(), 1_985_000_000n);
  });

  await t.test("a loss is reported in time without the worker", async () => {
    const clock = new FakeClock();
    const s = new Session({} as never, { id: 1n } as never, valid(clock, 10), () => {});
    clock.passes(9);
    mock.timers.tick(9000);
    assert.equal(s.signal.aborted, false);
    clock.passes(1);
    mock.timers.tick(1001);
    assert.equal((await s.ended()).code, "EXPIRED");
  });
});

test("what rests on a session leaves no listeners when it ends", () => {
  const s = new Session({} as never, { id: 1n } as never, valid(new FakeClock(), 10), () => {});
  const count = (): number => getEventListeners(s.signal, "abort").length;
  const before = count();
  const ticket = { session: s, changed: () => {}, gone: undefined as unknown };
  const held = new Held(ticket as never);
  assert.equal(count(), before + 1);
  ticket.gone = new LeaseholdError("LOST", "its key was deleted");
  ticket.changed();
  assert.equal(held.signal.aborted, true);
  assert.equal(count(), before);
});
