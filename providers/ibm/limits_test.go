package ibm

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// limitsElsewhere are limits that no life of a Service meets.
func limitsElsewhere() map[string]string {
	return map[string]string{ibmlimits.LoadBalancers.String(): "TestQuotas", ibmlimits.VPCGroups.String(): "TestQuotas"}
}

// TestFullRegion: a load balancer, or a security group, that IBM refuses as one too many is told with the limit, how many there would be,
// and what to do.
func TestFullRegion(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		for n := range ibmlimits.LoadBalancers.Max {
			d := document{"name": fmt.Sprint("other-", n), "is_public": true, "subnets": []any{document{"id": w.sim.Subnets()[0].ID}}}
			send(w.t, w.server, login(w.t, w.server), http.MethodPost, "/v1/load_balancers", d, http.StatusCreated)
		}
		err := w.ensure(web())
		require.ErrorIs(w.t, err, cloudapi.ErrQuota)
		assert.ErrorContains(w.t, err, "ask the cloud for a higher limit or remove what is not used; "+
			"a region would have 51 load balancers, and the cloud takes at most 50 unless it was raised for this account")
	})
	inWorld(t, 1, 0, nil, func(w *world) {
		vpc := send(w.t, w.server, login(w.t, w.server), http.MethodGet, "/v1/vpcs", nil, http.StatusOK)["vpcs"].([]any)[0].(document)
		have := slices.DeleteFunc(w.sim.SecurityGroups(), func(g ibmsim.SecurityGroup) bool { return g.VPC != vpc["name"] })
		for n := range ibmlimits.VPCGroups.Max - len(have) {
			d := document{"name": fmt.Sprint("more-", n), "vpc": document{"id": vpc["id"]}, "resource_group": document{"id": ibmsim.GroupID}}
			send(w.t, w.server, login(w.t, w.server), http.MethodPost, "/v1/security_groups", d, http.StatusCreated)
		}
		s := web()
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		err := w.ensure(s)
		require.ErrorIs(w.t, err, cloudapi.ErrQuota)
		assert.ErrorContains(w.t, err, "remove what is not used; a VPC would have 101 security groups, and the cloud takes at most 100 unless it was raised for this account")
	})
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
