package queue

// Lost returns the number of races for items that q has lost.
func (q *Queue) Lost() int64 { return q.lost.Load() }

// Crowd returns the estimated number of competing workers.
func (q *Queue) Crowd() int32 { return q.crowd.Load() }
