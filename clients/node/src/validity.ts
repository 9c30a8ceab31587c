import { LeaseholdError } from "./errors.js";

/** A reading of both clocks, in nanoseconds. */
export interface Moment {
  monotonic: bigint;
  wall: bigint;
}

/**
 * Reads the clocks. The monotonic clock stops while the machine is suspended, and the wall clock can be
 * set. So what has passed is what the faster of the two says: too much ends validity early, which is safe.
 */
export class Clock {
  /** offset, of 8 bytes, is added to the wall clock: for tests. It is shared with the worker. */
  constructor(readonly offset = new SharedArrayBuffer(8)) {}

  now(): Moment {
    const jump = Atomics.load(new BigInt64Array(this.offset), 0);
    return {
      monotonic: process.hrtime.bigint(),
      wall: BigInt(Date.now()) * 1_000_000n + jump,
    };
  }

  passed(since: Moment): bigint {
    const now = this.now();
    const monotonic = now.monotonic - since.monotonic;
    const wall = now.wall - since.wall;
    return monotonic > wall ? monotonic : wall;
  }
}

/** For how long a grant or renewal is valid from when it was sent, in nanoseconds. */
export function validFor(ttl: number, drift: number, margin: number): bigint {
  return BigInt(Math.floor((ttl - ttl * drift - margin) * 1e6));
}

/** Why a lease is over. The numbers are in shared memory. */
export enum State {
  Valid,
  Expired,
  Lost,
  Released,
  Closed,
}

const lock = 0; // odd while the window is written
const state = 1;
const size = 2; // of the text
const monotonic = 3;
const wall = 4;
const left = 5;
const words = 6;
const text = 256;

/**
 * Until when a lease is valid, in memory that the program's thread and the worker share: the worker writes
 * it when a renewal was acknowledged, and the program reads it whenever it asks, without a message between
 * them. A lease is valid until it was sent + TTL, less the drift between clocks and a margin, where sent is
 * the moment just before the last acknowledged grant or renewal was sent. Then it is over for ever.
 */
export class Validity {
  private readonly words: BigInt64Array;
  private readonly text: Uint8Array;

  constructor(
    private readonly clock: Clock,
    readonly memory = new SharedArrayBuffer(words * 8 + text),
  ) {
    this.words = new BigInt64Array(memory, 0, words);
    this.text = new Uint8Array(memory, words * 8, text);
  }

  /** Notes for how long the lease is valid from a moment on. Only one thread at a time may call it. */
  set(sent: Moment, nanoseconds: bigint): void {
    if (this.left() <= 0n && this.words[left] !== 0n) return; // it never comes back
    const before = this.end();
    if (this.words[left] !== 0n && before > sent.monotonic + nanoseconds) return;
    Atomics.add(this.words, lock, 1n);
    this.words[monotonic] = sent.monotonic;
    this.words[wall] = sent.wall;
    this.words[left] = nanoseconds;
    Atomics.add(this.words, lock, 1n);
  }

  private end(): bigint {
    return (this.words[monotonic] ?? 0n) + (this.words[left] ?? 0n);
  }

  /** For how many nanoseconds it is valid, if it is not renewed; 0 if it is over. */
  left(): bigint {
    if (Atomics.load(this.words, state) !== BigInt(State.Valid)) return 0n;
    for (;;) {
      const before = Atomics.load(this.words, lock);
      const since = { monotonic: this.words[monotonic] ?? 0n, wall: this.words[wall] ?? 0n };
      const whole = this.words[left] ?? 0n;
      if (before % 2n !== 0n || Atomics.load(this.words, lock) !== before) continue;
      const rest = whole - this.clock.passed(since);
      if (rest > 0n) return rest;
      if (whole !== 0n) this.finish(State.Expired, expired);
      return 0n;
    }
  }

  /** Ends it; the first end counts. */
  finish(how: State, why: string): void {
    const bytes = Buffer.from(why).subarray(0, text);
    if (Atomics.compareExchange(this.words, state, 0n, BigInt(how)) === BigInt(State.Valid)) {
      this.text.set(bytes);
      Atomics.store(this.words, size, BigInt(bytes.length));
    }
  }

  error(): LeaseholdError | undefined {
    if (this.left() > 0n) return undefined;
    const how = Number(Atomics.load(this.words, state)) as State;
    const n = Number(Atomics.load(this.words, size));
    const why = Buffer.from(this.text.slice(0, n)).toString() || "it is over";
    const codes = {
      [State.Valid]: "EXPIRED",
      [State.Expired]: "EXPIRED",
      [State.Lost]: "LOST",
      [State.Released]: "RELEASED",
      [State.Closed]: "CLOSED",
    } as const;
    return new LeaseholdError(codes[how], why);
  }
}

const expired =
  "the lease was not renewed in time, by this machine's clock: " +
  "the cluster has not said what became of it";
