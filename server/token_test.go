package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/internal/transport"
	"leasehold.dev/test/virtual"
)

// TestPeerToken checks that members with the same token found a cluster, and that a process without
// the token receives no information about them. A short or missing token is rejected at startup.
func TestPeerToken(t *testing.T) { virtual.Test(t, testPeerToken) }

func testPeerToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	configs := clusterConfigs(t, 3)
	for i := range configs {
		configs[i].PeerTokenFile = file
	}
	if _, err := New(configs[0]); !errors.Is(err, ErrConfig) {
		t.Errorf("without the file: %v", err)
	}
	for _, bytes := range []int{minToken - 1, minToken} {
		text := strings.Repeat("s", bytes) + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := configs[0].peerToken(); (err == nil) != (bytes >= minToken) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	members := runAll(t, configs...)
	members[0].put(t, "k", "v")
	if got := members[1].get(t, "k"); got != "v" {
		t.Errorf("another member has %q", got)
	}
	way := transport.Way{Dial: virtual.Dial}
	_, err := transport.Describe(t.Context(), configs[0].URLs.ListenPeer[0], way)
	if err == nil || !strings.Contains(err.Error(), "--peer-token-file") {
		t.Errorf("a stranger is told: %v", err)
	}
}
