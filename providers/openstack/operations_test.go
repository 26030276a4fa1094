package openstack

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestOperations: the names of calls are those of a list, whatever stands in a path.
func TestOperations(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/compute/v2.1/servers/" + someID:                                  "GET /compute/v2.1/servers/{id}",
		"/v2.1/0123456789abcdef0123456789abcdef/servers/detail":            "GET /v2.1/{id}/servers/detail",
		"/load-balancer/v2.0/lbaas/pools/" + someID + "/members/" + someID: "GET /load-balancer/v2.0/lbaas/pools/{id}/members/{id}",
		"/":                                       "GET /",
		"/load-balancer":                          "GET /",
		"/compute/v2.1/servers/x":                 "GET other",
		"/compute/v2.1/servers/../x":              "GET /",
		"/compute/v2.1/servers/x/servers/detail":  "GET other",
		"/networking/v2.0/networks/x":             "GET other",
		"/networking/v2.0/ports/" + someID + "/x": "GET other",
	} {
		assert.Equal(t, want, operation(httptest.NewRequest(http.MethodGet, "http://api"+path, nil)), path)
	}
}
