package lease

import "iter"

// Lessor holds every lease.
type Lessor struct{}

// State is what a Lessor recovers from.
type State struct {
	Leases                []Info
	LastToken, Generation uint64
}

// View is an immutable picture.
type View struct{}

// New returns an empty Lessor.
func New(Config) *Lessor { return &Lessor{} }

func (l *Lessor) Grant(t Terms) (Info, error)     { panic("stub") } //nolint
func (l *Lessor) Revoke(id ID) ([]string, error)  { panic("stub") } //nolint
func (l *Lessor) Expire(d Due) ([]string, bool)   { panic("stub") } //nolint
func (l *Lessor) Attach(id ID, key string) error  { panic("stub") } //nolint
func (l *Lessor) Detach(key string)               { panic("stub") } //nolint
func (l *Lessor) LeaseOf(key string) ID           { panic("stub") } //nolint
func (l *Lessor) Checkpoint(c []Checkpoint)       { panic("stub") } //nolint
func (l *Lessor) Recover(s State) error           { panic("stub") } //nolint
func (l *Lessor) Promote(now Instant, extend TTL) { panic("stub") } //nolint
func (l *Lessor) Demote()                         { panic("stub") } //nolint
func (l *Lessor) Advance(now Instant)             { panic("stub") } //nolint
func (l *Lessor) Renew(id ID) (Renewal, error)    { panic("stub") } //nolint
func (l *Lessor) Due(max int) []Due               { panic("stub") } //nolint
func (l *Lessor) Silent(max int) []Checkpoint     { panic("stub") } //nolint
func (l *Lessor) Reinstate(ids []ID)              { panic("stub") } //nolint
func (l *Lessor) Next() (Instant, bool)           { panic("stub") } //nolint
func (l *Lessor) Lookup(id ID) (Info, bool)       { panic("stub") } //nolint
func (l *Lessor) ByName(name string) (Info, bool) { panic("stub") } //nolint
func (l *Lessor) Remaining(id ID) (TTL, bool)     { panic("stub") } //nolint
func (l *Lessor) Keys(id ID) []string             { panic("stub") } //nolint
func (l *Lessor) Leases() iter.Seq[Info]          { panic("stub") } //nolint
func (l *Lessor) Len() int                        { panic("stub") } //nolint
func (l *Lessor) Attached() int                   { panic("stub") } //nolint
func (l *Lessor) Primary() bool                   { panic("stub") } //nolint
func (l *Lessor) Now() Instant                    { panic("stub") } //nolint
func (l *Lessor) View() View                      { panic("stub") } //nolint
func (v View) All() iter.Seq[Info]                { panic("stub") } //nolint
func (v View) Len() int                           { panic("stub") } //nolint
func (v View) State() State                       { panic("stub") } //nolint
