// Package secrets reads the Secrets that Services name, and has a Service reconciled again when one of its Secrets changes.
//
// Only a reconciliation writes to the cloud, in the turn of its Service. Each Secret is watched by itself, so that no right to read all of
// them is needed.
package secrets

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// watchTime is the least time that a watch is requested for. A watch that nobody needs any more lasts until its end.
	watchTime = 5 * time.Minute
	// watchPause is the time from the end of a watch to the next one, which begins with the Secret as it then is.
	watchPause = 5 * time.Second
	// readPeriod is how often a Secret is read that may be read but not watched.
	readPeriod = 10 * time.Minute
	// pauseSpread is the share by which pauses differ.
	pauseSpread = 0.2
)

// Read reads a Secret.
type Read func(ctx context.Context, namespace, name string) (*v1.Secret, error)

// Follower follows the Secrets of Services. It only reads them until it is started and has a function that retries Services.
type Follower struct {
	mu      sync.Mutex
	kube    kubernetes.Interface
	stop    <-chan struct{}
	retry   func(func(*v1.Service) bool)
	secrets map[cache.ObjectName]*followedSecret
}

// followedSecret is a Secret that Services name.
type followedSecret struct {
	// read holds the content with which each Service was reconciled, by its UID, until another reconciliation is requested.
	read    map[types.UID]content
	watched bool
}

// content identifies the data of a Secret; the zero value is that of a Secret that does not exist.
type content [sha256.Size]byte

func contentOf(s *v1.Secret) content {
	data, _ := json.Marshal(s.Data) // a map of bytes cannot fail to be encoded
	return sha256.Sum256(data)
}

// Start sets the client. Watches end when stop is closed.
func (f *Follower) Start(kube kubernetes.Interface, stop <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kube, f.stop, f.secrets = kube, stop, map[cache.ObjectName]*followedSecret{}
}

// SetServiceRetry implements contract.ServiceRetrier.
func (f *Follower) SetServiceRetry(retry func(func(*v1.Service) bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retry = retry
}

// Inform adds the informer of Services, which has not started: Secrets are not followed for Services that are gone.
func (f *Follower) Inform(services cache.SharedIndexInformer) {
	// A handler of an informer that has not started cannot fail to be added.
	_, _ = services.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if service, ok := object.(*v1.Service); ok {
			f.forget(service.UID)
		}
	}})
}

// forget ends following Secrets for a Service.
func (f *Follower) forget(reader types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.secrets {
		delete(s.read, reader)
	}
}

// Get reads a Secret without following it.
func (f *Follower) Get(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return f.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Follow returns a function that reads Secrets for one reconciliation of a Service, and follows them for it instead of those that the last
// one has read. It reads each Secret once: what the reconciliation used is what changes are compared with.
func (f *Follower) Follow(service *v1.Service) Read {
	reader, known := service.UID, map[cache.ObjectName]*v1.Secret{}
	f.forget(reader) // one that fails before it reads all of them is repeated anyway
	return func(ctx context.Context, namespace, name string) (*v1.Secret, error) {
		id := cache.NewObjectName(namespace, name)
		if secret := known[id]; secret != nil {
			return secret, nil
		}
		f.note(reader, id, content{}, false) //nolint:contextcheck // as below; it lets no change be missed meanwhile
		secret, err := f.Get(ctx, namespace, name)
		read := content{}
		if err == nil {
			read, known[id] = contentOf(secret), secret
		}
		if err == nil || apierrors.IsNotFound(err) {
			f.note(reader, id, read, true) //nolint:contextcheck // watches outlive what begins them
		}
		return secret, err
	}
}

// note stores what a Service has read, or that it is about to read, and watches the Secret from then on.
func (f *Follower) note(reader types.UID, name cache.ObjectName, read content, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.secrets == nil || f.retry == nil {
		return
	}
	s := f.secrets[name]
	if s == nil {
		s = &followedSecret{read: map[types.UID]content{}}
		f.secrets[name] = s
	}
	if known && !s.watched {
		s.watched = true
		rescue.Go("watching a Secret", func() { f.watch(wait.ContextForChannel(f.stop), name) })
	}
	s.read[reader] = read
}

// watch compares each state of a Secret with what Services have read, as long as any has.
func (f *Follower) watch(ctx context.Context, name cache.ObjectName) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()}
	for f.isRead(name) {
		pause := watchPause
		only.TimeoutSeconds = new(int64(wait.Jitter(watchTime, 1).Seconds()))
		w, err := f.kube.CoreV1().Secrets(name.Namespace).Watch(ctx, only)
		switch {
		case err == nil:
			f.compareEach(ctx, name, w)
		case apierrors.IsForbidden(err):
			klog.ErrorS(err, "A Secret cannot be watched; it is read now and then", "secret", name)
			pause = readPeriod
			if secret, err := f.Get(ctx, name.Namespace, name.Name); err == nil {
				f.compare(name, contentOf(secret))
			}
		default:
			klog.V(2).InfoS("A Secret cannot be watched", "secret", name, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Jitter(pause, pauseSpread)):
		}
	}
}

// isRead reports whether any Service is reconciled with a Secret. If none is, the watch has to end.
func (f *Follower) isRead(name cache.ObjectName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.secrets[name].read) == 0 {
		delete(f.secrets, name)
		return false
	}
	return true
}

func (f *Follower) compareEach(ctx context.Context, name cache.ObjectName, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open {
				return
			}
			secret, ok := event.Object.(*v1.Secret)
			switch {
			case !ok || secret.Name != name.Name:
			case event.Type == watch.Deleted:
				f.compare(name, content{})
			default:
				f.compare(name, contentOf(secret))
			}
		}
	}
}

// compare requests a reconciliation of the Services that have read something else. One that fails is repeated anyway.
func (f *Follower) compare(name cache.ObjectName, now content) {
	outdated := sets.Set[types.UID]{}
	f.mu.Lock()
	for reader, read := range f.secrets[name].read {
		if read != now {
			outdated.Insert(reader)
			delete(f.secrets[name].read, reader)
		}
	}
	f.mu.Unlock()
	if len(outdated) == 0 {
		return
	}
	klog.InfoS("A Secret has changed, and its Services are reconciled", "secret", name)
	f.retry(func(s *v1.Service) bool { return s.DeletionTimestamp == nil && outdated.Has(s.UID) })
}
