// Package results keeps what was tried on real services, as it was recorded, for the tables of README.md and docs/acceptance.md.
package results

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Folder is where the records are, from the root of the checkout.
const Folder = "test/realclouds/results"

// What became of something that was tried.
const (
	Held    = "held"
	Failed  = "failed"
	Skipped = "skipped"
)

// Record is the result of one run.
type Record struct {
	// Cloud is the provider, Title what was tried, Services are the parts of it with their versions.
	Cloud    string   `json:"cloud"`
	Title    string   `json:"title"`
	Services []string `json:"services"`
	// Version and Commit are those of the program, Kubernetes that of the API server.
	Version    string    `json:"version"`
	Commit     string    `json:"commit,omitempty"`
	Kubernetes string    `json:"kubernetes,omitempty"`
	Began      time.Time `json:"began"`
	// Machine says what the times were measured on, Load what else it did: the load average of the minute before, by core.
	Machine string  `json:"machine,omitempty"`
	Load    float64 `json:"load,omitempty"`
	// How is the command that does it again.
	How string `json:"how"`
	// Trials are the tested steps, in order.
	Trials []Trial `json:"trials"`
	// Lacks lists the features of the real cloud that the services do not have.
	Lacks []Lack `json:"lacks,omitempty"`
}

// Trial is one thing that was tried.
type Trial struct {
	// Part groups trials: the suite, measured steps, outages.
	Part   string `json:"part"`
	Name   string `json:"name"`
	Result string `json:"result"`
	// Seconds and Calls were measured; MaxSeconds and MaxCalls are what they are held to, 0 where nothing is.
	Seconds    float64 `json:"seconds,omitempty"`
	MaxSeconds float64 `json:"maxSeconds,omitempty"`
	Calls      *int    `json:"calls,omitempty"`
	MaxCalls   int     `json:"maxCalls,omitempty"`
	// Details say what was seen, or why it failed or was left out.
	Details []string `json:"details,omitempty"`
	// Done is set once what was measured came to its end, in however long a time.
	Done bool `json:"-"`
}

// Lack is something that the services do not have.
type Lack struct {
	What string `json:"what"`
	// Shows is how that was seen, Effect what is not tried for it.
	Shows  string `json:"shows"`
	Effect string `json:"effect"`
}

// Judge sets the result of a trial by what was measured.
func (t *Trial) Judge() {
	t.Result = Held
	if t.MaxSeconds > 0 && t.Seconds > t.MaxSeconds {
		t.Result = Failed
		t.Details = append(t.Details, fmt.Sprintf("took %.1f s, more than %.0f s", t.Seconds, t.MaxSeconds))
	}
	if t.Calls != nil && t.MaxCalls > 0 && *t.Calls > t.MaxCalls {
		t.Result = Failed
		t.Details = append(t.Details, fmt.Sprintf("took %d calls, more than %d", *t.Calls, t.MaxCalls))
	}
}

// Median makes one trial of several that came to their end: the middle time of all, and the most calls.
func Median(all []Trial) Trial {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b Trial) int { return cmp.Compare(a.Seconds, b.Seconds) })
	t := sorted[len(sorted)/2]
	for _, other := range all {
		if other.Calls != nil && (t.Calls == nil || *other.Calls > *t.Calls) {
			t.Calls = other.Calls
		}
	}
	t.Details = []string{fmt.Sprintf("the median of %d, from %.1f to %.1f s", len(all), sorted[0].Seconds, sorted[len(sorted)-1].Seconds)}
	t.Judge()
	return t
}

// Failures are the trials that did not hold.
func (r *Record) Failures() []string {
	var names []string
	for _, t := range r.Trials {
		if t.Result == Failed {
			names = append(names, t.Part+": "+t.Name)
		}
	}
	return names
}

// Write keeps a record in a file.
func (r *Record) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("keeping the record: %w", err)
	}
	return nil
}

// Read returns the records of a checkout, by the name of their file.
func Read(root string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(Folder), "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", Folder, err)
	}
	slices.Sort(files)
	var all []Record
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		var r Record
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if r.Title == "" || len(r.Trials) == 0 || r.Began.IsZero() || r.How == "" {
			return nil, fmt.Errorf("%s says not what was tried, when, how, or with which result", file)
		}
		all = append(all, r)
	}
	return all, nil
}
