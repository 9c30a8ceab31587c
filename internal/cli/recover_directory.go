package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/rewind"
)

// lookAtDirectory reads the data of the member of this host, and learns from them where the others
// are, unless we are told.
func (r *recovery) lookAtDirectory() (err error) {
	if r.dataDir == "" {
		if len(r.lost) > 0 || r.member != "" {
			return badArgs("--lost and --member go with --data-dir")
		}
		return nil
	}
	if r.dir, err = rewind.Examine(r.dataDir); err != nil {
		return err
	}
	id := fmt.Sprintf("%x", r.dir.Member)
	if r.dir.Member != 0 && r.member != "" && r.member != r.dir.Name && r.member != id {
		return badArgs("%s is the data directory of %s (member %s), and not of %s: leave --member out",
			r.dir.Path, r.dir.Name, id, r.member)
	}
	known := r.dir.Run.ClientURLs
	if r.dir.Condition != rewind.Running {
		known = nil
	}
	for _, m := range r.dir.Members {
		known = append(known, m.ClientURLs...)
	}
	if !r.flags.set.Changed("endpoints") && len(known) > 0 {
		r.spec.Endpoints = known
	}
	return nil
}

// ofDirectory says what is wrong with the member of this host, and returns true if that is all
// there is to say.
func (r *recovery) ofDirectory() (told bool, err error) {
	d, serves := r.dir, r.cluster.failure == nil
	switch d.Condition {
	case rewind.Running:
		return r.ofRunning(serves)
	case rewind.Foreign, rewind.Newer:
		x := newDisaster(cause.ForeignData, "this release does not run on the data directory",
			d.Path+": "+d.Why.Error())
		if d.Condition == rewind.Newer {
			x.Cause = cause.TooOld
			x.on("here", "start the member with the release that wrote them, or a later one")
		} else {
			x.on("here", "give the right --data-dir")
		}
		r.found = append(r.found, x)
		return !serves, nil
	case rewind.HalfRestored:
		r.found = append(r.found, r.halfRestored())
		return !serves, nil
	}
	if serves && r.ofAnother() {
		return true, nil
	}
	switch d.Condition {
	case rewind.Sound:
		if !serves {
			x, err := r.survivor()
			r.found = append(r.found, x)
			return true, err
		}
		r.sound()
		return false, nil
	}
	if serves {
		return false, r.lostData()
	}
	r.found = append(r.found, r.allLost())
	return true, nil
}

// knowsMember refuses a name of which the cluster knows no member.
func (r *recovery) knowsMember(serves bool) error {
	if serves && r.member != "" && !slices.ContainsFunc(r.cluster.Members, func(x *memberState) bool {
		return x.is(r.member)
	}) {
		return badArgs("the cluster has no member %q", r.member)
	}
	return nil
}

// halfRestored says how to go on after a restore that was cut off, ours perhaps.
func (r *recovery) halfRestored() *disaster {
	path := shellWord(r.dir.Path)
	x := newDisaster(cause.HalfRestored, "a restore into the data directory was cut off", r.dir.Path)
	x.on("here", "mv %s %s.cut-off", path, path)
	if kept := r.dir.Kept(); kept != "" {
		x.on("here", "mv %s %s  # and call recover again", shellWord(kept), path)
	} else {
		x.on("here", "restore the backup again")
	}
	return x
}

// ofAnother reports whether the directory says that it is of another cluster than the one that
// serves: nothing is then done to either.
func (r *recovery) ofAnother() bool {
	own := fmt.Sprintf("%x", r.dir.Cluster)
	if r.dir.Cluster == 0 || own == r.cluster.Cluster {
		return false
	}
	d := newDisaster(cause.OtherCluster, "the data are of another cluster", fmt.Sprintf("%s is of "+
		"cluster %s, and cluster %s answers: nothing is done to either", r.dir.Path, own,
		r.cluster.Cluster))
	if r.dir.Condition == rewind.Running {
		d.What = "the data directory is in use by a member of another cluster"
		d.Facts = append(d.Facts, r.user())
	}
	d.first("whether these are the right --endpoints, and the right --data-dir")
	r.found = append(r.found, d)
	return true
}

// memberOf returns the member that the directory belongs to, as the cluster knows it; nil if it
// knows none. Data that do not say it may be of the only member that does not answer.
func (r *recovery) memberOf() (*memberState, error) {
	var silent []*memberState
	for _, x := range r.cluster.Members {
		switch {
		case r.dir.Member != 0 && x.id == r.dir.Member,
			r.dir.Member == 0 && r.member != "" && x.is(r.member):
			return x, nil
		case x.Error != "":
			silent = append(silent, x)
		}
	}
	switch {
	case r.dir.Member != 0:
		return nil, nil
	case r.member != "":
		return nil, r.knowsMember(true)
	case len(silent) == 0:
		return nil, nil
	case len(silent) > 1:
		return nil, badArgs("several members do not answer, and %s does not say which one it "+
			"belongs to: name it with --member", r.dir.Path)
	}
	return silent[0], nil
}

// is reports whether a member has this name or ID.
func (x *memberState) is(name string) bool { return x.Name == name || x.ID == name }

// sound says what to do with sound data while the cluster serves.
func (r *recovery) sound() {
	x, _ := r.memberOf() // the data say whose they are
	r.own = x
	switch {
	case x == nil:
		d := newDisaster(cause.Removed, "the member was removed",
			fmt.Sprintf("%s is of member %x (%s), which the cluster has removed: its data are of no "+
				"more use", r.dir.Path, r.dir.Member, r.dir.Name))
		r.moveAway(d)
		d.on("here", "to be a member again: leasehold serve --join %s, and its other flags of before",
			r.endpointsOf())
		d.act = r.replace
		r.found = append(r.found, d)
	case slices.Contains(r.cluster.alarmed["CORRUPT"], x.id):
		r.toReplaceHere(x, cause.StatesDiffer, "the data of the member are damaged",
			"alarm CORRUPT: the state of "+nameOf(x)+" differs from that of the majority")
	case x.Error == "":
		d := newDisaster(cause.CopiedData, "another process runs as this member",
			fmt.Sprintf("%s answers, and no process has %s open: one of two data directories is a copy",
				nameOf(x), r.dir.Path))
		d.first("which process that is, and which directory it runs on: never start a second one")
		r.found = append(r.found, d)
	default:
		r.found = append(r.found, r.stopped(x))
	}
}

// doubts says what may keep a directory that is sound from being of use: why the member has
// stopped, or its disk is full.
func (r *recovery) doubts(d *disaster) {
	if run := &r.dir.Run; run.Cause != "" {
		d.Facts = append(d.Facts, fmt.Sprintf("it stopped at %s, %s: %s",
			run.Stopped.Format(time.RFC3339), run.Cause, run.Text))
	}
	if r.dir.Free < r.dir.Reserve {
		d.Facts = append(d.Facts, fmt.Sprintf("its disk has %s free: the member refuses writes "+
			"when it cannot reserve %s for its log", siBytes(int64(r.dir.Free)),
			siBytes(int64(r.dir.Reserve))))
		d.makeDiskRoom("here, first")
	}
}

// lostData says what to do with a member whose data are lost or useless while the cluster serves.
func (r *recovery) lostData() error {
	x, err := r.memberOf()
	if err != nil {
		return err
	}
	r.own = x
	is := map[rewind.Condition]struct {
		code cause.Code
		what string
	}{
		rewind.Empty:      {cause.DiskLost, "the disk of the member is lost"},
		rewind.Stateless:  {cause.NoState, "the member has no state"},
		rewind.Damaged:    {cause.Damaged, "the data of the member are damaged"},
		rewind.RolledBack: {cause.RolledBack, "the data of the member are an older copy"},
	}[r.dir.Condition]
	switch {
	case r.dir.Condition == rewind.Empty && x == nil:
		r.notes = append(r.notes, r.dir.Path+" has no data, and all members answer: it is that of a "+
			"member to be, or not the right --data-dir")
		return nil
	case r.dir.Condition == rewind.Stateless && x != nil:
		d := newDisaster(is.code, is.what, r.dir.Why.Error())
		d.on("here", "start it as always: it goes on to join")
		r.found = append(r.found, d)
		return nil
	case r.dir.Condition == rewind.Empty:
		r.toReplaceHere(x, is.code, is.what, r.dir.Path+" has no data, and "+nameOf(x)+
			" does not answer")
	default:
		r.toReplaceHere(x, is.code, is.what, fmt.Sprintf("%s: %v", r.dir.Path, r.dir.Why))
	}
	return nil
}

// allLost is what to say if the data of this host are of no use, and no others serve.
func (r *recovery) allLost() *disaster {
	why := r.dir.Path + " has no data"
	if r.dir.Why != nil {
		why = fmt.Sprintf("%s: %v", r.dir.Path, r.dir.Why)
	}
	d := newDisaster(cause.NoData, "no data are left here, and no majority answers", why,
		readable(r.cluster.failure.Error()))
	if kept := r.dir.Kept(); kept != "" && r.dir.Condition == rewind.Empty {
		path, room := shellWord(r.dir.Path), ""
		if _, err := os.Stat(r.dir.Path); err == nil {
			room = "rmdir " + path + " && "
		}
		d.Facts = append(d.Facts, kept+" was moved away from there")
		d.on("here", "%smv %s %s  # and call recover again", room, shellWord(kept), path)
		return d
	}
	d.first("the other members (--endpoints): with a majority of them nothing is lost, and recover, " +
		"called again, replaces this one")
	d.on("each host with sound data", "leasehold recover --data-dir DIR  # says what can be done")
	d.on("here, if there is none", "leasehold backup list --from TARGET")
	d.on("here, if there is none", "leasehold backup restore --from TARGET --data-dir NEW-DIR "+
		"--name NAME --initial-advertise-peer-urls URL  # or snapshot restore FILE")
	return d
}

// stateOf is what a data directory knows of a member.
func stateOf(m rewind.Member) *memberState {
	x := &memberState{
		Name: m.Name, ID: fmt.Sprintf("%x", m.ID), id: m.ID, Role: "voter", peers: m.PeerURLs,
	}
	if m.Learner {
		x.Role = "learner"
	}
	if len(m.ClientURLs) > 0 {
		x.url = m.ClientURLs[0]
	}
	_, x.Endpoint, _ = strings.Cut(x.url, "://")
	return x
}

// peersOf are the other members that the directory knows, and which of them answer.
func (r *recovery) peersOf() (self *memberState, others []*memberState) {
	var wg sync.WaitGroup
	for _, m := range r.dir.Members {
		x := stateOf(m)
		if m.ID == r.dir.Member {
			self = x
			continue
		}
		others = append(others, x)
		wg.Go(func() {
			if r.answers(append(slices.Clone(m.PeerURLs), m.ClientURLs...)) == "" {
				x.Error = "it answers at none of its addresses"
			}
		})
	}
	wg.Wait()
	return self, others
}

// survivor says what to do with sound data if no majority serves.
func (r *recovery) survivor() (*disaster, error) {
	self, others := r.peersOf()
	if self == nil {
		d := newDisaster(cause.Removed, "the member was removed",
			r.dir.Path+": its own state does not name it")
		d.on("each other host with data", "leasehold recover --data-dir DIR")
		return d, nil
	}
	voters, here := 0, 0
	for _, x := range append(others, self) {
		if x.Role == "voter" {
			voters++
			if x.Error == "" {
				here++
			}
		}
	}
	if here > voters/2 {
		d := newDisaster(cmp.Or(r.dir.Run.Cause, cause.NotRunning), "the member does not run",
			fmt.Sprintf("%s is sound, up to revision %d, and "+
				"with it a majority is there: nothing is lost", r.dir.Path, r.dir.Revision))
		r.doubts(d)
		d.on("here", "start it as always")
		return d, r.refuseLost(others, voters)
	}
	d := newDisaster(cause.NoMajority, "the majority is lost, or out of reach",
		fmt.Sprintf("with this member %d of %d voters are there, and %d are needed", here, voters,
			voters/2+1),
		fmt.Sprintf("%s is sound, and has the data of %s up to revision %d (entry %d of term %d of the "+
			"log)", r.dir.Path, self.Name, r.dir.Revision, r.dir.Index, r.dir.Term),
		"what was acknowledged after that is not here: with a majority back it is there, and without "+
			"one it is lost")
	r.doubts(d)
	r.beforeLoss(d, others)
	if len(r.lost) == 0 {
		d.on("here, only if they are lost for good", "leasehold recover --data-dir %s --lost NAME,NAME "+
			"--yes  # names them, and makes a new cluster of what is here", shellWord(r.dir.Path))
		return d, nil
	}
	r.newClusterSteps(d, self, others)
	return d, r.refuseLost(others, voters)
}

// beforeLoss says what to look at before members are given up.
func (r *recovery) beforeLoss(d *disaster, others []*memberState) {
	for _, x := range others {
		if x.Error != "" {
			d.first("%s, at %s: whether its host runs, what is in the way (network, firewall, expired "+
				"certificates), whether its process runs and its disk is there: brought back, it has lost "+
				"nothing", x.Name, strings.Join(x.urls(), " and "))
		}
	}
	d.first("each other host with sound data: leasehold recover --data-dir DIR says how far they " +
		"go; use those of the highest term, and of these those with the highest entry")
	d.first("the backups: leasehold backup list --from TARGET says whether they go further")
}

// newClusterSteps says how the cluster begins anew with the data of this host.
func (r *recovery) newClusterSteps(d *disaster, self *memberState, others []*memberState) {
	r.moveAway(d)
	d.own("make %s that of a cluster of %s alone, with all its keys and leases: later tokens and "+
		"revisions are above all that can have been told, and the other members are removed",
		r.dir.Path, self.Name)
	d.on("here, then", "%s  # with its other flags of before", r.serve(self, r.dir.Path))
	for _, x := range others {
		d.on("the host of "+nameOf(x), "move the data directory away, and keep it; then %s --join %s",
			r.serve(x, "DIR"), cmp.Or(self.url, self.Endpoint))
	}
	d.act = r.forceNewCluster
}

// refuseLost says why members that are called lost must not be given up.
func (r *recovery) refuseLost(others []*memberState, voters int) error {
	if len(r.lost) == 0 {
		return nil
	}
	given := 0
	for _, name := range r.lost {
		i := slices.IndexFunc(others, func(x *memberState) bool { return x.is(name) })
		if i < 0 {
			return badArgs("--lost %s: there is no other member of this name or ID", name)
		}
		if others[i].Role == "voter" {
			given++
		}
	}
	for _, x := range others {
		if x.Error == "" {
			return badArgs("%s answers at %s: it is not lost. Bring the others back, or stop it, too, "+
				"and begin with the data that go further", x.Name, r.answers(x.urls()))
		}
	}
	if voters-given > voters/2 {
		return badArgs("--lost names %d of %d voters: the others are a majority, and lose nothing when "+
			"they are started", given, voters)
	}
	return nil
}

// forceNewCluster makes the new cluster.
func (r *recovery) forceNewCluster(d *disaster) error {
	now, err := rewind.Examine(r.dir.Path) // a member may have been started meanwhile
	if err != nil {
		return err
	}
	if now.Condition != rewind.Sound || now.Index != r.dir.Index {
		return errors.New("the data directory has changed meanwhile: call recover again")
	}
	kept, err := now.ForceNewCluster(time.Now())
	if err != nil {
		return err
	}
	d.did("moved %s to %s", r.dir.Path, kept)
	d.did("made a cluster of one member in %s, with the state up to revision %d", r.dir.Path,
		now.Revision)
	d.did("began a new history: with --backup-to it needs another directory or prefix than before")
	return nil
}
