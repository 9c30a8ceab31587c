package serve

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/listen"
	"leasehold.dev/server"
)

// urls is a flag that holds a comma-separated list of URLs.
type urls struct{ to *[]url.URL }

// String implements flag.Value.
func (v urls) String() string {
	if v.to == nil {
		return ""
	}
	return listen.JoinURLs(*v.to)
}

// Set implements flag.Value. As in etcd, the last of several values wins.
func (v urls) Set(s string) (err error) {
	*v.to, err = listen.ParseURLs(s)
	return err
}

// list is a flag that holds a comma-separated list of words.
type list struct{ to *[]string }

// String implements flag.Value.
func (v list) String() string {
	if v.to == nil {
		return ""
	}
	return strings.Join(*v.to, ",")
}

// Set implements flag.Value.
func (v list) Set(s string) error {
	*v.to = nil
	for word := range strings.SplitSeq(s, ",") {
		if word = strings.TrimSpace(word); word != "" && !slices.Contains(*v.to, word) {
			*v.to = append(*v.to, word)
		}
	}
	return nil
}

// endpoints is a flag that holds a comma-separated list of client addresses.
type endpoints struct{ list }

// Set implements flag.Value.
func (v endpoints) Set(s string) error {
	normal, err := endpoint.Normalize(strings.Split(s, ","))
	if err != nil {
		return err
	}
	return v.list.Set(strings.Join(normal, ","))
}

// millis is a flag that accepts a number of milliseconds, as in etcd, or a duration with a unit.
type millis struct{ to *time.Duration }

// String implements flag.Value.
func (v millis) String() string {
	if v.to == nil {
		return ""
	}
	return strconv.FormatInt(v.to.Milliseconds(), 10)
}

// Set implements flag.Value.
func (v millis) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/int64(time.Millisecond) {
			return errors.New("it is out of range")
		}
		*v.to = time.Duration(n) * time.Millisecond
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("it is neither a number of milliseconds nor a duration such as 150ms")
	}
	*v.to = d
	return nil
}

// seconds is a flag that accepts a number of seconds, as in etcd, or a duration with a unit.
type seconds struct{ to *time.Duration }

// String implements flag.Value.
func (v seconds) String() string {
	if v.to == nil {
		return ""
	}
	return strconv.FormatInt(int64(*v.to/time.Second), 10)
}

// Set implements flag.Value.
func (v seconds) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/int64(time.Second) {
			return errors.New("it is out of range")
		}
		*v.to = time.Duration(n) * time.Second
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("it is neither a number of seconds nor a duration such as 5m")
	}
	*v.to = d
	return nil
}

// streams is a flag that holds a uint32. The maximum is shown as a name rather than a number.
type streams struct{ to *uint32 }

// String implements flag.Value.
func (v streams) String() string {
	if v.to == nil || *v.to == math.MaxUint32 {
		return "math.MaxUint32"
	}
	return strconv.FormatUint(uint64(*v.to), 10)
}

// Set implements flag.Value.
func (v streams) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return errors.New("it is not a number from 0 to 4294967295")
	}
	*v.to = uint32(n)
	return nil
}

// members is the value of --initial-cluster.
type members struct{ to *map[string][]url.URL }

// String implements flag.Value.
func (v members) String() string {
	if v.to == nil {
		return ""
	}
	var s []string
	for _, name := range slices.Sorted(maps.Keys(*v.to)) {
		for _, u := range (*v.to)[name] {
			s = append(s, name+"="+u.String())
		}
	}
	return strings.Join(s, ",")
}

// Set implements flag.Value.
func (v members) Set(s string) (err error) {
	*v.to, err = parseCluster(s)
	return err
}

// parseCluster parses NAME=URL,NAME=URL,... A name can occur several times if the member has
// several URLs.
func parseCluster(s string) (map[string][]url.URL, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	texts := make(map[string][]string)
	for part := range strings.SplitSeq(s, ",") {
		name, u, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.TrimSpace(u) == "" {
			return nil, fmt.Errorf("%q is not NAME=URL", part)
		}
		texts[name] = append(texts[name], u)
	}
	cluster := make(map[string][]url.URL, len(texts))
	owner := make(map[string]string) // by URL
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		us, err := listen.ParseURLs(strings.Join(texts[name], ","))
		if err != nil {
			return nil, err
		}
		for _, u := range us {
			if other, taken := owner[u.String()]; taken {
				return nil, fmt.Errorf("members %s and %s have the same URL %s", other, name, u.String())
			}
			owner[u.String()] = name
		}
		cluster[name] = us
	}
	return cluster, nil
}

// compaction returns the compaction settings. Without a retention flag, the default depends on the
// mode. In that case, periodic compaction also keeps a number of revisions, for clients whose
// watches rarely receive events.
func (f *flags) compaction() (server.Compaction, error) {
	if f.given["auto-compaction-retention"] {
		return parseCompaction(f.mode, f.retention)
	}
	c, err := parseCompaction(f.mode, "0")
	if err != nil {
		return c, err
	}
	c.Revisions = server.DefaultConfig().Compaction.Revisions
	if c.Mode == "periodic" {
		c.Period = server.DefaultConfig().Compaction.Period
	}
	return c, nil
}

// parseCompaction parses --auto-compaction-retention for the given mode according to etcd's rules.
// A bare number means hours or revisions. etcd would interpret a duration in revision mode as
// nanoseconds, but parseCompaction rejects it.
func parseCompaction(mode, retention string) (server.Compaction, error) {
	c := server.Compaction{Mode: mode}
	n, err := strconv.ParseInt(retention, 10, 64)
	bare := err == nil
	bad := func(why string) (server.Compaction, error) {
		return server.Compaction{}, fmt.Errorf("invalid value %q for --auto-compaction-retention: %s",
			retention, why)
	}
	switch {
	case c.Mode == "revision" && bare && n >= 0:
		c.Revisions = n
	case c.Mode == "revision":
		return bad("with --auto-compaction-mode=revision it must be a number of revisions")
	case c.Mode != "periodic":
		return server.Compaction{}, fmt.Errorf("invalid value %q for --auto-compaction-mode: "+
			"it must be periodic or revision", mode)
	case bare && n > int64(math.MaxInt64/time.Hour):
		return bad("the number of hours is out of range")
	case bare:
		c.Period = time.Duration(n) * time.Hour
	default:
		if c.Period, err = time.ParseDuration(retention); err != nil {
			return bad("it is neither a number of hours nor a duration such as 90m")
		}
	}
	if c.Period < 0 {
		return bad("it must not be negative")
	}
	return c, nil
}
