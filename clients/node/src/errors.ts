import type { Error as ErrorMessage, Lease as LeaseMessage } from "./v1/leases_pb.js";
import { Reason } from "./v1/leases_pb.js";

/** What the cluster knows of a lease. All times are in milliseconds. */
export interface Lease {
  id: bigint;
  token: bigint;
  ttl: number;
  /** For how long the lease lives on; 0 in errors. */
  remaining: number;
  name: string;
  owner: string;
  labels: Record<string, string>;
  /** It has expired, and its lock delay has not passed. */
  delayed: boolean;
  keys: Buffer[];
}

export function leaseOf(m: LeaseMessage): Lease {
  return {
    id: m.id,
    token: m.token,
    ttl: Number(m.ttlMs),
    remaining: Number(m.remainingMs),
    name: m.name,
    owner: m.owner,
    labels: { ...m.labels },
    delayed: m.delayed,
    keys: m.keys.map((k) => Buffer.from(k)),
  };
}

/**
 * What went wrong. UNAVAILABLE: nothing was done. UNKNOWN_OUTCOME: it may have been done, or may still be.
 * LOST: the cluster ended what was held. EXPIRED: it was not renewed in time, by this machine's clock.
 */
export type Code =
  | "INVALID"
  | "LEASE_NOT_FOUND"
  | "NAME_TAKEN"
  | "ID_TAKEN"
  | "KEY_NOT_FOUND"
  | "TOO_MANY_KEYS"
  | "COMPACTED"
  | "FUTURE_REVISION"
  | "NO_SPACE"
  | "UNAVAILABLE"
  | "UNKNOWN_OUTCOME"
  | "SESSION_NOT_FOUND"
  | "TOO_MANY_HOLDS"
  | "PERMISSION_DENIED"
  | "NOT_LOGGED_IN"
  | "LIMIT_REACHED"
  | "CLOSED"
  | "LOCKED"
  | "IN_USE"
  | "EXISTS"
  | "LOST"
  | "EXPIRED"
  | "RELEASED";

export class LeaseholdError extends Error {
  /** The lease that has the name or the ID, with NAME_TAKEN and ID_TAKEN. */
  holder?: Lease;
  /** What the message says, for programs: docs/api.md lists the keys. */
  metadata: Record<string, string> = {};

  constructor(
    readonly code: Code,
    message: string,
  ) {
    super(message);
    this.name = "LeaseholdError";
  }
}

/** Whether an error says that something that was held has ended. */
export function isEnd(e: LeaseholdError): boolean {
  return e.code === "LOST" || e.code === "EXPIRED" || e.code === "RELEASED";
}

const reasons: Partial<Record<Reason, Code>> = {
  [Reason.INVALID]: "INVALID",
  [Reason.LEASE_NOT_FOUND]: "LEASE_NOT_FOUND",
  [Reason.NAME_TAKEN]: "NAME_TAKEN",
  [Reason.ID_TAKEN]: "ID_TAKEN",
  [Reason.KEY_NOT_FOUND]: "KEY_NOT_FOUND",
  [Reason.TOO_MANY_KEYS]: "TOO_MANY_KEYS",
  [Reason.COMPACTED]: "COMPACTED",
  [Reason.FUTURE_REVISION]: "FUTURE_REVISION",
  [Reason.NO_SPACE]: "NO_SPACE",
  [Reason.UNAVAILABLE]: "UNAVAILABLE",
  [Reason.UNKNOWN_OUTCOME]: "UNKNOWN_OUTCOME",
  [Reason.SESSION_NOT_FOUND]: "SESSION_NOT_FOUND",
  [Reason.TOO_MANY_HOLDS]: "TOO_MANY_HOLDS",
  [Reason.PERMISSION_DENIED]: "PERMISSION_DENIED",
  [Reason.UNAUTHENTICATED]: "NOT_LOGGED_IN",
  [Reason.LIMIT_REACHED]: "LIMIT_REACHED",
};

/** The code of a reason. One of a later server says nothing of the outcome. */
export function codeOf(reason: Reason): Code {
  return reasons[reason] ?? "UNKNOWN_OUTCOME";
}

export function errorOf(m: ErrorMessage): LeaseholdError {
  const code = codeOf(m.reason);
  const e = new LeaseholdError(code, m.message || code);
  if (m.holder) e.holder = leaseOf(m.holder);
  e.metadata = { ...m.metadata };
  return e;
}
