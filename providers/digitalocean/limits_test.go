package digitalocean

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// limitsElsewhere are the limits that the test below holds, because no Service's life makes a firewall.
func limitsElsewhere() map[string]string {
	all := map[string]string{}
	for _, l := range digitaloceanlimits.Table[2:] {
		all[l.String()] = "TestFirewallLimits"
	}
	return all
}

// unlimited are the texts and lists of load balancers that have no limit.
func unlimited() map[string]string {
	const unbounded = "DigitalOcean's published description bounds it nowhere"
	return map[string]string{
		"droplet_ids": unbounded, "forwarding_rules": unbounded, "tags": unbounded, "health_check.path": unbounded,
		"firewall.*": unbounded, "sticky_sessions.cookie_name": unbounded,
	}
}

// TestFirewallLimits: the simulated cloud takes as much in a firewall as DigitalOcean does.
func TestFirewallLimits(t *testing.T) {
	t.Parallel()
	_, server := digitaloceansim.New(digitaloceansim.Options{Token: testToken})
	call := func(path string, body map[string]any) *httptest.ResponseRecorder {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(text))
		r.Header.Set("Authorization", "Bearer "+testToken)
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		return answer
	}
	number := 0
	firewall := func(rules, sources, tags, droplets int) *httptest.ResponseRecorder {
		number++
		body := map[string]any{"name": fmt.Sprint("firewall-", number)}
		var inbound, addresses, names []any
		for i := range sources {
			addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff))
		}
		for i := range rules {
			inbound = append(inbound, map[string]any{"protocol": "tcp", "ports": strconv.Itoa(i + 1), "sources": map[string]any{"addresses": addresses}})
		}
		for i := range tags {
			call("/v2/tags", map[string]any{"name": fmt.Sprint("tag-", i)})
			names = append(names, fmt.Sprint("tag-", i))
		}
		var ids []any
		for i := range droplets {
			ids = append(ids, i+1)
		}
		body["inbound_rules"], body["tags"], body["droplet_ids"] = inbound, names, ids
		return call("/v2/firewalls", body)
	}
	conformance.TryLimit(t, digitaloceanlimits.FirewallRules, func(n int) *httptest.ResponseRecorder { return firewall(n, 1, 1, 1) })
	conformance.TryLimit(t, digitaloceanlimits.RuleSources, func(n int) *httptest.ResponseRecorder { return firewall(1, n, 1, 1) })
	conformance.TryLimit(t, digitaloceanlimits.FirewallTags, func(n int) *httptest.ResponseRecorder { return firewall(1, 1, n, 1) })
	conformance.TryLimit(t, digitaloceanlimits.FirewallDroplets, func(n int) *httptest.ResponseRecorder { return firewall(1, 1, 1, n) })
}
