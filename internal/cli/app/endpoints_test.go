package app

import (
	"slices"
	"testing"
)

// TestEndpointSpellings checks that endpoints are normalized, both for commands that use the etcd
// API and for commands that use the Leasehold API.
func TestEndpointSpellings(t *testing.T) {
	a := new(App)
	a.Flags.endpoints = []string{" HTTP://127.0.0.1:1/", "", "localhost:2/"}
	eps, err := a.discover()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"http://127.0.0.1:1", "localhost:2"}; !slices.Equal(eps, want) {
		t.Errorf("endpoints %q, want %q", eps, want)
	}
}
