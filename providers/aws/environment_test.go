package aws

import (
	"os"
	"strings"
)

// The SDK reads the environment by itself. Tests clear it: a developer's profile or endpoint would change the results, and a certificate
// bundle is parsed for each client.
var _ = forgetEnvironment()

func forgetEnvironment() bool {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			_ = os.Unsetenv(name) // a name that has just been listed
		}
	}
	return true
}
