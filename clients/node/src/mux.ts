import { create } from "@bufbuild/protobuf";
import type * as grpc from "@grpc/grpc-js";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import type { Stream } from "./connection.js";
import { Connector, message } from "./connection.js";
import type { Code } from "./errors.js";
import { LeaseholdError, errorOf } from "./errors.js";
import type { Clock, Moment } from "./validity.js";
import type { Request, Response, ServerMessage, SessionRef } from "./v1/stream_pb.js";
import { RequestSchema, SessionRequestSchema } from "./v1/stream_pb.js";

/** A request either changes nothing, or has a number that makes it take effect only once. */
export type Kind = "read" | "numbered";

export type Body = Request["body"];

/** A request was not answered. If it was sent, it may have taken effect. */
export class LinkError extends Error {
  constructor(
    readonly sent: boolean,
    cause: string,
  ) {
    super(cause);
  }
}

/** A request with several responses, which is sent again on each new link. */
export interface Follower {
  body(): Body;
  take(r: Response): void;
  end(e: LeaseholdError): void;
}

/** The maximum number of open numbers. The cluster keeps 4,096 answers per session. */
const maxAhead = 4000n;

/**
 * An idempotency session. The numbers from acknowledgedBelow to last are open, except for those in done.
 */
export class Numbers {
  acknowledgedBelow = 1n;
  last = 0n;
  private readonly done = new Set<bigint>();

  constructor(readonly ref: SessionRef | undefined) {}

  settle(n: bigint): void {
    this.done.add(n);
    while (this.done.delete(this.acknowledgedBelow)) this.acknowledgedBelow++;
  }
}

export interface Call {
  request: Request;
  numbers?: Numbers | undefined;
  answer(r: Response): void;
  lost(e: LinkError): void;
}

/** Sends requests. */
export interface Sender {
  send(c: Call): void;
  /** Cancels a request, and reports whether it had been sent. */
  forget(c: Call): boolean;
}

/** A stream to one member. */
export class Link implements Sender {
  private readonly open = new Map<bigint, Call>();
  private readonly unanswered = new Map<bigint, number>(); // send times, by ID
  private queue: Call[] = [];
  private last = 0n;
  private heard = performance.now();
  private ended = false;
  private readonly watchdog: NodeJS.Timeout;

  constructor(
    private readonly stream: Stream,
    private readonly client: grpc.Client,
    memberTimeout: number,
    private readonly done: (why: string) => void,
  ) {
    this.watchdog = setInterval(() => {
      const oldest = Math.min(...this.unanswered.values());
      if (performance.now() - Math.max(oldest, this.heard) > memberTimeout) {
        this.end(`the member has not responded for ${memberTimeout} ms`);
      }
    }, memberTimeout / 4);
    this.watchdog.unref();
  }

  take(m: ServerMessage): void {
    this.heard = performance.now();
    for (const r of m.responses) {
      const call = this.open.get(r.id);
      this.unanswered.delete(r.id);
      if (!r.more) this.open.delete(r.id);
      call?.answer(r);
    }
  }

  send(c: Call): void {
    if (this.ended) {
      c.lost(new LinkError(false, "the link has ended"));
      return;
    }
    this.queue.push(c);
    if (this.queue.length === 1) queueMicrotask(() => this.flush());
  }

  /** Sends all queued requests. */
  flush(): void {
    let calls = this.queue;
    this.queue = [];
    while (calls.length > 0 && !this.ended) {
      // A message belongs to one session, which is the session of its first numbered request.
      const numbers = calls.find((c) => c.numbers)?.numbers;
      const now = calls.filter((c) => !c.numbers || c.numbers === numbers);
      calls = calls.filter((c) => c.numbers && c.numbers !== numbers);
      for (const c of now) {
        c.request.id = ++this.last;
        if (c.request.body.case === "cancel") continue; // it gets no answer
        this.open.set(this.last, c);
        this.unanswered.set(this.last, performance.now());
      }
      const session = numbers ? { session: numbers.ref, acknowledgedBelow: numbers.acknowledgedBelow } : {};
      this.stream.write(message({ requests: now.map((c) => c.request), ...session }));
    }
  }

  forget(c: Call): boolean {
    const i = this.queue.indexOf(c);
    if (i >= 0) {
      this.queue.splice(i, 1);
      return false;
    }
    const { id } = c.request;
    this.unanswered.delete(id);
    if (this.open.delete(id)) {
      const cancel = create(RequestSchema, { body: { case: "cancel", value: id } });
      this.send({ request: cancel, answer: () => {}, lost: () => {} });
    }
    return true;
  }

  end(why: string): void {
    if (this.ended) return;
    this.ended = true;
    clearInterval(this.watchdog);
    this.stream.cancel();
    this.client.close();
    this.done(why);
    for (const c of this.open.values()) c.lost(new LinkError(true, why));
    for (const c of this.queue) c.lost(new LinkError(false, why));
  }
}

/** Maintains a link to any member, and retries requests if that is safe. */
export class Mux {
  private current: Sender | undefined;
  private closed = false;
  private running = false;
  private error: LeaseholdError | undefined; // error of the last attempt to connect
  private waiters: (() => void)[] = [];
  private numbers: Promise<Numbers> | undefined;
  private readonly followers = new Map<Follower, { link: Sender; call: Call } | undefined>();
  private readonly stop = new AbortController();

  constructor(
    private readonly connector: Connector,
    readonly clock: Clock,
    private readonly fixed?: Sender, // for tests: used instead of links
  ) {}

  close(): void {
    this.closed = true;
    for (const f of [...this.followers.keys()]) {
      this.unfollow(f);
      f.end(new LeaseholdError("CLOSED", "the client was closed"));
    }
    this.stop.abort();
    (this.current as Link | undefined)?.end("the client was closed");
    this.wake();
  }

  private wake(): void {
    const list = this.waiters;
    this.waiters = [];
    for (const f of list) f();
  }

  private async run(): Promise<void> {
    const list = [...this.connector.target.endpoints].sort(() => Math.random() - 0.5);
    for (let n = 0, failures = 0; !this.closed; n++) {
      const at = list[n % list.length];
      if (!at) return;
      try {
        const why = await this.connect(at, () => (failures = 0));
        this.error = why ? new LeaseholdError("UNAVAILABLE", `${at.address}: ${why}`) : undefined;
      } catch (e) {
        this.error = this.connector.explain(e);
      }
      this.current = undefined;
      this.wake();
      if (!this.closed) await pause(backOff(failures++), this.stop.signal);
    }
  }

  /** Maintains a link until it ends, and returns the reason. */
  private async connect(at: { address: string; secure: boolean }, up: () => void): Promise<string> {
    const { memberTimeout, dialTimeout } = this.connector.target;
    const client = this.connector.dial(at);
    let timer: NodeJS.Timeout | undefined;
    let stream: Stream | undefined;
    let stopped = (): void => {};
    try {
      const late = new Promise<never>((_, reject) => {
        const e = new LeaseholdError("UNAVAILABLE", `no response within ${dialTimeout} ms`);
        timer = setTimeout(() => reject(e), dialTimeout);
      });
      const opened = (stream = await Promise.race([this.connector.open(client), late]));
      const ended = new Promise<string>((resolve, reject) => {
        let link: Link | undefined;
        opened.on("data", (m: ServerMessage) => {
          if (!link) {
            link = new Link(opened, client, memberTimeout, resolve);
            this.current = link;
            up();
            this.begun();
          }
          clearTimeout(timer);
          link.take(m);
        });
        opened.on("error", (e) => {
          const why = this.connector.explain(e);
          if (link) link.end(why.message);
          else reject(why);
        });
        opened.on("end", () => {
          if (link) link.end("the member ended the stream");
        });
        stopped = () => resolve("");
        this.stop.signal.addEventListener("abort", stopped, { once: true });
      });
      late.catch(() => {}); // irrelevant once there is a link
      const first = new Promise<void>((resolve) => opened.once("data", () => resolve()));
      await Promise.race([first, late, ended]);
      return await ended;
    } finally {
      clearTimeout(timer);
      this.stop.signal.removeEventListener("abort", stopped);
      stream?.on("error", () => {});
      stream?.cancel();
      client.close();
    }
  }

  private begun(): void {
    this.error = undefined;
    this.wake();
    for (const [f, at] of this.followers) {
      if (!at) this.ask(f);
    }
  }

  /** Returns the link, waiting until there is one. */
  async link(signal: AbortSignal): Promise<Sender> {
    for (;;) {
      if (this.closed) throw new LeaseholdError("CLOSED", "the client was closed");
      if (this.fixed) return this.fixed;
      this.begin();
      if (this.current) return this.current;
      if (this.error?.code === "NOT_LOGGED_IN") {
        const e = this.error;
        this.error = undefined; // the next call waits for the next attempt
        throw e;
      }
      await new Promise<void>((resolve) => {
        const done = (): void => {
          signal.removeEventListener("abort", done);
          resolve();
        };
        this.waiters.push(done);
        signal.addEventListener("abort", done, { once: true });
      });
      signal.throwIfAborted();
    }
  }

  private begin(): void {
    if (this.running || this.fixed) return;
    this.running = true;
    void this.run();
  }

  /**
   * Sends a request until it is answered. `sent` is when the answered attempt began. If there is a
   * follower, it receives the later responses.
   */
  async request(
    body: Body,
    kind: Kind,
    limit: { timeout: number; signal?: AbortSignal | undefined },
    follower?: Follower,
  ): Promise<{ response: Response; sent: Moment }> {
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), limit.timeout);
    const abort = (): void => over.abort();
    limit.signal?.addEventListener("abort", abort, { once: true });
    if (limit.signal?.aborted) over.abort();
    const attempt = new Attempt(this, body, kind, over.signal, follower);
    try {
      return await attempt.run();
    } catch (e) {
      if (!over.signal.aborted || (e instanceof LeaseholdError && e.code !== "UNAVAILABLE")) throw e;
      const last = attempt.last ?? this.error;
      const silent = `no response within ${limit.timeout} ms`;
      const cause = limit.signal?.aborted ? "the call was aborted" : silent;
      const code = attempt.unsure ? "UNKNOWN_OUTCOME" : "UNAVAILABLE";
      throw new LeaseholdError(code, cause + (last ? `: ${last.message}` : ""));
    } finally {
      clearTimeout(timer);
      limit.signal?.removeEventListener("abort", abort);
      attempt.settle();
    }
  }

  /** Assigns the next number. It is the last number of the returned session. */
  async number(link: Sender, signal: AbortSignal): Promise<{ numbers: Numbers; n: bigint }> {
    for (;;) {
      const opening = (this.numbers ??= this.openNumbers(link));
      const numbers = await abortable(opening, signal);
      if (numbers.last - numbers.acknowledgedBelow <= maxAhead) return { numbers, n: ++numbers.last };
      if (this.numbers === opening) this.numbers = undefined; // an old write is taking very long
    }
  }

  /** Opens a session for all callers. It ends with the link, and not with the timeout of any one caller. */
  private async openNumbers(link: Sender): Promise<Numbers> {
    try {
      const nonce = randomBytes(8).readBigUInt64BE();
      const value = create(SessionRequestSchema, { nonce });
      const request = create(RequestSchema, { body: { case: "session", value } });
      const r = await this.attempt(link, request, this.stop.signal);
      if (r.body.case !== "session") throw new Error("no session was opened");
      return new Numbers(r.body.value.session);
    } catch (e) {
      this.numbers = undefined;
      // the outcome is unknown for the session, not for the request
      throw new LinkError(false, (e as Error).message);
    }
  }

  forgetNumbers(n: Numbers): void {
    this.numbers?.then(
      (now) => {
        if (now === n) this.numbers = undefined;
      },
      () => {}, // if it fails, number discards it
    );
  }

  /** Makes one attempt to send a request. */
  attempt(
    link: Sender,
    request: Request,
    signal: AbortSignal,
    numbers?: Numbers,
    follower?: Follower,
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      let answered = false;
      const call: Call = {
        request,
        numbers,
        answer: (r) => {
          if (answered) {
            if (follower) this.taken(follower, call, r);
            return;
          }
          answered = true;
          signal.removeEventListener("abort", abort);
          if (follower && r.more) this.followers.set(follower, { link, call });
          resolve(r);
        },
        lost: (e) => {
          signal.removeEventListener("abort", abort);
          if (answered && follower) this.lost(follower, call);
          else reject(e);
        },
      };
      const abort = (): void => {
        reject(new LinkError(link.forget(call), "given up"));
      };
      if (signal.aborted) {
        reject(new LinkError(false, "given up"));
        return;
      }
      signal.addEventListener("abort", abort, { once: true });
      link.send(call);
    });
  }

  /** Sends a follower's request on the current link and all later ones, until the follower ends. */
  follow(f: Follower): void {
    if (this.closed) throw new LeaseholdError("CLOSED", "the client was closed");
    this.followers.set(f, undefined);
    this.begin();
    this.ask(f);
  }

  private ask(f: Follower): void {
    const link = this.current;
    if (!link || !this.followers.has(f) || this.followers.get(f)) return;
    const call: Call = {
      request: create(RequestSchema, { body: f.body() }),
      answer: (r) => this.taken(f, call, r),
      lost: () => this.lost(f, call),
    };
    this.followers.set(f, { link, call });
    link.send(call);
  }

  unfollow(f: Follower): void {
    const at = this.followers.get(f);
    this.followers.delete(f);
    at?.link.forget(at.call);
  }

  private taken(f: Follower, call: Call, r: Response): void {
    if (this.followers.get(f)?.call !== call) return;
    if (r.body.case !== "error") {
      f.take(r);
      if (!r.more && this.followers.has(f)) this.later(f);
      return;
    }
    const e = errorOf(r.body.value);
    const passing: Code[] = ["UNAVAILABLE", "NOT_LOGGED_IN", "UNKNOWN_OUTCOME"];
    if (passing.includes(e.code)) {
      this.later(f);
      return;
    }
    this.followers.delete(f);
    f.end(e);
  }

  private lost(f: Follower, call: Call): void {
    if (this.followers.get(f)?.call === call) this.followers.set(f, undefined);
  }

  private later(f: Follower): void {
    this.followers.set(f, undefined);
    setTimeout(() => this.ask(f), 100);
  }

  unavailable(what: string): LeaseholdError {
    return new LeaseholdError("UNAVAILABLE", this.error ? `${what}: ${this.error.message}` : what);
  }
}

/** A request, and what is known about its outcome. */
class Attempt {
  unsure = false; // an earlier attempt may have taken effect
  last: Error | undefined;
  private numbers: Numbers | undefined;
  private n = 0n;

  constructor(
    private readonly mux: Mux,
    private readonly body: Body,
    private readonly kind: Kind,
    private readonly signal: AbortSignal,
    private readonly follower: Follower | undefined,
  ) {}

  async run(): Promise<{ response: Response; sent: Moment }> {
    for (let failures = 0; ; failures++) {
      const link = await this.mux.link(this.signal);
      const sent = this.mux.clock.now();
      try {
        if (this.kind === "numbered" && !this.numbers) {
          ({ numbers: this.numbers, n: this.n } = await this.mux.number(link, this.signal));
        }
        const request = create(RequestSchema, { body: this.body, number: this.n });
        const response = await this.mux.attempt(
          link, request, this.signal, this.numbers, this.follower,
        );
        if (response.body.case !== "error") return { response, sent };
        const e = errorOf(response.body.value);
        this.last = e;
        if (!this.again(e)) {
          throw this.unsure && e.code !== "UNKNOWN_OUTCOME"
            ? new LeaseholdError("UNKNOWN_OUTCOME", e.message)
            : e;
        }
      } catch (e) {
        if (!(e instanceof LinkError)) throw e;
        this.unsure ||= e.sent && this.kind !== "read";
        this.signal.throwIfAborted();
        this.last = e;
      }
      await pause(backOff(failures), this.signal);
      this.signal.throwIfAborted();
    }
  }

  /** Reports whether to retry after an error, and records what the error implies. */
  private again(e: LeaseholdError): boolean {
    switch (e.code) {
      case "UNAVAILABLE":
      case "NOT_LOGGED_IN":
        return true; // nothing has changed
      case "UNKNOWN_OUTCOME":
        this.unsure ||= this.kind !== "read";
        return true;
      case "SESSION_NOT_FOUND":
        if (this.numbers) this.mux.forgetNumbers(this.numbers);
        this.numbers = undefined;
        this.n = 0n;
        return !this.unsure;
      case "INVALID":
      case "NO_SPACE":
      case "LIMIT_REACHED":
      case "PERMISSION_DENIED":
        return false; // the error may apply only to the last attempt
      default:
        this.unsure = false; // the error applies to all attempts
        return false;
    }
  }

  settle(): void {
    this.numbers?.settle(this.n);
  }
}

/** Returns how long to wait after the given number of consecutive failures, in milliseconds. */
export function backOff(failures: number, first = 5, most = 500): number {
  return Math.min(first * 2 ** Math.min(failures, 10), most) * (0.5 + Math.random() / 2);
}

export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await sleep(ms, undefined, signal ? { signal } : {}).catch(() => {});
}

/** Waits for work, but rejects when the signal is aborted. The work continues in that case. */
export async function abortable<T>(work: Promise<T>, signal?: AbortSignal): Promise<T> {
  work.catch(() => {}); // it may fail later, when nothing is waiting for it
  if (!signal) return work;
  signal.throwIfAborted();
  let abort = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason as Error);
    signal.addEventListener("abort", abort);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
