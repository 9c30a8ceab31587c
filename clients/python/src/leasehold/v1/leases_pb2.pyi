from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_INVALID: _ClassVar[Reason]
    REASON_LEASE_NOT_FOUND: _ClassVar[Reason]
    REASON_NAME_TAKEN: _ClassVar[Reason]
    REASON_ID_TAKEN: _ClassVar[Reason]
    REASON_KEY_NOT_FOUND: _ClassVar[Reason]
    REASON_TOO_MANY_KEYS: _ClassVar[Reason]
    REASON_COMPACTED: _ClassVar[Reason]
    REASON_FUTURE_REVISION: _ClassVar[Reason]
    REASON_NO_SPACE: _ClassVar[Reason]
    REASON_UNAVAILABLE: _ClassVar[Reason]
    REASON_UNKNOWN_OUTCOME: _ClassVar[Reason]
    REASON_SESSION_NOT_FOUND: _ClassVar[Reason]
    REASON_TOO_MANY_HOLDS: _ClassVar[Reason]
    REASON_PERMISSION_DENIED: _ClassVar[Reason]
    REASON_UNAUTHENTICATED: _ClassVar[Reason]
    REASON_LIMIT_REACHED: _ClassVar[Reason]

class AtExpiry(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AT_EXPIRY_UNSPECIFIED: _ClassVar[AtExpiry]
    AT_EXPIRY_DELETE: _ClassVar[AtExpiry]
    AT_EXPIRY_KEEP: _ClassVar[AtExpiry]
REASON_UNSPECIFIED: Reason
REASON_INVALID: Reason
REASON_LEASE_NOT_FOUND: Reason
REASON_NAME_TAKEN: Reason
REASON_ID_TAKEN: Reason
REASON_KEY_NOT_FOUND: Reason
REASON_TOO_MANY_KEYS: Reason
REASON_COMPACTED: Reason
REASON_FUTURE_REVISION: Reason
REASON_NO_SPACE: Reason
REASON_UNAVAILABLE: Reason
REASON_UNKNOWN_OUTCOME: Reason
REASON_SESSION_NOT_FOUND: Reason
REASON_TOO_MANY_HOLDS: Reason
REASON_PERMISSION_DENIED: Reason
REASON_UNAUTHENTICATED: Reason
REASON_LIMIT_REACHED: Reason
AT_EXPIRY_UNSPECIFIED: AtExpiry
AT_EXPIRY_DELETE: AtExpiry
AT_EXPIRY_KEEP: AtExpiry

class Header(_message.Message):
    __slots__ = ("cluster_id", "member_id", "revision", "term")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    member_id: int
    revision: int
    term: int
    def __init__(self, cluster_id: _Optional[int] = ..., member_id: _Optional[int] = ..., revision: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("reason", "message", "holder", "metadata", "retry_after_ms")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    message: str
    holder: Lease
    metadata: _containers.ScalarMap[str, str]
    retry_after_ms: int
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., message: _Optional[str] = ..., holder: _Optional[_Union[Lease, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "token", "ttl_ms", "remaining_ms", "name", "owner", "labels", "lock_delay_ms", "at_expiry", "delayed", "keys", "key_count", "holds", "bound", "principal")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LOCK_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    AT_EXPIRY_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    token: int
    ttl_ms: int
    remaining_ms: int
    name: str
    owner: str
    labels: _containers.ScalarMap[str, str]
    lock_delay_ms: int
    at_expiry: AtExpiry
    delayed: bool
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    key_count: int
    holds: _containers.RepeatedCompositeFieldContainer[KeyRange]
    bound: bool
    principal: str
    def __init__(self, id: _Optional[int] = ..., token: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., lock_delay_ms: _Optional[int] = ..., at_expiry: _Optional[_Union[AtExpiry, str]] = ..., delayed: bool = ..., keys: _Optional[_Iterable[bytes]] = ..., key_count: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., bound: bool = ..., principal: _Optional[str] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("key", "range_end")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("id", "token", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    token: int
    name: str
    def __init__(self, id: _Optional[int] = ..., token: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class GrantRequest(_message.Message):
    __slots__ = ("id", "ttl_ms", "name", "owner", "labels", "request_id", "lock_delay_ms", "at_expiry", "keys", "resumable", "holds", "principal")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    AT_EXPIRY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl_ms: int
    name: str
    owner: str
    labels: _containers.ScalarMap[str, str]
    request_id: str
    lock_delay_ms: int
    at_expiry: AtExpiry
    keys: _containers.RepeatedCompositeFieldContainer[Pair]
    resumable: bool
    holds: _containers.RepeatedCompositeFieldContainer[KeyRange]
    principal: str
    def __init__(self, id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., request_id: _Optional[str] = ..., lock_delay_ms: _Optional[int] = ..., at_expiry: _Optional[_Union[AtExpiry, str]] = ..., keys: _Optional[_Iterable[_Union[Pair, _Mapping]]] = ..., resumable: bool = ..., holds: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., principal: _Optional[str] = ...) -> None: ...

class Pair(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class GrantResponse(_message.Message):
    __slots__ = ("header", "lease", "secret", "existed")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    header: Header
    lease: Lease
    secret: bytes
    existed: bool
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., secret: _Optional[bytes] = ..., existed: bool = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("leases", "ids", "tokens", "join", "groups", "leave")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    ids: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    join: bool
    groups: _containers.RepeatedScalarFieldContainer[int]
    leave: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., ids: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., join: bool = ..., groups: _Optional[_Iterable[int]] = ..., leave: _Optional[_Iterable[int]] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("header", "results", "ttl_ms", "joined", "groups")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    results: _containers.RepeatedCompositeFieldContainer[RenewResult]
    ttl_ms: _containers.RepeatedScalarFieldContainer[int]
    joined: _containers.RepeatedScalarFieldContainer[int]
    groups: _containers.RepeatedCompositeFieldContainer[RenewedGroup]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., results: _Optional[_Iterable[_Union[RenewResult, _Mapping]]] = ..., ttl_ms: _Optional[_Iterable[int]] = ..., joined: _Optional[_Iterable[int]] = ..., groups: _Optional[_Iterable[_Union[RenewedGroup, _Mapping]]] = ...) -> None: ...

class RenewedGroup(_message.Message):
    __slots__ = ("id", "ttl_ms", "left")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl_ms: int
    left: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., left: _Optional[_Iterable[int]] = ...) -> None: ...

class RenewResult(_message.Message):
    __slots__ = ("id", "reason", "ttl_ms", "cause", "by")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    id: int
    reason: Reason
    ttl_ms: int
    cause: LeaseEvent.Kind
    by: str
    def __init__(self, id: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., ttl_ms: _Optional[int] = ..., cause: _Optional[_Union[LeaseEvent.Kind, str]] = ..., by: _Optional[str] = ...) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ...) -> None: ...

class RevokeResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    results: _containers.RepeatedCompositeFieldContainer[RevokeResult]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., results: _Optional[_Iterable[_Union[RevokeResult, _Mapping]]] = ...) -> None: ...

class RevokeResult(_message.Message):
    __slots__ = ("id", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: int
    reason: Reason
    def __init__(self, id: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("id", "name", "keys")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    keys: bool
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., keys: bool = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("header", "lease")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    lease: Lease
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("name_prefix", "owner", "labels", "page_size", "page_token", "keys", "ids")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    name_prefix: str
    owner: str
    labels: _containers.ScalarMap[str, str]
    page_size: int
    page_token: str
    keys: bool
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name_prefix: _Optional[str] = ..., owner: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., keys: bool = ..., ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("header", "leases", "next_page_token")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    header: Header
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    next_page_token: str
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ChangeTTLRequest(_message.Message):
    __slots__ = ("lease", "ttl_ms")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    ttl_ms: int
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ChangeTTLResponse(_message.Message):
    __slots__ = ("header", "lease")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    lease: Lease
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class HandOverRequest(_message.Message):
    __slots__ = ("lease", "owner", "resumable", "principal")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    owner: str
    resumable: bool
    principal: str
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., owner: _Optional[str] = ..., resumable: bool = ..., principal: _Optional[str] = ...) -> None: ...

class HandOverResponse(_message.Message):
    __slots__ = ("header", "lease", "secret")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    header: Header
    lease: Lease
    secret: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., secret: _Optional[bytes] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("id", "name", "secret")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    secret: bytes
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., secret: _Optional[bytes] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("header", "lease")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    lease: Lease
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("lease", "keys")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: Header
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...

class DetachRequest(_message.Message):
    __slots__ = ("keys", "lease")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    lease: LeaseRef
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., lease: _Optional[_Union[LeaseRef, _Mapping]] = ...) -> None: ...

class DetachResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: Header
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...

class CheckTokenRequest(_message.Message):
    __slots__ = ("id", "name", "token")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    token: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class CheckTokenResponse(_message.Message):
    __slots__ = ("header", "valid", "current")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    header: Header
    valid: bool
    current: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., valid: bool = ..., current: _Optional[int] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("after", "name_prefix", "owner", "labels", "expiring_within_ms", "resume")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    after: int
    name_prefix: str
    owner: str
    labels: _containers.ScalarMap[str, str]
    expiring_within_ms: int
    resume: bool
    def __init__(self, after: _Optional[int] = ..., name_prefix: _Optional[str] = ..., owner: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., expiring_within_ms: _Optional[int] = ..., resume: bool = ...) -> None: ...

class EventsResponse(_message.Message):
    __slots__ = ("header", "events", "seq")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    header: Header
    events: _containers.RepeatedCompositeFieldContainer[LeaseEvent]
    seq: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., events: _Optional[_Iterable[_Union[LeaseEvent, _Mapping]]] = ..., seq: _Optional[int] = ...) -> None: ...

class LeaseEvent(_message.Message):
    __slots__ = ("seq", "kind", "lease", "by", "revision", "waited_ms")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[LeaseEvent.Kind]
        KIND_GRANTED: _ClassVar[LeaseEvent.Kind]
        KIND_EXPIRED: _ClassVar[LeaseEvent.Kind]
        KIND_REVOKED: _ClassVar[LeaseEvent.Kind]
        KIND_HANDED_OVER: _ClassVar[LeaseEvent.Kind]
        KIND_RESUMED: _ClassVar[LeaseEvent.Kind]
        KIND_TTL_CHANGED: _ClassVar[LeaseEvent.Kind]
        KIND_RELEASED: _ClassVar[LeaseEvent.Kind]
        KIND_EXPIRING: _ClassVar[LeaseEvent.Kind]
        KIND_RENEWED: _ClassVar[LeaseEvent.Kind]
        KIND_CACHE_SLOW: _ClassVar[LeaseEvent.Kind]
        KIND_CACHE_SLOW_ENDED: _ClassVar[LeaseEvent.Kind]
    KIND_UNSPECIFIED: LeaseEvent.Kind
    KIND_GRANTED: LeaseEvent.Kind
    KIND_EXPIRED: LeaseEvent.Kind
    KIND_REVOKED: LeaseEvent.Kind
    KIND_HANDED_OVER: LeaseEvent.Kind
    KIND_RESUMED: LeaseEvent.Kind
    KIND_TTL_CHANGED: LeaseEvent.Kind
    KIND_RELEASED: LeaseEvent.Kind
    KIND_EXPIRING: LeaseEvent.Kind
    KIND_RENEWED: LeaseEvent.Kind
    KIND_CACHE_SLOW: LeaseEvent.Kind
    KIND_CACHE_SLOW_ENDED: LeaseEvent.Kind
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WAITED_MS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    kind: LeaseEvent.Kind
    lease: Lease
    by: str
    revision: int
    waited_ms: int
    def __init__(self, seq: _Optional[int] = ..., kind: _Optional[_Union[LeaseEvent.Kind, str]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., by: _Optional[str] = ..., revision: _Optional[int] = ..., waited_ms: _Optional[int] = ...) -> None: ...
