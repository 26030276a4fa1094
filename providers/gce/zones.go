package gce

import (
	"maps"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// A zone that cannot be reached makes nothing of the others unknown: a listing says which zones it lacks.

const (
	listingInstances = "listing instances"
	// noResults is the warning of a zone that has nothing on a page; unreachable is that of one which cannot be asked, and partialSuccess
	// that of a page which lacks something.
	noResults, unreachable, partialSuccess = "NO_RESULTS_ON_PAGE", "UNREACHABLE", "PARTIAL_SUCCESS"
)

// coverage notes which zones the pages of a listing tell of.
type coverage struct {
	// lacking are zones that could not be asked, with why; shown is on how many pages a zone told what it has there.
	lacking map[string]string
	shown   map[string]int
	pages   int
}

// add takes in a page, and refuses one that lacks something without saying of which zones.
func (c *coverage) add(page *compute.InstanceAggregatedList) error {
	partial := func(what, why string) error {
		return &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "a partial listing: " + what + ": " + why}
	}
	if page.Kind != "compute#instanceAggregatedList" {
		return &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "the answer is not that of the API; check api-endpoint and proxies"}
	}
	c.pages++
	for _, link := range page.Unreachables {
		zone, ok := zoneOf(link)
		if !ok {
			return partial(link, "cannot be reached")
		}
		c.lacking[zone] = "cannot be reached"
	}
	for name, scope := range page.Items {
		zone, ok := zoneOf(name)
		told := scope.Warning == nil || scope.Warning.Code == noResults
		switch {
		case ok && told:
			c.shown[zone]++
		case ok:
			c.lacking[zone] = strings.TrimSpace(scope.Warning.Code + " " + scope.Warning.Message)
		case !told:
			return partial(name, scope.Warning.Code+" "+scope.Warning.Message)
		}
	}
	if w := page.Warning; w != nil && w.Code != noResults {
		named := len(c.lacking) > 0 && (w.Code == unreachable || w.Code == partialSuccess)
		if !named {
			return partial(w.Code, w.Message)
		}
	}
	return nil
}

// zoneOf is the zone of a link or of the name of a scope.
func zoneOf(link string) (zone string, ok bool) {
	parts := strings.Split(strings.Trim(link, "/"), "/")
	i := slices.Index(parts, "zones")
	if i < 0 || i+1 >= len(parts) || parts[i+1] == "" {
		return "", false
	}
	return parts[i+1], true
}

// err is nil where all zones were asked. Else nothing is known of those that could not be, nor of those that some page does not mention.
func (c *coverage) err() error {
	if len(c.lacking) == 0 {
		return nil
	}
	var said []string
	for _, zone := range slices.Sorted(maps.Keys(c.lacking)) {
		said = append(said, "zones/"+zone+": "+c.lacking[zone])
	}
	return &inventory.Partial[instanceID]{
		Lacks: func(id instanceID) bool { return c.lacking[id.zone] != "" || c.shown[id.zone] < c.pages },
		Err: &cloudapi.Error{
			Class: cloudapi.ErrTransient, Operation: listingInstances, Message: "a partial listing: " + strings.Join(said, "; "),
		},
	}
}
