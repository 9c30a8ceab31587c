package serve

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
)

// reloadable are the settings that a reload of the file applies. All others take effect at the next
// start.
var reloadable = []string{"log-level", "log-format"}

// reloader reloads the files of a running member.
type reloader struct {
	args, env []string
	running   *flags // as read at the start, or the last time
	log       *processLog
	serving   atomic.Bool // before that, systemd must not be notified of a reload
	// member makes the member reload its files; nil before there is one.
	member atomic.Pointer[func()]
}

// onHangup reloads at each SIGHUP, until stop is called.
func (r *reloader) onHangup() (stop func()) {
	hangups := make(chan os.Signal, 1) // one pending signal covers later ones
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-hangups:
				notify := r.serving.Load()
				if notify {
					_, _ = daemon.SdNotify(false,
						daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
				}
				r.reload()
				if notify {
					_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(done)
		<-ended
	}
}

// reload applies changes in the files.
func (r *reloader) reload() {
	if r.running.configFile != "" {
		r.reloadConfig()
	}
	if again := r.member.Load(); again != nil {
		(*again)()
	}
}

// reloadConfig applies changes in the configuration file, if the file is valid. It logs the changes
// that need a restart.
func (r *reloader) reloadConfig() {
	path := r.running.configFile
	now := newFlags()
	if _, _, err := now.load(r.args, r.env, hostname()); err != nil {
		r.log.Error("cannot reload the configuration file: it is invalid; no settings were changed",
			"file", path, "error", err.Error())
		return
	}
	var changed, later []string
	now.fs.VisitAll(func(x *flag.Flag) {
		before, after := shown(r.running.fs.Lookup(x.Name)), shown(x)
		switch {
		case before == after:
		case slices.Contains(reloadable, x.Name):
			changed = append(changed, fmt.Sprintf("%s=%s", x.Name, after))
		default:
			later = append(later, x.Name)
		}
	})
	now.log.apply(r.log.style)
	// Changes that need a restart are logged at every reload, so the file is compared with the
	// values at the start.
	r.running.log.level, r.running.log.format = now.log.level, now.log.format
	r.log.Info("reloaded the configuration file", "file", path,
		"changed", strings.Join(changed, " "))
	if len(later) > 0 {
		r.log.Warn("changed settings take effect at the next start", "file", path,
			"settings", strings.Join(later, " "))
	}
}

// shown returns the value of a flag as text, even if the flag is ignored.
func shown(x *flag.Flag) string {
	if v, ok := x.Value.(*ignoredValue); ok && v.text != "" {
		return v.text
	}
	return x.Value.String()
}
