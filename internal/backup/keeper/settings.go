package keeper

import (
	"errors"
	"fmt"
	"time"

	"leasehold.dev/internal/backup/target"
)

// Settings configure where and when backups are made. All members have the same settings; the
// leader makes the backups.
type Settings struct {
	// To is a directory (a path, or file:///path) or a bucket with the S3 protocol
	// (s3://bucket/prefix?endpoint=https://host:port&region=name). The default is no backups.
	To string
	// Schedule determines when full backups are made, in cron syntax and UTC. The default is
	// @daily.
	Schedule string
	// Keep is how many full backups are kept, along with the log since the oldest. The default is
	// 7.
	Keep int
	// Interval is how often the log is copied. The default is 500 ms.
	Interval time.Duration
	// CredentialsFile contains the credentials for a bucket, like ~/.aws/credentials. By default
	// they are taken from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or from the
	// machine's role.
	CredentialsFile string
}

// DefaultSettings returns settings without backups.
func DefaultSettings() Settings {
	return Settings{Schedule: "@daily", Keep: 7, Interval: 500 * time.Millisecond}
}

// minInterval protects against a wrong unit, and so an object every millisecond.
const minInterval = 10 * time.Millisecond

// Check returns the first error in the settings. It does no I/O.
func (s Settings) Check() error {
	_, err := s.Config()
	return err
}

// Config returns the configuration of a Keeper with these settings.
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
