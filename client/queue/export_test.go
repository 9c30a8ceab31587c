package queue

// Lost returns how many races for items this queue has lost.
func (q *Queue) Lost() int64 { return q.lost.Load() }

// Crowd returns how many others there seem to be.
func (q *Queue) Crowd() int32 { return q.crowd.Load() }
