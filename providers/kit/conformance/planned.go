package conformance

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

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
	// Beside are writes that may come with such a change though no plan says them, and Because is why. Transcripts show both.
	Beside []Beside
	// Unordered is why such changes are written at another place than they have in the plan; empty where they are not.
	Unordered string
	Because   string
}

// Beside are writes that no plan says.
type Beside struct {
	// Write is their operation.
	Write string
	// Of are words that each of them has, so that it is nobody else's object; $1 is the first group of the change.
	Of string
	// Most is how many there are for each change.
	Most int
}

// announcedWrite is a write that a planned change says, or one that may come beside it.
type announcedWrite struct {
	change            int
	row               *PlannedWrites
	operations, words []string
	beside            bool
	// needs is set at the last write that a row of Beside allows: that row's name, so that a number that is too high is found.
	needs string
}

// plannedChange is a change in the plan of a Service.
type plannedChange struct{ service, text string }

// write is a call that may belong to a planned change.
type write struct {
	operation string
	words     []string
	refused   bool
	at        time.Time
}

// comparison is the result of findUnplanned.
type comparison struct {
	// broken are writes that no plan said, what a plan said and nobody wrote, and what was written in another order. explained are those
	// for which a row has a reason, by it.
	broken    []string
	explained map[string][]string
	// used are the rows that fit, what was beside them as often as it may be, and whose order differs, as listRows names them.
	used []string
}

// findUnplanned compares what was written with what was planned: each planned change is followed by the writes of its row, each write
// belongs to one planned change or comes beside one, and the changes of a Service come in the order of its plan.
func findUnplanned(rows []PlannedWrites, planned []plannedChange, writes []write) (found comparison) {
	var announced []announcedWrite
	found.explained = map[string][]string{}
	for at, change := range planned {
		row, groups := findRow(rows, change.text)
		if row == nil {
			found.broken = append(found.broken, change.text+": no row of Fixture.PlannedWrites says what it writes")
			continue
		}
		found.used = append(found.used, row.Change)
		if len(row.Writes) == 0 {
			found.explained[row.Because] = append(found.explained[row.Because], change.text+": no call follows")
		}
		announced = append(announced, row.announce(at, groups)...)
	}
	owners := assign(announced, writes)
	for i, a := range announced {
		if !a.beside && !slices.Contains(owners, i) {
			found.broken = append(found.broken, fmt.Sprintf("%s: %s does not follow", planned[a.change].text, strings.Join(a.operations, " or ")))
		}
	}
	for at, w := range writes {
		owner := owners[at]
		switch {
		case owner >= 0 && announced[owner].beside:
			because := announced[owner].row.Because
			found.used = append(found.used, announced[owner].needs)
			found.explained[because] = append(found.explained[because], w.operation+" was not announced")
		case owner < 0 && (!w.refused || !slices.ContainsFunc(announced, func(a announcedWrite) bool { return a.says(w) })):
			found.broken = append(found.broken, w.operation+" was not announced")
		}
	}
	found.compareOrder(planned, announced, writes, owners)
	return found
}

// compareOrder finds changes whose first write comes before that of one that the plan of the same Service has before them.
func (c *comparison) compareOrder(planned []plannedChange, announced []announcedWrite, writes []write, owners []int) {
	first := map[int]time.Time{}
	rows := map[int]*PlannedWrites{}
	for at, w := range writes {
		if owners[at] < 0 || announced[owners[at]].beside {
			continue
		}
		change := announced[owners[at]].change
		if _, known := first[change]; !known || w.at.Before(first[change]) {
			first[change], rows[change] = w.at, announced[owners[at]].row
		}
	}
	for at, change := range planned {
		for before := range at {
			if planned[before].service != change.service || rows[at] == nil || rows[before] == nil || !first[at].Before(first[before]) {
				continue
			}
			if row := rows[at]; row.Unordered != "" {
				c.used = append(c.used, row.nameOrder())
				continue
			}
			c.broken = append(c.broken, change.text+" is written before "+planned[before].text)
			break
		}
	}
}

// listExplained returns what is explained, with the reasons.
func (c comparison) listExplained() (lines []string) {
	for _, reason := range sortedKeys(c.explained) {
		lines = append(append(lines, mergeRepeats(c.explained[reason])...), "because "+reason)
	}
	return lines
}

// listRows names rows, what may be beside each, and those that have no order.
func listRows(rows []PlannedWrites) (all []string) {
	for _, row := range rows {
		all = append(all, row.Change)
		for _, b := range row.Beside {
			all = append(all, row.nameBeside(b))
		}
		if row.Unordered != "" {
			all = append(all, row.nameOrder())
		}
	}
	return all
}

func (p *PlannedWrites) nameBeside(b Beside) string {
	return fmt.Sprintf("%s: %s %s, %d times", p.Change, b.Write, b.Of, b.Most)
}

func (p *PlannedWrites) nameOrder() string { return p.Change + ": its order" }

// announce returns the writes of a planned change, and those that may come beside it. groups are what the groups of the row match.
func (p *PlannedWrites) announce(change int, groups []string) (all []announcedWrite) {
	words := splitWords(strings.Join(groups, " "))
	for _, operations := range p.Writes {
		all = append(all, announcedWrite{change: change, row: p, operations: strings.Split(operations, " | "), words: words})
	}
	for _, b := range p.Beside {
		of := splitWords(os.Expand(b.Of, func(number string) string { return groups[int(number[0]-'1')] }))
		for n := range b.Most * min(len(of), 1) { // without words they could be anybody's
			w := announcedWrite{change: change, row: p, operations: []string{b.Write}, words: of, beside: true}
			if n == b.Most-1 {
				w.needs = p.nameBeside(b)
			}
			all = append(all, w)
		}
	}
	return all
}

// findRow returns the row of a planned change, and what its groups match.
func findRow(rows []PlannedWrites, change string) (row *PlannedWrites, groups []string) {
	for i := range rows {
		if match := regexp.MustCompile("^" + rows[i].Change).FindStringSubmatch(change); match != nil {
			return &rows[i], match[1:]
		}
	}
	return nil, nil
}

// assign gives each write at most one announced write that says it, such that as many as possible have one; -1 is none. Those that plans
// say come before what is beside them, and have refused writes only where there is no other.
func assign(announced []announcedWrite, writes []write) (owners []int) {
	owners = slices.Repeat([]int{-1}, len(writes))
	var match func(i int, refused bool, seen []bool) bool
	match = func(i int, refused bool, seen []bool) bool {
		for _, taken := range []bool{false, true} {
			for at, w := range writes {
				if seen[at] || (owners[at] >= 0) != taken || w.refused != refused || !announced[i].says(w) {
					continue
				}
				seen[at] = true
				if !taken || match(owners[at], refused, seen) {
					owners[at] = i
					return true
				}
			}
		}
		return false
	}
	for _, refused := range []bool{false, true} {
		for _, beside := range []bool{false, true} {
			for i, a := range announced {
				if a.beside == beside && !slices.Contains(owners, i) {
					match(i, refused, make([]bool, len(writes)))
				}
			}
		}
	}
	return owners
}

func (a announcedWrite) says(w write) bool {
	return slices.Contains(a.operations, w.operation) &&
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
func (tr *transcript) listPlanned(plans []planOf, calls []simkit.Call) (planned []plannedChange, writes []write) {
	for _, plan := range plans {
		for _, c := range plan.changes {
			planned = append(planned, plannedChange{plan.service, tr.names.apply(describeChange(c))})
		}
	}
	for _, c := range calls {
		if c.Write {
			words := splitWords(tr.names.apply(c.URL + " " + c.Body))
			writes = append(writes, write{c.Operation, words, c.Status >= 300 || c.Fault != "", c.At})
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
