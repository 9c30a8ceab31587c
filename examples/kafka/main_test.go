package main

import (
	"bytes"
	"fmt"
	"log"
	"regexp"
	"testing"

	"leasehold.dev/test/inprocess"
)

// TestKafka runs the example. When the controller dies, another must take its place. The partitions
// that it led must get other leaders, with a later epoch assigned by a later controller.
func TestKafka(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cluster := inprocess.ClientConfig(t, inprocess.Run(t, 1)...)
		var out bytes.Buffer
		if err := run(t.Context(), cluster, log.New(&out, "", 0)); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		before := make(map[string]assignment)
		moved := 0
		printed := regexp.MustCompile(`partition (\d) is led by (\S+), (epoch .*)`)
		lines := printed.FindAllStringSubmatch(out.String(), -1)
		if len(lines) != 2*partitions {
			t.Errorf("it printed %q", out.String())
		}
		for _, line := range lines {
			now := assignment{Leader: line[2]}
			_, err := fmt.Sscanf(
				line[3], "epoch %d, controller epoch %d", &now.Epoch, &now.ControllerEpoch,
			)
			if err != nil {
				t.Fatal(err)
			}
			was, again := before[line[1]]
			before[line[1]] = now
			if !again || now.Leader == was.Leader {
				continue
			}
			moved++
			if now.Epoch <= was.Epoch || now.ControllerEpoch <= was.ControllerEpoch {
				t.Errorf("partition %s went from %+v to %+v", line[1], was, now)
			}
		}
		if moved == 0 {
			t.Errorf("no partition went to another broker: %q", out.String())
		}
	})
}
