package sim

// checkCached checks C1: every pair that a cache returned was current at some time during the read.
// The times can differ between keys, and the returned revision may be older. If clocks exceed their
// bound, C1 is not promised, because the cache depends on its lease's validity.
func (f *facts) checkCached(op *Op, from, to int) {
	if !f.h.InBound {
		return
	}
	got, c := op.Answer.Range, op.Request.Range
	why := ""
	for n := from; n <= to; n++ {
		if why = differsRange(got.KVs, f.scanAt(c.Key, c.End, f.revisionOf(n))); why == "" {
			return
		}
	}
	f.violate(op.End, "C1", "operation %d of client %d read [%s,%s) from its cache, as of revision "+
		"%d, when the store was at %d: %s", op.ID, op.Client, c.Key, c.End, got.Revision,
		f.revisionOf(from), why)
}
