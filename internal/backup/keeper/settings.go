package keeper

import (
	"errors"
	"fmt"
	"time"

	"leasehold.dev/internal/backup/target"
)

// Settings contains the settings of server.Backup.
type Settings struct {
	To, Schedule    string
	Keep            int
	Interval        time.Duration
	CredentialsFile string
}

// DefaultSettings returns the default settings, with which no backups are made.
func DefaultSettings() Settings {
	return Settings{Schedule: "@daily", Keep: 7, Interval: 500 * time.Millisecond}
}

// minInterval guards against a wrong time unit, which could create an object every millisecond.
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
