// Command prometheus says what Prometheus would make of scrapes: which alerts of a file with rules ring when what was scraped stays
// as it is, and how many series each expression of a dashboard has. Parser and engine are Prometheus' own, without its storage.
//
//	prometheus -rules=rules.yaml -dashboard=dashboard.json -labels=job=x,namespace=y -at=1700000000 -hold=8h SCRAPE…
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// answer is the program's output.
type answer struct {
	// Firing are the alerts that ring at the end, with the labels of what they ring for.
	Firing map[string][]string `json:"firing"`
	// Series counts the series of each expression of the dashboard at the end.
	Series map[string]int `json:"series"`
}

// run reads and evaluates. Each scrape is of one target.
func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("prometheus", flag.ContinueOnError)
	rulesFile := fs.String("rules", "", "File with groups of rules.")
	dashboardFile := fs.String("dashboard", "", "File with a dashboard.")
	labels := fs.String("labels", "", "Labels that scraping adds, such as job=x,namespace=y.")
	at := fs.Int64("at", 0, "When the scrapes were made, in seconds since 1970.")
	hold := fs.Duration("hold", 0, "How long everything stays as it was scraped.")
	if err := fs.Parse(args); err != nil {
		return err
	}
	e := newEvaluation(time.Unix(*at, 0), *hold)
	for i, file := range fs.Args() {
		text, err := os.ReadFile(file)
		if err == nil {
			err = e.add(text, fmt.Sprintf("%s,instance=%d", *labels, i))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	result := answer{}
	var err error
	if result.Firing, err = e.alerts(ctx, *rulesFile); err != nil {
		return fmt.Errorf("%s: %w", *rulesFile, err)
	}
	if result.Series, err = e.dashboard(ctx, *dashboardFile); err != nil {
		return fmt.Errorf("%s: %w", *dashboardFile, err)
	}
	return json.NewEncoder(out).Encode(result)
}

// labelsOf splits job=x,namespace=y.
func labelsOf(text string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, errors.New("-labels: write name=value, separated by commas")
		}
		all[name] = value
	}
	return all, nil
}
