import { create } from "@bufbuild/protobuf";

import type { Lease } from "./errors.js";
import { LeaseholdError, leaseOf } from "./errors.js";
import type { GrantRequest } from "./v1/leases_pb.js";
import { GrantRequestSchema, LeaseRefSchema } from "./v1/leases_pb.js";
import type * as pb from "./v1/store_pb.js";
import {
  CompareSchema,
  Compare_Relation,
  DeleteRequestSchema,
  DrawTokenRequestSchema,
  Event_Kind,
  Event_Cause,
  NameTokenSchema,
  OpSchema,
  PutRequestSchema,
  RangeRequestSchema,
  TxnRequestSchema,
} from "./v1/store_pb.js";

export type Bytes = string | Uint8Array;

export function raw(b: Bytes): Uint8Array {
  return typeof b === "string" ? Buffer.from(b) : b;
}

/** Converts to whole milliseconds, rounded up. */
export function ms(n: number): bigint {
  return BigInt(Math.ceil(n));
}

/** A single key, the keys from key up to end, or all keys with a prefix. */
export interface KeyRange {
  key: Bytes;
  end?: Bytes | undefined;
  prefix?: boolean | undefined;
}

export function endOf(k: KeyRange): Uint8Array {
  if (!k.prefix) return k.end === undefined ? new Uint8Array() : raw(k.end);
  if (k.end !== undefined) throw new LeaseholdError("INVALID", "set only one of end and prefix");
  const stem = Buffer.from(raw(k.key));
  for (let n = stem.length; n > 0; n--) {
    const last = stem[n - 1] ?? 0;
    if (last === 0xff) continue;
    const end = Buffer.from(stem.subarray(0, n));
    end[n - 1] = last + 1;
    return end;
  }
  return Buffer.from([0]);
}

export interface KeyValue {
  key: Buffer;
  value: Buffer;
  createRevision: bigint;
  modRevision: bigint;
  version: bigint;
  /** The lease to which the key is attached, or 0n. */
  lease: bigint;
}

export function kvOf(m: pb.KeyValue): KeyValue {
  return {
    key: Buffer.from(m.key),
    value: Buffer.from(m.value),
    createRevision: m.createRevision,
    modRevision: m.modRevision,
    version: m.version,
    lease: m.lease,
  };
}

export interface PutResult {
  revision: bigint;
  previous: KeyValue | undefined;
}

export interface DeleteResult {
  revision: bigint;
  deleted: number;
  previous: KeyValue[];
}

export interface RangeResult {
  revision: bigint;
  kvs: KeyValue[];
  count: number;
  more: boolean;
}

export interface TxnResult {
  revision: bigint;
  succeeded: boolean;
  /**
   * One result for each executed operation. grant and renew return the lease, revoke returns the number of
   * keys deleted with it, and drawToken returns the token.
   */
  results: OpResult[];
}

export type OpResult = PutResult | DeleteResult | RangeResult | TxnResult | Lease | bigint;

/** A change to one key. */
export interface Event {
  kind: "put" | "delete";
  kv: KeyValue;
  previous: KeyValue | undefined;
  /** Why the key was deleted: by a request, or because its lease ended. */
  cause: "" | "deleted" | "expired" | "revoked";
  /** The lease with which the key was deleted. */
  lease: bigint;
}

const causes: Partial<Record<Event_Cause, Event["cause"]>> = {
  [Event_Cause.DELETED]: "deleted",
  [Event_Cause.EXPIRED]: "expired",
  [Event_Cause.REVOKED]: "revoked",
};

export function eventOf(m: pb.Event): Event {
  if (!m.kv) throw new LeaseholdError("INVALID", "the event contains no key");
  return {
    kind: m.kind === Event_Kind.DELETE ? "delete" : "put",
    kv: kvOf(m.kv),
    previous: m.prevKv && kvOf(m.prevKv),
    cause: causes[m.cause] ?? "",
    lease: m.lease,
  };
}

/** All changes of one revision. */
export interface Update {
  revision: bigint;
  events: Event[];
}

export type Relation = "==" | "!=" | ">" | "<";

const relations: Record<Relation, Compare_Relation> = {
  "==": Compare_Relation.EQUAL,
  "!=": Compare_Relation.NOT_EQUAL,
  ">": Compare_Relation.GREATER,
  "<": Compare_Relation.LESS,
};

function comparing(target: pb.Compare["target"], relation: Relation, keys?: KeyRange): pb.Compare {
  return create(CompareSchema, {
    relation: relations[relation],
    target,
    ...(keys ? { key: raw(keys.key), rangeEnd: endOf(keys) } : {}),
  });
}

/** A condition of a transaction. */
export type Compare = pb.Compare;

export const compare = {
  value: (key: Bytes, is: Relation, value: Bytes): Compare =>
    comparing({ case: "value", value: raw(value) }, is, { key }),
  version: (key: Bytes, is: Relation, value: bigint): Compare =>
    comparing({ case: "version", value }, is, { key }),
  createRevision: (key: Bytes, is: Relation, value: bigint): Compare =>
    comparing({ case: "createRevision", value }, is, { key }),
  modRevision: (key: Bytes, is: Relation, value: bigint): Compare =>
    comparing({ case: "modRevision", value }, is, { key }),
  lease: (key: Bytes, is: Relation, value: bigint): Compare =>
    comparing({ case: "lease", value }, is, { key }),
  exists: (key: Bytes): Compare =>
    comparing({ case: "createRevision", value: 0n }, ">", { key }),
  /** The key does not exist or, with a prefix, no key with the prefix exists. */
  missing: (key: Bytes, options: { prefix?: boolean } = {}): Compare =>
    comparing({ case: "createRevision", value: 0n }, "==", { key, ...options }),
  leaseAlive: (lease: bigint, alive = true): Compare =>
    comparing({ case: "leaseAlive", value: lease }, alive ? "==" : "!="),
  /** A live lease with this token has the name. If the token is 0n: no lease has the name. */
  nameHeld: (name: string, token: bigint): Compare =>
    comparing({ case: "nameToken", value: create(NameTokenSchema, { name, token }) }, "=="),
};

export interface PutOptions {
  /** The lease to which the key is attached. */
  lease?: bigint | undefined;
  /** Gives the key its own lease: the key is deleted after the TTL unless it is put again. */
  ttl?: number | undefined;
  ignoreValue?: boolean | undefined;
  ignoreLease?: boolean | undefined;
  previous?: boolean | undefined;
}

export interface RangeOptions {
  limit?: number | undefined;
  revision?: bigint | undefined;
  serializable?: boolean | undefined;
  keysOnly?: boolean | undefined;
  countOnly?: boolean | undefined;
}

export interface Grant {
  ttl: number;
  id?: bigint | undefined;
  name?: string | undefined;
  owner?: string | undefined;
  labels?: Record<string, string> | undefined;
  lockDelay?: number | undefined;
}

export interface Txn {
  if?: Compare[] | undefined;
  then?: Op[] | undefined;
  else?: Op[] | undefined;
}

/** An operation of a transaction. */
export type Op = pb.Op;

export function putMessage(key: Bytes, value: Bytes, o: PutOptions): pb.PutRequest {
  return create(PutRequestSchema, {
    key: raw(key),
    value: raw(value),
    lease: o.lease ?? 0n,
    ttlMs: ms(o.ttl ?? 0),
    ignoreValue: o.ignoreValue ?? false,
    ignoreLease: o.ignoreLease ?? false,
    prevKv: o.previous ?? false,
  });
}

export function deleteMessage(k: KeyRange & { previous?: boolean | undefined }): pb.DeleteRequest {
  return create(DeleteRequestSchema, {
    key: raw(k.key), rangeEnd: endOf(k), prevKv: k.previous ?? false,
  });
}

export function rangeMessage(k: KeyRange & RangeOptions): pb.RangeRequest {
  return create(RangeRequestSchema, {
    key: raw(k.key),
    rangeEnd: endOf(k),
    limit: BigInt(k.limit ?? 0),
    revision: k.revision ?? 0n,
    serializable: k.serializable ?? false,
    keysOnly: k.keysOnly ?? false,
    countOnly: k.countOnly ?? false,
  });
}

export function grantMessage(g: Grant): GrantRequest {
  return create(GrantRequestSchema, {
    ttlMs: ms(g.ttl),
    id: g.id ?? 0n,
    name: g.name ?? "",
    owner: g.owner ?? "",
    labels: g.labels ?? {},
    lockDelayMs: ms(g.lockDelay ?? 0),
  });
}

export function txnMessage(t: Txn): pb.TxnRequest {
  return create(TxnRequestSchema, {
    compare: t.if ?? [], success: t.then ?? [], failure: t.else ?? [],
  });
}

function operation(op: pb.Op["op"]): Op {
  return create(OpSchema, { op });
}

export const op = {
  put: (key: Bytes, value: Bytes = "", o: PutOptions = {}): Op =>
    operation({ case: "put", value: putMessage(key, value, o) }),
  delete: (k: KeyRange & { previous?: boolean | undefined }): Op =>
    operation({ case: "deleteRange", value: deleteMessage(k) }),
  range: (k: KeyRange & RangeOptions): Op =>
    operation({ case: "readRange", value: rangeMessage(k) }),
  txn: (t: Txn): Op => operation({ case: "txn", value: txnMessage(t) }),
  /** Grants a lease. The ID is required. */
  grant: (g: Grant & { id: bigint }): Op => operation({ case: "grant", value: grantMessage(g) }),
  renew: (id: bigint, token = 0n): Op =>
    operation({ case: "renew", value: create(LeaseRefSchema, { id, token }) }),
  revoke: (id: bigint, token = 0n): Op =>
    operation({ case: "revoke", value: create(LeaseRefSchema, { id, token }) }),
  /** Draws the next fencing token. It does not belong to any lease. */
  drawToken: (): Op => operation({ case: "drawToken", value: create(DrawTokenRequestSchema) }),
};

export function putResult(m: pb.PutResponse, revision: bigint): PutResult {
  return { revision, previous: m.prevKv && kvOf(m.prevKv) };
}

export function deleteResult(m: pb.DeleteResponse, revision: bigint): DeleteResult {
  return { revision, deleted: Number(m.deleted), previous: m.prevKvs.map(kvOf) };
}

export function rangeResult(m: pb.RangeResponse, revision: bigint): RangeResult {
  return { revision, kvs: m.kvs.map(kvOf), count: Number(m.count), more: m.more };
}

export function txnResult(m: pb.TxnResponse, revision: bigint): TxnResult {
  const results = m.responses.map((r) => opResult(r, revision));
  return { revision, succeeded: m.succeeded, results };
}

function opResult({ response: r }: pb.OpResponse, revision: bigint): OpResult {
  switch (r.case) {
    case "put":
      return putResult(r.value, revision);
    case "deleteRange":
      return deleteResult(r.value, revision);
    case "readRange":
      return rangeResult(r.value, revision);
    case "txn":
      return txnResult(r.value, revision);
    case "grant":
      if (!r.value.lease) throw new LeaseholdError("INVALID", "the grant result contains no lease");
      return leaseOf(r.value.lease);
    case "renew":
      return leaseOf(r.value);
    default:
      return r.value ?? 0n;
  }
}

/**
 * Reports whether a key is in the wait queue with a prefix. It then consists of the prefix, the ID of its
 * lease and, optionally, a number.
 */
export function isTicket(prefix: string, kv: KeyValue): boolean {
  const key = kv.key.toString();
  return kv.lease !== 0n && key.startsWith(prefix) && /^[0-9a-f.]+$/.test(key.slice(prefix.length));
}

export function firstTicket(prefix: string, kvs: Iterable<KeyValue>): KeyValue | undefined {
  let first: KeyValue | undefined;
  for (const kv of kvs) {
    if (!isTicket(prefix, kv)) continue;
    const before =
      !first ||
      kv.createRevision < first.createRevision ||
      (kv.createRevision === first.createRevision && Buffer.compare(kv.key, first.key) < 0);
    if (before) first = kv;
  }
  return first;
}
