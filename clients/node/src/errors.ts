import type { Error as ErrorMessage, Lease as LeaseMessage } from "./v1/leases_pb.js";
import { Reason } from "./v1/leases_pb.js";

/** The cluster's description of a lease. All times are in milliseconds. */
export interface Lease {
  id: bigint;
  token: bigint;
  ttl: number;
  /** The remaining time of the lease; 0 in errors. */
  remaining: number;
  name: string;
  owner: string;
  labels: Record<string, string>;
  /** The lease has expired, but its lock delay has not passed yet. */
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
 * The kind of error. UNAVAILABLE: nothing has changed. UNKNOWN_OUTCOME: the request may have taken effect,
 * or may still do so. LOST: the cluster ended what was held. EXPIRED: the lease was not renewed in time,
 * according to this machine's clock.
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
  /** The lease that already has the name or the ID, for NAME_TAKEN and ID_TAKEN. */
  holder?: Lease;
  /** The details in the message, for programs. docs/api.md lists the keys. */
  metadata: Record<string, string> = {};

  constructor(
    readonly code: Code,
    message: string,
  ) {
    super(message);
    this.name = "LeaseholdError";
  }
}

/** Reports whether an error means that something held has ended. */
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

/** Returns the code for a reason. If a newer server sends an unknown reason, the outcome is unknown. */
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
