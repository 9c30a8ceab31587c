import { create } from "@bufbuild/protobuf";
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import type { Client } from "./client.js";
import type { Lease } from "./errors.js";
import { LeaseholdError, errorOf, isEnd } from "./errors.js";
import type { Body, Follower } from "./mux.js";
import { abortable } from "./mux.js";
import type { Bytes, Compare, KeyValue, RangeResult } from "./store.js";
import { compare, firstTicket, isTicket, op, txnMessage, txnResult } from "./store.js";
import type { Validity } from "./validity.js";
import { State } from "./validity.js";
import { Event_Cause, Ticket_State, WaitSchema, type Ticket as TicketMessage } from "./v1/store_pb.js";
import type { Response } from "./v1/stream_pb.js";

/**
 * Something held through a lease: a session, a lock, a leadership or a membership. Call check before each
 * step that depends on it. check reads the clock, so it is correct even if the process was paused or its
 * thread was busy until just before the call. With `await using`, the hold is released at the end of the
 * block.
 */
export abstract class Hold implements AsyncDisposable {
  private readonly controller = new AbortController();
  /** Why it has ended, once the program's thread has detected that. */
  protected reason: LeaseholdError | undefined;

  constructor() {
    setMaxListeners(0, this.controller.signal); // everything held through it adds a listener
  }

  /** The fencing token. It is higher than the token of every earlier holder. */
  abstract readonly token: bigint;
  /** Returns why it is no longer valid, or undefined while it is. */
  abstract error(): LeaseholdError | undefined;
  /** Releases it. It stops being valid immediately, even if the call fails. */
  abstract release(): Promise<void>;
  /** @internal In nanoseconds. */
  abstract left(): bigint;

  /** A signal that is aborted when the hold ends, with the reason. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Throws if it is no longer valid. */
  check(): void {
    const e = this.error();
    if (e) throw e;
  }

  /** How long it stays valid if no renewal succeeds, in milliseconds; 0 if it has ended. */
  get validFor(): number {
    return this.error() ? 0 : Number(this.left()) / 1e6;
  }

  /** When the program must stop unless a renewal succeeds first, on the scale of performance.now(). */
  get validUntil(): number {
    return performance.now() + this.validFor;
  }

  /** Waits until it ends, and returns the reason. */
  async ended(): Promise<LeaseholdError> {
    if (!this.signal.aborted) {
      await new Promise((resolve) =>
        this.signal.addEventListener("abort", resolve, { once: true }),
      );
    }
    return this.signal.reason as LeaseholdError;
  }

  protected end(why: LeaseholdError): void {
    this.reason ??= why;
    this.controller.abort(this.reason);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.reason?.code !== "RELEASED") await this.release();
  }
}

const released = (): LeaseholdError =>
  new LeaseholdError("RELEASED", "it was released");

/** A lease that is kept alive. Once it has ended, it never becomes valid again. */
export class Session extends Hold {
  /**
   * @internal Keys in wait queues. A key that is being given up maps to a promise that settles afterwards.
   */
  readonly keys = new Map<string, Promise<unknown> | undefined>();
  private timer: NodeJS.Timeout | undefined;

  /** @internal */
  constructor(
    readonly client: Client,
    readonly lease: Lease,
    private readonly validity: Validity,
    private readonly dropped: () => void,
  ) {
    super();
    this.look();
  }

  /**
   * @internal Ends the session if the lease has ended. The worker reports that immediately, but may hang.
   * The timer uses the monotonic clock; the wall clock is checked at least once a second.
   */
  look(): void {
    clearTimeout(this.timer);
    const e = this.error();
    if (e) this.end(e);
    else this.timer = setTimeout(() => this.look(), Math.min(this.validFor + 1, 1000)).unref();
  }

  protected override end(why: LeaseholdError): void {
    clearTimeout(this.timer);
    super.end(why);
    this.dropped();
  }

  get id(): bigint {
    return this.lease.id;
  }

  get token(): bigint {
    return this.lease.token;
  }

  error(): LeaseholdError | undefined {
    return this.reason ?? this.validity.error();
  }

  /** @internal */
  left(): bigint {
    return this.validity.left();
  }

  /** Revokes the lease, which ends everything held through it. */
  async release(): Promise<void> {
    const was = this.error();
    this.end(released());
    this.validity.finish(State.Released, released().message);
    if (was) return;
    const timeout = Math.min(Math.max(this.lease.ttl, 1000), 5000);
    await this.client.revoke(this.id, this.token, { timeout }).catch((e: unknown) => {
      if (!(e instanceof LeaseholdError) || e.code !== "LEASE_NOT_FOUND") throw e;
    });
  }

  /** @internal Waits for work, but only until the session ends or the caller's signal is aborted. */
  during<T>(work: Promise<T>, signal?: AbortSignal): Promise<T> {
    return abortable(abortable(work, this.signal), signal);
  }

  /** Returns the mutex with the given name. It also excludes etcd's concurrency.Mutex of that name. */
  mutex(name: string): Mutex {
    return new Mutex(this, name);
  }

  /**
   * Waits until the session leads. Observers see the value. Candidates lead in order of arrival. Candidates
   * that use etcd's concurrency.Election take part in the same election.
   */
  async campaign(name: string, value: Bytes = "", o: { signal?: AbortSignal } = {}): Promise<Lead> {
    const t = await Ticket.enter(this, name, value, o);
    await t.wait(undefined, o.signal);
    return new Lead(t);
  }

  /**
   * Makes the session a member of a group until it is released or the session ends. If an earlier member
   * with this ID still exists, register waits until that member has left. It may belong to the same program
   * before a restart. With `wait: false`, register fails with EXISTS instead.
   */
  async register(
    group: string,
    id: string,
    metadata: Bytes = "",
    o: { wait?: boolean; signal?: AbortSignal } = {},
  ): Promise<Membership> {
    checkName("group", group);
    if (!id || id.includes("/")) {
      throw new LeaseholdError("INVALID", `${JSON.stringify(id)} is not a valid member ID`);
    }
    const key = `${group}/${id}`;
    for (;;) {
      this.check();
      const put = this.client.txn({
        if: [compare.missing(key)],
        then: [op.put(key, metadata, { lease: this.id })],
        else: [op.range({ key })],
      });
      const r = await this.during(put, o.signal);
      if (r.succeeded) return new Membership(this, key, r.revision);
      const found = (r.results[0] as RangeResult).kvs[0];
      if (found && o.wait === false) {
        throw new LeaseholdError("EXISTS", `${key} is registered with lease ${hex(found.lease)}`);
      }
      if (found) await this.gone(key, r.revision, o.signal);
    }
  }

  private async gone(key: string, revision: bigint, signal?: AbortSignal): Promise<void> {
    const w = await this.client.watch({ key, startRevision: revision + 1n, noPut: true });
    try {
      await this.during(w.next(), signal);
    } catch (e) {
      if (!(e instanceof LeaseholdError) || e.code !== "COMPACTED") throw e;
    } finally {
      w.close();
    }
  }
}

function hex(lease: bigint): string {
  return lease.toString(16).padStart(16, "0");
}

function checkName(what: string, name: string): void {
  if (!name) throw new LeaseholdError("INVALID", `the name of the ${what} is empty`);
}

/** One of the session's keys in a wait queue. */
class Ticket implements Follower {
  token = 0n;
  revision = 0n;
  ready = false;
  gone: LeaseholdError | undefined;
  changed: () => void = () => {};
  private readonly prefix: string;
  readonly key: string;

  private constructor(
    readonly session: Session,
    readonly name: string,
  ) {
    this.prefix = `${name}/`;
    this.key = this.prefix + session.id.toString(16);
  }

  /** Takes a ticket. With idle, it does so only if the queue is empty, and otherwise fails with LOCKED. */
  static async enter(
    s: Session,
    name: string,
    value: Bytes,
    { idle = false, signal }: { idle?: boolean; signal?: AbortSignal },
  ): Promise<Ticket> {
    checkName("lock", name);
    const t = new Ticket(s, name);
    s.check();
    while (s.keys.has(t.key)) {
      const leaving = s.keys.get(t.key);
      if (!leaving) {
        throw new LeaseholdError("IN_USE", `the session already has ${name}, or waits for it`);
      }
      await s.during(leaving, signal);
    }
    s.keys.set(t.key, undefined);
    const call = new AbortController();
    try {
      await s.during(t.enter(value, idle, call.signal), signal);
    } catch (e) {
      call.abort(); // otherwise it might enter the queue after it has left
      const none = e instanceof LeaseholdError && (e.code === "LOCKED" || e.code === "IN_USE");
      if (none) s.keys.delete(t.key);
      else t.leaveLater();
      throw e;
    }
    return t;
  }

  private async enter(value: Bytes, idle: boolean, signal: AbortSignal): Promise<void> {
    const m = txnMessage({
      if: [
        compare.missing(this.key),
        ...(idle ? [compare.missing(this.prefix, { prefix: true })] : []),
      ],
      then: [op.put(this.key, value, { lease: this.session.id }), op.drawToken()],
      else: [op.range({ key: this.prefix, prefix: true })],
    });
    m.wait = this.waits();
    const body: Body = { case: "txn", value: m };
    const { response } = await this.session.client.call(body, "numbered", { signal }, this);
    if (response.body.case !== "txn") return;
    const answer = response.body.value;
    const result = txnResult(answer, 0n);
    if (result.succeeded) {
      if (answer.waitRefused) throw errorOf(answer.waitRefused);
      this.token = result.results[1] as bigint;
      this.revision = answer.ticket?.createRevision ?? 0n;
      this.take(response);
      return;
    }
    const { kvs } = result.results[0] as RangeResult;
    if (kvs.some((kv) => kv.key.toString() === this.key)) {
      throw new LeaseholdError("IN_USE", `another session of the lease has ${this.name}`);
    }
    const first = firstTicket(this.prefix, kvs);
    if (first) throw this.locked(first);
    await this.enter(value, false, signal); // the queue has other keys, but no waiters
  }

  private locked(first: KeyValue): LeaseholdError {
    const by = `lease ${hex(first.lease)} is first in the queue`;
    return new LeaseholdError("LOCKED", `${this.name} is already locked: ${by}`);
  }

  private waits() {
    return create(WaitSchema, { key: Buffer.from(this.key), prefix: Buffer.from(this.prefix) });
  }

  // The following methods are called to follow the ticket on each new link.

  body(): Body {
    const m = txnMessage({ if: [compare.createRevision(this.key, "==", this.revision)] });
    m.wait = this.waits();
    return { case: "txn", value: m };
  }

  take(r: Response): void {
    const t = r.body.case === "txn" ? r.body.value.ticket : undefined;
    if (!t || t.state === Ticket_State.GONE) {
      this.end(goneError(this.name, t));
    } else if (t.state === Ticket_State.READY) {
      this.ready = true;
      this.changed();
    }
  }

  end(e: LeaseholdError): void {
    this.gone ??= e;
    this.session.client.mux.unfollow(this);
    this.changed();
  }

  /** Waits until the ticket is ready. If it does not become ready, wait gives it up. */
  async wait(limit: number | undefined, signal?: AbortSignal): Promise<void> {
    const turn = new Promise<void>((resolve) => {
      this.changed = () => {
        if (this.ready || this.gone) resolve();
      };
      this.changed();
    });
    const late = new AbortController();
    try {
      const limited: Promise<unknown> =
        limit === undefined
          ? turn
          : Promise.race([turn, sleep(limit, undefined, { signal: late.signal }).catch(() => {})]);
      await this.session.during(limited, signal);
      if (this.gone) throw this.gone;
      if (!this.ready) throw await this.late();
      this.session.check();
    } catch (e) {
      this.leaveLater();
      throw e;
    } finally {
      late.abort();
    }
  }

  private async late(): Promise<LeaseholdError> {
    const r = await this.session.client.range({ key: this.prefix, prefix: true });
    const first = firstTicket(this.prefix, r.kvs);
    return first ? this.locked(first) : new LeaseholdError("LOCKED", `${this.name} is locked`);
  }

  /** Deletes the key in the background, even if it is not known to exist. */
  leaveLater(): void {
    this.session.client.later(this.remove(compare.lease(this.key, "==", this.session.id)));
  }

  /** Deletes the key, and reports whether it existed. */
  leave(): Promise<boolean> {
    return this.remove(this.condition());
  }

  private remove(ours: Compare): Promise<boolean> {
    this.session.client.mux.unfollow(this);
    // After this time, the key has been deleted with its lease.
    const timeout = Math.max(this.session.lease.ttl, 1000);
    const leaving = this.session.client
      .txn({ if: [ours], then: [op.delete({ key: this.key })] }, { timeout })
      .then((r) => r.succeeded)
      .finally(() => this.session.keys.delete(this.key));
    this.session.keys.set(
      this.key,
      leaving.catch(() => {}),
    );
    return leaving;
  }

  condition(): Compare {
    return compare.createRevision(this.key, "==", this.revision);
  }
}

function goneError(name: string, t?: TicketMessage): LeaseholdError {
  const how: Partial<Record<Event_Cause, string>> = {
    [Event_Cause.DELETED]: "its key was deleted",
    [Event_Cause.EXPIRED]: "its lease has expired",
    [Event_Cause.REVOKED]: "its lease was revoked",
  };
  const why = (t && how[t.cause]) ?? "its key is gone";
  return new LeaseholdError("LOST", `${name} is lost: ${why}`);
}

/** Something held through a session. */
abstract class Part extends Hold {
  protected readonly sessionEnded = (): void => {
    const e = this.session.error();
    if (e) this.end(e);
  };

  /** @internal */
  constructor(readonly session: Session) {
    super();
    session.signal.addEventListener("abort", this.sessionEnded, { once: true });
    if (session.signal.aborted) this.sessionEnded();
  }

  error(): LeaseholdError | undefined {
    return this.reason ?? this.session.error();
  }

  /** @internal */
  left(): bigint {
    return this.session.left();
  }

  /** Ends it for the program. If it had already ended, giveUp returns the reason. */
  protected giveUp(): LeaseholdError | undefined {
    const was = this.error();
    this.end(released());
    return was;
  }

  protected override end(why: LeaseholdError): void {
    this.session.signal.removeEventListener("abort", this.sessionEnded);
    super.end(why);
  }
}

/** A lock held by this program. */
export class Held extends Part {
  /** @internal */
  constructor(private readonly ticket: Ticket) {
    super(ticket.session);
    ticket.changed = () => {
      const { gone } = ticket;
      if (gone) this.end(isEnd(gone) ? gone : new LeaseholdError("LOST", gone.message));
    };
    ticket.changed();
  }

  get name(): string {
    return this.ticket.name;
  }

  /** The key that exists while the lock is held. */
  get key(): string {
    return this.ticket.key;
  }

  get token(): bigint {
    return this.ticket.token;
  }

  /** The create revision of the key, which etcd's clients use as a token. */
  get revision(): bigint {
    return this.ticket.revision;
  }

  /**
   * The condition that the lock is still held, for transactions that only the holder should be able to
   * commit.
   */
  condition(): Compare {
    return this.ticket.condition();
  }

  /** Releases the lock. It fails if the lock was not held until now. */
  async release(): Promise<void> {
    const was = this.giveUp();
    if (was) {
      if (!this.session.error()) this.ticket.leaveLater();
      throw was;
    }
    if (!(await this.ticket.leave())) {
      throw new LeaseholdError("LOST", `${this.name} is lost: its key was deleted`);
    }
  }
}

/** The leadership of an election. */
export class Lead extends Held {
  /** Changes the value that observers see. */
  async proclaim(value: Bytes): Promise<void> {
    this.check();
    const { client, id } = this.session;
    const then = [op.put(this.key, value, { lease: id })];
    const r = await client.txn({ if: [this.condition()], then });
    if (!r.succeeded) throw new LeaseholdError("LOST", `leadership of ${this.name} was lost`);
  }
}

/** A lock held by one session at a time: `await using held = await session.mutex("name").lock()`. */
export class Mutex {
  /** @internal */
  constructor(
    readonly session: Session,
    readonly name: string,
  ) {}

  /**
   * Waits until the session holds the lock. Waiters get it in order of arrival. LOCKED means that others
   * held it for longer than wait milliseconds.
   */
  async lock(o: { wait?: number; signal?: AbortSignal } = {}): Promise<Held> {
    if (o.wait !== undefined && o.wait <= 0) return this.tryLock();
    const t = await Ticket.enter(this.session, this.name, "", o);
    await t.wait(o.wait, o.signal);
    return new Held(t);
  }

  /** Like lock, but fails with LOCKED immediately if another session holds the lock. */
  async tryLock(): Promise<Held> {
    const t = await Ticket.enter(this.session, this.name, "", { idle: true });
    await t.wait(t.ready ? undefined : 0);
    return new Held(t);
  }

  /** Runs work while the lock is held. The lock's signal is aborted if the lock is lost. */
  async with<T>(work: (held: Held) => Promise<T>, o: { wait?: number } = {}): Promise<T> {
    const held = await this.lock(o);
    let result: T;
    try {
      result = await work(held);
    } catch (e) {
      await held.release().catch(() => {}); // the first error is thrown
      throw e;
    }
    await held[Symbol.asyncDispose]();
    return result;
  }
}

/** A registration in a group. It is never renewed automatically once it has ended. */
export class Membership extends Part {
  /** @internal */
  constructor(
    session: Session,
    readonly key: string,
    private readonly created: bigint,
  ) {
    super(session);
  }

  get token(): bigint {
    return this.session.token;
  }

  private ours(): Compare[] {
    return [
      compare.createRevision(this.key, "==", this.created),
      compare.lease(this.key, "==", this.session.id),
    ];
  }

  /** Changes the member's metadata. */
  async update(metadata: Bytes): Promise<void> {
    this.check();
    const then = [op.put(this.key, metadata, { lease: this.session.id })];
    const r = await this.session.client.txn({ if: this.ours(), then });
    if (!r.succeeded) throw new LeaseholdError("LOST", `${this.key} is no longer registered`);
  }

  /** Leaves the group. */
  async release(): Promise<void> {
    if (this.giveUp()) return;
    const then = [op.delete({ key: this.key })];
    await this.session.client.txn({ if: this.ours(), then });
  }
}

export interface Member {
  id: string;
  metadata: Buffer;
  lease: bigint;
  /** The revision at which the member was registered. */
  joined: bigint;
}

export interface Leader {
  key: string;
  value: Buffer;
  lease: bigint;
  /** The revision at which it became the leader. Each later leader has a higher one. */
  since: bigint;
}

export function leaderOf(name: string, kvs: Iterable<KeyValue>): Leader | undefined {
  const f = firstTicket(`${name}/`, kvs);
  return f && { key: f.key.toString(), value: f.value, lease: f.lease, since: f.createRevision };
}

export async function* observe(client: Client, name: string): AsyncGenerator<Leader | undefined> {
  checkName("election", name);
  const prefix = `${name}/`;
  let last: Leader | undefined | null = null;
  const news = (now: Leader | undefined): boolean => {
    const same = last !== null && last?.since === now?.since && last?.value.toString() === now?.value.toString();
    last = now;
    return !same;
  };
  for (;;) {
    const r = await client.range({ key: prefix, prefix: true });
    const keys = new Map(r.kvs.map((kv) => [kv.key.toString(), kv]));
    let now = leaderOf(name, keys.values());
    if (news(now)) yield now;
    let watch;
    try {
      watch = await client.watch({ key: prefix, prefix: true, startRevision: r.revision + 1n });
      for await (const u of watch) {
        for (const e of u.events) {
          if (e.kind === "put" && isTicket(prefix, e.kv)) keys.set(e.kv.key.toString(), e.kv);
          else keys.delete(e.kv.key.toString());
        }
        now = leaderOf(name, keys.values());
        if (news(now)) yield now;
      }
      return;
    } catch (e) {
      if (!(e instanceof LeaseholdError) || e.code !== "COMPACTED") throw e;
    } finally {
      watch?.close();
    }
  }
}

