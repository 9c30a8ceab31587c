package directory

// The backlog is work caused by acknowledgments and by the ends of leases. Many writes can be
// waiting for many caches. So one step processes at most Limits.Freed items, and leaves the rest to
// the next step, which follows immediately. Until then, ranges remain pending and writes wait, as
// if the acknowledgments had arrived later.

// processBacklog processes the backlog within the limit of a step.
func (d *Directory) processBacklog() {
	for d.done < d.limits.Freed {
		most := d.limits.Freed - d.done
		if by, writes := d.writes.takeFreed(most); len(writes) > 0 {
			d.done += len(writes)
			d.unblock(by, writes)
		} else if c := d.pending.nextAnswered(); c != nil {
			d.done += d.answer(c, most)
		} else {
			return
		}
	}
}

// answer removes acknowledged drops of a cache, no more than most, and returns how many it removed.
func (d *Directory) answer(c *cache, most int) (n int) {
	done := d.pending.takeAnswered(c, most, d.now)
	for _, x := range done {
		d.holds.lose(c, x.what)
	}
	d.free(c, done)
	if c.orphan {
		d.stop(c) // a single invalidation covered everything
	}
	d.expect(c)
	if len(c.drops) == 0 {
		d.unblockRenewers(c)
	}
	return len(done)
}

// free records that the given drops of a cache no longer block writes. processBacklog releases the
// writes.
func (d *Directory) free(c *cache, drops []*drop) {
	for _, x := range drops {
		if writes := d.pending.takeWrites(c, x); len(writes) > 0 {
			d.writes.free(c.id, writes)
		}
	}
}

// cancel removes the drops of a cache, so that no write waits for it.
func (d *Directory) cancel(c *cache) {
	d.free(c, d.pending.cancel(c))
	d.expect(c)
}

// Behind reports whether the last step left work that is due.
func (d *Directory) Behind() bool { return d.pending.behind() || len(d.writes.freed) > 0 }
