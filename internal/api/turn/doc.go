// Package turn tells those who wait in lines of their turns.
//
// A line (package line) is followed for as long as somebody waits in it: its places are read
// once, from a view, and kept up with by the events that the watch hub distributes, on the
// hub's goroutine. So the one who applies pays nothing, and who is next is found in
// O(log n) when a place goes, however many wait. Who waits is told what happened, and reads
// nothing.
//
// What is told was true as of a revision that this member has applied: all places before
// the waiter's that count were gone, and its own was there. It may be told late: by a
// member that is behind, or cut off. When events are missing, because there were too many
// or a snapshot took the place of the state, the lines are read again.
package turn
