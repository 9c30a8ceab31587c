package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/draw"
	"leasehold.dev/internal/reports"
)

func (a *app) planCaches(s *reportFlags) *cobra.Command {
	var q reports.Caches
	file := ""
	cmd := &cobra.Command{
		Use:   "caches",
		Short: "Leases on cached data: whether they pay, and the term to take (Gray and Cheriton)",
		Long: `The model of Gray and Cheriton ("Leases: An Efficient Fault-Tolerant Mechanism for
Distributed File Cache Consistency", SOSP 1989): how much of a server's work leases on
cached data save, from rates of reads and writes and the number of caches that share
them. The default rates and times are those that the paper gives for the V system. The
servers bound the term: see --longest-wait.`,
		Example: `  leasehold plan caches --reads 0.864 --writes 0.04 --caches 10 --longest-wait 1m
  leasehold plan caches --reads 20 --writes 0.1 --caches 50 --term 5s -o svg > caches.svg`,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				var err error
				if q.Measured, err = readMeasured(file); err != nil {
					return report{}, err
				}
				r, err := q.Answer()
				return report{Report: r}, err
			})
		},
	}
	fs := cmd.Flags()
	q.Flags(fs)
	fs.StringVar(&file, "measured", "", "`file` with what was measured, to be drawn beside the "+
		"model: lines \"term_s,messages,cpu\", in percent of the load without leases")
	return cmd
}

// readMeasured reads what was measured, as curves to be drawn; no file has none.
func readMeasured(name string) ([]draw.Curve, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	messages := draw.Curve{Name: "measured here: messages", Dots: true}
	cpu := draw.Curve{Name: "measured here: CPU of the server", Dots: true}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		var p [3]float64
		words := strings.Split(line, ",")
		for i := range p {
			if len(words) != len(p) {
				return nil, fmt.Errorf("%s: line %d: want term_s,messages,cpu", name, n)
			}
			if p[i], err = strconv.ParseFloat(strings.TrimSpace(words[i]), 64); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
			}
		}
		messages.XY = append(messages.XY, [2]float64{p[0], p[1]})
		cpu.XY = append(cpu.XY, [2]float64{p[0], p[2]})
	}
	return []draw.Curve{messages, cpu}, nil
}
