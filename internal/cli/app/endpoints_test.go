package app

import (
	"slices"
	"testing"
)

// TestEndpointSpellings: commands of etcd's API and of ours get endpoints in their normal spelling.
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
