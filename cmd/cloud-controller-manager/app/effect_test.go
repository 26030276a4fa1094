package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// exampleFlags are those of the DaemonSet in Kubernetes' documentation of cloud controller managers.
var exampleFlags = []string{
	"--leader-elect=true", "--use-service-account-credentials", "--allocate-node-cidrs=true", "--configure-cloud-routes=true",
	"--cluster-cidr=172.17.0.0/16",
}

// TestFlagsWithoutEffect: the flags of Kubernetes' example are accepted, and those without effect on a cloud are named.
func TestFlagsWithoutEffect(t *testing.T) {
	routes := func(p *registry.Provider) { p.Features.Routes = registry.Done }
	ranges := func(p *registry.Provider) { p.PodRanges = true }
	unconfigured := func(p *registry.Provider) {
		p.Features.Routes = registry.Done
		p.Routes = func(registry.Inputs) bool { return false }
	}
	controller := func(p *registry.Provider) {
		p.Controllers = []registry.Controller{{Name: "alpha-ranges", PodRanges: true}}
	}
	for name, c := range map[string]struct {
		change func(*registry.Provider)
		args   []string
		want   []string
	}{
		"nothing is set":              {nil, nil, nil},
		"neither routes nor ranges":   {nil, exampleFlags, []string{"--allocate-node-cidrs", "--cluster-cidr", "--configure-cloud-routes"}},
		"routes":                      {routes, exampleFlags, []string{"--allocate-node-cidrs"}},
		"routes that nobody asks for": {unconfigured, exampleFlags, []string{"--allocate-node-cidrs", "--cluster-cidr", "--configure-cloud-routes"}},
		"ranges":                      {ranges, exampleFlags, []string{"--configure-cloud-routes"}},
		"ranges of a controller":      {controller, exampleFlags, []string{"--configure-cloud-routes"}},
		"that controller is off": {
			controller, append([]string{"--controllers=*,-alpha-ranges"}, exampleFlags...),
			[]string{"--allocate-node-cidrs", "--cluster-cidr", "--configure-cloud-routes"},
		},
		"the controller of routes is off": {
			routes,
			[]string{"--controllers=*,-route", "--cluster-cidr=172.17.0.0/16", "--route-reconciliation-period=1m"},
			[]string{"--cluster-cidr", "--route-reconciliation-period"},
		},
		"switched off":              {nil, []string{"--allocate-node-cidrs=false", "--configure-cloud-routes=false"}, nil},
		"a way to choose no ranges": {routes, []string{"--cidr-allocator-type=CloudAllocator", "--cluster-cidr=10.0.0.0/8"}, []string{"--cidr-allocator-type"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, provider("alpha", c.change))
			require.NoError(t, check(t, m, c.args...))
			p, err := m.providers.Lookup("alpha")
			require.NoError(t, err)
			in, err := m.inputs()
			require.NoError(t, err)
			assert.Equal(t, c.want, m.ineffectiveFlags(p, in))
		})
	}
}

// accountOf is a client builder that returns its account.
type accountOf string

func (a accountOf) Config(name string) (*restclient.Config, error) { return a.ConfigOrDie(name), nil }

func (a accountOf) ConfigOrDie(name string) *restclient.Config {
	return &restclient.Config{Username: string(a) + " " + name}
}

func (a accountOf) Client(name string) (kubernetes.Interface, error) { return a.ClientOrDie(name), nil }
func (a accountOf) ClientOrDie(string) kubernetes.Interface          { return nil }

// TestControllerAccounts: only the framework's controllers have their own accounts.
func TestControllerAccounts(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]map[string]string{
		"": {
			"node-controller": "own node-controller", "service-controller": "own service-controller", "route-controller": "own route-controller",
			"cloud-provider-alpha": "program cloud-provider-alpha", "cloud-controller-manager-guard": "program cloud-controller-manager-guard",
			cloudAPIController: "program " + cloudAPIController,
		},
		"ccm/x": {"node-controller": "own x-node-controller", "cloud-provider-alpha": "program cloud-provider-alpha"},
	} {
		clients := controllerClients{accountOf("own"), accountOf("program"), &controllerAccounts{place}, controllerNames()}
		for name, account := range want {
			assert.Equal(t, account, clients.ConfigOrDie(name).Username, name)
		}
	}
}

// TestControllerAccountsAreChecked: the flag needs a namespace and a prefix, and is refused without controllers' accounts.
func TestControllerAccountsAreChecked(t *testing.T) {
	const own = "--use-service-account-credentials"
	for place, want := range map[string]string{
		"ccm/x":  "",
		"x":      "--controller-accounts=x: use NAMESPACE/PREFIX, such as kube-system/cloud-controller-manager: ",
		"ccm/X_": "--controller-accounts=ccm/X_: use NAMESPACE/PREFIX, such as kube-system/cloud-controller-manager: ",
	} {
		err := check(t, newManager(t, provider("alpha", nil)), "--controller-accounts="+place, own)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, want)
	}
	err := check(t, newManager(t, provider("alpha", nil)), "--controller-accounts=ccm/x")
	assert.EqualError(t, err, "--controller-accounts=ccm/x: has no effect without "+own)
}
