from leasehold.v1 import leases_pb2 as _leases_pb2
from leasehold.v1 import store_pb2 as _store_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientMessage(_message.Message):
    __slots__ = ("requests", "session", "acknowledged_below")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_BELOW_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    session: SessionRef
    acknowledged_below: int
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., session: _Optional[_Union[SessionRef, _Mapping]] = ..., acknowledged_below: _Optional[int] = ...) -> None: ...

class SessionRef(_message.Message):
    __slots__ = ("id", "nonce")
    ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    id: int
    nonce: int
    def __init__(self, id: _Optional[int] = ..., nonce: _Optional[int] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("header", "session")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    header: _leases_pb2.Header
    session: SessionRef
    def __init__(self, header: _Optional[_Union[_leases_pb2.Header, _Mapping]] = ..., session: _Optional[_Union[SessionRef, _Mapping]] = ...) -> None: ...

class CacheRequest(_message.Message):
    __slots__ = ("lease", "cached", "term")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    lease: _leases_pb2.LeaseRef
    cached: _containers.RepeatedCompositeFieldContainer[_leases_pb2.KeyRange]
    term: int
    def __init__(self, lease: _Optional[_Union[_leases_pb2.LeaseRef, _Mapping]] = ..., cached: _Optional[_Iterable[_Union[_leases_pb2.KeyRange, _Mapping]]] = ..., term: _Optional[int] = ...) -> None: ...

class CacheResponse(_message.Message):
    __slots__ = ("term", "seq", "drop", "reopen")
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    REOPEN_FIELD_NUMBER: _ClassVar[int]
    term: int
    seq: int
    drop: _containers.RepeatedCompositeFieldContainer[_leases_pb2.KeyRange]
    reopen: bool
    def __init__(self, term: _Optional[int] = ..., seq: _Optional[int] = ..., drop: _Optional[_Iterable[_Union[_leases_pb2.KeyRange, _Mapping]]] = ..., reopen: bool = ...) -> None: ...

class CacheAck(_message.Message):
    __slots__ = ("lease", "term", "seq", "dropped", "open_term")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    OPEN_TERM_FIELD_NUMBER: _ClassVar[int]
    lease: _leases_pb2.LeaseRef
    term: int
    seq: int
    dropped: _containers.RepeatedCompositeFieldContainer[_leases_pb2.KeyRange]
    open_term: int
    def __init__(self, lease: _Optional[_Union[_leases_pb2.LeaseRef, _Mapping]] = ..., term: _Optional[int] = ..., seq: _Optional[int] = ..., dropped: _Optional[_Iterable[_Union[_leases_pb2.KeyRange, _Mapping]]] = ..., open_term: _Optional[int] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("responses", "leadership")
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    LEADERSHIP_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    leadership: Leadership
    def __init__(self, responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ..., leadership: _Optional[_Union[Leadership, _Mapping]] = ...) -> None: ...

class Leadership(_message.Message):
    __slots__ = ("member_id", "leader_id", "leader_client_urls")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_CLIENT_URLS_FIELD_NUMBER: _ClassVar[int]
    member_id: int
    leader_id: int
    leader_client_urls: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, member_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_client_urls: _Optional[_Iterable[str]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "timeout_ms", "cancel", "put", "delete_range", "read_range", "txn", "grant", "renew", "revoke", "watch", "events", "session", "cache", "cache_ack", "describe", "list", "check_token", "change_ttl", "hand_over", "resume", "attach", "detach", "number", "traceparent")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_RANGE_FIELD_NUMBER: _ClassVar[int]
    READ_RANGE_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_ACK_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    CHECK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHANGE_TTL_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    timeout_ms: int
    cancel: int
    put: _store_pb2.PutRequest
    delete_range: _store_pb2.DeleteRequest
    read_range: _store_pb2.RangeRequest
    txn: _store_pb2.TxnRequest
    grant: _leases_pb2.GrantRequest
    renew: _leases_pb2.RenewRequest
    revoke: _leases_pb2.RevokeRequest
    watch: _store_pb2.WatchRequest
    events: _leases_pb2.EventsRequest
    session: SessionRequest
    cache: CacheRequest
    cache_ack: CacheAck
    describe: _leases_pb2.DescribeRequest
    list: _leases_pb2.ListRequest
    check_token: _leases_pb2.CheckTokenRequest
    change_ttl: _leases_pb2.ChangeTTLRequest
    hand_over: _leases_pb2.HandOverRequest
    resume: _leases_pb2.ResumeRequest
    attach: _leases_pb2.AttachRequest
    detach: _leases_pb2.DetachRequest
    number: int
    traceparent: str
    def __init__(self, id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., cancel: _Optional[int] = ..., put: _Optional[_Union[_store_pb2.PutRequest, _Mapping]] = ..., delete_range: _Optional[_Union[_store_pb2.DeleteRequest, _Mapping]] = ..., read_range: _Optional[_Union[_store_pb2.RangeRequest, _Mapping]] = ..., txn: _Optional[_Union[_store_pb2.TxnRequest, _Mapping]] = ..., grant: _Optional[_Union[_leases_pb2.GrantRequest, _Mapping]] = ..., renew: _Optional[_Union[_leases_pb2.RenewRequest, _Mapping]] = ..., revoke: _Optional[_Union[_leases_pb2.RevokeRequest, _Mapping]] = ..., watch: _Optional[_Union[_store_pb2.WatchRequest, _Mapping]] = ..., events: _Optional[_Union[_leases_pb2.EventsRequest, _Mapping]] = ..., session: _Optional[_Union[SessionRequest, _Mapping]] = ..., cache: _Optional[_Union[CacheRequest, _Mapping]] = ..., cache_ack: _Optional[_Union[CacheAck, _Mapping]] = ..., describe: _Optional[_Union[_leases_pb2.DescribeRequest, _Mapping]] = ..., list: _Optional[_Union[_leases_pb2.ListRequest, _Mapping]] = ..., check_token: _Optional[_Union[_leases_pb2.CheckTokenRequest, _Mapping]] = ..., change_ttl: _Optional[_Union[_leases_pb2.ChangeTTLRequest, _Mapping]] = ..., hand_over: _Optional[_Union[_leases_pb2.HandOverRequest, _Mapping]] = ..., resume: _Optional[_Union[_leases_pb2.ResumeRequest, _Mapping]] = ..., attach: _Optional[_Union[_leases_pb2.AttachRequest, _Mapping]] = ..., detach: _Optional[_Union[_leases_pb2.DetachRequest, _Mapping]] = ..., number: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("id", "more", "error", "put", "delete_range", "read_range", "txn", "grant", "renew", "revoke", "watch", "events", "session", "cache", "describe", "list", "check_token", "change_ttl", "hand_over", "resume", "attach", "detach")
    ID_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_RANGE_FIELD_NUMBER: _ClassVar[int]
    READ_RANGE_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    CHECK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHANGE_TTL_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    id: int
    more: bool
    error: _leases_pb2.Error
    put: _store_pb2.PutResponse
    delete_range: _store_pb2.DeleteResponse
    read_range: _store_pb2.RangeResponse
    txn: _store_pb2.TxnResponse
    grant: _leases_pb2.GrantResponse
    renew: _leases_pb2.RenewResponse
    revoke: _leases_pb2.RevokeResponse
    watch: _store_pb2.WatchResponse
    events: _leases_pb2.EventsResponse
    session: SessionResponse
    cache: CacheResponse
    describe: _leases_pb2.DescribeResponse
    list: _leases_pb2.ListResponse
    check_token: _leases_pb2.CheckTokenResponse
    change_ttl: _leases_pb2.ChangeTTLResponse
    hand_over: _leases_pb2.HandOverResponse
    resume: _leases_pb2.ResumeResponse
    attach: _leases_pb2.AttachResponse
    detach: _leases_pb2.DetachResponse
    def __init__(self, id: _Optional[int] = ..., more: bool = ..., error: _Optional[_Union[_leases_pb2.Error, _Mapping]] = ..., put: _Optional[_Union[_store_pb2.PutResponse, _Mapping]] = ..., delete_range: _Optional[_Union[_store_pb2.DeleteResponse, _Mapping]] = ..., read_range: _Optional[_Union[_store_pb2.RangeResponse, _Mapping]] = ..., txn: _Optional[_Union[_store_pb2.TxnResponse, _Mapping]] = ..., grant: _Optional[_Union[_leases_pb2.GrantResponse, _Mapping]] = ..., renew: _Optional[_Union[_leases_pb2.RenewResponse, _Mapping]] = ..., revoke: _Optional[_Union[_leases_pb2.RevokeResponse, _Mapping]] = ..., watch: _Optional[_Union[_store_pb2.WatchResponse, _Mapping]] = ..., events: _Optional[_Union[_leases_pb2.EventsResponse, _Mapping]] = ..., session: _Optional[_Union[SessionResponse, _Mapping]] = ..., cache: _Optional[_Union[CacheResponse, _Mapping]] = ..., describe: _Optional[_Union[_leases_pb2.DescribeResponse, _Mapping]] = ..., list: _Optional[_Union[_leases_pb2.ListResponse, _Mapping]] = ..., check_token: _Optional[_Union[_leases_pb2.CheckTokenResponse, _Mapping]] = ..., change_ttl: _Optional[_Union[_leases_pb2.ChangeTTLResponse, _Mapping]] = ..., hand_over: _Optional[_Union[_leases_pb2.HandOverResponse, _Mapping]] = ..., resume: _Optional[_Union[_leases_pb2.ResumeResponse, _Mapping]] = ..., attach: _Optional[_Union[_leases_pb2.AttachResponse, _Mapping]] = ..., detach: _Optional[_Union[_leases_pb2.DetachResponse, _Mapping]] = ...) -> None: ...
