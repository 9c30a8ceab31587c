package app

import (
	"time"

	"leasehold.dev/client"
)

const LastWord = lastWord

func (a *App) TellOutages(c *client.Client, limit time.Duration) { a.tellOutages(c, limit) }
