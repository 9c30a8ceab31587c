package listen

// crowd counts a call that waits, and refuses calls if all together cost too much.
func (a *account) crowd(w *waiter, cost int64) {
	all := a.all
	all.mu.Lock()
	defer all.mu.Unlock()
	if w.reserved != nil || a.closed {
		return // it waits no more
	}
	all.crowds[a] = struct{}{}
	w.cost = min(cost, maxWaiting)
	a.waits += w.cost
	all.waits += w.cost
	if all.waits <= maxWaiting {
		return
	}
	for all.waits > maxWaiting {
		all.largestLocked().refuseLocked()
	}
	all.grantLocked() // smaller ones may have come to the front
}

// largestLocked returns the account whose calls that wait cost most.
func (all *Answers) largestLocked() (largest *account) {
	for a := range all.crowds {
		if largest == nil || a.waits > largest.waits {
			largest = a
		}
	}
	return largest
}

// refuseLocked refuses the newest call that waits.
func (a *account) refuseLocked() {
	for at := a.waiting.Back(); at != nil; at = at.Prev() {
		if w := at.Value.(*waiter); w.cost > 0 {
			a.removeLocked(w)
			w.crowded = true
			close(w.granted)
			break
		}
	}
	a.queueLocked()
	if a.all.crowded.Over(unreadPause) {
		go a.tellCrowd(a.waiting.Len())
	}
}

// tellCrowd tells the log, for which nobody waits.
func (a *account) tellCrowd(waiting int) {
	remote := ""
	if a.conn != nil {
		remote = a.conn.RemoteAddr().String()
	}
	a.all.log.Warn("refused a call: too many wait until clients read answers, and this connection "+
		"has most of them; it should read answers as they come, and have fewer calls under way",
		"remote", remote, "waiting", waiting)
}

// removeLocked takes w out of those that wait.
func (a *account) removeLocked(w *waiter) {
	a.waiting.Remove(w.place)
	a.waits -= w.cost
	a.all.waits -= w.cost
	w.cost = 0
	if a.waits == 0 {
		delete(a.all.crowds, a)
	}
}
