package queue

// Lost returns how many races for items this queue has lost.
func (q *Queue) Lost() int64 { return q.lost.Load() }
