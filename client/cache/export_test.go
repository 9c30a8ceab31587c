package cache

import (
	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// Found converts the result of Get into a value and a boolean that reports whether the key exists.
func Found(kv store.KV, err error) (_ store.KV, ok bool, _ error) {
	if err == client.ErrKeyNotFound { //nolint:errorlint // returned unwrapped
		return kv, false, nil
	}
	return kv, err == nil, err
}
