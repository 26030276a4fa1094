// Package shape checks rules about all Go code of the checkout: lengths of lines, functions and files, names, and statements allowed in one
// place only.
package shape
