package ibm

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// limitsElsewhere are limits that no life of a Service meets.
func limitsElsewhere() map[string]string {
	return map[string]string{ibmlimits.LoadBalancers.String(): "TestQuotas", ibmlimits.VPCGroups.String(): "TestQuotas"}
}

// TestQuotas: the simulated region counts what is there already.
func TestQuotas(t *testing.T) {
	t.Parallel()
	// made is the answer to the last of so many creations.
	made := func(path string, body func(sim *ibmsim.Sim, vpc document) document) func(n int) *httptest.ResponseRecorder {
		return func(n int) (answer *httptest.ResponseRecorder) {
			sim, server := ibmsim.New(testKey, 0)
			token := login(t, server)
			vpc := send(t, server, token, http.MethodGet, "/v1/vpcs", nil, http.StatusOK)["vpcs"].([]any)[0].(document)
			for _, g := range sim.SecurityGroups() {
				if path == "/v1/security_groups" && g.VPC == vpc["name"] {
					n--
				}
			}
			for i := range n {
				d := body(sim, vpc)
				d["name"] = fmt.Sprint("more-", i)
				answer = sendAny(t, server, token, http.MethodPost, path, d)
			}
			return answer
		}
	}
	conformance.TryLimit(t, ibmlimits.LoadBalancers, made("/v1/load_balancers", func(sim *ibmsim.Sim, _ document) document {
		return document{"is_public": true, "subnets": []any{document{"id": sim.Subnets()[0].ID}}}
	}))
	conformance.TryLimit(t, ibmlimits.VPCGroups, made("/v1/security_groups", func(_ *ibmsim.Sim, vpc document) document {
		return document{"vpc": document{"id": vpc["id"]}, "resource_group": document{"id": ibmsim.GroupID}}
	}))
}
