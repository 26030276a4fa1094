package linode

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

func TestToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(file, []byte(" from-file\n"), 0o600))
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		env     map[string]string
		want    string
		refused string
	}{
		"the file wins":           {map[string]string{"LINODE_API_TOKEN_FILE": file, "LINODE_API_TOKEN": "from-env"}, "from-file", ""},
		"a file that is not read": {map[string]string{"LINODE_API_TOKEN_FILE": filepath.Join(dir, "nowhere"), "LINODE_API_TOKEN": "from-env"}, "from-env", ""},
		"an empty file":           {map[string]string{"LINODE_API_TOKEN_FILE": empty, "LINODE_API_TOKEN": "from-env"}, "from-env", ""},
		"the variable alone":      {map[string]string{"LINODE_API_TOKEN": "from-env"}, "from-env", ""},
		"neither":                 {map[string]string{"LINODE_API_TOKEN": ""}, "", "LINODE_API_TOKEN: is required"},
		"an empty file alone":     {map[string]string{"LINODE_API_TOKEN": "", "LINODE_API_TOKEN_FILE": empty}, "", "LINODE_API_TOKEN: is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, _, err := parseConfig(testInputs("http://127.0.0.1", nil, c.env))
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, config.Token.Reveal())
		})
	}
}

// TestTokenIsReadAgain: a rotated file is used without a restart.
func TestTokenIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		_, server := linodesim.New(linodesim.Options{Token: testToken})
		network := simkit.NewNetwork()
		in := testInputs(network.Serve(t, server), nil, map[string]string{"LINODE_API_TOKEN_FILE": file})
		in.Dial = network.Dial
		c, err := newCloud(in)
		require.NoError(t, err)
		require.ErrorContains(t, c.CheckAPI(t.Context()), "not authorized")
		require.NoError(t, os.WriteFile(file, []byte(testToken), 0o600))
		later := time.Now().Add(time.Minute)
		require.NoError(t, os.Chtimes(file, later, later))
		require.Eventually(t, func() bool { return c.CheckAPI(t.Context()) == nil }, 20*time.Second, 100*time.Millisecond)
	})
}

// TestTokenHealth: a refused token stops the start; an outage does not; a token that expires later shows, and ends nothing.
func TestTokenHealth(t *testing.T) {
	t.Parallel()
	on := map[string]string{"enable-token-health-checker": "true"}
	w := newTestWorld(t, on, nil)
	require.Equal(t, map[string]int{"GET /v4/profile": 1}, w.server.Calls().ByOperation)
	require.NoError(t, w.APIHealth())

	w.sim.SetToken("another")
	require.ErrorIs(t, tokenJob(w.api).Run(t.Context()), errTokenRefused)
	require.Error(t, w.APIHealth(), "shown at /healthz?cloud-api")
	_, err := newCloud(testInputs(w.url, on, nil))
	require.ErrorIs(t, err, errTokenRefused)
	require.ErrorContains(t, err, "LINODE_API_TOKEN")
	require.NotContains(t, err.Error(), testToken)
	_, err = newCloud(testInputs(w.url, nil, nil))
	require.NoError(t, err, "without the option nobody asks")

	w.sim.SetToken(testToken)
	require.NoError(t, tokenJob(w.api).Run(t.Context()))
	require.NoError(t, w.APIHealth())
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable})
	require.NoError(t, err)
	_, err = newCloud(testInputs(w.url, on, nil))
	require.NoError(t, err, "an outage says nothing about the token")
}

// TestContradictionsOfRefusedValues: of a refused value nothing is known, so that it contradicts nothing. What is missing hides nothing.
func TestContradictionsOfRefusedValues(t *testing.T) {
	t.Parallel()
	_, _, err := parseConfig(testInputs("", map[string]string{"vpc-ids": "a", "subnet-ids": "3"}, nil))
	require.ErrorContains(t, err, "is not a list of whole numbers")
	assert.NotContains(t, err.Error(), "needs --vpc-ids")
	_, _, err = parseConfig(testInputs("", map[string]string{"subnet-ids": "3"}, map[string]string{"LINODE_API_TOKEN": ""}))
	require.ErrorContains(t, err, "LINODE_API_TOKEN")
	require.ErrorContains(t, err, "needs --vpc-ids")
	for name, c := range map[string]struct {
		annotations   map[string]string
		contradiction string
		told          bool
	}{
		"a range": {map[string]string{annotationFrontendSubnetID: "x", annotationFrontendRangeV4: "10.0.0.0/28"}, "is required where a range", false},
		"a VPC":   {map[string]string{annotationFrontendSubnetID: "x", annotationFrontendVPC: "main"}, "belong together", false},
		"a body": {
			map[string]string{annotationCheckType: checkHTTPBody, annotationCheckBody: strings.Repeat("x", 20_000)}, "is required for checks", false,
		},
		"another one": {map[string]string{annotationCheckAttempts: "x", annotationFrontendVPC: "main"}, "belong together", true},
	} {
		_, _, err := parseSettings(service("web", c.annotations, port("http", 80, 30080)), Config{})
		require.Error(t, err, name)
		assert.Equal(t, c.told, strings.Contains(err.Error(), c.contradiction), "%s: %v", name, err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags, env map[string]string
		refused    string
	}{
		"nothing":   {nil, nil, ""},
		"no region": {nil, map[string]string{"LINODE_REGION": ""}, "LINODE_REGION: is required"},
		"both backend subnets": {
			map[string]string{"vpc-names": "a", "nodebalancer-backend-ipv4-subnet-id": "1", "nodebalancer-backend-ipv4-subnet-name": "x"},
			nil,
			"exclude each other",
		},
		"both, switched off": {
			map[string]string{"disable-nodebalancer-vpc-backends": "true", "nodebalancer-backend-ipv4-subnet-id": "1", "nodebalancer-backend-ipv4-subnet-name": "x"},
			nil, "",
		},
		"a subnet without a VPC":    {map[string]string{"nodebalancer-backend-ipv4-subnet-name": "x"}, nil, "needs a VPC"},
		"a load balancer type":      {map[string]string{"load-balancer-type": "x"}, nil, "is not one of"},
		"BGP is accepted":           {map[string]string{"load-balancer-type": "cilium-bgp", "bgp-node-selector": "a=b", "ip-holder-suffix": "x"}, nil, ""},
		"a prefix":                  {map[string]string{"nodebalancer-prefix": "my_prefix-1"}, nil, ""},
		"a prefix that is too long": {map[string]string{"nodebalancer-prefix": strings.Repeat("x", 20)}, nil, "is not a prefix"},
		"a prefix of other signs":   {map[string]string{"nodebalancer-prefix": "a.b"}, nil, "is not a prefix"},
		"routes without a VPC":      {map[string]string{"enable-route-controller": "true"}, nil, "--enable-route-controller: needs a VPC"},
		"routes":                    {map[string]string{"enable-route-controller": "true", "vpc-names": "a"}, nil, ""},
		"names and IDs":             {map[string]string{"vpc-names": "a", "vpc-ids": "1", "subnet-ids": "2"}, nil, "--vpc-ids and --vpc-names: exclude each other"},
		"subnets without VPCs":      {map[string]string{"subnet-ids": "2"}, nil, "--subnet-ids: needs --vpc-ids"},
		"VPCs without subnets":      {map[string]string{"vpc-ids": "1"}, nil, "--vpc-ids: needs --subnet-ids"},
		"IDs":                       {map[string]string{"vpc-ids": "1,2", "subnet-ids": "3"}, nil, ""},
		"IDs that are none":         {map[string]string{"vpc-ids": "a", "subnet-ids": "3"}, nil, "is not a list of whole numbers"},
		"a plan":                    {map[string]string{"default-nodebalancer-type": "premium_40GB"}, nil, ""},
		"a plan that is none":       {map[string]string{"default-nodebalancer-type": "huge"}, nil, "is not one of"},
		"an external subnet":        {nil, map[string]string{"LINODE_EXTERNAL_SUBNET": "10.0.0.0"}, "is not a network"},
		"a URL":                     {nil, map[string]string{"LINODE_URL": "api.example"}, "is not a URL"},
		"cache times are ignored":   {nil, map[string]string{"LINODE_INSTANCE_CACHE_TTL": "x", "K8S_NODECACHE_TTL": "-5", "LINODE_API_TOKEN_CACHE_TTL_SECONDS": "0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Description().Validate(testInputs("http://127.0.0.1", c.flags, c.env))
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refused)
		})
	}
	for cidr, refused := range map[string]string{
		"": "must be one IPv4 network", "x": "must be one", "2001:db8::/56": "must be one", "10.0.0.0/16,10.1.0.0/16": "must be one",
		"10.0.0.0/25": "is larger than the whole", "10.0.0.0/16": "",
	} {
		in := testInputs("http://127.0.0.1", nil, nil)
		in.AllocateNodeCIDRs, in.ClusterCIDR = true, cidr
		err := Description().Validate(in)
		if refused == "" {
			require.NoError(t, err, cidr)
		} else {
			require.ErrorContains(t, err, refused, cidr)
		}
	}
}

func TestProviderID(t *testing.T) {
	t.Parallel()
	id, err := parseProviderID("linode://123")
	require.NoError(t, err)
	assert.Equal(t, 123, id)
	for _, bad := range []string{"", "linode:/1", "linode://", "linode://x", "linode://12x", "linode://0", "linode://-1", "linode://+1", "aws:///x"} {
		_, err := parseProviderID(bad)
		require.Error(t, err, bad)
	}
}

func FuzzProviderID(f *testing.F) {
	f.Add("linode://1")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := parseProviderID(text); err == nil && id < 1 {
			t.Fatalf("%q gave %d", text, id)
		}
	})
}

func FuzzPortAnnotation(f *testing.F) {
	f.Add(`{"protocol": "http"}`, allowACL)
	f.Fuzz(func(t *testing.T, text, list string) {
		s := service("web", map[string]string{annotationPort + "80": text, annotationFirewallACL: list}, port("http", 80, 30080))
		set, _, err := parseSettings(s, Config{DefaultType: "common"})
		if err == nil && set.ACL != nil {
			_, _ = firewallRules(set.ACL, s, "ccm-0")
		}
		_, _ = desire(s, set, nil, wantedNodes{}, nil)
	})
}

// TestAddresses: what a Linode tells about its node, in the order of Linode's own controller.
func TestAddresses(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil, nil)
	w.env["LINODE_EXTERNAL_SUBNET"] = "10.8.0.0/16"
	w.restart()
	for name, c := range map[string]struct {
		ipv4   []string
		ipv6   string
		vpc    *vpcAddresses
		want   string
		status []v1.NodeAddress
	}{
		"both":               {ipv4: []string{"198.18.0.1", "192.168.128.1"}, want: "E198.18.0.1 I192.168.128.1"},
		"public IPv6":        {ipv4: []string{"198.18.0.1"}, ipv6: "2001:db8::1/128", want: "E198.18.0.1 E2001:db8::1"},
		"private alone":      {ipv4: []string{"192.168.128.1", "192.168.128.2"}, want: "I192.168.128.1 I192.168.128.2"},
		"an external subnet": {ipv4: []string{"10.8.0.1", "10.9.0.1"}, want: "E10.8.0.1 I10.9.0.1"},
		"VPC": {
			ipv4: []string{"198.18.0.1"},
			vpc:  &vpcAddresses{ipv4: []string{"10.0.0.2"}, externalV6: []string{"2001:db8:1::1"}, internalV6: []string{"fd00::1"}},
			ipv6: "2001:db8::1/128", want: "I10.0.0.2 E198.18.0.1 E2001:db8:1::1 Ifd00::1 E2001:db8::1",
		},
		"kubelet's own address": {
			ipv4:   []string{"198.18.0.1"},
			status: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "172.16.0.5"}, {Type: v1.NodeExternalIP, Address: "203.0.113.1"}},
			want:   "E198.18.0.1 I172.16.0.5",
		},
	} {
		l := instance{label: "web", ipv4: c.ipv4, ipv6: c.ipv6, vpc: c.vpc}
		node := &v1.Node{Status: v1.NodeStatus{Addresses: c.status}}
		texts := []string{}
		for _, a := range addKubeletAddresses(node, l.addresses(w.instances.external))[1:] {
			texts = append(texts, string(a.Type)[:1]+a.Address)
		}
		assert.Equal(t, c.want, strings.Join(texts, " "), name)
	}
	assert.NotEmpty(t, w.instances.missingData(instance{label: "none"}))
}

// TestLookUp: by provider ID, by label, by public address; never by a private one.
func TestLookUp(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil, nil)
	id := w.sim.AddLinode(linodesim.Spec{Label: "Web-1", Private: true})
	public, private := w.sim.List()[0].IPv4[0], w.sim.List()[0].IPv4[1]
	node := func(name, providerID string, addresses ...string) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: providerID}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
		}
		return n
	}
	for name, c := range map[string]struct {
		node  *v1.Node
		found bool
	}{
		"by label":                {node("web-1", ""), true},
		"by label before address": {node("web-1", "", "203.0.113.9"), true},
		"by public address":       {node("other", "", public), true},
		"by private address":      {node("other", "", private), false},
		"by nothing":              {node("other", ""), false},
		"another kind of ID":      {node("web-1", "k3s://web-1"), true},
	} {
		m, err := w.instances.InstanceMetadata(t.Context(), c.node)
		assert.Equal(t, c.found, err == nil, "%s: %v", name, err)
		if c.found {
			assert.Equal(t, providerIDPrefix+strconv.Itoa(id), m.ProviderID)
			assert.Equal(t, "g6-standard-2", m.InstanceType)
			assert.Equal(t, linodesim.Region, m.Region)
			assert.Empty(t, m.Zone)
		}
	}
	exists, err := w.instances.InstanceExists(t.Context(), node("gone", ""))
	require.Error(t, err, "a node without a provider ID is never gone")
	assert.False(t, exists)
	for status, off := range map[string]bool{"offline": true, "shutting_down": true, "running": false, "booting": false, "deleting": false} {
		require.NoError(t, w.sim.SetStatus(id, status))
		w.restart()
		got, err := w.instances.InstanceShutdown(t.Context(), node("web-1", providerIDPrefix+strconv.Itoa(id)))
		require.NoError(t, err)
		assert.Equal(t, off, got, status)
	}
}

// TestListings: pages of 500, with the filter of tags; a listing that breaks off is an error.
func TestListings(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, map[string]string{"linode-tag-filter": "prod"}, nil)
	for i := range 1001 {
		tags := []string{"production"}
		if i == 0 {
			tags = nil
		}
		w.sim.AddLinode(linodesim.Spec{Label: "n" + strconv.Itoa(i), Tags: tags})
	}
	all, pages, err := listInstances(t.Context(), w.api, w.loadBalancers.vpcs, "prod")
	require.NoError(t, err)
	assert.Len(t, all, 1000)
	assert.Equal(t, 2, pages)
	assert.Contains(t, w.server.Calls().Latest[0].URL, "page_size=500")
	_, err = w.server.AddFault(simkit.Fault{Kind: "cut-list"})
	require.NoError(t, err)
	_, _, err = listInstances(t.Context(), w.api, w.loadBalancers.vpcs, "")
	require.ErrorContains(t, err, "the listing broke off")
}

// TestRegionIsChecked: a region that Linode does not have is found by preflight, before a NodeBalancer is needed.
func TestRegionIsChecked(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil, nil)
	require.NoError(t, w.CheckSettings(t.Context()))
	w.env["LINODE_REGION"] = "us-nowhere"
	w.restart()
	require.EqualError(t, w.CheckSettings(t.Context()), `environment variable LINODE_REGION: "us-nowhere" is not a region; use an ID such as us-sea`)
}
