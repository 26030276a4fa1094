package gcesim

import (
	"slices"
	"strings"
)

// location is where in the API an object or a collection is.
type location struct {
	project string
	// scope is "global", "regions/r" or "zones/z"; empty for the project and for lists of zones and regions themselves.
	scope                    string
	collection, name, action string
	aggregated               bool
}

// parsePath reads what follows the version of the API.
func parsePath(path string) (at location) {
	// It is called for each object at each call, and allocates nothing.
	first, rest, more := strings.Cut(strings.Trim(path, "/"), "/")
	if !more || first != "projects" {
		return at
	}
	at.project, rest, _ = strings.Cut(rest, "/")
	head, tail, _ := strings.Cut(rest, "/")
	switch place, inside, more := strings.Cut(tail, "/"); {
	case head == "global":
		at.scope, rest = "global", tail
	case head == "aggregated":
		at.aggregated, rest = true, tail
	case (head == "regions" || head == "zones") && more:
		at.scope, rest = rest[:len(head)+1+len(place)], inside
	}
	at.collection, rest, _ = strings.Cut(rest, "/")
	at.name, rest, _ = strings.Cut(rest, "/")
	at.action, _, _ = strings.Cut(rest, "/")
	return at
}

// path is that of the collection, and of the object where there is one.
func (at location) path() string {
	parts := []string{"projects", at.project}
	for _, p := range []string{at.scope, at.collection, at.name} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "/")
}

// region is that of the scope, "" for global objects.
func (at location) region() string {
	if r, ok := strings.CutPrefix(at.scope, "regions/"); ok {
		return r
	}
	if z, ok := strings.CutPrefix(at.scope, "zones/"); ok {
		return regionOf(z)
	}
	return ""
}

// resource is the path of a link, however it is written: from "projects/" on; what lacks that is in the project and scope of at.
func (at location) resource(link string) string {
	if i := strings.Index(link, "projects/"); i >= 0 {
		return link[i:]
	}
	link = strings.Trim(link, "/")
	if slices.Contains([]string{"global", "regions", "zones"}, strings.SplitN(link, "/", 2)[0]) {
		return "projects/" + at.project + "/" + link
	}
	return link
}

func linkTo(path string) string { return linkRoot + path }
