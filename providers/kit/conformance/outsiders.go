package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// Outsiders holds hooks by which tenants, kubelets and others are tried. Each is set, or Lacks says why the cloud has no such thing.
type Outsiders struct {
	// Claims is how Services can ask for load balancers that they were not given.
	Claims *Claims
	// Share has a Service ask for what another one has, as the cloud lets several Services share it.
	Share func(guest, owner *v1.Service)
	// Reserve reserves an address that Services may ask for.
	Reserve func() Reserved
	// OwnershipTags are tags by which the cloud tells whose an object is, where Services set tags.
	OwnershipTags []string
	// Additions have somebody add to what a Service has, and returns whether that is there still. Each is something that others may share.
	Additions map[string]func(s *v1.Service) (stays func() bool)
	// AddInterface gives an instance a second interface in a second subnet.
	AddInterface func(providerID string)
	// SharedByName is why clusters of one name share a load balancer that the cloud's own controller made; "" where they do not.
	SharedByName string
	// Address6 makes an address of IPv6 that Services may ask for, and returns it with what they need for that. It is for clouds that serve
	// both families.
	Address6 func() (address string, with map[string]string)
	// Lacks are the hooks that are nil, by name, with the reason.
	Lacks map[string]string
}

// checkOutsiders returns the hooks that are neither there nor said to be missing for a reason, or both.
func (f *Fixture) checkOutsiders() error {
	nodes, loadBalancers := f.hasNodes(), f.hasLoadBalancers() && f.outside()
	hooks := map[string]struct{ has, applies bool }{
		"Claims": {f.Claims != nil, loadBalancers}, "Share": {f.Share != nil, loadBalancers}, "Reserve": {f.Reserve != nil, loadBalancers},
		"OwnershipTags": {f.OwnershipTags != nil, loadBalancers}, "Additions": {f.Additions != nil, loadBalancers},
		"AddInterface": {f.AddInterface != nil, loadBalancers && nodes}, "Address6": {f.Address6 != nil, loadBalancers && f.hasFamilies()},
		"TwinOf": {f.TwinOf != nil, nodes}, "Capitals": {f.Capitals != "", nodes},
	}
	var problems []error
	for _, name := range sortedKeys(hooks) {
		if h := hooks[name]; h.applies && h.has == (f.Lacks[name] != "") {
			problems = append(problems, fmt.Errorf("%s: the fixture has it, or Lacks says why the cloud has no such thing", name))
		}
	}
	for name := range f.Lacks {
		if _, is := hooks[name]; !is {
			problems = append(problems, fmt.Errorf("there is no hook %s", name))
		}
	}
	return errors.Join(problems...)
}

// What has become of a Service whose load balancer another one asks for.
const (
	ownerLives     = "lives"
	ownerElsewhere = "is another cluster's"
	ownerGone      = "is gone"
)

// runCopied: a tenant writes on a Service what the controller wrote on another one, and asks for its address. Whether it was served before
// or not, nothing of the other one's changes or goes with it.
func runCopied(t *testing.T, f *Fixture, owner string) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	c := w.Services[sortedKeys(w.Services)[0]]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	held, said := w.Snapshot(), w.service(ctx, c.Service)
	switch owner {
	case ownerElsewhere:
		w.kube = newKube("cluster-2")
		if w.OtherCluster != nil {
			w.OtherCluster()
		}
	case ownerGone:
		w.forget(ctx, c.Service)
		w.letPass(ctx)
		held = w.Snapshot()
	}
	for _, served := range []bool{false, true} {
		tenant := claimer(c)
		w.createService(ctx, tenant)
		if served {
			_ = w.ensureToEnd(ctx, tenant) // a cluster of the same name may be refused
		}
		w.changeService(ctx, tenant, func(s *v1.Service) {
			s.Annotations = maps.Clone(said.Annotations)
			if w.Claims != nil && w.Claims.NotGivenBack == "" {
				w.Claims.Claim(s, w.Claims.Of(said))
			}
			for _, i := range said.Status.LoadBalancer.Ingress {
				s.Spec.LoadBalancerIP = i.IP
			}
		})
		w.restart()
		if served {
			_ = w.ensureToEnd(ctx, tenant)
			time.Sleep(stepPause)
			w.restart()
		}
		assert.True(t, w.goesAnyhow(ctx, tenant))
		w.forget(ctx, tenant)
		assert.Equal(t, held, w.Snapshot(), "served %t", served)
	}
	if owner == ownerLives {
		w.Sim.ResetCalls()
		w.ensure(ctx, c.Service, nil)
		w.requireNoWrites("it is served as before")
	}
}

// letPass has a Service made and deleted: what goes with the next change has gone then.
func (w *world) letPass(ctx context.Context) {
	w.t.Helper()
	other := otherService()
	w.createService(ctx, other)
	w.ensure(ctx, other, nil)
	w.goes(ctx, other)
	w.remove(ctx, other, nil)
	w.forget(ctx, other)
}

// goesAnyhow has a Service deleted that may not go, and reports whether it went.
func (w *world) goesAnyhow(ctx context.Context, s *v1.Service) bool {
	w.t.Helper()
	w.goes(ctx, s)
	for range 5 {
		_, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, s))
		if err == nil && exists {
			err = w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, w.service(ctx, s))
		}
		w.requireNoCrash(err)
		if err == nil {
			return true
		}
		time.Sleep(time.Minute)
	}
	return false
}

var namesSecrets = regexp.MustCompile(`(?i)secret`)

// runSecrets: whatever names a Secret in a Service, one of another namespace is not even read.
func runSecrets(t *testing.T, f *Fixture) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	const theirs = "certs/web-tls"
	_, err := w.kube.CoreV1().Secrets("certs").Create(ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "certs", Name: "web-tls"},
		Data:       map[string][]byte{v1.TLSCertKey: []byte("x"), v1.TLSPrivateKeyKey: []byte("y")},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, asked := portableCase(f, w.kube, portable.TLSPorts)
	w.kube.ClearActions()
	for _, row := range slices.Concat(w.Provider.Annotations, portable.Annotations.Rows()) {
		if !namesSecrets.MatchString(row.Key + row.Help) {
			continue
		}
		for _, value := range []string{theirs, portable.SecretPrefix + theirs, `{"protocol": "https", "tls-secret-name": "` + theirs + `"}`} {
			s := portableService("portable", maps.Clone(asked))
			s.Annotations[strings.ReplaceAll(row.Key, "<port>", "80")] = value
			w.createService(ctx, s)
			_ = w.ensureToEnd(ctx, s)
			_ = w.goesAnyhow(ctx, s)
			w.forget(ctx, s)
		}
	}
	for _, a := range w.kube.Actions() {
		assert.False(t, a.GetResource().Resource == "secrets" && a.GetNamespace() != "default", "%s of a Secret in the namespace %s", a.GetVerb(), a.GetNamespace())
	}
}

// runShared: of two Services that share a load balancer either may go first. The other one keeps all it has, and nothing is left of both.
func runShared(t *testing.T, f *Fixture, guestFirst bool) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	owner, guest := featureService(nil), featureService(map[string]string{})
	guest.Name, guest.UID, guest.Spec.Ports = "guest", "9d2f6b52-5b66-4b58-8b4b-0a61c1f9e0a2", []v1.ServicePort{Port("more", 54, 30054)}
	w.createService(ctx, owner)
	w.ensure(ctx, owner, nil)
	alone := w.Snapshot()
	w.Share(guest, w.service(ctx, owner))
	w.createService(ctx, guest)
	w.ensure(ctx, guest, nil)
	require.NotEqual(t, alone, w.Snapshot())
	first, last := owner, guest
	if guestFirst {
		first, last = guest, owner
	}
	w.restart()
	w.goes(ctx, first)
	w.remove(ctx, first, func() {})
	w.forget(ctx, first)
	if guestFirst {
		assert.ElementsMatch(t, strings.Split(alone, "\n"), strings.Split(w.Snapshot(), "\n"), "tags may come in another order")
	}
	assert.Len(t, w.Serves(), 1, "the other one is served")
	w.ensure(ctx, last, nil)
	w.restart()
	w.Sim.ResetCalls()
	w.ensure(ctx, last, nil)
	w.requireNoWrites("it has all it needs")
	w.goes(ctx, last)
	w.remove(ctx, last, func() {})
	assert.Empty(t, w.Snapshot(), "nothing is left")
}
