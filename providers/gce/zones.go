package gce

import (
	"maps"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// If a zone is unreachable, the instances of the others remain known, because a listing names the missing zones.

const (
	listingInstances = "listing instances"
	// Warnings in a listing: the zone has nothing on this page, the zone is unreachable, the page is incomplete.
	noResults, unreachable, partialSuccess = "NO_RESULTS_ON_PAGE", "UNREACHABLE", "PARTIAL_SUCCESS"
)

// coverage records which zones a listing covers.
type coverage struct {
	// lacking: unreachable zones, with the reason. shown: the number of pages that cover each zone.
	lacking map[string]string
	shown   map[string]int
	pages   int
}

// add records a page, and fails if the page is incomplete without naming the zones.
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
		answered := scope.Warning == nil || scope.Warning.Code == noResults
		switch {
		case ok && answered:
			c.shown[zone]++
		case ok:
			c.lacking[zone] = strings.TrimSpace(scope.Warning.Code + " " + scope.Warning.Message)
		case !answered:
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

// zoneOf returns the zone of a link or scope name.
func zoneOf(link string) (zone string, ok bool) {
	parts := strings.Split(strings.Trim(link, "/"), "/")
	i := slices.Index(parts, "zones")
	if i < 0 || i+1 >= len(parts) || parts[i+1] == "" {
		return "", false
	}
	return parts[i+1], true
}

// err is nil if all zones answered. Otherwise unreachable zones and those that a page omits are unknown.
func (c *coverage) err() error {
	if len(c.lacking) == 0 {
		return nil
	}
	var reasons []string
	for _, zone := range slices.Sorted(maps.Keys(c.lacking)) {
		reasons = append(reasons, "zones/"+zone+": "+c.lacking[zone])
	}
	return &inventory.Partial[instanceID]{
		Lacks: func(id instanceID) bool { return c.lacking[id.zone] != "" || c.shown[id.zone] < c.pages },
		Err: &cloudapi.Error{
			Class: cloudapi.ErrTransient, Operation: listingInstances, Message: "a partial listing: " + strings.Join(reasons, "; "),
		},
	}
}
