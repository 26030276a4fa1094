package aws

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// endlessAPI answers every listing with a page without objects and the token of a next one. No two answers are equal.
func endlessAPI(t *testing.T, token func(n int64) string) (*cloud, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseForm())
		n, action := calls.Add(1), r.Form.Get("Action")
		if r.Form.Get("Version") == "2016-11-15" {
			fmt.Fprintf(w, "<%sResponse><requestId>%d</requestId><nextToken>%s</nextToken></%[1]sResponse>", action, n, token(n))
			return
		}
		fmt.Fprintf(w, "<%sResponse><%[1]sResult><NextMarker>%[2]s</NextMarker></%[1]sResult><ResponseMetadata><RequestId>%[3]d</RequestId></ResponseMetadata></%[1]sResponse>",
			action, token(n), n)
	}))
	t.Cleanup(server.Close)
	sim, _ := awssim.New(awssim.Options{})
	in := testInputs(sim, server.URL, sim.CloudConfig(server.URL), nil)
	c, err := maker(unlimited).New(in)
	require.NoError(t, err)
	return c, &calls
}

// TestListingsEnd: a listing without an end is an error, by the token that comes again, and by the number of pages.
func TestListingsEnd(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]func(*cloud) error{
		"instances":         func(c *cloud) error { _, _, err := c.api.listInstances(t.Context()); return err },
		"security groups":   func(c *cloud) error { _, _, err := c.api.listGroups(t.Context()); return err },
		"subnets":           func(c *cloud) error { _, _, err := c.api.listSubnets(t.Context()); return err },
		"route tables":      func(c *cloud) error { _, _, err := c.api.listTables(t.Context()); return err },
		"classic balancers": func(c *cloud) error { _, _, err := c.api.listClassics(t.Context()); return err },
		"network balancers": func(c *cloud) error { _, _, err := c.api.listNetworks(t.Context()); return err },
		"target groups":     func(c *cloud) error { _, _, err := c.api.listTargetGroups(t.Context()); return err },
		"listeners":         func(c *cloud) error { _, err := c.api.getListeners(t.Context(), "arn"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, calls := endlessAPI(t, func(n int64) string { return []string{"a", "b", "c"}[n%3] })
			err := list(c)
			require.ErrorContains(t, err, "a listing without an end")
			assert.Equal(t, int64(4), calls.Load(), "pages that are read a second time")
		})
	}
	c, calls := endlessAPI(t, func(n int64) string { return fmt.Sprint("page-", n) })
	_, _, err := c.api.listNetworks(t.Context())
	require.ErrorContains(t, err, "more than 1000 pages")
	assert.Equal(t, int64(1001), calls.Load())
	assert.NotContains(t, err.Error(), "page-1001")
}
