package ibm

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func inputs(file string, env map[string]string) registry.Inputs {
	in := conformance.Inputs(nil, env)
	in.File = []byte(file)
	return in
}

func usualFile() string {
	sim, _ := ibmsim.New(testKey, 0)
	return sim.CloudConfig("http://127.0.0.1:1")
}

// TestConfig (1, 3, 4, 21): everything that is wrong is told at once, in the words of the file.
func TestConfig(t *testing.T) {
	t.Parallel()
	env := map[string]string{envKey: testKey}
	for name, c := range map[string]struct {
		file  string
		words []string
	}{
		"no file":     {"", []string{"cloud config: is missing or empty"}},
		"old version": {strings.Replace(usualFile(), "1.1.0", "0.9", 1), []string{`"0.9" is not one of 1.0.0, 1.1.0`}},
		"nothing": {"[global]\nversion = 1.0.0\n", []string{
			"[provider] clusterID of the cloud config: is required", "[provider] accountID of", "[provider] region of", "[provider] g2ResourceGroupName of",
			"[provider] g2VpcSubnetNames of", "[provider] g2VpcName of",
			"only g2, which is VPC, is served", "classic infrastructure",
		}},
		"Power Virtual Server": {
			usualFile() + "powerVSCloudInstanceID = 0b1c\npowerVSRegion = us-south\npowerVSZone = us-south\n",
			[]string{"nodes on Power Virtual Server are not served yet"},
		},
		"a cluster of 57": {strings.Replace(usualFile(), ibmsim.Cluster+"\n", strings.Repeat("a", 57)+"\n", 1), []string{"is longer than 56 characters"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := parseConfig(inputs(c.file, env))
			require.Error(t, err)
			for _, words := range c.words {
				assert.ErrorContains(t, err, words)
			}
		})
	}
	_, _, err := parseConfig(inputs(usualFile(), nil))
	require.ErrorContains(t, err, "g2Credentials of the cloud config: is required and is not set")
	_, warnings, err := parseConfig(inputs(strings.Replace(usualFile(), ibmsim.Cluster+"\n", strings.Repeat("a", 45)+"\n", 1), env))
	require.NoError(t, err)
	require.ErrorContains(t, warnings, "leaves 12 characters of the UID")
}

// TestKeys (2): the case of keys does not count, unknown ones warn, and an empty value is none.
func TestKeys(t *testing.T) {
	t.Parallel()
	file := strings.Replace(usualFile(), "g2VpcName", "G2VPCNAME", 1) + "rcEndpointOverride = \"\"\nprovideriD = x\nclusterName = x\n"
	file = strings.Replace(file, "g2EndpointOverride = http://127.0.0.1:1", `g2EndpointOverride = ""`, 1)
	c, warnings, err := parseConfig(inputs(file, map[string]string{envKey: testKey}))
	require.NoError(t, err)
	assert.Equal(t, ibmsim.VPC, c.VPC)
	assert.Empty(t, c.VPCEndpoint)
	require.ErrorContains(t, warnings, "clusterName")
	assert.NotContains(t, warnings.Error(), "rcEndpointOverride", "which installers write without a value")
}

// TestEndpoints (5).
func TestEndpoints(t *testing.T) {
	t.Parallel()
	const private, public = "https://us-south.private.iaas.cloud.ibm.com", "https://us-south.iaas.cloud.ibm.com"
	for value, want := range map[string]string{"": private, "1": private, "TRUE": public, "true": public} {
		c := Config{Region: "us-south", Public: value}
		assert.Equal(t, want, c.endpoints().vpc, value)
		assert.Equal(t, want == private, c.endpoints().iam == "https://private.iam.cloud.ibm.com", value)
	}
	c := Config{Region: "us-south", VPCEndpoint: "https://vpc.example.com/v1/", IAMEndpoint: "https://iam.example.com/identity/token", RMEndpoint: "https://rm.example.com/"}
	assert.Equal(t, endpoints{"https://vpc.example.com", "https://iam.example.com", "https://rm.example.com"}, c.endpoints())
	c = Config{Region: "us-south-stage01", Public: "true"}
	assert.Equal(t, endpoints{"https://us-south-stage01.iaasdev.cloud.ibm.com", "https://iam.stage1.bluemix.net", "https://resource-controller.test.cloud.ibm.com"}, c.endpoints())
}

// TestKeyFile (6): a key that is replaced as Kubernetes replaces mounted Secrets is used, and one with a blank is refused and never told.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mount := func(key string) {
		fresh := filepath.Join(dir, "data-"+key)
		require.NoError(t, os.Mkdir(fresh, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(fresh, "key"), []byte(key+"\n"), 0o600))
		require.NoError(t, os.Symlink(fresh, filepath.Join(dir, "new")))
		require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data")))
	}
	mount(testKey)
	key := filepath.Join(dir, "data", "key")
	inWorld(t, 0, 0, func(file string) string { return file + "g2Credentials = " + key + "\n" }, func(w *world) {
		_, _, err := w.cloud.api.subnets(w.t.Context())
		require.NoError(t, err)
		w.sim.SetKey("second")
		mount("second")
		time.Sleep(time.Minute) // by then the file was read again, and the token that the first key gave is refused
		_, _, err = w.cloud.api.subnets(w.t.Context())
		require.NoError(t, err)
	})

	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad"), []byte("se cret"), 0o600))
	_, _, err := parseConfig(inputs(usualFile()+"g2Credentials = "+filepath.Join(dir, "bad")+"\n", nil))
	require.ErrorContains(t, err, "holds a blank")
	assert.NotContains(t, err.Error(), "cret\"")
	assert.NotContains(t, err.Error(), "se cret")
}

// TestTrustedProfile (57): the token of the service account is read for each login, and a missing one is told.
func TestTrustedProfile(t *testing.T) {
	t.Parallel()
	sim, server := ibmsim.New(testKey, 0)
	path := filepath.Join(t.TempDir(), "token")
	file := sim.CloudConfig(server.Start(t)) + "g2TrustedProfileID = Profile-1\ng2TrustedProfileTokenFile = " + path + "\n"
	c, _, err := parseConfig(inputs(file, nil))
	require.NoError(t, err)
	reads := func() error {
		a, err := newAPI(c, registry.Inputs{})
		require.NoError(t, err)
		_, _, err = a.subnets(t.Context())
		return err
	}
	require.ErrorContains(t, reads(), "mount a projected token")
	for _, token := range []string{"one", "two"} {
		sim.Trust("Profile-1", token)
		sim.EndTokens()
		require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
		require.NoError(t, reads())
	}
	sim.Trust("Profile-1", "three")
	require.ErrorIs(t, reads(), cloudapi.ErrUnauthorized)
	_, _, err = parseConfig(inputs(file, map[string]string{envKey: testKey}))
	require.ErrorContains(t, err, "stands beside an API key")
}

// TestInstanceIdentity: the metadata service of the instance gives tokens for its trusted profile, and another profile is refused.
func TestInstanceIdentity(t *testing.T) {
	t.Parallel()
	sim, server := ibmsim.New(testKey, 0)
	address := server.Start(t)
	sim.Trust("named", "x")
	for more, refused := range map[string]bool{"": false, "g2TrustedProfileName = named\n": false, "g2TrustedProfileID = unknown\n": true} {
		file := sim.CloudConfig(address) + "g2InstanceIdentity = true\ng2MetadataEndpointOverride = " + address + "\n" + more
		c, _, err := parseConfig(inputs(file, nil))
		require.NoError(t, err)
		a, err := newAPI(c, registry.Inputs{})
		require.NoError(t, err)
		if _, _, err = a.subnets(t.Context()); refused {
			require.ErrorIs(t, err, cloudapi.ErrUnauthorized)
			continue
		}
		require.NoError(t, err)
		sim.EndTokens()
		_, _, err = a.subnets(t.Context())
		require.NoError(t, err, "another token is asked for")
		_, _, err = parseConfig(inputs(file, map[string]string{envKey: testKey}))
		require.ErrorContains(t, err, "stands beside an API key")
		_, _, err = parseConfig(inputs(file+"g2TrustedProfileTokenFile = /x\n", nil))
		require.ErrorContains(t, err, "stands beside g2TrustedProfileTokenFile")
	}
}

// TestNoAbsence (7, 14, 16, 17): nothing but the API's own word proves that an instance is gone.
func TestNoAbsence(t *testing.T) {
	t.Parallel()
	const one = "GET /v1/instances/{id}"
	for name, faults := range map[string][]simkit.Fault{
		"IAM does not find":     {{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: "POST /identity/token"}},
		"IAM refuses":           {{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: "POST /identity/token"}},
		"a page":                {{Kind: simkit.FaultHTML, Status: http.StatusNotFound, Operation: one}},
		"not found, yet listed": {{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: one}},
		"nothing is listed": {
			{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: one}, {Kind: "empty-list"},
		},
		"an empty object": {{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: one}, {Kind: "empty-object"}},
		"a cut listing":   {{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: one}, {Kind: "cut-list"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 2, 0, nil, func(w *world) {
				w.sim.EndTokens()
				w.restart()
				for _, f := range faults {
					_, err := w.server.AddFault(f)
					require.NoError(w.t, err)
				}
				_, err := w.cloud.instances.read(w.t.Context(),
					strings.TrimPrefix(w.nodes[0].Spec.ProviderID, providerIDPrefix+ibmsim.Account+"///"+ibmsim.Cluster+"/"))
				require.Error(w.t, err)
				assert.NotErrorIs(w.t, err, cloudapi.ErrNotFound)
				exists, err := w.cloud.instances.InstanceExists(w.t.Context(), w.nodes[0])
				assert.True(w.t, exists || err != nil)
			})
		})
	}
}

// TestNodeSources (8, 9, 10, 11, 12, 13, 14, 18).
func TestNodeSources(t *testing.T) {
	t.Parallel()
	labelled := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kube-1", Labels: map[string]string{
		labelInternalIP: "10.1.2.3", labelWorker: "kube-abc-1", labelType: "bx2.4x16", labelZone: "us-south-3", labelRegion: "us-south",
	}}}
	inWorld(t, 1, 0, nil, func(w *world) {
		id := w.sim.AddInstance("new")
		w.sim.Edit(id, func(i *ibmsim.Instance) { i.IP = notYetChosen })
		time.Sleep(time.Minute)
		_, err := w.cloud.instances.InstanceMetadata(w.t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
		require.ErrorContains(w.t, err, "no primary address yet")
		w.sim.AddInstance("new")
		time.Sleep(2 * time.Minute)
		_, err = w.cloud.instances.InstanceMetadata(w.t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
		require.Error(w.t, err)
		for status, down := range map[string]bool{"stopped": true, "stopping": false, "failed": false, "deleting": false} {
			require.NoError(w.t, w.sim.SetStatus(
				strings.TrimPrefix(w.nodes[0].Spec.ProviderID, providerIDPrefix+ibmsim.Account+"///"+ibmsim.Cluster+"/"), status))
			time.Sleep(2 * time.Minute)
			got, err := w.cloud.instances.InstanceShutdown(w.t.Context(), w.nodes[0])
			require.NoError(w.t, err)
			assert.Equal(w.t, down, got, status)
		}
	})
	inWorld(t, 0, 0, func(file string) string {
		return strings.Replace(file, "g2workerServiceAccountID = "+ibmsim.Account, "g2workerServiceAccountID = ibm", 1)
	}, func(w *world) {
		m, err := w.cloud.instances.InstanceMetadata(w.t.Context(), labelled)
		require.NoError(w.t, err)
		assert.Equal(w.t, "ibm://"+ibmsim.Account+"///"+ibmsim.Cluster+"/kube-abc-1", m.ProviderID)
		assert.Equal(w.t, []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: "10.1.2.3"},
			{Type: v1.NodeExternalIP, Address: "10.1.2.3"},
		}, m.NodeAddresses)
		assert.Equal(w.t, []string{"bx2.4x16", "us-south-3", "us-south"}, []string{m.InstanceType, m.Zone, m.Region})
		for _, id := range []string{"ibm://other///" + ibmsim.Cluster + "/0717_x", "ibm://" + ibmsim.Account + "///other/0717_x", "ibmvpc://a/b", m.ProviderID} {
			n := labelled.DeepCopy()
			n.Spec.ProviderID = id
			exists, err := w.cloud.instances.InstanceExists(w.t.Context(), n)
			require.NoError(w.t, err)
			assert.True(w.t, exists)
			m, err := w.cloud.instances.InstanceMetadata(w.t.Context(), n)
			require.NoError(w.t, err)
			assert.Equal(w.t, id, m.ProviderID)
		}
		assert.Zero(w.t, w.server.Calls().Total)
		_, err = w.cloud.instances.InstanceMetadata(w.t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
		require.ErrorContains(w.t, err, "lacks labels")
		n := labelled.DeepCopy()
		n.Spec.ProviderID = ibmsim.ProviderID("0717_e21b7391-2ca2-4ab5-84a8-b92157a633b0")
		exists, err := w.cloud.instances.InstanceExists(w.t.Context(), n)
		require.NoError(w.t, err)
		assert.True(w.t, exists, "IBM's own account has the instance")
		assert.Zero(w.t, w.server.Calls().Total)
	})
}

// TestNodeCost (9, 15): 1,000 nodes are ten pages, with a token; one that is gone is proved by its own read and a listing.
func TestNodeCost(t *testing.T) {
	t.Parallel()
	inWorld(t, 0, 0, nil, func(w *world) {
		w.server.Seed(1000)
		all, err := w.cloud.instances.inventory.All(w.t.Context(), inventory.Query{})
		require.NoError(w.t, err)
		assert.Len(w.t, all, 1000)
		assert.Equal(w.t, 11, w.server.Calls().Total)
		w.sim.Remove(all[0].ID)
		_, err = w.cloud.instances.read(w.t.Context(), all[0].ID)
		require.ErrorIs(w.t, err, cloudapi.ErrNotFound)
	})
}

// TestServiceCost: an unchanged Service costs no write, and reads that all share.
func TestServiceCost(t *testing.T) {
	t.Parallel()
	inWorld(t, 3, 0, nil, func(w *world) {
		var all []*v1.Service
		for n := range 20 {
			s := web()
			s.Name = "s" + string(rune('a'+n))
			s.UID = types.UID(fmt.Sprintf("5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0%02d", n))
			all = append(all, s)
			w.mustEnsure(s)
		}
		assert.Len(w.t, w.sim.LoadBalancers(), 20)
		time.Sleep(time.Minute)
		for _, s := range all {
			w.mustEnsure(s)
		}
		time.Sleep(time.Minute)
		w.server.ResetCalls()
		for _, s := range all {
			w.mustEnsure(s)
		}
		calls := w.server.Calls()
		assert.Zero(w.t, calls.Writes)
		assert.LessOrEqual(w.t, calls.Reads, 2, "%v", calls.ByOperation)

		w.restart()
		w.server.ResetCalls()
		for _, s := range all {
			w.mustEnsure(s)
		}
		calls = w.server.Calls()
		assert.Zero(w.t, calls.Writes)
		w.t.Logf("20 unchanged load balancers after a restart: %v", calls.ByOperation)
		assert.LessOrEqual(w.t, calls.Reads, 4*20+5, "listeners, pools and the members of both: %v", calls.ByOperation)
	})
}
