// What Pebble asks of github.com/cockroachdb/errors, and nothing else of it. The go.mod of
// Leasehold puts this in its place; the package comment says why.
module github.com/cockroachdb/errors

go 1.26.0

require github.com/cockroachdb/redact v1.1.5
