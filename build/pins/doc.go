// Package pins holds what a release is made with: everything that others could move is named by what it is. It consists of tests.
package pins
