package keeper

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// utc is a schedule that uses UTC, unless it names a time zone.
type utc struct{ cron.Schedule }

// Next implements cron.Schedule.
func (s utc) Next(after time.Time) time.Time { return s.Schedule.Next(after.UTC()) }

// parseSchedule parses a cron schedule: five fields, or a shorthand such as @daily or @every 1h.
func parseSchedule(text string) (cron.Schedule, error) {
	s, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a schedule in cron syntax, such as \"0 3 * * *\", "+
			"@daily or \"@every 6h\": %w", text, err)
	}
	if s.Next(time.Unix(0, 0).UTC()).IsZero() {
		return nil, fmt.Errorf("the schedule %q never fires", text)
	}
	return utc{s}, nil
}
