package plan

import (
	"fmt"
)

// Explain describes the outage in sentences that include its figures.
func (o Outage) Explain() []string {
	i := o.Issuer
	out := []string{
		fmt.Sprintf("A dead holder is replaced within %v, after %v on average, "+
			"while the issuer is up.", rounded(o.Alone), rounded(o.Typical)),
	}
	if i.Recovery > 0 {
		out = append(out, fmt.Sprintf("If the issuer also fails at the worst moment, for %v, "+
			"that takes up to %v.", i.Recovery, rounded(o.Worst)), o.issuerFailureText())
	}
	out = append(out, fmt.Sprintf("The holder itself stops %v after sending its last acknowledged "+
		"renewal, before anyone else can hold the lease.", rounded(o.Valid)))
	if o.Noted() {
		often := fmt.Sprintf("every %v, a third of the lease", rounded(o.Holder.TTL/3))
		if o.Holder.TTL/3+o.Holder.RoundTrip >= i.Checkpoint {
			often = fmt.Sprintf("every %v", rounded(i.Checkpoint/2))
		}
		out = append(out,
			fmt.Sprintf("TOO INFREQUENT: with the round trip, renewals may arrive %v apart, and this "+
				"service checkpoints a silent lease after %v, so each renewal costs a log entry. "+
				"Renew %s.",
				rounded(o.Holder.Renew+o.Holder.RoundTrip), rounded(i.Checkpoint), often))
	}
	switch {
	case o.HealthyLose():
	case o.Survivable < 0:
		return append(out, fmt.Sprintf("Healthy holders do not survive any issuer failure, "+
			"however short. Attempts to renew within a lease: %d.", o.Attempts))
	default:
		return append(out,
			fmt.Sprintf("Healthy holders survive an issuer outage of up to %v. "+
				"Attempts to renew within a lease: %d.", rounded(o.Survivable), o.Attempts))
	}
	text := fmt.Sprintf("TOO SHORT: healthy holders lose their leases %v too early when the issuer "+
		"fails.", rounded(-o.Slack))
	if i.Refreshes && !o.Noted() {
		text = fmt.Sprintf("TOO SHORT: healthy holders must stop %v too early when the issuer fails, "+
			"though it refreshes their leases.", rounded(-o.Slack))
	}
	if s := o.ShortestTTL(); s > 0 {
		text += fmt.Sprintf(" Use a lease of at least %v", roundedUp(s))
		if o.Survivable > 0 {
			text += fmt.Sprintf(", or an issuer that recovers within %v", rounded(o.Survivable))
		}
		text += "."
	}
	return append(out, text)
}

// issuerFailureText describes how a failure of the issuer affects a dead holder's lease.
func (o Outage) issuerFailureText() string {
	i := o.Issuer
	switch {
	case !i.Refreshes:
		return "Each further failure just before the lease ends adds its own recovery time."
	case i.Checkpoint == 0 && i.Untended == 0:
		return fmt.Sprintf("The issuer refreshes all leases when it recovers: each further failure "+
			"adds %v, without limit.", rounded(o.Holder.TTL+i.Recovery))
	}
	return fmt.Sprintf("The issuer checkpoints a silent lease after %v. Later failures do not "+
		"extend the lease of a dead holder; they add only their recovery time, if they happen "+
		"just before it ends.",
		rounded(i.Silence(o.Holder.TTL)))
}
