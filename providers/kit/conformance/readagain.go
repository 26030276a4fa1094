package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// ReadAgain is a reason for which a read is made again in a step of a transcript. The kit has reasons of its own: the framework asks again
// for the same Service or has it deleted, a write for another Service came between, and a loop comes back.
type ReadAgain struct {
	// Reads and After are regular expressions for whole operations: the read, and a write since it was made. Without After there need not
	// be one.
	Reads, After string
	// Most is how many such reads a step has, where there is no After.
	Most int
	// Step is the only one ("scenario/step") that has this reason; empty where each may have it.
	Step    string
	Because string
}

func (r ReadAgain) String() string {
	return fmt.Sprintf("Fixture.ReadAgain: %s after %s%s, %d times", r.Reads, r.After, r.Step, r.Most)
}

// attempt begins with a call: the framework asks the provider to serve a Service, or to delete it.
type attempt struct {
	from    int
	service string
	deletes bool
}

// loopPause is how much later a loop may make the same read again.
const loopPause = time.Minute

// findReadAgain returns the reads that a step makes again without a reason, and the rows that are the reason of others. The first calls
// are those of loops.
func findReadAgain(rows []ReadAgain, attempts []attempt, calls []simkit.Call, loops int, place string) (broken, used []string) {
	last, made := map[string]int{}, map[*ReadAgain]int{}
	for at, c := range calls {
		if c.Write {
			continue
		}
		key := c.Method + c.URL + c.Body
		before, known := last[key]
		switch last[key] = at; {
		case !known:
		case at < loops && c.At.Sub(calls[before].At) >= loopPause:
		case findAttempt(attempts, at-loops).mayReadAgain(findAttempt(attempts, before-loops), calls[before:at]):
		default:
			row := findReason(rows, place, c.Operation, calls[before:at])
			if row == nil {
				broken = append(broken, fmt.Sprintf("%s is read again after %s", c.Operation, describeWrites(calls[before:at])))
				continue
			}
			if made[row]++; row.After == "" && made[row] > row.Most {
				broken = append(broken, fmt.Sprintf("%s is read again more than %d times", c.Operation, row.Most))
			}
			if made[row] >= row.Most {
				used = append(used, row.String())
			}
		}
	}
	return mergeRepeats(broken), used
}

// findAttempt returns the attempt to which a call belongs.
func findAttempt(attempts []attempt, call int) (found attempt) {
	for _, a := range attempts {
		if call >= a.from {
			found = a
		}
	}
	return found
}

// mayReadAgain says whether an attempt may read what another one read before.
func (a attempt) mayReadAgain(before attempt, since []simkit.Call) bool {
	if a == before {
		return false
	}
	return a.deletes || a.service == before.service || len(listWrites(since)) > 0
}

func findReason(rows []ReadAgain, place, operation string, since []simkit.Call) *ReadAgain {
	for i, row := range rows {
		if (row.Step != "" && row.Step != place) || !regexp.MustCompile("^("+row.Reads+")$").MatchString(operation) {
			continue
		}
		after := regexp.MustCompile("^(" + row.After + ")$")
		if row.After == "" || slices.ContainsFunc(listWrites(since), after.MatchString) {
			return &rows[i]
		}
	}
	return nil
}

func listWrites(calls []simkit.Call) (operations []string) {
	for _, c := range calls {
		if c.Write {
			operations = append(operations, c.Operation)
		}
	}
	return operations
}

func describeWrites(calls []simkit.Call) string {
	if writes := listWrites(calls); len(writes) > 0 {
		return fmt.Sprint(mergeRepeats(writes))
	}
	return "no write"
}
