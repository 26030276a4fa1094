// Package selection decides what .ci/run runs besides `make test`: all tests of the clouds that a change concerns, and what builds images,
// releases and other modules.
package selection

import (
	"fmt"
	"slices"
	"strings"
)

// Selection says which tests to run.
type Selection struct {
	// Clouds are those whose own folder changed.
	Clouds []string
	// Builds is set where something changed that is neither a cloud's own nor documentation.
	Builds bool
	// Why is for whoever reads the log.
	Why string
}

// Everything leaves nothing out.
func Everything(clouds []string, why string) Selection {
	return Selection{Clouds: clouds, Builds: true, Why: why}
}

// Decide returns what a change concerns, given the paths that differ from a tested state and the names of all clouds.
func Decide(changed, clouds []string) Selection {
	s := Selection{Why: fmt.Sprintf("%d paths differ", len(changed))}
	for _, path := range changed {
		switch cloud, ok := folderOf(path, clouds); {
		case ok && !slices.Contains(s.Clouds, cloud):
			s.Clouds = append(s.Clouds, cloud)
		case ok, isDocumentation(path):
		default:
			s.Builds = true
		}
	}
	slices.Sort(s.Clouds)
	return s
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

// isDocumentation reports whether a path is only read by people and by tests that always run.
func isDocumentation(path string) bool {
	if strings.Contains(path, "/") {
		return strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md")
	}
	return strings.HasSuffix(path, ".md")
}

// Lines are the selection for .ci/run: targets and variables of make, one call a line.
func (s Selection) Lines() []string {
	var lines []string
	for _, cloud := range s.Clouds {
		lines = append(lines, "test-cloud CLOUD="+cloud)
	}
	if s.Builds {
		lines = append(lines, "test-builds")
	}
	return lines
}
