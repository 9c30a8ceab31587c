package cache

import (
	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// Hooks are what the client has for caches, for tests that stand in for one.
var Hooks = hooks

// Found turns the result of Get into a value and whether the key exists.
func Found(kv store.KV, err error) (_ store.KV, ok bool, _ error) {
	if err == client.ErrKeyNotFound { //nolint:errorlint // as it is
		return kv, false, nil
	}
	return kv, err == nil, err
}
