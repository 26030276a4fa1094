package conformance

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// hasSecrets reports whether Services name Secrets, with certificates for load balancers.
func (f *Fixture) hasSecrets() bool {
	if !f.hasLoadBalancers() {
		return false
	}
	_, asked := portableCase(f, newKube("cluster-1"), portable.TLSPorts)
	return strings.HasPrefix(asked[portable.Certificate], portable.SecretPrefix)
}

func runSecretChanges(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "a Secret changes while its Service is reconciled", func(t *testing.T) { newSecretWorld(t, newFixture(t)).changeMeanwhile() })
	virtual(t, "a Secret of a Service that is disowned or goes changes", func(t *testing.T) { newSecretWorld(t, newFixture(t)).changeWithoutEffect() })
}

// secretWorld has a Service with a certificate in a Secret, and one without.
type secretWorld struct {
	*world
	service *v1.Service
	secret  string
	asked   func() []string
}

func newSecretWorld(t *testing.T, f *Fixture) *secretWorld {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.stop()
	w.loops = true
	w.restart()
	w.addNode(ctx, "worker-1", nil)
	s := &secretWorld{world: w, asked: listenForRetries(w)}
	_, annotations := portableCase(f, w.kube, portable.TLSPorts)
	s.secret = strings.TrimPrefix(annotations[portable.Certificate], portable.SecretPrefix)
	s.service = portableService("portable", annotations)
	other := makeOther(nil)
	w.createService(ctx, s.service)
	w.createService(ctx, other)
	w.ensure(ctx, s.service, nil)
	w.ensure(ctx, other, nil)
	s.settle()
	w.Sim.ResetCalls()
	return s
}

// settle lets the provider do all that it does by itself.
func (w *secretWorld) settle() { time.Sleep(time.Hour) }

// listenForRetries gives the provider the function that the program gives it, and returns the names of the Services for which it was
// called since.
func listenForRetries(w *world) (asked func() []string) {
	var mu sync.Mutex
	var names []string
	g, ok := w.cloud.(*guard.Cloud)
	require.True(w.t, ok, "every cloud is opened with its guard")
	g.SetServiceRetry(func(waits func(*v1.Service) bool) {
		list, err := w.kube.CoreV1().Services(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{})
		mu.Lock()
		defer mu.Unlock()
		for i := range list.Items {
			if err == nil && waits(&list.Items[i]) {
				names = append(names, list.Items[i].Name)
			}
		}
	})
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		all := names
		names = nil
		return all
	}
}

// renew gives the Secret another certificate.
func (w *secretWorld) renew(serial int64) {
	w.t.Helper()
	secret, err := w.kube.CoreV1().Secrets(metav1.NamespaceDefault).Get(w.t.Context(), w.secret, metav1.GetOptions{})
	require.NoError(w.t, err)
	secret.Data = newCertificate(w.t, serial)
	_, err = w.kube.CoreV1().Secrets(metav1.NamespaceDefault).Update(w.t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func newCertificate(t testing.TB, serial int64) map[string][]byte {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return map[string][]byte{
		v1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		v1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// writes lists the operations that write, in the order of the calls.
func (w *secretWorld) writes() (operations []string) {
	for _, c := range w.Sim.Calls().Latest {
		if c.Write {
			operations = append(operations, c.Operation)
		}
	}
	return operations
}

// changeMeanwhile: whenever a Secret changes, only a reconciliation of its Service writes to the cloud, and the next one is asked for.
func (w *secretWorld) changeMeanwhile() {
	ctx, ports := w.t.Context(), w.service.Spec.Ports
	change := func(more ...v1.ServicePort) []string {
		w.changeService(ctx, w.service, func(s *v1.Service) { s.Spec.Ports = slices.Concat(ports, more) })
		w.Sim.ResetCalls()
		w.ensure(ctx, w.service, nil)
		w.settle()
		return w.writes()
	}
	alone := change(Port("more", 8080, 30081))
	require.NotEmpty(w.t, alone)
	change()
	require.Empty(w.t, w.asked())

	w.Sim.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(time.Second) })
	var once sync.Once
	w.kube.PrependReactor("get", "secrets", func(kubetesting.Action) (handled bool, ret runtime.Object, err error) {
		once.Do(func() { time.AfterFunc(time.Nanosecond, func() { w.renew(2) }) }) // once the reconciliation has read it
		return false, nil, nil
	})
	assert.Equal(w.t, alone, change(Port("more", 8080, 30081)), "the reconciliation alone writes, what it would have written anyway")
	assert.Equal(w.t, []string{w.service.Name}, w.asked(), "the Service that names the Secret is reconciled again, and no other one")

	w.Sim.ResetCalls()
	w.ensure(ctx, w.service, nil)
	assert.NotEmpty(w.t, w.writes(), "the new certificate")
	w.settle()
	w.Sim.ResetCalls()
	w.ensure(ctx, w.service, nil)
	assert.Empty(w.t, w.writes())
	assert.Empty(w.t, w.asked())
	w.requireNothingRefused()
}

// changeWithoutEffect: the certificate of a Service that is disowned stays, and one that is deleted is not reconciled again.
func (w *secretWorld) changeWithoutEffect() {
	ctx := w.t.Context()
	w.changeService(ctx, w.service, func(s *v1.Service) { s.Annotations[contract.AnnotationDisown] = "true" })
	w.renew(2)
	w.settle()
	w.ensure(ctx, w.service, nil)
	w.requireNoWrites("its load balancer is left alone")
	w.changeService(ctx, w.service, func(s *v1.Service) { delete(s.Annotations, contract.AnnotationDisown) })
	w.ensure(ctx, w.service, nil)
	assert.NotEmpty(w.t, w.writes(), "the new certificate")
	w.asked()

	w.goes(ctx, w.service)
	w.renew(3)
	w.settle()
	assert.Empty(w.t, w.asked())
	w.remove(ctx, w.service, nil)
	w.forget(ctx, w.service)
	w.Sim.ResetCalls()
	w.renew(4)
	w.settle()
	assert.Empty(w.t, w.asked())
	w.requireNoWrites("it is gone")
}
