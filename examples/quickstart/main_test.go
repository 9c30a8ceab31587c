package main

import (
	"bytes"
	"testing"

	"leasehold.dev/test/inprocess"
)

// TestQuickstart runs the program of docs/quickstart.md.
func TestQuickstart(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), inprocess.Run(t, 1)[0].Endpoint(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `the ledger is locked, with a token: true
the leader is at 10.0.0.1:80
2000 reads asked the cluster 2 times
a mail to ann
a mail to bob
`
	if out.String() != want {
		t.Errorf("it says\n%s", out.String())
	}
}
