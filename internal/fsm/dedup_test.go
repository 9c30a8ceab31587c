package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

func open(t testing.TB, m *Machine, nonce uint64) Session {
	t.Helper()
	return mustApply(t, m, &OpenSession{Nonce: nonce}).(Session)
}

// encoded returns a comparable form of a result, with the parts that all members record.
func encoded(r Result) string {
	return fmt.Sprintf("%v %q", r.Err, appendResult(nil, &r))
}

// TestOnceHolds checks that only commands that can be retried are decoded inside a Once.
func TestOnceHolds(t *testing.T) {
	for _, c := range samples() {
		if Inner(c) != c {
			c = Inner(c)
		}
		_, err := DecodeEntry(encode(&Once{Session{1, 2}, 3, 3, c}))
		if may := c.kind().repeatable(); may != (err == nil) {
			t.Errorf("%#v: %v", c, err)
		}
		if c.kind().repeatable() && (Internal(c) || Membership(c)) {
			t.Errorf("%#v is not of a client", c)
		}
	}
	once := &Once{Session{1, 2}, 3, 3, &Put{}}
	if _, err := DecodeEntry(encode(&Once{Session{1, 2}, 3, 3, once})); err == nil {
		t.Error("a Once in a Once was decoded")
	}
	if put := (&Put{Key: "key"}); Growth(&Once{Command: put}) != Growth(put) {
		t.Error("it lets the state grow by something else than its command")
	}
}

// small sets session limits low enough to be reached.
func small(m *Machine) *Machine {
	m.sessions.limits = sessionLimits{sessions: 3, answers: 4, bytes: 2000, answer: 1000}
	return m
}

// TestSessionsForgotten checks that the least recently used session is evicted, and that no session
// ID is reused.
func TestSessionsForgotten(t *testing.T) {
	m := small(New(Config{}))
	a, b, c := open(t, m, 1), open(t, m, 2), open(t, m, 3)
	apply(t, m, &Once{a, 1, 0, &Put{Key: "k"}})
	d := open(t, m, 4)
	if d.ID != 4 || m.sessions.use(b) != nil || m.sessions.use(a) == nil || m.sessions.use(c) == nil {
		t.Errorf("%v: %v", d, slices.Sorted(maps.Keys(m.sessions.byID)))
	}
	m = small(restored(t, m))
	m.sessions.use(d)
	open(t, m, 5)
	if m.sessions.use(a) != nil { // c and d were used more recently than a
		t.Error("a restart has changed who is forgotten")
	}
}

// TestSessionLimits checks that the limits on sessions are derived from the quota, within bounds.
func TestSessionLimits(t *testing.T) {
	for quota, want := range map[int64]sessionLimits{
		0:        defaultSessionLimits,
		1 << 40:  defaultSessionLimits,
		8 << 20:  {sessions: 546, answers: 4096, bytes: 512 << 10, answer: 128 << 10},
		MinQuota: {sessions: 16, answers: 4096, bytes: 4096, answer: 1024},
	} {
		if got := defaultSessionLimits.within(quota); got != want {
			t.Errorf("quota %d: %+v, want %+v", quota, got, want)
		}
	}
}

// TestSessionsOfLongNames checks that user names count toward the size of sessions, but do not
// evict the session that is being opened.
func TestSessionsOfLongNames(t *testing.T) {
	m := New(Config{})
	m.sessions.limits.bytes = 100
	open := func(length int) Session {
		by := access.Caller{User: strings.Repeat("u", length)}
		return mustApply(t, m, &By{by, &OpenSession{Nonce: 1}}).(Session)
	}
	a, b := open(50), open(50)
	if m.sessions.known(a) == nil || m.sessions.known(b) == nil {
		t.Error("forgotten, and there was room")
	}
	c := open(1)
	if m.sessions.known(a) != nil || m.sessions.known(b) == nil || m.sessions.known(c) == nil {
		t.Error("not the one was forgotten that was used least recently")
	}
	l := newSessions()
	l.limits.bytes = 100
	if s := l.open(1, strings.Repeat("u", 101)); l.known(s) == nil {
		t.Error("a session has forgotten itself")
	}
}

// TestAnswersThatFit checks that responses of up to the maximum size are recorded, until they reach
// the maximum total. A response that a snapshot cannot represent is not recorded.
func TestAnswersThatFit(t *testing.T) {
	l := newSessions()
	l.limits.answer, l.limits.bytes = answerBytes, 2*answerBytes
	a, b := l.known(l.open(1, "")), l.known(l.open(2, ""))
	l.keep(a, 1, Result{Revision: 5, Err: ErrKeyNotFound})
	l.keep(b, 1, Result{Revision: 6, Err: errors.New("of a later release")})
	for s, want := range map[*session]error{a: ErrKeyNotFound, b: ErrSessionNotFound} {
		if r, ok := s.answer(1); !ok || r.Err != want { //nolint:errorlint // apply wraps no errors
			t.Errorf("session %d has the answer %v, want %v", s.ID, r.Err, want)
		}
	}
	if len(l.byID) != 2 {
		t.Errorf("%d sessions, and there was room for two answers", len(l.byID))
	}
}

// TestAnswersForgotten checks that if a session has too many recorded responses, those with the
// lowest numbers are evicted. These numbers are rejected from then on, and other numbers still
// work.
func TestAnswersForgotten(t *testing.T) {
	m := small(New(Config{}))
	s := open(t, m, 1)
	for n := range uint64(5) {
		apply(t, m, &Once{s, n + 2, 0, &Put{Key: "k"}})
	}
	for n := range uint64(7) {
		r := apply(t, m, &Once{s, n + 1, 0, &Put{Key: "k"}})
		if refused := r.Err != nil; refused != (n+1 <= 2) {
			t.Errorf("number %d: %+v", n+1, r)
		}
	}
}

// TestAnswersTooLarge checks that the total size of recorded responses is bounded. Other sessions
// are evicted as a whole, and the current session loses the responses with the lowest numbers. A
// single large response is not recorded.
func TestAnswersTooLarge(t *testing.T) {
	m := small(New(Config{}))
	apply(t, m, &Put{Key: "k", Value: bytes.Repeat([]byte("v"), 300)})
	s, other := open(t, m, 1), open(t, m, 2)
	read := Op{Range: &Range{Key: "k"}}
	apply(t, m, &Once{other, 1, 0, &Put{Key: "o"}})
	for n := range uint64(4) {
		apply(t, m, &Once{s, n + 1, 0, &Txn{Then: []Op{read}}})
	}
	if m.sessions.use(other) != nil || len(m.sessions.use(s).answers) != 2 {
		t.Errorf("%d sessions, %+v", len(m.sessions.byID), m.sessions.use(s))
	}
	large := &Once{s, 5, 5, &Txn{Then: []Op{read, read}}}
	if r := apply(t, m, large); r.Err != nil || len(r.Value.(*TxnResult).Responses) != 2 {
		t.Errorf("the first time: %+v", r)
	}
	if r := apply(t, m, large); !errors.Is(r.Err, ErrSessionNotFound) || !r.Repeated {
		t.Errorf("again: %+v", r)
	}
}

// TestRestoreBackupDropsSessions checks that a restored backup has no sessions and does not reuse
// their IDs.
func TestRestoreBackupDropsSessions(t *testing.T) {
	m := New(Config{})
	s := open(t, m, 1)
	apply(t, m, &Once{s, 1, 0, &Put{Key: "k"}})
	m = mustRestoreBackup(t, m, Restoration{})
	if r := apply(t, m, &Once{s, 1, 0, &Put{Key: "k"}}); !errors.Is(r.Err, ErrSessionNotFound) {
		t.Errorf("%+v", r)
	}
	if next := open(t, m, 1); next.ID != s.ID+1 {
		t.Errorf("session %d after %d", next.ID, s.ID)
	}
}

// TestOnceRandom sends random commands several times and out of order. Each must take effect once,
// and all copies must return the same response. This holds on every member, including one that is
// restored from a snapshot in the meantime (S3).
func TestOnceRandom(t *testing.T) {
	for seed := range uint64(tier.Budget(15, 40)) {
		rng := rand.New(rand.NewPCG(seed, 7))
		cfg := Config{Lease: lease.Config{MaxKeys: rng.IntN(4)}}
		a, b, plain := New(cfg), New(cfg), New(cfg)
		w := newWriters(t, rng, a, b)
		for range 300 {
			c := w.next()
			first := w.results[c.Session.ID][c.Number]
			if first == "" {
				now(rng, a, c.Command)
			}
			ra, rb := apply(t, a, c), apply(t, b, c)
			if encoded(ra) != encoded(rb) || ra.Repeated != rb.Repeated {
				t.Fatalf("seed %d: %#v: %+v and %+v", seed, c, ra, rb)
			}
			switch {
			case first != "" && (!ra.Repeated || encoded(ra) != first):
				t.Fatalf("seed %d: %#v: %s, the first time %s", seed, c, encoded(ra), first)
			case first == "":
				want := apply(t, plain, c.Command)
				if w.results[c.Session.ID][c.Number] = encoded(ra); encoded(ra) != encoded(want) {
					t.Fatalf("seed %d: %#v: %+v, want %+v", seed, c, ra, want)
				}
			}
			if rng.IntN(30) == 0 {
				b = restored(t, b)
			}
			if ha, hb := hash(t, a), hash(t, b); ha != hb {
				t.Fatalf("seed %d: hashes %x and %x after %#v", seed, ha, hb, c)
			}
		}
		if x, _, _ := a.View().KV.Hash(0); true {
			if y, _, _ := plain.View().KV.Hash(0); x != y {
				t.Fatalf("seed %d: the keys are not those of commands done once", seed)
			}
		}
	}
}

// writers are clients with sessions that may send a command more than once.
type writers struct {
	rng     *rand.Rand
	open    []*writer
	results map[uint64]map[uint64]string
}

type writer struct {
	session Session
	last    uint64
	settled uint64
	sent    []*Once // commands not yet settled
}

func newWriters(t *testing.T, rng *rand.Rand, machines ...*Machine) *writers {
	w := &writers{rng: rng, results: make(map[uint64]map[uint64]string)}
	for nonce := range uint64(4) {
		var s Session
		for _, m := range machines {
			s = open(t, m, nonce)
		}
		w.open = append(w.open, &writer{session: s, settled: 1})
		w.results[s.ID] = make(map[uint64]string)
	}
	return w
}

// next returns a new command or one that has been sent before.
func (w *writers) next() *Once {
	c := w.open[w.rng.IntN(len(w.open))]
	if n := len(c.sent); n > 0 && w.rng.IntN(3) > 0 {
		return c.sent[w.rng.IntN(n)]
	}
	if n := len(c.sent); n > 0 && w.rng.IntN(4) == 0 {
		c.sent = c.sent[w.rng.IntN(n+1):]
		if c.settled = c.last + 1; len(c.sent) > 0 {
			c.settled = c.sent[0].Number
		}
	}
	c.last += 1 + uint64(w.rng.IntN(2))
	o := &Once{Session: c.session, Number: c.last, Settled: c.settled}
	for o.Command = randomCommand(w.rng); !o.Command.kind().repeatable(); {
		o.Command = randomCommand(w.rng)
	}
	c.sent = append(c.sent, o)
	return o
}

// TestSnapshotOfSessionsDamaged checks that Restore rejects a snapshot with a damaged session.
func TestSnapshotOfSessionsDamaged(t *testing.T) {
	for name, records := range map[string][]func([]byte) []byte{
		"answer without a session": {record(tagAnswer, func(b []byte) []byte {
			return appendAnswer(b, &answer{number: 1, result: Result{Value: &PutResult{}}})
		})},
		"above the last": {sessionRecord(3, 0)},
		"twice":          {sessionRecord(2, 0), sessionRecord(2, 0)},
		"settled answer": {sessionRecord(2, 5), record(tagAnswer, func(b []byte) []byte {
			return appendAnswer(b, &answer{number: 4, result: Result{Value: &PutResult{}}})
		})},
		"unknown error": {sessionRecord(2, 0), record(tagAnswer, func(b []byte) []byte {
			return append(b, 1, 2, refusalPlain+byte(len(refusals)))
		})},
		"unknown result": {sessionRecord(2, 0), record(tagAnswer, func(b []byte) []byte {
			return append(b, 1, 2, refusalNone, 99)
		})},
		"deep result": {sessionRecord(2, 0), record(tagAnswer, func(b []byte) []byte {
			return append(append(b, 1, 2, refusalNone),
				strings.Repeat(string([]byte{valueTxn, 1, 1}), maxTxnDepth+1)+string(valueTxn)...)
		})},
	} {
		_, err := restoreRecords(records...)
		unknown := strings.HasPrefix(name, "unknown")
		if !errors.Is(err, ErrCorrupt) && !unknown || errors.Is(err, encoding.ErrNewer) != unknown {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// restoreRecords restores a snapshot of the given records between a header and a trailer.
func restoreRecords(records ...func([]byte) []byte) (*Machine, error) {
	return restoreChunks(Config{}, snapshot(false, records...)...)
}

func record(tag byte, body func([]byte) []byte) func([]byte) []byte {
	return func(b []byte) []byte { return body(append(b, tag)) }
}

func sessionRecord(id, settled uint64) func([]byte) []byte {
	return record(tagSession, func(b []byte) []byte {
		s := &session{Session: Session{ID: id, Nonce: math.MaxUint64}, settled: settled}
		return appendSession(b, s)
	})
}

// TestSessionsOfOthersStay checks that a user who opens many sessions and accumulates responses
// beyond all limits does not cause the eviction of sessions of users with fewer of both.
func TestSessionsOfOthersStay(t *testing.T) {
	m := small(New(Config{}))
	m.sessions.limits.sessions, m.sessions.limits.bytes = 8, 6000
	as := func(user string, c Command) Result {
		t.Helper()
		return apply(t, m, &By{access.Caller{User: user, Revision: 1}, c})
	}
	opened := func(user string) Session {
		t.Helper()
		return as(user, &OpenSession{Nonce: 1}).Value.(Session)
	}
	put := func(s Session, n uint64, key string) *Once {
		return &Once{s, n, 0, &Put{Key: key, Value: make([]byte, 500), PrevKV: true}}
	}
	alice, bob, nobody := opened("alice"), opened("bob"), opened("")
	others := map[string]Session{"alice": alice, "bob": bob, "": nobody}
	for user, s := range others {
		as(user, put(s, 1, user+"k"))
	}
	keeps := func(when string) {
		t.Helper()
		for user, s := range others {
			if r, done := m.Repeated(&By{access.Caller{User: user, Revision: 1}, put(s, 1, user+"k")}); !done {
				t.Errorf("%s: what %q did is forgotten: %+v", when, user, r)
			}
		}
		if l := m.sessions; len(l.byID) > l.limits.sessions || l.bytes > l.limits.bytes {
			t.Errorf("%s: %d sessions, %d bytes", when, len(l.byID), l.bytes)
		}
	}
	for range 100 {
		opened("eve")
	}
	keeps("after very many sessions")
	for range 3 {
		s := opened("eve")
		for n := range uint64(50) {
			as("eve", put(s, n+1, "e"))
		}
	}
	keeps("after very many answers")
	m = small(restored(t, m))
	m.sessions.limits.sessions, m.sessions.limits.bytes = 8, 6000
	keeps("restored")
	for range 20 {
		s := opened("eve")
		for n := range uint64(10) {
			as("eve", put(s, n+1, "e"))
		}
	}
	keeps("after a restart")
	if hash(t, m) != hash(t, restored(t, m)) {
		t.Error("the states differ")
	}
}
