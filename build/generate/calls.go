package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// countedSteps are steps of the transcripts that each cloud with load balancers has.
var countedSteps = []struct{ scenario, step, what string }{
	{"create", "created", "it is made, with three nodes"},
	{"create", "nothing changes", "it is looked at without a change"},
	{"nodes", "one joins", "a node joins"},
	{"nodes", "one leaves", "a node leaves"},
	{"restart", "nothing changed", "the program starts again"},
	{"create", "deleted", "it is deleted"},
}

// transcribedCalls is the table of the calls for one Service, as the transcripts count them.
func (w *writer) transcribedCalls(p registry.Provider) string {
	folder := "providers/" + p.Name + "/testdata/transcripts"
	var b strings.Builder
	for _, c := range countedSteps {
		text, err := os.ReadFile(filepath.Join(w.root, folder, c.scenario+".txt"))
		if err != nil {
			return "" // a new provider
		}
		reads, writes, err := countCalls(string(text), c.step)
		if err != nil {
			w.problem(fmt.Errorf("%s/%s.txt: %w", folder, c.scenario, err))
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %d |\n", c.what, reads, writes)
	}
	return "\n| one Service of two ports alone, with the listings that many would share | reads | writes |\n| --- | --- | --- |\n" + b.String()
}

// countCalls counts the reads and writes of a transcript's step.
func countCalls(transcript, step string) (reads, writes int, err error) {
	_, after, found := strings.Cut("\n"+transcript, "\n== "+step+"\n")
	if !found {
		return 0, 0, fmt.Errorf("there is no step %q", step)
	}
	section := ""
	for line := range strings.Lines(after) {
		call, inside := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		switch {
		case strings.HasPrefix(line, "== "):
			return reads, writes, nil
		case !inside:
			section = strings.TrimSpace(line)
		case strings.HasPrefix(call, " "): // of a body
		case section == "reads":
			count, _, _ := strings.Cut(call, " ")
			n, err := strconv.Atoi(count)
			if err != nil {
				return 0, 0, fmt.Errorf("step %q: %q begins with no number", step, call)
			}
			reads += n
		case section == "writes":
			writes++
		}
	}
	return reads, writes, nil
}
