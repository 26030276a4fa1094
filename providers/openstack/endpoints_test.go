package openstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestTheLoginStaysAtTheConfiguredHost: neither a redirect nor an address in the list of versions takes the password elsewhere.
func TestTheLoginStaysAtTheConfiguredHost(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(other.Close)
	for name, keystone := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"list of versions": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMultipleChoices)
			fmt.Fprintf(w, `{"versions":{"values":[{"id":"v3.14","status":"stable","links":[{"rel":"self","href":"%s/v3/"}]}]}}`, other.URL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(keystone)
			defer server.Close()
			file := strings.Join([]string{"[Global]", "auth-url=" + server.URL, "user-id=u", "password=hunter2", "tenant-id=t"}, "\n")
			in := registry.Inputs{Version: "test", Sources: schema.Sources{File: []byte(file)}}
			c, _, err := parseConfig(in)
			require.NoError(t, err)
			a, err := newAPI(c, in)
			require.NoError(t, err)
			_, err = a.connect(t.Context())
			require.ErrorContains(t, err, strings.TrimPrefix(other.URL, "http://"))
			assert.NotContains(t, err.Error(), "hunter2")
			assert.Zero(t, reached.Load())
		})
	}
}

// catalogServer is an identity and a compute service, whose catalog has further services at other addresses.
func catalogServer(others map[string]string) *httptest.Server {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			w.Header().Set("X-Subject-Token", "t")
			w.WriteHeader(http.StatusCreated)
			var catalog []string
			add := func(kind, at string) {
				catalog = append(catalog,
					fmt.Sprintf(`{"type":%q,"endpoints":[{"interface":"public","region":"r","region_id":"r","url":%q}]}`, kind, at))
			}
			add("compute", server.URL+"/compute/v2.1")
			for kind, at := range others {
				add(kind, at)
			}
			fmt.Fprintf(w, `{"token":{"expires_at":"2099-01-01T00:00:00.000000Z","project":{"id":"p"},"catalog":[%s]}}`, strings.Join(catalog, ","))
		case strings.Contains(r.URL.Path, "servers"):
			fmt.Fprint(w, `{"servers":[]}`)
		default:
			fmt.Fprintf(w, `{"versions":[{"id":"v2.1","status":"CURRENT","version":"2.95","min_version":"2.1","links":[{"rel":"self","href":"%s/compute/v2.1/"}]}]}`, server.URL)
		}
	}))
	return server
}

// TestEndpointsInTheCatalog: no call goes to an endpoint without TLS that Keystone's catalog names, unless the operator allows it;
// the check before a start says so.
func TestEndpointsInTheCatalog(t *testing.T) {
	t.Parallel()
	const inTheOpen = "http://neutron.example.com:9696"
	for name, c := range map[string]struct {
		loadBalancers string
		allowed       bool
		lbaas         string // [LoadBalancer] enabled
		refused       []string
	}{
		"the network":                     {loadBalancers: "https://octavia.example.com", refused: []string{"of the service network"}},
		"load balancers, too":             {loadBalancers: "http://192.0.2.9", refused: []string{"of the service network", "http://192.0.2.9 of the service load-balancer"}},
		"load balancers are switched off": {loadBalancers: "http://192.0.2.9", lbaas: "enabled=false", refused: []string{"of the service network"}},
		"allowed":                         {loadBalancers: "http://192.0.2.9", allowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := catalogServer(map[string]string{"network": inTheOpen, "load-balancer": c.loadBalancers})
			t.Cleanup(server.Close)
			var reached atomic.Int64
			dial := func(ctx context.Context, network, address string) (net.Conn, error) {
				if !strings.HasSuffix(server.URL, address) {
					reached.Add(1)
					return nil, errors.New("nobody is there")
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			file := strings.Join([]string{
				"[Global]", "auth-url=" + server.URL + "/v3", "user-id=u", "password=hunter2", "tenant-id=p", "region=r",
				"[LoadBalancer]", c.lbaas,
			}, "\n")
			world, err := newCloud(registry.Inputs{
				Version: "test", Dial: dial, Sources: schema.Sources{File: []byte(file), AllowInsecureEndpoints: c.allowed},
			})
			require.NoError(t, err)
			err = world.CheckAPI(t.Context())
			_, networkErr := world.api.service(t.Context(), network)
			if c.allowed {
				require.NoError(t, err)
				require.Error(t, networkErr)
				assert.Positive(t, reached.Load())
				return
			}
			for _, said := range append(c.refused, inTheOpen, "--"+schema.FlagAllowInsecureEndpoints) {
				require.ErrorContains(t, err, said)
			}
			assert.Equal(t, len(c.refused), strings.Count(err.Error(), "of the service"))
			require.ErrorContains(t, networkErr, inTheOpen)
			require.ErrorIs(t, networkErr, cloudapi.ErrInvalid)
			assert.Zero(t, reached.Load())
		})
	}
}
