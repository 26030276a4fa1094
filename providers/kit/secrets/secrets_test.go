package secrets

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

// world has an API server whose watches begin with the object as it is, as the real one's do.
type world struct {
	testing.TB
	*Follower
	kube *fake.Clientset

	mu       sync.Mutex
	watches  []*watch.FakeWatcher
	refused  error
	services []*v1.Service
	asked    []string
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, Follower: &Follower{}, kube: fake.NewSimpleClientset()}
		w.kube.PrependWatchReactor("secrets", func(kubetesting.Action) (bool, watch.Interface, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.refused != nil {
				return true, nil, w.refused
			}
			opened := watch.NewFakeWithChanSize(10, false)
			if now, err := w.kube.Tracker().Get(v1.SchemeGroupVersion.WithResource("secrets"), "default", "tls"); err == nil {
				opened.Add(now)
			}
			w.watches = append(w.watches, opened)
			return true, opened, nil
		})
		stop := make(chan struct{})
		defer func() { close(stop); synctest.Wait() }()
		w.Start(w.kube, stop)
		w.SetServiceRetry(func(waits func(*v1.Service) bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, s := range w.services {
				if waits(s) {
					w.asked = append(w.asked, s.Name)
				}
			}
		})
		for _, name := range []string{"a", "b", "c"} {
			w.services = append(w.services, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
		}
		w.put("one")
		test(w)
	})
}

// refuse has the API server refuse watches; nil ends that.
func (w *world) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = err
}

func secret(data string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tls"}, Data: map[string][]byte{"tls.crt": []byte(data)}}
}

// put stores a Secret, and shows it to those who watch it.
func (w *world) put(data string) {
	s := secret(data)
	w.store(s)
	w.show(watch.Modified, s)
}

func (w *world) store(s *v1.Secret) {
	w.Helper()
	if err := w.kube.Tracker().Add(s); apierrors.IsAlreadyExists(err) {
		require.NoError(w, w.kube.Tracker().Update(v1.SchemeGroupVersion.WithResource("secrets"), s, s.Namespace))
	}
}

func (w *world) show(kind watch.EventType, s runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, opened := range w.watches {
		if !opened.IsStopped() {
			opened.Action(kind, s)
		}
	}
}

// reconcile has Services read the Secret, as their reconciliations do.
func (w *world) reconcile(services ...int) {
	for _, n := range services {
		_, err := w.Follow(w.services[n])(w.Context(), "default", "tls")
		if !apierrors.IsNotFound(err) {
			require.NoError(w, err)
		}
		synctest.Wait()
	}
}

// requireAsked requires the Services that are to be reconciled again, since it was called last.
func (w *world) requireAsked(names ...string) {
	w.Helper()
	require.Equal(w, names, w.takeAsked())
}

func (w *world) takeAsked() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := slices.Sorted(slices.Values(w.asked))
	w.asked = nil
	return asked
}

func (w *world) open() (n int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, opened := range w.watches {
		if !opened.IsStopped() {
			n++
		}
	}
	return n
}

func TestChangedSecret(t *testing.T) {
	inWorld(t, func(w *world) {
		w.reconcile(0, 1)
		w.requireAsked()
		assert.Equal(w, 1, w.open(), "one watch serves both")
		w.put("two")
		w.requireAsked("a", "b")
		w.put("two")
		w.requireAsked()
		w.reconcile(0, 1, 2)
		w.requireAsked()
		w.services[1].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.put("three")
		w.requireAsked("a", "c")

		w.reconcile(0, 2)
		labelled := secret("three")
		labelled.Labels = map[string]string{"x": "y"}
		w.show(watch.Modified, labelled)
		assert.Empty(w, w.takeAsked(), "a label is nothing new")

		other := secret("four")
		other.Name = "other"
		w.show(watch.Modified, other)
		w.show(watch.Error, &metav1.Status{})
		w.requireAsked()
		w.show(watch.Deleted, secret("three"))
		w.requireAsked("a", "c")
	})
}

// TestChangeMeanwhile: no change is missed between reading and watching, or while another Service reads.
func TestChangeMeanwhile(t *testing.T) {
	inWorld(t, func(w *world) {
		now, next := "one", "two"
		w.kube.PrependReactor("get", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
			before := secret(now)
			if now != next {
				now = next
				w.put(now)
				synctest.Wait()
			}
			return true, before, nil
		})
		w.reconcile(0)
		w.requireAsked("a")
		w.reconcile(0)
		w.requireAsked()
		next = "three"
		w.reconcile(1)
		w.requireAsked("a", "b")
	})
}

// TestOneReconciliation: a Secret that changes while a reconciliation uses it for two purposes is not taken for applied.
func TestOneReconciliation(t *testing.T) {
	inWorld(t, func(w *world) {
		read := w.Follow(w.services[0])
		first, err := read(w.Context(), "default", "tls")
		require.NoError(w, err)
		w.store(secret("two")) // the watch shows it later
		second, err := read(w.Context(), "default", "tls")
		require.NoError(w, err)
		assert.Equal(w, first.Data, second.Data, "both purposes have the same content")
		w.show(watch.Modified, secret("two"))
		w.requireAsked("a")
	})
}

// TestOtherSecret: whoever may change a Service could otherwise have the program watch any number of Secrets.
func TestOtherSecret(t *testing.T) {
	inWorld(t, func(w *world) {
		w.reconcile(0)
		_, err := w.Follow(w.services[0])(w.Context(), "default", "other")
		require.True(w, apierrors.IsNotFound(err))
		require.Equal(w, 2, w.open())
		w.put("two")
		assert.Empty(w, w.takeAsked(), "it names another one")
		w.watches[0].Stop()
		time.Sleep(2 * watchPause)
		assert.Equal(w, 1, w.open(), "the watch of a Secret without Services ends")
	})
}

func TestMissingSecret(t *testing.T) {
	inWorld(t, func(w *world) {
		require.NoError(w, w.kube.Tracker().Delete(v1.SchemeGroupVersion.WithResource("secrets"), "default", "tls"))
		w.reconcile(0)
		w.requireAsked()
		w.put("one")
		w.requireAsked("a")
	})
}

// TestWatchesEnd: a watch that the API server ends begins again, and one that nobody needs ends.
func TestWatchesEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		factory := informers.NewSharedInformerFactory(w.kube, 0)
		w.Inform(factory.Core().V1().Services().Informer())
		for _, s := range w.services {
			require.NoError(w, w.kube.Tracker().Add(s))
		}
		factory.Start(w.Context().Done())
		factory.WaitForCacheSync(w.Context().Done())
		w.reconcile(0, 1)
		require.Equal(w, 1, w.open())
		w.watches[0].Stop()
		require.Zero(w, w.open())
		w.store(secret("two"))
		time.Sleep(2 * watchPause)
		w.requireAsked("a", "b")
		require.Equal(w, 1, w.open())

		require.NoError(w, w.kube.CoreV1().Services("").Delete(w.Context(), "b", metav1.DeleteOptions{}))
		w.put("three")
		w.requireAsked()
		w.watches[1].Stop()
		time.Sleep(2 * watchPause)
		assert.Zero(w, w.open(), "no Service names it any more")
		w.reconcile(2)
		assert.Equal(w, 1, w.open())
	})
}

// TestSecretThatMayNotBeWatched is read now and then, and asked for without rest where the API server is away.
func TestSecretThatMayNotBeWatched(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "tls", errors.New("no right")))
		w.reconcile(0)
		w.put("two")
		w.requireAsked()
		w.kube.ClearActions()
		time.Sleep(2 * readPeriod)
		w.requireAsked("a")
		assert.Less(w, len(w.kube.Actions()), 5)
		w.refuse(apierrors.NewServiceUnavailable("away"))
		w.reconcile(0)
		time.Sleep(2 * readPeriod)
		w.refuse(nil)
		time.Sleep(2 * watchPause)
		require.Equal(w, 1, w.open())
	})
}

// TestNobodyRetries: a program that only plans watches nothing.
func TestNobodyRetries(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetServiceRetry(nil)
		w.reconcile(0)
		assert.Zero(w, w.open())
		_, err := w.Get(w.Context(), "default", "tls")
		require.NoError(w, err)
	})
}
