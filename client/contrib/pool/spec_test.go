package pool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/client"
)

// TestPoolAddresses checks that a pool contains every address of its ranges exactly once, and that
// the number of addresses is limited.
func TestPoolAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ids  []string
		want []string // nil if the Spec is invalid
	}{
		{[]string{"10.0.0.254-10.0.1.1"}, []string{"10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"}},
		{[]string{"10.0.0.9/30"}, []string{"10.0.0.8", "10.0.0.9", "10.0.0.10", "10.0.0.11"}},
		{[]string{"10.0.0.7/32", "printer"}, []string{"10.0.0.7", "printer"}},
		{[]string{"255.255.255.254/31"}, []string{"255.255.255.254", "255.255.255.255"}},
		{[]string{"fe80::fffe-fe80::1:0"}, []string{"fe80::fffe", "fe80::ffff", "fe80::1:0"}},
		{[]string{"10.0.0.1-10.0.0.1"}, []string{"10.0.0.1"}},
		{[]string{"rack-7", "10.0.0.1-b"}, []string{"rack-7", "10.0.0.1-b"}},
		{[]string{"a-10.0.0.1"}, []string{"a-10.0.0.1"}},
		{[]string{"10.0.0.0/30", "10.0.0.2"}, nil},
		{[]string{"fe80::/64"}, nil},
		{[]string{"fe80::-fe80::1:0:0"}, nil},
		{[]string{"10.0.0.0/16", "10.1.0.0"}, nil},
		{[]string{"10.0.0.0/33"}, nil},
		{[]string{"id", "ids"}, nil}, // its key would equal the Spec key of the pool NAME/held
	} {
		got, err := (&Spec{IDs: c.ids}).all()
		if (err != nil) != (c.want == nil) || err != nil && !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%v: %v", c.ids, err)
		}
		if err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.ids, got, c.want)
		}
	}
	for _, text := range []string{
		"10.0.0.2-10.0.0.1", "255.255.255.255-0.0.0.0", "10.0.0.1-::1", "fe80::1%a-fe80::2%b",
	} {
		_, err := (&Spec{IDs: []string{text}}).all()
		if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "same family") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if ids, err := (&Spec{First: 1, Last: MaxIDs}).all(); err != nil || len(ids) != MaxIDs {
		t.Errorf("got %d numbers: %v", len(ids), err)
	}
	whole, err := (&Spec{IDs: []string{"10.0.0.0/16"}}).all()
	if err != nil || len(whole) != MaxIDs {
		t.Errorf("a /16 has %d addresses: %v", len(whole), err)
	}
}
