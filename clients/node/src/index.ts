/**
 * Client for Leasehold: leases, locks, elections, group membership and keys. All times are in milliseconds.
 */
export { Client, Watch } from "./client.js";
export type { ClientOptions, CallOptions, SessionOptions } from "./client.js";
export type { TLS } from "./connection.js";
export { LeaseholdError } from "./errors.js";
export type { Code, Lease } from "./errors.js";
export { Held, Hold, Lead, Membership, Mutex, Session } from "./session.js";
export type { Leader, Member } from "./session.js";
export { compare, op } from "./store.js";
export type {
  Bytes,
  Compare,
  DeleteResult,
  Event,
  Grant,
  KeyValue,
  KeyRange,
  Op,
  OpResult,
  PutOptions,
  PutResult,
  RangeOptions,
  RangeResult,
  Relation,
  Txn,
  TxnResult,
  Update,
} from "./store.js";
export { Clock } from "./validity.js";
