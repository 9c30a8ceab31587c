package main

import (
	"bytes"
	"encoding/json"
	"log"
	"regexp"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestKafka runs the example. When the controller dies, another must take its place. The partitions
// that it led must get other leaders, with a later epoch assigned by a later controller.
func TestKafka(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		member := inprocess.Run(t, 1)[0]
		var out bytes.Buffer
		d := demo{
			cluster: inprocess.ClientConfig(t, member), brokers: 3, partitions: 6,
			ttl: 2 * time.Second, log: log.New(&out, "", 0),
		}
		if err := d.run(t.Context()); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		// Another controller may be elected while the brokers are stopped in turn.
		if !strings.Contains(out.String(), "6 partitions are led by 2 live brokers\n") {
			t.Errorf("it says %q", out.String())
		}
		before := make(map[string]assignment)
		moved := 0
		printed := regexp.MustCompile(`(?m)^(\d): (.*)$`)
		for _, line := range printed.FindAllStringSubmatch(out.String(), -1) {
			var now assignment
			if err := json.Unmarshal([]byte(line[2]), &now); err != nil {
				t.Fatal(err)
			}
			was, again := before[line[1]]
			before[line[1]] = now
			if !again || now.Leader == was.Leader {
				continue
			}
			moved++
			if now.Epoch <= was.Epoch || now.ControllerEpoch < was.ControllerEpoch {
				t.Errorf("partition %s went from %+v to %+v", line[1], was, now)
			}
		}
		if moved == 0 {
			t.Errorf("no partition went to another broker: %q", out.String())
		}
	})
}
