package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// permit lets tests be skipped, with the place where they run.
type permit struct {
	// says is a part of what they say.
	says string
	// stages are the targets in which they may be skipped.
	stages *regexp.Regexp
	// unless is a variable: where it is set they have what they need.
	unless string
	// where they run.
	where string
}

var (
	fast    = regexp.MustCompile(`^test-(shared|unit|chart|e2e|acceptance|cloud-raced)$`)
	raced   = regexp.MustCompile(`^test-(shared|all-packages)$`)
	full    = regexp.MustCompile(`^test-(all-packages|cloud-full)$`)
	onCloud = regexp.MustCompile(`^test-(unit|all-packages|cloud-full|cloud-raced)$`)
)

// permits are all reasons for which a test may be skipped. Any other one fails the run.
var permits = []permit{
	{says: "only in the full tier", stages: fast, where: "in make test-all, those of a cloud in make test-cloud"},
	{says: "the framework itself has a race", stages: raced, where: "without the race detector in make test-unit and make test-all"},
	{says: "the framework's service controller has a data race", stages: raced, where: "without the race detector in make test-unit and make test-all"},
	{
		says: "set ANYCCM_PYTHON to a Python", stages: full, unless: "ANYCCM_PYTHON",
		where: "where make clients has installed the clouds' clients: .ci/run, the nightly workflow",
	},
	{
		says: "set ANYCCM_REFERENCE to a folder", stages: full, unless: "ANYCCM_REFERENCE",
		where: "in .ci/run where ../shared/reference has descriptions and recordings, which are no part of the checkout",
	},
	{
		says: "the client that judges the simulator cannot be fetched", stages: full,
		where: "where the module proxy has the client's modules",
	},
	{says: "the description of the API cannot be fetched", stages: full, where: "where the module proxy has it"},
	{
		says: "the module google.golang.org/api is not found", stages: full,
		where: "where the modules are in go's cache, which a vendored build does without",
	},
	{
		says: "the package keepalived is not to be had here", stages: onCloud, unless: "ANYCCM_KEEPALIVED_ROOT",
		where: "on Debian and Ubuntu, or where ANYCCM_KEEPALIVED_ROOT names an unpacked keepalived",
	},
	{says: "namespaces cannot be made here", stages: onCloud, where: "as root, or where the kernel lets users have namespaces"},
	{
		says: "nothing was measured on a real Octavia", stages: onCloud, unless: "ANYCCM_TEST_OPENSTACK_CLOUD_CONFIG",
		where: "by hand on a real OpenStack",
	},
	{says: "reads the symbol table of an ELF file", stages: regexp.MustCompile(`^test-(unit|all-packages)$`), where: "on Linux"},
}

// find returns the number of the permit for a skipped test of a target; -1 if there is none.
func find(target string, s skip) int {
	for i, p := range permits {
		if strings.Contains(s.says, p.says) && p.stages.MatchString(target) && os.Getenv(p.unless) == "" {
			return i
		}
	}
	return -1
}

// summarizeSkips tells how many tests were skipped for which reason, and where they run. Those that none of the permits is for are named.
func summarizeSkips(stages []stage) (told string, unlisted int) {
	count, total := make([]int, len(permits)), 0
	var named strings.Builder
	for _, s := range stages {
		for _, one := range s.skips {
			total++
			if i := find(s.target, one); i >= 0 {
				count[i]++
				continue
			}
			unlisted++
			fmt.Fprintf(&named, "Error: %s: %s was skipped, for which build/stages/skips.go has no reason: %s\n",
				s.target, strings.ReplaceAll(one.name, modulePath, ""), one.says)
		}
	}
	if total == 0 {
		return "no test was skipped\n", 0
	}
	var b strings.Builder
	fmt.Fprintf(&b, "skipped: %d\n", total)
	for i, p := range permits {
		if count[i] > 0 {
			fmt.Fprintf(&b, "%6d  %s; they run %s\n", count[i], p.says, p.where)
		}
	}
	return b.String() + named.String(), unlisted
}
