package listen

// crowd counts a call that waits, and refuses calls if all together cost too much.
func (a *account) crowd(w *waiter, cost int64) {
	all := a.all
	all.mu.Lock()
	defer all.mu.Unlock()
	if w.debt != nil || a.closed {
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
	a.lineUpLocked()
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
