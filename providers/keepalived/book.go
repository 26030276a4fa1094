package keepalived

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/shared"
)

const (
	// gather is how long a change waits for others to be written with it.
	gather = 200 * time.Millisecond
	// writeSpacing is the shortest time between two writes.
	writeSpacing = time.Second
	// writeTimeout bounds a write with all its tries.
	writeTimeout = 20 * time.Second
	// unwatchedMaxAge is how long the cache is used while no watch reports changes.
	unwatchedMaxAge = 10 * time.Second
	// maxOwn is how many of our own versions are remembered, to distinguish them from others'.
	maxOwn = 64
)

// change returns a modified record. It is called again after a concurrent write.
type change func(record) (record, error)

// version is the ConfigMap at one time, nil if it does not exist, and its record.
type version struct {
	stored *v1.ConfigMap
	record record
}

// book is the ConfigMap that records the addresses of Services. Each write names the version it is based on, so that no process overwrites
// another one's changes.
type book struct {
	namespace, name string
	// publish completes a record with derived data.
	publish func(ctx context.Context, before, after record) (record, error)

	writer shared.Writer[version]
	mu     sync.Mutex
	client kubernetes.Interface
	// known is the ConfigMap as last read or written, nil if it does not exist. fresh: known is up to date.
	known *v1.ConfigMap
	fresh bool
	// asked is the time of the last read or write. watched reports whether a watch reports changes; nil without a watch.
	asked   time.Time
	watched func() bool
	own     []string
	wrote   time.Time
	// reading is held during a read, so that concurrent reads become one.
	reading chan struct{}
}

func newBook(namespace, name string, publish func(ctx context.Context, before, after record) (record, error)) *book {
	return &book{namespace: namespace, name: name, publish: publish, reading: make(chan struct{}, 1)}
}

func (b *book) title() string { return "ConfigMap " + b.namespace + "/" + b.name }

func (b *book) setClient(client kubernetes.Interface) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.client = client
}

// follow starts to trust the watch once it has synced. Earlier reads may be outdated.
func (b *book) follow(synced func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched, b.fresh = synced, false
}

// observe handles an event of the watch; nil means that the ConfigMap does not exist. Versions written by others invalidate the cache.
func (b *book) observe(cm *v1.ConfigMap) (foreign bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cm != nil && (slices.Contains(b.own, cm.ResourceVersion) || (b.known != nil && b.known.ResourceVersion == cm.ResourceVersion)) {
		return false
	}
	if cm == nil && b.fresh && b.known == nil {
		return false
	}
	b.fresh = false
	return true
}

func (b *book) isWatched() bool { return b.watched != nil && b.watched() }

// read returns the stored version, from the cache if possible.
func (b *book) read(ctx context.Context) (record, error) {
	cm, err := b.currentConfigMap(ctx)
	if err != nil {
		return record{}, err
	}
	return readRecord(cm)
}

func (b *book) currentConfigMap(ctx context.Context) (*v1.ConfigMap, error) {
	select {
	case b.reading <- struct{}{}:
		defer func() { <-b.reading }()
	case <-ctx.Done():
		return nil, fmt.Errorf("reading %s: %w", b.title(), ctx.Err())
	}
	b.mu.Lock()
	cm, client := b.known, b.client
	fresh := b.fresh && (b.isWatched() || time.Since(b.asked) < unwatchedMaxAge)
	if fresh || client == nil {
		b.mu.Unlock()
		if client == nil {
			return nil, fmt.Errorf("reading %s: the program does not lead yet", b.title())
		}
		return cm, nil
	}
	b.fresh, b.asked = true, time.Now() // unless a watch event contradicts meanwhile
	b.mu.Unlock()
	cm, err := client.CoreV1().ConfigMaps(b.namespace).Get(ctx, b.name, metav1.GetOptions{})
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		cm = nil
	case err != nil:
		b.fresh = false
		return nil, kubeError(err, "reading "+b.title())
	}
	b.known = cm
	return cm, nil
}

// commit makes a change and returns the stored version.
func (b *book) commit(ctx context.Context, apply change) (record, error) {
	target := shared.Target[version]{
		ID: b.title(), Name: b.title(), Gather: b.pause, Timeout: writeTimeout, Open: func() shared.Document[version] { return b },
	}
	after, err := b.writer.Submit(ctx, target, func(_ context.Context, before version) (version, error) {
		next, err := apply(before.record)
		return version{before.stored, next}, err
	})
	return after.record, err
}

// pause returns how long a change waits for others to be written with it.
func (b *book) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(gather, writeSpacing-time.Since(b.wrote))
}

// Read implements shared.Document.
func (b *book) Read(ctx context.Context, _ bool) (version, error) {
	cm, err := b.currentConfigMap(ctx)
	if err != nil {
		return version{}, err
	}
	r, err := readRecord(cm)
	return version{cm, r}, err
}

// Write implements shared.Document.
func (b *book) Write(ctx context.Context, before, after version) (version, error) {
	r, err := b.publish(ctx, before.record, after.record)
	if err != nil || (slices.Equal(before.record.entries, r.entries) && maps.Equal(before.record.data, r.data)) {
		return version{before.stored, r}, err
	}
	err = b.store(ctx, before.stored, r)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = shared.Outdated(err)
	}
	return version{before.stored, r}, err
}

// store writes the ConfigMap, based on the version of cm.
func (b *book) store(ctx context.Context, cm *v1.ConfigMap, r record) error {
	exists := cm != nil
	if exists {
		cm = cm.DeepCopy()
	} else {
		cm = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: b.name}}
	}
	if cm.Annotations == nil {
		cm.Annotations = map[string]string{}
	}
	cm.Annotations[annotationRegistry], cm.Data = r.encode(), r.data
	b.mu.Lock()
	client := b.client
	b.wrote = time.Now()
	b.mu.Unlock()
	var written *v1.ConfigMap
	var err error
	if exists {
		written, err = client.CoreV1().ConfigMaps(b.namespace).Update(ctx, cm, metav1.UpdateOptions{})
	} else {
		written, err = client.CoreV1().ConfigMaps(b.namespace).Create(ctx, cm, metav1.CreateOptions{})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.fresh = false // it may have been written
		return kubeError(err, "writing "+b.title())
	}
	b.known, b.asked = written, time.Now()
	if b.own = append(b.own, written.ResourceVersion); len(b.own) > maxOwn {
		b.own = b.own[1:]
	}
	return nil
}
