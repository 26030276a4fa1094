package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

// realClouds writes the results of trials with real services.
func (w *writer) realClouds() {
	all, err := results.Read(w.root)
	if err != nil {
		w.problem(err)
		return
	}
	w.page("README.md", "", map[string]string{"real services": realTable(all)})
	w.page("docs/acceptance.md", "", map[string]string{"real services": realDetails(all)})
}

// partsOf returns the groups of a record's trials, in order.
func partsOf(r *results.Record) []string {
	var parts []string
	for _, t := range r.Trials {
		if !slices.Contains(parts, t.Part) {
			parts = append(parts, t.Part)
		}
	}
	return parts
}

// summaryOf counts the results of each part, and names failures.
func summaryOf(r *results.Record) string {
	var texts []string
	for _, part := range partsOf(r) {
		count := map[string]int{}
		var broken []string
		for _, t := range r.Trials {
			if t.Part != part {
				continue
			}
			count[t.Result]++
			if t.Result == results.Failed {
				broken = append(broken, t.Name)
			}
		}
		text := fmt.Sprintf("%s: %d held", part, count[results.Held])
		if count[results.Skipped] > 0 {
			text += fmt.Sprintf(", %d left out", count[results.Skipped])
		}
		if len(broken) > 0 {
			text += ", did not hold: " + strings.Join(broken, ", ")
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// realTable has a row for each record.
func realTable(all []results.Record) string {
	var b strings.Builder
	b.WriteString("| cloud | tried on | when | program | result |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Cloud, cell(r.Title+": "+strings.Join(r.Services, ", ")), r.Began.Format(time.DateOnly),
			cmp.Or(r.Commit, r.Version), cell(summaryOf(&r)))
	}
	return b.String()
}

// realDetails has tables of all trials of each record, and of the services' gaps.
func realDetails(all []results.Record) string {
	var b strings.Builder
	for i, r := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "### %s\n\n`%s`, %s", r.Title, r.How, r.Began.Format(time.DateOnly))
		if r.Machine != "" {
			fmt.Fprintf(&b, ", on %s with a load of %.1f for each core when it began", r.Machine, r.Load)
		}
		b.WriteString(".\n\n| part | tried | result | time | calls |\n| --- | --- | --- | --- | --- |\n")
		for _, t := range r.Trials {
			result := t.Result
			if t.Result != results.Held && len(t.Details) > 0 {
				result += ": " + t.Details[len(t.Details)-1]
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.Part, cell(t.Name), cell(result), timeOf(&t), callsOf(&t))
		}
		if len(r.Lacks) > 0 {
			b.WriteString("\n| it does not have | seen by | not tried for it |\n| --- | --- | --- |\n")
		}
		for _, l := range r.Lacks {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(l.What), cell(l.Shows), cell(l.Effect))
		}
	}
	return b.String()
}

func timeOf(t *results.Trial) string {
	switch {
	case t.Result == results.Skipped:
		return ""
	case t.MaxSeconds > 0:
		return fmt.Sprintf("%.1f of %.0f s", t.Seconds, t.MaxSeconds)
	}
	return fmt.Sprintf("%.1f s", t.Seconds)
}

func callsOf(t *results.Trial) string {
	switch {
	case t.Calls == nil:
		return ""
	case t.MaxCalls > 0:
		return fmt.Sprintf("%d of %d", *t.Calls, t.MaxCalls)
	}
	return strconv.Itoa(*t.Calls)
}
