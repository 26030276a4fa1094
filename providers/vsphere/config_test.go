package vsphere

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func parse(t *testing.T, file string, env map[string]string) (Config, string, error) {
	t.Helper()
	in := conformance.Inputs(nil, env)
	in.File = []byte(file)
	c, warnings, err := parseConfig(in)
	texts := []string{}
	for _, w := range schema.Problems(warnings) {
		texts = append(texts, w.Error())
	}
	return c, strings.Join(texts, "\n"), err
}

const fullYAML = `
global:
  user: root@vsphere.local
  password: 'p"1'
  port: 8443
  insecureFlag: true
  datacenters: [DC0, /F/DC1]
  secretNamespace: infra
vcenter:
  one: {server: 10.0.0.1, user: u1, password: p1, port: 443, datacenters: [a, b], caFile: "", thumbprint: "", ipFamily: [ipv6]}
  two: {server: vc.example.com}
  three: {server: "fd00::1", secretName: vc}
labels: {zone: k8s-zone, region: k8s-region}
nodes:
  internalNetworkSubnetCidr: 10.0.0.0/8,192.168.0.0/16
  externalVmNetworkName: public
  excludeExternalNetworkSubnetCidr: 10.1.0.0/16
nsxt: {host: nsx, user: admin, password: nsxpw, insecureFlag: true, remoteAuth: true}
loadBalancer: {size: SMALL, tier1GatewayPath: /infra/tier-1s/t, ipPoolName: pool, tcpAppProfileName: t, udpAppProfilePath: /u, tags: {a: b}}
loadBalancerClass: {edge: {ipPoolId: id}}
route: {routerPath: /infra/tier-1s/t}
`

const fullINI = `
# the same
[Global]
user = root@vsphere.local
password = "p\"1"
port = "8443"
insecure-flag
datacenters = "DC0, /F/DC1"
secret-namespace = infra
[VirtualCenter "one"]
server = 10.0.0.1
user = u1
password = p1
port = 443
datacenters = a,b
ip-family = IPv6
[VirtualCenter "two"]
server = vc.example.com
[virtualcenter "three"]
server = fd00::1
secret-name = vc
[Labels]
zone = k8s-zone
region = k8s-region
[Nodes]
internal-network-subnet-cidr = 10.0.0.0/8,192.168.0.0/16
external-vm-network-name = public
exclude-external-network-subnet-cidr = 10.1.0.0/16
[NSXT]
host = nsx
user = admin
password = nsxpw
insecure-flag = true
remote-auth = yes
[LoadBalancer]
size = SMALL
tier1-gateway-path = /infra/tier-1s/t
ip-pool-name = pool
tcp-app-profile-name = t
udp-app-profile-path = /u
tags = "{\"a\":\"b\"}"
[LoadBalancerClass "edge"]
ip-pool-id = id
[Route]
router-path = /infra/tier-1s/t
`

func TestBothFormsOfTheConfigSayTheSame(t *testing.T) {
	t.Parallel()
	y, warnings, err := parse(t, fullYAML, nil)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	i, warnings, err := parse(t, fullINI, nil)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	y.raw, i.raw = rawConfig{}, rawConfig{} // how it is written differs
	assert.Equal(t, y, i)

	require.Len(t, y.VCenters, 3)
	one, three, two := y.VCenters[0], y.VCenters[1], y.VCenters[2]
	assert.Equal(t, []string{"a", "b"}, one.Datacenters)
	assert.Equal(t, []v1.IPFamily{v1.IPv6Protocol}, one.IPFamilies)
	assert.True(t, one.Insecure)
	assert.Equal(t, "root@vsphere.local", two.User.Reveal())
	assert.Equal(t, `p"1`, two.Password.Reveal())
	assert.Equal(t, []string{"DC0", "/F/DC1"}, two.Datacenters)
	assert.Equal(t, "infra", three.SecretNamespace)
	endpoint, err := three.endpoint(false)
	require.NoError(t, err)
	assert.Equal(t, "https://[fd00::1]:8443/sdk", endpoint.String())
	assert.Equal(t, map[string]string{"a": "b"}, y.LoadBalancer.Tags)
	assert.True(t, y.LoadBalancer.Enabled)
	assert.Equal(t, "id", y.LoadBalancer.Classes["edge"].IPPoolID)
}

// The words for true and false are flags' alone: there are datacenters and passwords of such names.
func TestWordsForTrueAndFalse(t *testing.T) {
	t.Parallel()
	for form, text := range map[string]string{
		"YAML": "vcenter:\n  a: {server: a, user: on, password: off, insecureFlag: Yes, datacenters: [NO, y]}\n" +
			"  b: {server: b, user: u, password: p, insecureFlag: off}\n",
		"INI": "[VirtualCenter \"a\"]\nuser = on\npassword = off\ninsecure-flag = Yes\ndatacenters = NO, y\n" +
			"[VirtualCenter \"b\"]\nuser = u\npassword = p\ninsecure-flag = off\n",
		"INI without values": "[VirtualCenter \"a\"]\nuser = on\npassword = off\ninsecure-flag\ndatacenters = NO, y\n" +
			"[VirtualCenter \"b\"]\nuser = u\npassword = p\n",
	} {
		c, warnings, err := parse(t, text, nil)
		require.NoError(t, err, form)
		assert.Empty(t, warnings, form)
		require.Len(t, c.VCenters, 2, form)
		a := c.VCenters[0]
		assert.Equal(t, []string{"on", "off"}, []string{a.User.Reveal(), a.Password.Reveal()}, form)
		assert.Equal(t, []string{"NO", "y"}, a.Datacenters, form)
		assert.True(t, a.Insecure, form)
		assert.False(t, c.VCenters[1].Insecure, form)
	}
}

func TestBrokenYAMLIsReportedAsSuch(t *testing.T) {
	t.Parallel()
	_, _, err := parse(t, "global:\n  user: a\n bad: [", nil)
	require.ErrorContains(t, err, "is not YAML: line 2")
	_, _, err = parse(t, "global:\n  user: {a: [b]}\nlabels: text\n", nil)
	require.ErrorContains(t, err, "key global.user of the cloud config, line 2")
	require.ErrorContains(t, err, "key labels of the cloud config, line 3")
	_, _, err = parse(t, "[Global\nuser = a", nil)
	require.ErrorContains(t, err, "cannot be read")
}

func TestMisspeltKeysAreNamed(t *testing.T) {
	t.Parallel()
	base := "global: {server: vc, user: u, password: p, insecure-flag: true}\n"
	_, warnings, err := parse(t, base+"vcenter: {b: {server: x, secret-name: s}}\nworkspace: {a: b}\nnodes: {internal-vm-network-name: n}\n", nil)
	require.NoError(t, err)
	assert.Contains(t, warnings, "did you mean global.insecureFlag?")
	assert.Contains(t, warnings, "key vcenter.b.secret-name of the cloud config, line 2: is unknown and has no effect; did you mean secretName?")
	assert.Contains(t, warnings, "key workspace.a of the cloud config, line 3: is unknown and has no effect")
	assert.Contains(t, warnings, "did you mean nodes.internalVmNetworkName?")
}

func TestFamiliesOfAddresses(t *testing.T) {
	t.Parallel()
	config := "[Global]\nserver = vc\nuser = u\npassword = p\nip-family = \"IPv4, ipv6\"\n"
	_, _, err := parse(t, config, nil)
	require.ErrorContains(t, err, "needs the environment variable ENABLE_ALPHA_DUAL_STACK")
	c, _, err := parse(t, config, map[string]string{envDualStack: ""})
	require.NoError(t, err)
	assert.Equal(t, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, c.VCenters[0].IPFamilies)
	_, _, err = parse(t, strings.ReplaceAll(config, "ipv6", "ipv5"), nil)
	require.ErrorContains(t, err, "which is no family of addresses")
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, _, err := parse(t, "vcenter: {a: , b: {server: vc, port: x, thumbprint: y}}\nnodes: {internalNetworkSubnetCidr: 10.0.0.0}\n", nil)
	for _, words := range []string{
		"key vcenter.a.server of the cloud config: is required and is not set: the address of the vCenter",
		"key vcenter.a.user of the cloud config: is required and is not set", "key vcenter.b.password of the cloud config: is required and is not set",
		`key vcenter.b.port of the cloud config: "x" is not a port`, "key vcenter.b.thumbprint of the cloud config: is not a thumbprint",
		`key nodes.internalNetworkSubnetCidr of the cloud config: "10.0.0.0" holds "10.0.0.0", which is not a network`,
	} {
		require.ErrorContains(t, err, words)
	}
	_, _, err = parse(t, "", nil)
	require.ErrorContains(t, err, "there is no vCenter")
}

// TestEnvironmentDefinesNoVCenterByAccident: the original takes the port for a vCenter.
func TestEnvironmentDefinesNoVCenterByAccident(t *testing.T) {
	t.Parallel()
	c, _, err := parse(t, "global: {server: vc, user: u, password: p}", map[string]string{"VSPHERE_VCENTER_PORT": "444"})
	require.NoError(t, err)
	require.Len(t, c.VCenters, 1)
	assert.Equal(t, "vc", c.VCenters[0].Key)
	assert.Equal(t, 444, c.VCenters[0].Port)
	c, _, err = parse(t, "", map[string]string{"VSPHERE_VCENTER": "vc", "VSPHERE_USER": "u", "VSPHERE_PASSWORD": "p", "VSPHERE_LABEL_ZONE": "z"})
	require.NoError(t, err, "the environment alone is enough")
	assert.Equal(t, "z", c.Labels.Zone)
}

// TestVCentersOfTheEnvironment: VSPHERE_VCENTER_<id> defines one, or takes the place of the file's.
func TestVCentersOfTheEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"VSPHERE_VCENTER_1": "tenant", "VCENTER_1_SERVER": "vc1", "VCENTER_1_USERNAME": "u1", "VCENTER_1_PASSWORD": "p=1", "VCENTER_1_PORT": "444",
		"VCENTER_1_INSECURE": "true", "VCENTER_1_DATACENTERS": "a,b", "VCENTER_1_ROUNDTRIP": "2", "VCENTER_1_CAFILE": "/ca",
		"VCENTER_1_SECRET_NAME": "s", "VCENTER_1_SECRET_NAMESPACE": "n", "VCENTER_1_IP_FAMILY": "ipv6",
		"VSPHERE_VCENTER_two": "vc2", "VSPHERE_VCENTER_PORT": "445",
	}
	c, warnings, err := parse(t, "global: {user: u, password: p}\nvcenter:\n  tenant: {server: old, datacenters: [x], thumbprint: bad}\n  kept: {server: vc3}", env)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	require.Len(t, c.VCenters, 3)
	kept, tenant, two := c.VCenters[0], c.VCenters[1], c.VCenters[2]
	assert.Equal(t, []string{"kept", "tenant", "vc2"}, []string{kept.Key, tenant.Key, two.Key})
	assert.Equal(t, "p=1", tenant.Password.Reveal())
	tenant.Password = two.Password
	assert.Equal(t, vcenterConfig{
		Key: "tenant", Datacenters: []string{"a", "b"}, IPFamilies: []v1.IPFamily{v1.IPv6Protocol}, globalConfig: globalConfig{
			Server: "vc1", Port: 444, User: tenant.User, Password: two.Password, Insecure: true, CAFile: "/ca", SecretName: "s", SecretNamespace: "n",
		},
	}, tenant)
	assert.Equal(t, "u1", tenant.User.Reveal())
	assert.Equal(t, []any{"vc2", 445, "u"}, []any{two.Server, two.Port, two.User.Reveal()}, "what it leaves open is that of global")

	_, _, err = parse(t, "", map[string]string{"VSPHERE_VCENTER_a": "vc", "VCENTER_a_USERNAME": "u", "VCENTER_a_PASSWORD": "secret-1", "VCENTER_a_PORT": "x"})
	require.ErrorContains(t, err, "vcenter.vc.port")
	assert.NotContains(t, err.Error(), "secret-1")
}

func TestKeysWithoutEffect(t *testing.T) {
	t.Parallel()
	file := "[Global]\nserver = vc\nuser = u\npassword = p\nsoap-roundtrip-count = 5\napi-disable\napi-binding = :1\n[Labels]\nzone = z\n[Disk]\na = b\n"
	_, warnings, err := parse(t, file, nil)
	require.NoError(t, err)
	for _, key := range []string{"global.soapRoundtripCount", "global.apiDisable", "global.apiBinding", "labels.zone", "[Disk] a"} {
		assert.Contains(t, warnings, key+" of the cloud config: ")
	}
}

func TestNodeLabels(t *testing.T) {
	t.Parallel()
	in := conformance.Inputs(map[string]string{"node-labels": "a=b, c.d/e=f"}, nil)
	in.File = []byte("global: {server: vc, user: u, password: p}")
	c, _, err := parseConfig(in)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "b", "c.d/e": "f"}, c.NodeLabels)
	in.Flags["node-labels"] = "a b=c"
	_, _, err = parseConfig(in)
	require.ErrorContains(t, err, "which cannot be a label")
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	of := func(pairs ...string) map[string][]byte {
		data := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			data[pairs[i]] = []byte(pairs[i+1])
		}
		return data
	}
	for name, c := range map[string]struct {
		data    map[string][]byte
		want    credentials
		ignored []string
		problem string
	}{
		"classic": {of("vc.username", "u\n", "vc.password", "p\r\n"), credentials{user: "u", password: "p"}, nil, ""},
		"numbered": {
			of("server_0", "vc", "username_0", "u\n", "password_0", "p", "server_1", "other", "username_1", "x", "password_1", "y"),
			credentials{user: "u\n", password: "p"},
			nil, "",
		},
		"mixed": {
			of("a.username", "x", "a.password", "y", "server_z", "vc", "username_z", "u", "password_z", "p"),
			credentials{user: "u", password: "p"},
			nil, "",
		},
		"without server": {of("username_1", "u", "password_1", "p"), credentials{}, nil, "the key username_1 has no server_1 beside it"},
		"foreign key":    {of("vc.username", "u", "vc.password", "p", "note", "x"), credentials{user: "u", password: "p"}, []string{"note"}, ""},
		"half":           {of("vc.username", "u"), credentials{user: "u"}, nil, "the user or the password is missing"},
		"another's":      {of("x.username", "u", "x.password", "p"), credentials{}, nil, "no key for this server"},
		"shared session": {
			of("vc.vc-session-manager-url", "https://s", "vc.vc-session-manager-token", "t"),
			credentials{sessionURL: "https://s", sessionToken: "t"},
			nil, "",
		},
	} {
		got, ignored, err := parseCredentials(c.data, "vc")
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.ignored, ignored, name)
		if c.problem == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.problem, name)
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vc.username"), []byte("u\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vc.password"), []byte("p\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..data"), 0o700))
	data, err := readDirectory(dir)
	require.NoError(t, err)
	got, _, err := parseCredentials(data, "vc")
	require.NoError(t, err)
	assert.Equal(t, credentials{user: "u", password: "p"}, got)
}

func FuzzConfig(f *testing.F) {
	f.Add(fullYAML)
	f.Add(fullINI)
	f.Add("vcenter: {a: }\nloadBalancerClass: {b: }")
	f.Fuzz(func(t *testing.T, text string) {
		in := conformance.Inputs(nil, nil)
		in.File = []byte(text)
		c, _, err := parseConfig(in)
		if err == nil && len(c.VCenters) == 0 {
			t.Fatal("a configuration without a vCenter is accepted")
		}
	})
}

func TestLoadBalancerSection(t *testing.T) {
	t.Parallel()
	base := "global: {server: vc, user: u, password: p}\n"
	_, _, err := parse(t, base+"loadBalancer: {tier1GatewayPath: /t}\nloadBalancerClass: {a: }\n", nil)
	for _, words := range []string{
		"key loadBalancer.size of the cloud config: is required and is not set; use one of DLB, LARGE, MEDIUM, SMALL, XLARGE",
		"the default class has no pool", "key loadBalancer.tcpAppProfileName of the cloud config: is not set",
		"key nsxt.host of the cloud config: is required for load balancers and routes", "is required where there is neither a vmcAccessToken",
	} {
		require.ErrorContains(t, err, words)
	}
	nsxt := "nsxt: {host: n, user: u, password: p}\n"
	c, _, err := parse(t, base+nsxt+"loadBalancer: {size: LARGE, lbServiceId: s, tcpAppProfileName: t, udpAppProfileName: u}\n"+
		"loadBalancerClass: {default: {ipPoolName: p}}\n", nil)
	require.NoError(t, err)
	assert.Equal(t, "p", c.LoadBalancer.Classes["default"].IPPoolName)
	_, _, err = parse(t, base+"route: {routerPath: /infra/tier-1s/t}\n", nil)
	require.ErrorContains(t, err, "key nsxt.host of the cloud config")
	_, _, err = parse(t, base+"nsxt: {host: n, clientAuthCertFile: c, secretName: s}\n", nil)
	require.ErrorContains(t, err, "clientAuthKeyFile of the cloud config: is required with clientAuthCertFile")
	require.ErrorContains(t, err, "secretNamespace of the cloud config: is required with secretName")
}
