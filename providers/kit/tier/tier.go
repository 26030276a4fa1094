// Package tier says how much the tests try: what make test runs, or everything there is.
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

// All reports whether everything is tried. It panics if the variable has an unknown value, which would run less than was meant.
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

// Full skips a test unless everything is tried.
func Full(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("only in the full tier: make test-all")
	}
}
