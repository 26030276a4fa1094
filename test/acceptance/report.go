package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

// What becomes of a step.
const (
	held       = results.Held
	failed     = results.Failed
	skipped    = results.Skipped
	notReached = "not reached"
)

// Result is the outcome of one step.
type Result struct {
	Step   string `json:"step"`
	Result string `json:"result"`
	// Details say what was seen, or why it failed or was left out.
	Details []string `json:"details,omitempty"`
	Seconds float64  `json:"seconds"`
	// Calls are those of the program to the cloud until it was quiet, Writes those of them that may have changed something; absent where
	// the program's metrics could not be read.
	Calls  *int `json:"calls,omitempty"`
	Writes *int `json:"writes,omitempty"`
}

// Report is the outcome of a run.
type Report struct {
	Provider string `json:"provider"`
	// Version is that of the program that runs, Kubernetes that of the API server.
	Version    string    `json:"version"`
	Commit     string    `json:"commit,omitempty"`
	Kubernetes string    `json:"kubernetes"`
	Nodes      int       `json:"nodes"`
	Began      time.Time `json:"began"`
	Seconds    float64   `json:"seconds"`
	Steps      []Result  `json:"steps"`
	// Left lists objects that could not be removed, and how to remove them.
	Left []string `json:"left,omitempty"`
	// Compared lists the differences to the first run.
	Compared []string `json:"compared,omitempty"`
}

// err is nil where everything held and nothing is left.
func (r *Report) err() error {
	var names []string
	for _, s := range r.Steps {
		if s.Result == failed || s.Result == notReached {
			names = append(names, s.Step)
		}
	}
	var problems []error
	if len(names) > 0 {
		problems = append(problems, errors.New("this did not hold: "+strings.Join(names, ", ")))
	}
	if len(r.Left) > 0 {
		problems = append(problems, errors.New("something is left: "+strings.Join(r.Left, "; ")))
	}
	return errors.Join(problems...)
}

func (r *Report) print(w io.Writer, format string) error {
	if format == formatJSON {
		text, err := r.json()
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	count := map[string]int{}
	for _, s := range r.Steps {
		count[s.Result]++
	}
	fmt.Fprintf(w, "\n%s, program %s, Kubernetes %s, %d nodes: %d steps held, %d failed, %d skipped, %d not reached, in %.0f s\n",
		r.Provider, r.Version, r.Kubernetes, r.Nodes, count[held], count[failed], count[skipped], count[notReached], r.Seconds)
	for _, l := range r.Left {
		fmt.Fprintln(w, "Left:", l)
	}
	for _, line := range r.Compared {
		fmt.Fprintln(w, "Compared with the first run:", line)
	}
	return nil
}

func (r *Report) json() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return append(text, '\n'), nil
}

// line is a step as it is printed while the run goes on.
func (r *Result) line() string {
	calls := ""
	if r.Calls != nil && r.Writes != nil {
		calls = fmt.Sprintf(", %d calls, %d of them writes", *r.Calls, *r.Writes)
	}
	text := fmt.Sprintf("%-8s %s (%.1f s%s)", r.Result, r.Step, r.Seconds, calls)
	if r.Result == skipped || r.Result == notReached {
		text = fmt.Sprintf("%-8s %s", r.Result, r.Step)
	}
	return strings.Join(append([]string{text}, r.Details...), "\n         ")
}

// compare holds the report against that of the first run, or keeps it where it is the first.
func (s *suite) compare(r *Report) error {
	if s.Results == "" {
		return nil
	}
	text, err := os.ReadFile(s.Results)
	if errors.Is(err, os.ErrNotExist) {
		if text, err = r.json(); err != nil {
			return err
		}
		if err = os.MkdirAll(filepath.Dir(s.Results), 0o755); err == nil {
			err = os.WriteFile(s.Results, text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("keeping the report: %w", err)
		}
		return nil
	}
	var first Report
	if err == nil {
		err = json.Unmarshal(text, &first)
	}
	if err != nil {
		return fmt.Errorf("reading the first report %s, which you may remove: %w", s.Results, err)
	}
	r.Compared = differences(&first, r)
	return nil
}

// differences says in lines what differs between two runs.
func differences(first, now *Report) []string {
	lines := []string{}
	for _, pair := range [][3]string{
		{"program", first.Version, now.Version}, {"Kubernetes", first.Kubernetes, now.Kubernetes}, {"cloud", first.Provider, now.Provider},
	} {
		if pair[1] != pair[2] {
			lines = append(lines, fmt.Sprintf("%s: %s, before %s", pair[0], pair[2], pair[1]))
		}
	}
	before := map[string]Result{}
	for _, s := range first.Steps {
		before[s.Step] = s
	}
	for _, s := range now.Steps {
		b, known := before[s.Step]
		delete(before, s.Step)
		if !known {
			lines = append(lines, s.Step+": not in the first run")
			continue
		}
		var parts []string
		if s.Result != b.Result {
			parts = append(parts, fmt.Sprintf("%s, before %s", s.Result, b.Result))
		}
		if s.Result == held && b.Result == held {
			parts = append(parts, fmt.Sprintf("%.1f s, before %.1f s", s.Seconds, b.Seconds))
			if s.Calls != nil && b.Calls != nil {
				parts = append(parts, fmt.Sprintf("%d calls, before %d", *s.Calls, *b.Calls))
			}
		}
		if len(parts) > 0 {
			lines = append(lines, s.Step+": "+strings.Join(parts, "; "))
		}
	}
	for _, s := range first.Steps {
		if _, missing := before[s.Step]; missing {
			lines = append(lines, s.Step+": not in this run")
		}
	}
	return lines
}
