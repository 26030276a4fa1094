// Package scenarios holds, for each cloud, the list of what its own controller is held to by tests, and proves that ours
// has a test for each.
package scenarios
