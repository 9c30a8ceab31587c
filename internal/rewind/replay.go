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

// Moment is that which is restored: the newest one if it is zero.
type Moment struct {
	// Revision is that after which nothing is taken.
	Revision int64
	// Time is that after which nothing is taken, by the clock of the member that copied the log. It
	// is as exact as the log was copied often.
	Time time.Time
}

// Restored is what was restored.
type Restored struct {
	Full     string // the name of the backup of the whole state
	Entries  int    // of the log after it
	Revision int64  // of the state, before it was raised
	// Time is when the newest entry was committed, or when the backup of the whole state was made.
	Time time.Time
}

// Restore makes a new data directory of the backups, as [server.Restore] does of one file, with the
// state of a moment. What is damaged is told; an older backup of the whole state is taken in the
// place of one that is, but nothing in the place of the log.
func (b *Backups) Restore(
	ctx context.Context, to Moment, c server.Config, o server.RestoreOptions, warn func(string),
) (Restored, error) {
	if to.Revision != 0 && !to.Time.IsZero() {
		return Restored{}, fmt.Errorf("%w: --to-revision and --to-time exclude each other",
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

// found makes a new data directory of what write writes, which is stopped when nobody reads any
// more, and has ended then.
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
	o.SkipHash = true // what was read has been checked
	err := server.Restore(out, c, o)
	stop()
	_ = out.CloseWithError(io.ErrClosedPipe)
	<-done
	return err
}

// replay makes the state of a moment.
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
	for r.machine.Scrub(1 << 20) { // what no revision needs any more
	}
	return r.Restored, r.machine, h.Cluster, nil
}

// replay is a state that moves on along the copied log.
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

// begin takes the newest backup of the whole state that is not after the moment, and not damaged.
func (r *replay) begin(ctx context.Context) error {
	fulls := r.catalog.Fulls
	if len(fulls) == 0 {
		return fmt.Errorf("%w: there is no backup of the whole state", errMissing)
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
	return fmt.Errorf("%w: the oldest backup of the whole state is of revision %d, at %s%s",
		errMissing, fulls[0].Revision, TimeText(fulls[0].Time), tried)
}

// TimeText writes a time as [ParseTime] takes it, with all that is known of it.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// load reads a backup of the whole state.
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

// machineConfig is that of a member which reads what all releases up to this one wrote.
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

// asDamage says of what is in no state's encoding that it is damaged.
func asDamage(err error) error {
	if errors.Is(err, fsm.ErrCorrupt) {
		return fmt.Errorf("%w: %w", server.ErrBackup, err)
	}
	return err
}

// follow applies the log up to the moment.
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
				continue // of another generation of the cluster
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
			r.warn(damage.Error() + "; another piece has what it had")
		}
		if !moved {
			return r.endOfLog(ctx)
		}
	}
	return nil
}

// there reports whether the state has the revision that is wanted.
func (r *replay) reached() bool { return r.to.Revision > 0 && r.Revision >= r.to.Revision }

// stuck says that the log cannot be read on, and what can be restored instead.
func (r *replay) damaged(damage error) error {
	return fmt.Errorf("%w; what came after revision %d (%s) cannot be restored with this log; "+
		"--to-revision %d restores what was before, and a later moment needs a later backup of the "+
		"whole state (leasehold backup list)", damage, r.Revision, TimeText(r.Time), r.Revision)
}

// continues reports whether something of this history follows after a gap. What cannot be read may.
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

// atEnd judges that the copied log does not go on.
func (r *replay) endOfLog(ctx context.Context) error {
	continues := r.continues(ctx)
	switch {
	case r.to.Revision > 0 && continues, !r.to.Time.IsZero() && continues:
		return fmt.Errorf("%w: the copied log has a gap after revision %d (%s), and the moment is in "+
			"it; leasehold backup list shows what can be restored", errMissing, r.Revision,
			TimeText(r.Time))
	case r.to.Revision > 0:
		return fmt.Errorf("%w: the newest revision is %d (%s)", errMissing, r.Revision,
			TimeText(r.Time))
	case continues:
		r.warn(fmt.Sprintf("the copied log has a gap after revision %d (%s); what was copied after "+
			"that cannot be used", r.Revision, TimeText(r.Time)))
	}
	return nil
}

// piece applies the entries of a piece that come next, and reports whether the moment is reached.
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
			return false, fmt.Errorf("entry %d of the copied log: %w", index, err)
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

// entry applies an entry, or the commands of it up to the revision that is wanted.
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
		return fmt.Errorf("%w: an entry of type %d", encoding.ErrNewer, e.Type)
	}
	if !r.machine.Begin(index, e.Term) {
		return fmt.Errorf("%w: it is out of order", server.ErrBackup)
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
			r.Revision = max(r.Revision, r.machine.Apply(c).Revision) // lower in an answer of before
		}
	}
	if r.to.Revision > 0 && r.Revision > r.to.Revision {
		return fmt.Errorf("%w: revision %d was never seen: it and %d were made in one step",
			errMissing, r.to.Revision, r.Revision)
	}
	r.machine.TakeChanges()
	r.machine.ReuseChanges()
	r.machine.TakeHolds()
	return r.machine.Foreign()
}

var errTime = errors.New("it is neither a time such as 2026-01-31T12:00:00Z nor how long ago it " +
	"was, such as 15m")

// ParseTime reads a time of RFC 3339, or how long ago it was.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q: %w", text, errTime)
}
