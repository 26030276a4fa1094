// Package kit holds, in the packages below it, what clouds are built from. It is public so that a cloud can live in another
// repository. There is no promise of compatibility before version 1.0.
package kit
