// Package scenarios holds, for each cloud, the list of what its own controller is held to by tests.
package scenarios
