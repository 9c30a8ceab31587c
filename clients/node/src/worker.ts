/**
 * Renews leases in a worker thread, over a separate stream. A program that keeps its own thread busy does
 * not delay renewals. This is the only module that knows how leases are renewed.
 */
import { create } from "@bufbuild/protobuf";
import type * as grpc from "@grpc/grpc-js";
import { isMainThread, parentPort, workerData } from "node:worker_threads";

import type { Stream, Target } from "./connection.js";
import { Connector, message } from "./connection.js";
import type { Moment } from "./validity.js";
import { Clock, State, Validity, validFor } from "./validity.js";
import type { RenewResult } from "./v1/leases_pb.js";
import { LeaseEvent_Kind, LeaseRefSchema, Reason, RenewRequestSchema } from "./v1/leases_pb.js";
import type { Response } from "./v1/stream_pb.js";
import { RequestSchema } from "./v1/stream_pb.js";

/** The data with which the program's thread starts the worker. */
export interface Start {
  target: Target;
  clock: SharedArrayBuffer;
  drift: number;
  margin: number;
}

/** A message to the worker. The worker sends back the ID of each lease that has ended. */
export type Order =
  | { keep: bigint; token: bigint; ttl: number; sent: Moment; memory: SharedArrayBuffer }
  | { drop: bigint };

interface Held {
  id: bigint;
  token: bigint;
  ttl: number; // in milliseconds
  validity: Validity;
  renewed: Moment; // when the last acknowledged renewal was sent
}

interface Wait {
  sent: Moment;
  patience: number;
  held: Held[];
}

const ms = 1_000_000n;

export class Keeper {
  private readonly held = new Map<bigint, Held>();
  private link: Link | undefined;
  private next = 0;
  private failed: Moment | undefined; // when the last member failed
  private timer: NodeJS.Timeout | undefined;
  private apart = 0n; // difference between the readings of the two clocks

  constructor(
    private readonly start: Start,
    private readonly clock: Clock,
    private readonly open: (endpoint: number, keeper: Keeper) => Link,
    private readonly over: (id: bigint) => void,
  ) {}

  order(o: Order): void {
    if ("drop" in o) {
      this.held.delete(o.drop);
    } else {
      const validity = new Validity(this.clock, o.memory);
      this.held.set(o.keep, {
        id: o.keep, token: o.token, ttl: o.ttl, validity, renewed: o.sent,
      });
    }
    this.step();
  }

  private since(m: Moment): number {
    return Number(this.clock.passed(m) / ms);
  }

  /** Does the work that is due, and schedules the next step. */
  step(): void {
    clearTimeout(this.timer);
    this.watchClocks();
    for (const h of this.held.values()) {
      if (h.validity.error()) this.end(h);
    }
    if (this.held.size === 0) return;
    const waits = [...(this.link?.waits.values() ?? [])];
    if (waits.some((w) => this.since(w.sent) >= w.patience)) {
      this.leave(); // the member or the link hangs, so try the next member
      waits.length = 0;
    }
    const waiting = new Set(waits.flatMap((w) => w.held));
    const idle = [...this.held.values()].filter((h) => !waiting.has(h));
    const left = (h: Held): number => h.ttl / 3 - this.since(h.renewed);
    // The timer uses the monotonic clock. The wall clock is checked at least once a second.
    const ends = Math.min(1000, ...[...this.held.values()].map((h) => Number(h.validity.left() / ms) + 1));
    let wait = Math.min(
      ends,
      ...waits.map((w) => w.patience - this.since(w.sent)),
      ...idle.map(left),
    );
    const due = idle.filter((h) => left(h) <= h.ttl / 20);
    const shortest = Math.min(...[...this.held.values()].map((h) => h.ttl));
    const backOff = this.failed ? Math.min(shortest / 20, 200) - this.since(this.failed) : 0;
    // The stream is opened before the first renewal is due.
    if (!this.link && backOff <= 0) this.link = this.open(this.next++, this);
    if (!this.link) wait = Math.min(wait, backOff);
    if (idle.some((h) => left(h) <= 0)) {
      if (!this.link) {
        wait = Math.min(ends, backOff);
      } else {
        const patience = Math.min(Math.max(Math.min(...due.map((h) => h.ttl)) / 6, 100), 2000);
        this.link.renew(due, { sent: this.clock.now(), patience, held: due });
        wait = Math.min(ends, patience, ...[...this.held.values()].filter((h) => !due.includes(h)).map(left));
      }
    }
    this.timer = setTimeout(() => this.step(), Math.max(1, wait));
  }

  /** Restarts the windows of all leases if a clock was set or the machine was suspended. */
  private watchClocks(): void {
    const now = this.clock.now();
    const step = now.wall - now.monotonic - this.apart;
    this.apart += step;
    if (-10n * ms < step && step < 10n * ms) return;
    for (const h of this.held.values()) h.validity.rebase(now);
  }

  /** Handles the answer to a renewal. */
  answered(link: Link, r: Response): void {
    const w = link.waits.get(r.id);
    if (!w || link !== this.link) return;
    if (!r.more) link.waits.delete(r.id);
    let refused = r.body.case !== "renew";
    for (const result of r.body.case === "renew" ? r.body.value.results : []) {
      const h = w.held.find((x) => x.id === result.id);
      if (!h) continue;
      if (result.reason === Reason.UNSPECIFIED) {
        h.validity.set(w.sent, validFor(Number(result.ttlMs), this.start.drift, this.start.margin));
        h.renewed = w.sent;
        this.failed = undefined;
      } else if (result.reason === Reason.LEASE_NOT_FOUND) {
        h.validity.finish(State.Lost, lostText(result));
        this.end(h);
      } else {
        refused = true;
      }
    }
    if (refused) this.leave(); // this member renews nothing; another one may
    this.step();
  }

  /** Handles the end of a stream. */
  lost(link: Link): void {
    if (link !== this.link) return;
    this.leave();
    this.step();
  }

  private leave(): void {
    this.link?.close();
    this.link = undefined;
    this.failed = this.clock.now();
  }

  private end(h: Held): void {
    if (this.held.get(h.id) === h) this.held.delete(h.id);
    this.over(h.id);
  }
}

function lostText(r: RenewResult): string {
  if (r.cause === LeaseEvent_Kind.UNSPECIFIED) {
    return "the lease is gone: how it ended is unknown";
  }
  const how = LeaseEvent_Kind[r.cause].toLowerCase().replaceAll("_", " ");
  return `the lease is gone: ${how}` + (r.by ? ` by ${r.by}` : "");
}

/** A stream to one member. */
export class Link {
  readonly waits = new Map<bigint, Wait>();
  private last = 0n;
  private stream: Stream | undefined;
  private client: grpc.Client | undefined;
  private closed = false;
  private readonly queue: ReturnType<typeof message>[] = [];

  constructor(
    private readonly keeper: Keeper,
    connector: Connector,
    endpoint: number,
  ) {
    this.connect(connector, endpoint).catch((e: unknown) => {
      connector.explain(e);
      setImmediate(() => this.keeper.lost(this));
    });
  }

  private async connect(connector: Connector, endpoint: number): Promise<void> {
    const list = connector.target.endpoints;
    const at = list[endpoint % list.length];
    if (!at || this.closed) return;
    this.client = connector.dial(at);
    const stream = await connector.open(this.client);
    if (this.closed) {
      stream.on("error", () => {});
      stream.cancel();
      return;
    }
    this.stream = stream;
    stream.on("data", (m: { responses: Response[] }) => {
      for (const r of m.responses) this.keeper.answered(this, r);
    });
    stream.on("error", (e: unknown) => {
      connector.explain(e);
      this.keeper.lost(this);
    });
    stream.on("end", () => this.keeper.lost(this));
    for (const m of this.queue.splice(0)) stream.write(m);
  }

  renew(held: Held[], wait: Wait): void {
    const leases = held.map((h) => create(LeaseRefSchema, { id: h.id, token: h.token }));
    const value = create(RenewRequestSchema, { leases });
    const id = ++this.last;
    const m = message({ requests: [create(RequestSchema, { id, body: { case: "renew", value } })] });
    this.waits.set(id, wait);
    if (this.stream) this.stream.write(m);
    else this.queue.push(m);
  }

  close(): void {
    this.closed = true;
    this.stream?.cancel();
    this.client?.close();
  }
}

if (!isMainThread && parentPort && (workerData as Start | undefined)?.target) {
  const port = parentPort;
  const start = workerData as Start;
  const connector = new Connector(start.target);
  const keeper = new Keeper(
    start,
    new Clock(start.clock),
    (endpoint, k) => new Link(k, connector, endpoint),
    (id) => port.postMessage(id),
  );
  port.on("message", (o: Order) => keeper.order(o));
}
