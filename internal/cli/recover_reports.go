package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"leasehold.dev/internal/cause"
)

// mixed reports whether the endpoints, or the addresses of members, are of several clusters, and
// says so: whichever answers first would be acted on.
func (r *recovery) mixed() bool {
	of := make(map[uint64][]*memberState)
	for _, x := range slices.Concat(r.cluster.Members, r.cluster.others) {
		if x.Error == "" && x.cluster != 0 {
			of[x.cluster] = append(of[x.cluster], x)
		}
	}
	if len(of) < 2 {
		return false
	}
	d := newDisaster(cause.TwoClusters, fmt.Sprintf("the endpoints are of %d clusters", len(of)))
	for _, id := range slices.Sorted(maps.Keys(of)) {
		var names, at []string
		for _, x := range of[id] {
			names, at = append(names, nameOf(x)), append(at, x.Endpoint)
		}
		d.Facts = append(d.Facts, fmt.Sprintf("cluster %x: %s", id, strings.Join(names, ", ")))
		d.on("here", "leasehold recover --endpoints %s  # of cluster %x alone", strings.Join(at, ","), id)
	}
	d.Facts = append(d.Facts, "nothing is done to any of them; a client with these endpoints finds "+
		"in one cluster a lock free that is held in the other")
	d.first("which of them is meant, in --endpoints, and in variables")
	d.on("the host of one that should be in the other cluster", "if it was started on an empty "+
		"directory without --join, it has founded a cluster of its own: stop it, move its data "+
		"directory away, and keep it; then start it with --join ADDRESS --replace, where ADDRESS is "+
		"of the right cluster")
	r.found = append(r.found, d)
	return true
}

// reporting are the members that report a cause.
func (s *clusterState) reporting(code cause.Code) []*memberState {
	return slices.DeleteFunc(slices.Clone(s.Members), func(x *memberState) bool {
		return !slices.ContainsFunc(x.reports, func(r selfReport) bool { return r.code == code })
	})
}

// fullDisks says what to do if members refuse writes because their disks have no room.
func (r *recovery) fullDisks() {
	full := r.cluster.reporting(cause.DiskFull)
	if len(full) == 0 {
		return
	}
	var names []string
	for _, x := range full {
		names = append(names, nameOf(x))
	}
	others := "no other member answers"
	if _, answer := r.cluster.voters(); len(answer) > len(full) {
		others = "the others have room, and take writes"
	} else if len(r.cluster.Members) > 1 {
		others = "no member takes writes"
	}
	d := newDisaster(cause.DiskFull, "the disk is full",
		strings.Join(names, ", ")+": a follower forwards writes while it has some room, a leader "+
			"refuses them; "+others,
		"nothing is lost: reads, renewals, ends of leases, deletes, revokes and compaction go on in "+
			"the space that a member keeps back for them",
		"this is not the quota, which bounds the state in memory: to raise it makes no room on a disk",
		"writes go on by themselves when there is room again, without a restart")
	for _, x := range full {
		d.makeDiskRoom("the host of " + nameOf(x))
	}
	r.found = append(r.found, d)
}

// makeDiskRoom says how to make room on the disk of a data directory.
func (d *disaster) makeDiskRoom(where string) {
	d.on(where, "make room on the disk of the data directory, or enlarge it: look (df, du) what else "+
		"is on it, such as logs, backups, and directories *.before-recovery-* of earlier times; in "+
		"the data directory itself remove nothing")
}

// reported says what members report of themselves.
func (r *recovery) reported() {
	r.fullDisks()
	for _, x := range r.cluster.reporting(cause.CopiedData) {
		d := newDisaster(cause.CopiedData, "a copy of a data directory is being run",
			nameOf(x)+" reports that another process with its identity was refused in the last ten "+
				"minutes: of two data directories one is a copy")
		d.first("the log of %s, and on which host a second one was started; it may be over: the process "+
			"that was refused stops", nameOf(x))
		d.on("the host of the second process", "see that it does not start again, and remove its data "+
			"directory; for another member start with an empty one, and --join")
		r.found = append(r.found, d)
	}
	for _, x := range r.cluster.Members {
		for _, t := range x.reports {
			if t.code != cause.DiskFull && t.code != cause.CopiedData {
				r.found = append(r.found, newDisaster(cmp.Or(t.code, cause.Reported),
					"a member reports something", nameOf(x)+": "+t.text))
			}
		}
	}
}
