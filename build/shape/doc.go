// Package shape holds how long lines, functions and files of Go code may be.
package shape
