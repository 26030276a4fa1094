package openstack

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestNoSecretInErrors: neither the password nor a token is in an error.
func TestNoSecretInErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		var all []string
		for _, f := range []simkit.Fault{
			{Kind: simkit.FaultStatus, Status: 400},
			{Kind: simkit.FaultReset},
			{Kind: simkit.FaultHTML},
			{Kind: simkit.FaultCut},
			{Kind: simkit.FaultStatus, Status: 401},
		} {
			w.restart()
			id, err := w.server.AddFault(f)
			require.NoError(t, err)
			all = append(all, w.CheckAPI(t.Context()).Error())
			w.server.RemoveFault(id)
			w.restart() // a failed login is believed for a moment
			require.NoError(t, w.CheckAPI(t.Context()))
			id, err = w.server.AddFault(f)
			require.NoError(t, err)
			_, _, err = w.api.listServers(t.Context())
			all = append(all, err.Error())
			w.server.RemoveFault(id)
		}
		text := strings.Join(all, "\n")
		assert.NotContains(t, text, openstacksim.Password)
		assert.NotContains(t, text, "gAAAA")
	})
}

// TestErrorsOfServices: the class of each service's faults.
func TestErrorsOfServices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   error
	}{
		{404, `{"itemNotFound": {"code": 404, "message": "Instance x could not be found."}}`, cloudapi.ErrNotFound},
		{404, `{"NeutronError": {"type": "PortNotFound", "message": "Port x could not be found.", "detail": ""}}`, cloudapi.ErrNotFound},
		{404, `{"faultcode": "Client", "faultstring": "Load Balancer x not found.", "debuginfo": null}`, cloudapi.ErrNotFound},
		{404, `{"code": 404, "title": "Not Found", "description": "Not Found."}`, cloudapi.ErrNotFound},
		{404, `<html>404</html>`, cloudapi.ErrTransient},
		{404, `{}`, cloudapi.ErrTransient},
		{404, ``, cloudapi.ErrTransient},
		{401, `<html>401</html>`, cloudapi.ErrUnauthorized},
		{403, `{"faultstring": "Policy does not allow this request to be performed."}`, cloudapi.ErrUnauthorized},
		{403, `{"faultstring": "Quota has been met for resources: Load Balancer"}`, cloudapi.ErrQuota},
		{403, `<html>WAF</html>`, cloudapi.ErrTransient},
		{409, `{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded", "detail": ""}}`, cloudapi.ErrQuota},
		{409, `{"NeutronError": {"type": "IpAddressGenerationFailure", "message": "No more IP addresses", "detail": ""}}`, cloudapi.ErrQuota},
		{409, `{"faultstring": "Load Balancer x is immutable and cannot be updated."}`, cloudapi.ErrConflict},
		{412, `{"NeutronError": {"type": "RevisionNumberConstraintFailed", "message": "Constrained", "detail": ""}}`, cloudapi.ErrConflict},
		{413, `{"overLimit": {"code": 413, "message": "slow down"}}`, cloudapi.ErrRateLimited},
		{429, `slow down`, cloudapi.ErrRateLimited},
		{400, `{"badRequest": {"code": 400, "message": "no"}}`, cloudapi.ErrInvalid},
		{503, `<html>gone</html>`, cloudapi.ErrTransient},
	} {
		kind, message, recognised := readFault([]byte(c.body))
		assert.Equal(t, c.want, classOf(c.status, kind, message, recognised), "%d %s", c.status, c.body)
	}
}

// TestQuota: what the project may not have more of is told on the Service.
func TestQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[string]string{"loadbalancer": "Quota has been met", "floatingip": "Quota exceeded"} {
			w := newTestWorld(t, "", func(s *openstacksim.Sim) { s.SetQuota(kind, 0) })
			w.addNode(openstacksim.Spec{Name: "n1"})
			s := web(nil)
			w.Apply(s)
			_, err := w.try(s)
			require.ErrorIs(t, err, cloudapi.ErrQuota, kind)
			assert.Contains(t, strings.Join(w.Events(), "\n"), want)
		}
	})
}

// TestPageForACreation: a page of a proxy in the place of a creation's answer is named as such, with what to look at.
func TestPageForACreation(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"POST /networking/v2.0/security-groups$", "POST /networking/v2.0/security-group-rules", "POST /networking/v2.0/floatingips"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "manage-security-groups = true\n", nil)
				w.addNode(openstacksim.Spec{Name: "n1"})
				s := web(nil)
				w.Apply(s)
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultHTML, Operation: operation, Count: 1})
				require.NoError(t, err)
				_, err = w.reconciler.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
				require.Error(t, err)
				assert.ErrorContains(t, err, "an answer that is not from the service (OK); check the endpoints of the catalog, and proxies")
			})
		})
	}
}
