package gce

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestRateLimitAsksNobody: a shared network's firewall rule refused by a rate limit is created a minute later, without asking an
// administrator.
func TestRateLimitAsksNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, strings.Replace(usual, "subnetwork-name = nodes\n", "network-project-id = host-project\n", 1))
		w.sim.AddNetwork(gcesim.HostProject, "cluster", "nodes", "10.130.0.0/20")
		w.addNode(gcesim.Spec{Name: "n1"})
		w.sim.Throttle("POST firewalls", 3)
		began := time.Now()
		w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		assert.Less(t, time.Since(began), 10*time.Minute)
		assert.Len(t, w.sim.Objects("firewalls"), 2)
		assert.NotContains(t, strings.Join(w.Events(), "\n"), eventByHand)
	})
}

// TestOperationErrors: an error in an operation has the same class as in a response.
func TestOperationErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		status int64
		class  error
	}{
		"RESOURCE_NOT_FOUND":                  {404, cloudapi.ErrNotFound},
		"RESOURCE_ALREADY_EXISTS":             {409, cloudapi.ErrConflict},
		"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": {400, cloudapi.ErrConflict},
		"RESOURCE_NOT_READY":                  {400, cloudapi.ErrConflict},
		"CONDITION_NOT_MET":                   {412, cloudapi.ErrConflict},
		"QUOTA_EXCEEDED":                      {403, cloudapi.ErrQuota},
		"RATE_LIMIT_EXCEEDED":                 {403, cloudapi.ErrRateLimited},
		"INVALID_FIELD_VALUE":                 {400, cloudapi.ErrInvalid},
		"SOMETHING_NEW":                       {503, cloudapi.ErrTransient},
		"WITHOUT_A_STATUS":                    {0, cloudapi.ErrTransient},
	} {
		o := &compute.Operation{Status: statusDone, HttpErrorStatusCode: want.status, Error: &compute.OperationError{
			Errors: []*compute.OperationErrorErrors{{Code: code, Message: "the words of the cloud"}},
		}}
		err := operationError(o, "doing it")
		require.ErrorIs(t, err, want.class, code)
		require.ErrorContains(t, err, code+" - the words of the cloud")
	}
	require.NoError(t, operationError(&compute.Operation{Status: statusDone}, "doing it"))
}
