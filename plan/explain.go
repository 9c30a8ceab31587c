package plan

import (
	"fmt"
)

// Explain describes the outage in sentences, with its numbers.
func (o Outage) Explain() []string {
	i := o.Issuer
	out := []string{
		fmt.Sprintf("A holder that dies is replaced after %v at the longest, %v on average, "+
			"while the issuer is well.", rounded(o.Alone), rounded(o.Typical)),
	}
	if i.Recovery > 0 {
		out = append(out, fmt.Sprintf("If the issuer fails at the worst moment too, and takes %v, "+
			"it is %v at the longest.", i.Recovery, rounded(o.Worst)), o.forgets())
	}
	out = append(out, fmt.Sprintf("The holder itself stops %v after it sent the last renewal that "+
		"was acknowledged, before anybody else can hold.", rounded(o.Valid)))
	if o.Noted() {
		often := fmt.Sprintf("at a third, every %v", rounded(o.Holder.TTL/3))
		if o.Holder.TTL/3+o.Holder.RoundTrip >= i.Checkpoint {
			often = fmt.Sprintf("every %v", rounded(i.Checkpoint/2))
		}
		out = append(out,
			fmt.Sprintf("SELDOM: with its round trip a renewal may come %v after the one before, and "+
				"this service notes silence after %v, so each renewal costs a log entry: renew %s.",
				rounded(o.Holder.Renew+o.Holder.RoundTrip), rounded(i.Checkpoint), often))
	}
	switch attempts := attemptsText(o.Attempts); {
	case o.HealthyLose():
	case o.Survivable < 0:
		return append(out, fmt.Sprintf("Healthy holders outlive no failure of the issuer, however "+
			"short: %s fit into a lease.", attempts))
	default:
		return append(out,
			fmt.Sprintf("Healthy holders outlive a failure of the issuer: it may take "+
				"up to %v, and %s fit into a lease.", rounded(o.Survivable), attempts))
	}
	worse := "lose their leases"
	if i.Refreshes && !o.Noted() {
		worse = "must stop (their leases are still theirs: the issuer refreshes them)"
	}
	text := fmt.Sprintf("TOO SHORT: healthy holders %s when the issuer fails, %v too early, "+
		"although nothing is wrong with them.", worse, rounded(-o.Slack))
	if s := o.ShortestTTL(); s > 0 {
		text += fmt.Sprintf(" Take a lease of at least %v", roundedUp(s))
		if o.Survivable > 0 {
			text += fmt.Sprintf(", or an issuer that is back within %v", rounded(o.Survivable))
		}
		text += "."
	}
	return append(out, text)
}

// forgets describes what a failure of the issuer does to the lease of a dead holder.
func (o Outage) forgets() string {
	i := o.Issuer
	switch {
	case !i.Refreshes:
		return "Each further failure as the lease ends adds its recovery."
	case i.Checkpoint == 0 && i.Untended == 0:
		return fmt.Sprintf("The issuer refreshes all leases when it is back: each further failure "+
			"adds %v more, without end.", rounded(o.Holder.TTL+i.Recovery))
	}
	return fmt.Sprintf("The issuer notes silence after %v; failures after that do not lengthen the "+
		"lease of a dead holder, they only add their recovery if they come as it ends.",
		rounded(i.Silence(o.Holder.TTL)))
}
