package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatMajor is the format of Pebble's files. It is written down here, and not
// pebble.FormatNewest, so that an upgrade of the library does not change the
// disk by itself.
const formatMajor = pebble.FormatTableFormatV6

// Open opens the data directory, creating it if need be, and reads all of the
// log once, so that damage shows now and not when an entry is needed. It returns
// ErrLocked, ErrCorrupt, ErrVersion, ErrForeign or ErrNoSpace when it cannot
// proceed, with what to do in the text.
func Open(cfg Config) (*Disk, error) {
	d, err := prepare(cfg)
	if err != nil {
		return nil, explain(cfg.Dir, err)
	}
	d.guard.strict.Store(true)
	if err = d.run(d.openPebble); err == nil {
		err = d.run(d.load)
	}
	if err == nil {
		err = d.repair()
	}
	if err != nil {
		_ = d.drop()
		return nil, explain(cfg.Dir, err)
	}
	d.guard.strict.Store(false)
	return d, nil
}

// explain adds the directory, and what a person can do.
func explain(dir string, err error) error {
	if errors.Is(err, ErrFailed) && isFull(err) {
		// Nothing was acknowledged yet, so here it is final for nobody.
		err = fmt.Errorf("%w: %s", ErrNoSpace,
			strings.TrimPrefix(err.Error(), ErrFailed.Error()+": "))
	}
	hint := ""
	switch {
	case errors.Is(err, ErrLocked):
		hint = "; stop the other process, or give this one a directory of its own"
	case errors.Is(err, ErrVersion):
		hint = "; run the release that wrote it, or a later one"
	case errors.Is(err, ErrForeign):
		hint = "; choose another directory"
	case errors.Is(err, ErrNoSpace):
		hint = "; free some space on the disk and start again, nothing is lost"
	case errors.Is(err, ErrCorrupt):
		hint = "; do not delete single files: keep a copy of the directory, check the disk," +
			" then restore a backup, or give this member an empty directory and start it" +
			" with --join ADDRESS --replace to have the data from the other members"
	}
	return fmt.Errorf("open %s: %w%s", dir, err, hint)
}

// prepare does all that comes before Pebble.
func prepare(cfg Config) (*Disk, error) {
	if cfg.Dir == "" {
		return nil, errors.New("storage: Config.Dir is empty")
	}
	if cfg.FS == nil {
		cfg.FS = vfs.Default
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = defaultCacheBytes
	}
	if cfg.TailBytes == 0 {
		cfg.TailBytes = defaultTailBytes
	}
	d := &Disk{
		fs: cfg.FS, dir: cfg.FS.PathJoin(cfg.Dir, "db"),
		incoming: cfg.FS.PathJoin(cfg.Dir, "incoming"), logger: cfg.Logger,
	}
	d.readers, d.write = map[*SnapshotReader]struct{}{}, make(turn, 1)
	d.log.tailMax = cfg.TailBytes
	if err := checkForeign(cfg); err != nil {
		return nil, err
	}
	if err := mkdirDurable(cfg.FS, d.dir); err != nil {
		return nil, classify(err)
	}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	if err := cfg.FS.RemoveAll(d.incoming); err != nil {
		_ = d.lock.Close()
		return nil, classify(err)
	}
	d.space = newSpace(&cfg)
	d.space.open()
	d.guard = newGuard(cfg.FS, d.space.relieve)
	d.cfg = cfg
	d.jobs, d.results = make(chan func() error), make(chan error, 1)
	go d.work()
	return d, nil
}

// checkForeign refuses a directory of etcd's: starting empty beside data that
// somebody believes to be served would be worse than not starting.
func checkForeign(cfg Config) error {
	for _, name := range []string{"wal", "snap"} {
		path := cfg.FS.PathJoin(cfg.Dir, "member", name)
		if _, err := cfg.FS.Stat(path); err == nil {
			return fmt.Errorf("%w: %s belongs to etcd", ErrForeign, path)
		}
	}
	return nil
}

// mkdirDurable is MkdirAll, and syncs the directories that got a new entry, or a
// crash could take the whole database with it.
func mkdirDurable(fsys vfs.FS, dir string) error {
	var parents []string
	for d := dir; ; {
		if _, err := fsys.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		up := fsys.PathDir(d)
		if up == d {
			break
		}
		parents = append(parents, up)
		d = up
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range parents {
		if err := syncDir(fsys, p); err != nil {
			return err
		}
	}
	return nil
}

// syncDir makes durable which files a directory has.
func syncDir(fsys vfs.FS, name string) error {
	dir, err := fsys.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (d *Disk) takeLock() error {
	lock, err := d.fs.Lock(d.fs.PathJoin(d.dir, "LOCK"))
	var path *fs.PathError
	switch {
	case err == nil:
		d.lock = lock
		return nil
	case errors.As(err, &path): // the lock file could not be made at all
		return classify(err)
	default:
		return fmt.Errorf("%w: %v", ErrLocked, err)
	}
}

// checkMarker refuses a database whose files are there, but not the marker that
// says which manifest is current: Pebble would begin a new one among them.
func (d *Disk) checkMarker() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	data := ""
	for _, n := range names {
		if strings.HasPrefix(n, "marker.manifest.") {
			return nil
		}
		if strings.HasSuffix(n, ".log") || strings.HasSuffix(n, ".sst") {
			data = n
		}
	}
	if data != "" {
		return fmt.Errorf("%w: there is %s, but no marker.manifest file", ErrCorrupt, data)
	}
	return nil
}

// openLedger opens the ledger, and makes sure that what it says is there. A
// ledger that is damaged says nothing, and the next one begins empty. So does one that
// is missing, though there is a database: it is made before that.
func (d *Disk) openLedger() error {
	name := d.fs.PathJoin(d.cfg.Dir, "ledger")
	_, missing := d.fs.Stat(name)
	l, err := openLedger(d.guard, name)
	if err == nil && errors.Is(missing, fs.ErrNotExist) && d.hasFiles() {
		err = fmt.Errorf("%w: the ledger is missing", ErrCorrupt)
	}
	if errors.Is(err, ErrCorrupt) {
		d.logger.Warn("storage: the end of the log cannot be checked", "error", err.Error())
		err = nil
	}
	if err != nil {
		return err
	}
	if err := d.checkLogs(l.lines); err != nil {
		return err
	}
	d.guard.ledger = l
	return nil
}

// hasFiles reports whether Pebble has written anything.
func (d *Disk) hasFiles() bool {
	names, _ := d.fs.List(d.dir) // without an answer the ledger is taken for new
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(n, "marker.manifest.")
	})
}

func (d *Disk) openPebble() error {
	if err := d.openLedger(); err != nil {
		return err
	}
	if err := d.checkMarker(); err != nil {
		return err
	}
	cache := pebble.NewCache(d.cfg.CacheBytes)
	defer cache.Unref()
	db, err := pebble.Open(d.dir, d.options(cache))
	if err != nil {
		// Pebble has no error value for this one.
		if strings.Contains(err.Error(), "unknown format major version") {
			return fmt.Errorf("%w: %v", ErrVersion, err)
		}
		if errors.Is(err, fs.ErrNotExist) { // a file that another one names
			return fmt.Errorf("%w: %v", ErrCorrupt, err)
		}
		return err
	}
	d.db = db
	return nil
}

// options tunes Pebble for a log: one writer that waits for every sync, next to
// no reads, and most keys deleted before they leave memory.
func (d *Disk) options(cache *pebble.Cache) *pebble.Options {
	o := &pebble.Options{
		FS:                 d.guard,
		Cache:              cache,
		FormatMajorVersion: formatMajor,
		Logger:             pebbleLogger{d},

		// A large memtable lets Compact's range deletion meet the entries
		// there, so that the flush writes neither.
		MemTableSize:                uint64(d.cfg.MemTableBytes),
		MemTableStopWritesThreshold: 4,

		// Log entries in level 0 are read once at most, at the next Open: it is
		// not worth stopping writes for the sake of reads.
		L0CompactionThreshold: 4,
		L0StopWritesThreshold: 1000,

		// Background writes reach the disk in small pieces, so that no sync of
		// the log waits behind one large one.
		BytesPerSync: 512 << 10,

		// Every append is synced, so the log needs no writing back between, and
		// WALMinSyncInterval, which would gather more appends into a sync, could
		// only delay the one writer. Up to MemTableStopWritesThreshold+1 log files
		// are recycled, but none from before a restart: see zeros.
		WALBytesPerSync: 0,

		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
		MaxOpenFiles:               256,
		EventListener:              d.events(),
	}
	compress(o)
	return o
}

// compress turns compression off: entries live too briefly for it to pay, and
// for snapshots the time of a core that serves clients is worth more than disk.
func compress(o *pebble.Options) {
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.DBCompressionNone
	})
}

func (d *Disk) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			d.logger.Warn("storage: background work failed", "error", err.Error())
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			d.logger.Error("storage: corrupt table file", "path", info.Path,
				"error", info.Details.Error())
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			d.logger.Warn("storage: writes are stalled", "reason", info.Reason)
		},
	}
}

// A pebbleLogger sends what Pebble says to the Disk's logger.
type pebbleLogger struct{ d *Disk }

// Infof implements pebble.Logger.
func (l pebbleLogger) Infof(format string, args ...any) {
	l.d.logger.Debug(fmt.Sprintf("pebble: "+format, args...))
}

// Errorf implements pebble.Logger.
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.d.logger.Debug(fmt.Sprintf("pebble: "+format, args...), "pebble_level", "error")
}

// Fatalf implements pebble.Logger. Pebble expects that it ends the process; for
// Pebble, being parked is the same.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	buf := make([]byte, 16<<10)
	buf = buf[:runtime.Stack(buf, false)]
	l.d.logger.Error(fmt.Sprintf("pebble: "+format, args...), "stack", string(buf))
	l.d.guard.fail(fmt.Errorf("pebble: "+format, args...))
	park()
}
