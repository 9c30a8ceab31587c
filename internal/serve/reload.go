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

// reloadable lists the settings that take effect when the file is reloaded. All other settings take
// effect at the next start.
var reloadable = []string{"log-level", "log-format"}

// reloader reloads the files of a running member.
type reloader struct {
	args, env []string
	running   *flags // as read at the start or at the last reload
	log       *processLog
	serving   atomic.Bool // until it is set, systemd must not be notified of a reload
	// member lets the member reload its own files. It is nil until there is a member.
	member atomic.Pointer[func()]
}

// onHangup reloads the files at each SIGHUP until stop is called.
func (r *reloader) onHangup() (stop func()) {
	hangups := make(chan os.Signal, 1) // a pending signal covers all later ones
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

// reload applies changes made to the files.
func (r *reloader) reload() {
	if r.running.configFile != "" {
		r.reloadConfig()
	}
	if again := r.member.Load(); again != nil {
		(*again)()
	}
}

// reloadConfig applies changes made to the configuration file, if it is valid. It logs which
// changes need a restart.
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
	// Update only these two settings. The others keep their startup values, so each reload logs the
	// changes that require a restart.
	r.running.log.level, r.running.log.format = now.log.level, now.log.format
	r.log.Info("reloaded the configuration file", "file", path,
		"changed", strings.Join(changed, " "))
	if len(later) > 0 {
		r.log.Warn("some changed settings take effect only after a restart", "file", path,
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
