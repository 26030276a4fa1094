// Package othermodule tests that a cloud can live in another repository.
package othermodule
