package linode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// limitsElsewhere are the limits that the test below holds, of what is counted in two lists or within a text.
func limitsElsewhere() map[string]string {
	const test = "TestFirewallLimits"
	return map[string]string{
		linodelimits.FirewallRules.String(): test, linodelimits.RuleAddresses.String(): test, linodelimits.RulePorts.String(): test,
	}
}

// unlimited are the lists that have no limit.
func unlimited() map[string]string {
	const unbounded = "Linode's API reference bounds it nowhere"
	return map[string]string{"configs": unbounded, "*nodes": unbounded, "tags": unbounded, "*check_path": unbounded, "*check_body": unbounded}
}

// TestFirewallLimits: the simulated cloud takes as much in a firewall as Linode does.
func TestFirewallLimits(t *testing.T) {
	t.Parallel()
	_, server := linodesim.New(linodesim.Options{Token: testToken})
	number := 0
	firewall := func(rules, networks, ports int) *httptest.ResponseRecorder {
		number++
		addresses := make([]string, networks)
		for i := range addresses {
			addresses[i] = fmt.Sprintf("10.0.%d.%d/32", i>>8, i&0xff)
		}
		rule := map[string]any{
			"protocol": "TCP", "action": "ACCEPT", "label": "accept", "addresses": map[string]any{"ipv4": addresses},
			"ports": strings.TrimSuffix(strings.Repeat("80,", ports), ","),
		}
		text, err := json.Marshal(map[string]any{"label": fmt.Sprint("firewall-", number), "rules": map[string]any{
			"inbound": slices.Repeat([]any{rule}, rules), "outbound": []any{}, "inbound_policy": "DROP", "outbound_policy": "ACCEPT",
		}})
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodPost, "/v4/networking/firewalls", bytes.NewReader(text))
		r.Header.Set("Authorization", "Bearer "+testToken)
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		return answer
	}
	conformance.TryLimit(t, linodelimits.FirewallRules, func(n int) *httptest.ResponseRecorder { return firewall(n, 1, 1) })
	conformance.TryLimit(t, linodelimits.RuleAddresses, func(n int) *httptest.ResponseRecorder { return firewall(1, n, 1) })
	conformance.TryLimit(t, linodelimits.RulePorts, func(n int) *httptest.ResponseRecorder { return firewall(1, 1, n) })
}
