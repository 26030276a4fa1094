package azure

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// TestNamesThatAzureRefuses: they are refused before any write, with what is legal. Where they are not sent they are told at most.
func TestNamesThatAzureRefuses(t *testing.T) {
	t.Parallel()
	internal := map[string]string{annotationInternal: "true"}
	link := map[string]string{annotationInternal: "true", annotationPrivateLink: "true"}
	for name, c := range map[string]struct {
		with          map[string]string
		key, value    string
		refused, told string
	}{
		"label":                   {key: annotationLabel, value: "Shop_1", refused: `"Shop_1" is not a DNS label`},
		"label, internal":         {with: internal, key: annotationLabel, value: "Shop_1", told: `"Shop_1" is not a DNS label`},
		"IP tag":                  {key: annotationIPTags, value: "RoutingPreference=Inter net", refused: `"RoutingPreference=Inter net" is not an IP tag`},
		"IP tag, internal":        {with: internal, key: annotationIPTags, value: "Routing Preference=x", told: `is not an IP tag`},
		"IP tag without a type":   {key: annotationIPTags, value: "x,RoutingPreference=Internet", told: `"x" is left out`},
		"FQDN":                    {with: link, key: annotationLinkFQDNs, value: "*.example.com sh/op", refused: `"sh/op" is not a name such as web.example.com`},
		"FQDN, no link":           {with: internal, key: annotationLinkFQDNs, value: "shop"},
		"subscription":            {with: link, key: annotationLinkVisible, value: "* mine", refused: `"mine" is neither the ID of a subscription nor *`},
		"subscription, approved":  {with: link, key: annotationLinkApproved, value: "mine", refused: `"mine" is neither the ID of a subscription nor *`},
		"all subscriptions":       {with: link, key: annotationLinkApproved, value: "*"},
		"legal label, legal tags": {with: map[string]string{annotationIPTags: " RoutingPreference = Internet ,"}, key: annotationLabel, value: "shop-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			annotations := map[string]string{c.key: c.value}
			maps.Copy(annotations, c.with)
			s := webService(annotations, func(*v1.Service) {})
			_, warnings, _ := parseSettings(s)
			if c.told == "" {
				require.NoError(t, warnings)
			} else {
				require.ErrorContains(t, warnings, c.told)
			}
			withNode(t, s, func(w *world) {
				if c.refused == "" {
					w.ensure(s)
					return
				}
				require.ErrorContains(w, w.refuse(s), c.refused)
				assert.Zero(w, w.server.Calls().Writes)
			})
		})
	}
}
