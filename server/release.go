package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
)

// These errors mean that a member needs another release. [New] and [Server.Run] return them. The
// data are unchanged: this release ignored what it does not know. Starting the member again does
// not help.
var (
	// ErrTooOld means that this release is too old for the member: a newer release has written
	// something into its data or the cluster's log that this one cannot read.
	ErrTooOld = errors.New("server: this release is too old for the data of this member")
	// ErrForeign means that this release does not speak the version of the member's cluster.
	ErrForeign = errors.New("server: this release does not speak the version of the cluster")
)

// errUnapplied is wrapped by what a member says that stops at an entry of the log.
var errUnapplied = errors.New("server: stopped, because of an entry that this release cannot apply")

// otherRelease says what to do when err is about another release. Other errors it leaves as they
// are.
func otherRelease(err error, dir string) error {
	switch {
	case errors.Is(err, encoding.ErrNewer):
		return fmt.Errorf("%w: a newer release wrote something that this release does not know. "+
			"Nothing was done, and the data in %s is unchanged. Start the member with the newer "+
			"release, which the other members run or ran (this is %s): "+
			"%w", ErrTooOld, dir, thisRelease(), err)
	case errors.Is(err, encoding.ErrOlder):
		return foreign(err, dir)
	default:
		return err
	}
}

// foreign says what to do when this release does not speak the cluster version, which why names.
func foreign(why error, dir string) error {
	return fmt.Errorf("%w. Nothing was done, and the data in %s is unchanged. Start the member "+
		"with a release that speaks it, as the other members do (this is %s; leasehold endpoint "+
		"status shows the others'): %w", ErrForeign, dir, thisRelease(), why)
}

func thisRelease() string {
	return fmt.Sprintf("release %s, for cluster versions %v", version.Version, version.Spoken)
}

// agree says why a member that opens a stream cannot be in a cluster with this one. Of the two the
// one whose cluster version was decided later knows it.
func (p *peers) agree(v transport.Visitor) error {
	own, its := p.core.view.Load(), version.Range(v.Formats)
	switch {
	case len(own.Members) == 0: // this member knows nothing yet
		return nil
	case v.Decided > own.Version.Decided:
		if p.versions.Has(v.Version) {
			return nil
		}
		err := fmt.Errorf("member %x says that the cluster version is %s", v.Member,
			version.Name(v.Version))
		p.removed(foreign(err, p.dir))
		return err
	case !its.Has(own.Version.Number):
		return fmt.Errorf("%w: that is %s, and member %x speaks %v", transport.ErrVersion,
			version.Name(own.Version.Number), v.Member, its)
	default:
		return nil
	}
}

// logVersion logs what was decided about the cluster version, and for whom it waits.
func (c *core) logVersion(old, v *fsm.View) {
	if old.Version.Number != v.Version.Number || old.Version.Held != v.Version.Held {
		c.log.Info("the cluster version has changed", "version", version.Name(v.Version.Number),
			"before", version.Name(old.Version.Number), "held-for-downgrade", v.Version.Held)
	}
	behind := v.Behind()
	if len(behind) > 0 && !slices.Equal(behind, old.Behind()) {
		c.log.Info("the cluster version waits for these members: start them with the newer "+
			"release, or remove them", "version", version.Name(v.Version.Number),
			"members", names(v, behind))
	}
}

// names are the members with these IDs as people know them: by their names, or their IDs while
// they have never started.
func names(v *fsm.View, ids []uint64) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		m, _ := v.Member(id)
		list[i] = cmp.Or(m.Name, fmt.Sprintf("%x", id))
	}
	return list
}

// clusterVersion is what this member says of the cluster version when it opens a stream.
func (p *peers) clusterVersion() (number uint8, decided uint64) {
	v := p.core.view.Load().Version
	return v.Number, v.Decided
}

// joinable says why a member of this release cannot join the cluster that d describes.
func (d description) joinable(c Config) error {
	if c.versions().Has(d.Version) {
		return nil
	}
	why := fmt.Errorf("cluster %x has version %s", d.Cluster, version.Name(d.Version))
	return foreign(why, c.DataDir)
}
