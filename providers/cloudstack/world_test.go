package cloudstack

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// cluster is a provider without its guard in front of a simulated cloud in which things happen that the provider did not do.
type cluster struct {
	*cloud
	*conformance.Bench

	sim     *cloudstacksim.Sim
	server  *simkit.Server
	network *simkit.Network
	url     string
	file    string
	nodes   []*v1.Node
}

// inCluster runs a test in virtual time, with two nodes.
func inCluster(t *testing.T, prepare func(*cloudstacksim.Sim) (file string), test func(w *cluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := cloudstacksim.New(cloudstacksim.Options{Activation: 3 * time.Second, Seed: simkit.SeedOf(t)})
		w := &cluster{Bench: conformance.NewBench(t), sim: sim, server: server, network: simkit.NewNetwork()}
		if prepare != nil {
			w.file = prepare(sim)
		}
		w.url = w.network.Serve(t, server)
		require.NoError(t, sim.Judge())
		server.Disarrange(simkit.SeedOf(t), func(string, string) bool { return false })
		server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) })
		w.restart()
		w.addNode("worker-1")
		w.addNode("worker-2")
		test(w)
		assert.Empty(t, sim.Differences(), "the API's own description differs")
		assert.Empty(t, server.Calls().Refused, "malformed requests")
	})
}

// restart makes a new provider, with nothing in memory.
func (w *cluster) restart() {
	w.T.Helper()
	in := testInputs(w.sim, w.url, w.file)
	in.Dial = w.network.Dial
	c, err := maker().New(in)
	require.NoError(w.T, err)
	c.begin(cloudbase.Begun{Kube: w.Kube, Events: w.Recorder, Stop: w.T.Context().Done()})
	c.instances.nodes.SetLister(w.Nodes())
	c.reconciler.cluster.SetServices(w.Services())
	w.cloud = c
}

func (w *cluster) addNode(name string, networks ...string) *v1.Node {
	w.T.Helper()
	id := w.sim.AddVM(cloudstacksim.Spec{Name: name, Networks: networks})
	node := conformance.InitializedNode(name, providerIDPrefix+id)
	w.nodes = append(w.nodes, node)
	w.Register(node)
	return node
}

// serve applies a Service with a UID of its own.
func (w *cluster) serve(name string, ports ...v1.ServicePort) *v1.Service {
	w.T.Helper()
	s := service(name, nil, ports...)
	s.Name, s.UID = name, types.UID(hexed(name)+"6b52-7a66-4b58-8b4b-0a61c1f9e0a1")
	s.CreationTimestamp = metav1.Now()
	w.Apply(s)
	return s
}

// hexed makes the first two letters of a name part of a UID.
func hexed(name string) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for _, c := range []byte(name[:2]) {
		out.WriteByte(digits[c>>4])
		out.WriteByte(digits[c&15])
	}
	return out.String()
}

// insist reconciles a Service for as long as the provider asks for more time, up to ten minutes.
func (w *cluster) insist(s *v1.Service) (*v1.LoadBalancerStatus, error) {
	w.T.Helper()
	for began := time.Now(); ; {
		status, err := w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.Current(s), w.nodes)
		hint, later := errors.AsType[*cloudproviderapi.RetryError](err)
		if !later || time.Since(began) > 10*time.Minute {
			return status, err
		}
		time.Sleep(hint.RetryAfter())
	}
}

func (w *cluster) requireServed(s *v1.Service) *v1.Service {
	w.T.Helper()
	status, err := w.insist(s)
	require.NoError(w.T, err)
	return w.SetStatus(s, status)
}

// remove deletes a Service.
func (w *cluster) remove(s *v1.Service) {
	w.T.Helper()
	for began := time.Now(); ; {
		err := w.Remove(w.loadBalancers, "kubernetes", s)
		if err == nil {
			break
		}
		require.Less(w.T, time.Since(began), 10*time.Minute, "%v", err)
		time.Sleep(10 * time.Second)
	}
	require.NoError(w.T, w.Kube.CoreV1().Services(s.Namespace).Delete(w.T.Context(), s.Name, metav1.DeleteOptions{}))
}

// edit changes a Service as its user does.
func (w *cluster) edit(s *v1.Service, change func(*v1.Service)) {
	w.T.Helper()
	now := w.Current(s)
	change(now)
	w.Apply(now)
}

// waitUntilForgotten waits until nothing is remembered.
func (*cluster) waitUntilForgotten() { time.Sleep(15 * time.Minute) }

// address is the public address with this text.
func (w *cluster) address(text string) cloudstacksim.Address {
	all := w.sim.Addresses()
	i := slices.IndexFunc(all, func(a cloudstacksim.Address) bool { return a.Address == text })
	require.GreaterOrEqual(w.T, i, 0, text)
	return all[i]
}

// takenTexts are the addresses that are not free, less those of source NAT.
func (w *cluster) takenTexts() (texts []string) {
	for _, a := range w.sim.Addresses() {
		if a.State != "Free" && !a.SourceNAT {
			texts = append(texts, a.Address)
		}
	}
	return texts
}

func (w *cluster) ruleNames() (names []string) {
	for _, r := range w.sim.Rules() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// send gives a command as an administrator does by hand, and waits for its job.
func (w *cluster) send(pairs ...string) {
	w.T.Helper()
	form := []string{"response=json"}
	for pair := range slices.Chunk(pairs, 2) {
		form = append(form, strings.Join(pair, "="))
	}
	r := httptest.NewRequestWithContext(w.T.Context(), http.MethodGet, cloudstacksim.IntegrationPath+"?"+strings.Join(form, "&"), http.NoBody)
	answer := httptest.NewRecorder()
	w.sim.ServeHTTP(answer, r)
	require.Equal(w.T, http.StatusOK, answer.Code, "%s", answer.Body)
	time.Sleep(10 * time.Second)
}

// ruleByHand makes a load balancer rule that nobody's controller made.
func (w *cluster) ruleByHand(address, name, port string, more ...string) {
	w.T.Helper()
	w.send(append([]string{
		"command", "createLoadBalancerRule", "algorithm", "source", "name", name, "privateport", "1", "publicport", port, "publicipid", address,
		"networkid", w.sim.SeedNetwork(), "openfirewall", "false",
	}, more...)...)
}
