// Package linked decides which cloud providers are part of the binary: one file for each, with the build constraint `!slim ||
// provider_<name>`. It is the only place that names every provider.
package linked
