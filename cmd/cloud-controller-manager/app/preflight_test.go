package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/fake"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// programAccount is the program's ServiceAccount, which may do everything except delete nodes.
const programAccount = "system:serviceaccount:kube-system:cloud-controller-manager"

// rightsServer is an API server with access reviews: an administrator has all permissions, the program almost all.
type rightsServer struct {
	mu    sync.Mutex
	users []string
}

func (s *rightsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := cmp.Or(r.Header.Get("Impersonate-User"), "admin")
	s.mu.Lock()
	s.users = append(s.users, user)
	s.mu.Unlock()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/version":
		answer(apiversion.Info{GitVersion: "v1.34.0"})
	case "/api/v1/namespaces/kube-system":
		answer(v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-uid"}})
	case "/api/v1/nodes":
		answer(v1.NodeList{})
	case "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		answer(authenticationv1.SelfSubjectReview{
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user}},
		})
	case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		body, err := io.ReadAll(r.Body)
		var review authorizationv1.SelfSubjectAccessReview
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review)
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = user == "admin" || asked.Resource != "nodes" || asked.Verb != "delete"
		answer(review)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// preflightOutput returns preflight's output for a toy cloud and the API server.
func preflightOutput(t *testing.T, api http.Handler, args ...string) (string, error) {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"+
		"clusters: [{name: c, cluster: {server: \""+server.URL+"\"}}]\n"), 0o600))
	m := newManager(t, provider("toy", func(p *registry.Provider) {
		p.New = func(registry.Inputs) (cloudprovider.Interface, error) { return &fake.Cloud{}, nil }
	}))
	m.args = append([]string{"preflight", "--cloud-provider=toy", "--kubeconfig=" + kubeconfig}, args...)
	cmd, err := m.command(nil)
	require.NoError(t, err)
	var out bytes.Buffer
	cmd.SetArgs(m.args)
	cmd.SetOut(&out)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestPreflightOfEachAccount: with separate accounts, each is checked for its controller's permissions.
func TestPreflightOfEachAccount(t *testing.T) {
	out, err := preflightOutput(t, &rightsServer{}, "--as="+programAccount, "--controller-accounts=ccm/x")
	require.Error(t, err)
	const allowed, account = `ok +rights +everything that the controllers do is allowed to `, "system:serviceaccount:ccm:x"
	assert.Regexp(t, allowed+programAccount+`\n`, out)
	assert.Regexp(t, `error +rights +`+account+`-node-controller is not allowed: delete nodes\n`, out)
	assert.Regexp(t, allowed+account+`-route-controller\n`, out)
	assert.Regexp(t, allowed+account+`-service-controller\n`, out)
}

// TestPreflightAs: permissions are those of --as, or else of the present user, whom the result names.
func TestPreflightAs(t *testing.T) {
	for as, want := range map[string]string{
		"":             `ok +rights +everything that the controllers do is allowed to admin`,
		programAccount: `error +rights +` + programAccount + ` is not allowed: delete nodes`,
	} {
		api := &rightsServer{}
		var args []string
		if as != "" {
			args = append(args, "--as="+as)
		}
		out, err := preflightOutput(t, api, args...)
		assert.Equal(t, as == "", err == nil, "%v", err)
		assert.Regexp(t, want, out)
		require.NotEmpty(t, api.users)
		for _, user := range api.users {
			assert.Equal(t, cmp.Or(as, "admin"), user, "the whole cluster is asked as that user")
		}
	}
}

// TestDifferences: values of a Node that its cloud contradicts; missing values are not differences.
func TestDifferences(t *testing.T) {
	t.Parallel()
	node := func(change func(*v1.Node)) *v1.Node {
		n := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				v1.LabelInstanceTypeStable: "small", v1.LabelTopologyZone: "a", v1.LabelTopologyRegion: "r",
			}},
			Spec: v1.NodeSpec{ProviderID: "toy:///a/1"},
			Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
				{Type: v1.NodeHostName, Address: "node-1"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"},
			}},
		}
		change(n)
		return n
	}
	cloud := &cloudprovider.InstanceMetadata{
		ProviderID: "toy://1", InstanceType: "small", Zone: "a", Region: "r", AdditionalLabels: map[string]string{"rack": "7"},
		NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeExternalIP, Address: "192.0.2.1"}},
	}
	same := sameInstance(registry.Provider{InstanceKey: func(id string) string { return id[len(id)-1:] }})
	for name, one := range map[string]struct {
		change func(*v1.Node)
		want   []string
	}{
		"nothing":    {func(*v1.Node) {}, nil},
		"type":       {func(n *v1.Node) { n.Labels[v1.LabelInstanceTypeStable] = "large" }, []string{"node.kubernetes.io/instance-type large, in the cloud small"}},
		"zone":       {func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = "b" }, []string{"topology.kubernetes.io/zone b, in the cloud a"}},
		"region":     {func(n *v1.Node) { n.Labels[v1.LabelTopologyRegion] = "s" }, []string{"topology.kubernetes.io/region s, in the cloud r"}},
		"additional": {func(n *v1.Node) { n.Labels["rack"] = "8" }, []string{"rack 8, in the cloud 7"}},
		"no labels":  {func(n *v1.Node) { n.Labels = nil }, nil},
		"instance":   {func(n *v1.Node) { n.Spec.ProviderID = "toy://2" }, []string{"provider ID toy://2, in the cloud toy://1"}},
		"address":    {func(n *v1.Node) { n.Status.Addresses[1].Address = "10.0.0.9" }, []string{"InternalIP 10.0.0.9, which the cloud does not know"}},
		"new": {func(n *v1.Node) {
			n.Spec.Taints, n.Labels[v1.LabelTopologyZone] = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}, "b"
		}, nil},
		"fewer known": {func(n *v1.Node) { n.Status.Addresses = n.Status.Addresses[:1] }, nil},
	} {
		n := node(one.change)
		assert.Equal(t, one.want, append(differences(n, cloud, same), labelDifferences(n, cloud)...), name)
	}
	assert.Empty(t, differences(node(func(*v1.Node) {}), nil, same), "another cloud's")
	assert.Empty(t, labelDifferences(node(func(*v1.Node) {}), nil), "another cloud's")
}
