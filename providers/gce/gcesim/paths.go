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
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 2 || parts[0] != "projects" {
		return at
	}
	at.project, parts = parts[1], parts[2:]
	switch {
	case len(parts) == 0:
		return at
	case parts[0] == "global":
		at.scope, parts = "global", parts[1:]
	case parts[0] == "aggregated":
		at.aggregated, parts = true, parts[1:]
	case (parts[0] == "regions" || parts[0] == "zones") && len(parts) > 2:
		at.scope, parts = parts[0]+"/"+parts[1], parts[2:]
	}
	for i, into := range []*string{&at.collection, &at.name, &at.action} {
		if i < len(parts) {
			*into = parts[i]
		}
	}
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
