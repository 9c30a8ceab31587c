package cli

import (
	"cmp"
	"fmt"

	"leasehold.dev/internal/cause"
)

// user names the process that has the directory open. It has told who it is, unless it is none of a
// member, or one of an earlier release.
func (r *recovery) user() string {
	run := &r.dir.Run
	if r.dir.Member == 0 {
		return r.dir.Path + " is in use by another process"
	}
	return fmt.Sprintf("%s is in use by a member that runs: %s (member %s of cluster %s, process %d, "+
		"since %s)", r.dir.Path, readable(run.Name), run.Member, run.Cluster, run.Process,
		run.Started.Format("2006-01-02T15:04:05Z"))
}

// ofRunning says what is wrong with the member that runs on the directory, as far as the cluster
// does not tell it.
func (r *recovery) ofRunning(serves bool) (told bool, err error) {
	switch {
	case len(r.lost) > 0:
		return false, badArgs("%s: stop it before members are given up, or leave --lost out", r.user())
	case !serves:
		return false, nil // it is asked itself
	case r.ofAnother():
		return true, nil
	case r.dir.Member == 0:
		r.notes = append(r.notes, r.user())
		return false, r.knowsMember(serves)
	}
	x, _ := r.memberOf() // the run says whose it is
	if x == nil {
		d := newDisaster(cause.Removed, "a member runs that the cluster does not have", r.user())
		d.first("whether these are the right --endpoints: clients that ask this member are told of a " +
			"state that nobody else has")
		d.on("here", "stop it, and call recover again")
		r.found = append(r.found, d)
		return true, nil
	}
	r.notes = append(r.notes, r.user())
	return false, nil
}

// stopped says what to do with the sound data of a member that does not run, while the cluster
// serves.
func (r *recovery) stopped(x *memberState) *disaster {
	code := r.dir.Run.Cause
	d := newDisaster(cmp.Or(code, cause.NotRunning), "the member does not run", fmt.Sprintf("%s is "+
		"sound, and has the data of %s up to revision %d: %s", r.dir.Path, nameOf(x), r.dir.Revision,
		x.Error))
	r.doubts(d)
	switch code {
	case cause.TooOld, cause.VersionNotSpoken:
		d.on("here", "start it with the release that the other members run: leasehold endpoint status "+
			"--cluster shows it")
	case cause.LostData:
		d.first("whether the data that it had are in another directory: start it with those")
		d.on("here, if they are gone", "move %s away, and keep it; then %s  # with its other flags of "+
			"before", shellWord(r.dir.Path), r.rejoin(x))
	case cause.CopiedData:
		d.first("which other process has its identity, and which of the two directories is the copy: " +
			"never start both")
		d.on("here, if this is the copy", "do not start it again; to add a member, start with an empty "+
			"directory and --join %s", r.endpointsOf())
		d.on("here, if the other one is", "stop that, and start this one as always")
	default:
		d.on("here", "start it as always: it gets from the others what it has missed")
	}
	return d
}
