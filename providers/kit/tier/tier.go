// Package tier selects the tests to run: those of make test, or all.
package tier

import (
	"fmt"
	"os"
	"testing"
)

// variable chooses the tier: empty is the fast one, which make test runs, and all is everything, which make test-all runs.
const variable = "ANYCCM_TIER"

// all is the value of the variable for the tier that leaves nothing out.
const all = "all"

// All reports whether all tests run. It panics if the variable has an unknown value, which would run fewer than intended.
func All() bool {
	switch text := os.Getenv(variable); text {
	case "":
		return false
	case all:
		return true
	default:
		panic(fmt.Sprintf("%s is %q; leave it empty for the fast tests, or set it to %s for all of them", variable, text, all))
	}
}

// Full skips a test unless all tests run.
func Full(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("only in the full tier: make test-all")
	}
}
