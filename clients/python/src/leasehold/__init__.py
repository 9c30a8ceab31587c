"""Client for Leasehold: leases, locks, elections, group membership and keys.

``AsyncClient`` is for asyncio, and ``Client`` is blocking. All times are in seconds.
"""

from ._client import AsyncClient as AsyncClient, AsyncWatch as AsyncWatch
from ._clock import Clock as Clock
from ._config import TLS as TLS
from ._errors import (
    ClosedError as ClosedError,
    CompactedError as CompactedError,
    ExistsError as ExistsError,
    ExpiredError as ExpiredError,
    FutureRevisionError as FutureRevisionError,
    IDTakenError as IDTakenError,
    InUseError as InUseError,
    InvalidError as InvalidError,
    KeyNotFoundError as KeyNotFoundError,
    Lease as Lease,
    LeaseholdError as LeaseholdError,
    LeaseNotFoundError as LeaseNotFoundError,
    LimitReachedError as LimitReachedError,
    LockedError as LockedError,
    LostError as LostError,
    NameTakenError as NameTakenError,
    NoSpaceError as NoSpaceError,
    NotHeldError as NotHeldError,
    NotLoggedInError as NotLoggedInError,
    PermissionDeniedError as PermissionDeniedError,
    ReleasedError as ReleasedError,
    TooManyKeysError as TooManyKeysError,
    UnavailableError as UnavailableError,
    UnknownOutcomeError as UnknownOutcomeError,
)
from ._session import (
    AsyncHeld as AsyncHeld,
    AsyncHold as AsyncHold,
    AsyncLead as AsyncLead,
    AsyncMembership as AsyncMembership,
    AsyncMutex as AsyncMutex,
    AsyncSession as AsyncSession,
    Leader as Leader,
    Member as Member,
)
from ._store import (
    Compare as Compare,
    Delete as Delete,
    DeleteResult as DeleteResult,
    DrawToken as DrawToken,
    Event as Event,
    Grant as Grant,
    KeyValue as KeyValue,
    Put as Put,
    PutResult as PutResult,
    Range as Range,
    RangeResult as RangeResult,
    Renew as Renew,
    Revoke as Revoke,
    Txn as Txn,
    TxnResult as TxnResult,
    Update as Update,
)
from ._sync import (
    Client as Client,
    Held as Held,
    Hold as Hold,
    Lead as Lead,
    Membership as Membership,
    Mutex as Mutex,
    Session as Session,
    Watch as Watch,
)

__version__ = "0.1.0"
