"""Errors, one class for each thing that a program may want to handle."""

from __future__ import annotations

from dataclasses import dataclass, field

from .v1 import leases_pb2 as pb


@dataclass(frozen=True, slots=True)
class Lease:
    """What the cluster knows of a lease."""

    id: int
    token: int
    ttl: float
    """In seconds, as all times are."""
    remaining: float
    """For how long the lease lives on; 0 in errors."""
    name: str = ""
    owner: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    delayed: bool = False
    """It has expired, and its lock delay has not passed."""
    keys: tuple[bytes, ...] = ()


def lease_of(m: pb.Lease) -> Lease:
    return Lease(
        m.id, m.token, m.ttl_ms / 1e3, m.remaining_ms / 1e3, m.name, m.owner, dict(m.labels),
        m.delayed, tuple(m.keys),
    )  # fmt: skip


class LeaseholdError(Exception):
    """The base of all errors of this package."""

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
        """The lease that has the name or the ID, with NameTakenError and IDTakenError."""
        self.metadata = metadata or {}
        """What the message says, for programs: docs/api.md lists the keys."""


class InvalidError(LeaseholdError):
    """The request contradicts itself, or is too large."""

    code = "INVALID"


class LeaseNotFoundError(LeaseholdError):
    """There is no such lease, or it has another token."""

    code = "LEASE_NOT_FOUND"


class NameTakenError(LeaseholdError):
    """A live lease has the name."""

    code = "NAME_TAKEN"


class IDTakenError(LeaseholdError):
    """A live lease has the ID."""

    code = "ID_TAKEN"


class KeyNotFoundError(LeaseholdError):
    """There is no such key."""

    code = "KEY_NOT_FOUND"


class TooManyKeysError(LeaseholdError):
    """The lease has as many keys as it may."""

    code = "TOO_MANY_KEYS"


class CompactedError(LeaseholdError):
    """The cluster no longer has the revision: read again, and watch from there."""

    code = "COMPACTED"


class FutureRevisionError(CompactedError):
    """The store has not reached the revision, as after a restore: read again."""

    code = "FUTURE_REVISION"


class NoSpaceError(LeaseholdError):
    """The quota of the store is used up."""

    code = "NO_SPACE"


class UnavailableError(LeaseholdError):
    """No member answered in time, and nothing was done."""

    code = "UNAVAILABLE"


class UnknownOutcomeError(LeaseholdError):
    """The request may have taken effect, or may still do so."""

    code = "UNKNOWN_OUTCOME"


class SessionNotFoundError(LeaseholdError):
    """The cluster has forgotten the idempotency session. Programs do not see this error."""

    code = "SESSION_NOT_FOUND"


class TooManyHoldsError(LeaseholdError):
    """The leases hold as many ranges as they may."""

    code = "TOO_MANY_HOLDS"


class PermissionDeniedError(LeaseholdError):
    """The user lacks a permission; the message says which."""

    code = "PERMISSION_DENIED"


class NotLoggedInError(LeaseholdError):
    """The cluster has users, and does not accept the login, or there is none."""

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
    """The session already holds the lock or the lead, or waits for it."""

    code = "IN_USE"


class ExistsError(LeaseholdError):
    """The group has a live member of this ID."""

    code = "EXISTS"


class NotHeldError(LeaseholdError):
    """A session, or what depends on one, is not held any more."""

    code = "NOT_HELD"


class LostError(NotHeldError):
    """The cluster ended it: the lease, or the key attached to it, no longer exists."""

    code = "LOST"


class ExpiredError(NotHeldError):
    """No renewal was acknowledged in time, by this machine's clock."""

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
    """Converts what a member answered. A reason of a later server says nothing of the outcome."""
    kind = _REASONS.get(e.reason, UnknownOutcomeError)
    holder = lease_of(e.holder) if e.HasField("holder") else None
    return kind(e.message, holder=holder, metadata=dict(e.metadata))


def reason_error(reason: int) -> LeaseholdError:
    """The error of one lease of a batch."""
    return _REASONS.get(reason, UnknownOutcomeError)()
