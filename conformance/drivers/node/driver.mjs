// Executes the conformance suite's requests with the Node client. See conformance/README.md.
import { createInterface } from "node:readline";

import {
  Client,
  Clock,
  LeaseholdError,
  Session,
  Watch,
  compare,
  op,
} from "../../../clients/node/dist/index.js";

const relations = { eq: "==", ne: "!=", gt: ">", lt: "<" };

const limit = (a) => (a.timeout_ms === undefined ? {} : { timeout: Number(a.timeout_ms) });
const keys = (a) => ({ key: a.key, end: a.end, prefix: a.prefix === true });
const putOptions = (a) => ({
  lease: BigInt(a.lease ?? 0),
  ttl: Number(a.ttl_ms ?? 0),
  previous: a.prev === true,
  ignoreValue: a.ignore_value === true,
  ignoreLease: a.ignore_lease === true,
});
const rangeOf = (a) => ({
  ...keys(a),
  limit: Number(a.limit ?? 0),
  revision: BigInt(a.revision ?? 0),
  serializable: a.serializable === true,
  keysOnly: a.keys_only === true,
  countOnly: a.count_only === true,
});

class Driver {
  client;
  clock = new Clock();
  things = new Map();

  thing(name) {
    const found = this.things.get(name);
    if (found === undefined) throw new Error(`there is no ${name}`);
    return found;
  }

  jump(ns) {
    Atomics.store(new BigInt64Array(this.clock.offset), 0, ns);
  }

  async reset() {
    const { client, things } = this;
    this.client = undefined;
    this.things = new Map();
    for (const x of things.values()) {
      if (x?.abort) x.abort.abort();
      if (x instanceof Session) await x.release().catch(() => {});
    }
    await client?.close();
    this.clock = new Clock();
  }

  async connect(a) {
    if (this.client) await this.reset();
    this.client = new Client({
      endpoints: a.endpoints,
      ...(a.ca ? { tls: { ca: a.ca } } : {}),
      user: a.user ?? "",
      password: a.password ?? "",
      token: a.token ?? "",
      timeout: Number(a.call_ms ?? 30000),
      clock: this.clock,
    });
  }

  clock_(a) {
    const now = Atomics.load(new BigInt64Array(this.clock.offset), 0);
    this.jump(now + BigInt(a.jump_ms) * 1000000n);
  }

  busy(a) {
    const end = performance.now() + Number(a.ms);
    while (performance.now() < end);
  }

  async put(a) {
    const r = await this.client.put(a.key, a.value ?? "", { ...putOptions(a), ...limit(a) });
    return plain(r);
  }

  async get(a) {
    return { kv: plain(await this.client.get(a.key, limit(a))) };
  }

  async range(a) {
    return plain(await this.client.range(rangeOf(a), limit(a)));
  }

  async delete(a) {
    return plain(await this.client.delete({ ...keys(a), previous: a.prev === true }, limit(a)));
  }

  async txn(a) {
    return plain(await this.client.txn(this.transaction(a), limit(a)));
  }

  transaction(a) {
    const ops = (list) => (list ?? []).map((o) => this.operation(o));
    return {
      if: (a.if ?? []).map((c) => this.condition(c)),
      then: ops(a.then),
      else: ops(a.else),
    };
  }

  condition(c) {
    const is = relations[c.is ?? "eq"];
    if (c.held) return this.thing(c.held).condition();
    if (c.lease_alive) return compare.leaseAlive(BigInt(c.lease_alive), is === "==");
    if (c.name) return compare.nameHeld(c.name, BigInt(c.token));
    if (c.missing) return compare.missing(c.missing, { prefix: c.prefix === true });
    if (c.value !== undefined) return compare.value(c.key, is, c.value);
    if (c.version !== undefined) return compare.version(c.key, is, BigInt(c.version));
    if (c.create !== undefined) return compare.createRevision(c.key, is, BigInt(c.create));
    if (c.mod !== undefined) return compare.modRevision(c.key, is, BigInt(c.mod));
    return compare.lease(c.key, is, BigInt(c.lease));
  }

  operation(o) {
    const [[kind, x]] = Object.entries(o);
    switch (kind) {
      case "put":
        return op.put(x.key, x.value ?? "", putOptions(x));
      case "delete":
        return op.delete({ ...keys(x), previous: x.prev === true });
      case "range":
        return op.range(rangeOf(x));
      case "grant":
        return op.grant({ id: BigInt(x.id), ttl: Number(x.ttl_ms), name: x.name ?? "" });
      case "renew":
        return op.renew(BigInt(x.lease), BigInt(x.token ?? 0));
      case "revoke":
        return op.revoke(BigInt(x.lease), BigInt(x.token ?? 0));
      case "draw":
        return op.drawToken();
      default:
        return op.txn(this.transaction(x));
    }
  }

  async watch(a) {
    const w = await this.client.watch(
      {
        ...keys(a),
        startRevision: BigInt(a.from ?? 0),
        previous: a.prev === true,
        noPut: a.no_put === true,
        noDelete: a.no_delete === true,
      },
      limit(a),
    );
    this.things.set(a.as, w);
  }

  unwatch(a) {
    this.thing(a.of).close();
  }

  async next(a) {
    const of = this.thing(a.of);
    if (of instanceof Watch) return plain(await of.next());
    return { leader: plain((await of.next()).value) };
  }

  async grant(a) {
    const lease = await this.client.grant(
      {
        ttl: Number(a.ttl_ms),
        id: BigInt(a.id ?? 0),
        name: a.name ?? "",
        owner: a.owner ?? "",
        labels: a.labels ?? {},
        lockDelay: Number(a.lock_delay_ms ?? 0),
        requestId: a.request_id ?? "",
      },
      limit(a),
    );
    return plain(lease);
  }

  async renew(a) {
    return { ttl_ms: await this.client.renew(BigInt(a.lease), BigInt(a.token ?? 0), limit(a)) };
  }

  async revoke(a) {
    await this.client.revoke(BigInt(a.lease), BigInt(a.token ?? 0), limit(a));
  }

  async describe(a) {
    const of = a.name ? { name: a.name } : { id: BigInt(a.lease) };
    return plain(await this.client.describe(of, { keys: true, ...limit(a) }));
  }

  async leases(a) {
    const filter = { namePrefix: a.prefix ?? "", owner: a.owner ?? "" };
    return { leases: plain(await this.client.leases(filter)) };
  }

  async check_token(a) {
    const of = a.name ? { name: a.name } : { id: BigInt(a.lease) };
    return { valid: await this.client.checkToken(BigInt(a.token), of) };
  }

  async session(a) {
    const s = await this.client.session({
      ttl: Number(a.ttl_ms),
      name: a.name ?? "",
      owner: a.owner ?? "",
      labels: a.labels ?? {},
      ...limit(a),
    });
    this.things.set(a.as, s);
    return { lease: s.id, ...held(s) };
  }

  check(a) {
    const h = this.thing(a.of);
    h.check();
    return held(h);
  }

  async wait_ended(a) {
    const e = await this.thing(a.of).ended();
    return { code: e.code, message: e.message };
  }

  async release(a) {
    await this.thing(a.of).release();
  }

  run(a) {
    const runs = { starts: [], waiting: [], abort: new AbortController() };
    this.things.set(a.as, runs);
    const stopped = new Promise((resolve) =>
      runs.abort.signal.addEventListener("abort", resolve, { once: true }),
    );
    const work = async (s) => {
      runs.starts.push(s);
      for (const f of runs.waiting.splice(0)) f();
      if (a.register) {
        const n = String(runs.starts.length);
        await s.register(a.register, a.id, n, { signal: runs.abort.signal });
      }
      await Promise.race([stopped, s.ended()]);
      if (!runs.abort.signal.aborted) throw s.signal.reason;
    };
    const o = { ttl: Number(a.ttl_ms), name: a.name ?? "", signal: runs.abort.signal };
    runs.done = this.client.run(work, o).catch(() => {});
  }

  async runs(a) {
    const r = this.thing(a.of);
    const n = Number(a.n);
    while (r.starts.length < n) await new Promise((resolve) => r.waiting.push(resolve));
    const s = r.starts[n - 1];
    return { lease: s.id, token: s.token };
  }

  async stop_run(a) {
    const r = this.thing(a.of);
    r.abort.abort();
    await r.done;
  }

  async lock(a) {
    const m = this.thing(a.session).mutex(a.name);
    const wait = a.wait_ms === undefined ? {} : { wait: Number(a.wait_ms) };
    const h = await (a.try ? m.tryLock() : m.lock(wait));
    this.things.set(a.as, h);
    return held(h);
  }

  async campaign(a) {
    const lead = await this.thing(a.session).campaign(a.name, a.value ?? "");
    this.things.set(a.as, lead);
    return held(lead);
  }

  async proclaim(a) {
    await this.thing(a.of).proclaim(a.value);
  }

  async leader(a) {
    return { leader: plain(await this.client.leader(a.name, limit(a))) };
  }

  observe(a) {
    this.things.set(a.as, this.client.observe(a.name));
  }

  async register(a) {
    const m = await this.thing(a.session).register(a.group, a.id, a.metadata ?? "", {
      wait: a.wait === true,
    });
    this.things.set(a.as, m);
    return held(m);
  }

  async update(a) {
    await this.thing(a.of).update(a.metadata);
  }

  async members(a) {
    return { members: plain(await this.client.members(a.group)) };
  }
}

function held(h) {
  const out = { token: h.token, valid_ms: h.validFor };
  return h.key && h.revision !== undefined ? { ...out, key: h.key, revision: h.revision } : out;
}

const names = {
  createRevision: "create",
  modRevision: "mod",
  previous: "prev",
  ttl: "ttl_ms",
  remaining: "remaining_ms",
};

/** Converts a result to JSON types, with the names used by the suite. */
function plain(x) {
  if (x === undefined) return null;
  if (Buffer.isBuffer(x)) return x.toString();
  if (Array.isArray(x)) return x.map(plain);
  if (x === null || typeof x !== "object") return x;
  const isLease = "ttl" in x && "id" in x;
  return Object.fromEntries(
    Object.entries(x).map(([k, v]) => [isLease && k === "id" ? "lease" : (names[k] ?? k), plain(v)]),
  );
}

const driver = new Driver();

function write(answer) {
  const text = JSON.stringify(answer, (_, v) => (typeof v === "bigint" ? v.toString() : v));
  process.stdout.write(text + "\n");
}

async function answer({ id, op: name, args }) {
  try {
    const f = name === "clock" ? driver.clock_ : driver[name];
    const ok = (await f.call(driver, args ?? {})) ?? {};
    write({ id, ok: { ...ok, at: Number(process.hrtime.bigint()) / 1e6 } });
  } catch (e) {
    const code = e instanceof LeaseholdError ? e.code : "DRIVER";
    write({ id, error: { code, message: e instanceof LeaseholdError ? e.message : String(e.stack) } });
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => void answer(JSON.parse(line)));
lines.on("close", () => process.exit(0));
