"""The errors: one class for each condition that a program may need to handle."""

from __future__ import annotations

from dataclasses import dataclass, field

from .v1 import leases_pb2 as pb


@dataclass(frozen=True, slots=True)
class Lease:
    """The cluster's description of a lease."""

    id: int
    token: int
    ttl: float
    """In seconds, like all times."""
    remaining: float
    """The remaining time of the lease; 0 in errors."""
    name: str = ""
    owner: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    delayed: bool = False
    """The lease has expired, but its lock delay has not passed yet."""
    keys: tuple[bytes, ...] = ()


def lease_of(m: pb.Lease) -> Lease:
    return Lease(
        m.id, m.token, m.ttl_ms / 1e3, m.remaining_ms / 1e3, m.name, m.owner, dict(m.labels),
        m.delayed, tuple(m.keys),
    )  # fmt: skip


class LeaseholdError(Exception):
    """The base class of all errors of this package."""

    code = "UNSPECIFIED"

    def __init__(
        self,
        message: str = "",
        *,
        holder: Lease | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message or (self.__doc__ or self.code).splitlines()[0])
        self.holder = holder
        """The lease that already has the name or the ID, for NameTakenError and IDTakenError."""
        self.metadata = metadata or {}
        """The details in the message, for programs. docs/api.md lists the keys."""


class InvalidError(LeaseholdError):
    """The request contradicts itself, or is too large."""

    code = "INVALID"


class LeaseNotFoundError(LeaseholdError):
    """The lease does not exist, or has a different token."""

    code = "LEASE_NOT_FOUND"


class NameTakenError(LeaseholdError):
    """A live lease already has the name."""

    code = "NAME_TAKEN"


class IDTakenError(LeaseholdError):
    """A live lease already has the ID."""

    code = "ID_TAKEN"


class KeyNotFoundError(LeaseholdError):
    """The key does not exist."""

    code = "KEY_NOT_FOUND"


class TooManyKeysError(LeaseholdError):
    """The lease already has the maximum number of keys."""

    code = "TOO_MANY_KEYS"


class CompactedError(LeaseholdError):
    """The cluster no longer has the revision. Read again, and watch from that revision."""

    code = "COMPACTED"


class FutureRevisionError(CompactedError):
    """The store has not reached the revision, for example after a restore. Read again."""

    code = "FUTURE_REVISION"


class NoSpaceError(LeaseholdError):
    """The store has reached its quota."""

    code = "NO_SPACE"


class UnavailableError(LeaseholdError):
    """No member answered in time, and nothing has changed."""

    code = "UNAVAILABLE"


class UnknownOutcomeError(LeaseholdError):
    """The request may have taken effect, or may still do so."""

    code = "UNKNOWN_OUTCOME"


class SessionNotFoundError(LeaseholdError):
    """The cluster has dropped the idempotency session. Programs never receive this error."""

    code = "SESSION_NOT_FOUND"


class TooManyHoldsError(LeaseholdError):
    """The leases already hold the maximum number of ranges."""

    code = "TOO_MANY_HOLDS"


class PermissionDeniedError(LeaseholdError):
    """The user lacks a permission. The message names the permission."""

    code = "PERMISSION_DENIED"


class NotLoggedInError(LeaseholdError):
    """The cluster has users, and the client's login was rejected or is missing."""

    code = "NOT_LOGGED_IN"


class LimitReachedError(LeaseholdError):
    """The user has reached one of its limits."""

    code = "LIMIT_REACHED"


class ClosedError(LeaseholdError):
    """The client, the session or the watch was closed."""

    code = "CLOSED"


class LockedError(LeaseholdError):
    """Another session holds the lock."""

    code = "LOCKED"


class InUseError(LeaseholdError):
    """The session already holds the lock or the leadership, or is waiting for it."""

    code = "IN_USE"


class ExistsError(LeaseholdError):
    """The group already has a live member with this ID."""

    code = "EXISTS"


class NotHeldError(LeaseholdError):
    """A session, or something that depends on it, is no longer held."""

    code = "NOT_HELD"


class LostError(NotHeldError):
    """The cluster ended it: the lease or the key attached to it no longer exists."""

    code = "LOST"


class ExpiredError(NotHeldError):
    """No renewal was acknowledged in time, according to this machine's clock."""

    code = "EXPIRED"


class ReleasedError(NotHeldError):
    """The program released it."""

    code = "RELEASED"


_REASONS: dict[int, type[LeaseholdError]] = {
    pb.REASON_INVALID: InvalidError,
    pb.REASON_LEASE_NOT_FOUND: LeaseNotFoundError,
    pb.REASON_NAME_TAKEN: NameTakenError,
    pb.REASON_ID_TAKEN: IDTakenError,
    pb.REASON_KEY_NOT_FOUND: KeyNotFoundError,
    pb.REASON_TOO_MANY_KEYS: TooManyKeysError,
    pb.REASON_COMPACTED: CompactedError,
    pb.REASON_FUTURE_REVISION: FutureRevisionError,
    pb.REASON_NO_SPACE: NoSpaceError,
    pb.REASON_UNAVAILABLE: UnavailableError,
    pb.REASON_UNKNOWN_OUTCOME: UnknownOutcomeError,
    pb.REASON_SESSION_NOT_FOUND: SessionNotFoundError,
    pb.REASON_TOO_MANY_HOLDS: TooManyHoldsError,
    pb.REASON_PERMISSION_DENIED: PermissionDeniedError,
    pb.REASON_UNAUTHENTICATED: NotLoggedInError,
    pb.REASON_LIMIT_REACHED: LimitReachedError,
}


def error_of(e: pb.Error) -> LeaseholdError:
    """Converts an error from a member. If a newer server sends an unknown reason, the outcome is
    unknown.
    """
    kind = _REASONS.get(e.reason, UnknownOutcomeError)
    holder = lease_of(e.holder) if e.HasField("holder") else None
    return kind(e.message, holder=holder, metadata=dict(e.metadata))


def reason_error(reason: int) -> LeaseholdError:
    """Returns the error for one lease in a batch."""
    return _REASONS.get(reason, UnknownOutcomeError)()
