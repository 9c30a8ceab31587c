package keeper

import (
	"errors"
	"fmt"
	"time"

	"leasehold.dev/internal/backup/target"
)

// Settings say where backups are kept, and when they are made. All members are told the same; the
// one that leads makes them.
type Settings struct {
	// To is a directory (a path, or file:///path) or a bucket that speaks S3
	// (s3://bucket/prefix?endpoint=https://host:port&region=name). Default "": no backups.
	To string
	// Schedule is when a backup of the whole state is made, in the form of cron and in UTC.
	// Default @daily.
	Schedule string
	// Keep is how many of them are kept, with the log since the oldest. Default 7.
	Keep int
	// Interval is how often the log is copied. Default 500 ms.
	Interval time.Duration
	// CredentialsFile has the credentials for a bucket, like ~/.aws/credentials. Default "": those of
	// the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or of the machine's role.
	CredentialsFile string
}

// DefaultSettings returns the settings of a member that makes no backups.
func DefaultSettings() Settings {
	return Settings{Schedule: "@daily", Keep: 7, Interval: 500 * time.Millisecond}
}

// minInterval keeps a mistaken unit from writing an object a millisecond.
const minInterval = 10 * time.Millisecond

// Check reports the first thing that is wrong. It does no I/O.
func (s Settings) Check() error {
	_, err := s.Config()
	return err
}

// Config returns what a Keeper is told of the settings.
func (s Settings) Config() (c Config, err error) {
	if c.Schedule, err = parseSchedule(s.Schedule); err != nil {
		return c, fmt.Errorf("--backup-schedule: %w", err)
	}
	if s.Keep < 1 {
		return c, errors.New("--backup-keep must be at least 1")
	}
	if s.Interval < minInterval {
		return c, fmt.Errorf("--backup-log-interval must be at least %v", minInterval)
	}
	c.Keep, c.Every = s.Keep, s.Interval
	if s.To == "" {
		return c, nil
	}
	c.Target, err = target.Open(s.To, s.CredentialsFile)
	if err != nil {
		return c, fmt.Errorf("--backup-to: %w", err)
	}
	return c, nil
}
