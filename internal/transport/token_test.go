package transport

import (
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"

	"leasehold.dev/test/virtual"
)

// TestToken checks that members with the same token communicate as before, and that a process with
// the token can ask for the list of members.
func TestToken(t *testing.T) { virtual.Test(t, testToken) }

func testToken(t *testing.T) {
	token := []byte("a secret of the cluster")
	a, b := pair(t, options{token: token})
	a.meet(b, "again")
	got, err := Describe(t.Context(), b.url, inMemory(Way{Token: token}))
	if err != nil || len(got) == 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestStrangerWithoutToken checks that a process with a different token, or without one, is
// rejected, and that both sides log an explanation. A member with a token does not communicate with
// a member without one.
func TestStrangerWithoutToken(t *testing.T) { virtual.Test(t, testStrangerWithoutToken) }

func testStrangerWithoutToken(t *testing.T) {
	token, another := []byte("a secret of the cluster"), []byte("another secret")
	for _, c := range []struct {
		name                   string
		caller, listener       []byte
		callerErr, listenerLog string // the caller's error, and the listener's log line
	}{
		{"none", nil, token, "set --peer-token-file", "set --peer-token-file"},
		{"another", another, token, "must be the same", "must be the same"},
		{"only here", token, nil, "has no token", ""},
	} {
		virtual.Step(t, c.name, func(t *testing.T) {
			a := start(t, 1, options{token: c.listener})
			if _, err := Describe(t.Context(), a.url, inMemory(Way{Token: c.caller})); err == nil ||
				!strings.Contains(err.Error(), c.callerErr) {
				t.Errorf("the caller is told: %v", err)
			}
			b := start(t, 2, options{token: c.caller})
			b.Update([]Peer{a.peer(1), b.peer(2)})
			b.Send(1, bytesMessage("obey"))
			until(t, "it is refused", func() bool { // it retries repeatedly
				return b.log.Count(c.callerErr) > 0 && (c.listenerLog == "" || a.log.Count(c.listenerLog) > 0)
			})
			if len(a.got)+len(a.admits) > 0 {
				t.Error("the stranger was let in")
			}
		})
	}
}

// TestProofOfAnother checks that a proof from another connection, or from the listener itself, is
// rejected.
func TestProofOfAnother(t *testing.T) { virtual.Test(t, testProofOfAnother) }

func testProofOfAnother(t *testing.T) {
	token := []byte("a secret of the cluster")
	a := start(t, 1, options{token: token})
	s, err := connect(t.Context(), a.url, inMemory(Way{Token: token}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	thief, err := connect(t.Context(), a.url, inMemory(Way{}))
	if err != nil {
		t.Fatal(err)
	}
	defer thief.close()
	refused := func(proof string) {
		t.Helper()
		*thief.proof = proof
		_, err = thief.unary(t.Context(), describeDesc.MethodName, new(blob))
		if err == nil || !strings.Contains(err.Error(), "must be the same") {
			t.Errorf("error %v", err)
		}
	}
	refused(*s.proof)
	if err := challenge(t.Context(), thief, token); err != nil {
		t.Fatal(err)
	}
	refused(*s.proof)
	answer, err := thief.unary(t.Context(), challengeDesc.MethodName, &blob{data: newNonce()})
	if err != nil {
		t.Fatal(err)
	}
	refused(hex.EncodeToString(answer.data[nonceSize:]))
}

// TestListenerMustProve checks that a caller does not communicate with a listener that has another
// token.
func TestListenerMustProve(t *testing.T) { virtual.Test(t, testListenerMustProve) }

func testListenerMustProve(t *testing.T) {
	a := start(t, 1, options{token: []byte("another secret")})
	s, err := connect(t.Context(), a.url, inMemory(Way{Token: []byte("a secret of the cluster")}))
	if !errors.Is(err, errBadProof) {
		t.Errorf("error %v", err)
	}
	if err == nil {
		s.close()
	}
}

// TestProofThroughMiddle checks that with TLS a man in the middle cannot relay the proofs of two
// members, even if the caller accepts any certificate. Without a token, it can relay their
// messages.
func TestProofThroughMiddle(t *testing.T) {
	for _, c := range []struct{ name, token string }{{"no token", ""}, {"token", "a secret"}} {
		bubble(t, c.name, func(t *testing.T) {
			o, _ := secrets(t, "nobody")
			o.token = []byte(c.token)
			b := start(t, 2, o)
			middle := relay(t, b.url.Host)
			got, err := Describe(t.Context(), middle, inMemory(Way{TLS: o.client, Token: o.token}))
			if c.token == "" {
				if err != nil || len(got) == 0 {
					t.Errorf("nothing is relayed: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "may terminate TLS") {
				t.Errorf("the caller is told: %v", err)
			}
			a := start(t, 1, o)
			a.Update([]Peer{a.peer(1), {ID: 2, URLs: []url.URL{middle}}})
			until(t, "it is refused", func() bool { return b.log.Count("may terminate TLS") > 0 })
			if len(b.admits) > 0 {
				t.Error("a proof that was passed on let a member in")
			}
		})
	}
}

// relay terminates the TLS connections of its clients and forwards their data over its own TLS
// connection.
func relay(t *testing.T, to string) url.URL {
	t.Helper()
	own, _ := secrets(t, "nobody")
	own.server.NextProtos = []string{"h2"}
	l := tls.NewListener(virtual.Port(t), own.server)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer from.Close()
				raw, err := virtual.Dial(t.Context(), "tcp", to)
				if err != nil {
					return
				}
				on := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				defer on.Close()
				wg.Go(func() { _, _ = io.Copy(from, on); from.Close() })
				_, _ = io.Copy(on, from)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return url.URL{Scheme: "https", Host: l.Addr().String()}
}
