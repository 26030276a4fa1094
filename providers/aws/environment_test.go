package aws

import (
	"os"
	"strings"
)

// The SDK reads the environment by itself. Tests know only what they set: a profile or an endpoint of whoever runs them would
// change what is tried, and a bundle of certificates is parsed for each client that is made.
var _ = forgetEnvironment()

func forgetEnvironment() bool {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			_ = os.Unsetenv(name) // a name that has just been listed
		}
	}
	return true
}
