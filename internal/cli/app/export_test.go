package app

import (
	"time"

	"leasehold.dev/client"
)

const LastWord = lastWord

func (a *App) ReportOutages(c *client.Client, limit time.Duration) { a.reportOutages(c, limit) }
