from leasehold.v1 import leases_pb2 as _leases_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeyValue(_message.Message):
    __slots__ = ("key", "value", "create_revision", "mod_revision", "version", "lease")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CREATE_REVISION_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., create_revision: _Optional[int] = ..., mod_revision: _Optional[int] = ..., version: _Optional[int] = ..., lease: _Optional[int] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("key", "value", "lease", "prev_kv", "ignore_value", "ignore_lease", "ttl_ms", "lease_ref")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PREV_KV_FIELD_NUMBER: _ClassVar[int]
    IGNORE_VALUE_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LEASE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_REF_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    lease: int
    prev_kv: bool
    ignore_value: bool
    ignore_lease: bool
    ttl_ms: int
    lease_ref: _leases_pb2.LeaseRef
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., lease: _Optional[int] = ..., prev_kv: bool = ..., ignore_value: bool = ..., ignore_lease: bool = ..., ttl_ms: _Optional[int] = ..., lease_ref: _Optional[_Union[_leases_pb2.LeaseRef, _Mapping]] = ...) -> None: ...

class PutResponse(_message.Message):
    __slots__ = ("header", "prev_kv")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PREV_KV_FIELD_NUMBER: _ClassVar[int]
    header: _leases_pb2.Header
    prev_kv: KeyValue
    def __init__(self, header: _Optional[_Union[_leases_pb2.Header, _Mapping]] = ..., prev_kv: _Optional[_Union[KeyValue, _Mapping]] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("key", "range_end", "prev_kv")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    PREV_KV_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    prev_kv: bool
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., prev_kv: bool = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("header", "deleted", "prev_kvs")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    PREV_KVS_FIELD_NUMBER: _ClassVar[int]
    header: _leases_pb2.Header
    deleted: int
    prev_kvs: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, header: _Optional[_Union[_leases_pb2.Header, _Mapping]] = ..., deleted: _Optional[int] = ..., prev_kvs: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class RangeRequest(_message.Message):
    __slots__ = ("key", "range_end", "limit", "revision", "serializable", "keys_only", "count_only", "cache")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SERIALIZABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    limit: int
    revision: int
    serializable: bool
    keys_only: bool
    count_only: bool
    cache: _leases_pb2.LeaseRef
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., limit: _Optional[int] = ..., revision: _Optional[int] = ..., serializable: bool = ..., keys_only: bool = ..., count_only: bool = ..., cache: _Optional[_Union[_leases_pb2.LeaseRef, _Mapping]] = ...) -> None: ...

class RangeResponse(_message.Message):
    __slots__ = ("header", "kvs", "more", "count", "cache_term")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KVS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CACHE_TERM_FIELD_NUMBER: _ClassVar[int]
    header: _leases_pb2.Header
    kvs: _containers.RepeatedCompositeFieldContainer[KeyValue]
    more: bool
    count: int
    cache_term: int
    def __init__(self, header: _Optional[_Union[_leases_pb2.Header, _Mapping]] = ..., kvs: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., more: bool = ..., count: _Optional[int] = ..., cache_term: _Optional[int] = ...) -> None: ...

class Compare(_message.Message):
    __slots__ = ("relation", "key", "range_end", "version", "create_revision", "mod_revision", "value", "lease", "lease_alive", "name_token")
    class Relation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RELATION_UNSPECIFIED: _ClassVar[Compare.Relation]
        RELATION_EQUAL: _ClassVar[Compare.Relation]
        RELATION_GREATER: _ClassVar[Compare.Relation]
        RELATION_LESS: _ClassVar[Compare.Relation]
        RELATION_NOT_EQUAL: _ClassVar[Compare.Relation]
    RELATION_UNSPECIFIED: Compare.Relation
    RELATION_EQUAL: Compare.Relation
    RELATION_GREATER: Compare.Relation
    RELATION_LESS: Compare.Relation
    RELATION_NOT_EQUAL: Compare.Relation
    RELATION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATE_REVISION_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ALIVE_FIELD_NUMBER: _ClassVar[int]
    NAME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    relation: Compare.Relation
    key: bytes
    range_end: bytes
    version: int
    create_revision: int
    mod_revision: int
    value: bytes
    lease: int
    lease_alive: int
    name_token: NameToken
    def __init__(self, relation: _Optional[_Union[Compare.Relation, str]] = ..., key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., version: _Optional[int] = ..., create_revision: _Optional[int] = ..., mod_revision: _Optional[int] = ..., value: _Optional[bytes] = ..., lease: _Optional[int] = ..., lease_alive: _Optional[int] = ..., name_token: _Optional[_Union[NameToken, _Mapping]] = ...) -> None: ...

class NameToken(_message.Message):
    __slots__ = ("name", "token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class Op(_message.Message):
    __slots__ = ("put", "delete_range", "read_range", "txn", "grant", "renew", "revoke", "draw_token")
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_RANGE_FIELD_NUMBER: _ClassVar[int]
    READ_RANGE_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    DRAW_TOKEN_FIELD_NUMBER: _ClassVar[int]
    put: PutRequest
    delete_range: DeleteRequest
    read_range: RangeRequest
    txn: TxnRequest
    grant: _leases_pb2.GrantRequest
    renew: _leases_pb2.LeaseRef
    revoke: _leases_pb2.LeaseRef
    draw_token: DrawTokenRequest
    def __init__(self, put: _Optional[_Union[PutRequest, _Mapping]] = ..., delete_range: _Optional[_Union[DeleteRequest, _Mapping]] = ..., read_range: _Optional[_Union[RangeRequest, _Mapping]] = ..., txn: _Optional[_Union[TxnRequest, _Mapping]] = ..., grant: _Optional[_Union[_leases_pb2.GrantRequest, _Mapping]] = ..., renew: _Optional[_Union[_leases_pb2.LeaseRef, _Mapping]] = ..., revoke: _Optional[_Union[_leases_pb2.LeaseRef, _Mapping]] = ..., draw_token: _Optional[_Union[DrawTokenRequest, _Mapping]] = ...) -> None: ...

class DrawTokenRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpResponse(_message.Message):
    __slots__ = ("put", "delete_range", "read_range", "txn", "grant", "renew", "revoke", "draw_token")
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_RANGE_FIELD_NUMBER: _ClassVar[int]
    READ_RANGE_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    DRAW_TOKEN_FIELD_NUMBER: _ClassVar[int]
    put: PutResponse
    delete_range: DeleteResponse
    read_range: RangeResponse
    txn: TxnResponse
    grant: _leases_pb2.GrantResponse
    renew: _leases_pb2.Lease
    revoke: int
    draw_token: int
    def __init__(self, put: _Optional[_Union[PutResponse, _Mapping]] = ..., delete_range: _Optional[_Union[DeleteResponse, _Mapping]] = ..., read_range: _Optional[_Union[RangeResponse, _Mapping]] = ..., txn: _Optional[_Union[TxnResponse, _Mapping]] = ..., grant: _Optional[_Union[_leases_pb2.GrantResponse, _Mapping]] = ..., renew: _Optional[_Union[_leases_pb2.Lease, _Mapping]] = ..., revoke: _Optional[int] = ..., draw_token: _Optional[int] = ...) -> None: ...

class TxnRequest(_message.Message):
    __slots__ = ("compare", "success", "failure", "wait")
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    compare: _containers.RepeatedCompositeFieldContainer[Compare]
    success: _containers.RepeatedCompositeFieldContainer[Op]
    failure: _containers.RepeatedCompositeFieldContainer[Op]
    wait: Wait
    def __init__(self, compare: _Optional[_Iterable[_Union[Compare, _Mapping]]] = ..., success: _Optional[_Iterable[_Union[Op, _Mapping]]] = ..., failure: _Optional[_Iterable[_Union[Op, _Mapping]]] = ..., wait: _Optional[_Union[Wait, _Mapping]] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("key", "prefix", "permits", "ignored_value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    IGNORED_VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    prefix: bytes
    permits: int
    ignored_value: bytes
    def __init__(self, key: _Optional[bytes] = ..., prefix: _Optional[bytes] = ..., permits: _Optional[int] = ..., ignored_value: _Optional[bytes] = ...) -> None: ...

class TxnResponse(_message.Message):
    __slots__ = ("header", "succeeded", "responses", "ticket", "wait_refused")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    WAIT_REFUSED_FIELD_NUMBER: _ClassVar[int]
    header: _leases_pb2.Header
    succeeded: bool
    responses: _containers.RepeatedCompositeFieldContainer[OpResponse]
    ticket: Ticket
    wait_refused: _leases_pb2.Error
    def __init__(self, header: _Optional[_Union[_leases_pb2.Header, _Mapping]] = ..., succeeded: bool = ..., responses: _Optional[_Iterable[_Union[OpResponse, _Mapping]]] = ..., ticket: _Optional[_Union[Ticket, _Mapping]] = ..., wait_refused: _Optional[_Union[_leases_pb2.Error, _Mapping]] = ...) -> None: ...

class Ticket(_message.Message):
    __slots__ = ("state", "create_revision", "previous_key", "cause", "lease")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Ticket.State]
        STATE_WAITING: _ClassVar[Ticket.State]
        STATE_READY: _ClassVar[Ticket.State]
        STATE_GONE: _ClassVar[Ticket.State]
    STATE_UNSPECIFIED: Ticket.State
    STATE_WAITING: Ticket.State
    STATE_READY: Ticket.State
    STATE_GONE: Ticket.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATE_REVISION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_KEY_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    state: Ticket.State
    create_revision: int
    previous_key: bytes
    cause: Event.Cause
    lease: int
    def __init__(self, state: _Optional[_Union[Ticket.State, str]] = ..., create_revision: _Optional[int] = ..., previous_key: _Optional[bytes] = ..., cause: _Optional[_Union[Event.Cause, str]] = ..., lease: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("key", "range_end", "start_revision", "prev_kv", "no_put", "no_delete", "progress_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    START_REVISION_FIELD_NUMBER: _ClassVar[int]
    PREV_KV_FIELD_NUMBER: _ClassVar[int]
    NO_PUT_FIELD_NUMBER: _ClassVar[int]
    NO_DELETE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_MS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    start_revision: int
    prev_kv: bool
    no_put: bool
    no_delete: bool
    progress_ms: int
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., start_revision: _Optional[int] = ..., prev_kv: bool = ..., no_put: bool = ..., no_delete: bool = ..., progress_ms: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("header", "events", "fragment")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    header: _leases_pb2.Header
    events: _containers.RepeatedCompositeFieldContainer[Event]
    fragment: bool
    def __init__(self, header: _Optional[_Union[_leases_pb2.Header, _Mapping]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., fragment: bool = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("kind", "kv", "prev_kv", "cause", "lease")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Event.Kind]
        KIND_PUT: _ClassVar[Event.Kind]
        KIND_DELETE: _ClassVar[Event.Kind]
    KIND_UNSPECIFIED: Event.Kind
    KIND_PUT: Event.Kind
    KIND_DELETE: Event.Kind
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CAUSE_UNSPECIFIED: _ClassVar[Event.Cause]
        CAUSE_DELETED: _ClassVar[Event.Cause]
        CAUSE_EXPIRED: _ClassVar[Event.Cause]
        CAUSE_REVOKED: _ClassVar[Event.Cause]
        CAUSE_UNKNOWN: _ClassVar[Event.Cause]
    CAUSE_UNSPECIFIED: Event.Cause
    CAUSE_DELETED: Event.Cause
    CAUSE_EXPIRED: Event.Cause
    CAUSE_REVOKED: Event.Cause
    CAUSE_UNKNOWN: Event.Cause
    KIND_FIELD_NUMBER: _ClassVar[int]
    KV_FIELD_NUMBER: _ClassVar[int]
    PREV_KV_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    kind: Event.Kind
    kv: KeyValue
    prev_kv: KeyValue
    cause: Event.Cause
    lease: int
    def __init__(self, kind: _Optional[_Union[Event.Kind, str]] = ..., kv: _Optional[_Union[KeyValue, _Mapping]] = ..., prev_kv: _Optional[_Union[KeyValue, _Mapping]] = ..., cause: _Optional[_Union[Event.Cause, str]] = ..., lease: _Optional[int] = ...) -> None: ...
