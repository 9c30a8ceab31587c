package target

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// keys are who asks an object store. They are never printed.
type keys struct{ id, secret, session string }

// credentials returns the keys. A file is read each time, so that it may be replaced.
func (b *bucket) credentials() (keys, error) {
	if b.file == "" {
		k := keys{
			b.getenv("AWS_ACCESS_KEY_ID"), b.getenv("AWS_SECRET_ACCESS_KEY"),
			b.getenv("AWS_SESSION_TOKEN"),
		}
		if k.id == "" || k.secret == "" {
			return keys{}, errors.New("there are no credentials; set AWS_ACCESS_KEY_ID and " +
				"AWS_SECRET_ACCESS_KEY, or give a file with --backup-credentials-file")
		}
		return k, nil
	}
	text, err := os.ReadFile(b.file)
	if err != nil {
		return keys{}, fmt.Errorf("read the credentials: %w", err)
	}
	k := parseKeys(string(text))
	if k.id == "" || k.secret == "" {
		return keys{}, fmt.Errorf("%s has no aws_access_key_id and aws_secret_access_key in its "+
			"section [default]", b.file)
	}
	return k, nil
}

// parseKeys reads a file of credentials as AWS's programs have it: its section "default".
func parseKeys(text string) (k keys) {
	section := "default"
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSpace(strings.TrimSuffix(name, "]"))
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		if section != "default" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "aws_access_key_id":
			k.id = value
		case "aws_secret_access_key":
			k.secret = value
		case "aws_session_token":
			k.session = value
		}
	}
	return k
}
