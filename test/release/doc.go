// Package release looks at what `make snapshot` made. Run it by `make release-check`.
package release
