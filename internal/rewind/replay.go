package rewind

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
	"leasehold.dev/server"
)

// Moment is the point in time to restore. The zero Moment is the latest one possible.
type Moment struct {
	// Revision is the last revision to include.
	Revision int64
	// Time is the latest commit time to include, according to the clock of the member that copied
	// the log. It is only as precise as the time between copies of the log.
	Time time.Time
}

// Restored describes the restored state.
type Restored struct {
	Full     string // name of the full backup
	Entries  int    // log entries applied after it
	Revision int64  // revision of the restored state before it was raised
	// Time is the commit time of the last entry, or the time of the full backup.
	Time time.Time
}

// Restore creates a data directory with the state at a point in time, as [server.Restore] does from
// a single file. It reports damage to warn. If a full backup is damaged, Restore uses an older one.
// There is no substitute for a damaged log.
func (b *Backups) Restore(
	ctx context.Context, to Moment, c server.Config, o server.RestoreOptions, warn func(string),
) (Restored, error) {
	if to.Revision != 0 && !to.Time.IsZero() {
		return Restored{}, fmt.Errorf("%w: --to-revision and --to-time are mutually exclusive",
			server.ErrConfig)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var r Restored
	err := create(c, o, func(w io.Writer) (err error) {
		var m *fsm.Machine
		var cluster uint64
		if r, m, cluster, err = b.replay(ctx, to, warn); err != nil {
			return err
		}
		return backup.Write(ctx, w, cluster, m.Image().Encode)
	}, stop)
	return r, err
}

// create creates a data directory from the output of write, which it trusts. It calls stop when it
// no longer needs to read, and returns once write has returned.
func create(
	c server.Config, o server.RestoreOptions, write func(io.Writer) error, stop func(),
) error {
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := bufio.NewWriterSize(in, 1<<20)
		err := write(w)
		if err == nil {
			err = w.Flush()
		}
		in.CloseWithError(err)
	}()
	o.SkipHash = true // already verified
	err := server.Restore(out, c, o)
	stop()
	_ = out.CloseWithError(io.ErrClosedPipe)
	<-done
	return err
}

// replay builds the state at a point in time.
func (b *Backups) replay(
	ctx context.Context, to Moment, warn func(string),
) (Restored, *fsm.Machine, uint64, error) {
	h, c, err := b.readCatalog(ctx)
	if err != nil {
		return Restored{}, nil, 0, err
	}
	r := &replay{Backups: b, catalog: c, history: h, to: to, warn: warn}
	if err := r.begin(ctx); err != nil {
		return Restored{}, nil, 0, err
	}
	if err := r.follow(ctx); err != nil {
		return Restored{}, nil, 0, err
	}
	for r.machine.Scrub(1 << 20) { // remove data that no revision needs
	}
	return r.Restored, r.machine, h.Cluster, nil
}

// replay is a state to which the copied log is applied.
type replay struct {
	*Backups
	catalog backup.Catalog
	history backup.History
	to      Moment
	warn    func(string)

	machine *fsm.Machine
	reader  fsm.Reader
	at      backup.Place
	Restored
}

// begin loads the newest undamaged full backup that is not after the requested point in time.
func (r *replay) begin(ctx context.Context) error {
	fulls := r.catalog.Fulls
	if len(fulls) == 0 {
		return fmt.Errorf("%w: no full backup found", errMissing)
	}
	tried := ""
	for i := len(fulls) - 1; i >= 0; i-- {
		f := fulls[i]
		if r.to.Revision > 0 && f.Revision > r.to.Revision ||
			!r.to.Time.IsZero() && f.Time.After(r.to.Time) {
			continue
		}
		err := r.load(ctx, f)
		if err == nil {
			return nil
		}
		if !isDamage(err) {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		tried += fmt.Sprintf("; %s cannot be used", f.Name)
		r.warn(fmt.Sprintf("%s cannot be used: %v; trying the one before it", f.Name, err))
	}
	return fmt.Errorf("%w: the oldest full backup has revision %d (%s)%s",
		errMissing, fulls[0].Revision, TimeText(fulls[0].Time), tried)
}

// TimeText formats a time so that [ParseTime] can parse it without loss.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// load loads a full backup.
func (r *replay) load(ctx context.Context, f backup.Full) error {
	src, err := r.target.Get(ctx, f.Name)
	if err != nil {
		return err
	}
	defer src.Close()
	reader, err := backup.NewReader(bufio.NewReaderSize(src, 1<<20))
	if err != nil {
		return err
	}
	m, err := fsm.Restore(machineConfig(), reader.Next)
	if err == nil {
		err = reader.Finish(true)
	}
	if err != nil {
		return asDamage(err)
	}
	got := backup.History{Cluster: reader.Cluster(), Restore: m.View().Restore}
	if got != r.history {
		return otherHistory(got, r.history)
	}
	r.machine, r.at = m, backup.Place{Index: m.Index(), Term: m.Term()}
	r.Restored = Restored{Full: f.Name, Time: f.Time, Revision: m.View().KV.Revision()}
	return nil
}

// machineConfig returns the configuration of a state machine that can read everything written by
// this release and earlier ones.
func machineConfig() fsm.Config {
	l := server.DefaultConfig().Lease
	return fsm.Config{
		Versions: version.Range{Oldest: 1, Newest: version.Spoken.Newest},
		Lease: lease.Config{
			CheckpointInterval: lease.TTL(l.CheckpointInterval.Milliseconds()),
			Untended:           lease.TTL(l.Untended.Milliseconds()), SpreadRate: l.SpreadRate,
		},
	}
}

// asDamage marks an error in the encoding of the state as damage.
func asDamage(err error) error {
	if errors.Is(err, fsm.ErrCorrupt) {
		return fmt.Errorf("%w: %w", server.ErrBackup, err)
	}
	return err
}

// follow applies the log up to the requested point in time.
func (r *replay) follow(ctx context.Context) error {
	ahead := r.fetchPieces(ctx, &r.catalog, r.at)
	defer ahead.stop()
	for w := r.catalog.Walk(); !r.reached(); {
		next := w.Next(r.at)
		if len(next) == 0 {
			return r.endOfLog(ctx)
		}
		var damage error
		moved := false
		for _, i := range next {
			text, err := ahead.get(ctx, r.Backups, i.Name)
			var p backup.Piece
			if err == nil {
				p, err = decodePiece(text, r.history, i)
			}
			if errors.Is(err, errOtherHistory) {
				continue
			}
			if err != nil && !isDamage(err) {
				return fmt.Errorf("%s: %w", i.Name, err)
			}
			if err != nil {
				damage = cmp.Or(damage, fmt.Errorf("%s cannot be used: %w", i.Name, err))
				continue
			}
			if term, ok := p.TermAt(r.at.Index); !ok || term != r.at.Term {
				continue // from another generation of the cluster
			}
			done, err := r.piece(&p)
			if err != nil || done {
				return err
			}
			moved = true
			break
		}
		if damage != nil {
			if !moved {
				return r.damaged(damage)
			}
			r.warn(damage.Error() + "; another piece has the same entries")
		}
		if !moved {
			return r.endOfLog(ctx)
		}
	}
	return nil
}

// reached reports whether the state has the requested revision.
func (r *replay) reached() bool { return r.to.Revision > 0 && r.Revision >= r.to.Revision }

// damaged returns the error for a damaged log. The error lists what can be restored instead.
func (r *replay) damaged(damage error) error {
	return fmt.Errorf("%w; the log cannot restore anything after revision %d (%s); "+
		"--to-revision %d restores the state up to there, and a later point in time requires a "+
		"later full backup (see leasehold backup list)",
		damage, r.Revision, TimeText(r.Time), r.Revision)
}

// continues reports whether this history continues after a gap. A backup that cannot be read counts
// as part of this history.
func (r *replay) continues(ctx context.Context) bool {
	for _, p := range r.catalog.Pieces {
		if p.First > r.at.Index+1 && p.Before >= r.at.Term {
			if _, err := r.Backups.piece(ctx, r.history, p); !errors.Is(err, errOtherHistory) {
				return true
			}
		}
	}
	for _, f := range r.catalog.Fulls {
		if f.Index > r.at.Index && f.Term >= r.at.Term &&
			!errors.Is(r.verifyFull(ctx, r.history, f), errOtherHistory) {
			return true
		}
	}
	return false
}

// endOfLog determines whether the requested point in time was reached by the end of the copied log.
func (r *replay) endOfLog(ctx context.Context) error {
	continues := r.continues(ctx)
	switch {
	case r.to.Revision > 0 && continues, !r.to.Time.IsZero() && continues:
		return fmt.Errorf("%w: the copied log has a gap after revision %d (%s) that includes "+
			"this point in time; leasehold backup list shows what can be restored",
			errMissing, r.Revision,
			TimeText(r.Time))
	case r.to.Revision > 0:
		return fmt.Errorf("%w: the newest revision is %d (%s)", errMissing, r.Revision,
			TimeText(r.Time))
	case continues:
		r.warn(fmt.Sprintf("the copied log has a gap after revision %d (%s); anything copied after "+
			"that cannot be used", r.Revision, TimeText(r.Time)))
	}
	return nil
}

// piece applies the next entries of a piece, and reports whether the requested point in time has
// been reached.
func (r *replay) piece(p *backup.Piece) (done bool, err error) {
	mark := 0
	for i := range p.Entries {
		index := p.Previous.Index + 1 + uint64(i)
		if index <= r.at.Index {
			continue
		}
		for p.Marks[mark].Index < index {
			mark++
		}
		when := time.UnixMilli(p.Marks[mark].Milli)
		if !r.to.Time.IsZero() && when.After(r.to.Time) {
			return true, nil
		}
		if err := r.entry(index, &p.Entries[i]); err != nil {
			return false, fmt.Errorf("copied log, entry %d: %w", index, err)
		}
		r.at = backup.Place{Index: index, Term: p.Entries[i].Term}
		r.Entries++
		r.Time = when
		if r.reached() {
			return true, nil
		}
	}
	return false, nil
}

// entry applies an entry, or its commands up to the requested revision.
func (r *replay) entry(index uint64, e *backup.Entry) error {
	data := e.Data
	switch raftpb.EntryType(e.Type) {
	case raftpb.EntryNormal:
	case raftpb.EntryConfChangeV2:
		change := new(raftpb.ConfChangeV2)
		if err := proto.Unmarshal(data, change); err != nil {
			return fmt.Errorf("%w: %w", server.ErrBackup, err)
		}
		data = change.GetContext()
	default:
		return fmt.Errorf("%w: unknown entry type %d", encoding.ErrNewer, e.Type)
	}
	if !r.machine.Begin(index, e.Term) {
		return fmt.Errorf("%w: the entry is out of order", server.ErrBackup)
	}
	if len(data) == 0 {
		return nil
	}
	defer r.reader.Release()
	groups, err := r.reader.Decode(data)
	if err != nil {
		return asDamage(err)
	}
	for _, g := range groups {
		for _, c := range g.Commands {
			if r.reached() {
				return nil
			}
			// the command's revision can be lower if it was deduplicated
			r.Revision = max(r.Revision, r.machine.Apply(c).Revision)
		}
	}
	if r.to.Revision > 0 && r.Revision > r.to.Revision {
		return fmt.Errorf("%w: revision %d was never visible: it was created together with "+
			"revision %d", errMissing, r.to.Revision, r.Revision)
	}
	r.machine.TakeChanges()
	r.machine.ReuseChanges()
	r.machine.TakeHolds()
	return r.machine.CheckVersion()
}

var errTime = errors.New("not a time such as 2026-01-31T12:00:00Z, or an age such as 15m")

// ParseTime parses an RFC 3339 time, or an age such as 15m.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q: %w", text, errTime)
}
