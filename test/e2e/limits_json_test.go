package e2e

import "strings"

var jsonLimits = []jsonLimit{
	{
		name: "half a document", path: "/v3/kv/put",
		body:  `{"key":`,
		want:  "400 3 unexpected EOF",
		parse: true,
	},
	{
		name: "nothing", path: "/v3/kv/put",
		body: "",
		want: "400 3 etcdserver: key is not provided",
	},
	{
		name: "no document", path: "/v3/kv/put",
		body:  "hello",
		want:  "400 3 invalid character 'h' looking for beginning of value",
		parse: true,
	},
	{
		name: "a list", path: "/v3/kv/put",
		body:  "[]",
		want:  "400 3 proto: syntax error (line 1:1): unexpected token [",
		parse: true,
	},
	{
		name: "null", path: "/v3/kv/put",
		body:  "null",
		want:  "400 3 proto: syntax error (line 1:1): unexpected token null",
		parse: true,
	},
	{
		name: "a number", path: "/v3/kv/put",
		body:  "5",
		want:  "400 3 proto: syntax error (line 1:1): unexpected token 5",
		parse: true,
	},
	{
		name: "an empty document", path: "/v3/kv/put",
		body: "{}",
		want: "400 3 etcdserver: key is not provided",
	},
	{
		name: "two documents", path: "/v3/kv/put",
		body: `{"key":"aw=="}{"key":"aw=="}`,
		want: "200 ok",
	},
	{
		name: "rubbish after a document", path: "/v3/kv/put",
		body: `{"key":"aw=="}x`,
		want: "200 ok",
	},
	{
		name: "a field twice", path: "/v3/kv/put",
		body:  `{"key":"aw==","key":"aw=="}`,
		want:  `400 3 proto: (line 1:15): duplicate field "key"`,
		parse: true,
	},
	{
		name: "an unknown field", path: "/v3/kv/put",
		body: `{"key":"aw==","kye":"aw=="}`,
		want: "200 ok",
	},
	{
		name: "no base64", path: "/v3/kv/put",
		body:  `{"key":"*"}`,
		want:  `400 3 proto: (line 1:8): invalid value for bytes field key: "*"`,
		parse: true,
	},
	{
		name: "a key that is a number", path: "/v3/kv/put",
		body:  `{"key":5}`,
		want:  "400 3 proto: (line 1:8): invalid value for bytes field key: 5",
		parse: true,
	},
	{
		name: "base64 without padding", path: "/v3/kv/put",
		body: `{"key":"aw"}`,
		want: "200 ok",
	},
	{
		name: "a lease that is a word", path: "/v3/kv/put",
		body:  `{"key":"aw==","lease":"x"}`,
		want:  `400 3 proto: (line 1:23): invalid value for int64 field lease: "x"`,
		parse: true,
	},
	{
		name: "a lease with a fraction", path: "/v3/kv/put",
		body:  `{"key":"aw==","lease":1.5}`,
		want:  "400 3 proto: (line 1:23): invalid value for int64 field lease: 1.5",
		parse: true,
	},
	{
		name: "an unknown lease", path: "/v3/kv/put",
		body: `{"key":"aw==","lease":"12345"}`,
		want: "404 5 etcdserver: requested lease not found",
	},
	{
		name: "lease -1", path: "/v3/kv/put",
		body: `{"key":"aw==","lease":-1}`,
		want: "404 5 etcdserver: requested lease not found",
	},
	{
		name: "a TTL that is too long", path: "/v3/lease/grant",
		body: `{"TTL":9000000001}`,
		want: "400 11 etcdserver: too large lease TTL",
	},
	{
		name: "a TTL beyond 64 bits", path: "/v3/lease/grant",
		body:  `{"TTL":"9223372036854775808"}`,
		want:  `400 3 proto: (line 1:8): invalid value for int64 field TTL: "9223372036854775808"`,
		parse: true,
	},
	{
		name: "a TTL of -1", path: "/v3/lease/grant",
		body: `{"TTL":-1,"ID":"100"}`,
		want: "200 TTL 2",
		ours: "200 TTL 1",
		why:  "leases may be shorter than two seconds here; shown is the next whole one",
	},
	{
		name: "a TTL of null", path: "/v3/lease/grant",
		body: `{"TTL":null,"ID":"101"}`,
		want: "200 TTL 2",
		ours: "200 TTL 1",
		why:  "leases may be shorter than two seconds here; shown is the next whole one",
	},
	{
		name: "no TTL", path: "/v3/lease/grant",
		body: `{"ID":"102"}`,
		want: "200 TTL 2",
		ours: "200 TTL 1",
		why:  "leases may be shorter than two seconds here; shown is the next whole one",
	},
	{
		name: "id -1", path: "/v3/lease/grant",
		body: `{"TTL":60,"ID":-1}`,
		want: "200 TTL 60",
		ours: "400 3 etcdserver: lease ID is negative",
		why:  "an id below zero is a mistake, not a lease",
	},
	{
		name: "a used id", path: "/v3/lease/grant",
		body: `{"TTL":60,"ID":77}`,
		want: "400 9 etcdserver: lease already exists",
	},
	{
		name: "a TTL in exponents", path: "/v3/lease/grant",
		body: `{"TTL":6e1,"ID":"103"}`,
		want: "200 TTL 60",
	},
	{
		name: "revoke of lease 0", path: "/v3/lease/revoke",
		body: "{}",
		want: "404 5 etcdserver: requested lease not found",
	},
	{
		name: "revoke of an unknown lease", path: "/v3/lease/revoke",
		body: `{"ID":12345}`,
		want: "404 5 etcdserver: requested lease not found",
	},
	{
		name: "renewal of an unknown lease", path: "/v3/lease/keepalive",
		body: `{"ID":12345}`,
		want: "200 ok",
	},
	{
		name: "renewal of lease 0", path: "/v3/lease/keepalive",
		body: "{}",
		want: "200 ok",
	},
	{
		name: "time to live of an unknown lease", path: "/v3/lease/timetolive",
		body: `{"ID":12345}`,
		want: "200 TTL -1",
	},
	{
		name: "an empty key", path: "/v3/kv/range",
		body: "{}",
		want: "400 3 etcdserver: key is not provided",
	},
	{
		name: "an unknown order", path: "/v3/kv/range",
		body: `{"key":"aw==","sort_order":"UP"}`,
		want: "200 ok",
	},
	{
		name: "a revision to come", path: "/v3/kv/range",
		body: `{"key":"aw==","revision":"1000000"}`,
		want: "400 11 etcdserver: mvcc: required revision is a future revision",
	},
	{
		name: "an empty txn", path: "/v3/kv/txn",
		body: "{}",
		want: "200 ok",
	},
	{
		name: "an empty operation", path: "/v3/kv/txn",
		body: `{"success":[{}]}`,
		want: "400 3 etcdserver: key not found",
	},
	{
		name: "two requests in an operation", path: "/v3/kv/txn",
		body: `{"success":[{"requestRange":{"key":"aw=="},"requestPut":{"key":"aw=="}}]}`,
		want: `400 3 proto: (line 1:44): error parsing "requestPut", ` +
			"oneof etcdserverpb.RequestOp.request is already set",
		parse: true,
	},
	{
		name: "compaction to come", path: "/v3/kv/compaction",
		body: `{"revision":1000000}`,
		want: "400 11 etcdserver: mvcc: required revision is a future revision",
	},
	{
		name: "compaction at -1", path: "/v3/kv/compaction",
		body: `{"revision":-1}`,
		want: "400 11 etcdserver: mvcc: required revision has been compacted",
	},
	{
		name: "an unknown path", path: "/v3/kv/get",
		body: "{}",
		want: "404 5 Not Found",
	},
	{
		name: "the wrong method", path: "GET /v3/kv/put",
		body: "{}",
		want: "501 12 Method Not Allowed",
	},
	{
		name: "PUT", path: "PUT /v3/kv/put",
		body: "{}",
		want: "501 12 Method Not Allowed",
	},
	{
		name: "a request too large", path: "/v3/kv/put",
		body: `{"key":"aw==","value":"` + strings.Repeat("AAAA", 1<<19) + `"}`,
		want: "400 3 etcdserver: request is too large",
	},
	{
		name: "a request far too large", path: "/v3/kv/put",
		body: `{"key":"aw==","value":"` + strings.Repeat("AAAA", 1<<21) + `"}`,
		want: "429 8 grpc: received message larger than max (6291464 vs. 2097152)",
		ours: "413 8 web: request body is too large",
		why:  "it is refused before it is read",
	},
	{
		name: "too many operations", path: "/v3/kv/txn",
		body: `{"success":[` + strings.Repeat(`{"requestRange":{"key":"aw=="}},`, 128) +
			`{"requestRange":{"key":"aw=="}}]}`,
		want: "400 3 etcdserver: too many operations in txn request",
	},
	{
		name: "deep nesting", path: "/v3/kv/put",
		body:  strings.Repeat(`{"key":`, 100_000),
		want:  "400 3 invalid character '{' exceeded max depth",
		parse: true,
	},
}
