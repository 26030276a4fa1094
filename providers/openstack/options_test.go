package openstack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// everyKey sets each key of cloud.conf to something that is not its default.
const everyKey = `
; a comment
[Global]
auth-url = https://keystone.example.com/v3
user-id = u1
password = "pass # word"
tenant-id = t1
tenant-name = tn
domain-id = d1
domain-name = dn
user-domain-id = ud
user-domain-name = udn
tenant-domain-id = td
tenant-domain-name = tdn
trust-id = tr
trustee-id = te
trustee-password = tp
application-credential-id = ai
application-credential-name = an
application-credential-secret = as
region = R1
os-endpoint-type = internal
ca-file = /ca
CAFileContents = pem
cert-file = /cert
key-file = /key
tls-insecure = true

[NETWORKING]
ipv6-support-disabled
public-network-name = ext1
public-network-name = ext2
internal-network-name = int
address-sort-order = "10.0.0.0/8, 2001:db8::/32"

[LoadBalancer]
enabled = no
lb-version = v2
lb-provider = octavia
lb-method = LEAST_CONNECTIONS
subnet-id = s1
member-subnet-id = s2
network-id = n1
floating-network-id = f1
floating-subnet-id = f2
floating-subnet = "~ext.*"
floating-subnet-tags = "&a,b"
manage-security-groups = yes
create-monitor = on
monitor-delay = 1m
monitor-timeout = 30s
monitor-max-retries = 0x2
monitor-max-retries-down = 4
internal-lb = 1
node-selector = "pool=edge,zone"
cascade-delete = false
flavor-id = fl
availability-zone = az
enable-ingress-hostname = TRUE
ingress-hostname-suffix = example.com
max-shared-lb = 5
share-across-namespaces = true
default-tls-container-ref = https://barbican/v1/containers/1
container-store = external
provider-requires-serial-api-calls = true

[LoadBalancerClass "edge"]
floating-network-id = c1
floating-subnet-id = c2
floating-subnet = c3
floating-subnet-tags = c4
network-id = c5
subnet-id = c6
member-subnet-id = c7

[Route]
router-id = r1

[Metadata]
search-order = metadataService
request-timeout = 90s
`

func TestCloudConfig(t *testing.T) {
	t.Parallel()
	c, warnings, err := parseConfig(testInputs(everyKey, map[string]string{"OS_CCM_REGIONAL": "true"}))
	require.NoError(t, err)
	require.NoError(t, warnings)
	g := c.Global
	assert.Equal(t, "pass # word", g.Password.Reveal())
	assert.Equal(t, []string{
		"https://keystone.example.com/v3", "u1", "t1", "tn", "d1", "dn", "ud", "udn", "td", "tdn", "tr", "te", "tp", "ai", "an", "as", "R1",
		"internal", "/ca", "pem", "/cert", "/key", "true",
	},
		[]string{
			g.AuthURL, g.UserID, g.TenantID, g.TenantName, g.DomainID, g.DomainName, g.UserDomainID, g.UserDomainName, g.TenantDomainID,
			g.TenantDomainName, g.TrustID, g.TrusteeID, g.TrusteePassword.Reveal(), g.ApplicationCredentialID, g.ApplicationCredentialName,
			g.ApplicationCredentialSecret.Reveal(), g.Region, g.EndpointType, g.CAFile, g.CAFileContents, g.CertFile, g.KeyFile, g.TLSInsecure,
		})
	assert.Equal(
		t,
		networking{IPv6Disabled: true, PublicNetworks: []string{"ext1", "ext2"}, InternalNetworks: []string{"int"}, SortOrder: "10.0.0.0/8, 2001:db8::/32"},
		c.Networking,
	)
	assert.Equal(t, loadBalancerConfig{
		class: class{
			FloatingNetworkID: "f1", FloatingSubnetID: "f2", FloatingSubnet: "~ext.*", FloatingSubnetTags: "&a,b", NetworkID: "n1", SubnetID: "s1",
			MemberSubnetID: "s2",
		},
		Provider: "octavia", Method: "LEAST_CONNECTIONS", ManageSecurityGroups: true, CreateMonitor: true, MonitorDelay: time.Minute,
		MonitorTimeout: 30 * time.Second,
		MonitorRetries: 2, MonitorRetriesDown: 4, Internal: true, NodeSelector: "pool=edge,zone", FlavorID: "fl", AvailabilityZone: "az", IngressHostname: true,
		HostnameSuffix: "example.com", MaxShared: 5, ShareAcross: true, TLSContainerRef: "https://barbican/v1/containers/1", ContainerStore: "external", Serial: true,
	}, c.LoadBalancer)
	assert.Equal(t, map[string]class{"edge": {"c1", "c2", "c3", "c4", "c5", "c6", "c7"}}, c.Classes)
	assert.Equal(t, "r1", c.RouterID)
	assert.Equal(t, 90*time.Second, c.RequestTimeout)
	assert.True(t, c.Regional)
	for _, o := range Options {
		_, key, _ := strings.Cut(o.FileKey, "] ")
		switch key {
		case "", "token", "username", "use-clouds", "clouds-file", "cloud": // they exclude others, and have tests of their own
		default:
			assert.Contains(t, everyKey, key, "the list lacks a key")
		}
	}
}

// minimal is the smallest file that will do.
const minimal = "[Global]\nauth-url = https://keystone\nuser-id = u\npassword = secret-password\n"

func TestCloudConfigFaults(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"": "[Global] auth-url of the cloud config: is required",
		"[Global]\nauth-url = https://keystone\n":                                           "password of the cloud config: is required where",
		"[Global]\nauth-url = https://keystone\npassword = secret-password\n":               "username of the cloud config: or user-id is required",
		minimal + "username = n\n":                                                          "exclude each other",
		"[Global]\nauth-url = https://keystone\nusername = u\npassword = secret-password\n": "user-domain-name of the cloud config: is required",
		minimal + "tenant-name = t\n":                                                       "tenant-domain-name of the cloud config: is required",
		minimal + "application-credential-id = a\n":                                         "application-credential-secret of the cloud config: is required",
		"[Global]\nauth-url = https://keystone\ntoken = x\n":                                "token of the cloud config: needs tenant-id",
		"[Global]\nauth-url = https://keystone\ntoken = x\ntenant-id = t\ntrust-id = y\n":   "cannot be used with trust-id",
		minimal + "cert-file = /x\n":                                                        "belong together",
		minimal + "os-endpoint-type = outer\n":                                              `"outer" is not one of "public", "internal", "admin"`,
		minimal + "[LoadBalancer]\nmonitor-delay = 5\n":                                     `"5" is not a duration; use a form such as "90s"`,
		minimal + "[LoadBalancer]\nmonitor-delay = 500ms\n":                                 "is shorter than a second",
		minimal + "[LoadBalancer]\nmonitor-max-retries = -1\n":                              "use 1 to 10",
		minimal + "[LoadBalancer]\nmax-shared-lb = many\n":                                  "is not a whole number",
		minimal + "[LoadBalancer]\nlb-version = v1\n":                                       `is not one of "v2"`,
		minimal + "[LoadBalancer]\nlb-method = RANDOM\n":                                    "is not one of",
		minimal + "[LoadBalancer]\ncascade-delete = maybe\n":                                "is not a boolean",
		minimal + "[LoadBalancer]\nfloating-subnet = \"~(\"\n":                              "is not a regular expression",
		minimal + "[LoadBalancer]\nsubnet-id\n":                                             "has no value",
		minimal + "[Networking]\naddress-sort-order = 10.0.0.0\n":                           "is not a network",
		minimal + "[Metadata]\nsearch-order = configDrive,metadataService,configDrive\n":    "more than two",
		minimal + "[Metadata]\nsearch-order = other\n":                                      `holds "other"`,
		minimal + "[LoadBalancerClass \"x\"]\nsubnet = s\n":                                 "a class has floating-network-id",
		minimal + "[LoadBalancerClass \"x\"]\nfloating-subnet = \"~(\"\n":                   "is not a regular expression",
		"[Global\n": "cloud config: cannot be read",
		"a = b\n":   "cloud config: cannot be read",
	} {
		_, _, err := parseConfig(testInputs(file, nil))
		require.ErrorContains(t, err, want, file)
		assert.NotContains(t, err.Error(), "secret-password")
	}
	// All faults are told together.
	_, _, err := parseConfig(testInputs(minimal+"[LoadBalancer]\nlb-method = X\nmax-shared-lb = Y\n", nil))
	assert.Len(t, schema.Problems(err), 2)
}

// TestUnknownKeys: a key that nobody knows is a warning that names the one which was probably meant.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	_, warnings, err := parseConfig(testInputs(minimal+"[LoadBalancer]\nflaoting-network-id = x\nuse-octavia = true\n[Router]\nrouter-id = y\n[BlockStorage]\nbs-version = v2\n", nil))
	require.NoError(t, err)
	var told []string
	for _, w := range schema.Problems(warnings) {
		told = append(told, w.Error())
	}
	require.Len(t, told, 4)
	assert.Contains(t, told[0], "did you mean [LoadBalancer] floating-network-id?")
	assert.NotContains(t, told[1], "did you mean")
	assert.Contains(t, told[2], "did you mean [Route] router-id?")
	assert.Equal(t, "key [BlockStorage] bs-version of the cloud config: has no effect here, and may stay for Cinder's CSI driver", told[3])
}

// TestAuthOptions: the method of login and its scope.
func TestAuthOptions(t *testing.T) {
	t.Parallel()
	base := "[Global]\nauth-url = https://keystone\n"
	scope := func(s gophercloud.AuthScope) *gophercloud.AuthScope { return &s }
	for name, c := range map[string]struct {
		file string
		want gophercloud.AuthOptions
	}{
		"password and project": {
			"username = u\npassword = p\nuser-domain-name = ud\ntenant-name = t\ntenant-domain-id = td\n",
			gophercloud.AuthOptions{
				Username: "u", Password: "p", DomainName: "ud", Scope: scope(gophercloud.AuthScope{ProjectName: "t", DomainID: "td"}),
			},
		},
		"one domain for both": {
			"username = u\npassword = p\ndomain-name = d\ntenant-name = t\n",
			gophercloud.AuthOptions{
				Username: "u", Password: "p", DomainName: "d", Scope: scope(gophercloud.AuthScope{ProjectName: "t", DomainName: "d"}),
			},
		},
		"the project's own domain": {
			"username = u\npassword = p\ndomain-id = d\ntenant-domain-name = td\ntenant-name = t\n",
			gophercloud.AuthOptions{
				Username: "u", Password: "p", DomainID: "d", Scope: scope(gophercloud.AuthScope{ProjectName: "t", DomainName: "td"}),
			},
		},
		"a project's ID wins": {"user-id = u\npassword = p\ntenant-id = ti\ntenant-name = t\ntenant-domain-id = td\n", gophercloud.AuthOptions{UserID: "u", Password: "p", Scope: scope(gophercloud.AuthScope{ProjectID: "ti"})}},
		"a domain alone":      {"user-id = u\npassword = p\ndomain-id = d\n", gophercloud.AuthOptions{UserID: "u", Password: "p", Scope: scope(gophercloud.AuthScope{DomainID: "d"})}},
		"a trust":             {"user-id = u\npassword = p\ntrust-id = tr\ntrustee-id = te\ntrustee-password = tp\n", gophercloud.AuthOptions{UserID: "te", Password: "tp", Scope: scope(gophercloud.AuthScope{TrustID: "tr"})}},
		"a token wins":        {"token = x\nuser-id = u\npassword = p\ntenant-id = ti\n", gophercloud.AuthOptions{TokenID: "x", Scope: scope(gophercloud.AuthScope{ProjectID: "ti"})}},
		"an application credential": {
			"user-id = u\npassword = p\napplication-credential-id = a\napplication-credential-secret = s\n", gophercloud.AuthOptions{ApplicationCredentialID: "a", ApplicationCredentialSecret: "s"},
		},
		"an application credential by name": {
			"username = u\nuser-domain-id = d\napplication-credential-name = a\napplication-credential-secret = s\n", gophercloud.AuthOptions{Username: "u", DomainID: "d", ApplicationCredentialName: "a", ApplicationCredentialSecret: "s"},
		},
	} {
		conf, _, err := parseConfig(testInputs(base+c.file, nil))
		require.NoError(t, err, name)
		c.want.IdentityEndpoint = "https://keystone"
		assert.Equal(t, c.want, authOptions(conf), name)
	}
}

// TestLogins: each method gets in at Keystone, with and without a version in its address.
func TestLogins(t *testing.T) {
	t.Parallel()
	sim, server := openstacksim.New(openstacksim.Options{})
	url := server.Start(t)
	sim.AddApplicationCredential("app-1", "app-secret")
	for name, c := range map[string]struct{ file, login, refused string }{
		"password": {
			fmt.Sprintf("auth-url = %s/identity/v3\nusername = %s\npassword = %s\ndomain-name = Default\ntenant-id = %s\n", url, openstacksim.User, openstacksim.Password, openstacksim.Project),
			`password {"project":`, "",
		},
		"no version": {
			fmt.Sprintf("auth-url = %s/identity\nusername = %s\npassword = %s\ndomain-name = Default\ntenant-id = %s\n", url, openstacksim.User, openstacksim.Password, openstacksim.Project),
			`password {"project":`, "",
		},
		"application credential": {fmt.Sprintf("auth-url = %s/identity/v3\napplication-credential-id = app-1\napplication-credential-secret = app-secret\n", url), "application_credential ", ""},
		"trust": {
			fmt.Sprintf("auth-url = %s/identity/v3\nuser-id = %s\npassword = %s\ntrust-id = %s\n", url, openstacksim.User, openstacksim.Password, openstacksim.Trust),
			`password {"OS-TRUST:trust":`, "",
		},
		"application credential by name": {fmt.Sprintf("auth-url = %s/identity/v3\nusername = %s\nuser-domain-name = Default\napplication-credential-name = app-1\napplication-credential-secret = app-secret\n", url, openstacksim.User), "application_credential ", ""},
		"token":                          {fmt.Sprintf("auth-url = %s/identity/v3\ntoken = %s\ntenant-id = %s\n", url, sim.IssueToken(), openstacksim.Project), `token {"project":`, ""},
		"a wrong password":               {fmt.Sprintf("auth-url = %s/identity/v3\nuser-id = %s\npassword = wrong-secret\ntenant-id = x\n", url, openstacksim.User), "", "not authorized"},
		"no such region": {
			fmt.Sprintf("auth-url = %s/identity/v3\nuser-id = %s\npassword = %s\ntenant-id = x\nregion = Nowhere\n", url, openstacksim.User, openstacksim.Password),
			"password", "check region and os-endpoint-type",
		},
	} {
		before := len(sim.Logins())
		cloud, err := newCloud(testInputs("[Global]\n"+c.file, nil))
		require.NoError(t, err, "the constructor asks nobody")
		assert.Len(t, sim.Logins(), before)
		err = cloud.CheckAPI(t.Context())
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused, name)
			assert.NotContains(t, err.Error(), "wrong-secret")
			continue
		}
		require.NoError(t, err, name)
		logins := sim.Logins()
		require.Len(t, logins, before+1, name)
		assert.Contains(t, logins[before], c.login, name)
	}
}

// TestTokens: a token that was taken back is replaced once, whoever uses it; one that is about to end is renewed before.
func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		require.Len(t, w.sim.Logins(), 1)
		w.sim.RevokeTokens()
		_, _, err := w.api.listServers(t.Context())
		require.NoError(t, err)
		assert.Len(t, w.sim.Logins(), 2)
		w.sim.SetTokenTTL(2*renewBefore + time.Second)
		w.sim.RevokeTokens()
		_, _, err = w.api.listServers(t.Context())
		require.NoError(t, err)
		w.api.mu.Lock()
		assert.False(t, w.api.expires.IsZero())
		w.api.expires = time.Now().Add(renewBefore / 2)
		w.api.mu.Unlock()
		w.sim.SetTokenTTL(time.Hour)
		w.server.ResetCalls()
		_, _, err = w.api.listServers(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"POST /identity/v3/auth/tokens": 1, "GET /compute/v2.1/servers/detail": 1}, w.server.Calls().ByOperation)

		w.sim.SetPassword("changed")
		_, _, err = w.api.listServers(t.Context())
		require.ErrorContains(t, err, "logging in again: not authorized")
	})
}

// TestCredentialsAreReadAgain: a changed file is used at the next login, and one that is in the middle of a change is not.
func TestCredentialsAreReadAgain(t *testing.T) {
	t.Parallel()
	sim, server := openstacksim.New(openstacksim.Options{})
	url := server.Start(t)
	file := filepath.Join(t.TempDir(), "cloud.conf")
	in := testInputs(sim.CloudConfig(url), nil)
	in.FilePath = file
	require.NoError(t, os.WriteFile(file, in.File, 0o600))
	c, err := newCloud(in)
	require.NoError(t, err)
	require.NoError(t, c.CheckAPI(t.Context()))
	sim.SetPassword("rotated")
	require.NoError(t, os.WriteFile(file, []byte("[Global\n"), 0o600))
	_, _, err = c.api.listServers(t.Context())
	require.ErrorContains(t, err, "not authorized")
	require.NoError(t, os.WriteFile(file, []byte(sim.CloudConfig(url)), 0o600))
	_, _, err = c.api.listServers(t.Context())
	require.NoError(t, err)
}

func TestClouds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("clouds.yaml", `
clouds:
  prod:
    profile: vendor
    region_name: R2
    interface: internal
    verify: false
    cacert: /ca
    auth: {username: u, project_name: p, user_domain_name: ud, project_domain_name: pd}
  lab:
    auth: {auth_url: https://lab, user_id: u, password: lab-secret}
`)
	write("secure.yaml", "clouds:\n  prod:\n    auth: {password: prod-secret}\n")
	write("clouds-public.yaml", "public-clouds:\n  vendor:\n    region_name: R1\n    auth: {auth_url: https://vendor}\n")
	write("one.yaml", "clouds:\n  only:\n    auth: {auth_url: https://only, user_id: u, password: only-secret}\n")
	path := func(name string) string { return filepath.Join(dir, name) }
	parse := func(file string, env map[string]string) (Config, error) {
		c, _, err := parseConfig(testInputs("[Global]\nuse-clouds = true\n"+file, env))
		return c, err
	}
	c, err := parse("clouds-file = "+path("clouds.yaml")+"\ncloud = prod\nusername = mine\n", nil)
	require.NoError(t, err)
	g := c.Global
	assert.Equal(t, []string{"https://vendor", "mine", "prod-secret", "p", "ud", "pd", "R2", "internal", "/ca", "true"},
		[]string{
			g.AuthURL, g.Username, g.Password.Reveal(), g.TenantName, g.UserDomainName, g.TenantDomainName, g.Region, g.EndpointType, g.CAFile,
			g.TLSInsecure,
		}, "cloud.conf wins, secure.yaml adds, the profile fills in")
	c, err = parse("", map[string]string{"OS_CLIENT_CONFIG_FILE": path("clouds.yaml"), "OS_CLOUD": "lab"})
	require.NoError(t, err)
	assert.Equal(t, "lab-secret", c.Global.Password.Reveal())
	c, err = parse("clouds-file = "+path("one.yaml")+"\n", nil)
	require.NoError(t, err)
	assert.Equal(t, "https://only", c.Global.AuthURL)
	for file, want := range map[string]string{
		"clouds-file = " + path("clouds.yaml") + "\n":                 "set cloud or OS_CLOUD",
		"clouds-file = " + path("clouds.yaml") + "\ncloud = other\n":  `has no cloud "other"`,
		"clouds-file = " + path("nowhere.yaml") + "\ncloud = other\n": "cannot be read",
	} {
		_, err := parse(file, nil)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
	c, _, err = parseConfig(testInputs(minimal+"cloud = prod\n", nil))
	require.NoError(t, err, "without use-clouds nothing is looked for")
	assert.Equal(t, "https://keystone", c.Global.AuthURL)
}

// TestTLS: the cloud's certificate must be signed by what ca-file holds, unless tls-insecure says otherwise.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	ask := func(g global) error {
		transport, err := newTransport(g, nil)
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		answer, err := transport.RoundTrip(request)
		if err == nil {
			require.NoError(t, answer.Body.Close())
		}
		return err
	}
	require.Error(t, ask(global{}))
	require.Error(t, ask(global{TLSInsecure: "yes"}), "only the exact word counts")
	require.NoError(t, ask(global{TLSInsecure: "true"}))
	require.NoError(t, ask(global{CAFile: ca}))
	text, err := os.ReadFile(ca)
	require.NoError(t, err)
	require.NoError(t, ask(global{CAFileContents: string(text)}))
	require.ErrorContains(t, ask(global{CAFile: filepath.Join(dir, "nowhere")}), "reading ca-file")
	require.ErrorContains(t, ask(global{CAFileContents: "x"}), "no certificate")
	require.ErrorContains(t, ask(global{CertFile: ca, KeyFile: ca}), "reading cert-file and key-file")

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(
		rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key,
	)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	cert, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
	require.NoError(t, ask(global{CAFile: ca, CertFile: cert, KeyFile: keyFile}))
}

// TestUserAgent: what the operator adds stands before our own.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	sim, server := openstacksim.New(openstacksim.Options{})
	agents := make(chan string, 10)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents <- r.Header.Get("User-Agent")
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	in := testInputs(sim.CloudConfig(front.URL), nil)
	in.Flags = map[string]string{"user-agent": "a b,c"}
	c, err := newCloud(in)
	require.NoError(t, err)
	require.NoError(t, c.CheckAPI(t.Context()))
	assert.Regexp(t, `^a b c anyccm/test gophercloud/v2`, <-agents)
}

// TestServicesByOptions: options alone decide what becomes of some settings of Services, which validate says as an event does.
func TestServicesByOptions(t *testing.T) {
	t.Parallel()
	const checked, ovn = "[LoadBalancer]\ncreate-monitor = true\n", "[LoadBalancer]\nlb-provider = ovn\n"
	local := &v1.Service{Spec: v1.ServiceSpec{ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicyLocal}}
	ranged := &v1.Service{Spec: v1.ServiceSpec{LoadBalancerSourceRanges: []string{"192.0.2.0/24"}}}
	annotated := func(key, value string) *v1.Service {
		return &v1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}
	}
	for _, c := range []struct {
		service      *v1.Service
		config, want string
	}{
		{annotated(annotationMonitorDelay, "7"), "", annotationMonitorDelay + ": has no effect without health monitors"},
		{annotated(annotationMonitorDelay, "7"), checked, ""},
		{local, "", "spec.externalTrafficPolicy: with externalTrafficPolicy Local and without health monitors"},
		{local, checked, ""},
		{ranged, "", ""},
		{ranged, ovn, "spec.loadBalancerSourceRanges: the source ranges of the Service have no effect"},
		{ranged, ovn + "manage-security-groups = true\n", ""},
	} {
		s := c.service.DeepCopy()
		s.Spec.Ports = []v1.ServicePort{{Port: 80, NodePort: 30080, Protocol: v1.ProtocolTCP}}
		warnings, err := checkService(testInputs(minimal+c.config, nil), s)
		require.NoError(t, err)
		if c.want == "" {
			assert.NoError(t, warnings, c.config)
			continue
		}
		assert.ErrorContains(t, warnings, c.want, "nobody says %q", c.want)
	}
}
