// Package imports checks the direction of imports: cmd → registry/linked → providers/<name> → providers/kit → registry.
package imports
