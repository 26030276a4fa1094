// Package workflows holds the test that the workflows of the repository are what GitHub understands.
package workflows
