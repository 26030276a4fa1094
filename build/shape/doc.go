// Package shape holds rules about all Go code of the checkout: how long lines, functions and files may be, and what may stand in one place
// alone or nowhere.
package shape
