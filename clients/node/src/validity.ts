import { LeaseholdError } from "./errors.js";

/** A reading of both clocks, in nanoseconds. */
export interface Moment {
  monotonic: bigint;
  wall: bigint;
}

/**
 * Reads the clocks. The monotonic clock stops while the machine is suspended, and the wall clock can be
 * set. So the elapsed time is the larger of the two differences. If that is too long, validity ends early,
 * which is safe.
 */
export class Clock {
  /** offset holds 8 bytes that are added to the wall clock, for tests. The worker shares it. */
  constructor(readonly offset = new SharedArrayBuffer(8)) {}

  now(): Moment {
    const jump = Atomics.load(new BigInt64Array(this.offset), 0);
    return {
      monotonic: process.hrtime.bigint(),
      wall: BigInt(Date.now()) * 1_000_000n + jump,
    };
  }

  passed(since: Moment): bigint {
    return between(since, this.now());
  }
}

function between(since: Moment, now: Moment): bigint {
  const monotonic = now.monotonic - since.monotonic;
  const wall = now.wall - since.wall;
  return monotonic > wall ? monotonic : wall;
}

function rest(w: Window, now: Moment): bigint {
  return w.left - between(w, now);
}

/** Returns how long a grant or renewal is valid after it was sent, in nanoseconds. */
export function validFor(ttl: number, drift: number, margin: number): bigint {
  return BigInt(Math.floor((ttl - ttl * drift - margin) * 1e6));
}

/** Why a lease has ended. The numbers are stored in shared memory. */
export enum State {
  Valid,
  Expired,
  Lost,
  Released,
  Closed,
}

const state = 0;
const size = 1; // length of the text
const latest = 2; // number of windows written; its parity selects the current one of the two windows
const windows = 3; // each window has a moment, and how long the lease is valid from that moment
const words = windows + 2 * 3;
const text = 256;

interface Window extends Moment {
  left: bigint;
}

/**
 * How long a lease is valid, in memory shared by the program's thread and the worker. The worker writes to
 * it when a renewal is acknowledged. The program reads it at any time, without exchanging messages.
 * Validity is measured from the moment just before the last acknowledged grant or renewal was sent. It
 * lasts for the TTL, minus clock drift and a margin. Once a lease has ended, it never becomes valid again.
 *
 * Only one thread at a time writes. It writes the window that is not current, and then makes it the current
 * one. So if a writer is stopped halfway, the other window remains intact.
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

  /** Records how long the lease is valid from a moment. Only one thread at a time may call it. */
  set(sent: Moment, nanoseconds: bigint): void {
    const begun = Atomics.load(this.words, latest) !== 0n;
    if (begun && this.left() <= 0n) return; // it never becomes valid again
    const next = { ...sent, left: nanoseconds };
    const now = this.clock.now();
    if (!begun || rest(next, now) > rest(this.window(), now)) this.write(next);
  }

  /**
   * Starts a new window at now. Time that has already passed stays counted, even if a clock is set back
   * later.
   */
  rebase(now: Moment): void {
    this.write({ ...now, left: rest(this.window(), now) });
  }

  private write(w: Window): void {
    const n = Atomics.load(this.words, latest) + 1n;
    const at = windows + Number(n % 2n) * 3;
    Atomics.store(this.words, at, w.monotonic);
    Atomics.store(this.words, at + 1, w.wall);
    Atomics.store(this.words, at + 2, w.left);
    Atomics.store(this.words, latest, n);
  }

  private window(): Window {
    for (;;) {
      const n = Atomics.load(this.words, latest);
      const at = windows + Number(n % 2n) * 3;
      const [monotonic, wall, left] = [0, 1, 2].map((i) => Atomics.load(this.words, at + i));
      if (Atomics.load(this.words, latest) === n) {
        return { monotonic: monotonic ?? 0n, wall: wall ?? 0n, left: left ?? 0n };
      }
    }
  }

  /** Returns how long the lease stays valid without a renewal, in nanoseconds; 0 if it has ended. */
  left(): bigint {
    if (Atomics.load(this.words, state) !== BigInt(State.Valid)) return 0n;
    const left = rest(this.window(), this.clock.now());
    if (left > 0n) return left;
    if (Atomics.load(this.words, latest) !== 0n) this.finish(State.Expired, expired);
    return 0n;
  }

  /** Ends the lease. Only the first reason is kept. */
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
  "the lease was not renewed in time, by this machine's clock; " +
  "whether it still exists is unknown";
