package gcesim

import (
	"slices"
	"strings"
)

// location identifies an object or a collection in the API.
type location struct {
	project string
	// scope is "global", "regions/r" or "zones/z"; empty for the project and for lists of zones and regions.
	scope                    string
	collection, name, action string
	aggregated               bool
}

// parsePath parses a path after the API's version.
func parsePath(path string) (at location) {
	// It is called for each object in each call, so it allocates nothing.
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

// path returns the path of the object, or else of the collection.
func (at location) path() string {
	parts := []string{"projects", at.project}
	for _, p := range []string{at.scope, at.collection, at.name} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "/")
}

// region returns the scope's region, "" for global objects.
func (at location) region() string {
	if r, ok := strings.CutPrefix(at.scope, "regions/"); ok {
		return r
	}
	if z, ok := strings.CutPrefix(at.scope, "zones/"); ok {
		return regionOf(z)
	}
	return ""
}

// resource returns a link's path, starting with "projects/". Relative links are in the project and scope of at.
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
