package storage

import (
	"fmt"
)

func (m *image) damage(at int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d: %s", ErrCorrupt, m.name, at, fmt.Sprintf(format, args...))
}

// checkRest ensures that nothing after the cursor can belong to an acknowledged commit. An
// unfinished write leaves some of its own sectors among zeros or old sectors. If there is a later
// commit, or a sector with contents that were never written, an acknowledged commit was damaged.
// checkRest returns the end of the unfinished write, or the cursor's position if there is no such
// write.
func (m *image) checkRest(c cursor) (torn int64, err error) {
	torn = c.at
	for at := c.at; at < m.end(); at += sectorBytes {
		switch state, commit, first, content := m.sector(at); {
		case state == damaged:
			return 0, m.damage(at, "a sector has a wrong checksum")
		case state == own && first && at+frameBytes(frameLength(content)) > m.end():
			return 0, m.damage(m.end(), "the file is truncated")
		case state == own && commit != c.commit+1:
			return 0, m.damage(c.at, "commit %d is damaged, but a sector of commit %d exists at byte %d",
				c.commit+1, commit, at)
		case state == own:
			torn = at + sectorBytes
		}
	}
	return torn, nil
}
