import { create } from "@bufbuild/protobuf";
import { randomUUID } from "node:crypto";
import { Worker } from "node:worker_threads";

import type { TLS, Target } from "./connection.js";
import { Connector, parseEndpoint } from "./connection.js";
import type { Code, Lease } from "./errors.js";
import { LeaseholdError, codeOf, isEnd, leaseOf } from "./errors.js";
import type { Body, Follower, Kind } from "./mux.js";
import { Mux, abortable, backOff, pause } from "./mux.js";
import type { Leader, Member } from "./session.js";
import { Session, leaderOf, observe } from "./session.js";
import type {
  Bytes,
  DeleteResult,
  Grant,
  KeyValue,
  KeyRange,
  PutOptions,
  PutResult,
  RangeOptions,
  RangeResult,
  Txn,
  TxnResult,
  Update,
} from "./store.js";
import {
  deleteMessage,
  deleteResult,
  endOf,
  eventOf,
  grantMessage,
  putMessage,
  putResult,
  rangeMessage,
  rangeResult,
  raw,
  txnMessage,
  txnResult,
} from "./store.js";
import type { Moment } from "./validity.js";
import { Clock, State, Validity, validFor } from "./validity.js";
import {
  CheckTokenRequestSchema,
  DescribeRequestSchema,
  LeaseRefSchema,
  ListRequestSchema,
  RenewRequestSchema,
  RevokeRequestSchema,
  type Lease as LeaseMessage,
} from "./v1/leases_pb.js";
import type { Event, WatchRequest } from "./v1/store_pb.js";
import { WatchRequestSchema } from "./v1/store_pb.js";
import type { Response } from "./v1/stream_pb.js";
import type { Order, Start } from "./worker.js";

export interface ClientOptions {
  /** host:port, http://host:port, https://host:port or unix:/path. List all members. */
  endpoints: string | string[];
  tls?: TLS;
  user?: string;
  password?: string;
  token?: string;
  /** A file that contains a token. It is read for each connection. */
  tokenFile?: string;
  /** How long a call waits for a member, in milliseconds. The default is 30 s. */
  timeout?: number;
  /** The maximum relative difference between the rates of two clocks. The default is 0.001. */
  drift?: number;
  /** The margin by which validity ends early, in milliseconds. The default is 5. */
  margin?: number;
  /** How long a member may leave a request unanswered, in milliseconds. The default is 3 s. */
  memberTimeout?: number;
  /** For tests. */
  clock?: Clock;
}

/** Options for a single call. */
export interface CallOptions {
  timeout?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface SessionOptions extends CallOptions {
  /** In milliseconds. The default is 10 s. */
  ttl?: number;
  /** A name that at most one live lease can have. */
  name?: string;
  owner?: string;
  labels?: Record<string, string>;
}

type Name = NonNullable<Response["body"]["case"]> & NonNullable<Body["case"]>;
type Answer<C extends Name> = Extract<Response["body"], { case: C }>["value"];

/**
 * A client for one cluster. A call waits for a member for at most its timeout. If it times out, it fails
 * with UNAVAILABLE if nothing has changed, and otherwise with UNKNOWN_OUTCOME. Until then the client
 * retries the call, which takes effect only once.
 */
export class Client implements AsyncDisposable {
  /** @internal */
  readonly mux: Mux;
  /** @internal */
  readonly clock: Clock;
  private readonly target: Target;
  private readonly timeout: number;
  private readonly drift: number;
  private readonly margin: number;
  private worker: Worker | undefined;
  private readonly sessions = new Map<bigint, { session: Session; validity: Validity; keep: Order }>();
  private readonly background = new Set<Promise<void>>();
  private closed = false;

  constructor(o: ClientOptions) {
    const list = typeof o.endpoints === "string" ? o.endpoints.split(",") : o.endpoints;
    const ways = [o.user, o.token, o.tokenFile].filter(Boolean);
    if (list.length === 0) throw new LeaseholdError("INVALID", "no endpoints specified");
    if (ways.length > 1) {
      throw new LeaseholdError("INVALID", "set only one of user, token and tokenFile");
    }
    this.target = {
      endpoints: list.map((e) => parseEndpoint(e, o.tls !== undefined)),
      tls: o.tls ?? {},
      user: o.user ?? "",
      password: o.password ?? "",
      token: o.token ?? "",
      tokenFile: o.tokenFile ?? "",
      memberTimeout: o.memberTimeout ?? 3000,
      dialTimeout: 2000,
    };
    this.timeout = o.timeout ?? 30_000;
    this.drift = o.drift ?? 1e-3;
    this.margin = o.margin ?? 5;
    this.clock = o.clock ?? new Clock();
    this.mux = new Mux(new Connector(this.target), this.clock);
  }

  /** Ends all sessions, watches and calls. Leases that were not released expire. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    if (this.background.size > 0) {
      await Promise.race([Promise.all(this.background), pause(5000)]);
    }
    for (const { session, validity } of this.sessions.values()) {
      validity.finish(State.Closed, "the client was closed");
      session.look();
    }
    this.mux.close();
    await this.worker?.terminate();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal */
  async call(
    body: Body,
    kind: Kind,
    o: CallOptions,
    follower?: Follower,
  ): Promise<{ response: Response; sent: Moment }> {
    const limit = { timeout: o.timeout ?? this.timeout, signal: o.signal };
    return this.mux.request(body, kind, limit, follower);
  }

  /** Sends a request, and returns the answer with the same name. */
  private async ask<C extends Name>(
    body: Extract<Body, { case: C }>,
    kind: Kind,
    o: CallOptions,
  ): Promise<{ value: Answer<C>; sent: Moment }> {
    const { response, sent } = await this.call(body, kind, o);
    if (response.body.case !== (body as Body).case) {
      throw new LeaseholdError("UNKNOWN_OUTCOME", "unexpected response type");
    }
    return { value: response.body.value as Answer<C>, sent };
  }

  /** Reads a key, linearizably. */
  async get(key: Bytes, o: CallOptions = {}): Promise<KeyValue | undefined> {
    return (await this.range({ key }, o)).kvs[0];
  }

  /** Reads the keys from key to end, or all keys with a prefix, in order. */
  async range(k: KeyRange & RangeOptions, o: CallOptions = {}): Promise<RangeResult> {
    const value = rangeMessage(k);
    const r = await this.ask({ case: "readRange", value }, "read", o);
    return rangeResult(r.value, r.value.header?.revision ?? 0n);
  }

  async put(key: Bytes, value: Bytes = "", o: PutOptions & CallOptions = {}): Promise<PutResult> {
    const body = { case: "put", value: putMessage(key, value, o) } as const;
    const r = await this.ask(body, "numbered", o);
    return putResult(r.value, r.value.header?.revision ?? 0n);
  }

  async delete(
    k: Bytes | (KeyRange & { previous?: boolean | undefined }),
    o: CallOptions = {},
  ): Promise<DeleteResult> {
    const keys = typeof k === "string" || k instanceof Uint8Array ? { key: k } : k;
    const body = { case: "deleteRange", value: deleteMessage(keys) } as const;
    const r = await this.ask(body, "numbered", o);
    return deleteResult(r.value, r.value.header?.revision ?? 0n);
  }

  /**
   * Executes `then` if all conditions hold, and `else` otherwise. Either all of its operations take effect
   * or none.
   */
  async txn(t: Txn, o: CallOptions = {}): Promise<TxnResult> {
    const r = await this.ask({ case: "txn", value: txnMessage(t) }, "numbered", o);
    return txnResult(r.value, r.value.header?.revision ?? 0n);
  }

  /** Starts a watch, which delivers all changes from then on. */
  async watch(
    k: KeyRange & {
      startRevision?: bigint | undefined;
      previous?: boolean | undefined;
      noPut?: boolean | undefined;
      noDelete?: boolean | undefined;
    },
    o: CallOptions = {},
  ): Promise<Watch> {
    const m = create(WatchRequestSchema, {
      key: raw(k.key), rangeEnd: endOf(k), startRevision: k.startRevision ?? 0n,
      prevKv: k.previous ?? false, noPut: k.noPut ?? false, noDelete: k.noDelete ?? false,
      progressMs: 10_000n,
    });
    const w = new Watch(this.mux, m);
    this.mux.follow(w);
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), o.timeout ?? this.timeout);
    try {
      await abortable(abortable(w.begun(), late.signal), o.signal);
    } catch (e) {
      w.close();
      throw late.signal.aborted || o.signal?.aborted ? this.mux.unavailable("the watch has not begun") : e;
    } finally {
      clearTimeout(timer);
    }
    return w;
  }

  /** Grants a lease without keeping it alive. To keep it alive, use session instead. */
  async grant(g: Grant & { requestId?: string }, o: CallOptions = {}): Promise<Lease> {
    const { lease } = await this.granted(g, g.requestId || randomUUID(), o);
    return leaseOf(lease);
  }

  private async granted(
    g: Grant,
    requestId: string,
    o: CallOptions,
  ): Promise<{ lease: LeaseMessage; sent: Moment }> {
    const value = grantMessage(g);
    value.requestId = requestId;
    const r = await this.ask({ case: "grant", value }, "numbered", o);
    if (!r.value.lease) throw new LeaseholdError("UNKNOWN_OUTCOME", "the response has no lease");
    return { lease: r.value.lease, sent: r.sent };
  }

  /** Restarts the TTL of a lease, and returns the TTL. */
  async renew(id: bigint, token = 0n, o: CallOptions = {}): Promise<number> {
    const leases = [create(LeaseRefSchema, { id, token })];
    const value = create(RenewRequestSchema, { leases });
    const r = await this.ask({ case: "renew", value }, "read", o);
    const result = r.value.results[0];
    if (!result || result.reason) throw refused(result?.reason);
    return Number(result.ttlMs);
  }

  /** Ends a lease and deletes its keys. */
  async revoke(id: bigint, token = 0n, o: CallOptions = {}): Promise<void> {
    const leases = [create(LeaseRefSchema, { id, token })];
    const value = create(RevokeRequestSchema, { leases });
    const r = await this.ask({ case: "revoke", value }, "numbered", o);
    const result = r.value.results[0];
    if (!result || result.reason) throw refused(result?.reason);
  }

  /** Describes a lease, given its ID or its name. */
  async describe(
    lease: { id: bigint } | { name: string },
    o: CallOptions & { keys?: boolean } = {},
  ): Promise<Lease> {
    const value = create(DescribeRequestSchema, { ...lease, keys: o.keys ?? false });
    const r = await this.ask({ case: "describe", value }, "read", o);
    if (!r.value.lease) throw new LeaseholdError("LEASE_NOT_FOUND", "lease not found");
    return leaseOf(r.value.lease);
  }

  /** Lists leases. */
  async leases(
    filter: { namePrefix?: string; owner?: string } = {},
    o: CallOptions = {},
  ): Promise<Lease[]> {
    const found: Lease[] = [];
    const value = create(ListRequestSchema, filter);
    for (;;) {
      const r = await this.ask({ case: "list", value }, "read", o);
      found.push(...r.value.leases.map(leaseOf));
      if (!r.value.nextPageToken) return found;
      value.pageToken = r.value.nextPageToken;
    }
  }

  /** Reports whether a fencing token still belongs to the live lease with the given ID or name. */
  async checkToken(
    token: bigint,
    of: { id: bigint } | { name: string },
    o: CallOptions = {},
  ): Promise<boolean> {
    const value = create(CheckTokenRequestSchema, { ...of, token });
    return (await this.ask({ case: "checkToken", value }, "read", o)).value.valid;
  }

  /**
   * Grants a lease and keeps it alive in a worker thread. NAME_TAKEN means that a live lease has the name.
   */
  async session(o: SessionOptions = {}): Promise<Session> {
    this.worker ??= this.startWorker(); // the worker starts while the lease is being granted
    const { lease, sent } = await this.granted({ ...o, ttl: o.ttl ?? 10_000 }, randomUUID(), o);
    if (this.closed) throw new LeaseholdError("CLOSED", "the client was closed");
    const validity = new Validity(this.clock);
    const left = lease.remainingMs < lease.ttlMs ? lease.remainingMs : lease.ttlMs;
    validity.set(sent, validFor(Number(left), this.drift, this.margin));
    const { id, token } = lease;
    const session = new Session(this, leaseOf(lease), validity, () => {
      if (this.sessions.delete(id)) this.order({ drop: id });
    });
    const keep = { keep: id, token, ttl: Number(lease.ttlMs), sent, memory: validity.memory };
    this.sessions.set(id, { session, validity, keep });
    this.order(keep);
    return session;
  }

  private order(o: Order): void {
    if (this.closed) return;
    this.worker ??= this.startWorker();
    this.worker.postMessage(o);
  }

  private startWorker(): Worker {
    const { target, drift, margin } = this;
    const start: Start = { target, clock: this.clock.offset, drift, margin };
    const worker = new Worker(new URL("./worker.js", import.meta.url), { workerData: start });
    worker.on("message", (id: bigint) => this.sessions.get(id)?.session.look());
    worker.on("error", () => {}); // after an error, it exits
    worker.on("exit", () => {
      this.worker = undefined;
      for (const { keep } of this.sessions.values()) this.order(keep);
    });
    worker.unref();
    return worker;
  }

  /**
   * Runs work with a session. If the session is lost, its signal is aborted, and run waits for work to end
   * and then runs it again with a new session. This repeats until work returns. If no session is granted,
   * run keeps trying. If work throws while its session is valid, run fails with that error.
   */
  async run<T>(work: (s: Session) => Promise<T>, o: SessionOptions = {}): Promise<T> {
    for (let failures = 0; ; failures++) {
      let s: Session | undefined;
      try {
        s = await this.session(o);
        failures = 0;
        return await work(s);
      } catch (e) {
        const lost = s?.error();
        if (o.signal?.aborted || this.closed) throw e;
        if (!(lost && lost.code !== "RELEASED")) {
          const isLoss = (e: LeaseholdError): boolean => isEnd(e) || e.code === "LEASE_NOT_FOUND";
          if (!(e instanceof LeaseholdError && (s ? isLoss(e) : passes(e)))) throw e;
        }
      } finally {
        await s?.release().catch(() => {}); // the session may have been lost
      }
      await pause(backOff(failures, 100, 5000), o.signal);
    }
  }

  /** Returns the current leader of an election. */
  async leader(name: string, o: CallOptions = {}): Promise<Leader | undefined> {
    return leaderOf(name, (await this.range({ key: `${name}/`, prefix: true }, o)).kvs);
  }

  /** Yields the leader of an election and then every change of leader, or undefined while there is none. */
  observe(name: string): AsyncGenerator<Leader | undefined> {
    return observe(this, name);
  }

  /** Returns the members of a group, ordered by ID. The read is linearizable. */
  async members(group: string, o: CallOptions = {}): Promise<Member[]> {
    const prefix = `${group}/`;
    const { kvs } = await this.range({ key: prefix, prefix: true }, o);
    return kvs
      .map((kv) => ({
        id: kv.key.toString().slice(prefix.length),
        metadata: kv.value,
        lease: kv.lease,
        joined: kv.createRevision,
      }))
      .filter((m) => m.id !== "" && !m.id.includes("/"));
  }

  /** @internal Runs work in the background. close waits for it for a few seconds. */
  later(work: Promise<unknown>): void {
    const done: Promise<void> = work.then(
      () => {},
      () => {}, // the key is deleted with its lease
    );
    this.background.add(done);
    void done.then(() => this.background.delete(done));
  }
}

function refused(reason: number | undefined): LeaseholdError {
  const code: Code = reason === undefined ? "UNKNOWN_OUTCOME" : codeOf(reason);
  return new LeaseholdError(code, code.toLowerCase().replaceAll("_", " "));
}

/** Reports whether the next attempt to open a session may succeed. */
function passes(e: LeaseholdError): boolean {
  const codes: Code[] = [
    "UNAVAILABLE", "UNKNOWN_OUTCOME", "NAME_TAKEN", "NOT_LOGGED_IN", "LEASE_NOT_FOUND",
  ];
  return isEnd(e) || codes.includes(e.code);
}

/** The maximum number of buffered updates. After that, the watch pauses, and the cluster keeps the rest. */
const mostUpdates = 10_000;

/**
 * A watch that survives failures of members and connections: `for await (const update of watch)`. It
 * delivers each change once and in order, and all changes of a revision together. It fails with COMPACTED
 * if the cluster no longer has the next changes.
 */
export class Watch implements AsyncIterable<Update>, AsyncDisposable {
  private readonly queue: Update[] = [];
  private part: Event[] = [];
  private first = true;
  private isBegun = false;
  private paused = false;
  private failed: LeaseholdError | undefined;
  private wake: (() => void)[] = [];

  /** @internal */
  constructor(
    private readonly mux: Mux,
    private readonly message: WatchRequest,
  ) {}

  /** @internal */
  body(): Body {
    this.part = [];
    this.first = true;
    return { case: "watch", value: this.message };
  }

  /** @internal */
  take(r: Response): void {
    if (r.body.case !== "watch") return;
    const m = r.body.value;
    const revision = m.header?.revision ?? 0n;
    if (this.first) {
      // This response only confirms that the watch has begun.
      this.first = false;
      this.isBegun = true;
      this.message.startRevision ||= revision + 1n;
    } else if (m.events.length === 0 && this.message.startRevision <= revision) {
      this.message.startRevision = revision + 1n;
    }
    this.part.push(...m.events);
    if (!m.fragment && this.part.length > 0) {
      for (const e of this.part.map(eventOf)) {
        const last = this.queue.at(-1);
        if (last && last.revision === e.kv.modRevision) last.events.push(e);
        else this.queue.push({ revision: e.kv.modRevision, events: [e] });
      }
      this.part = [];
      this.message.startRevision = revision + 1n;
      if (this.queue.length >= mostUpdates) {
        this.paused = true;
        this.mux.unfollow(this);
      }
    }
    this.notify();
  }

  /** @internal */
  end(e: LeaseholdError): void {
    this.failed ??= e;
    this.notify();
  }

  private notify(): void {
    for (const f of this.wake.splice(0)) f();
  }

  private changed(): Promise<void> {
    return new Promise((resolve) => this.wake.push(resolve));
  }

  /** @internal */
  async begun(): Promise<void> {
    while (!this.isBegun && !this.failed) await this.changed();
    if (this.failed && this.queue.length === 0) throw this.failed;
  }

  /** Waits for the next change. */
  async next(): Promise<Update> {
    for (;;) {
      const u = this.queue.shift();
      if (u) {
        if (this.paused && this.queue.length === 0) {
          this.paused = false;
          this.mux.follow(this);
        }
        return u;
      }
      if (this.failed) throw this.failed;
      await this.changed();
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Update> {
    try {
      for (;;) {
        try {
          yield await this.next();
        } catch (e) {
          if (e instanceof LeaseholdError && e.code === "CLOSED") return;
          throw e;
        }
      }
    } finally {
      this.close();
    }
  }

  close(): void {
    this.mux.unfollow(this);
    this.queue.length = 0;
    this.end(new LeaseholdError("CLOSED", "the watch was closed"));
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}

