// The page's knowledge of leases: one stream of events, the log of these events, and the leases
// themselves. The page keeps no timer for a lease. It keeps the cluster's last answer about it, and
// when the page asked for that.

import { call, stream } from "./api.js";
import { hexID } from "./text.js";

// A lease that is not renewed is reported when it has at most this much time left.
const expiringWithin = 5000;

// The log keeps this many events, and drops older ones.
const maxLog = 20_000;

const pageSize = 1000;

// The rates of the browser's and the member's clocks may differ by this much.
const maxDrift = 0.01;

// now is the page's clock. Changes of the machine's time of day do not affect it.
export const now = () => performance.now();

class Live {
  leases = new Map(); // by ID: a lease as the API tells it, with asked, heard and latest
  slow = new Map(); // caches for which a write waits, by lease: {lease, waited, at}
  log = [];
  seq = "0"; // of the last event
  state = "begins"; // "begins", "lists", "live", "lost" or "denied"
  since = now(); // when that began
  failure = null; // why it is lost, or denied
  listed = 0;
  missed = false; // some events were forgotten before the page could read them
  touched = new Set(); // IDs of leases that changed since a view of all of them looked
  logged = 0; // rises with every event

  #listeners = new Set();
  #gone = new Map(); // IDs and tokens of leases that ended while the page lists
  #waiting = false;
  #told = 0; // when the listeners were told
  #abort = null;

  // upTo is the time up to which the page's times left are reliable: now, or when the member was
  // lost.
  upTo() {
    return this.state === "lost" ? Math.min(this.since, now()) : now();
  }

  // subscribe calls f after changes, ten times a second at most.
  subscribe(f) {
    this.#listeners.add(f);
    return () => this.#listeners.delete(f);
  }

  // tell reports a change to the subscribers.
  tell() {
    if (this.#waiting) return;
    this.#waiting = true;
    const go = () => {
      this.#waiting = false;
      this.#told = now();
      for (const f of this.#listeners) f();
    };
    // A hidden page gets no animation frames, and need not be up to date.
    if (document.hidden) setTimeout(go, 1000);
    else setTimeout(() => requestAnimationFrame(go), this.#told + 100 - now());
  }

  // start restarts everything, for example after a login.
  start() {
    this.stop();
    for (const id of this.leases.keys()) this.#drop(id);
    this.log = [];
    this.seq = "0";
    this.missed = false;
    this.#abort = new AbortController();
    this.#run(this.#abort.signal);
  }

  // stop ends all calls in flight.
  stop() {
    this.#abort?.abort();
  }

  #set(state, failure = null) {
    if (state !== this.state) this.since = now();
    this.state = state;
    this.failure = failure;
    this.tell();
  }

  // run follows the events. After an interruption it continues after the last one; if the member no
  // longer has it, run starts from the present and lists all leases again.
  async #run(signal) {
    let fresh = true;
    for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 8000)) {
      try {
        if (fresh) this.#set("begins");
        const ask = { expiring_within_ms: expiringWithin };
        if (!fresh) Object.assign(ask, { after: this.seq, resume: true });
        let first = true;
        for await (const m of stream("v1/leases/events", ask, signal)) {
          if (first) this.slow.clear(); // the stream tells of those that are slow now
          first = false;
          if (fresh) {
            // The events are followed before the leases are listed, so nothing is missed.
            fresh = false;
            this.seq = m.seq || "0";
            this.#set("lists");
            this.#listAll(signal);
            this.#history(this.seq, signal);
          } else if (this.state === "lost") {
            this.#set("live");
          }
          pause = 500;
          for (const e of m.events || []) this.#take(e);
          this.seq = m.seq || this.seq;
        }
      } catch (err) {
        if (signal.aborted) return;
        if (err.anonymous || err.denied) {
          this.#set("denied", err);
          return;
        }
        if (err.reason === "REASON_COMPACTED") {
          fresh = true;
          this.missed = true;
        }
        this.#set("lost", err);
      }
      if (signal.aborted) return;
      if (this.state !== "lost") this.#set("lost"); // the member ended the stream
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  // list requests some leases, records the response, and returns the leases and the token of the
  // next page.
  async list(query, signal) {
    const asked = now();
    const r = await call("v1/leases/list", query, signal);
    const leases = r.leases || [];
    for (const l of leases) if (this.#gone?.get(l.id) !== l.token) this.learn(l, asked);
    return { leases, next: r.next_page_token || "" };
  }

  // listAll reads all leases, page by page.
  async #listAll(signal) {
    this.#gone = new Map();
    this.listed = 0;
    const seen = new Set();
    let token = "";
    while (!signal.aborted) {
      const asked = now();
      try {
        const { leases, next } = await this.list({ page_size: pageSize, page_token: token }, signal);
        for (const l of leases) seen.add(l.id);
        this.listed += leases.length;
        this.tell();
        token = next;
        if (token) continue;
      } catch (err) {
        if (signal.aborted || err.anonymous || err.denied) return;
        await new Promise((done) => setTimeout(done, 1000));
        continue;
      }
      for (const [id, l] of this.leases) if (!seen.has(id) && l.heard < asked) this.#drop(id);
      this.#gone = null;
      if (this.state === "lists") this.#set("live");
      return;
    }
  }

  // history reads the events from before the page was opened, as far as the member still has them.
  async #history(until, signal) {
    const old = [];
    const end = BigInt(until);
    if (end === 0n) return;
    for (const after of [0n, end > 1000n ? end - 1000n : 0n]) {
      try {
        const ask = { after: after.toString(), resume: true };
        for await (const m of stream("v1/leases/events", ask, signal)) {
          for (const e of m.events || []) {
            if (BigInt(e.seq || 0) <= end) old.push({ ...e, at: 0 });
          }
          if (BigInt(m.seq || 0) >= end) break;
        }
        break;
      } catch {
        if (signal.aborted) return;
        old.length = 0; // forgotten: a shorter history may not be
      }
    }
    this.log = old.concat(this.log).slice(-maxLog);
    this.logged++;
    this.tell();
  }

  // learn records a lease from a response that has just arrived, and when it was requested. A
  // response older than what is known changes nothing.
  learn(l, asked) {
    const known = this.leases.get(l.id);
    if (known) {
      if (BigInt(known.token || 0) > BigInt(l.token || 0)) return;
      if (known.asked > asked) return;
    }
    const fresh = !known || known.token !== l.token;
    // The remaining time is as of some moment between the request and the response. If a lease ends
    // later than any earlier response allowed, it was renewed, and had its full TTL then. Events do
    // not report such an end.
    const ends = asked + left(l);
    const answered = !fresh && known.asked >= 0;
    const latest = answered ? known.latest + (asked - known.asked) * maxDrift : Infinity;
    const renewed = ends > latest + 200;
    const heard = now();
    this.leases.set(l.id, {
      ...l, asked, hex: known?.hex || hexID(l.id), heard,
      latest: renewed ? heard + left(l) : Math.min(latest, heard + left(l)),
      renewals: renewed ? [...(known.renewals || []), ends - l.ttl_ms].slice(-200) : known?.renewals,
      hinted: fresh ? false : known.hinted && left(l) < expiringWithin,
    });
    if (renewed || !answered) this.touched.add(l.id);
  }

  // ask requests the remaining time of some leases, by ID, in one call. A lease that is not in the
  // response has ended.
  async ask(ids, signal) {
    const some = new Map([...new Set(ids)].slice(0, pageSize).map((id) => [id, this.leases.get(id)?.token]));
    if (some.size === 0 || this.state === "denied") return;
    const { leases, next } = await this.list({ ids: [...some.keys()] }, signal);
    for (const l of leases) some.delete(l.id);
    if (!next) for (const [id, token] of some) this.ended(id, token);
    this.tell();
  }

  // ended removes a lease that is no longer in a response.
  ended(id, token) {
    if (this.leases.get(id)?.token !== token) return;
    this.#drop(id);
    this.tell();
  }

  #drop(id) {
    const l = this.leases.get(id);
    if (l && this.leases.delete(id)) {
      this.#gone?.set(id, l.token);
      this.touched.add(id);
    }
  }

  #take(e) {
    const l = e.lease || {};
    this.log.push({ ...e, at: Date.now() });
    if (this.log.length > maxLog * 1.1) this.log = this.log.slice(-maxLog);
    this.logged++;
    const known = this.leases.get(l.id);
    switch (e.kind) {
      case "KIND_EXPIRED":
      case "KIND_REVOKED":
      case "KIND_RELEASED":
        this.#gone?.set(l.id, l.token);
        if (e.kind === "KIND_EXPIRED" && Number(l.lock_delay_ms || 0) > 0) {
          this.#know({ ...known, ...l, delayed: true });
        } else {
          this.#drop(l.id);
        }
        break;
      case "KIND_EXPIRING":
      case "KIND_RENEWED":
        if (known) known.hinted = e.kind === "KIND_EXPIRING";
        break;
      case "KIND_CACHE_SLOW":
        this.slow.set(l.id, { lease: l, waited: Number(e.waited_ms || 0), at: now() });
        break;
      case "KIND_CACHE_SLOW_ENDED":
        this.slow.delete(l.id);
        break;
      case "KIND_GRANTED":
      case "KIND_HANDED_OVER":
      case "KIND_RESUMED":
      case "KIND_TTL_CHANGED":
        this.#know({ ...known, ...l, hinted: false });
        break;
    }
    this.tell();
  }

  // know records a lease from an event. Its remaining time is as of the event, which may be long
  // ago, so it must be requested.
  #know(l) {
    this.leases.set(l.id, { ...l, asked: NaN, hex: hexID(l.id), heard: now() });
    this.touched.add(l.id);
  }
}

export const live = new Live();

const left = (l) => Number(l.remaining_ms || 0);

// remaining returns how long a lease will certainly stay valid, by the cluster's last answer,
// counted from before the page asked; null if unknown. age is the age of that answer.
export function remaining(l, at = now()) {
  if (!(l.asked >= 0)) return { ms: null, age: null };
  const age = at - l.asked;
  const ms = left(l) - age;
  return { ms: ms > 0 ? ms : null, age };
}

// stateOf returns the state of a lease at the last answer: its holder renews it, or has been silent
// for more than half of the TTL, or it is about to expire, or it has expired and its lock delay
// runs. A lease that was not renewed within its certain time is in jeopardy: its end was not
// reported, but it may have ended.
export function stateOf(l, at) {
  if (l.delayed) return "delayed";
  const part = left(l) / Number(l.ttl_ms || 1);
  if ((l.hinted || part <= 0.5) && l.asked + left(l) <= at) return "in jeopardy";
  if (l.hinted) return "expiring";
  if (!(l.asked >= 0)) return "alive";
  if (part <= 0.25) return "expiring";
  return part <= 0.5 ? "silent" : "alive";
}

export const states = ["alive", "silent", "expiring", "in jeopardy", "delayed"];
