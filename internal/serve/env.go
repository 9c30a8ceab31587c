package serve

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// The prefixes of environment variables that set flags, most important first.
var envPrefixes = []string{"LEASEHOLD_", "ETCD_"}

// clientVariables lists variables that are not for members, without the prefix LEASEHOLD_. Client
// commands read them, or set them for the programs that they run. A member might be started from a
// shell in which they are set.
var clientVariables = []string{
	"ENDPOINTS", "WRITE_OUT", "HEX", "DEBUG", "DIAL_TIMEOUT", "COMMAND_TIMEOUT", "KEEPALIVE_TIME",
	"KEEPALIVE_TIMEOUT", "MAX_RECV_BYTES", "CACERT", "CERT", "KEY", "INSECURE_TRANSPORT",
	"INSECURE_SKIP_TLS_VERIFY", "USER", "PASSWORD", "AUTH_JWT_TOKEN", "DISCOVERY_SRV",
	"DISCOVERY_SRV_NAME", "INSECURE_DISCOVERY", "WATCH_KEY", "WATCH_RANGE_END",
	"TOKEN", "LEASE", "LOCK_KEY", "ITEM", "TRIES", "POOL_ID",
}

// readEnv sets flags that are not on the command line from env, which contains NAME=value entries
// as in [os.Environ]. It returns a warning for each variable that has our prefix but matches no
// flag. As in etcd, an empty variable counts as unset.
func (f *flags) readEnv(env []string) (warnings []string, err error) {
	values := make(map[string]string)
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok && value != "" {
			values[name] = value
		}
	}
	var errs []error
	f.fs.VisitAll(func(x *flag.Flag) {
		for _, prefix := range envPrefixes {
			name := envName(prefix, x.Name)
			value, ok := values[name]
			delete(values, name)
			// More important sources are processed first: the command line, then the other prefix.
			if ok && !f.given[x.Name] {
				errs = append(errs, f.set(x, value, name))
			}
		}
	})
	for name := range values {
		if _, word, _ := strings.Cut(name, "LEASEHOLD_"); slices.Contains(clientVariables, word) {
			continue
		}
		if strings.HasPrefix(name, "ETCD_") || strings.HasPrefix(name, "LEASEHOLD_") {
			warnings = append(warnings,
				fmt.Sprintf("variable %s does not match any flag of leasehold serve and is ignored", name))
		}
	}
	slices.Sort(warnings)
	return warnings, errors.Join(errs...)
}

// envName returns the variable that sets a flag, such as LEASEHOLD_DATA_DIR for data-dir.
func envName(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
