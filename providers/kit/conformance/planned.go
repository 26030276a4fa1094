package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// PlannedWrites are the writes that a kind of planned change makes.
type PlannedWrites struct {
	// Change is a regular expression for how the change begins in a transcript, such as `create pool (\S+)`. The first row that fits
	// counts. The words of its groups are in each write.
	Change string
	// Writes are the operations that each such change makes, each once. Alternatives have " | " between them. There are none where the
	// change is no call of the cloud, and Because is why.
	Writes []string
	// Beside are operations that may come with such a change though no plan says them, and Because is why. Transcripts show both.
	Beside  []string
	Because string
}

// announcedWrite is a write that a planned change says.
type announcedWrite struct {
	change            string
	operations, words []string
}

// write is a call that may belong to a planned change.
type write struct {
	operation string
	words     []string
	refused   bool
}

// comparison is the result of findUnplanned.
type comparison struct {
	// broken are writes that no plan said, and what a plan said and nobody wrote. explained are those for which a row has a reason, by it.
	broken    []string
	explained map[string][]string
	// used are the rows that fit, and what was beside them, as listRows names them.
	used []string
}

// findUnplanned compares what was written with what was planned: each planned change is followed by the writes of its row, and each write
// belongs to one planned change or comes beside one.
func findUnplanned(rows []PlannedWrites, planned []string, writes []write) (found comparison) {
	var announced []announcedWrite
	beside := map[string]*PlannedWrites{}
	found.explained = map[string][]string{}
	for _, change := range planned {
		row, words := findRow(rows, change)
		if row == nil {
			found.broken = append(found.broken, change+": no row of Fixture.PlannedWrites says what it writes")
			continue
		}
		found.used = append(found.used, row.Change)
		if len(row.Writes) == 0 {
			found.explained[row.Because] = append(found.explained[row.Because], change+": no call follows")
		}
		for _, operations := range row.Writes {
			announced = append(announced, announcedWrite{change, strings.Split(operations, " | "), words})
		}
		for _, operation := range row.Beside {
			beside[operation] = row
		}
	}
	owners := assign(announced, writes)
	for i, a := range announced {
		if !slices.Contains(owners, i) && !slices.ContainsFunc(writes, a.wasRefused) {
			found.broken = append(found.broken, fmt.Sprintf("%s: %s does not follow", a.change, strings.Join(a.operations, " or ")))
		}
	}
	for at, w := range writes {
		switch row := beside[w.operation]; {
		case owners[at] >= 0 || slices.ContainsFunc(announced, func(a announcedWrite) bool { return a.wasRefused(w) }):
		case row != nil:
			found.used = append(found.used, row.Change+": "+w.operation)
			found.explained[row.Because] = append(found.explained[row.Because], w.operation+" was not announced")
		default:
			found.broken = append(found.broken, w.operation+" was not announced")
		}
	}
	return found
}

// listExplained returns what is explained, with the reasons.
func (c comparison) listExplained() (lines []string) {
	for _, reason := range sortedKeys(c.explained) {
		lines = append(append(lines, mergeRepeats(c.explained[reason])...), "because "+reason)
	}
	return lines
}

// listRows names rows, and what may be beside each.
func listRows(rows []PlannedWrites) (all []string) {
	for _, row := range rows {
		all = append(all, row.Change)
		for _, operation := range row.Beside {
			all = append(all, row.Change+": "+operation)
		}
	}
	return all
}

// findRow returns the row of a planned change, and the words that its writes have.
func findRow(rows []PlannedWrites, change string) (row *PlannedWrites, words []string) {
	for i := range rows {
		if groups := regexp.MustCompile("^" + rows[i].Change).FindStringSubmatch(change); groups != nil {
			return &rows[i], splitWords(strings.Join(groups[1:], " "))
		}
	}
	return nil, nil
}

// assign gives each write at most one announced write that says it, such that as many as possible have one; -1 is none.
func assign(announced []announcedWrite, writes []write) (owners []int) {
	owners = slices.Repeat([]int{-1}, len(writes))
	var match func(i int, seen []bool) bool
	match = func(i int, seen []bool) bool {
		for at, w := range writes {
			if seen[at] || !announced[i].says(w) {
				continue
			}
			seen[at] = true
			if owners[at] < 0 || match(owners[at], seen) {
				owners[at] = i
				return true
			}
		}
		return false
	}
	for i := range announced {
		match(i, make([]bool, len(writes)))
	}
	return owners
}

func (a announcedWrite) wasRefused(w write) bool {
	return w.refused && slices.Contains(a.operations, w.operation)
}

func (a announcedWrite) says(w write) bool {
	return !w.refused && slices.Contains(a.operations, w.operation) &&
		!slices.ContainsFunc(a.words, func(word string) bool { return !slices.Contains(w.words, word) })
}

var (
	unnamed    = regexp.MustCompile(`<[^>]*>`)
	notInWords = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// splitWords splits a text into words, without identities that are not known before they are made.
func splitWords(text string) []string {
	return strings.Fields(notInWords.ReplaceAllString(unnamed.ReplaceAllString(text, " "), " "))
}

// listPlanned returns what was planned and written as findUnplanned compares it.
func (tr *transcript) listPlanned(plans []planOf, calls []simkit.Call) (planned []string, writes []write) {
	for _, plan := range plans {
		for _, c := range plan.changes {
			planned = append(planned, tr.names.apply(describeChange(c)))
		}
	}
	for _, c := range calls {
		if c.Write {
			words := splitWords(tr.names.apply(c.URL + " " + c.Body))
			writes = append(writes, write{c.Operation, words, c.Status >= 300 || c.Fault != ""})
		}
	}
	return planned, writes
}

// describeChange is the line of a planned change.
func describeChange(c contract.Planned) string {
	line := c.Action + " " + c.Object
	if c.Detail != "" {
		line += " (" + c.Detail + ")"
	}
	return line
}
