package recovery

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/dustin/go-humanize"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
)

// A kind is a disaster that recover can recognize. It specifies what to print and how to repair the
// cluster. The texts are templates. Their data is the evidence; everything else that was found is
// returned by functions (see templateFuncs).
type kind struct {
	code cause.Code // can be overridden by the evidence
	what string     // what has happened
	// says contains one line per item to print:
	//
	//	- what was found
	//	? what to check first
	//	> where :: what to do there
	//	! what --yes does on this host
	//
	// A line without a mark continues the previous line.
	says string
	act  func(*recovery, *disaster) error // performs the lines marked with !
}

// disasters contains every disaster that recover can recognize.
var disasters = map[string]kind{
	"expired certificates": {
		code: cause.CertificateExpired, what: "certificates have expired",
		says: `
		{{range expired}}
		- {{.Text}}
		{{end}}
		? the clock of this machine, which shows {{now}}
		{{if authority}}
		> every host :: a certificate authority has expired: create a new one, and add its certificate
			to each --trusted-ca-file, --peer-trusted-ca-file and --cacert, after the old one
		{{end}}
		{{range expired}}{{if .File}}
		> here :: replace {{.File}} and its key with a new certificate from your authority
		{{else}}
		> the host of {{.Address}} :: replace the files of {{.Flags}} with a new certificate for the
			same names, and its key: they are read at every handshake, so no restart is needed
		{{end}}{{end}}
		{{if selfSigned}}
		> every host with a self-signed certificate :: restart the member: it then creates a new one
			(--auto-tls, --peer-auto-tls)
		{{end}}
		> here :: leasehold recover  # again, once the members can reach each other`,
	},
	"several clusters": {
		code: cause.TwoClusters, what: "the endpoints belong to {{len clusters}} clusters",
		says: `
		{{range $id, $members := clusters}}
		- cluster {{printf "%x" $id}}: {{names $members}}
		{{end}}
		- recover changes none of them; a client with these endpoints may find a lock free in one
			cluster while it is held in another
		? which cluster you want to reach, and what --endpoints and environment variables contain
		{{range $id, $members := clusters}}
		> here :: leasehold recover --endpoints {{range $i, $x := $members}}{{if $i}},{{end}}
			{{- $x.Endpoint}}{{end}}  # of cluster {{printf "%x" $id}} only
		{{end}}
		> the host of a member that belongs in another cluster :: if it was started on an empty
			directory without --join, it has created its own cluster: stop it, move its data
			directory away, and keep it; then start it with --join ADDRESS --replace, where ADDRESS
			is that of a member of the right cluster`,
	},

	// Disasters detected in the data directory on this host.
	"another cluster": {
		code: cause.OtherCluster,
		what: "{{if running}}the data directory is in use by a member of another cluster" +
			"{{else}}the data is from another cluster{{end}}",
		says: `
		- {{dir.Path}} belongs to cluster {{printf "%x" dir.Cluster}}, but cluster
			{{cluster.Cluster}} responds: recover changes neither
		{{if running}}
		- {{user}}
		{{end}}
		? whether --endpoints and --data-dir are right`,
	},
	"a stranger runs": {
		code: cause.Removed, what: "a running member is not part of the cluster",
		says: `
		- {{user}}
		? whether --endpoints is right: clients of this member see a state that no other member has
		> here :: stop it, and run recover again`,
	},
	"too new": {
		code: cause.TooOld, what: "this release cannot use the data directory",
		says: `
		- {{dir.Path}}: {{dir.Why}}
		> here :: start the member with the release that wrote the data, or a later one`,
	},
	"foreign": {
		code: cause.ForeignData, what: "this release cannot use the data directory",
		says: `
		- {{dir.Path}}: {{dir.Why}}
		> here :: correct --data-dir`,
	},
	"half restored": {
		code: cause.HalfRestored, what: "a restore into the data directory was interrupted",
		says: `
		- {{dir.Path}}
		> here :: mv {{path}} {{path}}.cut-off
		{{with dir.Kept}}
		> here :: mv {{word .}} {{path}}  # then run recover again
		{{else}}
		> here :: restore the backup again
		{{end}}`,
	},
	"removed": {
		code: cause.Removed, what: "the member was removed",
		act: (*recovery).replace, says: `
		- {{dir.Path}} belongs to member {{printf "%x" dir.Member}} ({{dir.Name}}), which was removed
			from the cluster: its data is no longer needed` + moveAway + `
		> here :: to rejoin: leasehold serve --join {{endpoints}}, with its other flags as before`,
	},
	"differs here": {
		code: cause.StatesDiffer, what: "the member's data is damaged",
		act: (*recovery).replace, says: `
		- alarm CORRUPT: the state of {{name own}} differs from that of the majority` + replaceHere,
	},
	"runs elsewhere": {
		code: cause.CopiedData, what: "another process runs as this member",
		says: `
		- {{name own}} responds, but no process has {{dir.Path}} open: one of two data directories is a copy
		? which process that is, and which directory it uses: never start a second one`,
	},
	"not running": {
		code: cause.NotRunning, what: "the member is not running",
		says: `
		- {{dir.Path}} is sound, and has the data of {{name own}} up to revision {{dir.Revision}}:
			{{own.Error}}
		` + doubts + `
		{{if eq .Code "TOO_OLD" "VERSION_NOT_SPOKEN"}}
		> here :: start it with the release that the other members run: leasehold status shows it
		{{else if eq .Code "LOST_DATA"}}
		? whether its previous data is in another directory: if so, start it with that
		> here, if the data is gone :: move {{path}} away, and keep it; then {{rejoin own}}  # with its
			other flags as before
		{{else if eq .Code "COPIED_DATA"}}
		? which other process has its identity, and which of the two directories is the copy: never
			start both
		> here, if this is the copy :: do not start it again; to add a member, start one with an empty
			directory and --join {{endpoints}}
		> here, if the other one is the copy :: stop that one, and start this one as usual
		{{else}}
		> here :: start it as usual: it catches up from the others
		{{end}}`,
	},
	"disk lost": {
		code: cause.DiskLost, what: "the member's disk is lost",
		act: (*recovery).replace, says: `
		- {{dir.Path}} has no data, and {{name own}} does not respond` + replaceHere,
	},
	"no state": {
		code: cause.NoState, what: "the member has no state",
		act: (*recovery).replace, says: `
		- {{dir.Why}}
		{{if own}}
		> here :: start it as usual: it resumes joining
		{{else}}` + replaceHere + `{{end}}`,
	},
	"damaged": {
		code: cause.Damaged, what: "the member's data is damaged",
		act: (*recovery).replace, says: `
		- {{dir.Path}}: {{dir.Why}}` + replaceHere,
	},
	"rolled back": {
		code: cause.RolledBack, what: "the member's data is an older copy",
		act: (*recovery).replace, says: `
		- {{dir.Path}}: {{dir.Why}}` + replaceHere,
	},
	"unnamed": {
		code: cause.Removed, what: "the member was removed",
		says: `
		- {{dir.Path}}: its own state does not list this member
		> each other host with data :: leasehold recover --data-dir DIR`,
	},
	"majority stands": {
		code: cause.NotRunning, what: "the member is not running",
		says: `
		- {{dir.Path}} is sound, up to revision {{dir.Revision}}, and with this member there is a majority:
			nothing is lost
		` + doubts + `
		> here :: start it as usual`,
	},
	"survivor": {
		code: cause.NoMajority, what: "the majority is lost or unreachable",
		act: (*recovery).forceNewCluster, says: `
		- with this member {{available.Here}} of {{available.Voters}} voters are available, and
			{{available.Need}} are needed
		- {{dir.Path}} is sound, and has the data of {{self.Name}} up to revision {{dir.Revision}}
			(entry {{dir.Index}} of term {{dir.Term}} of the log)
		- it lacks every change acknowledged since then: if a majority can be brought back, those
			changes are still there; otherwise they are lost
		` + doubts + `
		{{range others}}{{if .Error}}
		? {{.Name}}, at {{addresses .}}: whether its host is up, whether it can be reached (network,
			firewall, expired certificates), whether its process runs and its disk is intact: if it can be
			brought back, it has lost nothing
		{{end}}{{end}}
		? each other host with sound data: leasehold recover --data-dir DIR shows how recent the
			data is; use the data with the highest term and, among those, the highest entry
		? the backups: leasehold backup list --from TARGET shows whether they are more recent
		{{if lost}}` + moveAway + `
		! make {{dir.Path}} a single-member cluster of {{self.Name}}, with all its keys and leases:
			later tokens and revisions are larger than any that were issued, and the other members are
			removed
		> here, then :: {{serve self dir.Path}}  # with its other flags as before
		{{range others}}
		> the host of {{name .}} :: move the data directory away, and keep it; then {{serve . "DIR"}}
			--join {{or self.URL self.Endpoint}}
		{{end}}
		{{else}}
		> here, only if they are lost for good :: leasehold recover --data-dir {{path}}
			--lost NAME,NAME --yes  # declares these members lost, and creates a new
			cluster from the data here
		{{end}}`,
	},
	"no data": {
		code: cause.NoData, what: "there is no data here, and no majority responds",
		says: `
		- {{dir.Path}}{{if dir.Why}}: {{dir.Why}}{{else}} has no data{{end}}
		- {{failure}}
		{{if and empty dir.Kept}}
		- {{dir.Kept}} was moved away from there
		> here :: {{if exists}}rmdir {{path}} && {{end}}mv {{word dir.Kept}} {{path}}  # then run
			recover again
		{{else}}
		? the other members (--endpoints): if a majority of them can be reached, nothing is lost, and
			running recover again replaces this one
		> each host with sound data :: leasehold recover --data-dir DIR  # shows what can be done
		> here, if there is none :: leasehold backup list --from TARGET
		> here, if there is none :: leasehold backup restore --from TARGET --data-dir NEW-DIR
			--name NAME --initial-advertise-peer-urls URL  # or snapshot restore FILE
		{{end}}`,
	},

	// Disasters of a cluster that is not serving.
	"silence": {
		code: cause.NoAnswer,
		what: `{{if eq .Code "NO_MAJORITY"}}no majority is responding{{else}}no member responds{{end}}`,
		says: runningHere + `
		- at the endpoints: {{failure}}
		{{range .All}}{{hint .}}{{end}}
		? whether these are the right endpoints (--endpoints)`,
	},
	"no leader": {
		code: cause.NotServing, what: "the cluster is not serving, though a majority responds",
		says: runningHere + `
		- {{failure}}
		? whether the members reach each other at their peer URLs (leasehold member list), and what
			their logs say`,
	},
	"minority": {
		code: cause.NoMajority, what: "no majority is responding",
		says: runningHere + `
		- {{votes.Here}} of {{votes.Voters}} voters respond, and {{votes.Need}} are needed: nothing is
			granted, renewed or expired, and holders stop when their leases end by their own clocks
		{{range .All}}{{hint .}}{{end}}
		> the host of each :: bring them back: with {{votes.Missing}} more, the cluster resumes,
			and nothing is lost`,
	},

	// Disasters reported by members and alarms.
	"over quota": {
		code: cause.QuotaUsedUp, what: "the quota is used up",
		act: (*recovery).makeRoom, says: `
		- alarm NOSPACE, raised by {{names .All}}: puts and grants are rejected; reads, renewals, deletes
			and revokes continue
		- the state uses {{size quota.Used}}, and the smallest quota is {{size quota.Quota}}
		! leasehold compaction REVISION  # the newest one: drops old versions of keys, but no keys or
			leases; watches that resume from an earlier revision have to start over
		! leasehold alarm disarm  # when the state uses seven eighths of the quota or less
		> here :: if that is not enough: leasehold del PREFIX --prefix, or leasehold lease revoke ID, for
			keys and leases that are no longer needed
		> every host, one after the other :: or raise the quota: start the member with
			--quota-backend-bytes={{quota.Twice}}, if it has the memory (leasehold doctor)`,
	},
	"disk full": {
		code: cause.DiskFull, what: "the disk is full",
		says: `
		- {{names .All}}: a follower forwards writes while it has some space; a leader rejects them;
			{{if gt votes.Here (len .All)}}the others have space and accept writes
			{{- else if gt (len cluster.Members) 1}}no member accepts writes
			{{- else}}no other member responds{{end}}
		- nothing is lost: reads, renewals, expiry, deletes, revokes and compaction continue in the
			space that a member reserves for them
		- this is not the quota, which limits the state in memory: raising it frees no disk space
		- writes resume automatically when there is space again, without a restart
		{{range .All}}
		> the host of {{name .}} :: ` + makeRoomOnDisk + `
		{{end}}`,
	},
	"copy runs": {
		code: cause.CopiedData, what: "a copy of a data directory is in use",
		says: `
		- {{name .X}} reports that another process with its identity was rejected in the last ten
			minutes: one of two data directories is a copy
		? the log of {{name .X}}, and on which host the second one was started; it may have exited,
			as a rejected process does
		> the host of the second process :: make sure that it is not started again, and remove its data
			directory; for another member, start with an empty one and --join`,
	},
	"reported": {
		code: cause.Reported, what: "a member reports a problem",
		says: `
		- {{name .X}}: {{.Text}}`,
	},
	"differs": {
		code: cause.StatesDiffer, what: "a member's data is damaged",
		says: `
		- alarm CORRUPT: the state of {{name .X}} differs from that of the majority, so it has stopped
			(exit code 8); the cluster serves without it
		> the host of {{name .X}} :: move the data directory away, and keep it
		> the host of {{name .X}} :: {{rejoin .X}}  # with its other flags as before`,
	},
	"split": {
		code: cause.Split, what: "the states of members differ",
		says: `
		- alarm CORRUPT, and no majority agrees, so it is unknown which state is right: writes are
			rejected
		> here :: leasehold endpoint hashkv --cluster  # shows which members agree
		{{range .All}}
		> here :: leasehold snapshot save {{word .Name}}.backup --endpoints {{.Endpoint}}  # then
			leasehold snapshot dump, to compare
		{{end}}
		> here :: leasehold member remove ID  # for each member whose state is wrong; this clears
			the alarm`,
	},
	"cut off": {
		code: cause.NoLeader, what: "a member is cut off from the others",
		says: `
		- {{name .X}} responds, but has no leader, while the others are serving
		? the peer URLs of the others (leasehold member list) from the host of {{name .X}}, and its own
			from theirs: network, firewall, certificates; its log shows the error`,
	},
	"silent": {
		code: cause.NoAnswer, what: "a member does not respond",
		says: `
		- {{name .X}} does not respond: {{.X.Error}}; the cluster serves without it
		{{hint .X}}
		> the host of {{name .X}} :: if its data is intact: start it as usual, and nothing is lost
		> the host of {{name .X}} :: if its disk is lost: {{rejoin .X}}  # with its other flags as
			before`,
	},
}

// Fragments shared by several texts.
const (
	moveAway = `
		! mv {{path}} {{path}}.before-recovery-TIME`
	makeRoomOnDisk = `make room on the disk of the data directory, or enlarge it: check (df, du) what
			else is on it, such as logs, backups, and directories *.before-recovery-* from earlier
			recoveries; remove nothing from the data directory itself`
	replaceHere = `
		- the cluster serves without it, and no data is lost
		{{if empty}}
		? whether {{dir.Path}} is the right directory, and its disk is mounted
		{{end}}
		{{if nameless}}
		? which member's directory {{dir.Path}} is: it contains no ID
		{{if own}}
		> here, only if it belongs to {{name own}} :: leasehold recover --endpoints {{endpoints}}
			--data-dir {{path}} --member {{word (or own.Name own.ID)}} --yes
		{{end}}
		{{else}}
		{{if own}}
		! leasehold member remove {{own.ID}}  # a member that has lost its data needs a new ID
		{{end}}
		{{if not empty}}` + moveAway + `
		{{end}}
		> here, then :: {{serve self dir.Path}} --join {{endpoints}}  # with its other flags as before, but
			not --initial-cluster
		{{end}}`
	doubts = `
		{{if dir.Run.Cause}}
		- it stopped at {{stamp dir.Run.Stopped}}, {{dir.Run.Cause}}: {{dir.Run.Text}}
		{{end}}
		{{if lt dir.Free dir.Reserve}}
		- its disk has {{bytes dir.Free}} free: the member rejects writes when it cannot reserve
			{{bytes dir.Reserve}} for its log
		> here, first :: ` + makeRoomOnDisk + `
		{{end}}`
	runningHere = `
		{{if running}}
		? {{user}}: pass its address with --endpoints; its data is examined only when it is stopped
		{{end}}`
)

// hints are things to check if a member does not respond.
var hints = map[cause.Code]string{
	cause.Refused: `
		? {{name .}}: its host responds, but no process is listening: check the last lines of the
			member's log, and start it; its data is probably intact`,
	cause.Hangs: `
		? {{name .}}: a process accepts connections, but does not respond to calls: check whether it is
			stopped or hung (disk, memory), and the last lines of its log; it has lost nothing
		> the host of {{name .}} :: stop the process first, with kill -9 if it does not exit: what it
			has acknowledged is on its disk, and a second process could not open its data`,
	cause.NoLeader: `
		? {{name .}}: it runs, and has lost nothing: logins need a majority, so it reports nothing else;
			bring the others back`,
	cause.CallFailed: `
		? {{name .}}: its host responds, but the call fails: {{.Error}}`,
	cause.NotAMember: `
		? {{name .}}: this is not a client port of a member, but perhaps its peer port: pass a client URL
			with --endpoints`,
	"": `
		? {{name .}}: {{.Error}}; check whether its host is up, and whether something blocks the connection
			(network, firewall, address): a member that is only unreachable has lost nothing`,
}

// Marks are recognized before templates insert any text, because that text could look like a mark.
var (
	markedLine = regexp.MustCompile(`\n\s*([-?>!]) `)
	otherLine  = regexp.MustCompile(`\n\s*`)
)

const lineBreak = "\x00"

// render executes a template from the table.
func (r *recovery) render(text string, data any) string {
	text = otherLine.ReplaceAllString(markedLine.ReplaceAllString(text, lineBreak+"$1 "), " ")
	var out strings.Builder
	t := template.Must(template.New("").Funcs(r.templateFuncs()).Parse(text))
	if err := t.Execute(&out, data); err != nil {
		panic(fmt.Sprintf("cli: cannot describe a disaster: %v", err)) // a bug in the table
	}
	return out.String()
}

// see adds a disaster to r.found.
func (r *recovery) see(name string, e evidence) {
	k := disasters[name]
	e.Code = cmp.Or(e.Code, k.code)
	d := &disaster{
		Cause: e.Code, What: r.render(k.what, e),
		Facts: []string{}, Check: []string{}, Steps: []step{}, Done: []string{},
	}
	for line := range strings.SplitSeq(r.render(k.says, e), lineBreak) {
		mark, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch mark {
		case "-":
			d.Facts = append(d.Facts, text)
		case "?":
			d.Check = append(d.Check, text)
		case ">":
			where, do, _ := strings.Cut(text, " :: ")
			d.Steps = append(d.Steps, step{where, do, false})
		case "!":
			d.Steps = append(d.Steps, step{"here", text, true})
			d.act = k.act
		}
	}
	r.found = append(r.found, d)
}

// templateFuncs returns the functions that templates can call to read and format the findings.
func (r *recovery) templateFuncs() template.FuncMap {
	return template.FuncMap{
		"cluster":   func() *cluster.State { return r.cluster },
		"clusters":  r.clusters,
		"endpoints": r.endpointsOf,
		"votes":     func() votes { return votesOf(r.cluster.Members) },
		"quota":     func() quotaUse { return useOf(r.cluster) },
		"failure": func() string {
			return app.Readable(app.RPCPrefix.ReplaceAllString(r.cluster.Failure.Error(), ""))
		},
		"now":     func() string { return stamp(time.Now()) },
		"expired": func() []badCertificate { return r.expired },
		"authority": func() bool {
			return slices.ContainsFunc(r.expired, func(c badCertificate) bool { return c.Authority })
		},
		"selfSigned": func() bool {
			return slices.ContainsFunc(r.expired, func(c badCertificate) bool { return c.SelfSigned })
		},

		"dir":       func() *rewind.Directory { return r.dir },
		"path":      func() string { return shellWord(r.dir.Path) },
		"exists":    func() bool { _, err := os.Stat(r.dir.Path); return err == nil },
		"running":   func() bool { return r.is(rewind.Running) },
		"empty":     func() bool { return r.is(rewind.Empty) },
		"nameless":  func() bool { return r.dir.Member == 0 && r.member == "" },
		"user":      r.user,
		"own":       func() *cluster.Member { return r.own },
		"self":      r.memberHere,
		"others":    func() []*cluster.Member { return r.others },
		"available": r.available,
		"lost":      func() []string { return r.lost },

		"name": nameOf, "names": namesOfMembers, "word": shellWord, "stamp": stamp,
		"size": size, "bytes": humanize.Bytes, "serve": r.serve, "rejoin": r.rejoin,
		"addresses": func(x *cluster.Member) string { return strings.Join(x.URLs(), " and ") },
		"hint": func(x *cluster.Member) string {
			return r.render(cmp.Or(hints[x.Cause], hints[""]), x)
		},
	}
}
