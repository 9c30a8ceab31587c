package main

import (
	"bytes"
	"os"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestGenerated checks that messages.go is up to date with the descriptors.
func TestGenerated(t *testing.T) {
	want, err := generate(pb.File_leasehold_v1_stream_proto)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../messages.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("messages.go is out of date: run go generate ./internal/wire")
	}
}
