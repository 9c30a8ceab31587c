package cluster

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/version"
)

func (a commands) debugCommand() *cobra.Command {
	var profile time.Duration
	return a.Family("debug", "Gather information for debugging", app.Command{
		Use: "bundle <filename>", Short: "Save the status, metrics and profiles of all members",
		Long: `Write a .tar.gz with the result of leasehold status and, for each member, its
metrics, health, version and, if it runs with --enable-pprof, its profiles. It contains no keys,
values, passwords or settings, but metrics include the owners of slow caches.

The members' logs are not included: "logs.txt" explains how to get them. Files that could not be
fetched are listed in "missing.txt"; this is not an error.`,
		Example: "debug bundle /tmp/leasehold.tar.gz --endpoints host1:2379",
		Min:     1, Max: 1,
		Flags: func(fs *pflag.FlagSet) {
			fs.DurationVar(&profile, "profile", 5*time.Second,
				"how long to profile the CPU of each member (0: no profile)")
		},
		Run: func(_ *cobra.Command, args, _ []string) error { return a.saveBundle(args[0], profile) },
	})
}

func (a commands) saveBundle(path string, profile time.Duration) error {
	spec, err := a.Prepare()
	if err != nil {
		return err
	}
	conf, err := app.TLSOf(spec)
	if err != nil {
		return err
	}
	s := LookAt(a.App, spec)
	s.Judge()
	b := &bundle{
		MemberPages: NewMemberPages(conf, a.Flags.CommandTimeout+profile), profile: profile,
	}
	stopWaiting := a.ShowWaiting(func(context.Context) string {
		return fmt.Sprintf("Gathering data from %d members", len(s.Members))
	})
	b.gather(s)
	stopWaiting()
	if err := b.save(path); err != nil {
		return err
	}
	a.Say("Saved %d files at %s. Members queried: %d. The cluster is %s.\n",
		len(b.files), path, len(s.Members), s.Verdict)
	return nil
}

// bundle is the content of the archive.
type bundle struct {
	MemberPages
	profile time.Duration

	mu      sync.Mutex // guards the following fields
	files   map[string][]byte
	missing []string
}

// gather fetches pages from all members concurrently.
func (b *bundle) gather(s *State) {
	about := fmt.Sprintf("leasehold %s, %s, %s/%s\n%s\n", version.Version, runtime.Version(),
		runtime.GOOS, runtime.GOARCH, time.Now().UTC().Format(time.RFC3339))
	status, err := json.MarshalIndent(s, "", "  ")
	b.add("about.txt", []byte(about), nil)
	b.add("logs.txt", []byte(logLocations), nil)
	b.add("status.json", status, err)
	var wg sync.WaitGroup
	for _, x := range s.Members {
		if x.Error != "" {
			b.add(dirOf(x), nil, fmt.Errorf("no response: %s", x.Error))
			continue
		}
		wg.Go(func() { b.member(x) })
	}
	wg.Wait()
}

// logLocations explains where to find the logs. They are on the members' hosts, not in the archive.
const logLocations = `The members' logs are not in this archive. Get them on their hosts:

  journalctl -u leasehold --since -1h        under systemd
  kubectl logs POD --previous                in Kubernetes, with and without --previous
  docker logs CONTAINER                      in Docker
  the files named by --log-outputs           if there are any

run.json in the data directory records why a member last exited.
`

// dirOf returns the directory for a member in the archive. It replaces characters that a file name
// cannot contain.
func dirOf(x *Member) string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, x.Name)
	return "members/" + name + "-" + x.ID
}

// member fetches the pages of a member.
func (b *bundle) member(x *Member) {
	pages := []struct{ name, path string }{
		{"metrics.txt", "/metrics"},
		{"version.json", "/version"},
		{"livez.txt", "/livez?verbose"},
		{"readyz.txt", "/readyz?verbose"},
		{"goroutines.txt", "/debug/pprof/goroutine?debug=2"},
		{"heap.pb.gz", "/debug/pprof/heap"},
		{"mutex.pb.gz", "/debug/pprof/mutex"},
	}
	if b.profile > 0 {
		seconds := max(1, int(b.profile.Round(time.Second)/time.Second))
		pages = append(pages, struct{ name, path string }{
			"cpu.pb.gz", fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds),
		})
	}
	for _, p := range pages {
		text, err := b.Get(x, p.path)
		b.add(dirOf(x)+"/"+p.name, text, err)
	}
}

// add adds a file, or records why it is missing.
func (b *bundle) add(name string, text []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.missing = append(b.missing, fmt.Sprintf("%s: %s\n", name, app.Readable(err.Error())))
		return
	}
	if b.files == nil {
		b.files = make(map[string][]byte)
	}
	b.files[name] = text
}

// save writes the archive. The file gets its final name only once it is complete.
func (b *bundle) save(path string) error {
	if len(b.missing) > 0 {
		slices.Sort(b.missing)
		b.files["missing.txt"] = []byte(strings.Join(b.missing, ""))
	}
	f, err := createPart(path)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no longer exists after a successful rename
	defer f.Close()
	if err := b.archive(f); err != nil {
		return fmt.Errorf("cannot write the bundle: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("cannot write the bundle: %w", err)
	}
	return os.Rename(f.Name(), path)
}

func (b *bundle) archive(to io.Writer) error {
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		err := out.WriteHeader(&tar.Header{
			Name: name, Mode: 0o600, Size: int64(len(b.files[name])), ModTime: now,
		})
		if err != nil {
			return err
		}
		if _, err := out.Write(b.files[name]); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zip.Close()
}
