// Package selection decides which clouds a run of the tests is about. The shared code is tested in every run; a cloud's own tests
// are left out only where the change is known and cannot concern them.
package selection

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Variable is the environment variable that tells tests over all clouds which ones are selected, by name; unset means all.
const Variable = "ANYCCM_CLOUDS"

const (
	all  = "all"
	none = "none"
)

// Selection is what to run.
type Selection struct {
	// Clouds are those whose tests run. Race are those among them whose tests run with the race detector.
	Clouds, Race []string
	// Why is for whoever reads the log.
	Why string
}

// Everything leaves nothing out.
func Everything(clouds []string, why string) Selection {
	return Selection{Clouds: clouds, Race: clouds, Why: why}
}

// Decide returns what a change concerns, given the paths that differ from a tested state and the names of all clouds. What is not
// known for sure to concern one cloud alone, or none, concerns all of them.
func Decide(changed, clouds []string) Selection {
	if len(changed) == 0 {
		return Everything(clouds, "nothing differs from the base")
	}
	var touched []string
	shared := ""
	for _, path := range changed {
		switch cloud, ok := folderOf(path, clouds); {
		case ok && !slices.Contains(touched, cloud):
			touched = append(touched, cloud)
		case ok, documentation(path):
		case shared == "":
			shared = path
		}
	}
	slices.Sort(touched)
	if shared != "" {
		return Selection{Clouds: clouds, Race: touched, Why: fmt.Sprintf("%s is no cloud's own, so that all clouds are concerned", shared)}
	}
	return Selection{Clouds: touched, Race: touched, Why: fmt.Sprintf("%d paths differ, in folders of clouds and documentation alone", len(changed))}
}

// Recent returns what the main branch runs, given the paths that changed in it lately: every cloud, and with the race detector those whose
// own files changed.
func Recent(changed, clouds []string) Selection {
	s := Decide(changed, clouds)
	return Selection{Clouds: clouds, Race: s.Race, Why: "this is the main branch, in which lately " + s.Why}
}

// folderOf returns the cloud whose folder a path is in. The folder of a cloud that is no more is nobody's.
func folderOf(path string, clouds []string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "providers/")
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, "/")
	return name, ok && slices.Contains(clouds, name)
}

// documentation reports whether a path is only read by people and by tests that always run.
func documentation(path string) bool {
	if strings.Contains(path, "/") {
		return strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md")
	}
	return strings.HasSuffix(path, ".md")
}

// Variables are the arguments of make for a selection.
func (s Selection) Variables(clouds []string) []string {
	return []string{"CLOUDS=" + text(s.Clouds, clouds), "RACE=" + text(s.Race, clouds)}
}

func text(names, clouds []string) string {
	switch {
	case len(names) == 0:
		return none
	case len(names) == len(clouds):
		return all
	}
	return strings.Join(names, " ")
}

// Includes reports whether the tests of a cloud are selected by the environment.
func Includes(cloud string) bool { return includes(os.Getenv(Variable), cloud) }

func includes(value, cloud string) bool {
	names := strings.Fields(value)
	return len(names) == 0 || slices.Contains(names, all) || slices.Contains(names, cloud)
}
