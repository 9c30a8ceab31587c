package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/version"
	"leasehold.dev/test/virtual"
)

// wantTooOld wants an error that says what to do: another release is needed, and nothing else.
func wantTooOld(t *testing.T, err error, dir string) {
	t.Helper()
	if !errors.Is(err, ErrTooOld) || errors.Is(err, replica.ErrImpossible) ||
		!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "newer release") {
		t.Errorf("error %v", err)
	}
}

// Goal: an entry of a newer release ends the member, in words that say so, before any of it is
// applied, and after that the data are as they were: a start replays the entries before it, and
// ends in the same way at that one. Method: a leader that is made up sends two entries, the second
// with a command that nobody knows after one that is known.
func TestEntryOfNewerRelease(t *testing.T) { virtual.Test(t, testEntryOfNewerRelease) }

func testEntryOfNewerRelease(t *testing.T) {
	cfg := testConfig(shortDir(t))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	put := func(value string) []byte {
		c := &fsm.Put{Key: "k", Value: []byte(value)}
		return fsm.AppendCommand(fsm.AppendEntry(nil, 1), c)
	}
	from, to := s.node.member+1, s.node.member
	at := s.node.View().Index
	send := func(m *raftpb.Message) {
		m.From, m.To, m.Term = &from, &to, new(uint64(7))
		s.core.inbox.putMessage(&replica.Message{Version: 1, From: from, To: to, Raft: m})
	}
	send(&raftpb.Message{
		Type: raftpb.MsgApp.Enum(), LogTerm: new(uint64(identity.FirstIndex)), Index: &at,
		Entries: []*raftpb.Entry{
			{Term: new(uint64(7)), Index: new(at + 1), Data: put("known")},
			{Term: new(uint64(7)), Index: new(at + 2), Data: append(put("newer"), 0x7f)},
		},
	})
	work := func() error { // one step, and what it wants saved
		_, err := s.core.step()
		if err == nil {
			err = s.core.writer.writeAll(t.Context(), s.core.writer.take(nil))
		}
		return err
	}
	for range 2 {
		if err := work(); err != nil {
			t.Fatal(err)
		}
	}
	for commit := at + 1; commit <= at+2; commit++ {
		send(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Commit: new(commit)})
		for range 2 {
			if err = work(); err != nil {
				break
			}
		}
		if newer := commit == at+2; newer != (err != nil) {
			t.Fatalf("entry %d: %v", commit-at, err)
		}
	}
	wantTooOld(t, err, cfg.DataDir)
	if kv := s.node.View().KV.Get("k"); kv == nil || string(kv.Value) != "known" {
		t.Errorf("the key is %+v", kv)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantTooOld(t, ends(t, cfg), cfg.DataDir)
}

// newerSnapshot returns a snapshot of a member's state, of the version after this release's.
func newerSnapshot(t *testing.T, s *Server) (whole []byte) {
	t.Helper()
	if err := s.core.replica.Machine().Image().Encode(func(chunk []byte) error {
		whole = append(whole, chunk...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	whole[1]++ // it stands after the kind of the record
	return whole
}

// A snapshot of a newer release that another member sends is refused, and the state and what is
// on disk stay as they are.
func TestSentSnapshotOfNewerRelease(t *testing.T) {
	virtual.Test(t, testSentSnapshotOfNewerRelease)
}

func testSentSnapshotOfNewerRelease(t *testing.T) {
	s, err := New(testConfig(shortDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before, err := s.core.disk.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	from, to := s.node.member+1, s.node.member
	chunks := [][]byte{newerSnapshot(t, s)}
	err = s.peers.Snapshot(t.Context(), from, snapshotHeader(from, to, 9), func() ([]byte, error) {
		if len(chunks) == 0 {
			return nil, io.EOF
		}
		chunk := chunks[0]
		chunks = nil
		return chunk, nil
	})
	if !errors.Is(err, encoding.ErrNewer) {
		t.Errorf("error %v", err)
	}
	after, err := s.core.disk.Snapshot()
	if err != nil || !proto.Equal(before, after) {
		t.Errorf("the snapshot on disk was %v and is %v, %v", before, after, err)
	}
}

// A snapshot of a newer release is refused at the start, in the same words.
func TestSnapshotOfNewerRelease(t *testing.T) { virtual.Test(t, testSnapshotOfNewerRelease) }

func testSnapshotOfNewerRelease(t *testing.T) {
	cfg := testConfig(shortDir(t))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	whole := newerSnapshot(t, s)
	conf := s.core.replica.ConfState()
	w, err := s.core.disk.NewSnapshot(storage.SnapshotMeta{
		Index: identity.FirstIndex + 1, Term: identity.FirstIndex, ConfState: conf,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(whole), w.Commit(0), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = New(cfg)
	wantTooOld(t, err, cfg.DataDir)
}

// Goal: for whom the cluster version waits is logged once, by name. Method: views as they follow
// each other in an upgrade; one member has never started.
func TestLogVersion(t *testing.T) {
	one, two := version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 2}
	view := func(v byte, a, b version.Range) *fsm.View {
		return &fsm.View{Version: fsm.ClusterVersion{Number: v}, Members: []fsm.Member{
			{ID: 1, Name: "a", Versions: a}, {ID: 2, Name: "b", Versions: b}, {ID: 0xabc, Versions: b},
		}}
	}
	var out bytes.Buffer
	c := &core{log: slog.New(slog.NewTextHandler(&out, nil))}
	views := []*fsm.View{
		view(1, one, one), view(1, two, one), view(1, two, one), view(1, two, two), view(2, two, two),
	}
	for i, want := range []string{"", "[b abc]", "", "", "has changed"} {
		out.Reset()
		c.logVersion(views[max(0, i-1)], views[i])
		if text := out.String(); (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("view %d: %q, want %q", i, text, want)
		}
	}
}

// later is what a release speaks that is two after this one.
var later = version.Range{Oldest: version.Newest + 1, Newest: version.Newest + 2}

// wantForeign wants an error that names the cluster's version and what is to be done.
func wantForeign(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrForeign) || errors.Is(err, ErrTooOld) ||
		!strings.Contains(err.Error(), version.Name(version.Oldest)) ||
		!strings.Contains(err.Error(), "with a release that speaks it") {
		t.Errorf("error %v", err)
	}
}

// Goal: a release that is too new for the data of a member refuses them at the start, and leaves
// them as they are. Method: the release that wrote them starts on them afterwards.
func TestDataTooOldForRelease(t *testing.T) { virtual.Test(t, testDataTooOldForRelease) }

func testDataTooOldForRelease(t *testing.T) {
	cfg := testConfig(shortDir(t))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	newer := cfg
	newer.Versions = later
	_, err = New(newer)
	wantForeign(t, err)
	if s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Goal: a release that does not speak the cluster's version does not join it, and does not even
// become a member. Method: one that is too new asks a member who the others are.
func TestJoinTooNew(t *testing.T) { virtual.Test(t, testJoinTooNew) }

func testJoinTooNew(t *testing.T) {
	r := run(t, testConfig(shortDir(t)))
	cfg := testConfig(shortDir(t))
	cfg.Name, cfg.Versions = "other", later
	cfg.Cluster.State = ExistingCluster
	others := map[string][]url.URL{r.cfg.Name: r.cfg.URLs.AdvertisePeer}
	wantForeign(t, Reach(cfg, others, r.node.cluster))
	cfg.Cluster.Initial = map[string][]url.URL{
		r.cfg.Name: r.cfg.URLs.AdvertisePeer, cfg.Name: cfg.URLs.AdvertisePeer,
	}
	_, err := New(cfg)
	wantForeign(t, err)
	cfg.Versions = version.Range{}
	if err := Reach(cfg, others, r.node.cluster); err != nil {
		t.Errorf("a member of this release: %v", err)
	}
}

// Goal: what a member says of itself at its start counts, also when its own data say the same and
// the others know something else by now. Method: it starts from
// a snapshot that has its name, which was changed while it was down.
func TestPublishedOverOlderData(t *testing.T) { virtual.Test(t, testPublishedOverOlderData) }

func testPublishedOverOlderData(t *testing.T) {
	configs := clusterConfigs(t, 3)
	members := runAll(t, configs...)
	self := members[0].node.member
	members[0].core.snap.version.Store(uint32(version.Oldest) + 1) // has a snapshot written
	eventually(t, "a snapshot that has its name", func() bool {
		return members[0].node.storageVersion() == version.Oldest
	})
	if err := members[0].stop(); err != nil {
		t.Fatal(err)
	}
	other := &fsm.SetMember{Member: fsm.Member{ID: self, Name: "other"}}
	if r, err := members[1].node.ProposeOwn(t.Context(), other); err != nil || r.Err != nil {
		t.Fatal(r.Err, err)
	}
	run(t, configs[0])
	eventually(t, "its name again", func() bool {
		m, _ := members[1].node.View().Member(self)
		return m.Name == configs[0].Name
	})
}
