package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// KubeAPI is the part of an API server that holds the ConfigMaps of a provider without a cloud (registry.Provider.InCluster). It takes
// the place of the simulated cloud: requests to it are counted, and fail in the same ways. It is as strict as the real one about
// versions: what was computed of an old one is refused.
type KubeAPI struct {
	// Held describes in one line each what ConfigMaps hold for Services.
	Held func([]*v1.ConfigMap) []string

	mu         sync.Mutex
	version    int
	configMaps map[string]*v1.ConfigMap
}

// NewKubeAPI returns one with ConfigMaps.
func NewKubeAPI(configMaps ...*v1.ConfigMap) *KubeAPI {
	k := &KubeAPI{configMaps: map[string]*v1.ConfigMap{}}
	for _, cm := range configMaps {
		k.put(cm)
	}
	return k
}

// Client returns a client that reaches ConfigMaps at a server over HTTP, and all else where it was.
func (*KubeAPI) Client(t testing.TB, network *simkit.Network, url string, rest clientset.Interface) clientset.Interface {
	t.Helper()
	client, err := clientset.NewForConfig(&restclient.Config{
		Host: url, Dial: network.Dial, QPS: -1, ContentConfig: restclient.ContentConfig{ContentType: "application/json"},
	})
	require.NoError(t, err)
	return splitClient{rest, client}
}

// splitClient is a client whose ConfigMaps are elsewhere.
type splitClient struct {
	clientset.Interface

	configMaps clientset.Interface
}

// CoreV1 implements kubernetes.Interface.
func (p splitClient) CoreV1() corev1.CoreV1Interface {
	return splitCore{p.Interface.CoreV1(), p.configMaps}
}

type splitCore struct {
	corev1.CoreV1Interface

	configMaps clientset.Interface
}

// ConfigMaps implements corev1.ConfigMapsGetter.
func (p splitCore) ConfigMaps(namespace string) corev1.ConfigMapInterface {
	return p.configMaps.CoreV1().ConfigMaps(namespace)
}

// ConfigMap returns a copy of one; nil where there is none.
func (k *KubeAPI) ConfigMap(namespace, name string) *v1.ConfigMap {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.configMaps[namespace+"/"+name].DeepCopy()
}

// Put writes a ConfigMap as somebody else does.
func (k *KubeAPI) Put(cm *v1.ConfigMap) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(cm)
}

// Delete removes a ConfigMap as somebody else does.
func (k *KubeAPI) Delete(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.configMaps, namespace+"/"+name)
}

func (k *KubeAPI) put(cm *v1.ConfigMap) *v1.ConfigMap {
	k.version++
	cm = cm.DeepCopy()
	cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	cm.ResourceVersion = strconv.Itoa(k.version)
	k.configMaps[cm.Namespace+"/"+cm.Name] = cm
	return cm
}

// parsePath returns what a path names.
func parsePath(path string) (namespace, name string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/namespaces/"), "/")
	switch {
	case len(parts) == 2 && parts[1] == "configmaps":
		return parts[0], "", true
	case len(parts) == 3 && parts[1] == "configmaps":
		return parts[0], parts[2], true
	}
	return "", "", false
}

// ServeHTTP implements simkit.Cloud.
func (k *KubeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	namespace, name, ok := parsePath(r.URL.Path)
	have := k.configMaps[namespace+"/"+name]
	switch {
	case !ok:
		k.WriteError(w, http.StatusNotFound, "there is no such path")
	case r.Method == http.MethodPost && name == "":
		k.write(w, r, namespace, "", http.StatusCreated)
	case have == nil:
		k.WriteError(w, http.StatusNotFound, fmt.Sprintf("configmaps %q not found", name))
	case r.Method == http.MethodGet:
		answer(w, http.StatusOK, have)
	case r.Method == http.MethodPut:
		k.write(w, r, namespace, name, http.StatusOK)
	default:
		k.WriteError(w, http.StatusMethodNotAllowed, "there is no such call")
	}
}

// write creates a ConfigMap, or replaces the one of a name.
func (k *KubeAPI) write(w http.ResponseWriter, r *http.Request, namespace, name string, status int) {
	asked := &v1.ConfigMap{}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(asked); err != nil || asked.Namespace != namespace || (name != "" && asked.Name != name) {
		k.WriteError(w, http.StatusBadRequest, fmt.Sprintf("the ConfigMap cannot be read, or is another one: %v", err))
		return
	}
	have := k.configMaps[namespace+"/"+asked.Name]
	switch {
	case name == "" && have != nil:
		k.conflict(w, metav1.StatusReasonAlreadyExists, "it exists")
	case name == "" && asked.ResourceVersion != "":
		k.WriteError(w, http.StatusBadRequest, "resourceVersion should not be set on objects to be created")
	case name != "" && asked.ResourceVersion == "":
		k.WriteError(w, http.StatusUnprocessableEntity, "a write without resourceVersion would overwrite what somebody else wrote")
	case name != "" && asked.ResourceVersion != have.ResourceVersion:
		k.conflict(w, metav1.StatusReasonConflict, "the object has been modified; please apply your changes to the latest version")
	default:
		answer(w, status, k.put(asked))
	}
}

// conflict is part of how several processes work: it is no request that should not have been made.
func (*KubeAPI) conflict(w http.ResponseWriter, reason metav1.StatusReason, message string) {
	answer(w, http.StatusConflict, failure(http.StatusConflict, reason, message))
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// Operation implements simkit.Cloud.
func (*KubeAPI) Operation(r *http.Request) (name string, write bool) {
	return r.Method + " configmaps", r.Method != http.MethodGet
}

// WriteError implements simkit.Cloud.
func (*KubeAPI) WriteError(w http.ResponseWriter, status int, message string) {
	reason := map[int]metav1.StatusReason{
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	}[status]
	answer(w, status, failure(status, reason, message))
}

func failure(status int, reason metav1.StatusReason, message string) metav1.Status {
	s := apierrors.NewGenericServerResponse(status, "", schema.GroupResource{}, "", message, 0, false).ErrStatus
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	s.Reason, s.Message, s.Details = reason, message, nil
	return s
}

// RateHeaders implements simkit.Cloud.
func (*KubeAPI) RateHeaders(http.Header, int, int, time.Time) {}

// State implements simkit.Cloud.
func (k *KubeAPI) State() json.RawMessage {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, _ := json.Marshal(k.configMaps) // texts alone
	return text
}

// Seed implements simkit.Cloud: there are no instances.
func (*KubeAPI) Seed(int) {}

// Instances implements simkit.Cloud.
func (*KubeAPI) Instances() []simkit.Instance { return nil }

// RemoveInstance implements simkit.Cloud.
func (*KubeAPI) RemoveInstance(string) error { return nil }

// Holdings implements simkit.Cloud.
func (k *KubeAPI) Holdings() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Held(slices.Collect(maps.Values(k.configMaps)))
}

// Environment implements simkit.Cloud.
func (*KubeAPI) Environment(string) map[string]string { return nil }

// Distort implements simkit.Cloud.
func (*KubeAPI) Distort() map[string]simkit.Distortion { return nil }

// Actions implements simkit.Cloud.
func (*KubeAPI) Actions() map[string]func(json.RawMessage) error { return nil }
