// Package e2e tests the built program against a real control plane and simulated clouds.
package e2e
